//! One declaration, three dispatchers, one behaviour: that of an interpreter which looks the rows up in a list.

#![allow(clippy::unwrap_used, missing_docs)]

use proptest::collection::vec;
use proptest::prelude::*;
use tapeworks_dispatch::{DispatchError, FromMessage};

/// Four bytes, little-endian.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sequence(u32);

impl FromMessage<&[u8]> for Sequence {
    fn from_message(message: &[u8]) -> Option<Self> {
        message.first_chunk().map(|bytes| Self(u32::from_le_bytes(*bytes)))
    }
}

/// Notes every question and every action.
#[derive(Default)]
pub(crate) struct Notes(std::cell::RefCell<Vec<String>>);

impl Notes {
    fn note(&self, what: &str, with: String) {
        self.0.borrow_mut().push(format!("{what}({with})"));
    }

    fn is_next(&self, sequence: Sequence) -> bool {
        self.note("is_next", sequence.0.to_string());
        sequence.0.is_multiple_of(3)
    }

    fn is_late(&self, sequence: Sequence) -> bool {
        self.note("is_late", sequence.0.to_string());
        sequence.0.is_multiple_of(2)
    }

    fn begin(&mut self, sequence: Sequence) {
        self.note("begin", sequence.0.to_string());
    }

    fn late(&mut self, sequence: Sequence) {
        self.note("late", sequence.0.to_string());
    }

    fn gap(&mut self, sequence: Sequence) {
        self.note("gap", sequence.0.to_string());
    }

    fn text(&mut self, sequence: Sequence, text: &[u8]) {
        self.note("text", format!("{} {text:?}", sequence.0));
    }

    fn end(&mut self) {
        self.note("end", String::new());
    }

    fn tick(&mut self, count: u8) {
        self.note("tick", count.to_string());
    }
}

macro_rules! declare {
    ($module:ident, $dispatch:ident) => {
        mod $module {
            use super::{Notes, Sequence};

            impl Notes {
                pub(crate) fn $module(&mut self, state: LineState, event: LineEventKind) {
                    self.note("other", format!("{state} {event}"));
                }
            }

            tapeworks_dispatch::machine! {
                /// A line.
                pub(crate) machine Line<'m> { context: Notes, message: &'m [u8], dispatch: $dispatch }

                states { Closed, Open, Late, Ending }

                events {
                    // Parameters named as variables of the expansion: they are others.
                    Start = 'S' (state: Sequence),
                    Text = "TX" (message: Sequence, code: &'m [u8]),
                    Stop = 0x1234,
                    Pulse = b'P',
                    Tick (context: u8),
                }

                rows {
                    Closed + Start [is_next] => begin -> Open;
                    Closed + Start [is_late] => late -> Late;
                    Closed + Start           => gap;
                    Open | Late + Text       => text -> Open;
                    Open + Stop              => end -> Ending;
                    Ending + Tick            => tick -> Closed;
                    Late + Start [is_next]   => begin -> Open;
                    Late + _                 => $module -> Ending;
                    _ + Pulse                => _;
                    _ + Tick                 => tick;
                    _ + _                    => $module;
                }
            }
        }
    };
}

declare!(table, table);
declare!(by_match, match);
declare!(chain, chain);

/// A row: states, event, guard, action, next; `""` where a declaration has `_` or nothing.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The same rows as a list, the more particular first.
const ROWS: [Row; 12] = [
    ("Closed", "Start", "is_next", "begin", "Open"),
    ("Closed", "Start", "is_late", "late", "Late"),
    ("Closed", "Start", "", "gap", ""),
    ("Open", "Text", "", "text", "Open"),
    ("Late", "Text", "", "text", "Open"),
    ("Open", "Stop", "", "end", "Ending"),
    ("Ending", "Tick", "", "tick", "Closed"),
    ("Late", "Start", "is_next", "begin", "Open"),
    ("Late", "", "", "other", "Ending"),
    ("", "Pulse", "", "", ""),
    ("", "Tick", "", "tick", ""),
    ("", "", "", "other", ""),
];

/// An input of a test.
#[derive(Clone, Debug)]
enum Input {
    Message(u64, Vec<u8>),
    Tick(u8),
}

/// Looks the rows up one after the other.
struct Interpreter {
    state: &'static str,
    notes: Vec<String>,
}

impl Interpreter {
    fn take(&mut self, input: &Input) -> Result<(), DispatchError> {
        let (event, message): (&str, &[u8]) = match input {
            Input::Tick(_) => ("Tick", &[]),
            Input::Message(0x53, message) => ("Start", message),
            Input::Message(0x5458, message) => ("Text", message),
            Input::Message(0x1234, message) => ("Stop", message),
            Input::Message(0x50, message) => ("Pulse", message),
            Input::Message(code, _) => return Err(DispatchError::UnknownCode { code: *code }),
        };
        let sequence =
            if message.len() < 4 { None } else { Some(u32::from_le_bytes(message[..4].try_into().unwrap())) };
        if let (Input::Message(code, _), "Start" | "Text", None) = (input, event, sequence) {
            return Err(DispatchError::Malformed { code: *code });
        }
        let number = sequence.unwrap_or_default();
        for (of, on, guard, action, next) in ROWS {
            if !(of.is_empty() || of == self.state) || !(on.is_empty() || on == event) {
                continue;
            }
            if !guard.is_empty() {
                self.notes.push(format!("{guard}({number})"));
                if number % (if guard == "is_next" { 3 } else { 2 }) != 0 {
                    continue;
                }
            }
            let with = match (action, input) {
                ("other", _) => format!("{} {event}", self.state),
                ("text", _) => format!("{number} {message:?}"),
                ("tick", Input::Tick(count)) => count.to_string(),
                ("end", _) => String::new(),
                _ => number.to_string(),
            };
            if !action.is_empty() {
                self.notes.push(format!("{action}({with})"));
            }
            if !next.is_empty() {
                self.state = next;
            }
            return Ok(());
        }
        panic!("the last row takes everything");
    }
}

fn any_input() -> impl Strategy<Value = Input> {
    let codes = prop_oneof![
        8 => prop::sample::select(vec![0x53, 0x5458, 0x1234, 0x50]),
        1 => any::<u64>(),
        1 => prop::sample::select(vec![0x53u64, 0x5458, 0x1234, 0x50]).prop_map(|code| code | 1 << 32),
    ];
    prop_oneof![
        4 => (codes, vec(any::<u8>(), 0..7)).prop_map(|(code, message)| Input::Message(code, message)),
        1 => any::<u8>().prop_map(Input::Tick),
    ]
}

macro_rules! assert_same {
    ($module:ident, $inputs:expr, $by_handle:expr) => {{
        let mut interpreter = Interpreter { state: "Closed", notes: Vec::new() };
        let (mut line, mut notes) = ($module::Line::new(), Notes::default());
        for input in $inputs {
            let expected = interpreter.take(input);
            let answer = match input {
                Input::Tick(count) => {
                    line.handle(&mut notes, $module::LineEvent::Tick { context: *count });
                    Ok(())
                }
                // Messages decoded elsewhere come as events.
                Input::Message(0x5458, text) if $by_handle && text.len() >= 4 => {
                    let sequence = Sequence::from_message(text.as_slice()).unwrap();
                    line.handle(&mut notes, $module::LineEvent::Text { message: sequence, code: text });
                    Ok(())
                }
                Input::Message(0x1234, _) if $by_handle => {
                    line.handle(&mut notes, $module::LineEvent::Stop);
                    Ok(())
                }
                Input::Message(code, message) => line.dispatch(&mut notes, *code, message),
            };
            prop_assert_eq!(answer, expected);
            prop_assert_eq!(line.state().to_string(), interpreter.state);
            prop_assert_eq!(&*notes.0.borrow(), &interpreter.notes);
            // A machine rebuilt from its state continues alike.
            line = $module::Line::in_state(line.state());
        }
    }};
}

proptest! {
    #[test]
    fn every_dispatcher_equals_the_interpreter(inputs in vec(any_input(), 1..60), by_handle in any::<bool>()) {
        assert_same!(table, &inputs, by_handle);
        assert_same!(by_match, &inputs, by_handle);
        assert_same!(chain, &inputs, by_handle);
    }
}

#[test]
fn the_diagram_is_that_of_the_declaration() {
    let expected = "\
stateDiagram-v2
    [*] --> Closed
    Closed --> Open: Start [is_next] / begin
    Closed --> Late: Start [is_late] / late
    Closed --> Closed: Start / gap
    %% Closed --> Closed: any other / table
    Closed --> Closed: Pulse
    Closed --> Closed: Tick / tick
    %% Open --> Open: any other / table
    Open --> Open: Text / text
    Open --> Ending: Stop / end
    Open --> Open: Pulse
    Open --> Open: Tick / tick
    Late --> Open: Start [is_next] / begin
    Late --> Ending: any other / table
    Late --> Open: Text / text
    %% Ending --> Ending: any other / table
    Ending --> Ending: Pulse
    Ending --> Closed: Tick / tick
";
    assert_eq!(table::Line::MERMAID, expected);
}

/// A code that no message has.
#[derive(Clone, Copy)]
pub(crate) struct Never;

impl FromMessage<u64> for Never {
    fn from_message(_: u64) -> Option<Self> {
        None
    }
}

/// Adds up its parameters.
#[derive(Default)]
pub(crate) struct Sum(u64);

impl Sum {
    fn is_odd(&self, a: u64, b: u64, c: u64, d: u64) -> bool {
        (a + b + c + d) % 2 == 1
    }

    fn add(&mut self, a: u64, b: u64, c: u64, d: u64) {
        self.0 += a + b + c + d;
    }

    fn never(&mut self, _: u64, _: Never) {
        self.0 += 1;
    }
}

/// Parameters named as what the expansion names; and events that differ in letters which names of functions do not have.
macro_rules! declare_names {
    ($module:ident, $dispatch:ident) => {
        #[allow(non_camel_case_types)]
        mod $module {
            use super::{Never, Sum};

            tapeworks_dispatch::machine! {
                pub(crate) machine Named { context: Sum, message: u64, dispatch: $dispatch }

                states { Even, Odd }

                events {
                    X = 1 (code: u64, other: Never),
                    A = 2 (context: u64, state: u64, message: u64, code: u64),
                    B = 3 (event: u64, kind: u64, names: u64, this: u64),
                    C = 4 (row: u64, next: u64, index: u64, slot: u64),
                    D = 5 (value: u64, word: u64, offset: u64, is_within: u64),
                    E = 6 (on_0_x: u64, on_5_e_row_0: u64, on_5_e_row_0_by_message: u64, on_5_e: u64),
                    F = 7 (new: u64, in_state: u64, dispatch: u64, handle: u64),
                    G = 8 (self_: u64, r#match: u64, core: u64, tapeworks_dispatch: u64),
                    FooBar = 9 (a: u64, b: u64, c: u64, d: u64),
                    Foo_bar = 10 (d: u64, c: u64, b: u64, a: u64),
                    Foo_Bar,
                }

                rows {
                    _ + X => never;
                    _ + A [is_odd] => add -> Odd;
                    _ + A => add -> Even;
                    _ + B [is_odd] => add -> Odd;
                    _ + B => add -> Even;
                    _ + C [is_odd] => add -> Odd;
                    _ + C => add -> Even;
                    _ + D [is_odd] => add -> Odd;
                    _ + D => add -> Even;
                    _ + E [is_odd] => add -> Odd;
                    Odd + E => add -> Even;
                    _ + E => add;
                    _ + F => add;
                    _ + G => add;
                    _ + FooBar => add;
                    _ + Foo_bar => _;
                    _ + Foo_Bar => _;
                }
            }

            #[test]
            fn parameters_may_have_any_name() {
                let (mut named, mut sum) = (Named::new(), Sum::default());
                let malformed = tapeworks_dispatch::DispatchError::Malformed { code: 1 };
                assert_eq!(named.dispatch(&mut sum, 1, 777), Err(malformed));
                for code in 2..=10 {
                    assert_eq!(named.dispatch(&mut sum, code, 100), Ok(()));
                }
                assert_eq!((sum.0, named.state()), (8 * 400, NamedState::Even));
                named.handle(&mut sum, NamedEvent::A { context: 1, state: 2, message: 3, code: 5 });
                assert_eq!((sum.0, named.state()), (3211, NamedState::Odd));
                named.handle(
                    &mut sum,
                    NamedEvent::E { on_0_x: 1, on_5_e_row_0: 1, on_5_e_row_0_by_message: 1, on_5_e: 1 },
                );
                assert_eq!((sum.0, named.state()), (3215, NamedState::Even));
            }
        }
    };
}

declare_names!(names_by_table, table);
declare_names!(names_by_match, match);
declare_names!(names_by_chain, chain);

/// A machine whose actions return a value.
macro_rules! declare_answering {
    ($module:ident, $dispatch:tt) => {
        mod $module {
            use super::Doubled;

            tapeworks_dispatch::machine! {
                pub(crate) machine Door {
                    context: Doubled, message: u64, output: Option<u64>, dispatch: $dispatch
                }

                states { Open, Shut }

                events { Knock = 1 (count: u64), Push = 2, Wind }

                rows {
                    Open + Knock [is_few] => double;
                    Open + Knock => _ -> Shut;
                    Shut + Knock => double -> Open;
                    _ + Push => _;
                    Open + Wind => none -> Shut;
                    Shut + _ => any;
                }
            }

            #[test]
            fn actions_return_their_output() {
                let (mut door, mut context) = (Door::new(), Doubled);
                assert_eq!(door.dispatch(&mut context, 1, 4), Ok(Some(8)));
                assert_eq!((door.dispatch(&mut context, 2, 4), door.state()), (Ok(None), DoorState::Open));
                assert_eq!((door.dispatch(&mut context, 1, 99), door.state()), (Ok(None), DoorState::Shut));
                assert_eq!(door.handle(&mut context, DoorEvent::Wind), Some(7));
                assert_eq!(
                    (door.dispatch(&mut context, 1, 99), door.state()),
                    (Ok(Some(198)), DoorState::Open)
                );
                assert!(door.dispatch(&mut context, 3, 0).is_err());
                assert_eq!(
                    (door.handle(&mut context, DoorEvent::Wind), door.state()),
                    (None, DoorState::Shut)
                );
            }
        }
    };
}

pub(crate) struct Doubled;

impl Doubled {
    fn is_few(&self, count: u64) -> bool {
        count < 10
    }

    fn double(&mut self, count: u64) -> Option<u64> {
        Some(count * 2)
    }

    fn none(&mut self) -> Option<u64> {
        None
    }

    fn any<S, K>(&mut self, _: S, _: K) -> Option<u64> {
        Some(7)
    }
}

declare_answering!(answering_by_table, table);
declare_answering!(answering_by_match, match);
declare_answering!(answering_by_chain, chain);

/// The state and nothing else.
#[test]
fn a_machine_is_one_byte() {
    assert_eq!(size_of::<table::Line>(), 1);
    assert_eq!(size_of::<chain::Line>(), 1);
}

#[test]
fn an_error_names_the_code() {
    let (mut line, mut notes) = (table::Line::default(), Notes::default());
    let unknown = line.dispatch(&mut notes, 0x3f, &[]).unwrap_err();
    assert_eq!(unknown.to_string(), "no event has the code 0x3f");
    let malformed = line.dispatch(&mut notes, b'S'.into(), &[1]).unwrap_err();
    assert_eq!(malformed.to_string(), "the message of code 0x53 lacks a field that its event needs");
}
