//! What a plant of a pair remembers across restarts: the epoch and its role.
//!
//! Stored as a two-line file `pair` in the journal's folder. It is replaced atomically, and is on disk before the plant acts on it.

use std::io;
use std::path::Path;

use tapeworks_disk::{Access, Disk, DiskFile as _};

use super::PairError;

/// The remembered state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Remembered {
    /// Number of takeovers so far.
    pub(super) epoch: u64,
    /// Whether the plant's last role was primary.
    pub(super) is_primary: bool,
}

const NAME: &str = "pair";

fn parse(text: &str) -> Option<Remembered> {
    let mut lines = text.lines();
    let epoch = lines.next()?.strip_prefix("epoch ")?.parse().ok()?;
    let is_primary = match lines.next()? {
        "role primary" => true,
        "role standby" => false,
        _ => return None,
    };
    lines.next().is_none().then_some(Remembered { epoch, is_primary })
}

/// Reads the file; returns `None` if there is none.
pub(super) fn read<D: Disk>(folder: &Path) -> Result<Option<Remembered>, PairError> {
    let path = folder.join(NAME);
    let bytes = match D::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PairError::State { path, source }),
    };
    match std::str::from_utf8(&bytes).ok().and_then(parse) {
        Some(remembered) => Ok(Some(remembered)),
        None => {
            let source = io::Error::new(io::ErrorKind::InvalidData, "not an epoch and a role");
            Err(PairError::State { path, source })
        }
    }
}

/// Writes the file and waits until it is on disk. Does nothing if the file has the same contents, which needs no disk space.
pub(super) fn write<D: Disk>(folder: &Path, remembered: Remembered) -> Result<(), PairError> {
    if read::<D>(folder).is_ok_and(|written| written == Some(remembered)) {
        return Ok(());
    }
    let (path, new) = (folder.join(NAME), folder.join("pair.new"));
    let role = if remembered.is_primary { "primary" } else { "standby" };
    let text = format!("epoch {}\nrole {role}\n", remembered.epoch);
    let written = D::create_dir_all(folder)
        .and_then(|()| D::open(&new, Access::Replace))
        .and_then(|file| {
            file.write_all_at(text.as_bytes(), 0)?;
            file.sync_all()
        })
        .and_then(|()| D::rename(&new, &path))
        .and_then(|()| D::sync_folder(folder));
    written.map_err(|source| PairError::State { path, source })
}

#[cfg(test)]
mod tests {
    use tapeworks_disk::System;

    use super::*;

    #[test]
    fn a_plant_reads_what_it_wrote_and_refuses_what_it_did_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read::<System>(folder.path()).unwrap(), None);
        for remembered in [Remembered { epoch: 7, is_primary: true }, Remembered::default()] {
            write::<System>(folder.path(), remembered).unwrap();
            assert_eq!(read::<System>(folder.path()).unwrap(), Some(remembered));
        }
        // Even a full disk can hold the contents that are already there.
        std::fs::create_dir(folder.path().join("pair.new")).unwrap();
        write::<System>(folder.path(), Remembered::default()).unwrap();
        assert!(write::<System>(folder.path(), Remembered { epoch: 8, is_primary: false }).is_err());
        for wrong in
            ["", "epoch 7\n", "epoch x\nrole primary\n", "epoch 7\nrole king\n", "epoch 7\nrole primary\n\n"]
        {
            std::fs::write(folder.path().join(NAME), wrong).unwrap();
            let error = read::<System>(folder.path()).unwrap_err().to_string();
            assert!(error.contains("not an epoch and a role"), "{wrong:?}: {error}");
        }
    }
}
