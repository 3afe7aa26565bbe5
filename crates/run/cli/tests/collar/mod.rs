//! A gateway whose client has a price collar, and its exchange.

use std::net::SocketAddr;

use crate::support::Folder;

pub(crate) const NO_PRICE: &str = "No top of book to check the order against";

/// The configurations of the exchange and of the gateway, with one instrument; `more` ends the gateway's.
pub(crate) fn configs(
    folder: &Folder,
    symbol: &str,
    [real_time, recovery, listen]: [SocketAddr; 3],
    more: &str,
) -> [String; 2] {
    let exchange = format!(
        r#"
[[orders]]
name = "Exchange"
real_time = "{real_time}"
recovery = "{recovery}"
[[orders.user]]
name = "TW01"
password = "password"
[[orders.symbol]]
name = "{symbol}"
id = 1
"#
    );
    let gateway = format!(
        r#"
listen = "{listen}"
[store]
folder = "{}"
segment_mb = 1
[venue]
protocol = "millennium"
real_time = "{real_time}"
recovery = "{recovery}"
user = "TW01"
password = "password"
[[instrument]]
symbol = "{symbol}"
id = 1
[[client]]
name = "alpha"
comp_id = "ALPHA"
collar_basis_points = 100
{more}"#,
        folder.path("gateway-store"),
    );
    [("orders.toml", exchange), ("gateway.toml", gateway)]
        .map(|(name, text)| folder.write(name, text.as_bytes()))
}
