//! The thread that connects the two plants of a pair.
//!
//! On a primary, it reads the journal's file behind the journal's thread, sends the records to the standby, and receives the
//! acknowledgements. On a standby, it receives the records, checks that none is missing, and passes them to ingest; when the
//! primary is silent, it has ingest take over. It sleeps until the sockets or the journal's thread wake it, or a heartbeat is due.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TrySendError;
use std::time::Duration;

use tapeworks_journal::{Decoded, Record};
use tapeworks_runtime::world::{Poll as _, TrySend as _, Wake as _, World};

use super::agree::{Verdict, decide, instance};
use super::codec::{Frame, Hello, Parsed, Reason, Role, Tip};
use super::follower::Follower;
use super::net::{Net, WAKER};
use super::state::{self, Remembered};
use super::{
    Alike, BEAT_NS, BeginAgain, PairError, PairSetting, PairStatus, Shared, stands_for_numbered, tip_before,
};

/// How often a primary without a standby checks whether the other plant is a primary too, in ns.
const ASK_NS: u64 = 1_000_000_000;

/// Time limit for the other plant's answer, in ns.
const PATIENCE_NS: u64 = 1_000_000_000;

/// How often a standby tries to connect, in ns.
const CALL_NS: u64 = 100_000_000;

/// Maximum sleep of the thread.
const LOOK: Duration = Duration::from_millis(100);

/// How long the thread sleeps while ingest has no room.
const REST: Duration = Duration::from_millis(1);

/// A standby that lags by at most this many records is in step: events wait for it.
const NEAR: u64 = 256;

/// How long events do not wait for a standby that was too slow, in ns.
const ALONE_NS: u64 = 1_000_000_000;

/// How long a stopping primary waits for its standby, in ns.
const FAREWELL_NS: u64 = 1_000_000_000;

/// Frames that a standby takes before it acknowledges.
const FRAMES_IN_TURN: usize = 8;

/// Pieces that may wait for ingest.
const PIECES: usize = 64;

/// A message to ingest.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Records of the primary's journal, unchanged and checked.
    Records(Arc<[u8]>),
    /// The primary is gone: ingest continues with the buffered packets of the plant's own lines, and then with the lines.
    TakeOver,
}

/// The plant as it presents itself to the other one.
struct Identity {
    instance: u64,
    alike: Alike,
    role: Role,
    epoch: u64,
}

impl Identity {
    fn is_primary(&self) -> bool {
        self.role == Role::Primary
    }

    /// Creates the hello of a plant that does not ask to follow, and whose journal's next record is `next`.
    fn hello(&self, next: u64) -> Hello {
        Hello {
            instance: self.instance,
            engine: self.alike.engine,
            lines: self.alike.lines,
            epoch: self.epoch,
            role: self.role,
            wants_primary: self.is_primary(),
            follows: false,
            only_asks: false,
            next,
            tip: Tip::default(),
        }
    }
}

/// The queue to ingest, and the message that it has no room for.
struct ToIngest<W: World> {
    pieces: W::SyncSender<Piece>,
    waker: Option<W::Waker>,
    pending: Option<Piece>,
}

impl<W: World> ToIngest<W> {
    const fn is_full(&self) -> bool {
        self.pending.is_some()
    }

    fn send(&mut self, piece: Piece) {
        match self.pieces.try_send(piece) {
            Ok(()) => {
                // Ingest checks by itself within a moment.
                let _looks_later = self.waker.as_ref().map(W::Waker::wake);
            }
            Err(TrySendError::Full(piece)) => self.pending = Some(piece),
            // Ingest has ended, and so has the plant.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Sends the message that ingest had no room for.
    fn send_pending(&mut self) {
        if let Some(piece) = self.pending.take() {
            self.send(piece);
        }
    }
}

/// How many times events stopped waiting for a slow standby, and when they last did.
#[derive(Default)]
struct Alone {
    times: u64,
    since_ns: u64,
}

impl Alone {
    /// Returns whether events may wait again, given how many times they have stopped waiting.
    const fn is_over(&mut self, times: u64, now_ns: u64) -> bool {
        if times > self.times {
            *self = Self { times, since_ns: now_ns };
        }
        times == 0 || now_ns.saturating_sub(self.since_ns) >= ALONE_NS
    }
}

/// A standby's call to the primary.
#[derive(Clone, Copy)]
enum Call {
    /// There is no call, or the primary has not accepted it.
    Unanswered,
    /// It only asks whether the primary is alive.
    Asking,
    /// The primary lets this plant follow.
    Following {
        /// The record that was last acknowledged, and when, in ns.
        acknowledged: Option<(u64, u64)>,
    },
}

/// The primary, as its standby knows it.
struct Upstream {
    call: Call,
    /// Number of the next record for ingest, and the record before it.
    handed: u64,
    tip: Tip,
    /// Number of the primary's next record.
    next: u64,
    has_said_bye: bool,
    /// More received frames may be waiting to be taken.
    has_more: bool,
    /// When the primary was last heard, in ns.
    heard_ns: u64,
    /// When the standby's last turn was, in ns; 0 before the first.
    turned_ns: u64,
}

impl Upstream {
    const fn is_followed(&self) -> bool {
        matches!(self.call, Call::Following { .. })
    }
}

/// The thread's state.
pub(crate) struct Link<W: World> {
    setting: PairSetting,
    folder: PathBuf,
    identity: Identity,
    net: Net<W>,
    shared: Arc<Shared<W>>,
    ingest: ToIngest<W>,
    /// For a primary.
    follower: Option<Follower<W>>,
    alone: Alone,
    /// For a standby.
    primary: Upstream,
    /// When the other plant was last asked or called, in ns; `None` means that a call is due immediately.
    asked_ns: Option<u64>,
    records: u64,
    takeovers: u64,
    reason: Option<String>,
}

/// The thread's state, what other threads share with it, and ingest's end.
type Opened<W> = (Link<W>, Arc<Shared<W>>, <W as World>::Receiver<Piece>);

impl<W: World> Link<W> {
    /// Opens the sockets and reads the remembered role. `next` is the number of the journal's next record.
    pub(crate) fn open(
        setting: &PairSetting,
        folder: &Path,
        alike: Alike,
        next: u64,
    ) -> Result<Opened<W>, PairError> {
        let net = Net::<W>::open(setting, alike)?;
        let remembered = state::read::<W>(folder)?;
        let Remembered { epoch, is_primary } =
            remembered.unwrap_or(Remembered { epoch: 0, is_primary: setting.is_primary });
        let role = setting.agreed.unwrap_or(if is_primary { Role::Primary } else { Role::Standby });
        let failed = |source| PairError::Listen { address: setting.listen, source };
        let waker = net.poll.waker(WAKER).map_err(failed)?;
        let status = PairStatus {
            role,
            epoch,
            peer: setting.peer.to_string(),
            moved_aside: setting.moved_aside.clone(),
            ..PairStatus::default()
        };
        let shared = Arc::new(Shared::new(waker, status));
        shared.written.store(next, Ordering::Release);
        let (pieces, pieces_out) = W::sync_channel(PIECES);
        let link = Self {
            setting: setting.clone(),
            folder: folder.to_owned(),
            identity: Identity { instance: instance::<W>(), alike, role, epoch },
            net,
            shared: Arc::clone(&shared),
            ingest: ToIngest { pieces, waker: None, pending: None },
            follower: None,
            alone: Alone::default(),
            primary: Upstream {
                call: Call::Unanswered,
                handed: next,
                tip: tip_before::<W>(folder, next)?.unwrap_or_default(),
                next,
                has_said_bye: false,
                has_more: false,
                heard_ns: 0,
                turned_ns: 0,
            },
            asked_ns: None,
            records: 0,
            takeovers: 0,
            reason: None,
        };
        Ok((link, shared, pieces_out))
    }

    /// Returns whether the plant is a standby.
    pub(crate) fn is_standby(&self) -> bool {
        self.identity.role == Role::Standby
    }

    /// Sets the waker for ingest.
    pub(crate) fn wakes(&mut self, ingest: W::Waker) {
        self.ingest.waker = Some(ingest);
    }

    fn hello(&self) -> Hello {
        self.identity.hello(self.shared.written.load(Ordering::Acquire))
    }

    /// Creates the hello of a standby that asks to follow.
    fn hello_to_follow(&self) -> Hello {
        let Upstream { handed, tip, .. } = self.primary;
        Hello { follows: true, tip, ..self.identity.hello(handed) }
    }

    /// Runs until the plant has stopped.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<(), BeginAgain> {
        loop {
            let longest = match (self.ingest.is_full(), self.primary.has_more) {
                (true, _) => REST,
                (false, true) => Duration::ZERO,
                (false, false) => LOOK,
            };
            let me = self.hello();
            self.net.turn(longest, &me);
            if self.shared.looks(self.identity.is_primary(), self.setting.standby_timeout) {
                self.asked_ns = None;
            }
            let now_ns = self.net.now_ns();
            let done = match self.identity.role {
                Role::Standby => self.follow(now_ns),
                Role::Primary | Role::Starting => self.lead(now_ns),
            };
            self.report();
            if let Err(why) = done {
                self.step_down(&why);
                return Err(why);
            }
            if stop.load(Ordering::Acquire)
                && (self.is_standby() || self.shared.has_ended.load(Ordering::Acquire))
            {
                self.say_farewell();
                return Ok(());
            }
        }
    }

    /// Stops all further events. A plant that steps down records that first, so that it is a standby whenever it starts again.
    fn step_down(&mut self, why: &BeginAgain) {
        self.shared.depose();
        if let BeginAgain::SteppedDown { epoch, .. } = why {
            let remembered = Remembered { epoch: self.identity.epoch.max(*epoch), is_primary: false };
            if let Err(error) = state::write::<W>(&self.folder, remembered) {
                // The process remembers the epoch instead: see `PairSetting::begin_again`.
                self.reason = Some(error.to_string());
                self.report();
            }
        }
    }

    /// Says farewell when the plant stops in good order: its standby gets the last records and need not wait for the silence.
    fn say_farewell(&mut self) {
        let began_ns = self.net.now_ns();
        let mut has_said = false;
        while self.identity.is_primary() && self.net.now_ns().saturating_sub(began_ns) < FAREWELL_NS {
            let Some(follower) = &self.follower else { return };
            let (instance, next) = (follower.instance, self.shared.written.load(Ordering::Acquire));
            let has_all = follower.acknowledged >= next;
            let Some(one) = self.net.incoming.iter_mut().find(|one| is_of(one.hello, instance)) else {
                return;
            };
            if has_all && has_said && one.connection.unsent() == 0 {
                return;
            }
            if has_all && !has_said {
                one.connection.send(&Frame::Bye);
                has_said = true;
            }
            let me = self.hello();
            self.net.turn(Duration::from_millis(10), &me);
            let now_ns = self.net.now_ns();
            if self.lead(now_ns).is_err() {
                return;
            }
        }
    }

    fn lead(&mut self, now_ns: u64) -> Result<(), BeginAgain> {
        self.ingest.send_pending();
        let written = self.shared.written.load(Ordering::Acquire);
        self.admit(written, now_ns)?;
        self.serve(written, now_ns);
        self.watch_step(written, now_ns);
        self.look_for_another(now_ns)
    }

    /// Accepts or refuses peers that have identified themselves. Steps down if one is of a later epoch, or is a primary that takes
    /// precedence.
    fn admit(&mut self, written: u64, now_ns: u64) -> Result<(), BeginAgain> {
        let mut incoming = std::mem::take(&mut self.net.incoming);
        let mut deposed = Ok(());
        for one in &mut incoming {
            let Some(hello) = one.hello else { continue };
            let is_later = hello.epoch > self.identity.epoch;
            let is_other_primary = hello.role == Role::Primary
                && decide(&Hello { next: written, ..self.hello() }, &hello) == Verdict::Standby;
            if is_later || is_other_primary {
                one.refuse(Reason::NotPrimary, "it is not the primary: it steps down", now_ns);
                deposed = Err(BeginAgain::SteppedDown { peer: self.setting.peer, epoch: hello.epoch });
                continue;
            }
            let is_followed =
                self.follower.as_ref().is_some_and(|follower| follower.instance == hello.instance);
            if !hello.follows || one.is_leaving() || is_followed {
                continue;
            }
            match self.accept(&hello, written) {
                Ok(follower) => {
                    one.connection.send(&Frame::Accepted);
                    if hello.only_asks {
                        one.leaves(now_ns);
                    } else {
                        self.follower = Some(follower);
                    }
                }
                Err((reason, text)) => {
                    self.reason = Some(format!("{}: {text}", one.address.ip()));
                    self.net.refused += 1;
                    one.refuse(reason, &text, now_ns);
                }
            }
        }
        self.net.incoming = incoming;
        deposed
    }

    /// Returns a follower for a plant that may follow from its next record, or the reason to refuse it.
    fn accept(&self, hello: &Hello, written: u64) -> Result<Follower<W>, (Reason, String)> {
        if self.follower.is_some() {
            return Err((Reason::Taken, "another standby follows already: a pair has two plants".to_owned()));
        }
        let next = hello.next;
        let failed = |error: tapeworks_journal::JournalError| (Reason::Other, error.to_string());
        let starts = tapeworks_journal::segment_starts_in::<W>(&self.folder).map_err(failed)?;
        let first = starts.first().copied().unwrap_or(next);
        if next < first {
            let text = format!(
                "the journal begins with record {first}, since the ones before were removed to make room (keep_gb), and the standby needs record {next}"
            );
            return Err((Reason::NotKept, text));
        }
        let has_tip = next == 0 || tip_before::<W>(&self.folder, next).map_err(failed)? == Some(hello.tip);
        if next > written || !has_tip {
            let text = format!(
                "the standby's journal, of {next} records, is not a beginning of this one, of {written}"
            );
            return Err((Reason::Diverged, text));
        }
        Follower::from_record(hello.instance, &self.folder, next).map_err(failed)
    }

    /// Sends the standby the records that it lacks, and takes its acknowledgements.
    fn serve(&mut self, written: u64, now_ns: u64) {
        let me = self.hello();
        let Some(follower) = &mut self.follower else { return };
        let one =
            self.net.incoming.iter_mut().find(|one| is_of(one.hello, follower.instance) && !one.is_leaving());
        let Some(one) = one else {
            // The standby has disconnected.
            (self.follower, self.asked_ns) = (None, None);
            return;
        };
        let (is_new, mut outcome) = follower.take_acknowledgements(&mut one.connection);
        if is_new {
            self.shared.acknowledge(follower.acknowledged);
        }
        if outcome.is_ok() {
            outcome = follower.send_records(&mut one.connection, written, &mut self.records, now_ns);
        }
        follower.beat(&mut one.connection, written, now_ns);
        let longest_ns = (self.setting.takeover_after.as_nanos() as u64).max(4 * BEAT_NS);
        let is_deaf =
            now_ns.saturating_sub(one.connection.heard_ns) > longest_ns && one.connection.unsent() > 0;
        if outcome.is_ok() && is_deaf {
            outcome = Err("the standby takes nothing and says nothing".to_owned());
        }
        if let Err(why) = outcome {
            self.reason = Some(format!("{}: {why}", one.address.ip()));
            one.refuse(Reason::Other, &why, now_ns);
            self.net.refused += 1;
            (self.follower, self.asked_ns) = (None, None);
        } else {
            // Try to send the new frames immediately.
            self.net.turn(Duration::ZERO, &me);
        }
    }

    /// Makes events wait for a standby that is close to the end of the journal.
    fn watch_step(&mut self, written: u64, now_ns: u64) {
        let went_alone = self.shared.went_alone.load(Ordering::Relaxed);
        let has_rested = self.alone.is_over(went_alone, now_ns);
        if let Some(follower) = &self.follower
            && self.setting.waits
            && has_rested
            && follower.acknowledged.saturating_add(NEAR) >= written
            && !self.shared.is_in_step.load(Ordering::Acquire)
        {
            self.shared.acknowledge(follower.acknowledged);
            self.shared.is_in_step.store(true, Ordering::Release);
        }
    }

    /// Asks the other plant whether it is a primary too, if this one has no standby.
    fn look_for_another(&mut self, now_ns: u64) -> Result<(), BeginAgain> {
        if self.follower.is_some() {
            self.net.hang_up();
            return Ok(());
        }
        let mut other = None;
        if let Some(connection) = &self.net.outgoing {
            match connection.frame() {
                Parsed::Frame(Frame::Welcome(hello), _) => other = Some(hello),
                Parsed::Frame(Frame::Refused { text, .. }, _) => self.reason = Some(text.to_owned()),
                Parsed::Frame(..) | Parsed::Bad(_) => {}
                Parsed::Cut if self.net.unanswered_ns() < PATIENCE_NS => return Ok(()),
                Parsed::Cut => {}
            }
            self.net.hang_up();
        } else if self.asked_ns.is_none_or(|asked| now_ns.saturating_sub(asked) >= ASK_NS) {
            self.asked_ns = Some(now_ns);
            let me = self.hello();
            self.net.call(&me);
        }
        match other {
            Some(other)
                if other.role == Role::Primary && decide(&self.hello(), &other) == Verdict::Standby =>
            {
                Err(BeginAgain::SteppedDown { peer: self.setting.peer, epoch: other.epoch })
            }
            _ => Ok(()),
        }
    }

    fn follow(&mut self, now_ns: u64) -> Result<(), BeginAgain> {
        // If the thread was stopped for a while, it has not heard what came in that time.
        let silence_ns = self.setting.takeover_after.as_nanos() as u64;
        let primary = &mut self.primary;
        if primary.turned_ns == 0 || now_ns.saturating_sub(primary.turned_ns) > silence_ns / 2 {
            primary.heard_ns = now_ns;
        }
        primary.turned_ns = now_ns;
        if self.shared.has_lost.load(Ordering::Acquire) {
            return Err(BeginAgain::CannotFollow("this plant's journal cannot be written".to_owned()));
        }
        self.net.refuse_followers("it is not the primary: it is the standby");
        self.ingest.send_pending();
        self.primary.has_more = false;
        match (self.primary.call, &self.net.outgoing) {
            (Call::Asking, _) => self.take_answer(now_ns),
            (Call::Unanswered, Some(_)) => self.take_frames(now_ns)?,
            (Call::Following { .. }, Some(connection)) => {
                self.primary.heard_ns = self.primary.heard_ns.max(connection.heard_ns);
                self.take_frames(now_ns)?;
            }
            (_, None) => self.primary.call = Call::Unanswered,
        }
        self.acknowledge(now_ns);
        let written = self.shared.written.load(Ordering::Acquire);
        let is_due = self.asked_ns.is_none_or(|called| now_ns.saturating_sub(called) >= CALL_NS);
        if self.net.outgoing.is_none() && is_due {
            self.asked_ns = Some(now_ns);
            // The plant reports its position only once the records it passed on are in the journal. Until then it only asks whether
            // the primary is alive; otherwise a plant that is busy catching up would mistake the primary for silent.
            let follows = written == self.primary.handed && !self.ingest.is_full();
            let me = if follows { self.hello_to_follow() } else { self.hello() };
            self.net.call(&me);
            let is_asking = !follows && self.net.outgoing.is_some();
            self.primary.call = if is_asking { Call::Asking } else { Call::Unanswered };
        }
        if !self.primary.is_followed() && self.net.unanswered_ns() >= PATIENCE_NS {
            self.net.hang_up();
        }
        let is_silent = now_ns.saturating_sub(self.primary.heard_ns) >= silence_ns;
        if (is_silent || self.primary.has_said_bye) && !self.ingest.is_full() {
            self.take_over()
        } else {
            Ok(())
        }
    }

    /// Takes the answer to a call that only asked whether the primary is alive.
    fn take_answer(&mut self, now_ns: u64) {
        let frame = self.net.outgoing.as_ref().map(|connection| connection.frame());
        match frame {
            Some(Parsed::Cut) => return,
            Some(Parsed::Frame(Frame::Welcome(hello), _)) if is_primary_from(&hello, self.identity.epoch) => {
                self.primary.heard_ns = now_ns
            }
            Some(Parsed::Frame(Frame::Refused { text, .. }, _)) => self.reason = Some(text.to_owned()),
            Some(_) | None => {}
        }
        self.net.hang_up();
        self.primary.call = Call::Unanswered;
    }

    fn take_frames(&mut self, now_ns: u64) -> Result<(), BeginAgain> {
        let cannot = |why: &str| BeginAgain::CannotFollow(why.to_owned());
        let mut left = FRAMES_IN_TURN;
        while !self.ingest.is_full() {
            if left == 0 {
                self.primary.has_more = true;
                return Ok(());
            }
            left -= 1;
            let Some(connection) = &mut self.net.outgoing else { return Ok(()) };
            let length = match connection.frame() {
                Parsed::Cut => return Ok(()),
                Parsed::Bad(why) => return Err(cannot(why)),
                Parsed::Frame(Frame::Welcome(hello), length) => {
                    if is_primary_from(&hello, self.identity.epoch) {
                        // The primary is alive, whether or not it lets this plant follow.
                        self.primary.heard_ns = now_ns;
                    }
                    if hello.role == Role::Primary && hello.epoch > self.identity.epoch {
                        self.identity.epoch = hello.epoch;
                        let remembered = Remembered { epoch: hello.epoch, is_primary: false };
                        state::write::<W>(&self.folder, remembered)
                            .map_err(|error| cannot(&error.to_string()))?;
                    }
                    length
                }
                Parsed::Frame(Frame::Accepted, length) => {
                    self.primary.call = Call::Following { acknowledged: None };
                    self.primary.heard_ns = now_ns;
                    length
                }
                Parsed::Frame(Frame::Refused { reason, text }, _) => {
                    let said = text.to_owned();
                    self.reason = Some(said.clone());
                    match reason {
                        // The other plant may become the primary in a moment.
                        Reason::NotPrimary | Reason::Other => self.net.hang_up(),
                        _ => self.net.hang_up_for_a_while(),
                    }
                    return match reason {
                        Reason::Diverged | Reason::NotKept => {
                            Err(BeginAgain::Diverged { peer: self.setting.peer, said })
                        }
                        _ => Ok(()),
                    };
                }
                Parsed::Frame(Frame::Beat { next }, length) if self.primary.is_followed() => {
                    self.primary.next = next;
                    length
                }
                Parsed::Frame(Frame::Bye, length) if self.primary.is_followed() => {
                    self.primary.has_said_bye = true;
                    length
                }
                Parsed::Frame(Frame::Records { next, records }, length) if self.primary.is_followed() => {
                    let (handed, tip, count) = checked(records, self.primary.handed).map_err(cannot)?;
                    (self.primary.handed, self.primary.tip, self.primary.next) = (handed, tip, next);
                    self.records += count;
                    self.ingest.send(Piece::Records(records.into()));
                    length
                }
                Parsed::Frame(..) => return Err(cannot("a frame that no primary sends")),
            };
            connection.take(length);
        }
        Ok(())
    }

    /// Acknowledges the records that the journal has.
    fn acknowledge(&mut self, now_ns: u64) {
        let written = self.shared.written.load(Ordering::Acquire);
        let Call::Following { acknowledged } = &mut self.primary.call else { return };
        let is_due = acknowledged
            .is_none_or(|(next, at_ns)| next != written || now_ns.saturating_sub(at_ns) >= BEAT_NS);
        if is_due && let Some(connection) = &mut self.net.outgoing {
            connection.send(&Frame::Acknowledged { next: written });
            *acknowledged = Some((written, now_ns));
            let me = self.hello();
            self.net.turn(Duration::ZERO, &me);
        }
    }

    /// Makes this plant the primary, because the primary is gone.
    fn take_over(&mut self) -> Result<(), BeginAgain> {
        self.net.hang_up();
        let epoch = self.identity.epoch.saturating_add(1);
        // On disk before anyone can see it, so that a plant that comes back knows that it was not the last primary.
        state::write::<W>(&self.folder, Remembered { epoch, is_primary: true })
            .map_err(|error| BeginAgain::CannotFollow(error.to_string()))?;
        (self.identity.epoch, self.identity.role) = (epoch, Role::Primary);
        (self.primary.call, self.primary.has_said_bye, self.asked_ns) = (Call::Unanswered, false, None);
        self.takeovers += 1;
        self.ingest.send(Piece::TakeOver);
        Ok(())
    }

    fn report(&mut self) {
        let written = self.shared.written.load(Ordering::Acquire);
        let is_primary = self.identity.is_primary();
        let (lag_records, lag_bytes) = match &self.follower {
            Some(follower) if is_primary => {
                (written.saturating_sub(follower.acknowledged), follower.lag_bytes())
            }
            _ if is_primary => (0, 0),
            _ => (self.primary.next.max(self.primary.handed).saturating_sub(written), 0),
        };
        let reason = self.reason.take().or_else(|| self.net.reason.take());
        let (shared, net) = (&self.shared, &self.net);
        shared.update(|status| {
            (status.role, status.epoch) = (self.identity.role, self.identity.epoch);
            status.is_connected =
                if is_primary { self.follower.is_some() } else { self.primary.is_followed() };
            status.is_in_step = shared.is_in_step.load(Ordering::Acquire);
            (status.lag_records, status.lag_bytes) = (lag_records, lag_bytes);
            status.went_alone = shared.went_alone.load(Ordering::Relaxed);
            (status.records, status.takeovers, status.refused) = (self.records, self.takeovers, net.refused);
            if reason.is_some() {
                status.reason = reason;
            }
        });
    }
}

impl<W: World> Drop for Link<W> {
    fn drop(&mut self) {
        self.shared.looks_no_more();
    }
}

/// Returns whether `hello` is from a primary of this epoch or a later one.
fn is_primary_from(hello: &Hello, epoch: u64) -> bool {
    hello.role == Role::Primary && hello.epoch >= epoch
}

fn is_of(hello: Option<Hello>, instance: u64) -> bool {
    hello.is_some_and(|hello| hello.instance == instance && hello.follows)
}

/// Checks that the records start at `next`, are all sound, and that none is missing. Returns the next number, the last record and
/// the number of records.
fn checked(mut bytes: &[u8], next: u64) -> Result<(u64, Tip, u64), &'static str> {
    let (mut next, mut tip, mut count) = (next, Tip::default(), 0);
    while !bytes.is_empty() {
        let Decoded::Record(record, length) = Record::decode(bytes) else {
            return Err("a record that is damaged");
        };
        let first = if stands_for_numbered(&record) {
            record.number.saturating_add(1).saturating_sub(record.extra)
        } else {
            record.number
        };
        if first != next || record.number == u64::MAX {
            return Err("a record that is not the next");
        }
        let checksum = bytes.first_chunk().map_or(0, |checksum| u32::from_le_bytes(*checksum));
        (next, tip, count) = (record.number + 1, Tip { time: record.time, checksum }, count + 1);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    if count == 0 { Err("no records in a frame of records") } else { Ok((next, tip, count)) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tapeworks_journal::{LOST, NUMBERED};
    use tapeworks_runtime::world::System;

    use super::super::tests::free_address;
    use super::*;

    #[test]
    fn a_primary_that_steps_down_is_a_standby_of_the_later_epoch_whenever_it_starts_again() {
        let folder = tempfile::tempdir().unwrap();
        state::write::<System>(folder.path(), Remembered { epoch: 2, is_primary: true }).unwrap();
        let alike = Alike { engine: 1, lines: 2 };
        let address = free_address();
        let setting = PairSetting::new(address, free_address(), true);
        let (link, shared, _pieces) = Link::<System>::open(&setting, folder.path(), alike, 0).unwrap();
        let running = std::thread::spawn(move || link.run(&AtomicBool::new(false)));
        // The other plant is the primary of a later epoch, and connects.
        let mut other = std::net::TcpStream::connect(address).unwrap();
        let (engine, lines) = (alike.engine, alike.lines);
        let hello = Hello { instance: 7, engine, lines, epoch: 3, role: Role::Primary, ..Hello::default() };
        let mut bytes = Vec::new();
        Frame::Hello(hello).encode(&mut bytes);
        other.write_all(&bytes).unwrap();
        let why = running.join().unwrap().unwrap_err();
        assert_eq!(why, BeginAgain::SteppedDown { peer: setting.peer, epoch: 3 });
        assert!(shared.is_deposed());
        let remembered = state::read::<System>(folder.path()).unwrap();
        assert_eq!(remembered, Some(Remembered { epoch: 3, is_primary: false }));
    }

    #[test]
    fn records_that_are_damaged_or_missing_or_come_twice_are_noticed() {
        let record = |number| Record { number, time: 9, kind: 1, payload: b"abc", ..Record::default() };
        let lost = Record { number: 9, kind: LOST, line: NUMBERED, extra: 3, ..Record::default() };
        let mut bytes = Vec::new();
        for record in [record(5), record(6), lost, record(10)] {
            record.encode(&mut bytes);
        }
        let (next, tip, count) = checked(&bytes, 5).unwrap();
        assert_eq!((next, tip.time, count), (11, 9, 4));
        assert_eq!(checked(&bytes, 4), Err("a record that is not the next"));
        assert_eq!(checked(&bytes, 6), Err("a record that is not the next"));
        assert_eq!(checked(&bytes[..bytes.len() - 1], 5), Err("a record that is damaged"));
        for at in 0..43 {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert!(checked(&wrong, 5).is_err(), "byte {at}");
        }
        assert!(checked(&[], 5).is_err());
    }
}
