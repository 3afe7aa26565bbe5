//! The simulated machine room: hosts, processes, threads, and time.
//!
//! A thread is a coroutine. It runs until it makes a call that waits; then the kernel takes the next event by time and resumes the event's
//! thread. Time passes only from event to event, plus a small fixed cost per call. Events at equal times are ordered randomly, from the seed.
//!
//! One simulation runs on one OS thread. All state is in a thread-local variable, so that [`Simulated`] needs no value.

pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod network;
pub(crate) mod threads;

use serde::{Deserialize, Serialize};
use std::any::Any;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem::ManuallyDrop;
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use generator::{Generator, Gn};
use tapeworks_random::Random;

use crate::trace::{Note, Trace};
use clock::HostClock;
use disk::{Crash, DiskState};
use network::{Network, NetworkEvent};

/// Words of a thread's stack; untouched pages cost nothing.
const STACK_WORDS: usize = 1 << 18;

/// The world of the simulation that runs on this OS thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Simulated;

/// A thread, by its number in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TaskId(pub(crate) usize);

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub(crate) usize);

/// A machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostId(pub(crate) usize);

/// What a thread waits for. Before the deadline, only a wake-up of the same kind ends the wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// Only time.
    Time,
    /// [`unpark`](tapeworks_runtime::world::Unpark::unpark).
    Park,
    /// An item in a channel.
    Channel,
    /// The end of a thread.
    End,
    /// The sockets of a poll.
    Poll,
    /// One socket.
    Socket,
}

struct Task {
    name: String,
    process: ProcessId,
    /// `None` while the thread runs, and after its end.
    body: Option<Generator<'static, (), ()>>,
    is_done: bool,
    waits: Option<Waits>,
    /// The number of the current wait. Resumptions of earlier waits have lower numbers.
    wait: u64,
    /// Deadline of the wait.
    until_ns: Option<u64>,
    /// Earliest time at which the agenda checks the deadline. A thread has one such entry, or a few if its waits become shorter.
    timer_ns: Option<u64>,
    /// The thread was unparked while it was not parked.
    has_permit: bool,
    /// Threads that wait for this one to end.
    joiners: Vec<TaskId>,
}

struct Process {
    name: String,
    host: HostId,
    is_alive: bool,
    /// Threads that have not ended.
    running: usize,
    /// The process hangs until then: none of its threads runs.
    hung_until_ns: u64,
    /// The panic that ended the process, if one did.
    panic: Option<String>,
}

/// A machine with its clock and disk.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) is_up: bool,
    /// Its time of day.
    pub(crate) clock: HostClock,
    pub(crate) disk: DiskState,
}

enum What {
    /// A woken thread runs.
    Resume {
        task: TaskId,
        wait: u64,
    },
    /// A thread's wait may be over.
    Timer {
        task: TaskId,
    },
    Network(NetworkEvent),
    Kill(ProcessId),
    PowerOff(HostId),
}

/// Samples the simulation at equal intervals. It changes nothing: it draws no number and takes no time.
struct Sampler {
    every_ns: u64,
    look: Box<dyn FnMut(u64)>,
}

/// The time of an event and the slot of its description, in one number that orders by time, then randomly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u128);

impl Due {
    fn new(at_ns: u64, tie: u32, slot: u32) -> Self {
        Self(u128::from(at_ns) << 64 | u128::from(tie) << 32 | u128::from(slot))
    }

    const fn at_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }

    const fn slot(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The pending events, by time.
#[derive(Default)]
struct Agenda {
    dues: BinaryHeap<Reverse<Due>>,
    slots: Vec<Option<What>>,
    free: Vec<u32>,
}

impl Agenda {
    fn push(&mut self, at_ns: u64, tie: u32, what: What) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(what);
        }
        self.dues.push(Reverse(Due::new(at_ns, tie, slot)));
    }

    /// Returns the time of the next event.
    fn next_ns(&self) -> Option<u64> {
        self.dues.peek().map(|Reverse(next)| next.at_ns())
    }

    fn pop(&mut self) -> Option<(u64, What)> {
        let Reverse(due) = self.dues.pop()?;
        self.free.push(due.slot() as u32);
        Some((due.at_ns(), self.slots.get_mut(due.slot())?.take()?))
    }

    /// Returns whether nothing happens up to this time.
    fn is_empty_until(&self, at_ns: u64) -> bool {
        self.next_ns().is_none_or(|next_ns| next_ns > at_ns)
    }
}

/// How threads are scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// Probability that a thread loses its core at a system call, per million.
    pub preempted_per_million: u32,
    /// Longest time that a preempted thread is off its core, in ns.
    pub away_ns: u32,
    /// Longest time from a wake-up until the thread runs, in ns.
    pub wake_ns: u32,
    /// Time between two checks of a spinning thread, in ns.
    pub spin_ns: u32,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { preempted_per_million: 1_000, away_ns: 200_000, wake_ns: 20_000, spin_ns: 50_000 }
    }
}

/// All state of a simulation.
pub(crate) struct Kernel {
    pub(crate) now_ns: u64,
    /// Time 0 of the simulation's clock, in ns since the epoch.
    pub(crate) epoch_ns: u64,
    /// The same for clocks that cannot be set.
    pub(crate) origin: Instant,
    pub(crate) random: Random,
    pub(crate) schedule: Schedule,
    agenda: Agenda,
    tasks: Vec<Task>,
    processes: Vec<Process>,
    pub(crate) hosts: Vec<Host>,
    current: Option<TaskId>,
    pub(crate) network: Network,
    pub(crate) trace: Trace,
    /// Number of events taken.
    pub(crate) steps: u64,
    sampler: Option<Sampler>,
    /// Next time of the sampler; `u64::MAX` without one.
    sample_ns: u64,
}

thread_local! {
    // A run takes its kernel out again. Access is faster to a thread-local variable without a destructor.
    static KERNEL: RefCell<ManuallyDrop<Option<Kernel>>> = const { RefCell::new(ManuallyDrop::new(None)) };
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `ask` with the kernel.
#[expect(clippy::panic, reason = "a world without a simulation is a fault of the program")]
pub(crate) fn with<R>(ask: impl FnOnce(&mut Kernel) -> R) -> R {
    KERNEL.with_borrow_mut(|kernel| match &mut **kernel {
        Some(kernel) => ask(kernel),
        None => panic!("no simulation runs on this thread"),
    })
}

/// Cost of reading a clock, in ns.
const CLOCK_NS: u64 = 25;

/// Cost of a system call, in ns.
const CALL_NS: u64 = 400;

impl Kernel {
    fn new(seed: u64, epoch_ns: u64, schedule: Schedule) -> Self {
        Self {
            now_ns: 0,
            epoch_ns,
            origin: Instant::now(),
            random: Random::new(seed ^ 0x5363_6865_6475_6c65),
            schedule,
            agenda: Agenda::default(),
            tasks: Vec::new(),
            processes: Vec::new(),
            hosts: Vec::new(),
            current: None,
            network: Network::default(),
            trace: Trace::default(),
            steps: 0,
            sampler: None,
            sample_ns: u64::MAX,
        }
    }

    fn push(&mut self, at_ns: u64, what: What) {
        let tie = self.random.bits() as u32;
        self.agenda.push(at_ns, tie, what);
    }

    pub(crate) fn push_network(&mut self, at_ns: u64, event: NetworkEvent) {
        self.push(at_ns, What::Network(event));
    }

    /// Returns a random number from 0 to `most`.
    pub(crate) fn up_to(&mut self, most: u32) -> u64 {
        u64::from(self.random.below(most.saturating_add(1)))
    }

    /// Returns the host of the running thread, or the first host outside of threads.
    pub(crate) fn host(&self) -> HostId {
        self.current
            .and_then(|task| self.tasks.get(task.0))
            .and_then(|task| self.processes.get(task.process.0))
            .map_or(HostId(0), |process| process.host)
    }

    pub(crate) fn current(&self) -> Option<TaskId> {
        self.current
    }

    /// Returns whether the running thread's process was killed, so that its system calls have no effect.
    pub(crate) fn is_dead(&self) -> bool {
        self.current.is_some_and(|task| self.is_dead_task(task))
    }

    fn is_dead_task(&self, task: TaskId) -> bool {
        let process = self.tasks.get(task.0).and_then(|task| self.processes.get(task.process.0));
        process.is_none_or(|process| !process.is_alive)
    }

    /// Reads the clock.
    pub(crate) fn clock_ns(&mut self) -> u64 {
        self.now_ns += CLOCK_NS;
        self.now_ns
    }

    /// Returns the time of day of the running thread's host, in ns since the epoch.
    pub(crate) fn time_of_day_ns(&mut self) -> u64 {
        let passed_ns = self.clock_ns();
        let ahead_ns = self.hosts.get(self.host().0).map_or(0, |host| host.clock.ahead_ns(passed_ns));
        (self.epoch_ns + passed_ns).saturating_add_signed(ahead_ns)
    }

    /// Starts a wait of the running thread. Returns `false` if it need not wait, because its process was killed or because
    /// nothing happens before the deadline.
    fn begin_wait(&mut self, waits: Waits, until_ns: Option<u64>) -> bool {
        let Some(current) = self.current.filter(|task| !self.is_dead_task(*task)) else { return false };
        let until_ns = until_ns.map(|until_ns| until_ns.max(self.now_ns));
        let Some(task) = self.tasks.get_mut(current.0) else { return false };
        if let Some(at_ns) = until_ns
            && self.agenda.is_empty_until(at_ns)
        {
            self.now_ns = at_ns;
            self.steps += 1;
            self.trace.mix(at_ns, current.0 as u64);
            return false;
        }
        task.wait += 1;
        (task.waits, task.until_ns) = (Some(waits), until_ns);
        self.set_timer(current);
        true
    }

    /// Has the agenda check the deadline of a thread's wait.
    fn set_timer(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id.0) else { return };
        if let Some(until_ns) = task.until_ns
            && task.timer_ns.is_none_or(|timer_ns| until_ns < timer_ns)
        {
            task.timer_ns = Some(until_ns);
            self.push(until_ns, What::Timer { task: id });
        }
    }

    /// Checks the deadline of a thread's wait. Returns the number of the wait if it is over.
    fn look_at_timer(&mut self, id: TaskId) -> Option<u64> {
        let now_ns = self.now_ns;
        let task = self.tasks.get_mut(id.0)?;
        if task.timer_ns.is_some_and(|timer_ns| timer_ns <= now_ns) {
            task.timer_ns = None;
        }
        let until_ns = task.until_ns.filter(|_| task.waits.is_some())?;
        if until_ns <= now_ns {
            return Some(task.wait);
        }
        self.set_timer(id);
        None
    }

    /// Wakes a thread that waits for this.
    pub(crate) fn wake(&mut self, id: TaskId, waits: Waits) {
        let late_ns = self.up_to(self.schedule.wake_ns);
        let now_ns = self.now_ns;
        let Some(task) = self.tasks.get_mut(id.0).filter(|task| task.waits == Some(waits)) else { return };
        // The wait is over: neither another wake-up nor the deadline wakes the thread again.
        task.waits = None;
        let wait = task.wait;
        self.push(now_ns + late_ns, What::Resume { task: id, wait });
    }

    pub(crate) fn unpark(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id.0) {
            task.has_permit = true;
            self.wake(id, Waits::Park);
        }
    }

    fn take_permit(&mut self) -> bool {
        let task = self.current.and_then(|task| self.tasks.get_mut(task.0));
        task.is_some_and(|task| std::mem::take(&mut task.has_permit))
    }

    pub(crate) fn is_done(&self, id: TaskId) -> bool {
        self.tasks.get(id.0).is_none_or(|task| task.is_done)
    }

    fn add_joiner(&mut self, of: TaskId) {
        if let (Some(current), Some(task)) = (self.current, self.tasks.get_mut(of.0)) {
            task.joiners.push(current);
        }
    }

    /// Adds a thread to a process; it starts soon.
    fn add_task(&mut self, name: &str, process: ProcessId, body: Generator<'static, (), ()>) -> TaskId {
        let id = TaskId(self.tasks.len());
        self.tasks.push(Task {
            name: name.to_owned(),
            process,
            body: Some(body),
            is_done: false,
            waits: None,
            wait: 0,
            until_ns: None,
            timer_ns: None,
            has_permit: false,
            joiners: Vec::new(),
        });
        if let Some(process) = self.processes.get_mut(process.0) {
            process.running += 1;
        }
        let at_ns = self.now_ns + self.up_to(self.schedule.wake_ns);
        self.push(at_ns, What::Resume { task: id, wait: 0 });
        id
    }

    /// Ends the process or machine at the running thread's disk call.
    fn crash(&mut self, host: HostId, crash: Crash) {
        let process = self.current.and_then(|task| self.tasks.get(task.0)).map(|task| task.process);
        match (crash, process) {
            (Crash::Process, Some(process)) => self.push(self.now_ns, What::Kill(process)),
            _ => self.push(self.now_ns, What::PowerOff(host)),
        }
    }

    /// Kills a process. The caller drops what it held, without borrowing the kernel.
    fn kill(&mut self, id: ProcessId) -> Vec<(TaskId, Generator<'static, (), ()>)> {
        let Some(process) = self.processes.get_mut(id.0).filter(|process| process.is_alive) else {
            return Vec::new();
        };
        (process.is_alive, process.running) = (false, 0);
        let (name, host) = (process.name.clone(), process.host);
        if let Some(host) = self.hosts.get_mut(host.0) {
            host.disk.is_stopped = false;
        }
        self.trace.line(self.now_ns, || format!("{name}: killed"));
        let of_process = self.tasks.iter_mut().enumerate().filter(|(_, task)| task.process == id);
        of_process
            .filter_map(|(place, task)| {
                (task.is_done, task.waits) = (true, None);
                Some((TaskId(place), task.body.take()?))
            })
            .collect()
    }
}

/// Waits until the thread is woken or the deadline passes.
pub(crate) fn wait(waits: Waits, until_ns: Option<u64>) {
    let (is_waiting, now_ns) = with(|kernel| (kernel.begin_wait(waits, until_ns), kernel.now_ns));
    if is_waiting {
        switch();
    } else {
        sample_until(now_ns);
    }
}

/// Yields to the kernel.
fn switch() {
    #[expect(deprecated, reason = "the scope would have to be passed through the code that is simulated")]
    generator::yield_with(());
}

/// Returns the simulation time, in ns, after `longest`.
pub(crate) fn until(longest: Duration) -> u64 {
    let longest_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    with(|kernel| kernel.now_ns.saturating_add(longest_ns))
}

/// Sleeps for `ns` nanoseconds.
pub(crate) fn sleep(ns: u64) {
    wait(Waits::Time, Some(until(Duration::from_nanos(ns))));
}

/// Makes a system call: it takes some time, and the thread may lose its core. Returns `false` if the process was killed and
/// the call has no effect.
pub(crate) fn call() -> bool {
    let away_ns = with(|kernel| {
        if kernel.is_dead() {
            return None;
        }
        kernel.now_ns += CALL_NS;
        let Schedule { preempted_per_million, away_ns, .. } = kernel.schedule;
        let is_preempted = kernel.current.is_some() && kernel.random.chance(preempted_per_million);
        Some(if is_preempted { kernel.up_to(away_ns) } else { 0 })
    });
    match away_ns {
        None => false,
        Some(0) => true,
        Some(away_ns) => {
            sleep(away_ns);
            with(|kernel| !kernel.is_dead())
        }
    }
}

/// Makes the body of a thread. Its outcome goes to `ended`, unless its process is killed.
fn body<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    ended: impl FnOnce(std::thread::Result<T>) + Send + 'static,
) -> Generator<'static, (), ()> {
    Gn::new_opt(STACK_WORDS, move || {
        match catch_unwind(AssertUnwindSafe(work)) {
            // The process was killed: continue to unwind the stack.
            Err(payload) if payload.is::<generator::Error>() => resume_unwind(payload),
            outcome => {
                if let Err(payload) = &outcome {
                    note_panic(payload.as_ref());
                }
                ended(outcome);
            }
        }
    })
}

fn note_panic(payload: &(dyn Any + Send)) {
    let text = LAST_PANIC.take().unwrap_or_else(|| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
    });
    with(|kernel| {
        let Some(task) = kernel.current.and_then(|task| kernel.tasks.get(task.0)) else { return };
        let text = format!("thread '{}' panicked: {text}", task.name);
        let now_ns = kernel.now_ns;
        if let Some(process) = kernel.processes.get_mut(task.process.0) {
            kernel.trace.line(now_ns, || format!("{}: {text}", process.name));
            process.panic.get_or_insert(text);
        }
    });
}

/// Starts a thread in the running thread's process.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
    ended: impl FnOnce(std::thread::Result<T>) + Send + 'static,
) -> Option<TaskId> {
    let process = with(|kernel| {
        let current = kernel.current.filter(|task| !kernel.is_dead_task(*task))?;
        kernel.tasks.get(current.0).map(|task| task.process)
    })?;
    let body = body(work, ended);
    Some(with(|kernel| kernel.add_task(name, process, body)))
}

/// Adds a running machine.
pub fn add_host(name: &str, address: Ipv4Addr) -> HostId {
    with(|kernel| {
        let (name, disk) = (name.to_owned(), DiskState::default());
        kernel.hosts.push(Host { name, address, is_up: true, clock: HostClock::default(), disk });
        HostId(kernel.hosts.len() - 1)
    })
}

/// Starts a process on a host; its first thread runs `work`.
pub fn start(host: HostId, name: &str, work: impl FnOnce() + Send + 'static) -> ProcessId {
    let body = body(work, |_outcome| {});
    with(|kernel| {
        let process = ProcessId(kernel.processes.len());
        kernel.processes.push(Process {
            name: name.to_owned(),
            host,
            is_alive: true,
            running: 0,
            hung_until_ns: 0,
            panic: None,
        });
        let now_ns = kernel.now_ns;
        kernel.trace.line(now_ns, || format!("{name}: started"));
        kernel.add_task("main", process, body);
        process
    })
}

/// Kills a process immediately.
pub fn kill(process: ProcessId) {
    with(|kernel| kernel.push(kernel.now_ns, What::Kill(process)));
}

/// Stops a process until this simulation time, like `SIGSTOP`: its sockets stay open, but nobody serves them.
pub fn hang(process: ProcessId, until_ns: u64) {
    with(|kernel| {
        if let Some(process) = kernel.processes.get_mut(process.0) {
            process.hung_until_ns = until_ns;
        }
    });
}

/// Cuts a machine's power: its processes are killed, and its disk loses or tears unsynced writes.
pub fn power_off(host: HostId) {
    with(|kernel| kernel.push(kernel.now_ns, What::PowerOff(host)));
}

/// Restores a machine's power.
pub fn power_on(host: HostId) {
    with(|kernel| {
        if let Some(host) = kernel.hosts.get_mut(host.0) {
            host.is_up = true;
        }
    });
}

/// Sets the time of day of a host this far ahead (or behind, if negative). From now on it gains `gains_ppm` ns per million;
/// at -1,000,000 it stops.
pub fn set_clock(host: HostId, ahead_ns: i64, gains_ppm: i64) {
    with(|kernel| {
        let now_ns = kernel.now_ns;
        if let Some(host) = kernel.hosts.get_mut(host.0) {
            host.clock.set(now_ns, ahead_ns, gains_ppm);
        }
    });
}

/// Returns whether all threads of a process have ended, or it was killed.
pub fn has_ended(process: ProcessId) -> bool {
    with(|kernel| kernel.processes.get(process.0).is_none_or(|process| process.running == 0))
}

/// Returns the panic of a process's thread, if one has panicked.
pub fn panic_of(process: ProcessId) -> Option<String> {
    with(|kernel| kernel.processes.get(process.0)?.panic.clone())
}

/// Returns the time since the start of the simulation, in ns.
pub fn now_ns() -> u64 {
    with(|kernel| kernel.now_ns)
}

/// Writes a line to the trace.
pub fn note(text: impl FnOnce() -> String) {
    with(|kernel| {
        let now_ns = kernel.now_ns;
        kernel.trace.line(now_ns, text);
    });
}

/// Returns a random number below `limit`, from the seed.
pub fn below(limit: u32) -> u32 {
    with(|kernel| kernel.random.below(limit))
}

/// Returns how far a host's clock is ahead of the simulation's, in ns.
pub fn clock_ahead_ns(host: HostId) -> i64 {
    with(|kernel| kernel.hosts.get(host.0).map_or(0, |host| host.clock.ahead_ns(kernel.now_ns)))
}

/// Calls `look` at each multiple of this interval, before any later event. `look` may query the kernel but must change
/// nothing, so that the run is the same as without it.
pub(crate) fn set_sampler(every_ns: u64, look: Box<dyn FnMut(u64)>) {
    with(|kernel| {
        kernel.sample_ns = (kernel.now_ns / every_ns + 1) * every_ns;
        kernel.sampler = Some(Sampler { every_ns, look });
    });
}

/// Runs the sampler at each of its times up to this one.
fn sample_until(now_ns: u64) {
    loop {
        let due = with(|kernel| {
            let at_ns = kernel.sample_ns;
            if at_ns > now_ns {
                return None;
            }
            let sampler = kernel.sampler.take()?;
            kernel.sample_ns += sampler.every_ns;
            Some((at_ns, sampler))
        });
        let Some((at_ns, mut sampler)) = due else { return };
        (sampler.look)(at_ns);
        with(|kernel| kernel.sampler = Some(sampler));
    }
}

/// The result of a simulation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ended {
    /// The elapsed time, in ns.
    pub now_ns: u64,
    /// Number of events taken.
    pub steps: u64,
    /// Hash of everything that happened: equal for equal seeds.
    pub hash: u64,
    /// Lines of the trace, if requested.
    pub trace: Vec<Note>,
    /// No event was left before the first process ended.
    pub is_stuck: bool,
}

/// Options of a simulation run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// The seed of all randomness.
    pub seed: u64,
    /// Time of day at the start, in ns since the epoch.
    pub epoch_ns: u64,
    /// How threads are scheduled.
    pub schedule: Schedule,
    /// Whether to keep the trace's lines; its hash is always kept.
    pub keeps_trace: bool,
}

/// Silences the unwinding of killed threads, and notes where other threads panic.
fn set_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().is::<generator::Error>() {
                return;
            }
            if KERNEL.with(|kernel| kernel.try_borrow().map_or(true, |kernel| kernel.is_some())) {
                LAST_PANIC.set(Some(info.to_string().replace('\n', " ")));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs a simulation until the process of `main` has ended.
pub fn run(options: &RunOptions, main: impl FnOnce() + Send + 'static) -> Ended {
    set_panic_hook();
    let mut kernel = Kernel::new(options.seed, options.epoch_ns, options.schedule);
    kernel.trace.is_kept = options.keeps_trace;
    KERNEL.set(ManuallyDrop::new(Some(kernel)));
    let host = add_host("conductor", Ipv4Addr::new(10, 0, 0, 1));
    let process = start(host, "conductor", main);
    let mut is_stuck = false;
    while !has_ended(process) {
        if !step() {
            is_stuck = true;
            break;
        }
    }
    // All other processes end with the simulation, while their handles can still reach the kernel.
    let processes = with(|kernel| kernel.processes.len());
    for process in 0..processes {
        end(ProcessId(process));
    }
    let kernel = ManuallyDrop::into_inner(KERNEL.replace(ManuallyDrop::new(None)));
    let kernel = kernel.map(|kernel| (kernel.now_ns, kernel.steps, kernel.trace));
    let (now_ns, steps, trace) = kernel.unwrap_or_default();
    Ended { now_ns, steps, hash: trace.hash(), trace: trace.into_lines(), is_stuck }
}

/// A thread to run next.
struct Next {
    id: TaskId,
    body: Generator<'static, (), ()>,
}

/// The outcome of taking an event.
enum Step {
    /// The sampler must run before this time.
    Sample(u64),
    Thread(Next),
    Process(ProcessId),
    Power(HostId),
    /// The due event has been handled.
    Done,
    /// Nothing is due.
    Nothing,
}

/// Takes the next event. Returns `false` if there is none.
fn step() -> bool {
    let mut step = with(|kernel| kernel.take(true));
    if let Step::Sample(next_ns) = step {
        sample_until(next_ns);
        step = with(|kernel| kernel.take(false));
    }
    match step {
        Step::Thread(next) => resume(next),
        Step::Process(process) => end(process),
        Step::Power(host) => lose_power(host),
        Step::Done | Step::Sample(_) => {}
        Step::Nothing => return false,
    }
    true
}

impl Kernel {
    /// Takes the next event.
    fn take(&mut self, may_sample: bool) -> Step {
        let Some(next_ns) = self.agenda.next_ns() else { return Step::Nothing };
        if may_sample && next_ns >= self.sample_ns {
            return Step::Sample(next_ns);
        }
        let Some((at_ns, what)) = self.agenda.pop() else { return Step::Nothing };
        self.now_ns = self.now_ns.max(at_ns);
        self.steps += 1;
        let next = match what {
            What::Resume { task, wait } => self.next(task, wait),
            What::Timer { task } => self.look_at_timer(task).and_then(|wait| self.next(task, wait)),
            What::Network(event) => {
                network::take(self, event);
                None
            }
            What::Kill(process) => return Step::Process(process),
            What::PowerOff(host) => return Step::Power(host),
        };
        next.map_or(Step::Done, Step::Thread)
    }

    /// Returns the thread to run, if it is still in this wait.
    fn next(&mut self, id: TaskId, wait: u64) -> Option<Next> {
        let task = self.tasks.get_mut(id.0).filter(|task| task.wait == wait && !task.is_done)?;
        let hung_until_ns = self.processes.get(task.process.0).map_or(0, |process| process.hung_until_ns);
        if hung_until_ns > self.now_ns {
            self.push(hung_until_ns, What::Resume { task: id, wait });
            return None;
        }
        let body = task.body.take()?;
        task.wait += 1;
        task.waits = None;
        self.trace.mix(self.now_ns, id.0 as u64);
        self.current = Some(id);
        Some(Next { id, body })
    }
}

fn resume(Next { id, mut body }: Next) {
    body.resume();
    let is_done = body.is_done();
    let ended = with(|kernel| {
        kernel.current = None;
        let Some(task) = kernel.tasks.get_mut(id.0) else { return Some(body) };
        if !is_done {
            task.body = Some(body);
            return None;
        }
        let was_done = std::mem::replace(&mut task.is_done, true);
        if let Some(process) = kernel.processes.get_mut(task.process.0).filter(|_| !was_done) {
            process.running -= 1;
        }
        for joiner in std::mem::take(&mut task.joiners) {
            kernel.wake(joiner, Waits::End);
        }
        Some(body)
    });
    drop(ended);
}

/// Kills a process: its threads are unwound, and their system calls have no effect.
fn end(process: ProcessId) {
    let killed = with(|kernel| kernel.kill(process));
    for (task, body) in killed {
        with(|kernel| kernel.current = Some(task));
        drop(body);
    }
    with(|kernel| kernel.current = None);
}

fn lose_power(host: HostId) {
    let processes = with(|kernel| {
        let Some(machine) = kernel.hosts.get_mut(host.0) else { return Vec::new() };
        machine.is_up = false;
        let (name, now_ns) = (machine.name.clone(), kernel.now_ns);
        kernel.trace.line(now_ns, || format!("{name}: no power"));
        kernel.network.vanish(host);
        let Kernel { hosts, random, .. } = kernel;
        if let Some(machine) = hosts.get_mut(host.0) {
            machine.disk.lose_power(random);
        }
        let processes = kernel.processes.iter().enumerate();
        let on_host = processes.filter(|(_, process)| process.host == host && process.is_alive);
        on_host.map(|(place, _)| ProcessId(place)).collect()
    });
    processes.into_iter().for_each(end);
}

#[cfg(test)]
mod tests;
