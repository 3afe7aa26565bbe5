//! Declarative state machines, checked at compile time.
//!
//! A session speaks a protocol of a few dozen message types and is in one of a few states. [`machine!`] takes a table of actions
//! for each type in each state, checks it, and generates one of three dispatchers that behave alike: a perfect hash and a table,
//! `match`, or if-else. The syntax is below. The perfect hash comes from [`search`], which also serves the command
//! `tapeworks hash`.
//!
//! # Cost
//! A machine is one byte. With `table`, on x86-64, `dispatch` compiles to the hash formula (one `and` for most protocols), a
//! comparison with the key in memory and its jump, three instructions for the slot's row of the table (`shl`, `lea`, `add`),
//! three that load the arguments, and one indirect call, `call *(cells,state,8)`, into which the row and its action are inlined.
//! After the call, one comparison detects a message that could not be read, and the state is stored. Neither the slot nor the
//! state needs a bounds check, because the compiler knows both ranges. If types arrive at random, mispredicting that call is most
//! of the cost; see the book's page of benchmarks. A dispatch touches one cache line of the keys and one of the table.
//!
//! With `match` the compiler chooses: comparisons for sparse codes, a jump table for dense ones. With `chain` the events are
//! compared in the order of their declaration. No form allocates.
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
//! - `context` is the type whose methods are called: actions, `fn action(&mut self, parameters..)`, and guards,
//!   `fn guard(&self, parameters..) -> bool`. `_` is no action. Parameters are passed by value, so parameters that a guard sees
//!   must be `Copy`. They may have any name.
//! - `message` is the type from which parameters are read, by [`FromMessage`]. It must be `Copy`; omit it if no event has a code.
//! - `output` is the type that all actions, `handle` and `dispatch` return. Omit it if they return nothing. `_` returns its
//!   default.
//! - `dispatch` is `table`, `match` or `chain`. `handle`, which takes an event with its parameters, always finds the event by
//!   `match`, and then the state's row in the chosen way.
//! - A code is a number, a character, or a text of up to eight characters with the first as the highest byte, as in
//!   [`search::values::code`]. It must be a literal, because a macro does not know the value of a constant, and cannot be
//!   negative.
//! - The most specific row wins: `State + Event`, then `State + _`, then `_ + Event`, then `_ + _`. `A | B + Event` means both
//!   states. Among rows with guards, the first whose guard returns true applies. The action of a row for any event takes the
//!   state and the kind of the event, because parameters differ.
//! - Without `-> State` the state does not change.
//!
//! A declaration does not compile if a pair of state and event has no row, if a row is repeated or unreachable, if no row leads
//! to a state, or if a name or a code is invalid. The error points at the offending token.
//!
//! The macro generates the machine with `new`, `in_state`, `state`, `handle`, `dispatch` and `MERMAID`, and the enums
//! `NAMEState`, `NAMEEvent` and `NAMEEventKind`. Attributes before `states` and `events`, such as a `derive`, apply to the enums.

extern crate self as tapeworks_dispatch;

use core::fmt;

pub use tapeworks_dispatch_macros::machine;
pub use tapeworks_dispatch_search as search;

/// An event parameter that can be read from a message.
pub trait FromMessage<M>: Sized {
    /// Reads the parameter. If this returns `None` because the message lacks it, the state does not change.
    fn from_message(message: M) -> Option<Self>;
}

/// The message itself.
impl<M> FromMessage<M> for M {
    #[inline]
    fn from_message(message: M) -> Option<Self> {
        Some(message)
    }
}

/// The reason why a message was not dispatched. The state is unchanged, and no action was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DispatchError {
    /// No event has this code.
    UnknownCode {
        /// The code.
        code: u64,
    },
    /// The parameters of the event with this code cannot be read from the message.
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

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
