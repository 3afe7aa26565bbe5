//! Clock changes while channels are followed.
//!
//! Packets carry the time of day, and someone may set that clock. Set forward, it makes every earlier moment look long past; set
//! back, it delays whatever is due by the amount of the change. So every remembered time moves with the clock.

use tapeworks_time::{ClockChange, Nanos};

use super::Arbiter;

impl Arbiter {
    /// Converts every remembered time to the new clock.
    #[cold]
    #[inline(never)]
    pub fn clock_was_set(&mut self, change: ClockChange) {
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
