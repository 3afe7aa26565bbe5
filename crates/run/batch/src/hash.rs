//! Identifies a file's contents by size, time of last change, and SHA-256.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Bytes hashed between two checks for a stop request.
const HASHED_BYTES: usize = 1 << 20;

/// Returns a file's size and the time of its last change.
pub(super) fn stamp(path: &Path) -> io::Result<(u64, u64)> {
    let there = fs::metadata(path)?;
    let since = there.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok((there.len(), u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}

/// Returns the SHA-256 of a file; `None` if `observe` stops it.
pub(super) fn hash(
    path: &Path,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; HASHED_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(Some(hex::encode(hasher.finalize())));
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        if observe(0).is_break() {
            return Ok(None);
        }
    }
}

/// Returns the SHA-256 of bytes.
pub(super) fn hash_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
