//! TLS: certificates, keys and authorities, from files.
//!
//! A server's files may be [replaced while it runs](crate::followed): a connection that comes has what is there then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::followed::Followed;
use crate::validity::Validity;

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
    /// A certificate cannot be an authority's.
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
    /// A server is called by what is neither a name nor an address.
    #[error("'{name}' is not a name of a server")]
    Name {
        /// The name.
        name: String,
    },
}

/// The certificates of a PEM file; one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Pem { path: path.to_owned(), what: "certificate", source })?;
    if all.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(all) }
}

/// How long one's own certificate is valid, which is the first of its chain.
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

/// The authorities of a PEM file, whose certificates are trusted.
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

/// A configuration, and how long the certificate that it shows is valid.
type Valid<C> = (Arc<C>, Option<Validity>);

/// What a server shows, and whom it trusts.
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

/// A server by TLS 1.2 and 1.3, which follows its files.
pub(crate) fn server(
    chain: PathBuf,
    key: PathBuf,
    client_authorities: Option<PathBuf>,
) -> Result<Arc<Followed<Arc<ServerConfig>>>, TlsError> {
    let all = [chain.clone(), key.clone()].into_iter().chain(client_authorities.clone()).collect();
    let read = move || server_config(&chain, &key, client_authorities.as_deref());
    Ok(Arc::new(Followed::expiring(all, read)?))
}

/// A client's configuration, which follows its files.
pub(crate) type FollowedClient = Arc<Followed<Arc<ClientConfig>>>;

/// A client by TLS 1.2 and 1.3, which follows its files: a PEM file of authorities one of which must have signed the certificate of the server,
/// whose name or address is `name`; and those of the client's own certificate and key, if it has one.
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

/// Whom a client trusts, and what it shows.
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
