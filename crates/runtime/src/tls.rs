//! TLS for clients: the certificate and its key, from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why there is no TLS.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or holds no certificate or key.
    #[error("{}: no {what} can be read: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Its expected contents.
        what: &'static str,
        /// The error.
        source: rustls::pki_types::pem::Error,
    },
    /// A file holds no certificate.
    #[error("{}: holds no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not match, or are of an unsupported kind.
    #[error("{} and {} cannot be used together: {source}", certificates.display(), key.display())]
    Unusable {
        /// The file of the certificates.
        certificates: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The error.
        source: rustls::Error,
    },
}

/// The files of a server for TLS 1.2 and 1.3: PEM files of its certificate chain, its own first, and of its private key.
///
/// # Errors
/// [`TlsError`].
pub fn config(certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = |path: &Path, what, source| TlsError::Pem { path: path.to_owned(), what, source };
    let chain = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| pem(certificates, "certificate", source))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: certificates.to_owned() });
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|source| pem(key, "private key", source))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|source| TlsError::Unusable {
            certificates: certificates.to_owned(),
            key: key.to_owned(),
            source,
        })?;
    Ok(Arc::new(config))
}
