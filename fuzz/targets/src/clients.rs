//! The lines of live clients.

use tapeworks_market::Symbol;
use tapeworks_outputs::clients::control::{Authenticator, Limits, Refusal, Request, Session, Wanted};
use tapeworks_outputs::stream::Request as StreamRequest;
use tapeworks_runtime::keys::{Key, Keys};
use tapeworks_time::Nanos;

/// Admits one key.
struct Open(Keys);

impl Authenticator for Open {
    fn admit(&mut self, _key: usize, _dataset: &str) -> Result<(), Refusal> {
        Ok(())
    }

    fn find(&self, challenge: &str, answer: &[u8; 32], bucket: &str) -> Option<usize> {
        self.0.find(challenge, answer, bucket)
    }
}

/// Longest line of a session here.
const LINE_BYTES: usize = 600;
/// Symbols of a session here.
const SYMBOLS: usize = 50;

fn run(parts: &[&[u8]], is_admitted: bool) -> (Vec<Request>, Result<(), Refusal>) {
    let key = Key::new("demo", "db-TapeworksDemoKey0000000000000").unwrap();
    let challenge = [7; 16];
    let limits = Limits { line_bytes: LINE_BYTES, symbols: SYMBOLS, lines: 20, ..Limits::default() };
    let mut session = Session::new(challenge, Nanos(0), limits);
    let greeting = session.greeting();
    let (_, challenge) = greeting.trim_end().rsplit_once("cram=").unwrap();
    let answer: String = key.answer(challenge).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut authenticator = Open(Keys::new(vec![key]));
    let mut requests = Vec::new();
    if is_admitted {
        let line = format!("auth={answer}-00000|dataset=TAPEWORKS.DEMO\n");
        session.receive(line.as_bytes(), &mut authenticator, &mut requests).unwrap();
    }
    let mut result = Ok(());
    for part in parts {
        result = result.and(session.receive(part, &mut authenticator, &mut requests));
    }
    (requests, result)
}

/// Lines of a client, before it is admitted or after: cut anywhere they mean the same; without a key there is no request;
/// requests keep the limits; a refusal is one line.
pub fn control(bytes: &[u8]) {
    let Some((first, lines)) = bytes.split_first() else { return };
    let is_admitted = first & 1 == 0;
    let whole = run(&[lines], is_admitted);
    let (one, other) = lines.split_at(usize::from(first >> 1).min(lines.len()));
    assert_eq!(run(&[one, other], is_admitted), whole);
    let (requests, result) = whole;
    if !is_admitted {
        assert!(requests.is_empty(), "{requests:?}");
    }
    let mut symbols = 0;
    for request in &requests {
        if let Request::Subscribe(one) | Request::Unsubscribe(one) = request {
            symbols += match &one.wanted {
                Wanted::All => 0,
                Wanted::Symbols(symbols) => symbols.len(),
                Wanted::Instruments(instruments) => instruments.len(),
            };
            assert!(!(one.has_snapshot && one.start.is_some()));
        }
    }
    assert!(symbols <= SYMBOLS);
    if let Err(refusal) = result {
        let line = Session::refusal(&refusal);
        assert!(line.starts_with("success=0|error=") && line.ends_with('\n'), "{line}");
        assert_eq!((line.matches('\n').count(), line.matches('|').count()), (1, 1), "{line}");
    }
}

/// The query of a client of the stream: it is refused in one line, or is a permitted request.
pub fn stream_request(bytes: &[u8]) {
    let query = String::from_utf8_lossy(bytes);
    let Ok(address) = format!("/stream?{query}").parse() else { return };
    match StreamRequest::read(&address) {
        Ok(request) => {
            assert!(request.nbbo || request.trades);
            for symbol in request.symbols.iter().flatten() {
                assert!(Symbol::parse(symbol.as_str()).is_some(), "{symbol:?}");
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}
