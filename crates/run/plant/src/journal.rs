//! The plant's journal: every input is written before a client sees its events.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_engine::days::OpenJournal;
use tapeworks_engine::records::record_of;
use tapeworks_journal::{
    Decoded, Finished, IoTask, JournalError, JournalOptions, JournalWriter, Opened, Record,
};
use tapeworks_planted::planted;
use tapeworks_ring::disruptor::PollError;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::Wait;
use tapeworks_runtime::waiting::{Idle, Waiting, WakeUp};
use tapeworks_runtime::world::{Receive as _, SendTo as _, World};

use crate::checkpoint::{self, Coordinator};
use crate::error::PlantFailure;
use crate::events::EventConsumer;
use crate::pair::{Waiters, stands_for_numbered};
use crate::queued::Queued;
use crate::status::{JournalStatus, REPORT_INTERVAL, Status};

/// When written records survive a machine crash. They always survive a process crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncPolicy {
    /// When the operating system writes them.
    Never,
    /// At this interval.
    Every(Duration),
    /// Before a client gets their events.
    Always,
}

/// The policy for a disk that fails or is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFailing {
    /// The plant continues and counts the inputs that were not journaled.
    #[default]
    GoOn,
    /// The plant stops with the error.
    Stop,
}

/// The journal's options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSetting {
    /// The folder. Journals of earlier days are moved into subfolders, each named after the date (in New York) of its last record.
    pub folder: PathBuf,
    /// The segment options.
    pub options: JournalOptions,
    /// When the journal is synced.
    pub sync: SyncPolicy,
    /// What to do when the disk fails.
    pub when_failing: WhenFailing,
    /// Capacity of the queue of inputs to be written.
    pub queue: usize,
    /// The interval of checkpoints, which save a start from replaying the whole day; `None` takes none.
    pub checkpoint_every: Option<Duration>,
}

impl JournalSetting {
    /// Creates the options of a journal in `folder` that is synced once a second.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            options: JournalOptions::default(),
            sync: SyncPolicy::Every(Duration::from_secs(1)),
            when_failing: WhenFailing::default(),
            queue: 16_384,
            checkpoint_every: None,
        }
    }
}

/// Appends a record of the primary's journal under its number there.
fn append_followed<W: World>(
    writer: &mut JournalWriter<W>,
    bytes: &[u8],
    (start, end): (u32, u32),
) -> Result<(), JournalError> {
    // The record was checked when it was received.
    let Some(bytes) = bytes.get(start as usize..end as usize) else { return Ok(()) };
    let Decoded::Record(record, _) = Record::decode(bytes) else { return Ok(()) };
    if stands_for_numbered(&record) {
        return writer.lose_until(record.number.saturating_add(1), record.time);
    }
    writer.append(&record).map(drop)
}

/// The thread that writes the journal. It precedes the clients' servers in the ring, and releases an event once its input is
/// written.
pub(super) struct JournalThread<W: World> {
    writer: JournalWriter<W>,
    sync: SyncPolicy,
    when_failing: WhenFailing,
    inputs: spsc::Consumer<Queued, Waiting<W>>,
    events: EventConsumer<W>,
    disk: IoHandle<W>,
    coordinator: Arc<Coordinator>,
    status: Arc<Mutex<Status>>,
    reported: Instant,
    synced: Instant,
    opened: Opened,
    /// Whether a file of the journal was removed or replaced.
    is_gone: bool,
    is_failing: bool,
    /// Whether a record from the primary could not be written. The journal then ends before that record, and the plant requests it
    /// when it follows again. Nothing may be written after the cut, not even a count of lost records, because it would take the
    /// missing record's number.
    is_cut: bool,
    error: Option<String>,
    idle: Wait,
    wake_up: Arc<WakeUp<W>>,
    /// For a plant of a pair: the events that wait for the standby.
    waiters: Option<Waiters<W>>,
}

/// Disk work that the journal's thread hands to the disk thread.
enum DiskTask<W: World> {
    Io(IoTask<W>),
    /// A state, and the sync that must precede writing it: the disk must have the records that the state includes.
    State(Option<IoTask<W>>, checkpoint::Job),
}

/// The thread that waits for the disk. It ends after the journal's thread.
pub(super) struct IoThread<W: World> {
    tasks: W::Receiver<DiskTask<W>>,
    finished: W::Sender<Finished<W>>,
    states: W::Sender<checkpoint::Job>,
    status: Arc<Mutex<Status>>,
}

/// The journal thread's end of the channels to and from the disk thread.
pub(super) struct IoHandle<W: World> {
    tasks: W::Sender<DiskTask<W>>,
    finished: W::Receiver<Finished<W>>,
    /// I/O tasks without a result so far.
    under_way: usize,
}

impl<W: World> IoHandle<W> {
    fn send(&mut self, task: DiskTask<W>) {
        let has_io = matches!(&task, DiskTask::Io(_) | DiskTask::State(Some(_), _));
        // The disk thread outlives the journal's thread.
        if self.tasks.send(task).is_ok() {
            self.under_way += usize::from(has_io);
        }
    }

    /// Returns the result of a finished task, if there is one.
    fn finished(&mut self) -> Option<Finished<W>> {
        let finished = self.finished.try_recv().ok()?;
        self.under_way -= 1;
        Some(finished)
    }

    /// Waits for the result of a running task; returns `None` if none is running.
    fn wait(&mut self) -> Option<Finished<W>> {
        if self.under_way == 0 {
            return None;
        }
        let finished = self.finished.recv().ok()?;
        self.under_way -= 1;
        Some(finished)
    }
}

impl<W: World> IoThread<W> {
    /// Creates the thread's state, and the channel to it. States go to `states` once the disk has the records that they include.
    pub(super) fn new(states: W::Sender<checkpoint::Job>, status: Arc<Mutex<Status>>) -> (Self, IoHandle<W>) {
        let ((tasks, tasks_out), (finished_in, finished)) = (W::channel(), W::channel());
        let waiter = Self { tasks: tasks_out, finished: finished_in, states, status };
        (waiter, IoHandle { tasks, finished, under_way: 0 })
    }

    pub(super) fn run(self) {
        while let Ok(task) = self.tasks.recv() {
            let (io_task, state) = match task {
                DiskTask::Io(io_task) => (Some(io_task), None),
                DiskTask::State(io_task, state) => (io_task, Some(state)),
            };
            let finished = io_task.map(IoTask::run);
            let error = finished.as_ref().and_then(Finished::error).map(ToString::to_string);
            match (state, error) {
                (Some(_), Some(error)) => checkpoint::report::<W>(&self.status, Err(error)),
                // The checkpoint writer lives as long as this end of the channel.
                (Some(state), None) => drop(self.states.send(state)),
                (None, _) => {}
            }
            // If the journal's thread has ended, nobody needs the result.
            finished.into_iter().for_each(|finished| drop(self.finished.send(finished)));
        }
    }
}

/// Inputs written before the thread reads the ring's position again.
const MOST_AT_ONCE: usize = 4_096;

impl<W: World> JournalThread<W> {
    pub(super) fn new(
        setting: &JournalSetting,
        journal: OpenJournal<W>,
        inputs: spsc::Consumer<Queued, Waiting<W>>,
        events: EventConsumer<W>,
        (disk, coordinator): (IoHandle<W>, Arc<Coordinator>),
        (idle, wake_up): (Wait, Arc<WakeUp<W>>),
        (status, waiters): (Arc<Mutex<Status>>, Option<Waiters<W>>),
    ) -> Self {
        let mut writer = journal.writer;
        writer.leave_waiting();
        Self {
            writer,
            sync: setting.sync,
            when_failing: setting.when_failing,
            inputs,
            events,
            disk,
            coordinator,
            status,
            reported: W::instant(),
            synced: W::instant(),
            opened: journal.opened,
            is_gone: false,
            is_failing: false,
            is_cut: false,
            error: None,
            idle,
            wake_up,
            waiters,
        }
    }

    pub(super) fn run(mut self) -> Result<(), PlantFailure> {
        self.wake_up.is_for_this_thread();
        loop {
            // Inputs are queued before their events are published, so the inputs of all events published by now are in the queue.
            let published = self.events.lag();
            let mut failure = None;
            let mut left = self.inputs.len();
            let has_written = left > 0;
            let (mut state, mut last_time) = (None, None);
            let Self { inputs, writer, coordinator, status, is_cut, .. } = &mut self;
            writer.need_from(coordinator.needed_from());
            let (losses, unconfirmed) = (writer.losses(), writer.unconfirmed());
            while left > 0 {
                let taken = inputs.pop_batch(left.min(MOST_AT_ONCE), |queued| {
                    let input = match queued {
                        Queued::Input(input) => input,
                        Queued::Followed(..) if *is_cut => return,
                        Queued::Followed(bytes, place) => {
                            if let Err(error) = append_followed(writer, &bytes, place) {
                                *is_cut = true;
                                failure = Some(error);
                            }
                            return;
                        }
                        Queued::State(_) if *is_cut => {
                            let problem = "it includes records that the journal does not have";
                            return checkpoint::report::<W>(status, Err(problem.to_owned()));
                        }
                        Queued::State(taken) => {
                            // The state includes inputs that the journal has lost, so the record that counts them must precede it.
                            // A reader that arrived without that record would mistake its own state for the checkpoint's.
                            let now = last_time.unwrap_or_else(|| W::time_of_day().0);
                            match writer.record_loss(now) {
                                Ok(()) => state = Some((writer.next_number(), taken)),
                                Err(error) => {
                                    checkpoint::report::<W>(status, Err(error.to_string()));
                                    failure = Some(error);
                                }
                            }
                            return;
                        }
                    };
                    let mut scratch = [0; 16];
                    let record = record_of(&input.borrowed(), &mut scratch);
                    last_time = Some(record.time);
                    // The plant is the primary now, and the records it lacks are lost.
                    *is_cut = false;
                    if let Err(error) = writer.append(&record) {
                        failure = Some(error);
                    }
                });
                if taken == 0 {
                    break;
                }
                left = left.saturating_sub(taken);
            }
            if let Some((record, _)) = &mut state
                && *record != writer.next_number()
                && planted!("checkpoint-with-a-later-number")
            {
                *record = writer.next_number();
            }
            if self.writer.losses() > losses {
                // States taken from now on follow the record that counts these losses.
                self.coordinator.add_losses(self.writer.losses() - losses);
            }
            match self.write() {
                Ok(()) => {
                    if let Some(waiters) = &self.waiters {
                        waiters.shared.wrote(self.writer.next_number());
                    }
                }
                Err(error) => failure = Some(error),
            }
            if !self.is_gone
                && W::since(self.reported) >= REPORT_INTERVAL
                && let Err(error) = self.writer.look_after_files()
            {
                self.is_gone = true;
                failure = Some(error);
            }
            if failure.is_some() {
                self.is_failing = true;
            } else if has_written {
                self.is_failing = false;
            }
            if let Some(removal) = self.writer.begin_removal() {
                self.disk.send(DiskTask::Io(removal));
            }
            if let Some(next_segment) = self.writer.begin_next_segment() {
                self.disk.send(DiskTask::Io(next_segment));
            }
            while let Some(finished) = self.disk.finished() {
                if let Err(error) = self.writer.finish(finished) {
                    failure = Some(error);
                }
            }
            if let Some(error) = self.writer.take_trouble() {
                if self.writer.unconfirmed() > unconfirmed {
                    failure.get_or_insert(error);
                } else {
                    // Space is not freed, but no record is lost.
                    self.error = Some(error.to_string());
                }
            }
            if let Some(error) = failure {
                // A following plant lacks a record, or may lack one.
                self.waiters.iter().for_each(|waiters| waiters.shared.lost());
                if self.when_failing == WhenFailing::Stop {
                    self.error = Some(error.to_string());
                    self.report_status();
                    // No output sees an event whose input is not in the journal.
                    self.events.fail();
                    return Err(error.into());
                }
                self.error = Some(error.to_string());
            }
            if let Some(state) = state {
                self.hand_on(state);
            }
            let published = if planted!("event-before-its-input") { self.events.lag() } else { published };
            let may_pass = match &mut self.waiters {
                None => published,
                Some(waiters) if waiters.shared.is_deposed() => {
                    // No output sees an event that the new primary may not have.
                    self.events.fail();
                    return Ok(());
                }
                Some(waiters) => waiters.pass(published, self.writer.next_number()),
            };
            let passed = self.events.pass_over(may_pass);
            if W::since(self.reported) >= REPORT_INTERVAL {
                self.report_status();
            }
            if passed == 0 && self.inputs.is_empty() && self.wait() {
                break;
            }
        }
        let written = self.end();
        self.report_status();
        match written {
            Err(error) if self.when_failing == WhenFailing::Stop => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Waits until the disk has all written records.
    fn end(&mut self) -> Result<(), JournalError> {
        let mut written = if self.is_cut { Ok(()) } else { self.writer.record_loss(W::time_of_day().0) };
        while let Some(finished) = self.disk.wait() {
            written = written.and(self.writer.finish(finished));
        }
        written.and(self.writer.sync())
    }

    /// Hands a state to the disk thread, to be written once the disk has the records that it includes.
    fn hand_on(&mut self, state: checkpoint::Job) {
        match self.writer.begin_sync() {
            Ok(io_task) => self.disk.send(DiskTask::State(io_task, state)),
            Err(error) => checkpoint::report::<W>(&self.status, Err(error.to_string())),
        }
    }

    /// Writes the appended records, and syncs them when a sync is due: before their events are released with
    /// `SyncPolicy::Always`, otherwise in the background.
    fn write(&mut self) -> Result<(), JournalError> {
        match self.sync {
            SyncPolicy::Always if !planted!("always-does-not-sync") => self.writer.sync(),
            SyncPolicy::Every(interval) if W::since(self.synced) >= interval && self.disk.under_way == 0 => {
                self.synced = W::instant();
                if let Some(io_task) = self.writer.begin_sync()? {
                    self.disk.send(DiskTask::Io(io_task));
                }
                Ok(())
            }
            _ => self.writer.flush(),
        }
    }

    /// Waits until there is work. Returns `true` when no more will come.
    fn wait(&mut self) -> bool {
        let waiting = |this: &Self| this.waiters.as_ref().map_or(0, Waiters::waiting);
        if self.inputs.is_closed() && self.inputs.is_empty() && waiting(self) == 0 {
            // Ingest has ended; its end of the ring is closed, or will be in a moment.
            return matches!(self.events.poll(|_, _, _| {}), Err(PollError::Closed | PollError::Failed(_)));
        }
        // Inputs without events are work too.
        let mut idle = Idle::<W>::new(self.idle);
        let has_work = |this: &Self| {
            let waiting = waiting(this);
            !this.inputs.is_empty()
                || this.events.lag() > waiting
                || this.inputs.is_closed() && waiting == 0
                || this.waiters.as_ref().is_some_and(Waiters::is_due)
        };
        while !has_work(self) {
            if W::since(self.reported) >= REPORT_INTERVAL {
                break;
            }
            if self.idle != Wait::Park {
                idle.rest();
                continue;
            }
            self.wake_up.arm();
            if !has_work(self) {
                let longest = self.waiters.as_ref().map_or(REPORT_INTERVAL, Waiters::longest);
                W::park(REPORT_INTERVAL.min(longest));
            }
            self.wake_up.disarm();
        }
        false
    }

    fn report_status(&mut self) {
        self.reported = W::instant();
        let status = JournalStatus {
            next: self.writer.next_number(),
            written_bytes: self.writer.written_bytes(),
            lost: self.writer.lost(),
            unconfirmed: self.writer.unconfirmed(),
            failed_removals: self.writer.failed_removals(),
            removed_segments: self.writer.removed_segments(),
            damaged: self.opened.damaged,
            torn_bytes: self.opened.torn_bytes,
            is_failing: self.is_failing || self.is_gone,
            error: self.error.clone(),
        };
        self.status.lock().unwrap_or_else(PoisonError::into_inner).journal = Some(status);
    }
}
