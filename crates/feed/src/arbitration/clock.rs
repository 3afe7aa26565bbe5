//! A clock that is set while channels are followed.
//!
//! Times of packets are the time of day, which someone may set. Set forward, it makes every moment before look long past; set back, it
//! makes what is due wait for as long as it was set back. So all that is remembered moves along.

use tapeworks_time::{ClockChange, Nanos};

use super::Arbiter;

impl Arbiter {
    /// Every remembered time becomes one of the new clock.
    #[cold]
    #[inline(never)]
    pub(crate) fn clock_was_set(&mut self, change: ClockChange) {
        let set = |time: &mut Nanos| *time = change.moved(*time);
        let all = |time: &mut Option<Nanos>| time.iter_mut().for_each(set);
        self.lines.iter_mut().for_each(|line| all(&mut line.last));
        let waiting = self.successors.iter_mut().flat_map(|successor| &mut successor.packets);
        self.held.iter_mut().chain(waiting).for_each(|held| set(&mut held.received));
        self.suspects.iter_mut().for_each(|held| set(&mut held.received));
        self.run.clock_was_set(change);
        self.past.iter_mut().for_each(|past| past.run.clock_was_set(change));
        self.retry.clock_was_set(change);
        self.gaps.clock_was_set(change);
        all(&mut self.last);
        set(&mut self.began);
        set(&mut self.advanced);
        set(&mut self.confirmed);
        set(&mut self.came_late);
    }
}
