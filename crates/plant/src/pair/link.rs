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

use tapeworks_journal::{Decoded, JournalReader, Record};
use tapeworks_runtime::world::{Poll as _, TrySend as _, Wake as _, World};

use super::agree::{Verdict, decide, instance};
use super::codec::{Frame, Hello, Parsed, Reason, Role, Tip};
use super::net::{Net, WAKER};
use super::state::{self, Remembered};
use super::{
    Alike, BeginAgain, PairError, PairSetting, PairStatus, READ_BYTES, Shared, stands_for_numbered,
    tip_before,
};

/// Heartbeat interval of each side, in ns.
const BEAT_NS: u64 = 250_000_000;

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

/// Bytes of records per frame, unless a single record is longer.
const FRAME_BYTES: usize = 64 << 10;

/// Bytes that may be queued for a standby's socket.
const MOST_UNSENT: usize = 1 << 20;

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

/// The standby that follows this plant.
#[derive(Debug)]
struct Follower<W: World> {
    instance: u64,
    reader: JournalReader<W>,
    acknowledged: u64,
    /// Bytes sent to the standby, for comparison with the bytes acknowledged; `marks` holds record numbers and the bytes sent up to
    /// each.
    sent_bytes: u64,
    acknowledged_bytes: u64,
    marks: std::collections::VecDeque<(u64, u64)>,
    beat_ns: u64,
}

/// The thread's state.
pub(crate) struct Link<W: World> {
    setting: PairSetting,
    folder: PathBuf,
    alike: Alike,
    net: Net<W>,
    shared: Arc<Shared<W>>,
    instance: u64,
    role: Role,
    epoch: u64,
    pieces: W::SyncSender<Piece>,
    /// Wakes ingest.
    ingest: Option<W::Waker>,
    pending: Option<Piece>,
    follower: Option<Follower<W>>,
    /// When the other plant was last asked or called, in ns; `None` means that a call is due immediately.
    asked_ns: Option<u64>,
    alone_since_ns: u64,
    went_alone: u64,
    /// For a standby: the next record, and the one before it.
    handed: u64,
    tip: Tip,
    primary_next: u64,
    is_accepted: bool,
    /// The call only asks whether the primary is alive.
    is_asking: bool,
    /// More received frames may be waiting to be taken.
    has_more: bool,
    has_said_bye: bool,
    /// When the primary was last heard, in ns.
    heard_ns: u64,
    turned_ns: u64,
    acknowledged_ns: u64,
    acknowledged: u64,
    records: u64,
    takeovers: u64,
    reason: Option<String>,
    scratch: Vec<u8>,
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
            tip: tip_before::<W>(folder, next)?.unwrap_or_default(),
            folder: folder.to_owned(),
            alike,
            net,
            shared: Arc::clone(&shared),
            instance: instance::<W>(),
            role,
            epoch,
            pieces,
            ingest: None,
            pending: None,
            follower: None,
            asked_ns: None,
            alone_since_ns: 0,
            went_alone: 0,
            handed: next,
            primary_next: next,
            is_accepted: false,
            is_asking: false,
            has_more: false,
            has_said_bye: false,
            heard_ns: 0,
            turned_ns: 0,
            acknowledged_ns: 0,
            acknowledged: 0,
            records: 0,
            takeovers: 0,
            reason: None,
            scratch: Vec::with_capacity(2 * FRAME_BYTES),
        };
        Ok((link, shared, pieces_out))
    }

    /// Returns whether the plant is a standby.
    pub(crate) fn is_standby(&self) -> bool {
        self.role == Role::Standby
    }

    /// Sets the waker for ingest.
    pub(crate) fn wakes(&mut self, ingest: W::Waker) {
        self.ingest = Some(ingest);
    }

    fn hello(&self, follows: bool) -> Hello {
        let next = if follows { self.handed } else { self.shared.written.load(Ordering::Acquire) };
        Hello {
            instance: self.instance,
            engine: self.alike.engine,
            lines: self.alike.lines,
            epoch: self.epoch,
            role: self.role,
            wants_primary: self.role == Role::Primary,
            follows,
            only_asks: false,
            next,
            tip: if follows { self.tip } else { Tip::default() },
        }
    }

    /// Runs until the plant has stopped.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<(), BeginAgain> {
        loop {
            let longest = match (&self.pending, self.has_more) {
                (Some(_), _) => REST,
                (None, true) => Duration::ZERO,
                (None, false) => LOOK,
            };
            let me = self.hello(false);
            self.net.turn(longest, &me);
            if self.shared.looks(self.role == Role::Primary, self.setting.standby_timeout) {
                self.asked_ns = None;
            }
            let now_ns = self.net.now_ns();
            let done = match self.role {
                Role::Standby => self.follow(now_ns),
                Role::Primary | Role::Starting => self.lead(now_ns),
            };
            self.report();
            if let Err(why) = done {
                self.step_down(&why);
                return Err(why);
            }
            if stop.load(Ordering::Acquire)
                && (self.role == Role::Standby || self.shared.has_ended.load(Ordering::Acquire))
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
            let remembered = Remembered { epoch: self.epoch.max(*epoch), is_primary: false };
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
        while self.role == Role::Primary && self.net.now_ns().saturating_sub(began_ns) < FAREWELL_NS {
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
            let me = self.hello(false);
            self.net.turn(Duration::from_millis(10), &me);
            let now_ns = self.net.now_ns();
            if self.lead(now_ns).is_err() {
                return;
            }
        }
    }

    fn lead(&mut self, now_ns: u64) -> Result<(), BeginAgain> {
        self.hand_on();
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
            let is_later = hello.epoch > self.epoch;
            let is_other_primary = hello.role == Role::Primary
                && decide(&Hello { next: written, ..self.hello(false) }, &hello) == Verdict::Standby;
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
        let reader = JournalReader::from_number_in(&self.folder, next).map_err(failed)?;
        Ok(Follower {
            instance: hello.instance,
            reader: reader.reading_at_once(READ_BYTES),
            acknowledged: next,
            sent_bytes: 0,
            acknowledged_bytes: 0,
            marks: std::collections::VecDeque::new(),
            beat_ns: 0,
        })
    }

    /// Sends the standby the records that it lacks, and takes its acknowledgements.
    fn serve(&mut self, written: u64, now_ns: u64) {
        let me = self.hello(false);
        let Some(follower) = &mut self.follower else { return };
        let one =
            self.net.incoming.iter_mut().find(|one| is_of(one.hello, follower.instance) && !one.is_leaving());
        let Some(one) = one else {
            // The standby has disconnected.
            (self.follower, self.asked_ns) = (None, None);
            return;
        };
        let acknowledged = follower.acknowledged;
        let mut wrong = None;
        loop {
            let length = match one.connection.frame() {
                Parsed::Frame(Frame::Acknowledged { next }, length)
                    if next <= follower.reader.next_number() =>
                {
                    follower.acknowledged = follower.acknowledged.max(next);
                    length
                }
                Parsed::Cut => break,
                Parsed::Frame(..) => {
                    wrong = Some("a frame that no standby sends".to_owned());
                    break;
                }
                Parsed::Bad(why) => {
                    wrong = Some(why.to_owned());
                    break;
                }
            };
            one.connection.take(length);
        }
        if follower.acknowledged > acknowledged {
            while let Some((number, bytes)) = follower.marks.front().copied()
                && number <= follower.acknowledged
            {
                follower.acknowledged_bytes = bytes;
                follower.marks.pop_front();
            }
            self.shared.acknowledge(follower.acknowledged);
        }
        while wrong.is_none()
            && one.connection.unsent() < MOST_UNSENT
            && follower.reader.next_number() < written
        {
            self.scratch.clear();
            let before = follower.reader.next_number();
            while self.scratch.len() < FRAME_BYTES && follower.reader.next_number() < written {
                match follower.reader.next() {
                    Ok(Some(record)) => {
                        record.encode(&mut self.scratch);
                        self.records += 1;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        wrong = Some(error.to_string());
                        break;
                    }
                }
            }
            let next = follower.reader.next_number();
            if next == before {
                break;
            }
            one.connection.send(&Frame::Records { next: written, records: &self.scratch });
            follower.sent_bytes += self.scratch.len() as u64;
            follower.marks.push_back((next, follower.sent_bytes));
            follower.beat_ns = now_ns;
        }
        if now_ns.saturating_sub(follower.beat_ns) >= BEAT_NS {
            follower.beat_ns = now_ns;
            one.connection.send(&Frame::Beat { next: written });
        }
        let longest = self.setting.takeover_after.as_nanos() as u64;
        if now_ns.saturating_sub(one.connection.heard_ns) > longest.max(4 * BEAT_NS)
            && one.connection.unsent() > 0
        {
            wrong.get_or_insert_with(|| "the standby takes nothing and says nothing".to_owned());
        }
        if let Some(why) = wrong {
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
        if went_alone > self.went_alone {
            (self.went_alone, self.alone_since_ns) = (went_alone, now_ns);
        }
        let has_rested = went_alone == 0 || now_ns.saturating_sub(self.alone_since_ns) >= ALONE_NS;
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
            let me = self.hello(false);
            self.net.call(&me);
        }
        match other {
            Some(other)
                if other.role == Role::Primary && decide(&self.hello(false), &other) == Verdict::Standby =>
            {
                Err(BeginAgain::SteppedDown { peer: self.setting.peer, epoch: other.epoch })
            }
            _ => Ok(()),
        }
    }

    fn follow(&mut self, now_ns: u64) -> Result<(), BeginAgain> {
        // If the thread was stopped for a while, it has not heard what came in that time.
        let silence_ns = self.setting.takeover_after.as_nanos() as u64;
        if self.turned_ns == 0 || now_ns.saturating_sub(self.turned_ns) > silence_ns / 2 {
            self.heard_ns = now_ns;
        }
        self.turned_ns = now_ns;
        if self.shared.has_lost.load(Ordering::Acquire) {
            return Err(BeginAgain::CannotFollow("this plant's journal cannot be written".to_owned()));
        }
        self.net.refuse_followers("it is not the primary: it is the standby");
        self.hand_on();
        self.has_more = false;
        if self.is_asking {
            self.take_answer(now_ns);
        } else if let Some(connection) = &self.net.outgoing {
            if self.is_accepted {
                self.heard_ns = self.heard_ns.max(connection.heard_ns);
            }
            self.take_frames(now_ns)?;
        } else {
            self.is_accepted = false;
        }
        self.acknowledge(now_ns);
        let written = self.shared.written.load(Ordering::Acquire);
        let is_due = self.asked_ns.is_none_or(|called| now_ns.saturating_sub(called) >= CALL_NS);
        if self.net.outgoing.is_none() && is_due {
            self.asked_ns = Some(now_ns);
            // The plant reports its position only once the records it passed on are in the journal. Until then it only asks whether
            // the primary is alive; otherwise a plant that is busy catching up would mistake the primary for silent.
            let follows = written == self.handed && self.pending.is_none();
            let me = self.hello(follows);
            self.net.call(&me);
            self.is_asking = !follows && self.net.outgoing.is_some();
        }
        if !self.is_accepted && self.net.unanswered_ns() >= PATIENCE_NS {
            self.net.hang_up();
        }
        let is_silent = now_ns.saturating_sub(self.heard_ns) >= silence_ns;
        if (is_silent || self.has_said_bye) && self.pending.is_none() { self.take_over() } else { Ok(()) }
    }

    /// Takes the answer to a call that only asked whether the primary is alive.
    fn take_answer(&mut self, now_ns: u64) {
        let frame = self.net.outgoing.as_ref().map(|connection| connection.frame());
        match frame {
            Some(Parsed::Cut) => return,
            Some(Parsed::Frame(Frame::Welcome(hello), _)) if is_primary_from(&hello, self.epoch) => {
                self.heard_ns = now_ns
            }
            Some(Parsed::Frame(Frame::Refused { text, .. }, _)) => self.reason = Some(text.to_owned()),
            Some(_) | None => {}
        }
        self.net.hang_up();
        self.is_asking = false;
    }

    /// Passes ingest the message that it had no room for.
    fn hand_on(&mut self) {
        let Some(piece) = self.pending.take() else { return };
        match self.pieces.try_send(piece) {
            Ok(()) => {
                // Ingest checks by itself within a moment.
                let _looks_later = self.ingest.as_ref().map(W::Waker::wake);
            }
            Err(TrySendError::Full(piece)) => self.pending = Some(piece),
            // Ingest has ended, and so has the plant.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    fn take_frames(&mut self, now_ns: u64) -> Result<(), BeginAgain> {
        let cannot = |why: &str| BeginAgain::CannotFollow(why.to_owned());
        let mut left = FRAMES_IN_TURN;
        while self.pending.is_none() {
            if left == 0 {
                self.has_more = true;
                return Ok(());
            }
            left -= 1;
            let Some(connection) = &mut self.net.outgoing else { return Ok(()) };
            let length = match connection.frame() {
                Parsed::Cut => return Ok(()),
                Parsed::Bad(why) => return Err(cannot(why)),
                Parsed::Frame(Frame::Welcome(hello), length) => {
                    if is_primary_from(&hello, self.epoch) {
                        // The primary is alive, whether or not it lets this plant follow.
                        self.heard_ns = now_ns;
                    }
                    if hello.role == Role::Primary && hello.epoch > self.epoch {
                        self.epoch = hello.epoch;
                        let remembered = Remembered { epoch: hello.epoch, is_primary: false };
                        state::write::<W>(&self.folder, remembered)
                            .map_err(|error| cannot(&error.to_string()))?;
                    }
                    length
                }
                Parsed::Frame(Frame::Accepted, length) => {
                    (self.is_accepted, self.heard_ns, self.acknowledged_ns) = (true, now_ns, 0);
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
                Parsed::Frame(Frame::Beat { next }, length) if self.is_accepted => {
                    self.primary_next = next;
                    length
                }
                Parsed::Frame(Frame::Bye, length) if self.is_accepted => {
                    self.has_said_bye = true;
                    length
                }
                Parsed::Frame(Frame::Records { next, records }, length) if self.is_accepted => {
                    let (handed, tip, count) = checked(records, self.handed).map_err(cannot)?;
                    (self.handed, self.tip) = (handed, tip);
                    self.primary_next = next;
                    self.records += count;
                    self.pending = Some(Piece::Records(records.into()));
                    length
                }
                Parsed::Frame(..) => return Err(cannot("a frame that no primary sends")),
            };
            connection.take(length);
            self.hand_on();
        }
        Ok(())
    }

    /// Acknowledges the records that the journal has.
    fn acknowledge(&mut self, now_ns: u64) {
        let written = self.shared.written.load(Ordering::Acquire);
        let is_due = self.acknowledged_ns == 0 || now_ns.saturating_sub(self.acknowledged_ns) >= BEAT_NS;
        if self.is_accepted
            && (is_due || written != self.acknowledged)
            && let Some(connection) = &mut self.net.outgoing
        {
            connection.send(&Frame::Acknowledged { next: written });
            (self.acknowledged, self.acknowledged_ns) = (written, now_ns);
            let me = self.hello(false);
            self.net.turn(Duration::ZERO, &me);
        }
    }

    /// Makes this plant the primary, because the primary is gone.
    fn take_over(&mut self) -> Result<(), BeginAgain> {
        self.net.hang_up();
        let epoch = self.epoch.saturating_add(1);
        // On disk before anyone can see it, so that a plant that comes back knows that it was not the last primary.
        state::write::<W>(&self.folder, Remembered { epoch, is_primary: true })
            .map_err(|error| BeginAgain::CannotFollow(error.to_string()))?;
        (self.epoch, self.role) = (epoch, Role::Primary);
        (self.is_accepted, self.has_said_bye, self.asked_ns) = (false, false, None);
        self.takeovers += 1;
        self.pending = Some(Piece::TakeOver);
        self.hand_on();
        Ok(())
    }

    fn report(&mut self) {
        let written = self.shared.written.load(Ordering::Acquire);
        let is_primary = self.role == Role::Primary;
        let (lag_records, lag_bytes) = match &self.follower {
            Some(follower) if is_primary => (
                written.saturating_sub(follower.acknowledged),
                follower.sent_bytes - follower.acknowledged_bytes,
            ),
            _ if is_primary => (0, 0),
            _ => (self.primary_next.max(self.handed).saturating_sub(written), 0),
        };
        let reason = self.reason.take().or_else(|| self.net.reason.take());
        let (shared, net) = (&self.shared, &self.net);
        shared.update(|status| {
            (status.role, status.epoch) = (self.role, self.epoch);
            status.is_connected = if is_primary { self.follower.is_some() } else { self.is_accepted };
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
