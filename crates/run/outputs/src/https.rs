//! HTTPS to servers whose certificate authorities are listed in a file.
#![cfg_attr(
    not(test),
    expect(clippy::disallowed_methods, reason = "the clients of HTTP use the system themselves")
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// The certificate authorities of a server cannot be used.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{}: {reason}", path.display())]
pub struct NoAuthorities {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub reason: String,
}

/// Returns a TLS configuration that trusts the certificate authorities in a PEM file.
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
