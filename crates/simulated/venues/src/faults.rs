//! Draws at most one of several faults for a packet or snapshot, each with a chance per million.

use tapeworks_random::Random;

/// Returns the chance of any fault, per million.
pub(crate) fn sum<T>(chances: &[(u32, T)]) -> u64 {
    chances.iter().map(|(chance, _)| u64::from(*chance)).sum()
}

/// Draws a fault. If no fault has a chance, no random number is consumed, so other draws do not change.
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
