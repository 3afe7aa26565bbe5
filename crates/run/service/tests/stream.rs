//! Market data over WebSockets, over loopback: what clients get, beside what a market of the test's own makes of the events.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "web")]

#[path = "session/served.rs"]
mod served;
mod session;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use futures_util::StreamExt;
use prost::Message as _;
use serde_json::Value;
use served::Served;
use tapeworks_market::event::Gap;
use tapeworks_market::{BookOptions, Event, Flags, Market};
use tapeworks_outputs::stream::messages::{Kind, Lagged, Record};
use tapeworks_runtime::transport::Acceptor;
use tapeworks_service::config::WebSetting;
use tapeworks_service::web;
use tapeworks_store::trade_of;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(100), future).await.unwrap() })
}

/// A record as a test sees it: event, symbol, and the rest in words.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Nbbo { event: u64, symbol: String, prices: [Option<i64>; 2], sizes: [u32; 2], flags: u32 },
    Trade { event: u64, symbol: String, price: i64, size: u32, publisher: u32 },
    Gap { event: u64, first: u64, count: u64 },
    Lagged(Lagged),
}

impl Seen {
    fn of(record: Record) -> Self {
        let event = record.event;
        match record.kind.unwrap() {
            Kind::Nbbo(nbbo) => Self::Nbbo {
                event,
                symbol: nbbo.symbol,
                prices: [nbbo.bid_price, nbbo.ask_price],
                sizes: [nbbo.bid_size, nbbo.ask_size],
                flags: nbbo.flags,
            },
            Kind::Trade(trade) => Self::Trade {
                event,
                symbol: trade.symbol,
                price: trade.price,
                size: trade.size,
                publisher: trade.publisher,
            },
            Kind::Gap(gap) => Self::Gap { event, first: gap.first, count: gap.count },
            Kind::Lagged(lagged) => Self::Lagged(lagged),
        }
    }

    fn of_json(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap();
        fn long<T: std::str::FromStr>(value: &Value) -> T {
            value.as_str().unwrap().parse().ok().unwrap()
        }
        let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let name = |value: &Value| value["symbol"].as_str().unwrap().to_owned();
        let event = long(&value["event"]);
        if let Some(nbbo) = value.get("nbbo") {
            Self::Nbbo {
                event,
                symbol: name(nbbo),
                prices: [nbbo.get("bid_price").map(long), nbbo.get("ask_price").map(long)],
                sizes: [number(&nbbo["bid_size"]), number(&nbbo["ask_size"])],
                flags: number(&nbbo["flags"]),
            }
        } else if let Some(trade) = value.get("trade") {
            Self::Trade {
                event,
                symbol: name(trade),
                price: long(&trade["price"]),
                size: number(&trade["size"]),
                publisher: number(&trade["publisher"]),
            }
        } else if let Some(gap) = value.get("gap") {
            Self::Gap { event, first: long(&gap["first"]), count: long(&gap["count"]) }
        } else {
            let lagged = &value["lagged"];
            Self::Lagged(Lagged {
                conflated: long(&lagged["conflated"]),
                dropped_trades: long(&lagged["dropped_trades"]),
                dropped_gaps: long(&lagged["dropped_gaps"]),
            })
        }
    }

    fn of_message(message: Message) -> Option<Self> {
        match message {
            Message::Text(text) => Some(Self::of_json(&text)),
            Message::Binary(bytes) => Some(Self::of(Record::decode(bytes).unwrap())),
            Message::Ping(_) | Message::Pong(_) => None,
            other => panic!("{other:?}"),
        }
    }
}

/// What the stream should say of events: a market of the test's own.
#[derive(Default)]
struct Expected {
    all: Vec<Seen>,
    /// The last NBBO by symbol.
    last: BTreeMap<String, Seen>,
    changes: u64,
    trades: u64,
}

/// The records of all `events`, and of those from the number `from` on.
fn expected(events: &[Event], from: usize) -> (Expected, Expected) {
    let mut market = Market::new(&BookOptions::default());
    let (mut before, mut after) = (Expected::default(), Expected::default());
    for (number, event) in events.iter().enumerate() {
        let to = if number < from { &mut before } else { &mut after };
        let number = number as u64;
        market.apply(&[*event], |update, instruments| {
            let symbol = || instruments.symbol(update.book.event.instrument).unwrap().as_str().to_owned();
            if update.changed {
                let nbbo = update.nbbo;
                let seen = Seen::Nbbo {
                    event: number,
                    symbol: symbol(),
                    prices: [&nbbo.bid, &nbbo.ask].map(|side| side.price.map(|price| price.e9())),
                    sizes: [nbbo.bid.size, nbbo.ask.size],
                    flags: nbbo.flags.0.into(),
                };
                to.last.insert(symbol(), seen.clone());
                to.all.push(seen);
                to.changes += 1;
            }
            if let Ok(trade) = trade_of(&update.book) {
                let publisher = update.book.event.publisher.0.into();
                let (price, size) = (trade.price, trade.size);
                to.all.push(Seen::Trade { event: number, symbol: symbol(), price, size, publisher });
                to.trades += 1;
            }
        });
        if let Some(Gap { first, count }) = event.gap() {
            to.all.push(Seen::Gap { event: number, first, count });
        }
    }
    (before, after)
}

/// The last NBBOs as a snapshot has them.
fn snapshot(last: &BTreeMap<String, Seen>) -> BTreeMap<String, Seen> {
    let mut last = last.clone();
    last.retain(|_, seen| matches!(seen, Seen::Nbbo { prices, .. } if *prices != [None, None]));
    for seen in last.values_mut() {
        if let Seen::Nbbo { flags, .. } = seen {
            *flags |= u32::from(Flags::SNAPSHOT.0);
        }
    }
    last
}

async fn next<S>(socket: &mut WebSocketStream<S>) -> Seen
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        if let Some(seen) = Seen::of_message(socket.next().await.unwrap().unwrap()) {
            return seen;
        }
    }
}

async fn take<S>(socket: &mut WebSocketStream<S>, count: usize) -> Vec<Seen>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut all = Vec::new();
    while all.len() < count {
        all.push(next(socket).await);
    }
    all
}

fn by_symbol(all: Vec<Seen>) -> BTreeMap<String, Seen> {
    let name = |seen: Seen| match &seen {
        Seen::Nbbo { symbol, .. } => (symbol.clone(), seen),
        other => panic!("{other:?}"),
    };
    all.into_iter().map(name).collect()
}

#[test]
fn both_encodings_bring_the_present_state_then_every_change_and_trade() {
    let mut events = session::events(&session::scenario(9_000, 12, 7));
    let mut gap = *events.last().unwrap();
    gap.channel_sequence += 3;
    events.push(gap.with_gap(Gap { first: 17, count: 3 }));
    let begin = events.len() / 2;
    let (before, after) = expected(&events, begin);
    // More than a queue holds could be conflated.
    assert!(before.last.len() > 5 && after.changes > 300 && after.trades > 50 && after.all.len() < 8_000);
    let shown = snapshot(&before.last);
    let one = shown.keys().next().unwrap().clone();
    let mut served = Served::new(begin);
    let address = served.web.address();
    served.publish(&events[..begin]);
    block_on(async {
        let connect = async |query: &str| {
            let address = format!("ws://{address}/stream?{query}");
            tokio_tungstenite::connect_async(address).await.unwrap().0
        };
        let mut json = connect("schema=nbbo,trades").await;
        let mut protobuf = connect("schema=nbbo,trades&encoding=protobuf").await;
        let mut alone = connect(&format!("encoding=protobuf&symbols=NOWHERE,{one}")).await;
        assert_eq!(by_symbol(take(&mut json, shown.len()).await), shown);
        assert_eq!(by_symbol(take(&mut protobuf, shown.len()).await), shown);
        assert_eq!(next(&mut alone).await, shown[&one]);
        served.publish(&events[begin..]);
        assert_eq!(take(&mut json, after.all.len()).await, after.all);
        assert_eq!(take(&mut protobuf, after.all.len()).await, after.all);
        let wanted = after.all.iter().filter(|seen| match seen {
            Seen::Nbbo { symbol, .. } => *symbol == one,
            Seen::Gap { .. } => true,
            _ => false,
        });
        let wanted: Vec<_> = wanted.cloned().collect();
        assert_eq!(take(&mut alone, wanted.len()).await, wanted);
        let Served { web, producer, streaming: _streaming } = served;
        drop(producer);
        let Some(Ok(Message::Close(Some(frame)))) = json.next().await else { panic!("it goes on") };
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1001, "the plant has ended"));
        drop(web);
    });
}

#[test]
fn a_client_that_does_not_read_is_conflated_and_delays_no_other() {
    let events = session::events(&session::scenario(150_000, 25, 3));
    let begin = 5_000;
    let (before, after) = expected(&events, begin);
    let shown = snapshot(&before.last).len();
    let mut served = Served::new(begin);
    let address = served.web.address();
    served.publish(&events[..begin]);
    let wanted = after.last.clone();
    // Whatever its pace, the records that a client got and those reported as missed are all records.
    async fn read<S>(socket: &mut WebSocketStream<S>, wanted: &Expected) -> (Lagged, BTreeMap<String, Seen>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let (mut missed, mut last) = (Lagged::default(), BTreeMap::new());
        let (mut changes, mut trades) = (0, 0);
        while changes + missed.conflated < wanted.changes || trades + missed.dropped_trades < wanted.trades {
            match next(socket).await {
                Seen::Lagged(lagged) => {
                    missed.conflated += lagged.conflated;
                    missed.dropped_trades += lagged.dropped_trades;
                }
                Seen::Trade { .. } => trades += 1,
                Seen::Gap { .. } => {}
                seen @ Seen::Nbbo { .. } => {
                    changes += 1;
                    last.extend(by_symbol(vec![seen]));
                }
            }
        }
        assert_eq!(
            (changes + missed.conflated, trades + missed.dropped_trades),
            (wanted.changes, wanted.trades)
        );
        (missed, last)
    }
    block_on(async {
        let url = format!("ws://{address}/stream?schema=nbbo,trades");
        let small = tokio::net::TcpSocket::new_v4().unwrap();
        small.set_recv_buffer_size(4_096).unwrap();
        let small = small.connect(address).await.unwrap();
        let (mut stalled, _) = tokio_tungstenite::client_async(&url, small).await.unwrap();
        let (mut quick, _) =
            tokio_tungstenite::connect_async(format!("{url}&encoding=protobuf")).await.unwrap();
        take(&mut stalled, shown).await;
        take(&mut quick, shown).await;
        let publisher = std::thread::spawn(move || {
            served.publish(&events[begin..]);
            served
        });
        let (_, last) = read(&mut quick, &after).await;
        assert_eq!(last, wanted);
        let served = publisher.join().unwrap();
        let counted = |name: &str| {
            let status: Value = serde_json::from_str(&get(served.web.address(), "/status.json").1).unwrap();
            status["web"][name].as_u64().unwrap()
        };
        assert!(counted("stream_lagged") > 0);
        let (missed, last) = read(&mut stalled, &after).await;
        assert!(missed.conflated > 0 && missed.dropped_trades > 0, "{missed:?}");
        assert_eq!(last, wanted, "the last of each instrument is what there is");
        assert!(counted("stream_conflated") >= missed.conflated);
        assert_eq!(counted("stream_clients"), 2);
    });
}

#[test]
fn wrong_parameters_get_a_one_line_error_and_clients_without_a_key_are_refused() {
    let served = Served::new(0);
    for path in ["/stream?encoding=xml", "/stream?schema=mbo", "/stream?symbols=", "/stream?nothing=1"] {
        let (code, body) = get(served.web.address(), path);
        assert_eq!((code, body.lines().count()), (400, 1), "{path}: {body}");
        assert!(body.ends_with('\n'));
    }
    // The query is valid, but the request is not a WebSocket's.
    assert_eq!(get(served.web.address(), "/stream").0, 400);
    let status: Value = serde_json::from_str(&get(served.web.address(), "/status.json").1).unwrap();
    assert_eq!(status["web"]["stream_refused_parameters"], 4);
    assert!(get(served.web.address(), "/metrics").1.contains("\ntapeworks_web_stream_conflated_total 0\n"));

    let setting = WebSetting {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: Some("a token that is long enough".into()),
        stream: false,
        tls: None,
    };
    let without = web::plant::start(
        web::bind(setting.address, setting.token, Acceptor::Plain).unwrap(),
        served::handles(),
        None,
    )
    .unwrap();
    assert_eq!(get(without.address(), "/stream").0, 401);
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;
    let refused = block_on(async {
        let mut request = format!("ws://{}/stream", without.address()).into_client_request().unwrap();
        let bearer = "Bearer a token that is long enough".parse().unwrap();
        request.headers_mut().insert("Authorization", bearer);
        tokio_tungstenite::connect_async(request).await.unwrap_err().to_string()
    });
    assert!(refused.contains("404"), "{refused}");
}

#[test]
fn clients_that_send_bytes_are_dropped_and_counted() {
    use futures_util::SinkExt;
    let served = Served::new(0);
    block_on(async {
        let url = format!("ws://{}/stream", served.web.address());
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        socket.send(Message::text("{}")).await.unwrap();
        let Some(Ok(Message::Close(Some(frame)))) = socket.next().await else { panic!("it goes on") };
        assert_eq!(u16::from(frame.code), 1008);
    });
    let status: Value = serde_json::from_str(&get(served.web.address(), "/status.json").1).unwrap();
    assert_eq!(status["web"]["stream_garbled"], 1);
}
