//! A clock that is set while channels are followed.
//!
//! Times of packets are the time of day, which someone may set. Set forward, it makes every moment before look long past; set back, it
//! makes what is due wait for as long as it was set back. So all that is remembered moves along.

use tapeworks_market::Nanos;

use super::Arbiter;

impl Arbiter {
    /// The clock shows so many ns more than it would have: every remembered time is one of the new clock.
    #[cold]
    #[inline(never)]
    pub(crate) fn clock_was_set(&mut self, ahead_ns: i64) {
        let set = |time: &mut Nanos| *time = time.set_by(ahead_ns);
        let all = |time: &mut Option<Nanos>| time.iter_mut().for_each(set);
        self.lines.iter_mut().for_each(|line| all(&mut line.last));
        let waiting = self.successors.iter_mut().flat_map(|successor| &mut successor.packets);
        self.held.iter_mut().chain(waiting).for_each(|held| set(&mut held.received));
        self.suspects.iter_mut().for_each(|held| set(&mut held.received));
        self.run.clock_was_set(ahead_ns);
        self.retry.clock_was_set(ahead_ns);
        self.gaps.clock_was_set(ahead_ns);
        all(&mut self.last);
        set(&mut self.began);
        set(&mut self.advanced);
        set(&mut self.confirmed);
        set(&mut self.came_late);
    }
}
