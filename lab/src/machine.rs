//! The machine of a run. Figures mean nothing without it.

use std::fs;

use serde::{Deserialize, Serialize};

/// The properties of a machine that affect its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores available to the program.
    pub cores: usize,
    /// Caches of the first core, nearest first: `L1d 32K`.
    pub caches: Vec<String>,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
    /// The hypervisor, if the system reports one.
    pub hypervisor: Option<String>,
    /// The processors for which the program was compiled.
    pub target: String,
    /// Instruction sets that variants may choose at run time.
    pub instruction_sets: Vec<String>,
    /// The setting of transparent huge pages: `madvise`.
    pub huge_pages: String,
    /// The frequency governor of the first core, if known.
    pub governor: Option<String>,
    /// The load of the machine before the run: running or waiting processes in the last minute.
    pub load_before: f64,
    /// Whether this program can count processor events; if not, why.
    pub counters: Result<(), String>,
}

/// Whether this program was optimised; an unoptimised program has assertions, and its figures say nothing about a technique.
pub const IS_OPTIMISED: bool = !cfg!(debug_assertions);

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Returns the value after `name:` in one of the lists in `/proc`.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

impl Machine {
    /// Returns whether both are the same machine, regardless of load.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Self { load_before: other.load_before, ..self.clone() } == *other
    }

    /// Inspects this machine. Values that the system does not report are empty.
    #[must_use]
    pub fn this() -> Self {
        let processor = read("/proc/cpuinfo");
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes: u64 =
            memory.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        Self {
            processor: field(&processor, "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(),
            memory_bytes: kilobytes * 1_024,
            kernel: read("/proc/sys/kernel/osrelease"),
            hypervisor: hypervisor(&processor),
            target: if IS_OPTIMISED { target().into() } else { format!("{}, not optimised", target()) },
            instruction_sets: instruction_sets(),
            huge_pages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            governor: Some(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
                .filter(|governor| !governor.is_empty()),
            load_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            counters: crate::counters::Counters::open()
                .map(drop)
                .map_err(|error| format!("the kernel opens no counter: {error}")),
        }
    }

    /// Describes the machine in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let hypervisor = if self.hypervisor.is_some() { ", virtual" } else { "" };
        format!(
            "{}, {} cores{hypervisor}, {}, {:.0} GiB, Linux {}, compiled for {}",
            self.processor,
            self.cores,
            self.caches.join(", "),
            self.memory_bytes as f64 / (1u64 << 30) as f64,
            self.kernel,
            self.target,
        )
    }

    /// Returns the size in bytes of the cache `L1d`, `L2` or `L3`.
    #[must_use]
    pub fn cache_bytes(&self, name: &str) -> Option<u64> {
        let size = self.caches.iter().find_map(|cache| cache.strip_prefix(name)?.strip_prefix(' '))?;
        let (number, unit) = size.split_at(size.find(|found: char| !found.is_ascii_digit())?);
        let factor = match unit {
            "K" => 1 << 10,
            "M" => 1 << 20,
            _ => return None,
        };
        number.parse::<u64>().ok().map(|number| number * factor)
    }
}

/// Returns the word in brackets: `always [madvise] never`.
fn chosen(setting: &str) -> String {
    let inner = setting.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or_else(|| setting.to_owned(), |(chosen, _)| chosen.to_owned())
}

fn caches() -> Vec<String> {
    let of =
        |index: u32, name: &str| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}"));
    let mut caches = Vec::new();
    for index in 0..8 {
        let (level, kind, size) = (of(index, "level"), of(index, "type"), of(index, "size"));
        if level.is_empty() || size.is_empty() || kind == "Instruction" {
            continue;
        }
        caches.push(format!("L{level}{} {size}", if kind == "Data" { "d" } else { "" }));
    }
    caches
}

fn hypervisor(processor: &str) -> Option<String> {
    let is_virtual = field(processor, "flags").split(' ').any(|flag| flag == "hypervisor");
    let name = read("/sys/class/dmi/id/sys_vendor");
    is_virtual.then(|| if name.is_empty() { "of an unknown kind".into() } else { name })
}

const fn target() -> &'static str {
    if cfg!(target_feature = "avx512f") {
        "x86-64-v4"
    } else if cfg!(target_feature = "avx2") {
        "x86-64-v3"
    } else if cfg!(target_feature = "sse4.2") {
        "x86-64-v2"
    } else if cfg!(target_arch = "x86_64") {
        "x86-64"
    } else {
        std::env::consts::ARCH
    }
}

fn instruction_sets() -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let sets = [
            ("sse4.2", std::is_x86_feature_detected!("sse4.2")),
            ("avx2", std::is_x86_feature_detected!("avx2")),
            ("fma", std::is_x86_feature_detected!("fma")),
            ("bmi2", std::is_x86_feature_detected!("bmi2")),
            ("movbe", std::is_x86_feature_detected!("movbe")),
            ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ];
        found.extend(sets.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_it_is() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
        assert!(machine.line().contains("compiled for"));
    }

    #[test]
    fn cache_sizes_are_read() {
        let machine = Machine { caches: vec!["L1d 48K".into(), "L2 1M".into()], ..Machine::this() };
        assert_eq!(machine.cache_bytes("L1d"), Some(48 << 10));
        assert_eq!(machine.cache_bytes("L2"), Some(1 << 20));
        assert_eq!(machine.cache_bytes("L3"), None);
        assert_eq!(chosen("always [madvise] never"), "madvise");
    }
}
