//! TLS certificates, keys and authorities from files.
//!
//! A server's files may be [replaced while it runs](crate::followed): new connections use the current files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::followed::Followed;
use crate::validity::Validity;

/// The reason why TLS cannot be used.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or contains no certificate or key.
    #[error("{}: no {what} can be read: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Its expected contents.
        what: &'static str,
        /// The error.
        source: rustls::pki_types::pem::Error,
    },
    /// A file contains no certificate.
    #[error("{}: holds no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The certificate and key do not match, or are of an unsupported kind.
    #[error("{} and {} cannot be used together: {source}", certificates.display(), key.display())]
    Unusable {
        /// The file of the certificates.
        certificates: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The error.
        source: rustls::Error,
    },
    /// A certificate cannot be used as an authority's.
    #[error("{}: holds a certificate that cannot be trusted: {source}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The error.
        source: rustls::Error,
    },
    /// The authorities of clients cannot be used.
    #[error("{}: cannot be used for clients: {source}", path.display())]
    Clients {
        /// The file.
        path: PathBuf,
        /// The error.
        source: VerifierBuilderError,
    },
    /// The server's name is neither a host name nor an address.
    #[error("'{name}' is not a name of a server")]
    Name {
        /// The name.
        name: String,
    },
}

/// Reads the certificates of a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Pem { path: path.to_owned(), what: "certificate", source })?;
    if all.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(all) }
}

/// Returns the validity of one's own certificate, the first of its chain.
fn validity_of(chain: &[CertificateDer<'_>]) -> Option<Validity> {
    Validity::of_certificate(chain.first()?)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::Pem {
        path: path.to_owned(),
        what: "private key",
        source,
    })
}

/// Reads the trusted authorities of a PEM file.
fn authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|source| TlsError::Authority { path: path.to_owned(), source })?;
    }
    Ok(Arc::new(roots))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A configuration and the validity of its own certificate.
type Valid<C> = (Arc<C>, Option<Validity>);

/// Builds a server's configuration.
fn server_config(
    chain: &Path,
    key: &Path,
    client_authorities: Option<&Path>,
) -> Result<Valid<ServerConfig>, TlsError> {
    let unusable =
        |source| TlsError::Unusable { certificates: chain.to_owned(), key: key.to_owned(), source };
    let (certificates, secret) = (certificates(chain)?, private_key(key)?);
    let validity = validity_of(&certificates);
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider()).build();
            builder.with_client_cert_verifier(
                verifier.map_err(|source| TlsError::Clients { path: path.to_owned(), source })?,
            )
        }
    };
    Ok((Arc::new(builder.with_single_cert(certificates, secret).map_err(unusable)?), validity))
}

/// Returns a server configuration for TLS 1.2 and 1.3 that follows its files.
pub(crate) fn server(
    chain: PathBuf,
    key: PathBuf,
    client_authorities: Option<PathBuf>,
) -> Result<Arc<Followed<Arc<ServerConfig>>>, TlsError> {
    let all = [chain.clone(), key.clone()].into_iter().chain(client_authorities.clone()).collect();
    let read = move || server_config(&chain, &key, client_authorities.as_deref());
    Ok(Arc::new(Followed::expiring(all, read)?))
}

/// A client configuration that follows its files.
pub(crate) type FollowedClient = Arc<Followed<Arc<ClientConfig>>>;

/// Returns a TLS 1.2 and 1.3 client that follows its files. `servers` is a PEM file of authorities, one of which must have signed
/// the certificate of `name`, a server's name or address. `identity` is the client's certificate and key, if any.
pub(crate) fn client(
    servers: &Path,
    identity: Option<(&Path, &Path)>,
    name: &str,
) -> Result<(FollowedClient, ServerName<'static>), TlsError> {
    let server =
        ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name { name: name.to_owned() })?;
    let servers = servers.to_owned();
    let identity = identity.map(|(chain, key)| (chain.to_owned(), key.to_owned()));
    let own = identity.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]);
    let all = std::iter::once(servers.clone()).chain(own).collect();
    let read = move || {
        let identity = identity.as_ref().map(|(chain, key)| (chain.as_path(), key.as_path()));
        client_config(&servers, identity)
    };
    Ok((Arc::new(Followed::expiring(all, read)?), server))
}

/// Builds a client's configuration.
fn client_config(servers: &Path, identity: Option<(&Path, &Path)>) -> Result<Valid<ClientConfig>, TlsError> {
    let config = |source| TlsError::Authority { path: servers.to_owned(), source };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(config)?
        .with_root_certificates(authorities(servers)?);
    let mut validity = None;
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let unusable =
                |source| TlsError::Unusable { certificates: chain.to_owned(), key: key.to_owned(), source };
            let certificates = certificates(chain)?;
            validity = validity_of(&certificates);
            builder.with_client_auth_cert(certificates, private_key(key)?).map_err(unusable)?
        }
    };
    Ok((Arc::new(config), validity))
}
