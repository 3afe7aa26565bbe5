//! The disk of a simulated machine.
//!
//! Writes go to memory, and reach the disk only with a sync. When a machine loses power, each write since the last sync of
//! its file is independently kept, lost or torn. Of the name changes since the last sync of their folder, a prefix is kept: a
//! rename may reach the disk before the contents of the renamed file.
//!
//! Cost: a file's bytes twice, in memory and on the disk.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::TryLockError;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tapeworks_disk::{Access, Disk, DiskFile};
use tapeworks_random::Random;

use super::{HostId, Simulated, call, sleep, with};

/// Bytes that a disk writes atomically: a torn write ends at a sector boundary.
const SECTOR: usize = 512;

/// Maximum file length in bytes for which memory is reserved in one step.
const MOST_RESERVED: usize = 4 << 20;

/// Time between two checks of a thread whose disk has stopped, in ns.
const STOPPED_NS: u64 = 1_000;

/// The faults of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskFaults {
    /// Longest duration of a write, in ns.
    pub write_ns: u32,
    /// Longest duration of a sync, in ns.
    pub sync_ns: u32,
    /// Failing syncs, per million.
    pub failed_syncs_per_million: u32,
    /// Failing writes, per million.
    pub failed_writes_per_million: u32,
    /// Failing reads, per million.
    pub failed_reads_per_million: u32,
    /// Failing renames, removals and other name changes, per million.
    #[serde(default)]
    pub failed_names_per_million: u32,
    /// Maximum total length of all files in bytes.
    pub capacity: u64,
}

impl Default for DiskFaults {
    fn default() -> Self {
        Self {
            write_ns: 20_000,
            sync_ns: 2_000_000,
            failed_syncs_per_million: 0,
            failed_writes_per_million: 0,
            failed_reads_per_million: 0,
            failed_names_per_million: 0,
            capacity: u64::MAX,
        }
    }
}

/// What ends at a disk call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The calling process is killed.
    Process,
    /// The machine loses power.
    Machine,
}

/// A sequence of choices for what a power loss leaves of unsynced writes; enumerates every combination once.
#[derive(Clone, Default, Debug)]
pub struct PowerLoss {
    /// The choices made so far, or to be made.
    choices: Vec<u32>,
    /// The number of alternatives at each position.
    limits: Vec<u32>,
}

impl PowerLoss {
    /// Returns the next combination of choices, or `None` after the last.
    pub fn following(&self) -> Option<Self> {
        let made = self.choices.iter().copied().chain(std::iter::repeat(0));
        let mut choices: Vec<u32> = made.take(self.limits.len()).collect();
        while let Some(last) = choices.pop() {
            if self.limits.get(choices.len()).is_some_and(|limit| last + 1 < *limit) {
                choices.push(last + 1);
                return Some(Self { choices, limits: Vec::new() });
            }
        }
        None
    }

    /// Returns this combination's share of all combinations, if the alternatives at each position are equally likely. The
    /// shares of all combinations add up to 1.
    pub fn share(&self) -> f64 {
        self.limits.iter().map(|limit| 1.0 / f64::from(*limit)).product()
    }

    fn choose(&mut self, limit: u32) -> u32 {
        let choice = self.choices.get(self.limits.len()).copied().unwrap_or_default();
        self.limits.push(limit);
        choice.min(limit.saturating_sub(1))
    }
}

/// Decides about unsynced writes.
enum Chance<'a> {
    Drawn(&'a mut Random),
    Chosen(&'a mut PowerLoss),
}

impl Chance<'_> {
    fn below(&mut self, limit: u32) -> u32 {
        match self {
            Self::Drawn(random) => random.below(limit),
            Self::Chosen(choices) => choices.choose(limit),
        }
    }

    /// Returns the sectors of a torn write that reach the disk: any when drawn; the first half, the second half or the middle when chosen.
    fn part(&mut self, sectors: u32) -> (u32, u32) {
        match self {
            Self::Drawn(random) => {
                let (one, other) = (random.below(sectors + 1), random.below(sectors + 1));
                (one.min(other), one.max(other))
            }
            // All and nothing are separate choices.
            Self::Chosen(_) if sectors < 2 => (0, 0),
            Self::Chosen(choices) => match choices.choose(if sectors > 2 { 3 } else { 2 }) {
                0 => (0, sectors / 2),
                1 => (sectors / 2, sectors),
                _ => (1, sectors - 1),
            },
        }
    }
}

/// The contents of a file, to which its names refer.
#[derive(Default, Debug)]
struct Inode {
    /// Bytes up to the last one written; zeros follow up to `length`.
    data: Vec<u8>,
    length: u64,
    durable: Vec<u8>,
    durable_length: u64,
    unsynced: Vec<Range<usize>>,
    is_length_unsynced: bool,
    /// The shortest length since the last sync: bytes after it are lost, even if the file has grown again.
    cut: Option<usize>,
    /// The opening that has locked the file.
    locked_by: Option<u64>,
    /// Number of unclosed openings.
    open: usize,
}

impl Inode {
    fn note(&mut self, written: Range<usize>) {
        match self.unsynced.last_mut() {
            Some(last) if last.end == written.start => last.end = written.end,
            // The disk then has the last write or nothing, so one entry is enough.
            Some(last) if *last == written => {}
            _ => self.unsynced.push(written),
        }
    }

    /// Returns how much memory to reserve beyond `has` bytes for a write up to `end`: enough for a file with a preset length,
    /// otherwise up to `end`.
    fn reserve(&self, has: usize, end: usize) -> usize {
        let whole = usize::try_from(self.length).unwrap_or(usize::MAX).min(MOST_RESERVED);
        whole.max(end).saturating_sub(has)
    }

    /// Copies a part of the written bytes to the disk.
    fn harden(&mut self, part: Range<usize>) {
        let part = part.start.min(self.data.len())..part.end.min(self.data.len());
        let reserve = self.reserve(self.durable.len(), part.end);
        let Some(from) = self.data.get(part.clone()) else { return };
        if self.durable.len() < part.start {
            self.durable.resize(part.start, 0);
        }
        let (over, behind) = from.split_at(from.len().min(self.durable.len() - part.start));
        if let Some(to) = self.durable.get_mut(part.start..part.start + over.len()) {
            to.copy_from_slice(over);
        }
        self.durable.reserve(reserve);
        self.durable.extend_from_slice(behind);
    }

    /// Truncates the file to this many bytes.
    fn shorten(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.data.truncate(bytes);
        self.unsynced.iter_mut().for_each(|written| {
            *written = written.start.min(bytes)..written.end.min(bytes);
        });
        self.cut = Some(self.cut.map_or(bytes, |cut| cut.min(bytes)));
    }

    fn sync_cut(&mut self) {
        if let Some(cut) = self.cut.take() {
            self.durable.truncate(cut);
        }
    }

    fn sync(&mut self) {
        self.sync_cut();
        for written in std::mem::take(&mut self.unsynced) {
            self.harden(written);
        }
        self.sync_length();
    }

    fn sync_length(&mut self) {
        self.durable_length = self.length;
        self.durable.truncate(usize::try_from(self.length).unwrap_or(usize::MAX));
        self.is_length_unsynced = false;
    }

    /// Frees a file that nothing refers to. The pending decisions about a power loss stay, so that a seed's later draws do not change.
    fn forget(&mut self) {
        (self.data, self.durable) = (Vec::new(), Vec::new());
        (self.length, self.durable_length) = (0, 0);
    }

    fn lose_power(&mut self, chance: &mut Chance<'_>) {
        let has_length = self.is_length_unsynced && chance.below(2) == 0;
        if has_length {
            self.sync_cut();
        }
        for written in std::mem::take(&mut self.unsynced) {
            match chance.below(3) {
                0 => {}
                1 => self.harden(written),
                _ => {
                    // Whole sectors, anywhere in the write.
                    let sectors = (written.end.div_ceil(SECTOR) - written.start / SECTOR) as u32;
                    let (first, last) = chance.part(sectors);
                    let at = |sector: u32| {
                        let end = (written.start / SECTOR + sector as usize) * SECTOR;
                        end.clamp(written.start, written.end)
                    };
                    self.harden(at(first)..at(last));
                }
            }
        }
        if has_length {
            self.sync_length();
        }
        self.durable_length = self.durable_length.max(self.durable.len() as u64);
        self.data.clone_from(&self.durable);
        self.length = self.durable_length;
        (self.is_length_unsynced, self.cut, self.locked_by) = (false, None, None);
    }
}

/// A change of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Naming {
    /// The name refers to this file.
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Folder(PathBuf, usize),
    RemoveFolder(PathBuf),
    /// A file, or a folder with everything in it.
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
}

impl Naming {
    /// Returns the folder whose names change.
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Link(path, _) | Self::Unlink(path) | Self::Folder(path, _) | Self::RemoveFolder(path) => {
                path.parent()
            }
            Self::Rename(_, to) | Self::Exchange(_, to) => to.parent(),
        }
    }
}

#[derive(Clone, Default, Debug)]
struct Names {
    files: BTreeMap<PathBuf, usize>,
    folders: BTreeMap<PathBuf, usize>,
}

impl Names {
    fn apply(&mut self, naming: &Naming) {
        match naming {
            Naming::Link(path, inode) => {
                self.files.insert(path.clone(), *inode);
            }
            Naming::Unlink(path) => {
                self.files.remove(path);
            }
            Naming::Folder(path, inode) => {
                self.folders.insert(path.clone(), *inode);
            }
            Naming::RemoveFolder(path) => {
                self.files.retain(|file, _| !file.starts_with(path));
                self.folders.retain(|folder, _| !folder.starts_with(path));
            }
            Naming::Rename(from, to) if self.files.contains_key(from) => {
                if let Some(inode) = self.files.remove(from) {
                    self.files.insert(to.clone(), inode);
                }
            }
            Naming::Rename(from, to) => {
                self.move_names(|path| path.strip_prefix(from).ok().map(|rest| join(to, rest)));
            }
            Naming::Exchange(one, other) => self.move_names(|path| {
                let moved = |from: &Path, to: &Path| path.strip_prefix(from).ok().map(|rest| join(to, rest));
                moved(one, other).or_else(|| moved(other, one))
            }),
        }
    }

    fn move_names(&mut self, moved: impl Fn(&Path) -> Option<PathBuf>) {
        for names in [&mut self.files, &mut self.folders] {
            let (kept, moving): (BTreeMap<_, _>, BTreeMap<_, _>) =
                std::mem::take(names).into_iter().partition(|(path, _)| moved(path).is_none());
            *names = kept;
            // Renamed files replace those that had the new names.
            names.extend(moving.into_iter().filter_map(|(path, inode)| Some((moved(&path)?, inode))));
        }
    }

    /// Roots are folders on every disk.
    fn has_folder(&self, path: &Path) -> bool {
        path.parent().is_none() || self.folders.contains_key(path)
    }

    /// Returns the file or folder with this name.
    fn inode(&self, path: &Path) -> Option<usize> {
        self.files.get(path).or_else(|| self.folders.get(path)).copied()
    }

    fn is_empty_folder(&self, path: &Path) -> bool {
        let mut all = self.files.keys().chain(self.folders.keys());
        !all.any(|name| name.starts_with(path) && name != path)
    }
}

/// Like `Path::join`, but joining an empty path changes nothing.
fn join(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

#[derive(Default, Debug)]
pub(crate) struct DiskState {
    pub(crate) faults: DiskFaults,
    inodes: Vec<Inode>,
    names: Names,
    /// The names that a machine finds after a power loss.
    durable: Names,
    /// Unsynced name changes, in order.
    unsynced: Vec<Naming>,
    openings: u64,
    /// Number of failures so far.
    pub(crate) failures: u64,
    /// Number of calls so far.
    calls: u64,
    /// The call at which something ends.
    crash: Option<(u64, Crash)>,
    /// That call was made, and the disk stops until the end.
    pub(crate) is_stopped: bool,
    /// The choices for the next power loss; if `None`, they are drawn.
    power_loss: Option<PowerLoss>,
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl DiskState {
    fn name(&mut self, naming: Naming) {
        self.names.apply(&naming);
        self.unsynced.push(naming);
    }

    fn opened(&mut self, host: HostId, inode: usize, is_writable: bool) -> SimFile {
        self.openings += 1;
        if let Some(inode) = self.inodes.get_mut(inode) {
            inode.open += 1;
        }
        SimFile { host, inode, opening: self.openings, is_writable }
    }

    fn used(&self) -> u64 {
        let named: BTreeSet<usize> = self.names.files.values().copied().collect();
        named.iter().filter_map(|inode| self.inodes.get(*inode)).map(|inode| inode.length).sum()
    }

    /// Checks that there is room for a file that grows to `length`.
    fn check_room(&self, inode: usize, length: u64) -> io::Result<()> {
        let now = self.inodes.get(inode).map_or(0, |inode| inode.length);
        let more = length.saturating_sub(now);
        if more > 0
            && self.faults.capacity != u64::MAX
            && self.used().saturating_add(more) > self.faults.capacity
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Syncs the names in `folder`, and all name changes before the last of them.
    fn sync_names(&mut self, folder: &Path) {
        let Some(last) = self.unsynced.iter().rposition(|naming| naming.folder() == Some(folder)) else {
            return;
        };
        let mut has_removed = false;
        for naming in self.unsynced.drain(..=last) {
            has_removed |= matches!(naming, Naming::Unlink(_) | Naming::RemoveFolder(_) | Naming::Rename(..));
            self.durable.apply(&naming);
        }
        if has_removed {
            self.forget_unnamed();
        }
    }

    /// Frees the memory of unnamed files that are not open.
    fn forget_unnamed(&mut self) {
        let named = self.names.files.values().chain(self.durable.files.values()).copied();
        let linked = self.unsynced.iter().filter_map(|naming| match naming {
            Naming::Link(_, inode) => Some(*inode),
            _ => None,
        });
        let kept: BTreeSet<usize> = named.chain(linked).collect();
        for (number, inode) in self.inodes.iter_mut().enumerate() {
            if inode.open == 0 && !inode.data.is_empty() && !kept.contains(&number) {
                inode.forget();
            }
        }
    }

    /// Keeps, loses or tears unsynced writes.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        let mut chance = self.power_loss.as_mut().map_or(Chance::Drawn(random), Chance::Chosen);
        let kept = chance.below(self.unsynced.len() as u32 + 1) as usize;
        for naming in self.unsynced.drain(..).take(kept) {
            self.durable.apply(&naming);
        }
        self.names = self.durable.clone();
        self.inodes.iter_mut().for_each(|inode| inode.lose_power(&mut chance));
    }

    /// Counts a call. Returns what ends at it.
    fn count_call(&mut self) -> Option<Crash> {
        self.calls += 1;
        let (_, crash) = self.crash.take_if(|(at, _)| *at == self.calls)?;
        self.is_stopped = true;
        Some(crash)
    }

    fn fails(&mut self, random: &mut Random, per_million: u32) -> bool {
        let fails = random.chance(per_million);
        self.failures += u64::from(fails);
        fails
    }

    /// Fails a name change at the configured rate.
    fn check_name(&mut self, random: &mut Random) -> io::Result<()> {
        match self.fails(random, self.faults.failed_names_per_million) {
            true => Err(io::Error::other("an error of the simulated disk")),
            false => Ok(()),
        }
    }
}

/// Calls `ask` with the disk of a host.
fn on<R>(host: HostId, ask: impl FnOnce(&mut DiskState, &mut Random) -> R) -> io::Result<R> {
    with(|kernel| {
        let super::Kernel { hosts, random, .. } = kernel;
        let host = hosts.get_mut(host.0).ok_or_else(not_found)?;
        Ok(ask(&mut host.disk, random))
    })
}

/// Makes a disk call on a host by the running thread. Fails if the thread's process was killed.
fn asked_of<R>(
    host: HostId,
    ask: impl FnOnce(&mut DiskState, &mut Random) -> io::Result<R>,
) -> io::Result<R> {
    let mut is_alive = call();
    if is_alive && let Some(crash) = on(host, |disk, _| disk.count_call())? {
        with(|kernel| kernel.crash(host, crash));
    }
    while is_alive && on(host, |disk, _| disk.is_stopped)? {
        sleep(STOPPED_NS);
        is_alive = with(|kernel| !kernel.is_dead());
    }
    if !is_alive {
        return Err(io::Error::other("the process was killed"));
    }
    on(host, ask)?
}

/// Makes a file system call by the running thread.
fn asked<R>(ask: impl FnOnce(&mut DiskState, &mut Random) -> io::Result<R>) -> io::Result<R> {
    asked_of(with(|kernel| kernel.host()), ask)
}

/// A time shorter than this passes without a switch to another thread.
const SHORT_NS: u64 = 20_000;

/// Takes a random time of at most `longest_ns`.
fn take_time(longest_ns: u32) {
    let ns = with(|kernel| {
        let ns = kernel.up_to(longest_ns);
        let short_ns = if ns > SHORT_NS || kernel.is_dead() { 0 } else { ns };
        kernel.now_ns += short_ns;
        ns - short_ns
    });
    if ns > 0 {
        sleep(ns);
    }
}

/// Sets the faults of a host's disk.
pub fn set_disk_faults(host: HostId, faults: DiskFaults) {
    let _no_host = on(host, |disk, _| disk.faults = faults);
}

/// Returns the number of injected failures of a host's disk.
pub fn disk_failures(host: HostId) -> u64 {
    on(host, |disk, _| disk.failures).unwrap_or_default()
}

/// Returns the memory in bytes of the contents of a host's files, including unnamed ones.
#[cfg(test)]
pub(super) fn memory_of(host: HostId) -> usize {
    on(host, |disk, _| disk.inodes.iter().map(|inode| inode.data.len() + inode.durable.len()).sum())
        .unwrap_or_default()
}

/// Returns the number of calls to a host's disk so far.
pub fn disk_calls(host: HostId) -> u64 {
    on(host, |disk, _| disk.calls).unwrap_or_default()
}

/// Ends a process or the machine at the disk call that follows `calls` more, before that call takes effect.
pub fn crash_after_calls(host: HostId, crash: Option<(u64, Crash)>) {
    let _no_host = on(host, |disk, _| {
        disk.crash = crash.map(|(calls, crash)| (disk.calls.saturating_add(calls).saturating_add(1), crash));
    });
}

/// Sets what a power loss of a host leaves, instead of drawing it; `None` draws it again. Returns the choices made since the
/// last call.
pub fn set_power_loss(host: HostId, power_loss: Option<PowerLoss>) -> Option<PowerLoss> {
    on(host, |disk, _| std::mem::replace(&mut disk.power_loss, power_loss)).ok().flatten()
}

/// Flips `bits` bits at random positions in a file of a host that is without power or does not use its disk.
pub fn flip_bits(host: HostId, path: &Path, bits: u32) {
    let _no_host = on(host, |disk, random| {
        let Some(inode) = disk.names.files.get(path).and_then(|inode| disk.inodes.get_mut(*inode)) else {
            return;
        };
        for _ in 0..bits {
            let at = random.below(inode.data.len() as u32) as usize;
            let bit = 1 << random.below(8);
            for bytes in [&mut inode.data, &mut inode.durable] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bit;
                }
            }
        }
    });
}

/// Zeroes the last `bytes` written bytes of a file of a host without power, although they were synced.
pub(crate) fn lose_end(host: HostId, path: &Path, bytes: usize) {
    let _no_host = on(host, |disk, _| {
        let Some(inode) = disk.names.files.get(path).and_then(|inode| disk.inodes.get_mut(*inode)) else {
            return;
        };
        let end = inode.data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for data in [&mut inode.data, &mut inode.durable] {
            let lost = end.saturating_sub(bytes)..end.min(data.len());
            data.get_mut(lost).unwrap_or_default().fill(0);
        }
    });
}

/// Returns the files of a host with their lengths.
pub fn files_of(host: HostId) -> Vec<(PathBuf, u64)> {
    let files = on(host, |disk, _| {
        let files = disk.names.files.iter();
        files
            .map(|(path, inode)| (path.clone(), disk.inodes.get(*inode).map_or(0, |inode| inode.length)))
            .collect()
    });
    files.unwrap_or_default()
}

/// An open file of a simulated disk.
#[derive(Debug)]
pub struct SimFile {
    host: HostId,
    inode: usize,
    opening: u64,
    is_writable: bool,
}

impl SimFile {
    fn asked<R>(&self, ask: impl FnOnce(&mut DiskState, &mut Random) -> io::Result<R>) -> io::Result<R> {
        asked_of(self.host, ask)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    fn faults(&self) -> DiskFaults {
        on(self.host, |disk, _| disk.faults).unwrap_or_default()
    }

    fn release(&self) {
        let _no_host = on(self.host, |disk, _| {
            if let Some(inode) = disk.inodes.get_mut(self.inode)
                && inode.locked_by == Some(self.opening)
            {
                inode.locked_by = None;
            }
        });
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.release();
        let _no_host = on(self.host, |disk, _| {
            if let Some(inode) = disk.inodes.get_mut(self.inode) {
                inode.open = inode.open.saturating_sub(1);
            }
        });
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.asked(|disk, random| {
            if disk.fails(random, disk.faults.failed_reads_per_million) {
                return Err(io::Error::other("an error of the simulated disk"));
            }
            let inode = disk.inodes.get(self.inode).ok_or_else(not_found)?;
            let left = usize::try_from(inode.length.saturating_sub(offset)).unwrap_or(usize::MAX);
            let wanted = buffer.len().min(left);
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(inode.data.len());
            let written = inode.data.get(start..).unwrap_or_default();
            let written = written.get(..wanted).unwrap_or(written);
            let (with_data, zeros) = buffer.split_at_mut(written.len());
            with_data.copy_from_slice(written);
            zeros.get_mut(..wanted - written.len()).unwrap_or_default().fill(0);
            Ok(wanted)
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        take_time(self.faults().write_ns);
        self.asked(|disk, random| {
            let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
            let fails = disk.fails(random, disk.faults.failed_writes_per_million);
            // Part of the bytes is written.
            let part = if fails { random.below(bytes.len() as u32) as usize } else { bytes.len() };
            let bytes = bytes.get(..part).unwrap_or(bytes);
            let end = start.saturating_add(bytes.len());
            disk.check_room(self.inode, end as u64)?;
            let inode = disk.inodes.get_mut(self.inode).ok_or_else(not_found)?;
            if inode.data.len() < start {
                inode.data.resize(start, 0);
            }
            let (over, behind) = bytes.split_at(bytes.len().min(inode.data.len() - start));
            if let Some(to) = inode.data.get_mut(start..start + over.len()) {
                to.copy_from_slice(over);
            }
            inode.data.reserve(inode.reserve(inode.data.len(), end));
            inode.data.extend_from_slice(behind);
            if end as u64 > inode.length {
                (inode.length, inode.is_length_unsynced) = (end as u64, true);
            }
            inode.note(start..end);
            if fails { Err(io::Error::other("an error of the simulated disk")) } else { Ok(()) }
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        take_time(self.faults().sync_ns);
        self.asked(|disk, random| {
            let fails = disk.fails(random, disk.faults.failed_syncs_per_million);
            let inode = disk.inodes.get_mut(self.inode).ok_or_else(not_found)?;
            if fails {
                // The system drops what it could not write, and no later sync reports the failure.
                for written in std::mem::take(&mut inode.unsynced) {
                    if random.below(2) == 0 {
                        inode.harden(written);
                    }
                }
                return Err(io::Error::other("an error of the simulated disk"));
            }
            inode.sync();
            Ok(())
        })
    }

    fn length(&self) -> io::Result<u64> {
        self.asked(|disk, _| disk.inodes.get(self.inode).map(|inode| inode.length).ok_or_else(not_found))
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        self.asked(|disk, _| {
            disk.check_room(self.inode, bytes)?;
            let inode = disk.inodes.get_mut(self.inode).ok_or_else(not_found)?;
            inode.shorten(bytes);
            (inode.length, inode.is_length_unsynced) = (bytes, true);
            Ok(())
        })
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.check_writable()?;
        self.asked(|disk, _| {
            disk.check_room(self.inode, bytes)?;
            let inode = disk.inodes.get_mut(self.inode).ok_or_else(not_found)?;
            if bytes > inode.length {
                (inode.length, inode.is_length_unsynced) = (bytes, true);
            }
            Ok(())
        })
    }

    fn data_from(&self, offset: u64) -> Option<u64> {
        let written =
            self.asked(|disk, _| Ok(disk.inodes.get(self.inode).map_or(0, |inode| inode.data.len())));
        written.ok().filter(|written| offset < *written as u64).map(|_| offset)
    }

    fn try_lock(&self) -> Result<(), TryLockError> {
        let locked = self.asked(|disk, _| {
            let inode = disk.inodes.get_mut(self.inode).ok_or_else(not_found)?;
            Ok(*inode.locked_by.get_or_insert(self.opening) == self.opening)
        });
        match locked {
            Ok(true) => Ok(()),
            Ok(false) => Err(TryLockError::WouldBlock),
            Err(error) => Err(TryLockError::Error(error)),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        self.release();
        Ok(())
    }
}

impl Disk for Simulated {
    type File = SimFile;

    fn open(path: &Path, access: Access) -> io::Result<SimFile> {
        let host = with(|kernel| kernel.host());
        asked(|disk, _| {
            let there = disk.names.files.get(path).copied();
            if let Some(inode) = disk.names.folders.get(path).copied() {
                if access != Access::Read {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                return Ok(disk.opened(host, inode, false));
            }
            let inode = match (there, access) {
                (Some(_), Access::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
                (None, Access::Read | Access::Write) => return Err(not_found()),
                (Some(inode), _) => inode,
                (None, _) => {
                    if !path.parent().is_some_and(|folder| disk.names.has_folder(folder)) {
                        return Err(not_found());
                    }
                    disk.inodes.push(Inode::default());
                    let inode = disk.inodes.len() - 1;
                    disk.name(Naming::Link(path.to_owned(), inode));
                    inode
                }
            };
            if access == Access::Replace
                && let Some(inode) = disk.inodes.get_mut(inode)
            {
                inode.shorten(0);
                (inode.length, inode.is_length_unsynced) = (0, true);
            }
            Ok(disk.opened(host, inode, access != Access::Read))
        })
    }

    fn read(path: &Path) -> io::Result<Vec<u8>> {
        let file = Self::open(path, Access::Read)?;
        let mut bytes = vec![0; usize::try_from(file.length()?).unwrap_or_default()];
        let read = file.read_full_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn length(path: &Path) -> io::Result<u64> {
        asked(|disk, _| {
            let inode = disk.names.files.get(path).and_then(|inode| disk.inodes.get(*inode));
            inode.map(|inode| inode.length).ok_or_else(not_found)
        })
    }

    fn exists(path: &Path) -> bool {
        asked(|disk, _| Ok(disk.names.files.contains_key(path) || disk.names.has_folder(path)))
            .unwrap_or(false)
    }

    fn is_dir(path: &Path) -> bool {
        asked(|disk, _| Ok(disk.names.has_folder(path))).unwrap_or(false)
    }

    fn create_dir_all(path: &Path) -> io::Result<()> {
        asked(|disk, _| {
            let mut missing: Vec<_> =
                path.ancestors().take_while(|folder| !disk.names.has_folder(folder)).collect();
            if missing.iter().any(|folder| disk.names.files.contains_key(*folder)) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            while let Some(folder) = missing.pop() {
                disk.inodes.push(Inode::default());
                let inode = disk.inodes.len() - 1;
                disk.name(Naming::Folder(folder.to_owned(), inode));
            }
            Ok(())
        })
    }

    fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
        asked(|disk, random| {
            if !disk.names.has_folder(path) {
                return Err(not_found());
            }
            let files = disk.names.files.keys().map(PathBuf::as_path);
            let all = files.chain(disk.names.folders.keys().map(PathBuf::as_path));
            let mut inside: Vec<PathBuf> =
                all.filter(|entry| entry.parent() == Some(path)).map(Path::to_path_buf).collect();
            // In random order.
            for at in (1..inside.len()).rev() {
                inside.swap(at, random.below(at as u32 + 1) as usize);
            }
            Ok(inside)
        })
    }

    fn is_named(file: &SimFile, path: &Path) -> bool {
        asked(|disk, _| Ok(disk.names.inode(path) == Some(file.inode))).unwrap_or(false)
    }

    fn rename(from: &Path, to: &Path) -> io::Result<()> {
        asked(|disk, random| {
            let is_folder = disk.names.folders.contains_key(from);
            if !is_folder && !disk.names.files.contains_key(from)
                || !to.parent().is_some_and(|folder| disk.names.has_folder(folder))
            {
                return Err(not_found());
            }
            if from == to {
                return Ok(());
            }
            if is_folder && to.starts_with(from) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            match (is_folder, disk.names.files.contains_key(to), disk.names.folders.contains_key(to)) {
                (true, true, _) => return Err(io::ErrorKind::NotADirectory.into()),
                (false, _, true) => return Err(io::ErrorKind::IsADirectory.into()),
                (true, _, true) if !disk.names.is_empty_folder(to) => {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                _ => {}
            }
            disk.check_name(random)?;
            // Atomic: a reader finds the old file or the new one.
            disk.name(Naming::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn exchange(one: &Path, other: &Path) -> io::Result<()> {
        asked(|disk, _| {
            if disk.names.inode(one).is_none() || disk.names.inode(other).is_none() {
                return Err(not_found());
            }
            if one == other {
                return Ok(());
            }
            if one.starts_with(other) || other.starts_with(one) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            disk.name(Naming::Exchange(one.to_owned(), other.to_owned()));
            Ok(())
        })
    }

    fn remove_file(path: &Path) -> io::Result<()> {
        asked(|disk, random| {
            if disk.names.folders.contains_key(path) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            if !disk.names.files.contains_key(path) {
                return Err(not_found());
            }
            disk.check_name(random)?;
            disk.name(Naming::Unlink(path.to_owned()));
            Ok(())
        })
    }

    fn remove_dir_all(path: &Path) -> io::Result<()> {
        asked(|disk, _| {
            if !disk.names.folders.contains_key(path) {
                return Err(not_found());
            }
            disk.name(Naming::RemoveFolder(path.to_owned()));
            Ok(())
        })
    }

    fn sync_folder(path: &Path) -> io::Result<()> {
        let faults = on(with(|kernel| kernel.host()), |disk, _| disk.faults)?;
        take_time(faults.sync_ns);
        asked(|disk, random| {
            if disk.fails(random, disk.faults.failed_syncs_per_million) {
                return Err(io::Error::other("an error of the simulated disk"));
            }
            if !disk.names.has_folder(path) {
                return Err(not_found());
            }
            disk.sync_names(path);
            Ok(())
        })
    }
}
