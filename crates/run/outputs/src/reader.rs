//! The thread of every output: reads the plant's ring of events and drives one [`Output`].
//!
//! ```text
//! history ─ catch up ─▶ restore, events ┐
//! ring ─ poll ─▶ events ─▶ serve ─▶ sleep until events, sockets or time have something
//!          └ closed ─▶ end ─▶ serve while it lingers
//! ```
//!
//! The [`Reader`] contains what all outputs share: the consumer's end of the ring, where to [begin](Begin), the number of the next
//! event, the wake-up, the stop flag and the report interval.
//!
//! Cost: each event is copied once (64 bytes), into a reused buffer. A batch of events costs two calls of the output and some clock
//! reads, and allocates nothing. Without events the thread sleeps in [`Output::serve`], at most for [`Output::patience`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tapeworks_market::Event;
use tapeworks_ring::disruptor::{Consumer, PollError, Single};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_runtime::waiting::{UNWATCHED, may_sleep_unwatched};
use tapeworks_runtime::worker::Worker;
use tapeworks_runtime::world::World;

use crate::begin::{Begin, Present, catch_up};
use crate::output::Output;

/// Number of events after which the reader serves an output even if the output reports no work.
const MOST_UNSERVED: usize = 4_096;

/// Number of empty polls before a reader without a wake-up sleeps.
const IDLE_POLLS: u32 = 100;

/// How long a reader sleeps when the ring has no further past events for now.
const PAST_PAUSE: Duration = Duration::from_micros(100);

/// The reader of one output. See the [module](self).
pub(crate) struct Reader<O, S: WaitStrategy, W: World> {
    output: O,
    consumer: Consumer<Event, S, Single>,
    begin: Begin<W>,
    stop: Arc<AtomicBool>,
    idle_sleep: Duration,
    /// The events of one poll.
    buffer: Vec<Event>,
    /// The number of the next event.
    next: u64,
    present: Present,
    reported: Instant,
}

impl<O: Output, S: WaitStrategy + 'static, W: World> Reader<O, S, W> {
    /// Creates a reader of the events from `consumer`. Without a wake-up it sleeps for `idle_sleep` when there are none.
    pub(crate) fn new(
        output: O,
        consumer: Consumer<Event, S, Single>,
        begin: Begin<W>,
        idle_sleep: Duration,
    ) -> Self {
        Self {
            output,
            consumer,
            present: Present::new(&begin),
            stop: Arc::new(AtomicBool::new(false)),
            idle_sleep,
            buffer: Vec::new(),
            next: begin.first_event,
            begin,
            reported: W::instant(),
        }
    }

    /// Starts the thread. `ended` receives the output and its result.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(
        mut self,
        name: &str,
        ended: impl FnOnce(O, &Result<(), O::Failure>) + Send + 'static,
    ) -> io::Result<Worker<O::Failure, W>> {
        self.report();
        let stop = Arc::clone(&self.stop);
        Worker::start(name, stop, move || {
            let outcome = self.run();
            self.report();
            ended(self.output, &outcome);
            outcome
        })
    }

    /// Reads until the ring has ended and the output has nothing left to serve, or until the reader is stopped.
    fn run(&mut self) -> Result<(), O::Failure> {
        let wake_up = self.begin.wake_up.clone();
        if let Some(wake_up) = &wake_up {
            // Does nothing if an output that polls sockets has already claimed the wake-up.
            wake_up.is_for_this_thread();
        }
        let Self { begin, present, consumer, stop, output, .. } = self;
        self.next = catch_up(begin, present, consumer, stop, output)?;
        let (mut idle_polls, mut unserved) = (0, 0);
        while !self.is_stopped() {
            let Some(mut taken) = self.turn()? else { return self.linger() };
            self.report_when_due();
            if !self.present.is_reached() {
                if taken == 0 {
                    W::sleep(PAST_PAUSE);
                }
                continue;
            }
            if taken == 0 {
                self.output.spare_time();
                if let Some(wake_up) = &wake_up {
                    wake_up.arm();
                    // Polls again, because events that were published before the wake-up was armed do not wake the thread.
                    let Some(more) = self.turn()? else { return self.linger() };
                    if more == 0 {
                        self.output.serve(self.output.patience())?;
                        unserved = 0;
                    }
                    wake_up.disarm();
                    taken = more;
                } else {
                    self.output.serve(Duration::ZERO)?;
                    unserved = 0;
                    idle_polls += 1;
                    if idle_polls > IDLE_POLLS {
                        W::sleep(self.idle_sleep);
                    } else {
                        W::yield_now();
                    }
                }
            }
            if taken > 0 {
                idle_polls = 0;
                unserved += taken;
                let may_gather = self.may_gather();
                if may_gather || unserved >= MOST_UNSERVED || self.output.patience().is_zero() {
                    self.output.serve(if may_gather { self.gathering_time() } else { Duration::ZERO })?;
                    unserved = 0;
                }
            }
        }
        Ok(())
    }

    /// Passes the ring's events to the output. Returns `None` when the ring has ended.
    fn turn(&mut self) -> Result<Option<usize>, O::Failure> {
        if O::MAY_FALL_BEHIND && self.consumer.lag() > self.consumer.capacity() / 2 {
            self.output.fall_behind();
        }
        let Self { consumer, buffer, .. } = self;
        buffer.clear();
        let taken = match consumer.poll(|event, _, _| buffer.push(*event)) {
            Ok(taken) => taken,
            Err(PollError::Closed) => return Ok(None),
            Err(PollError::Failed(failed)) => return Err(failed.into()),
        };
        self.present.give(&mut self.output, self.next, &self.buffer)?;
        self.next += taken as u64;
        Ok(Some(taken))
    }

    /// Returns whether events may gather: the output does not need them immediately, and the ring is nearly empty.
    fn may_gather(&self) -> bool {
        !self.output.is_urgent() && may_sleep_unwatched(self.consumer.lag(), self.consumer.capacity())
    }

    const fn gathering_time(&self) -> Duration {
        if self.begin.wake_up.is_some() { UNWATCHED } else { self.idle_sleep }
    }

    /// Serves what is left after the end of the ring.
    fn linger(&mut self) -> Result<(), O::Failure> {
        self.output.end();
        self.output.serve(Duration::ZERO)?;
        while !self.is_stopped()
            && let Some(wait) = self.output.linger()
        {
            self.output.serve(wait)?;
            self.report_when_due();
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn report_when_due(&mut self) {
        if W::since(self.reported) >= O::REPORT_EVERY {
            self.report();
        }
    }

    fn report(&mut self) {
        self.reported = W::instant();
        self.output.report(self.consumer.lag());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::{Sender, channel};

    use tapeworks_engine::Start;
    use tapeworks_market::{EventKind, InstrumentId, Publisher};
    use tapeworks_ring::disruptor::{Builder, Producer};
    use tapeworks_ring::wait::Yielding;
    use tapeworks_runtime::world::System;

    use super::*;
    use crate::output::tests::Ended;

    /// What a call of [`Output::serve`] does to the world around the reader.
    enum Step {
        Publish(u64),
        Stop(Arc<AtomicBool>),
        Close,
        Nothing,
    }

    /// Reports each call to the test, and performs the next step at each `serve`.
    struct Scripted {
        calls: Sender<String>,
        producer: Option<Producer<Event, Yielding>>,
        steps: std::vec::IntoIter<Step>,
        is_urgent: bool,
        patience: Duration,
        /// Whether live events are immediately followed by more.
        floods: bool,
        has_ended: bool,
    }

    impl Scripted {
        fn called(&self, call: impl Into<String>) {
            self.calls.send(call.into()).unwrap();
        }
    }

    impl Output for Scripted {
        type Failure = Ended;

        fn restore(&mut self, start: Start) {
            self.called(format!("restore {}", start.first_event()));
        }

        fn events(&mut self, first: u64, events: &[Event]) -> Result<(), Ended> {
            assert!(events.iter().zip(first..).all(|(event, number)| event.channel_sequence == number));
            let next = first + events.len() as u64;
            self.called(format!("events {first}..{next}"));
            if self.floods && first >= 3 {
                publish(self.producer.as_mut().unwrap(), next..next + 100);
            }
            Ok(())
        }

        fn go_live(&mut self, first: u64) {
            self.called(format!("live {first}"));
        }

        fn serve(&mut self, wait: Duration) -> Result<(), Ended> {
            self.called(format!("serve {}", wait.as_millis()));
            match self.steps.next() {
                Some(Step::Publish(number)) => publish(self.producer.as_mut().unwrap(), number..number + 1),
                Some(Step::Stop(stop)) => stop.store(true, Ordering::Release),
                Some(Step::Close) => self.producer = None,
                Some(Step::Nothing) => {}
                None => assert!(self.has_ended, "served more often than expected"),
            }
            Ok(())
        }

        fn patience(&self) -> Duration {
            self.patience
        }

        fn is_urgent(&self) -> bool {
            self.is_urgent
        }

        fn spare_time(&mut self) {
            self.called("spare");
        }

        fn end(&mut self) {
            self.has_ended = true;
            self.called("end");
        }

        fn linger(&self) -> Option<Duration> {
            (self.steps.len() > 0).then_some(Duration::from_millis(1))
        }
    }

    fn publish(producer: &mut Producer<Event, Yielding>, numbers: std::ops::Range<u64>) {
        for number in numbers {
            producer.publish(|slot| slot.channel_sequence = number).unwrap();
        }
    }

    type Scene = (
        Reader<Scripted, Yielding, System>,
        std::sync::mpsc::Receiver<String>,
        Consumer<Event, Yielding, Single>,
    );

    /// Creates a reader of a ring with five events, three of them past. The other consumer is for failures.
    fn scene(is_urgent: bool, has_wake_up: bool) -> Scene {
        let blank = Event::new(EventKind::Other, Publisher(0), InstrumentId::UNKNOWN);
        let mut ring = Builder::new(1 << 10, || blank, Yielding::default);
        let [reader, other] = ["reader", "other"].map(|name| ring.consumer(name, &[]));
        let (mut producer, mut ends) = ring.single_producer();
        publish(&mut producer, 0..5);
        let begin = Begin {
            live_from: Arc::new(AtomicU64::new(3)),
            wake_up: has_wake_up.then(Arc::default),
            ..Begin::default()
        };
        let (calls, called) = channel();
        let (producer, steps) = (Some(producer), Vec::new().into_iter());
        let patience = Duration::from_millis(70);
        let output =
            Scripted { calls, producer, steps, is_urgent, patience, floods: false, has_ended: false };
        let reader = Reader::new(output, ends.take(reader).unwrap(), begin, Duration::from_millis(2));
        (reader, called, ends.take(other).unwrap())
    }

    fn all(called: &std::sync::mpsc::Receiver<String>) -> Vec<String> {
        called.try_iter().collect()
    }

    #[test]
    fn an_output_gets_the_past_then_the_present_and_waits_when_there_is_nothing_to_take() {
        let (mut reader, called, _other) = scene(true, true);
        reader.output.steps =
            vec![Step::Publish(5), Step::Publish(6), Step::Close, Step::Nothing, Step::Nothing].into_iter();
        reader.run().unwrap();
        let expected = [
            "events 0..3",
            "live 3",
            "events 3..5",
            "spare",
            "serve 70",
            "events 5..6",
            "spare",
            "serve 70",
            "events 6..7",
            "spare",
            "serve 70",
            "end",
            "serve 0",
            "serve 1",
        ];
        assert_eq!(all(&called), expected);
        assert_eq!(reader.next, 7);
    }

    #[test]
    fn an_output_with_work_left_is_served_between_events() {
        let (mut reader, called, _other) = scene(true, true);
        reader.output.patience = Duration::ZERO;
        reader.output.steps = vec![Step::Publish(5), Step::Nothing, Step::Close].into_iter();
        reader.run().unwrap();
        let expected = [
            "events 0..3",
            "live 3",
            "events 3..5",
            "serve 0",
            "events 5..6",
            "serve 0",
            "spare",
            "serve 0",
            "end",
            "serve 0",
        ];
        assert_eq!(all(&called), expected);
    }

    #[test]
    fn an_output_is_served_after_many_events_even_if_more_wait() {
        let (mut reader, called, other) = scene(true, true);
        drop(other);
        reader.output.floods = true;
        reader.output.steps = vec![Step::Stop(Arc::clone(&reader.stop))].into_iter();
        reader.run().unwrap();
        assert_eq!(all(&called).last().map(String::as_str), Some("serve 0"));
        assert!((MOST_UNSERVED..MOST_UNSERVED + 200).contains(&(reader.next as usize)), "{}", reader.next);
    }

    #[test]
    fn events_gather_for_an_output_that_is_not_urgent() {
        let (mut reader, called, _other) = scene(false, true);
        reader.output.steps = vec![Step::Publish(5), Step::Close].into_iter();
        reader.run().unwrap();
        let expected =
            ["events 0..3", "live 3", "events 3..5", "serve 5", "events 5..6", "serve 5", "end", "serve 0"];
        assert_eq!(all(&called), expected);
    }

    #[test]
    fn without_a_wake_up_an_output_never_waits_in_serve() {
        let (mut reader, called, _other) = scene(true, false);
        reader.output.steps = vec![Step::Nothing, Step::Publish(5), Step::Nothing, Step::Close].into_iter();
        reader.run().unwrap();
        let expected = [
            "events 0..3",
            "live 3",
            "events 3..5",
            "spare",
            "serve 0",
            "spare",
            "serve 0",
            "events 5..6",
            "spare",
            "serve 0",
            "spare",
            "serve 0",
            "end",
            "serve 0",
        ];
        assert_eq!(all(&called), expected);
    }

    #[test]
    fn a_stop_ends_a_reader_at_once_and_a_failed_ring_with_its_error() {
        let (mut reader, called, _other) = scene(true, true);
        reader.output.steps = vec![Step::Stop(Arc::clone(&reader.stop))].into_iter();
        reader.run().unwrap();
        assert_eq!(all(&called), ["events 0..3", "live 3", "events 3..5", "spare", "serve 70"]);

        let (mut reader, called, other) = scene(true, true);
        other.fail();
        let Err(Ended::Ring(failed)) = reader.run() else { panic!("the ring has failed") };
        assert_eq!(failed.name, "other");
        assert_eq!(all(&called), ["events 0..3", "live 3", "events 3..5"]);
    }

    #[test]
    fn no_client_is_served_before_the_first_present_event_is_known() {
        let (mut reader, called, _other) = scene(true, true);
        let live_from = Arc::clone(&reader.begin.live_from);
        live_from.store(u64::MAX, Ordering::Release);
        reader.output.steps = vec![Step::Close].into_iter();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| reader.run());
            assert_eq!(called.recv().unwrap(), "events 0..5");
            live_from.store(5, Ordering::Release);
            running.join().unwrap().unwrap();
        });
        assert_eq!(all(&called), ["live 5", "spare", "serve 70", "end", "serve 0"]);
    }
}
