//! Certificates of tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sha2::{Digest as _, Sha256};
use tapeworks_runtime::transport::Connector;

/// An authority, and what it has signed, in files.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("authority.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Signs a certificate for this machine. Returns its SHA-256.
    pub(crate) fn sign(&self, name: &str) -> String {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        hex::encode(Sha256::digest(certificate.der()))
    }

    /// A client that trusts this authority, and shows a certificate of one.
    pub(crate) fn connector(&self, shown: Option<(&Self, &str)>) -> Connector {
        let files =
            shown.map(|(of, name)| (of.path(&format!("{name}.pem")), of.path(&format!("{name}.key"))));
        let identity = files.as_ref().map(|(chain, key)| (chain.as_path(), key.as_path()));
        Connector::tls(&self.path("authority.pem"), identity, "127.0.0.1").unwrap()
    }
}
