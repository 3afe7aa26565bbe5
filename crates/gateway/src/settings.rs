//! What a gateway is set to, without addresses and files.

use std::sync::Arc;

use tapeworks_runtime::secrets::Secret;
use tapeworks_session::fix;
use tapeworks_translate as translate;

/// The versions of FIX that clients may speak, by their BeginString (8).
pub(crate) const VERSIONS: [&str; 3] = ["FIX.4.2", "FIX.4.4", "FIXT.1.1"];

/// A FIX client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Its name: unique, and the same for as long as the store knows it.
    pub name: String,
    /// Its session.
    pub session: fix::Settings,
    /// Its password, where it may change while the gateway runs: each connection is checked against what it is then. `None`: the session's.
    pub password: Option<Secret>,
    /// The messages that it may send.
    pub dictionary: Arc<fix::Dictionary>,
    /// Its version, limits, and ignored tags.
    pub translate: translate::ClientSettings,
    /// Its open orders are cancelled when its session ends.
    pub cancels_on_disconnect: bool,
    /// It sends no orders, and gets a copy of every execution report of all clients.
    pub is_drop_copy: bool,
    /// Addresses that it may connect from; none: any.
    pub addresses: Vec<std::net::IpAddr>,
    /// SHA-256 of the certificate that it must show; `None`: any that the gateway trusts.
    pub certificate: Option<[u8; 32]>,
    /// How many bytes may wait for it before its connection is ended. What it has not got, it requests when it comes back.
    pub output_bytes: usize,
}

impl ClientSettings {
    /// Settings with the defaults: no limits, any address, 8 MiB.
    #[must_use]
    pub fn new(name: &str, session: fix::Settings, dictionary: Arc<fix::Dictionary>) -> Self {
        let version = match session.begin_string.as_str() {
            "FIX.4.2" => translate::FixVersion::Fix42,
            "FIXT.1.1" => translate::FixVersion::Fix50Sp2,
            _ => translate::FixVersion::Fix44,
        };
        Self {
            name: name.to_owned(),
            session,
            password: None,
            dictionary,
            translate: translate::ClientSettings { version, ..translate::ClientSettings::default() },
            cancels_on_disconnect: false,
            is_drop_copy: false,
            addresses: Vec::new(),
            certificate: None,
            output_bytes: 8 << 20,
        }
    }
}
