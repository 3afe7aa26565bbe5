//! The system with a time of day that tests can set.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tapeworks_ring::cpu::CpuError;
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_runtime::world::{System, World};
use tapeworks_time::Nanos;

/// The system, except for its time of day.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Clocked;

/// How many ns the time of day is behind the system's.
static BEHIND_NS: AtomicU64 = AtomicU64::new(0);

impl Clocked {
    /// Sets the time of day back for all threads.
    pub(crate) fn set_back(by: Duration) {
        BEHIND_NS.store(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

tapeworks_disk::system_disk!(Clocked);

impl World for Clocked {
    type Thread = <System as World>::Thread;
    type Handle<T: Send + 'static> = <System as World>::Handle<T>;
    type Sender<T: Send + 'static> = <System as World>::Sender<T>;
    type SyncSender<T: Send + 'static> = <System as World>::SyncSender<T>;
    type Receiver<T: Send + 'static> = <System as World>::Receiver<T>;
    type Poll = <System as World>::Poll;
    type Waker = <System as World>::Waker;
    type DatagramReceiver = <System as World>::DatagramReceiver;
    type DatagramSender = <System as World>::DatagramSender;
    type UdpServer = <System as World>::UdpServer;
    type Listener = <System as World>::Listener;
    type Stream = <System as World>::Stream;
    type BlockingStream = <System as World>::BlockingStream;
    type FrameSource = <System as World>::FrameSource;
    type Membership = <System as World>::Membership;

    fn time_of_day() -> Nanos {
        Nanos(System::time_of_day().0.saturating_sub(BEHIND_NS.load(Ordering::Relaxed)))
    }

    fn instant() -> Instant {
        System::instant()
    }

    fn spawn<T: Send + 'static>(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self::Handle<T>> {
        System::spawn(name, work)
    }

    fn current() -> Self::Thread {
        System::current()
    }

    fn park(longest: Duration) {
        System::park(longest);
    }

    fn sleep(time: Duration) {
        System::sleep(time);
    }

    fn yield_now() {
        System::yield_now();
    }

    fn pause() {
        System::pause();
    }

    fn wait_until(strategy: &impl WaitStrategy, is_ready: impl FnMut() -> bool) {
        System::wait_until(strategy, is_ready);
    }

    fn pin(core: usize) -> Result<(), CpuError> {
        System::pin(core)
    }

    fn step_back() -> Result<(), CpuError> {
        System::step_back()
    }

    fn random(bytes: &mut [u8]) -> io::Result<()> {
        System::random(bytes)
    }

    fn channel<T: Send + 'static>() -> (Self::Sender<T>, Self::Receiver<T>) {
        System::channel()
    }

    fn sync_channel<T: Send + 'static>(bound: usize) -> (Self::SyncSender<T>, Self::Receiver<T>) {
        System::sync_channel(bound)
    }

    fn join_group(group: IpAddr, interface: Option<Ipv4Addr>) -> io::Result<Self::Membership> {
        System::join_group(group, interface)
    }
}
