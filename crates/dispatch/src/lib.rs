//! State machines as declarations, dispatched by a perfect hash and a table, by `match`, or by if-else.
//!
//! A session speaks a protocol of a few dozen message types and is in one of a few states. [`machine!`] takes the table of
//! actions for each type in each state, checks it at compile time, and generates one of three dispatchers. They behave alike;
//! [`machine!`] has the syntax. The perfect hash comes from [`search`], which has other uses too; so has the command `tapeworks
//! hash`.
//!
//! # Cost
//! A machine is one byte. By `table`, `dispatch` compiles on x86-64 to the formula of the hash (one `and` for most
//! protocols' types), a comparison with the key in memory and its jump, three instructions for the slot's row of the
//! table (`shl`, `lea`, `add`), three that load the arguments, and one indirect call, `call *(cells,state,8)`; the row
//! with its action is inlined into what is called. Behind the call, one comparison finds a message that could not be
//! read, and the state is stored. Neither the slot nor the state is checked against a bound: the compiler knows both.
//! The call goes where the last ones did not when types come at random, and then its misprediction is most of the cost:
//! the book's page of benchmarks has figures. The lines touched are one of the keys and one of the table.
//!
//! By `match` the compiler chooses: comparisons where codes lie far apart, a jump table where they are dense. By `chain`
//! the events are compared in the order of their declaration. Nothing is allocated in any form.
//!
//! # The declaration
//! ```
//! use tapeworks_dispatch::{FromMessage, machine};
//!
//! /// The part of a logon that matters here.
//! #[derive(Clone, Copy)]
//! pub struct Logon {
//!     heartbeat_s: u8,
//! }
//!
//! impl FromMessage<&[u8]> for Logon {
//!     fn from_message(message: &[u8]) -> Option<Self> {
//!         message.first().map(|heartbeat_s| Logon { heartbeat_s: *heartbeat_s })
//!     }
//! }
//!
//! machine! {
//!     /// The accepting side of a session.
//!     pub machine Session<'m> { context: Acceptor, message: &'m [u8], dispatch: table }
//!
//!     states { LoggedOut, Active, Probing }       // the first is where it begins
//!
//!     events {
//!         Logon = 'A' (logon: Logon),             // a code and what is read from the message
//!         Heartbeat = '0',
//!         TestRequest = '1' (text: &'m [u8]),
//!         ResendRequest = '2' (text: &'m [u8]),
//!         Logout = '5',
//!         Silence,                                // no code: raised here, by a timer
//!     }
//!
//!     rows {
//!         LoggedOut + Logon [is_welcome] => accept -> Active;
//!         LoggedOut + Logon              => refuse;
//!         LoggedOut + Silence            => _;
//!
//!         Active | Probing + TestRequest   => answer -> Active;
//!         Active | Probing + ResendRequest => resend -> Active;
//!         Active | Probing + Logout        => confirm -> LoggedOut;
//!         Active + Heartbeat               => _;
//!         Active + Silence                 => probe -> Probing;
//!         Probing + Heartbeat              => _ -> Active;
//!         Probing + Silence                => hang_up -> LoggedOut;
//!
//!         _ + _ => unexpected;                    // any state, any event: the default
//!     }
//! }
//!
//! #[derive(Default)]
//! pub struct Acceptor {
//!     sent: Vec<String>,
//! }
//!
//! impl Acceptor {
//!     fn is_welcome(&self, logon: Logon) -> bool { logon.heartbeat_s > 0 }
//!     fn accept(&mut self, logon: Logon) { self.sent.push(format!("logon, {} s", logon.heartbeat_s)) }
//!     fn refuse(&mut self, _: Logon) { self.sent.push("reject".into()) }
//!     fn answer(&mut self, text: &[u8]) { self.sent.push(format!("heartbeat of {} bytes", text.len())) }
//!     fn resend(&mut self, _: &[u8]) { self.sent.push("gap fill".into()) }
//!     fn confirm(&mut self) { self.sent.push("logout".into()) }
//!     fn probe(&mut self) { self.sent.push("test request".into()) }
//!     fn hang_up(&mut self) { self.sent.push("gone".into()) }
//!     fn unexpected(&mut self, state: SessionState, event: SessionEventKind) {
//!         self.sent.push(format!("{event} while {state}"))
//!     }
//! }
//!
//! # fn main() {
//! let (mut session, mut acceptor) = (Session::new(), Acceptor::default());
//! assert_eq!(session.dispatch(&mut acceptor, b'1'.into(), b"early"), Ok(()));
//! assert_eq!(session.dispatch(&mut acceptor, b'A'.into(), &[30]), Ok(()));
//! session.handle(&mut acceptor, SessionEvent::Silence);
//! assert_eq!(session.state(), SessionState::Probing);
//! assert!(session.dispatch(&mut acceptor, b'?'.into(), &[]).is_err());
//! assert_eq!(acceptor.sent, ["TestRequest while LoggedOut", "logon, 30 s", "test request"]);
//! assert!(Session::MERMAID.contains("Active --> Probing: Silence / probe"));
//! # }
//! ```
//!
//! - `context` is the type whose methods are called: actions, `fn action(&mut self, parameters..)`, and guards, `fn
//!   guard(&self, parameters..) -> bool`. `_` is no action. Parameters are passed by value, so they must be `Copy` where a
//!   guard sees them, and may have any name.
//! - `message` is the type that parameters are read from, by [`FromMessage`]; it is `Copy`, and left out where no event
//!   has a code.
//! - `output` is the type that all actions return, and with them `handle` and `dispatch`; left out where they return nothing. `_`
//!   returns its default.
//! - `dispatch` is `table`, `match` or `chain`. `handle`, which takes an event with its parameters, finds the event by
//!   `match` always, and then the state's row in the chosen way.
//! - A code is a number, a character, or a text of up to eight characters, the first highest, as [`search::values::code`] has
//!   it: written out, since a macro does not know the value of a constant, and never negative.
//! - The most specific row wins: `State + Event`, then `State + _`, then `_ + Event`, then `_ + _`. `A | B + Event` means both
//!   states. Of several rows with guards the first that returns true is taken. The action of a row for any event takes the
//!   state and the kind of the event, since parameters differ.
//! - Without `-> State` the state stays.
//!
//! It does not compile if a pair of state and event has no row, if a row is given twice or can never be reached, if no
//! row leads to a state, or if a name or a code is wrong; the error is at the token that is wrong.
//!
//! The macro writes the machine with `new`, `in_state`, `state`, `handle`, `dispatch` and `MERMAID`, and the enums
//! `NAMEState`, `NAMEEvent` and `NAMEEventKind`. Attributes before `states` and `events`, such as a `derive`, go to the
//! enums.

extern crate self as tapeworks_dispatch;

use core::fmt;

pub use tapeworks_dispatch_macros::machine;
pub use tapeworks_dispatch_search as search;

/// A parameter of an event that can be read from a message.
pub trait FromMessage<M>: Sized {
    /// The parameter; `None` if the message does not hold one. The state stays as it is then.
    fn from_message(message: M) -> Option<Self>;
}

/// The message itself.
impl<M> FromMessage<M> for M {
    #[inline]
    fn from_message(message: M) -> Option<Self> {
        Some(message)
    }
}

/// Why a message was not dispatched. The state is as it was, and no action was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DispatchError {
    /// No event has this code.
    UnknownCode {
        /// The code.
        code: u64,
    },
    /// The parameters of the event of this code cannot be read from the message.
    Malformed {
        /// The code.
        code: u64,
    },
}

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCode { code } => write!(f, "no event has the code {code:#x}"),
            Self::Malformed { code } => {
                write!(f, "the message of code {code:#x} lacks a field that its event needs")
            }
        }
    }
}

impl core::error::Error for DispatchError {}

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
