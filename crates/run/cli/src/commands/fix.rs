//! `tapeworks fix`: a FIX client for the terminal, for scripts, and for load tests.

pub(crate) mod load;
mod show;

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tapeworks_gateway::client::{ClientError, FixClient};
use tapeworks_gateway::order_line::{FORMS, OrderBook, OrderLine};
use tapeworks_order_session::fix::{HIGHEST_SEQUENCE, Role, Settings};
use tapeworks_runtime::world::System;

use crate::commands::subscribe::resolve;
use crate::ending::{Ending, Failure, Result};
use crate::terminal::complain;
use crate::tls::Tls;
use crate::{interrupt, output, values};

/// How long a turn waits for bytes.
const TURN: Duration = Duration::from_millis(20);

/// Connect as a FIX client, and send orders by hand, from a script, or at a rate.
///
/// Reads requests from standard input, one per line, and prints every report.
#[derive(Debug, Args)]
#[command(after_help = "\
Requests:
  new SYMBOL buy|sell|short QUANTITY [@PRICE] [day|gtc|ioc|fok|opening|closing] [id=ID]
  cancel ID
  replace ID QUANTITY @PRICE
  mass SYMBOL          cancel all orders of a symbol
  status ID
  raw TYPE TAG=VALUE|TAG=VALUE...
  wait TIME            print messages for this long: 500ms, 2s
  watch                print messages until Ctrl-C
  quit

Examples:
  tapeworks fix 127.0.0.1:9878 --comp-id ALPHA
  tapeworks fix 127.0.0.1:9878 --comp-id ALPHA --script examples/gateway/orders.txt
  tapeworks fix 127.0.0.1:9878 --comp-id ALPHA --rate 1000 --seconds 10

Exit code 3: a scripted request was rejected or named an unknown order, or an order sent by --rate was rejected or \
unanswered.")]
pub(crate) struct Arguments {
    /// Address on which the gateway accepts FIX clients.
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9878")]
    address: String,
    /// SenderCompID (49).
    #[arg(long, value_name = "ID")]
    comp_id: String,
    /// TargetCompID (56).
    #[arg(long, value_name = "ID", default_value = "TAPEWORKS")]
    target: String,
    /// FIX version.
    #[arg(long, value_enum, default_value_t = Version::Fix44)]
    version: Version,
    /// Username (553).
    #[arg(long, value_name = "NAME", requires = "password")]
    user: Option<String>,
    /// Password (554).
    #[arg(long, env = "TAPEWORKS_FIX_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// HeartBtInt (108), in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    heartbeat: u32,
    /// Keep the session's sequence numbers in this file, so that missed reports are delivered. Without it,
    /// both start at 1.
    #[arg(long, value_name = "FILE")]
    numbers: Option<PathBuf>,
    #[command(flatten)]
    tls: Tls,
    /// Read requests from this file, one per line; # starts a comment.
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    script: Option<PathBuf>,
    #[command(flatten)]
    load: load::Load,
    /// Print each message as a JSON object of tags and values.
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Version {
    #[value(name = "4.2")]
    Fix42,
    #[value(name = "4.4")]
    Fix44,
    /// Over FIXT 1.1.
    #[value(name = "5.0sp2")]
    Fix50Sp2,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Arguments {
    fn settings(&self) -> Settings {
        let begin_string = match self.version {
            Version::Fix42 => "FIX.4.2",
            Version::Fix44 => "FIX.4.4",
            Version::Fix50Sp2 => "FIXT.1.1",
        };
        let mut settings = Settings::new(Role::Initiator, begin_string, &self.comp_id, &self.target);
        settings.heartbeat_s = self.heartbeat;
        settings.resets_on_logon = self.numbers.is_none();
        settings.credentials =
            self.password.clone().map(|password| (self.user.clone().unwrap_or_default(), password));
        settings
    }
}

/// Reads the sequence numbers in a file: next incoming, next outgoing.
fn load_numbers(path: &Path) -> Result<Option<(u64, u64)>> {
    let wrong =
        || Failure::Failed(format!("{}: not the numbers of a session, two in a line", path.display()));
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
            // A number one above the highest means that the session is exhausted.
            let possible = 1..=HIGHEST_SEQUENCE + 1;
            let mut next = || numbers.next().flatten().filter(|number| possible.contains(number));
            match (next(), next()) {
                (Some(incoming), Some(outgoing)) => Ok(Some((incoming, outgoing))),
                _ => Err(wrong()),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::Failed(format!("{}: {error}", path.display()))),
    }
}

fn save_numbers(path: &Path, (incoming, outgoing): (u64, u64)) -> Result<()> {
    std::fs::write(path, format!("{incoming} {outgoing}\n")).map_err(|error| Failure::from_file(path, &error))
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let settings = arguments.settings();
    let numbers = arguments.numbers.as_deref().map(load_numbers).transpose()?.flatten();
    let address = resolve(&arguments.address)?;
    let script = arguments.script.as_deref().map(read_script).transpose()?;
    let (connector, patience) = (arguments.tls.connector(&arguments.address)?, Duration::from_secs(5));
    let mut client = FixClient::<System>::connect_by(connector, address, settings, numbers, patience)?;
    let result = if arguments.load.rate.is_some() {
        load::run(&arguments.load, &arguments.comp_id, &mut client, arguments.json)
    } else {
        let mut console = Console {
            book: OrderBook::new(&format!(
                "{}-{:x}-",
                arguments.comp_id,
                client.now_ns() / 1_000_000_000 % 0x00ff_ffff
            )),
            json: arguments.json,
            rejects: 0,
        };
        match script {
            Some(lines) => console.script(&lines, &mut client),
            None => console.converse(&mut client),
        }
    };
    client.log_out(Duration::from_secs(2));
    if let Some(path) = &arguments.numbers {
        save_numbers(path, client.numbers())?;
    }
    result
}

/// Reads the requests of a script, with their line numbers.
fn read_script(path: &Path) -> Result<Vec<(usize, String)>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Err(problem) = parse(line) {
            return Err(Failure::Failed(format!("{}:{number}: {problem}", path.display())));
        }
        lines.push((number, line.to_owned()));
    }
    Ok(lines)
}

/// A command of the console.
enum Line {
    Request(OrderLine),
    Raw(String, Vec<(u32, String)>),
    Wait(Duration),
    Watch,
    Help,
    Quit,
}

fn parse(line: &str) -> std::result::Result<Line, String> {
    if let Some(request) = OrderLine::parse(line) {
        return request.map(Line::Request);
    }
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    match first {
        "wait" => values::interval(rest.trim()).map(Line::Wait),
        "watch" => Ok(Line::Watch),
        "quit" | "exit" => Ok(Line::Quit),
        "help" => Ok(Line::Help),
        "raw" => {
            let (kind, fields) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            let field = |text: &str| {
                let (tag, value) = text.split_once('=')?;
                Some((tag.trim().parse().ok()?, value.to_owned()))
            };
            let pieces = fields.split('|').filter(|piece| !piece.trim().is_empty());
            let fields: Option<Vec<(u32, String)>> = pieces.map(field).collect();
            let fields = fields.ok_or("write raw TYPE TAG=VALUE|TAG=VALUE")?;
            Ok(Line::Raw(kind.to_owned(), fields))
        }
        other => Err(format!("'{other}' is no request; help lists them")),
    }
}

struct Console {
    book: OrderBook,
    json: bool,
    /// Requests that were rejected, or not sent because no order matches them.
    rejects: u64,
}

impl Console {
    /// Prints the received messages.
    fn print(&mut self, client: &mut FixClient) -> Result<()> {
        while let Some(message) = client.next_message() {
            self.rejects += u64::from(show::is_reject(&message));
            let line = if self.json { show::json(&message) } else { show::line(&message) };
            output::print(&(line + "\n"))?;
        }
        Ok(())
    }

    fn turns(&mut self, client: &mut FixClient, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until && !interrupt::is_requested() {
            client.turn(TURN)?;
            self.print(client)?;
        }
        Ok(())
    }

    /// Executes a command. Returns whether to continue.
    fn obey(&mut self, line: Line, client: &mut FixClient) -> Result<bool> {
        match line {
            Line::Request(request) => match self.book.message(&request, client.now_ns()) {
                Ok((kind, fields)) => _ = client.send(kind, &fields)?,
                Err(problem) => {
                    self.rejects += 1;
                    complain(&problem);
                }
            },
            Line::Raw(kind, fields) => _ = client.send(&kind, &fields)?,
            Line::Wait(time) => self.turns(client, time)?,
            Line::Watch => self.turns(client, Duration::from_secs(365 * 86_400))?,
            Line::Help => {
                output::print(&format!("{FORMS}\nraw TYPE TAG=VALUE|...\nwait TIME\nwatch\nquit\n"))?
            }
            Line::Quit => return Ok(false),
        }
        Ok(true)
    }

    fn script(&mut self, lines: &[(usize, String)], client: &mut FixClient) -> Result {
        for (_, line) in lines {
            // Every line has been parsed before.
            let Ok(line) = parse(line) else { continue };
            let is_wait = matches!(line, Line::Wait(_) | Line::Watch);
            if !self.obey(line, client)? || interrupt::is_requested() {
                break;
            }
            if !is_wait {
                // If the venue is fast, the reports of one request arrive before the next request is sent.
                self.turns(client, Duration::from_millis(50))?;
            }
        }
        self.turns(client, Duration::from_millis(300))?;
        Ok(if self.rejects == 0 { Ending::Complete } else { Ending::WithProblems })
    }

    fn converse(&mut self, client: &mut FixClient) -> Result {
        complain(&format!("logged on to {}; help lists the requests", client.address()));
        let typed = standard_input()?;
        loop {
            match typed.try_recv() {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => match parse(line.trim()) {
                    Ok(line) => {
                        if !self.obey(line, client)? {
                            break;
                        }
                    }
                    Err(problem) => complain(&problem),
                },
                Err(TryRecvError::Disconnected) => {
                    self.turns(client, Duration::from_millis(500))?;
                    break;
                }
                Err(TryRecvError::Empty) => {}
            }
            if interrupt::is_requested() {
                break;
            }
            client.turn(TURN)?;
            self.print(client)?;
        }
        Ok(Ending::Complete)
    }
}

/// Starts a thread that reads the lines of standard input.
fn standard_input() -> Result<Receiver<String>> {
    let (sender, typed) = channel();
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(read);
    thread.map_err(|error| Failure::Failed(format!("no thread for standard input: {error}")))?;
    Ok(typed)
}
