//! Plays a definition against an acceptor in this process.
//!
//! The runner connects to its own listener and gives the accepted end to the acceptor, on a thread per connection. It therefore knows
//! when the acceptor is done with a connection, and a panic of the acceptor fails the definition even where a disconnect is expected.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::definition::{Action, Definition, Step};
use super::message::{complete, differences, frame, show};

/// Serves one accepted connection until it ends.
pub(crate) type Serve = Arc<dyn Fn(TcpStream) + Send + Sync>;

/// A definition that failed, and where.
#[derive(Debug)]
pub(crate) struct Failure {
    name: String,
    line: usize,
    text: String,
    mismatch: Mismatch,
}

/// The expectation of a step, and the event that came instead.
#[derive(Debug)]
struct Mismatch {
    expected: String,
    came: String,
    differences: Vec<String>,
}

impl Mismatch {
    fn new(expected: &str, came: &impl ToString) -> Self {
        Self { expected: expected.to_owned(), came: came.to_string(), differences: Vec::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, line, text, mismatch: Mismatch { expected, came, differences } } = self;
        write!(f, "{name}:{line}: {text}\n    expected  {expected}\n    came      {came}")?;
        differences.iter().try_for_each(|difference| write!(f, "\n    - {difference}"))
    }
}

/// The next event of a connection.
enum Came {
    Message(Vec<u8>),
    /// The acceptor closed the connection after these bytes of a message.
    Closed(Vec<u8>),
    /// Nothing more came within this time after these bytes of a message.
    Nothing(Duration, Vec<u8>),
    Garbled(Vec<u8>, &'static str),
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => f.write_str(&show(message)),
            Self::Closed(part) if part.is_empty() => f.write_str("a disconnect"),
            Self::Closed(part) => write!(f, "a disconnect amid a message: {}", show(part)),
            Self::Nothing(time, part) if part.is_empty() => write!(f, "nothing within {time:?}"),
            Self::Nothing(time, part) => {
                write!(f, "no whole message within {time:?}: {}", show(part))
            }
            Self::Garbled(bytes, reason) => write!(f, "no FIX message ({reason}): {}", show(bytes)),
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// Received bytes of which no step has had the message yet.
    unread: Vec<u8>,
    acceptor: JoinHandle<()>,
}

impl Connection {
    /// Waits for the next message or the end of the connection.
    fn receive(&mut self, patience: Duration) -> Came {
        let deadline = Instant::now() + patience;
        let mut piece = [0; 4_096];
        loop {
            match frame(&self.unread) {
                Ok(Some(end)) => return Came::Message(self.unread.drain(..end).collect()),
                Ok(None) => {}
                Err(reason) => return Came::Garbled(self.unread.clone(), reason),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Came::Nothing(patience, self.unread.clone());
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            match self.stream.read(&mut piece) {
                Ok(0) => return Came::Closed(self.unread.clone()),
                Ok(count) => self.unread.extend(&piece[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A reset: the acceptor closed before it had read everything.
                Err(_) => return Came::Closed(self.unread.clone()),
            }
        }
    }

    /// Closes the connection and waits until the acceptor is done with it, so that the next one finds its session free.
    fn close(self, patience: Duration) -> Result<(), Mismatch> {
        drop(self.stream);
        let deadline = Instant::now() + patience;
        while !self.acceptor.is_finished() {
            if Instant::now() > deadline {
                let came = format!("still running {patience:?} later");
                return Err(Mismatch::new("the acceptor ends a closed connection", &came));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.acceptor.join().map_err(|_| Mismatch::new("the acceptor ends a closed connection", &"a panic"))
    }
}

/// The connections of a definition that runs.
struct Player {
    listener: TcpListener,
    serve: Serve,
    patience: Duration,
    open: BTreeMap<u8, Connection>,
}

impl Player {
    fn connect(&mut self, number: u8) -> Result<(), Mismatch> {
        if let Some(former) = self.open.remove(&number) {
            former.close(self.patience)?;
        }
        let stream = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(self.patience)).unwrap();
        let (accepted, _) = self.listener.accept().unwrap();
        let serve = self.serve.clone();
        let acceptor = std::thread::spawn(move || serve(accepted));
        self.open.insert(number, Connection { stream, unread: Vec::new(), acceptor });
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), Mismatch> {
        if step.action == Action::Connect {
            return self.connect(step.connection);
        }
        let Some(connection) = self.open.get_mut(&step.connection) else {
            return Err(Mismatch::new("an open connection", &"no such connection"));
        };
        match &step.action {
            Action::Connect | Action::Disconnect => {}
            Action::Send(template) => {
                let message = complete(&template.render(Timestamp::now()));
                return connection
                    .stream
                    .write_all(&message)
                    .map_err(|error| Mismatch::new("the message can be sent", &error));
            }
            Action::Expect(template) => {
                let expected = complete(&template.render(Timestamp::now()));
                let came = connection.receive(self.patience);
                let differences = match &came {
                    Came::Message(received) => differences(&expected, received),
                    _ => Vec::new(),
                };
                return match &came {
                    Came::Message(_) if differences.is_empty() => Ok(()),
                    _ => Err(Mismatch { differences, ..Mismatch::new(&show(&expected), &came) }),
                };
            }
            Action::ExpectDisconnect => match connection.receive(self.patience) {
                Came::Closed(part) if part.is_empty() => {}
                came => return Err(Mismatch::new("a disconnect", &came)),
            },
        }
        self.open.remove(&step.connection).map_or(Ok(()), |connection| connection.close(self.patience))
    }
}

/// Plays a definition against an acceptor that has not served anything yet. Each step waits at most `patience`.
pub(crate) fn play(definition: &Definition, serve: Serve, patience: Duration) -> Result<(), Box<Failure>> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut player = Player { listener, serve, patience, open: BTreeMap::new() };
    let failure = |step: &Step, mismatch| {
        let (name, text) = (definition.name.clone(), step.text.clone());
        Box::new(Failure { name, line: step.line, text, mismatch })
    };
    for step in &definition.steps {
        player.run(step).map_err(|mismatch| failure(step, mismatch))?;
    }
    let last = definition.steps.last().unwrap();
    while let Some((_, connection)) = player.open.pop_first() {
        connection.close(patience).map_err(|mismatch| failure(last, mismatch))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    /// A wait that should not run out.
    const LONG: Duration = Duration::from_secs(30);

    /// A wait that should run out.
    const SHORT: Duration = Duration::from_millis(500);

    /// An acceptor that sends fixed bytes after the first ones that it receives, then does something else.
    fn scripted(sent: &'static str, then: fn(TcpStream)) -> Serve {
        Arc::new(move |mut stream| {
            assert!(stream.read(&mut [0; 1_024]).unwrap() > 0);
            stream.write_all(&complete(sent.replace('|', "\x01").as_bytes())).unwrap();
            then(stream);
        })
    }

    fn wait_for_end(mut stream: TcpStream) {
        while stream.read(&mut [0; 1_024]).is_ok_and(|count| count > 0) {}
    }

    fn played(text: &str, serve: Serve, patience: Duration) -> String {
        let definition = Definition::parse("ours.def", text.replace('|', "\x01").as_bytes()).unwrap();
        play(&definition, serve, patience).map_or_else(|failure| failure.to_string(), |()| "passes".into())
    }

    #[test]
    fn a_definition_passes_if_every_message_and_the_disconnect_come() {
        let text = "iCONNECT\nI8=FIX.4.4|35=A|\nE8=FIX.4.4|35=A|\neDISCONNECT\n";
        assert_eq!(played(text, scripted("8=FIX.4.4|35=A|", drop), LONG), "passes");
    }

    #[test]
    fn another_message_fails_with_step_and_differences() {
        let text = "iCONNECT\nI8=FIX.4.4|35=A|\nE8=FIX.4.4|35=A|34=1|\n";
        assert_eq!(
            played(text, scripted("8=FIX.4.4|35=A|34=2|", wait_for_end), LONG),
            "ours.def:3: E8=FIX.4.4|35=A|34=1|\n    \
             expected  8=FIX.4.4|9=10|35=A|34=1|10=182|\n    \
             came      8=FIX.4.4|9=10|35=A|34=2|10=183|\n    \
             - 34 should be 1, but is 2"
        );
    }

    #[test]
    fn silence_fails_after_the_patience() {
        let found = played("# a comment\niCONNECT\nE8=FIX.4.4|\n", Arc::new(wait_for_end), SHORT);
        assert!(found.starts_with("ours.def:3: E8=FIX.4.4|\n"), "{found}");
        assert!(found.ends_with("came      nothing within 500ms"), "{found}");
    }

    #[test]
    fn a_disconnect_that_does_not_come_fails() {
        let found = played("iCONNECT\neDISCONNECT\n", Arc::new(wait_for_end), SHORT);
        assert!(found.ends_with("expected  a disconnect\n    came      nothing within 500ms"), "{found}");
    }

    #[test]
    fn a_message_before_an_expected_disconnect_fails() {
        let text = "iCONNECT\nI8=FIX.4.4|35=A|\neDISCONNECT\n";
        let found = played(text, scripted("8=FIX.4.4|35=A|", drop), LONG);
        assert!(
            found.ends_with("expected  a disconnect\n    came      8=FIX.4.4|9=5|35=A|10=180|"),
            "{found}"
        );
    }

    #[test]
    fn a_disconnect_instead_of_a_message_fails() {
        let text = "iCONNECT\nI8=FIX.4.4|35=A|\nE8=FIX.4.4|35=A|\nE8=FIX.4.4|35=0|\n";
        let found = played(text, scripted("8=FIX.4.4|35=A|", drop), LONG);
        assert!(found.ends_with("came      a disconnect"), "{found}");
    }

    #[test]
    fn bytes_that_are_no_message_fail() {
        let text = "iCONNECT\nI8=FIX.4.4|35=A|\nE8=FIX.4.4|35=A|\n";
        let found = played(text, scripted("35=A|", wait_for_end), LONG);
        assert!(found.ends_with("came      no FIX message (no BeginString): 35=A|"), "{found}");
    }

    #[test]
    fn an_acceptor_that_panics_fails_even_where_a_disconnect_is_expected() {
        let serve: Serve =
            Arc::new(|_| std::panic::resume_unwind(Box::new("not printed, since it is no fault")));
        assert!(played("iCONNECT\neDISCONNECT\n", serve, LONG).ends_with("came      a panic"));
    }

    #[test]
    fn an_acceptor_that_keeps_a_closed_connection_fails() {
        let serve: Serve = Arc::new(|stream| {
            stream.shutdown(Shutdown::Both).unwrap();
            std::thread::sleep(4 * SHORT);
        });
        assert!(played("iCONNECT\neDISCONNECT\n", serve, SHORT).ends_with("still running 500ms later"));
    }

    #[test]
    fn a_step_without_its_connection_fails() {
        let text = "i1,CONNECT\nI2,8=FIX.4.4|\nE2,8=FIX.4.4|\n";
        assert!(played(text, Arc::new(wait_for_end), LONG).ends_with("came      no such connection"));
    }
}
