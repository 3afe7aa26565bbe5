//! Settings of a gateway that need no addresses or files.

use std::sync::Arc;

use tapeworks_order_session::fix;
use tapeworks_runtime::secrets::Secret;
use tapeworks_translate as translate;

/// The FIX versions that clients may use, by their BeginString (8).
pub(crate) const VERSIONS: [&str; 3] = ["FIX.4.2", "FIX.4.4", "FIXT.1.1"];

/// The settings of a FIX client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Its name: unique, and unchanged for as long as the store has entries of the client.
    pub name: String,
    /// The settings of its session.
    pub session: fix::Settings,
    /// Its password, if it may change while the gateway runs: each connection is checked against the current value. `None`: the
    /// session's.
    pub password: Option<Secret>,
    /// The messages that it may send.
    pub dictionary: Arc<fix::Dictionary>,
    /// Its FIX version, limits, and ignored tags.
    pub translate: translate::ClientSettings,
    /// Whether its open orders are cancelled when its session ends.
    pub cancels_on_disconnect: bool,
    /// Whether it is a drop copy session: it sends no orders, and receives a copy of every execution report of all clients.
    pub is_drop_copy: bool,
    /// Addresses from which it may connect; empty: any.
    pub addresses: Vec<std::net::IpAddr>,
    /// SHA-256 of the certificate that it must present; `None`: any that the gateway trusts.
    pub certificate: Option<[u8; 32]>,
    /// Bytes that may wait for it before the gateway ends its connection. It requests the messages that it missed when it
    /// reconnects.
    pub output_bytes: usize,
}

impl ClientSettings {
    /// Creates settings with the defaults: no limits, any address, 8 MiB.
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
