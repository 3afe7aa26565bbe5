//! The world that a simulation offers to the code in it.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use tapeworks_ring::cpu::CpuError;
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_runtime::world::World;
use tapeworks_time::Nanos;

use crate::kernel::channel::{self, SimReceiver as ChannelReceiver, SimSender as ChannelSender};
use crate::kernel::network::{
    SimBlockingStream, SimFrames, SimListener, SimPoll, SimReceiver, SimSender, SimStream, SimUdpServer,
    SimWaker,
};
use crate::kernel::threads::{self, SimHandle, SimThread};
use crate::kernel::{self, Simulated, with};

impl World for Simulated {
    fn time_of_day() -> Nanos {
        Nanos(with(kernel::Kernel::time_of_day_ns))
    }

    fn instant() -> Instant {
        with(|kernel| {
            let now_ns = kernel.clock_ns();
            kernel.origin + Duration::from_nanos(now_ns)
        })
    }

    type Thread = SimThread;
    type Handle<T: Send + 'static> = SimHandle<T>;

    fn spawn<T: Send + 'static>(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<SimHandle<T>> {
        threads::spawn(name, work).ok_or_else(|| io::Error::other("the process was killed"))
    }

    fn current() -> SimThread {
        threads::current()
    }

    fn park(longest: Duration) {
        threads::park(kernel::until(longest));
    }

    fn sleep(time: Duration) {
        kernel::wait(kernel::Waits::Time, Some(kernel::until(time)));
    }

    fn yield_now() {
        Self::pause();
    }

    fn pause() {
        let ns = with(|kernel| kernel.schedule.spin_ns);
        kernel::sleep(u64::from(ns));
    }

    fn wait_until(_strategy: &impl WaitStrategy, mut is_ready: impl FnMut() -> bool) {
        while !is_ready() && !with(|kernel| kernel.is_dead()) {
            Self::pause();
        }
    }

    fn pin(_core: usize) -> Result<(), CpuError> {
        Ok(())
    }

    fn step_back() -> Result<(), CpuError> {
        Ok(())
    }

    fn random(bytes: &mut [u8]) -> io::Result<()> {
        with(|kernel| bytes.iter_mut().for_each(|byte| *byte = kernel.random.bits() as u8));
        Ok(())
    }

    type Sender<T: Send + 'static> = ChannelSender<T>;
    type SyncSender<T: Send + 'static> = ChannelSender<T>;
    type Receiver<T: Send + 'static> = ChannelReceiver<T>;

    fn channel<T: Send + 'static>() -> (ChannelSender<T>, ChannelReceiver<T>) {
        channel::channel(usize::MAX)
    }

    fn sync_channel<T: Send + 'static>(bound: usize) -> (ChannelSender<T>, ChannelReceiver<T>) {
        channel::channel(bound)
    }

    type Poll = SimPoll;
    type Waker = SimWaker;
    type DatagramReceiver = SimReceiver;
    type DatagramSender = SimSender;
    type UdpServer = SimUdpServer;
    type Listener = SimListener;
    type Stream = SimStream;
    type BlockingStream = SimBlockingStream;
    type FrameSource = SimFrames;
    type Membership = ();

    fn join_group(_group: IpAddr, _interface: Option<Ipv4Addr>) -> io::Result<()> {
        Ok(())
    }
}
