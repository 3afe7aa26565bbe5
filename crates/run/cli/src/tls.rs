//! The flags of commands that may connect over TLS.

use std::path::PathBuf;

use clap::Args;
use tapeworks_runtime::transport::{ClientTlsFiles, Connector};

use crate::ending::{Failure, Result};

/// How to connect.
#[derive(Clone, Debug, Args)]
pub(crate) struct Tls {
    /// Connect over TLS; trust the certificate authorities in this PEM file.
    #[arg(long, value_name = "FILE")]
    tls_authorities: Option<PathBuf>,
    /// Name in the server's certificate [default: the host in the address].
    #[arg(long, value_name = "NAME", requires = "tls_authorities")]
    tls_name: Option<String>,
    /// Client certificate (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["tls_authorities", "tls_key"])]
    tls_certificate: Option<PathBuf>,
    /// Key of the client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

impl Tls {
    /// Returns whether TLS is requested.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.tls_authorities.is_some()
    }

    /// Returns the connector for a server at `HOST:PORT`.
    pub(crate) fn connector(&self, address: &str) -> Result<Connector> {
        let Some(authorities) = self.tls_authorities.clone() else { return Ok(Connector::Plain) };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = self.tls_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        let identity = self.tls_certificate.clone().zip(self.tls_key.clone());
        // Without the feature the flags are invalid, whatever the files contain.
        let failure = if cfg!(feature = "tls") { Failure::Failed } else { Failure::Usage };
        let files = ClientTlsFiles { authorities, identity };
        files.connector(name).map_err(|error| failure(error.to_string()))
    }
}
