//! A state machine as a declaration: the accepting side of a session, its messages found by a perfect hash.
//!
//! `cargo run -p tapeworks-examples --bin declare_machine`

use tapeworks_dispatch::machine;

machine! {
    /// The accepting side of a session.
    machine Session<'m> { context: Acceptor, message: &'m str, dispatch: table }

    states { LoggedOut, Active, Probing }

    events {
        Logon = 'A' (user: &'m str),
        Heartbeat = '0',
        TestRequest = '1' (id: &'m str),
        Logout = '5',
        Silence,                                    // raised by a timer, not by a message
    }

    rows {
        LoggedOut + Logon [is_known]   => accept -> Active;
        LoggedOut + Logon              => refuse;
        Active | Probing + TestRequest => answer -> Active;
        Active | Probing + Logout      => confirm -> LoggedOut;
        Probing + Heartbeat            => _ -> Active;
        Active + Heartbeat             => _;
        Active + Silence               => probe -> Probing;
        Probing + Silence              => confirm -> LoggedOut;
        _ + _                          => reject;
    }
}

struct Acceptor;

#[rustfmt::skip]
impl Acceptor {
    fn is_known(&self, user: &str) -> bool { user == "TAPE" }
    fn accept(&mut self, user: &str) { println!("  > logon of {user} accepted") }
    fn refuse(&mut self, user: &str) { println!("  > logout: {user} is unknown") }
    fn answer(&mut self, id: &str) { println!("  > heartbeat {id}") }
    fn confirm(&mut self) { println!("  > logout") }
    fn probe(&mut self) { println!("  > test request") }
    fn reject(&mut self, state: SessionState, event: SessionEventKind) { println!("  > reject: {event} while {state}") }
}

fn main() {
    let (mut session, mut acceptor) = (Session::new(), Acceptor);
    for (code, text) in [('1', "early"), ('A', "NOBODY"), ('A', "TAPE"), ('1', "T7"), ('?', ""), ('5', "")] {
        println!("{code} {text}");
        if let Err(error) = session.dispatch(&mut acceptor, code.into(), text) {
            println!("  ! {error}");
        }
    }
    session.handle(&mut acceptor, SessionEvent::Silence);
    println!("{}\n\n{}", session.state(), Session::MERMAID);
}
