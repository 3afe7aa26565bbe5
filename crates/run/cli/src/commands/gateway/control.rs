//! `tapeworks gateway halt`, `resume`, `sessions` and `orders`: control a running gateway, through its control socket or its page.

use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::de::DeserializeOwned;
use tapeworks_gateway::config::Config;
use tapeworks_gateway::status::{OrderStatus, Orders, Status};
use tapeworks_market::price::Price;

use super::run::{load, summary, wrong};
use crate::commands::subscribe::resolve;
use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, thousands};
use crate::tls::Tls;
use crate::{http, interrupt, output, terminal};

/// Where the gateway is.
#[derive(Debug, Args)]
struct Page {
    /// Address of the gateway's page, its control socket, or its configuration. A configuration names both,
    /// and the socket is tried first.
    #[arg(value_name = "ADDRESS|SOCKET|CONFIG", default_value = "127.0.0.1:8090")]
    place: String,
    /// Token of the page, if it requires one.
    #[arg(long, env = "TAPEWORKS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    tls: Tls,
}

/// Where a gateway accepts commands.
enum Place {
    /// The control socket.
    Socket(PathBuf),
    /// The page, with its token.
    Page(SocketAddr, Option<String>),
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| there.file_type().is_socket())
}

impl Page {
    /// Returns where the gateway accepts commands.
    fn find(&self) -> Result<Place> {
        let path = Path::new(&self.place);
        if is_socket(path) {
            return Ok(Place::Socket(path.to_owned()));
        }
        if !path.is_file() {
            return Ok(Place::Page(resolve(&self.place)?, self.token.clone()));
        }
        // Read nothing else: the operator may lack access to the secrets that the rest of the configuration names.
        let control = Config::control_of(path).map_err(wrong)?;
        if let Some(socket) = control.filter(|socket| is_socket(socket)) {
            return Ok(Place::Socket(socket));
        }
        let web = load(path)?.web;
        let web = web.ok_or_else(|| {
            Failure::Usage(format!(
                "{}: its control socket is not there, and it has no page: [web] is missing",
                self.place
            ))
        })?;
        if web.tls.is_some() && !self.tls.is_wanted() {
            let why = format!("{}: its page is reached by TLS: --tls-authorities FILE", self.place);
            return Err(Failure::Usage(why));
        }
        let token = self.token.clone().or_else(|| web.token.map(|token| token.get().to_string()));
        Ok(Place::Page(web.address, token))
    }

    /// Sends a request, and returns the body of the answer and the place.
    fn request(&self, method: &str, target: &str) -> Result<(String, String)> {
        let failed =
            |error| if interrupt::is_requested() { Failure::Stopped } else { Failure::Failed(error) };
        match self.find()? {
            Place::Socket(socket) => {
                let body = http::request_of_socket(method, &socket, target).map_err(failed)?;
                Ok((body, socket.display().to_string()))
            }
            Place::Page(address, token) => {
                let place = address.to_string();
                let connector = self.tls.connector(&place)?;
                let token = token.as_deref();
                let body = http::request(&connector, method, address, target, token).map_err(failed)?;
                Ok((body, place))
            }
        }
    }

    /// Requests a value. Returns the JSON text of the answer, and the parsed value.
    fn get<T: DeserializeOwned>(&self, target: &str) -> Result<(String, T)> {
        let (body, place) = self.request("GET", target)?;
        let value = serde_json::from_str(&body)
            .map_err(|error| Failure::Failed(format!("{place}: not a gateway: {error}")))?;
        Ok((body, value))
    }
}

/// Turn on the kill switch of a running gateway, so that only cancels pass.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks gateway halt gateway.toml
  tapeworks gateway halt gateway.toml --client alpha --cancel
  tapeworks gateway halt 127.0.0.1:8091 --token SECRET

The halt survives a restart of the gateway. `tapeworks gateway resume` ends it.")]
pub(super) struct Halt {
    #[command(flatten)]
    page: Page,
    /// Halt only this client.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Also cancel the open orders.
    #[arg(long)]
    cancel: bool,
}

/// Turn off the kill switch of a running gateway.
///
/// A client that was halted by name must be resumed by name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks gateway resume
  tapeworks gateway resume --client alpha")]
pub(super) struct Resume {
    #[command(flatten)]
    page: Page,
    /// Resume only this client.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
}

/// Show the sessions of a running gateway: sequence numbers, waiting bytes, open orders.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks gateway sessions
  tapeworks gateway sessions 127.0.0.1:8091 --json

Exit code 3: orders do not pass; standard error states why.")]
pub(super) struct Sessions {
    #[command(flatten)]
    page: Page,
    /// Print the whole status as JSON.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Show the open orders of a running gateway.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks gateway orders
  tapeworks gateway orders --all --json

Exit code 3: more orders exist than are shown.")]
pub(super) struct ListOrders {
    #[command(flatten)]
    page: Page,
    /// Include ended orders that the gateway still remembers.
    #[arg(long)]
    all: bool,
    /// Show at most this many orders, up to 10,000.
    ///
    /// The limit exists because the gateway builds the list between two messages.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    most: u64,
    /// Print JSON.
    #[arg(short = 'J', long)]
    json: bool,
}

pub(super) fn halt(arguments: &Halt) -> Result {
    let mut target = "/halt".to_owned();
    let mut sign = '?';
    if let Some(client) = &arguments.client {
        target += &format!("?client={}", http::escaped(client));
        sign = '&';
    }
    if arguments.cancel {
        target += &format!("{sign}cancel=1");
    }
    let (_, place) = arguments.page.request("POST", &target)?;
    let orders = if arguments.cancel {
        "; the open orders are cancelled, if the venue is away as soon as it is back"
    } else {
        ""
    };
    output::print(&format!("{place}: {} halted{orders}\n", of(arguments.client.as_deref())))?;
    Ok(Ending::Complete)
}

pub(super) fn resume(arguments: &Resume) -> Result {
    let client = arguments.client.as_deref();
    let query = client.map(|client| format!("?client={}", http::escaped(client))).unwrap_or_default();
    let (_, place) = arguments.page.request("POST", &format!("/resume{query}"))?;
    output::print(&format!("{place}: {} resumed\n", of(client)))?;
    Ok(Ending::Complete)
}

fn of(client: Option<&str>) -> String {
    client.map_or_else(|| "all clients are".to_owned(), |client| format!("{client} is"))
}

/// The status, with the fields that only the page adds.
#[derive(serde::Deserialize)]
struct Shown {
    is_ready: bool,
    reasons: Vec<String>,
    #[serde(flatten)]
    status: Status,
}

pub(super) fn sessions(arguments: &Sessions) -> Result {
    let (body, shown) = arguments.page.get::<Shown>("/status.json")?;
    if arguments.json {
        output::print(&body)?;
    } else {
        output::print(&summary(&shown.status))?;
    }
    shown.reasons.iter().for_each(|reason| terminal::complain(reason));
    Ok(if shown.is_ready { Ending::Complete } else { Ending::WithProblems })
}

pub(super) fn orders(arguments: &ListOrders) -> Result {
    let all = if arguments.all { "&all=1" } else { "" };
    let target = format!("/orders.json?most={}{all}", arguments.most);
    let (body, found) = arguments.page.get::<Orders>(&target)?;
    if arguments.json {
        output::print(&body)?;
    } else {
        output::print(&table(&found.orders))?;
    }
    let shown = found.orders.len() as u64;
    if shown < found.total {
        terminal::complain(&format!("{} of {} orders", thousands(shown), thousands(found.total)));
        return Ok(Ending::WithProblems);
    }
    Ok(Ending::Complete)
}

fn table(orders: &[OrderStatus]) -> String {
    let mut table = Table::new(&[
        ("client", Align::Left),
        ("id", Align::Left),
        ("venue's id", Align::Left),
        ("symbol", Align::Left),
        ("side", Align::Left),
        ("status", Align::Left),
        ("quantity", Align::Right),
        ("leaves", Align::Right),
        ("filled", Align::Right),
        ("price", Align::Right),
        ("average", Align::Right),
    ]);
    // Ids come from outside and are untrusted.
    let plain =
        |text: &str| text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    let price = |price_e8: i64| match price_e8.checked_mul(10) {
        _ if price_e8 == 0 => "-".to_owned(),
        Some(price_e9) => Price::from_e9(price_e9).map_or_else(|| "?".to_owned(), |price| price.to_string()),
        None => "?".to_owned(),
    };
    for order in orders {
        table.row([
            order.client.clone(),
            plain(&order.id),
            plain(&order.order_id),
            order.symbol.clone(),
            order.side.clone(),
            order.status.clone(),
            thousands(u64::from(order.quantity)),
            thousands(u64::from(order.leaves)),
            thousands(u64::from(order.filled)),
            price(order.price_e8),
            price(order.average_e8),
        ]);
    }
    table.render(terminal::width(), terminal::paint())
}
