//! Sends orders at a rate, and measures how long the answers take.
//!
//! Each order is timed from when it was due, not from when it was sent, so a slow order's delay counts for those waiting for it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use serde_json::json;
use tapeworks_fix_wire::{field, message_type};
use tapeworks_gateway::client::FixClient;
use tapeworks_gateway::order_line::{Message, OrderBook, OrderLine};

use super::show;
use crate::ending::{Ending, Failure, Result};
use crate::table::{counted, thousands};
use crate::{interrupt, output, values};

#[derive(Debug, Args)]
pub(super) struct Load {
    /// Send this many orders per second, up to 1 million.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) rate: Option<u64>,
    /// Send orders for this long: seconds, or 500ms, 10s, 1m, 1h.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "10s", requires = "rate")]
    seconds: Duration,
    /// Order to send repeatedly. It has no id, because each copy gets a new one.
    #[arg(long, value_name = "ORDER", default_value = "new AAPL buy 1 @100 ioc", requires = "rate")]
    order: String,
}

/// How long before a request is due a sleeping thread wakes up.
const WAKE_UP: Duration = Duration::from_micros(100);

/// How long answers may take after the last order.
const PATIENCE: Duration = Duration::from_secs(5);

/// Creates requests, and receives the answers.
pub(crate) trait Orders {
    /// Returns the next request. `now_ns` is the time of day in UTC nanoseconds.
    ///
    /// # Errors
    /// Why there is no request, in one line.
    fn next(&mut self, now_ns: u64) -> std::result::Result<Message, String>;

    /// Handles a message of the gateway.
    fn take(&mut self, message: &[u8]);
}

/// Sends copies of one order.
struct Again {
    book: OrderBook,
    order: OrderLine,
}

impl Orders for Again {
    fn next(&mut self, now_ns: u64) -> std::result::Result<Message, String> {
        self.book.message(&self.order, now_ns)
    }

    fn take(&mut self, _: &[u8]) {}
}

/// The result of a load test.
pub(crate) struct Figures {
    pub(crate) sent: u64,
    pub(crate) rejected: u64,
    /// Requests without an answer some seconds after the last request.
    pub(crate) unanswered: u64,
    /// From the first request to the last.
    pub(crate) passed: Duration,
    /// From the time when a request was due to its first answer, in nanoseconds.
    pub(crate) times: Histogram<u64>,
}

/// Returns an empty histogram of times in nanoseconds.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    // The bounds are valid: up to ten minutes with three significant digits.
    Histogram::new_with_bounds(1, 600_000_000_000, 3).map_err(|error| Failure::Failed(error.to_string()))
}

/// Sends requests at a rate for a given time, and waits for the last answers.
pub(crate) fn drive(
    client: &mut FixClient,
    rate: u64,
    time: Duration,
    orders: &mut impl Orders,
) -> Result<Figures> {
    let (mut due, mut times) = (HashMap::new(), histogram()?);
    let (began, mut sent, mut rejected) = (Instant::now(), 0u64, 0u64);
    let total = (time.as_secs_f64() * rate as f64) as u64;
    let mut last = began;
    while (sent < total || !due.is_empty()) && !interrupt::is_requested() {
        let next = began + Duration::from_secs_f64(sent as f64 / rate as f64);
        let now = Instant::now();
        if sent < total && now >= next {
            let (kind, fields) = orders.next(client.now_ns()).map_err(Failure::Failed)?;
            let id = fields.first().map(|(_, id)| id.clone()).unwrap_or_default();
            client.send(kind, &fields)?;
            due.insert(id, next);
            (sent, last) = (sent + 1, now);
            // Answers are read between late orders.
            client.turn(Duration::ZERO)?;
        } else if sent < total {
            let left = next.saturating_duration_since(now).min(Duration::from_millis(1));
            if left <= WAKE_UP {
                client.turn(Duration::ZERO)?;
            } else if due.is_empty() {
                // Polling sockets has a resolution of milliseconds, which would delay the next request.
                std::thread::sleep(left - WAKE_UP);
                client.turn(Duration::ZERO)?;
            } else {
                client.turn(left)?;
            }
        } else if now.saturating_duration_since(last) > PATIENCE {
            break;
        } else {
            client.turn(Duration::from_millis(1))?;
        }
        while let Some(message) = client.next_message() {
            if let Some(next) = first_answer(&message, &mut due) {
                let nanoseconds = Instant::now().saturating_duration_since(next).as_nanos();
                times.saturating_record(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
                rejected += u64::from(show::is_reject(&message));
            }
            orders.take(&message);
        }
    }
    let passed = last.saturating_duration_since(began);
    Ok(Figures { sent, rejected, unanswered: due.len() as u64, passed, times })
}

/// Formats the percentiles of times, in microseconds.
pub(crate) fn percentiles(times: &Histogram<u64>) -> String {
    let mut text = String::new();
    for (name, part) in [("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999)] {
        let _infallible = write!(text, "{name} {} ", thousands(times.value_at_quantile(part) / 1_000));
    }
    let _infallible = write!(text, "longest {}", thousands(times.max() / 1_000));
    text
}

pub(super) fn run(load: &Load, comp_id: &str, client: &mut FixClient, is_json: bool) -> Result {
    let Some(rate) = load.rate else { return Err(Failure::Usage("--rate is missing".to_owned())) };
    let order = match OrderLine::parse(&load.order) {
        Some(Ok(order @ OrderLine::New { id: None, .. })) => order,
        Some(Err(problem)) => return Err(Failure::Usage(format!("--order: {problem}"))),
        _ => return Err(Failure::Usage("--order: a new order without an id".to_owned())),
    };
    let prefix = format!("{comp_id}-{:x}-", client.now_ns() / 1_000_000 % 0xffff_ffff);
    let mut orders = Again { book: OrderBook::new(&prefix), order };
    let Figures { sent, rejected, unanswered, passed, times } =
        drive(client, rate, load.seconds, &mut orders)?;
    let passed = passed.as_secs_f64();
    let quantile = |part: f64| times.value_at_quantile(part);
    let achieved = if passed > 0.0 { sent as f64 / passed } else { 0.0 };
    output::print(&if is_json {
        let answer = json!({
            "sent": sent, "rejected": rejected, "unanswered": unanswered, "per_second": achieved,
            "p50_ns": quantile(0.5), "p90_ns": quantile(0.9), "p99_ns": quantile(0.99),
            "p99_9_ns": quantile(0.999), "longest_ns": times.max(),
        });
        format!("{answer}\n")
    } else {
        format!(
            "{} in {passed:.1} s: {} a second, {} rejected, {} unanswered\nfrom due to the first report, us: {}\n",
            counted(sent, "order", "orders"),
            thousands(achieved as u64),
            thousands(rejected),
            thousands(unanswered),
            percentiles(&times),
        )
    })?;
    Ok(if unanswered == 0 && rejected == 0 { Ending::Complete } else { Ending::WithProblems })
}

/// Returns when an order was due, if the message is the first answer to it.
fn first_answer(message: &[u8], due: &mut HashMap<String, Instant>) -> Option<Instant> {
    let tag = if message_type(message) == b"j" { 379 } else { 11 };
    let id = String::from_utf8_lossy(field(message, tag)?).into_owned();
    due.remove(&id)
}
