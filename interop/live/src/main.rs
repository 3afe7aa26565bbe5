//! The live server under the official client: its records against the files of the same session.
//!
//! `tapeworks-interop-live SERVER FOLDER`: the example `live_server`, and a folder to write to. It prints the number of
//! compared records, and exits with 1 and a line for the first difference.
//!
//! `tapeworks-interop-live --plant PORT FOLDER START`: writes the records of a plant on that port to the end, from `START` on
//! (ns since the epoch, UTC; 0: from now on), as files for `with_databento_plant.py`, which compares.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use databento::dbn::decode::{DbnDecoder, DecodeRecordRef};
use databento::dbn::enums::rtype;
use databento::dbn::{Compression, MboMsg, Record, SType, Schema, SymbolMappingMsg, SystemMsg, flags};
use databento::live::{Client, Subscription};
use databento::{LiveClient, Symbols};
use time::OffsetDateTime;

const KEY: &str = "db-TapeworksDemoKey0000000000000";
const DATASET: &str = "TAPEWORKS.DEMO";
const SCHEMAS: [Schema; 14] = [
    Schema::Mbo,
    Schema::Mbp1,
    Schema::Mbp10,
    Schema::Bbo1S,
    Schema::Bbo1M,
    Schema::Tbbo,
    Schema::Trades,
    Schema::Cmbp1,
    Schema::Cbbo1S,
    Schema::Cbbo1M,
    Schema::Status,
    Schema::Imbalance,
    Schema::Definition,
    Schema::Ohlcv1S,
];

/// A server of a generated session, which publishes on command.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
    port: u16,
}

impl Server {
    fn start(program: &Path, folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let mut child = Command::new(program)
            .arg(&folder)
            .args(["20000", "20"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut server = Self { child, input, output, folder, port: 0 };
        server.port = server.answer("port")?[0].parse()?;
        server.answer("events")?;
        Ok(server)
    }

    fn answer(&mut self, word: &str) -> Result<Vec<String>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        ensure!(words.next().as_deref() == Some(word), "the server said {line:?} instead of {word}");
        Ok(words.collect())
    }

    /// Publishes so many events, or all; returns the time of the last.
    fn publish(&mut self, count: &str) -> Result<u64> {
        writeln!(self.input, "publish {count}")?;
        Ok(self.answer("published")?[1].parse()?)
    }

    fn end(&mut self) -> Result<()> {
        writeln!(self.input, "end")?;
        ensure!(self.child.wait()?.success(), "the server failed");
        Ok(())
    }

    /// The records of a schema from `start` on, as bytes.
    fn file(&self, schema: Schema, start: u64) -> Result<Vec<Vec<u8>>> {
        let mut decoder = DbnDecoder::from_file(self.folder.join(format!("{schema}.dbn")))?;
        let mut records = Vec::new();
        while let Some(record) = decoder.decode_record_ref()? {
            if record.raw_index_ts() >= start {
                records.push(record.as_ref().to_vec());
            }
        }
        Ok(records)
    }

    async fn client(&self, compression: Compression) -> Result<Client> {
        let builder = LiveClient::builder().key(KEY)?.dataset(DATASET).compression(compression);
        Ok(builder.addr(("127.0.0.1", self.port)).await?.build().await?)
    }
}

/// Whether a record is a message of the session.
fn is_message(kind: u8) -> bool {
    [rtype::SYMBOL_MAPPING, rtype::SYSTEM, rtype::ERROR].contains(&kind)
}

/// The records, symbols and messages of a client.
#[derive(Default)]
struct Received {
    records: Vec<Vec<u8>>,
    symbols: Vec<(u32, String)>,
    messages: Vec<String>,
}

/// Starts a client and waits for the acknowledgement of its last subscription.
async fn start(client: &mut Client, subscriptions: usize) -> Result<Received> {
    let metadata = client.start().await?;
    ensure!(metadata.dataset == DATASET && metadata.schema.is_none(), "{metadata:?}");
    let mut received = Received::default();
    while received.messages.iter().filter(|message| message.contains("succeeded")).count() < subscriptions {
        ensure!(next(client, &mut received).await?, "the session ended before it began");
    }
    Ok(received)
}

/// Takes one record; returns whether there was one.
async fn next(client: &mut Client, received: &mut Received) -> Result<bool> {
    let next = tokio::time::timeout(Duration::from_secs(30), client.next_record());
    let Some(record) = next.await.context("nothing came for 30 s")?? else { return Ok(false) };
    if let Some(mapping) = record.get::<SymbolMappingMsg>() {
        received.symbols.push((mapping.hd.instrument_id, mapping.stype_out_symbol()?.to_owned()));
    } else if let Some(message) = record.get::<SystemMsg>() {
        received.messages.push(message.msg()?.to_owned());
    } else if !is_message(record.raw_rtype() as u8) {
        received.records.push(record.as_ref().to_vec());
    }
    Ok(true)
}

async fn rest(mut client: Client, mut received: Received) -> Result<Received> {
    while next(&mut client, &mut received).await? {}
    Ok(received)
}

fn same(what: &str, received: &[Vec<u8>], expected: &[Vec<u8>]) -> Result<usize> {
    for (place, (one, other)) in received.iter().zip(expected).enumerate() {
        ensure!(one == other, "{what}: record {place} is {one:?}, expected {other:?}");
    }
    ensure!(
        received.len() == expected.len(),
        "{what}: {} records, expected {}",
        received.len(),
        expected.len()
    );
    ensure!(!received.is_empty(), "{what}: no record was compared");
    Ok(received.len())
}

/// Every schema, all symbols; one of them compressed.
async fn schemas(mut server: Server) -> Result<usize> {
    let mut clients = Vec::new();
    for schema in SCHEMAS {
        let compression = if schema == Schema::Mbp10 { Compression::Zstd } else { Compression::None };
        let mut client = server.client(compression).await?;
        client.subscribe(Subscription::builder().symbols(Symbols::All).schema(schema).build()).await?;
        let received = start(&mut client, 1).await?;
        clients.push((schema, tokio::spawn(rest(client, received))));
    }
    server.publish("all")?;
    server.end()?;
    let mut count = 0;
    for (schema, client) in clients {
        let received = client.await??;
        let mut expected = server.file(schema, 0)?;
        // The intervals that the end of a file ends are not over for a live client.
        if schema.as_str().contains("bbo-1") || schema == Schema::Ohlcv1S {
            ensure!(
                expected.len() - received.records.len() <= 60,
                "{schema}: {} records",
                received.records.len()
            );
            expected.truncate(received.records.len());
        }
        count += same(schema.as_str(), &received.records, &expected)?;
        ensure!(received.symbols.len() == 20, "{schema}: {} symbols", received.symbols.len());
    }
    Ok(count)
}

/// Two schemas, one by name and one by number; then one of them no more.
async fn lists(mut server: Server) -> Result<usize> {
    server.publish("200")?;
    let mut probe = server.client(Compression::None).await?;
    probe.subscribe(Subscription::builder().symbols(Symbols::All).schema(Schema::Mbo).build()).await?;
    let symbols = start(&mut probe, 1).await?.symbols;
    let [(first, name), (second, _), ..] = &symbols[..] else { bail!("only {symbols:?}") };
    let mut client = server.client(Compression::None).await?;
    let by_name = Subscription::builder().symbols(name.as_str()).schema(Schema::Mbp1).id(1).build();
    let by_number = Subscription::builder()
        .symbols(Symbols::Ids(vec![*second]))
        .schema(Schema::Mbo)
        .stype_in(SType::InstrumentId)
        .build();
    client.subscribe(by_name.clone()).await?;
    client.subscribe(by_number).await?;
    let mut received = start(&mut client, 2).await?;
    server.publish("10000")?;
    client.unsubscribe(by_name.to_unsubscription()).await?;
    while !received.messages.iter().any(|message| message.contains("Unsubscribed from mbp-1")) {
        ensure!(next(&mut client, &mut received).await?, "the session ended too early");
    }
    let so_far = received.records.len();
    server.publish("all")?;
    server.end()?;
    drop(probe);
    let received = rest(client, received).await?;
    let of =
        |record: &&Vec<u8>, kind: u8, number: u32| record[1] == kind && record[4..8] == number.to_le_bytes();
    let quotes: Vec<_> =
        received.records.iter().filter(|one| of(one, rtype::MBP_1, *first)).cloned().collect();
    let orders: Vec<_> =
        received.records.iter().filter(|one| of(one, rtype::MBO, *second)).cloned().collect();
    ensure!(quotes.len() + orders.len() == received.records.len(), "records of others");
    ensure!(received.records[so_far..].iter().all(|record| record[1] == rtype::MBO), "quotes after the end");
    let expected = server.file(Schema::Mbo, 0)?;
    let expected: Vec<_> = expected.iter().filter(|one| of(one, rtype::MBO, *second)).cloned().collect();
    let from = expected.len() - orders.len();
    let expected_quotes = server.file(Schema::Mbp1, 0)?;
    let expected_quotes: Vec<_> =
        expected_quotes.iter().filter(|one| of(one, rtype::MBP_1, *first)).cloned().collect();
    let at = expected_quotes.iter().position(|one| Some(one) == quotes.first()).context("no quote")?;
    let quotes_expected = &expected_quotes[at..at + quotes.len()];
    Ok(same("mbo by number", &orders, &expected[from..])? + same("mbp-1 by name", &quotes, quotes_expected)?)
}

/// A snapshot of orders, then the records behind it.
async fn snapshots(mut server: Server) -> Result<usize> {
    server.publish("10000")?;
    let mut client = server.client(Compression::None).await?;
    let subscription = Subscription::builder().symbols(Symbols::All).schema(Schema::Mbo).use_snapshot(true);
    client.subscribe(subscription.build()).await?;
    let received = start(&mut client, 1).await?;
    let client = tokio::spawn(rest(client, received));
    server.publish("all")?;
    server.end()?;
    let received = client.await??;
    let is_of_snapshot = |record: &&Vec<u8>| {
        let offset = std::mem::offset_of!(MboMsg, flags);
        record[offset] & flags::SNAPSHOT != 0
    };
    let snapshot = received.records.iter().take_while(is_of_snapshot).count();
    ensure!(snapshot > 0, "no snapshot");
    let rest = &received.records[snapshot..];
    let expected = server.file(Schema::Mbo, 0)?;
    Ok(snapshot + same("mbo after the snapshot", rest, &expected[expected.len() - rest.len()..])?)
}

/// From a time of the day on.
async fn replays(mut server: Server) -> Result<usize> {
    let time = server.publish("8000")?;
    server.publish("4000")?;
    let mut clients = Vec::new();
    for (schema, start_ns) in [(Schema::Mbo, time), (Schema::Cmbp1, time), (Schema::Trades, 0)] {
        let mut client = server.client(Compression::None).await?;
        let from = OffsetDateTime::from_unix_timestamp_nanos(start_ns.into())?;
        let subscription = Subscription::builder().symbols(Symbols::All).schema(schema).start(from);
        client.subscribe(subscription.build()).await?;
        let received = start(&mut client, 1).await?;
        clients.push((schema, start_ns, tokio::spawn(rest(client, received))));
    }
    server.publish("all")?;
    server.end()?;
    let mut count = 0;
    for (schema, start_ns, client) in clients {
        let received = client.await??;
        count +=
            same(&format!("{schema} from {start_ns}"), &received.records, &server.file(schema, start_ns)?)?;
        let finished = received.messages.iter().filter(|message| message.contains("Finished")).count();
        ensure!(finished == 1, "{:?}", received.messages);
    }
    Ok(count)
}

/// A wrong key and a dataset that is not there.
async fn refusals(mut server: Server) -> Result<usize> {
    for (key, dataset, why) in [
        ("db-TapeworksWrongKey000000000000", DATASET, "authentication failed"),
        (KEY, "XNAS.ITCH", "unknown dataset"),
    ] {
        let builder = LiveClient::builder().key(key)?.dataset(dataset);
        let Err(error) = builder.addr(("127.0.0.1", server.port)).await?.build().await else {
            bail!("{dataset} was taken")
        };
        ensure!(error.to_string().contains(why), "{error}");
    }
    server.end()?;
    Ok(2)
}

/// Writes a client's records of one schema, one behind the other, and its symbols, a line each.
async fn keep(port: u16, folder: PathBuf, schema: Schema, start_ns: i128) -> Result<()> {
    let builder = LiveClient::builder().key(KEY)?.dataset(DATASET);
    let mut client = builder.addr(("127.0.0.1", port)).await?.build().await?;
    let subscription = Subscription::builder().symbols(Symbols::All).schema(schema);
    let subscription = match start_ns {
        0 => subscription.build(),
        _ => subscription.start(OffsetDateTime::from_unix_timestamp_nanos(start_ns)?).build(),
    };
    client.subscribe(subscription).await?;
    let mut received = start(&mut client, 1).await?;
    println!("subscribed {schema}");
    if start_ns != 0 {
        while !received.messages.iter().any(|message| message.contains("Finished")) {
            ensure!(next(&mut client, &mut received).await?, "the session ended amid the replay");
        }
        println!("replayed {schema}");
    }
    let received = rest(client, received).await?;
    std::fs::write(folder.join(format!("{schema}.records")), received.records.concat())?;
    let symbols: Vec<_> =
        received.symbols.iter().map(|(number, symbol)| format!("{number} {symbol}\n")).collect();
    Ok(std::fs::write(folder.join(format!("{schema}.symbols")), symbols.concat())?)
}

/// The orders and the NBBO of a plant.
async fn of_plant(mut arguments: impl Iterator<Item = PathBuf>) -> Result<()> {
    let (Some(port), Some(folder), Some(start)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("usage: tapeworks-interop-live --plant PORT FOLDER START")
    };
    let number = |text: PathBuf| text.to_str().map(str::to_owned).context("a number");
    let (port, start): (u16, i128) = (number(port)?.parse()?, number(start)?.parse()?);
    std::fs::create_dir_all(&folder)?;
    let clients =
        [Schema::Mbo, Schema::Cmbp1].map(|schema| tokio::spawn(keep(port, folder.clone(), schema, start)));
    for client in clients {
        client.await??;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    if std::env::args_os().nth(1).is_some_and(|first| first == "--plant") {
        return of_plant(std::env::args_os().skip(2).map(PathBuf::from)).await;
    }
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(program), Some(work)) = (arguments.next(), arguments.next()) else {
        bail!("usage: tapeworks-interop-live SERVER FOLDER")
    };
    let server = |name: &str| Server::start(&program, work.join("live-rust").join(name));
    println!("the Rust client, schemas: {} records", schemas(server("schemas")?).await?);
    println!("the Rust client, lists: {} records", lists(server("lists")?).await?);
    println!("the Rust client, snapshots: {} records", snapshots(server("snapshots")?).await?);
    println!("the Rust client, replays: {} records", replays(server("replays")?).await?);
    println!("the Rust client, refusals: {} records", refusals(server("refusals")?).await?);
    Ok(())
}
