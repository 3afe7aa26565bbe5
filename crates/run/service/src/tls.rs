//! The TLS files that sections of a configuration name.

use std::path::Path;

use tapeworks_runtime::config::{Reading, Section};
use tapeworks_runtime::transport::TlsFiles;

/// Reads the files of a server.
pub(crate) fn read(reading: &mut Reading<'_>, section: &mut Section<'_>, beside: &Path) -> Option<TlsFiles> {
    let files = TlsFiles::read(reading, section, beside);
    check(reading, section, "certificate", files.is_some());
    files
}

/// Reports files under `key` in a build without TLS.
pub(crate) fn check(reading: &mut Reading<'_>, section: &Section<'_>, key: &str, is_there: bool) {
    if cfg!(not(feature = "tls")) && is_there {
        section.wrong_at(reading, key, "this program was built without the feature 'tls'");
    }
}
