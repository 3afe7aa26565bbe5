//! Replaces the search for deliberate bugs in a build without them.

const NONE: &str = "this build has no deliberate bugs: `cargo xtask simulate --bugs` makes one that has";

/// Switches on the deliberate bug with this name for everything that runs on this OS thread.
///
/// # Errors
/// There is no such bug, or this build has none: it was not built with `--cfg tapeworks_bug`.
pub fn switch_on(_name: &str) -> Result<(), String> {
    Err(NONE.to_owned())
}

/// Runs the seeds from 1 to `last` until each deliberate bug, or each of the named ones, has failed a seed, and prints the
/// table. With `only_orders`, searches for each bug of a gateway and its exchange. Returns whether each was found.
///
/// # Errors
/// As [`switch_on`].
pub fn search_bugs(_names: &[String], _only_orders: bool, _last: u64, _jobs: usize) -> Result<bool, String> {
    Err(NONE.to_owned())
}
