//! The language of QuickFIX's acceptance definitions: one step per line.
//!
//! | line | step |
//! | --- | --- |
//! | `iCONNECT`, `iDISCONNECT` | the runner connects or disconnects |
//! | `eDISCONNECT` | the acceptor must disconnect, without another message |
//! | `I8=...` | the runner sends a message |
//! | `E8=...` | the acceptor must send a message |
//! | `# ...`, nothing | a comment |
//!
//! A digit and a comma after the first letter number the connection (`i2,CONNECT`); without them it is 1. `<TIME>` is the time when the
//! step runs; `<TIME+n>` and `<TIME-n>` are n seconds later and earlier. `eCONNECT`, the first step of definitions for initiators, is an
//! error, because the runner tests an acceptor.

use jiff::{SignedDuration, Timestamp};

use super::message::show;

/// The connection of a line without a number.
const DEFAULT_CONNECTION: u8 = 1;

/// A definition, ready to run.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The file, below the folder of all definitions.
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One line of a definition.
#[derive(Debug)]
pub(crate) struct Step {
    /// The number of the line, from 1.
    pub(crate) line: usize,
    /// The line, with `|` for SOH.
    pub(crate) text: String,
    /// The number of the connection.
    pub(crate) connection: u8,
    pub(crate) action: Action,
}

/// An action of the runner, or an event that it waits for.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Connect,
    Disconnect,
    Send(Template),
    Expect(Template),
    ExpectDisconnect,
}

/// A message with places for times.
#[derive(Debug, PartialEq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq)]
enum Piece {
    Bytes(Vec<u8>),
    /// The time of the step, this many seconds later.
    Time(i64),
}

impl Template {
    /// Finds the times in a message.
    fn parse(mut message: &[u8]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        while let Some(start) = message.iter().position(|byte| *byte == b'<') {
            let length = message[start..].iter().position(|byte| *byte == b'>').ok_or("`<` without `>`")?;
            let end = start + length;
            let name = show(&message[start + 1..end]);
            let shift_s = match name.strip_prefix("TIME") {
                Some("") => Some(0),
                Some(shift) if shift.starts_with(['+', '-']) => shift.parse().ok(),
                _ => None,
            };
            pieces.push(Piece::Bytes(message[..start].to_vec()));
            pieces.push(Piece::Time(shift_s.ok_or_else(|| format!("unknown placeholder `<{name}>`"))?));
            message = &message[end + 1..];
        }
        pieces.push(Piece::Bytes(message.to_vec()));
        Ok(Self(pieces))
    }

    /// The message with the times of a step that runs now.
    pub(crate) fn render(&self, now: Timestamp) -> Vec<u8> {
        let mut message = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Bytes(bytes) => message.extend(bytes),
                Piece::Time(shift_s) => {
                    let time = now + SignedDuration::from_secs(*shift_s);
                    message.extend(time.strftime("%Y%m%d-%H:%M:%S").to_string().into_bytes());
                }
            }
        }
        message
    }
}

impl Definition {
    /// Reads a definition. Errors name the file and the line.
    pub(crate) fn parse(name: &str, text: &[u8]) -> Result<Self, String> {
        let mut steps = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() && !line.starts_with(b"#") {
                steps.push(Step::parse(at + 1, line).map_err(|error| format!("{name}:{}: {error}", at + 1))?);
            }
        }
        if !steps.iter().any(|step| step.action == Action::Connect) {
            return Err(format!("{name}: nothing connects (iCONNECT)"));
        }
        if !steps.iter().any(|step| matches!(step.action, Action::Expect(_) | Action::ExpectDisconnect)) {
            return Err(format!("{name}: nothing is expected, so it would pass against any acceptor"));
        }
        Ok(Self { name: name.to_owned(), steps })
    }
}

impl Step {
    fn parse(number: usize, line: &[u8]) -> Result<Self, String> {
        let text = show(line);
        let (connection, rest) = match line {
            [_, digit, b',', rest @ ..] if digit.is_ascii_digit() => (digit - b'0', rest),
            [_, rest @ ..] => (DEFAULT_CONNECTION, rest),
            [] => (DEFAULT_CONNECTION, line),
        };
        let message = || match rest {
            [b'0'..=b'9', .., 1] => Template::parse(rest),
            [b'0'..=b'9', ..] => Err(format!("the message does not end in SOH: `{text}`")),
            _ => Err(format!("no message follows: `{text}`")),
        };
        let action = match (line.first(), rest) {
            (Some(b'i'), b"CONNECT") => Action::Connect,
            (Some(b'i'), b"DISCONNECT") => Action::Disconnect,
            (Some(b'e'), b"DISCONNECT") => Action::ExpectDisconnect,
            (Some(b'e'), b"CONNECT") => return Err("the acceptor under test does not connect".into()),
            (Some(b'I'), _) => Action::Send(message()?),
            (Some(b'E'), _) => Action::Expect(message()?),
            _ => return Err(format!("unknown command `{text}`")),
        };
        Ok(Self { line: number, text, connection, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Definition, String> {
        Definition::parse("ours.def", text.replace('|', "\x01").as_bytes())
    }

    fn error_of(text: &str) -> String {
        parse(text).map(|definition| definition.name).unwrap_err()
    }

    #[test]
    fn every_command_becomes_a_step_with_its_line_and_connection() {
        let text = "# a comment\niCONNECT\r\n\r\nI8=FIX.4.4|35=A|\nE8=FIX.4.4|35=A|\n\
                    i2,CONNECT\nI2,35=A|\nE2,8=FIX.4.4|\ne2,DISCONNECT\niDISCONNECT";
        let definition = parse(text).unwrap();
        let steps: Vec<_> = definition.steps.iter().map(|step| (step.line, step.connection)).collect();
        assert_eq!(steps, [(2, 1), (4, 1), (5, 1), (6, 2), (7, 2), (8, 2), (9, 2), (10, 1)]);
        let is_as_written = definition.steps.iter().zip([
            Action::Connect,
            Action::Send(Template(vec![Piece::Bytes(b"8=FIX.4.4\x0135=A\x01".to_vec())])),
            Action::Expect(Template(vec![Piece::Bytes(b"8=FIX.4.4\x0135=A\x01".to_vec())])),
            Action::Connect,
            Action::Send(Template(vec![Piece::Bytes(b"35=A\x01".to_vec())])),
            Action::Expect(Template(vec![Piece::Bytes(b"8=FIX.4.4\x01".to_vec())])),
            Action::ExpectDisconnect,
            Action::Disconnect,
        ]);
        for (step, action) in is_as_written {
            assert_eq!(step.action, action, "{}", step.text);
        }
        assert_eq!(definition.steps[1].text, "I8=FIX.4.4|35=A|");
    }

    #[test]
    fn an_unknown_command_is_an_error_with_its_line() {
        for command in
            ["iRECONNECT", "i CONNECT", "eDISCONNECT ", "i12,CONNECT", "x", "R8=FIX.4.4|", " iCONNECT"]
        {
            let found = error_of(&format!("iCONNECT\n\n{command}\neDISCONNECT\n"));
            assert_eq!(found, format!("ours.def:3: unknown command `{command}`"));
        }
        assert_eq!(error_of("eCONNECT\n"), "ours.def:1: the acceptor under test does not connect");
    }

    #[test]
    fn a_line_without_a_whole_message_is_an_error() {
        assert_eq!(error_of("iCONNECT\nI\n"), "ours.def:2: no message follows: `I`");
        assert_eq!(error_of("iCONNECT\nEXPECT\n"), "ours.def:2: no message follows: `EXPECT`");
        assert_eq!(
            error_of("I8=FIX.4.4|35=0\n"),
            "ours.def:1: the message does not end in SOH: `I8=FIX.4.4|35=0`"
        );
    }

    #[test]
    fn a_definition_that_cannot_fail_is_an_error() {
        assert_eq!(error_of(""), "ours.def: nothing connects (iCONNECT)");
        assert_eq!(error_of("# only a comment\n"), "ours.def: nothing connects (iCONNECT)");
        let found = error_of("iCONNECT\nI8=FIX.4.4|35=A|\niDISCONNECT\n");
        assert_eq!(found, "ours.def: nothing is expected, so it would pass against any acceptor");
    }

    #[test]
    fn times_are_those_of_the_step() {
        let template = Template::parse(b"58=a>b\x0152=<TIME>\x0160=<TIME+90>\x01122=<TIME-1>\x01").unwrap();
        let now: Timestamp = "2026-12-31T23:59:00.75Z".parse().unwrap();
        let expected = "58=a>b|52=20261231-23:59:00|60=20270101-00:00:30|122=20261231-23:58:59|";
        assert_eq!(show(&template.render(now)), expected);
    }

    #[test]
    fn an_unknown_placeholder_is_an_error() {
        for (text, found) in [
            ("<DATE>", "unknown placeholder `<DATE>`"),
            ("<TIME*2>", "unknown placeholder `<TIME*2>`"),
            ("<TIME+>", "unknown placeholder `<TIME+>`"),
            ("<TIME1>", "unknown placeholder `<TIME1>`"),
            ("<FILE:body.txt>", "unknown placeholder `<FILE:body.txt>`"),
            ("<TIME", "`<` without `>`"),
        ] {
            assert_eq!(error_of(&format!("iCONNECT\nI52={text}|\n")), format!("ours.def:2: {found}"));
        }
    }
}
