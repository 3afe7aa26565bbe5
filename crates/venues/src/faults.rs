//! Which of several faults a packet or snapshot has: at most one, each with a chance of so many in a million.

use tapeworks_exchange::random::Random;

/// The chance of any fault, in a million.
pub(crate) fn sum<T>(chances: &[(u32, T)]) -> u64 {
    chances.iter().map(|(chance, _)| u64::from(*chance)).sum()
}

/// Draws a fault. It draws nothing when no fault has a chance, so the other draws stay what they were.
pub(crate) fn draw<T: Copy>(chances: &[(u32, T)], random: &mut Random) -> Option<T> {
    if sum(chances) == 0 {
        return None;
    }
    let mut place = random.below(1_000_000);
    for (chance, fault) in chances {
        if place < *chance {
            return Some(*fault);
        }
        place -= chance;
    }
    None
}
