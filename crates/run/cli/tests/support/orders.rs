//! An exchange and a gateway before it, for clients of [`tapeworks_gateway::testing::Market`].

use std::net::SocketAddr;

use tapeworks_gateway::testing::NAMES;

use super::free_port;

/// The addresses of an exchange, and of the gateway's clients.
pub(crate) struct Addresses {
    real_time: SocketAddr,
    recovery: SocketAddr,
    ouch: SocketAddr,
    pub(crate) clients: SocketAddr,
}

impl Addresses {
    /// Four free addresses, by numbers from `first` on.
    pub(crate) fn free(first: u32) -> Self {
        let [real_time, recovery, ouch, clients] = [0, 1, 2, 3].map(|number| free_port(first + number));
        Self { real_time, recovery, ouch, clients }
    }
}

/// The configuration of an exchange that speaks both protocols, with further `settings`, and further tables at its `end`.
pub(crate) fn exchange_config(addresses: &Addresses, settings: &str, end: &str) -> String {
    let Addresses { real_time, recovery, ouch, .. } = addresses;
    format!(
        r#"
[[orders]]
name = "Exchange"
real_time = "{real_time}"
recovery = "{recovery}"
partitions = 2
throttle_per_second = 0
heartbeat = "500ms"
{settings}
[[orders.user]]
name = "TW01"
password = "password"
cancels_on_disconnect = false
[[orders.ouch_user]]
name = "TW01"
password = "password"
listen = "{ouch}"
cancels_on_disconnect = false
[[orders.symbol]]
name = "AAPL"
id = 1
reference_price = "102"
[[orders.symbol]]
name = "MSFT"
id = 2
partition = 2
reference_price = "102"
{end}"#
    )
}

/// The configuration of a gateway that reaches the exchange by `protocol`, `native` or `ouch`, with its `store`, and further `tables`.
pub(crate) fn gateway_config(addresses: &Addresses, protocol: &str, store: &str, tables: &str) -> String {
    let Addresses { real_time, recovery, ouch, clients } = addresses;
    let venue = match protocol {
        "native" => format!(
            "protocol = \"millennium\"\nreal_time = \"{real_time}\"\nrecovery = \"{recovery}\"\npartitions = 2\n\
             throttle_per_second = 0\nheartbeat = \"500ms\""
        ),
        _ => format!("protocol = \"ouch\"\naddress = \"{ouch}\""),
    };
    let names = NAMES.map(|name| {
        format!("[[client]]\nname = \"{name}\"\ncomp_id = \"{name}\"\nbegin_string = \"FIXT.1.1\"\n")
    });
    let names = names.concat();
    format!(
        r#"
listen = "{clients}"
[store]
folder = "{store}"
segment_mb = 1
[venue]
{venue}
user = "TW01"
password = "password"
first_reconnect = "50ms"
longest_reconnect = "200ms"
[[instrument]]
symbol = "AAPL"
id = 1
[[instrument]]
symbol = "MSFT"
id = 2
partition = 2
[client_defaults]
may_sell_short = true
{tables}
{names}"#
    )
}
