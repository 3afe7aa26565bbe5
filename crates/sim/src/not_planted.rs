//! In place of the search for deliberate bugs, in a build that has none.

const NONE: &str = "this build has no deliberate bugs: `cargo xtask simulate --bugs` makes one that has";

/// Switches on the deliberate bug of this name for what runs on this thread of the system.
///
/// # Errors
/// There is no such bug, or this build has none: it was not built with `--cfg tapeworks_bug`.
pub fn switch_on(_name: &str) -> Result<(), String> {
    Err(NONE.to_owned())
}

/// Runs the seeds from 1 to `last` until each deliberate bug, or each of these names, has failed one, and prints the table; with
/// `only_orders`, each bug of a gateway and its exchange. Whether each was found.
///
/// # Errors
/// As [`switch_on`].
pub fn search_bugs(_names: &[String], _only_orders: bool, _last: u64, _jobs: usize) -> Result<bool, String> {
    Err(NONE.to_owned())
}
