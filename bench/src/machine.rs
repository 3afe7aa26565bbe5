//! The machine of the figures.

use std::fs;

/// Prints the machine, the compiler's target and the load before the run.
pub fn describe() {
    let field = |name: &str| {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split(':').nth(1).unwrap_or("?").trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let target = if cfg!(target_feature = "avx512f") {
        "x86-64-v4"
    } else if cfg!(target_feature = "avx2") {
        "x86-64-v3"
    } else if cfg!(target_feature = "sse4.2") {
        "x86-64-v2"
    } else {
        std::env::consts::ARCH
    };
    println!(
        "machine: {}, {cores} cores, cache {}, kernel {}",
        field("model name"),
        field("cache size"),
        kernel.trim()
    );
    println!(
        "target: {target}; huge pages: {}; load before: {}",
        huge.trim(),
        load.split(' ').next().unwrap_or("?")
    );
    println!();
}
