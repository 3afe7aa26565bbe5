//! Sending: session messages, rejects, Logouts, and the end of a connection.

use tapeworks_fix_wire::{Writer, tag};

use super::{End, SECOND_NS, Session, State};
use crate::fix::link::{ROUTING, SendError};
use crate::fix::received::Received;
use crate::fix::store::{Store, StoreError};
use crate::fix::validate::Rejection;

impl Session {
    /// Sends a session message. If the store fails, the session ends.
    pub(super) fn reply(
        &mut self,
        store: &mut dyn Store,
        message_type: &[u8],
        header: &[(u32, &[u8])],
        now_ns: u64,
        body: impl FnOnce(&mut Writer<'_>),
    ) {
        match self.link.send_any(store, now_ns, message_type, header, body) {
            Ok(_) => {}
            Err(SendError::Store(error)) => self.finish(End::Store(error)),
            Err(_) => self.counters.unsent += 1,
        }
    }

    pub(super) fn send_logout(&mut self, store: &mut dyn Store, text: &str, now_ns: u64) {
        self.reply(store, b"5", &[], now_ns, |writer| {
            if !text.is_empty() {
                writer.text(tag::TEXT, text.as_bytes());
            }
        });
        if !matches!(self.state, State::Over(_)) {
            self.state = State::LoggingOut(now_ns);
        }
        self.link.is_open = false;
    }

    /// Sends a session reject with the routing fields reversed.
    pub(super) fn reject(
        &mut self,
        received: &Received<'_>,
        rejection: Rejection,
        store: &mut dyn Store,
        now_ns: u64,
    ) {
        self.counters.rejects += 1;
        let (header, used) = reversed(received);
        let header = header.get(..used).unwrap_or_default();
        let message_type = received.message_type;
        let has_reason = rejection.reason.number() <= 11 || self.link.settings.begin_string != "FIX.4.2";
        self.reply(store, b"3", header, now_ns, |writer| {
            writer
                .number(tag::REF_SEQ_NUM, received.sequence.unwrap_or(0))
                .text(tag::TEXT, rejection.reason.text().as_bytes());
            if let Some(tag) = rejection.tag {
                writer.signed(tag::REF_TAG_ID, tag);
            }
            if !message_type.is_empty() {
                writer.text(tag::REF_MSG_TYPE, message_type);
            }
            if has_reason {
                writer.number(tag::SESSION_REJECT_REASON, u64::from(rejection.reason.number()));
            }
        });
    }

    pub(super) fn business_reject(
        &mut self,
        received: &Received<'_>,
        reason: u32,
        text: &str,
        store: &mut dyn Store,
        now_ns: u64,
    ) {
        self.counters.business_rejects += 1;
        let (header, used) = reversed(received);
        let header = header.get(..used).unwrap_or_default();
        let settings = &self.link.settings;
        let version = settings.default_appl_ver_id.clone().filter(|_| settings.version_in_business_reject);
        self.reply(store, b"j", header, now_ns, |writer| {
            writer.number(tag::REF_SEQ_NUM, received.sequence.unwrap_or(0)).text(tag::TEXT, text.as_bytes());
            writer
                .text(tag::REF_MSG_TYPE, received.message_type)
                .number(tag::BUSINESS_REJECT_REASON, u64::from(reason));
            if let Some(version) = &version {
                writer.text(tag::DEFAULT_APPL_VER_ID, version.as_bytes());
            }
        });
    }

    /// Sends a Logout with the reason, then closes the connection.
    pub(super) fn close_with(&mut self, store: &mut dyn Store, text: &str, end: End, now_ns: u64) {
        self.send_logout(store, text, now_ns);
        self.close(end, now_ns);
        self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
    }

    /// Does the same with a Logout that is not stored and leaves the number `next` to the next message.
    pub(super) fn close_unnumbered(&mut self, next: u64, text: &str, end: End, now_ns: u64) {
        let sent =
            self.link.send_unkept(next, now_ns, b"5", |writer| _ = writer.text(tag::TEXT, text.as_bytes()));
        self.counters.unsent += u64::from(sent.is_err());
        self.close(end, now_ns);
    }

    /// Closes the connection once the output is sent.
    fn close(&mut self, end: End, now_ns: u64) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Closing { until_ns: now_ns + SECOND_NS, end, waits: false };
        }
        self.link.is_open = false;
        self.link.resend = None;
    }

    pub(super) fn close_if_sent(&mut self) {
        if let State::Closing { end, waits: false, .. } = &self.state
            && self.link.output().is_empty()
        {
            let end = end.clone();
            self.finish(end);
        }
    }

    pub(super) fn finish(&mut self, end: End) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(end);
        }
        self.link.is_open = false;
        self.queue.clear();
    }

    /// Ends the session if the store failed.
    pub(super) fn check(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.finish(End::Store(error));
        }
    }
}

/// Returns the routing fields of an answer, and how many there are.
fn reversed<'a>(received: &Received<'a>) -> ([(u32, &'a [u8]); ROUTING.len()], usize) {
    let mut header = [(0, &b""[..]); ROUTING.len()];
    let found = ROUTING.iter().filter_map(|(from, to)| received.field(*from).map(|value| (*to, value)));
    let mut used = 0;
    for (place, field) in header.iter_mut().zip(found) {
        *place = field;
        used += 1;
    }
    (header, used)
}
