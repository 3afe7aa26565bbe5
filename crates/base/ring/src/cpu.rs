//! The core and the priority of a thread.
//!
//! A thread that spins needs its own core. [`pin`] binds the thread to a core, [`set_realtime`] prevents other threads from
//! preempting it, [`lock_memory`] keeps its pages in memory, and [`step_back`] yields the core to others. A service manager or a
//! container may refuse each of these. The error names the refused call and the reason, and the program works without it.

use std::io;

/// The reason why a thread cannot be placed as requested.
#[derive(Debug)]
pub enum CpuError {
    /// The core does not exist, or this process may not use it.
    NoCore {
        /// The core requested.
        core: usize,
        /// The cores that the calling thread may use.
        allowed: Vec<usize>,
    },
    /// The kernel refused.
    Refused {
        /// The request.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// This operating system lacks the call.
    Unsupported,
}

impl std::fmt::Display for CpuError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoCore { core, allowed } => {
                write!(f, "core {core} is not among those this process may use: {allowed:?}")
            }
            Self::Refused { what, error } => write!(f, "{what}: {error}"),
            Self::Unsupported => f.write_str("this operating system has no such call"),
        }
    }
}

impl std::error::Error for CpuError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { error, .. } => Some(error),
            Self::NoCore { .. } | Self::Unsupported => None,
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{BACKGROUND, CpuError, io};

    fn refused(what: &'static str) -> CpuError {
        CpuError::Refused { what, error: io::Error::last_os_error() }
    }

    /// Returns the mask of cores that the calling thread may use.
    fn mask() -> Result<libc::cpu_set_t, CpuError> {
        // SAFETY: all zeros is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set has the size that is passed; 0 is the calling thread.
        let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        if result == 0 { Ok(set) } else { Err(refused("asking for the cores of this thread")) }
    }

    pub(super) fn allowed_cores() -> Result<Vec<usize>, CpuError> {
        let set = mask()?;
        // SAFETY: the numbers are below the size of the set.
        Ok((0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect())
    }

    pub(super) fn pin(core: usize) -> Result<(), CpuError> {
        let none = |core| {
            // These are the calling thread's cores: after pinning, fewer than the process may use.
            CpuError::NoCore { core, allowed: allowed_cores().unwrap_or_default() }
        };
        if core >= libc::CPU_SETSIZE as usize {
            return Err(none(core));
        }
        // SAFETY: all zeros is the empty set, and the core is below its size.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut set);
            set
        };
        // SAFETY: the set has the size that is passed; 0 is the calling thread.
        let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EINVAL) => none(core),
                _ => CpuError::Refused { what: "pinning a thread", error },
            });
        }
        // Some containers accept the call but place the thread elsewhere.
        if allowed_cores()? == [core] { Ok(()) } else { Err(none(core)) }
    }

    pub(super) fn set_realtime(priority: u8) -> Result<(), CpuError> {
        // SAFETY: all zeros is a parameter of priority 0.
        let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
        parameter.sched_priority = i32::from(priority);
        // SAFETY: the parameter is valid for the call; 0 is the calling thread.
        let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
        if result == 0 { Ok(()) } else { Err(refused("requesting real-time priority")) }
    }

    pub(super) fn step_back() -> Result<(), CpuError> {
        // SAFETY: the call touches no memory of the program; 0 is the calling thread.
        let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BACKGROUND) };
        if result == 0 { Ok(()) } else { Err(refused("stepping back")) }
    }

    pub(super) fn lock_memory() -> Result<(), CpuError> {
        // SAFETY: the call touches no memory of the program.
        let result = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
        if result == 0 { Ok(()) } else { Err(refused("locking memory")) }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::CpuError;

    pub(super) fn allowed_cores() -> Result<Vec<usize>, CpuError> {
        Err(CpuError::Unsupported)
    }

    pub(super) fn pin(_core: usize) -> Result<(), CpuError> {
        Err(CpuError::Unsupported)
    }

    pub(super) fn set_realtime(_priority: u8) -> Result<(), CpuError> {
        Err(CpuError::Unsupported)
    }

    pub(super) fn step_back() -> Result<(), CpuError> {
        Err(CpuError::Unsupported)
    }

    pub(super) fn lock_memory() -> Result<(), CpuError> {
        Err(CpuError::Unsupported)
    }
}

/// The nice value of background work.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
const BACKGROUND: i32 = 10;

/// Returns the cores that the calling thread may use, in order.
///
/// # Errors
/// If the kernel does not report them.
pub fn allowed_cores() -> Result<Vec<usize>, CpuError> {
    linux::allowed_cores()
}

/// Pins the calling thread to `core` and verifies it. Threads started later by this thread inherit the pinning.
///
/// # Errors
/// If the core does not exist, or this process may not use it.
pub fn pin(core: usize) -> Result<(), CpuError> {
    linux::pin(core)
}

/// Gives the calling thread real-time priority `priority` (1 to 99, `SCHED_FIFO`): nothing of lower priority runs on its core
/// while the thread can run. A spinning thread therefore starves all other threads of that core.
///
/// # Errors
/// If the kernel refuses: it requires the capability `CAP_SYS_NICE` or a limit `RLIMIT_RTPRIO`.
pub fn set_realtime(priority: u8) -> Result<(), CpuError> {
    linux::set_realtime(priority)
}

/// Reduces the calling thread's share of the core to a tenth of a competing thread's, for work that no thread waits for. Undoing
/// this needs a privilege that few processes have.
///
/// # Errors
/// If the kernel refuses.
pub fn step_back() -> Result<(), CpuError> {
    linux::step_back()
}

/// Locks all current and future memory of the process into RAM, and loads every page now.
///
/// # Errors
/// If that exceeds the limit `RLIMIT_MEMLOCK`.
pub fn lock_memory() -> Result<(), CpuError> {
    linux::lock_memory()
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_was_put() {
        let cores = allowed_cores().unwrap();
        for core in cores {
            let now =
                std::thread::spawn(move || pin(core).and_then(|()| allowed_cores())).join().unwrap().unwrap();
            assert_eq!(now, [core]);
        }
    }

    #[test]
    fn a_missing_core_is_an_error_that_lists_the_others() {
        for core in [libc::CPU_SETSIZE as usize - 1, usize::MAX] {
            let error = std::thread::spawn(move || pin(core)).join().unwrap().unwrap_err();
            assert!(error.to_string().starts_with(&format!("core {core} is not among")), "{error}");
        }
    }

    #[test]
    fn step_back_lowers_the_priority_of_this_thread_only() {
        // SAFETY: the call touches none of the program's memory; 0 is the calling thread.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        let niceness = std::thread::spawn(move || step_back().map(|()| nice())).join().unwrap();
        assert_eq!(niceness.unwrap(), BACKGROUND.max(before));
        assert_eq!(nice(), before);
    }

    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        let error = set_realtime(200).unwrap_err();
        assert!(error.to_string().starts_with("requesting real-time priority"), "{error}");
    }
}
