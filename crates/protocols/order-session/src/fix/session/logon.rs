//! Logging on: the checks of a Logon, its answer, and the start of a session with both numbers at 1.

use subtle::ConstantTimeEq;
use tapeworks_fix_wire::{RejectReason, tag};

use super::{End, SECOND_NS, Session, State, Turn};
use crate::fix::link::Unsent;
use crate::fix::received::Received;
use crate::fix::settings::Role;
use crate::fix::store::Store;

const DAY_NS: u64 = 86_400 * SECOND_NS;

impl Session {
    pub(super) fn send_first_logon(&mut self, store: &mut dyn Store, now_ns: u64) {
        let resets = self.link.settings.resets_on_logon;
        // Orders of the previous session are not sent in this one.
        let _stale = self.begin_session(store, now_ns);
        self.reset_if(resets, store, now_ns);
        let heartbeat_s = self.link.settings.heartbeat_s;
        self.send_logon(store, u64::from(heartbeat_s), resets, now_ns);
    }

    fn send_logon(&mut self, store: &mut dyn Store, heartbeat_s: u64, resets: bool, now_ns: u64) {
        let version = self.link.settings.default_appl_ver_id.clone().filter(|_| self.link.settings.is_fixt());
        let is_initiator = self.link.settings.role == Role::Initiator;
        let credentials = self.link.settings.credentials.clone().filter(|_| is_initiator);
        self.reply(store, b"A", &[], now_ns, |writer| {
            writer.number(tag::ENCRYPT_METHOD, 0).number(tag::HEART_BT_INT, heartbeat_s);
            if resets {
                writer.flag(tag::RESET_SEQ_NUM_FLAG, true);
            }
            if let Some((user, password)) = &credentials {
                writer.text(tag::USERNAME, user.as_bytes()).text(tag::PASSWORD, password.as_bytes());
            }
            if let Some(version) = &version {
                writer.text(tag::DEFAULT_APPL_VER_ID, version.as_bytes());
            }
        });
    }

    pub(super) fn logon(&mut self, received: &Received<'_>, sequence: u64, turn: &mut Turn<'_>) {
        if let Err(why) = self.check_logon(received, turn.now_ns) {
            let Refusal::Wrong(answer, text, tags) = why else { return self.finish(End::WrongPassword) };
            let end = refused(text, &tags, received);
            return match answer {
                Answer::Logout => self.close_with(turn.store, text, end, turn.now_ns),
                Answer::Unnumbered => {
                    self.close_unnumbered(turn.store.next_outgoing(), text, end, turn.now_ns)
                }
                Answer::None => self.finish(end),
            };
        }
        let is_acceptor = self.link.settings.role == Role::Acceptor;
        let is_first = self.state == State::Fresh;
        let resets = received.is_set(tag::RESET_SEQ_NUM_FLAG);
        let begins_anew = resets
            || (is_first && self.link.settings.resets_on_logon)
            || (is_acceptor && self.began_ns(turn.store, turn.now_ns).is_some());
        let next = if begins_anew && is_acceptor { 1 } else { turn.store.next_outgoing() };
        if let Some(wanted) = received.number(tag::NEXT_EXPECTED_MSG_SEQ_NUM).filter(|wanted| *wanted > next)
        {
            let text = format!("NextExpectedMsgSeqNum too high, the next is {next} and not {wanted}");
            let end = End::Refused(text.clone());
            // Unnumbered, because consuming a number would bring the peer's next attempt closer to being accepted.
            return self.close_unnumbered(turn.store.next_outgoing(), &text, end, turn.now_ns);
        }
        let mut unsent = Vec::new();
        if is_acceptor || !is_first {
            unsent = self.begin_session(turn.store, turn.now_ns);
            self.reset_if(
                resets || (self.link.settings.resets_on_logon && is_first),
                turn.store,
                turn.now_ns,
            );
        } else if resets {
            // An answer to our Logon with ResetSeqNumFlag, or a reset by the peer. Our own numbers already start with our Logon.
            let result = turn.store.set_next_incoming(1);
            self.check(result);
        }
        if matches!(self.state, State::Over(_)) {
            return;
        }
        let expected = turn.store.next_incoming();
        if sequence < expected && !received.is_possible_duplicate {
            let text = format!("MsgSeqNum too low, expecting {expected} but received {sequence}");
            self.close_with(turn.store, &text, End::Refused(text.clone()), turn.now_ns);
            return;
        }
        let heartbeat_s = received.number(tag::HEART_BT_INT).unwrap_or(0);
        self.heartbeat_ns = heartbeat_s.saturating_mul(SECOND_NS);
        if sequence == expected {
            self.expect(sequence + 1, turn.store);
        }
        if is_acceptor {
            self.send_logon(turn.store, heartbeat_s, resets, turn.now_ns);
        }
        if matches!(self.state, State::Over(_)) {
            return;
        }
        self.state = State::LoggedOn;
        self.link.is_open = true;
        *turn.store.unsent_from() = None;
        let after_logon = turn.store.next_outgoing();
        match self.link.send_unsent(turn.store, turn.now_ns, &unsent) {
            Ok(failed) => self.counters.unsent += failed,
            Err(error) => return self.finish(End::Store(error)),
        }
        if sequence > expected {
            self.ask(sequence + 1, turn.store, turn.now_ns);
            if let Some(gap) = &mut self.gap {
                // The request covers the Logon itself.
                gap.highest = sequence;
            }
        }
        // NextExpectedMsgSeqNum (789): the peer says which of our messages it has.
        if let Some(next) = received.number(tag::NEXT_EXPECTED_MSG_SEQ_NUM)
            && next > 0
            && next < after_logon.saturating_sub(u64::from(is_acceptor))
        {
            self.link.begin_resend(turn.store, next, 0);
        }
        if is_first {
            turn.application.logged_on(&mut self.link, turn.store, turn.now_ns);
        }
    }

    /// Checks a Logon: its header, version, credentials, hours, fields and settings.
    fn check_logon(&mut self, received: &Received<'_>, now_ns: u64) -> Result<(), Refusal> {
        self.check_header(received, now_ns).map_err(|reason| match reason {
            RejectReason::CompIdProblem => {
                Refusal::Wrong(Answer::None, "another CompID", vec![tag::SENDER_COMP_ID, tag::TARGET_COMP_ID])
            }
            // A peer that is off by a day or more gets no answer, as the acceptance suite requires.
            _ => {
                let is_near = received.sending_ns.is_some_and(|sent_ns| now_ns.abs_diff(sent_ns) < DAY_NS);
                let answer = if is_near { Answer::Unnumbered } else { Answer::None };
                Refusal::Wrong(answer, "SendingTime is too far from now", vec![tag::SENDING_TIME])
            }
        })?;
        let settings = &self.link.settings;
        if settings.is_fixt() {
            let version = received.field(tag::DEFAULT_APPL_VER_ID);
            let version = version.ok_or(Refusal::Wrong(Answer::None, "no DefaultApplVerID", vec![]))?;
            let wanted = settings.default_appl_ver_id.as_deref();
            if wanted.is_some_and(|wanted| wanted.as_bytes() != version) {
                return Err(Refusal::Wrong(
                    Answer::Logout,
                    "DefaultApplVerID is not supported",
                    vec![tag::DEFAULT_APPL_VER_ID],
                ));
            }
        }
        if let Some((user, password)) =
            settings.credentials.as_ref().filter(|_| settings.role == Role::Acceptor)
        {
            let is_same =
                |tag, wanted: &str| received.field(tag).unwrap_or_default().ct_eq(wanted.as_bytes());
            if !bool::from(is_same(tag::USERNAME, user) & is_same(tag::PASSWORD, password)) {
                return Err(Refusal::WrongPassword);
            }
        }
        if settings.schedule.as_ref().is_some_and(|schedule| schedule.began_ns(now_ns).is_none()) {
            // No session is running that could number a Logout.
            return Err(Refusal::Wrong(Answer::Unnumbered, "outside of the session's hours", vec![]));
        }
        let is_valid = self.validated(received);
        if let Err(rejection) = is_valid {
            let tags = rejection.tag.and_then(|tag| u32::try_from(tag).ok()).into_iter().collect();
            return Err(Refusal::Wrong(Answer::Logout, rejection.reason.text(), tags));
        }
        let settings = &self.link.settings;
        if received.number(tag::ENCRYPT_METHOD) != Some(0) {
            return Err(Refusal::Wrong(
                Answer::Logout,
                "EncryptMethod is not supported",
                vec![tag::ENCRYPT_METHOD],
            ));
        }
        let range = u64::from(settings.needs_heartbeats)..=u64::from(settings.longest_heartbeat_s);
        if received.number(tag::HEART_BT_INT).is_none_or(|seconds| !range.contains(&seconds)) {
            return Err(Refusal::Wrong(
                Answer::Logout,
                "HeartBtInt is out of range",
                vec![tag::HEART_BT_INT],
            ));
        }
        Ok(())
    }

    /// Returns when the schedule's current session began, if the store still has an earlier session's sequence numbers.
    pub(super) fn began_ns(&self, store: &dyn Store, now_ns: u64) -> Option<u64> {
        let began_ns = self.link.settings.schedule.as_ref()?.began_ns(now_ns)?;
        Some(began_ns).filter(|began_ns| store.created_ns() < *began_ns)
    }

    /// Starts the schedule's new session with both numbers at 1, if one is due.
    ///
    /// Returns the previous session's unsent messages, newest first.
    fn begin_session(&mut self, store: &mut dyn Store, now_ns: u64) -> Vec<Unsent> {
        let (Some(began_ns), Some(schedule)) =
            (self.began_ns(store, now_ns), self.link.settings.schedule.clone())
        else {
            return Vec::new();
        };
        match self.link.unsent(store, &schedule, began_ns) {
            Ok(unsent) => {
                self.reset_if(true, store, now_ns);
                unsent
            }
            Err(error) => {
                self.finish(End::Store(error));
                Vec::new()
            }
        }
    }

    pub(super) fn reset_if(&mut self, condition: bool, store: &mut dyn Store, now_ns: u64) {
        if condition {
            let reset = store.reset(now_ns);
            self.check(reset);
            self.queue.clear();
            self.gap = None;
            self.link.resend = None;
        }
    }
}

/// Why a Logon is refused.
enum Refusal {
    /// The answer to the peer, the reason, and the offending tags.
    Wrong(Answer, &'static str, Vec<u32>),
    /// The connection is closed without an answer.
    WrongPassword,
}

/// The answer to a refused Logon before the connection is closed.
enum Answer {
    /// A Logout with the reason: the peer is known and may learn it.
    Logout,
    /// A Logout that consumes no sequence number.
    Unnumbered,
    /// No answer.
    None,
}

/// Tags whose values may be logged. Others may be passwords, which clients also put into RawData (96) and custom tags.
const SHOWN: [u32; 10] = [
    tag::BEGIN_STRING,
    tag::MSG_SEQ_NUM,
    tag::MSG_TYPE,
    tag::SENDER_COMP_ID,
    tag::SENDING_TIME,
    tag::TARGET_COMP_ID,
    tag::TEXT,
    tag::ENCRYPT_METHOD,
    tag::HEART_BT_INT,
    tag::DEFAULT_APPL_VER_ID,
];

/// Builds the end of a connection whose first message is refused, with the values of these tags.
pub(super) fn refused(why: &str, tags: &[u32], received: &Received<'_>) -> End {
    let mut text = why.to_owned();
    for tag in tags {
        let value = if *tag == tag::BEGIN_STRING {
            Some(received.message.begin_string())
        } else {
            received.field(*tag)
        };
        text.push_str(&match value {
            Some(value) if SHOWN.contains(tag) => format!(", tag {tag} is '{}'", shown(value)),
            Some(_) => format!(", tag {tag}"),
            None => format!(", tag {tag} is missing"),
        });
    }
    End::Refused(text)
}

/// The most bytes of a value to show.
const MOST_SHOWN: usize = 64;

/// Renders a value from a peer for the log: its first 64 bytes, with unprintable bytes escaped.
#[must_use]
pub fn shown(value: &[u8]) -> String {
    value.get(..MOST_SHOWN).unwrap_or(value).escape_ascii().to_string()
}
