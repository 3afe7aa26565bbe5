//! HTTP by TLS with servers whose authorities a file names.
#![cfg_attr(
    not(test),
    expect(clippy::disallowed_methods, reason = "the clients of HTTP use the system themselves")
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// The authorities of a server cannot be used.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{}: {reason}", path.display())]
pub struct NoAuthorities {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// TLS with a server whose certificate one of the authorities in a PEM file has signed.
///
/// # Errors
/// [`NoAuthorities`].
pub fn trusting(authorities: &Path) -> Result<TlsConfig, NoAuthorities> {
    let failed = |error: &dyn std::fmt::Display| NoAuthorities {
        path: authorities.to_owned(),
        reason: error.to_string(),
    };
    let text = std::fs::read(authorities).map_err(|error| failed(&error))?;
    let mut all = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| failed(&error))? {
            all.push(certificate);
        }
    }
    if all.is_empty() {
        return Err(failed(&"holds no certificate"));
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&all))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
