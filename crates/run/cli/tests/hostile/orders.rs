//! The gateway while the plant hangs that it checks prices with, and while others take its page's connections.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use socket2::{Domain, Socket, Type};

use super::collar::{self, NO_PRICE};
use super::*;
use crate::support::trader::Trader;

#[test]
fn no_order_is_checked_against_the_prices_of_a_plant_that_hangs() {
    let mut rounds = Rounds::new(11, 1);
    let folder = Folder::new("hostile-hung-plant");
    let addresses = [580, 581, 582].map(free_port);
    let [web, gateway_web, port] = [583, 584, 585].map(free_port);
    let (memory, symbol) = (folder.path("memory"), "VGSA");
    let plant = format!("shared_memory = \"{memory}\"\n[web]\nlisten = \"{web}\"\n");
    let [venue, plant] = nasdaq(&folder, 10, port, &plant);
    let more = format!(
        "[market]\nshared_memory = \"{memory}\"\nprice_age = \"500ms\"\n[web]\naddress = \"{gateway_web}\"\n"
    );
    let [exchange, gateway] = collar::configs(&folder, symbol, addresses, &more);
    let plant = Running::start(&["plant", &plant]);
    support::wait_for(|| status(web).is_some());
    let venue = Running::start(&["exchange", "serve", &venue]);
    let exchange = Running::start(&["exchange", "serve", &exchange]);
    let gateway = Running::start(&["gateway", &gateway]);
    support::wait_for(|| get(gateway_web, "/ready").is_some());
    let is_ready = || get(gateway_web, "/ready").is_some_and(|page| page.starts_with("HTTP/1.1 200"));
    let mut trader = Trader::connect(addresses[2], "ALPHA");
    // A bid of a cent passes any collar that has a price.
    let bid = format!("new {symbol} buy 1 @0.01");
    while rounds.next() {
        trader.order_until(&bid, "the prices are not found", |kind, _| kind == "0");
        support::wait_for(is_ready);
        signal(&plant.0, "-STOP");
        trader.order_until(&bid, "prices of a plant that hangs", |_, text| text == NO_PRICE);
        support::wait_for(|| !is_ready());
        let page = get(gateway_web, "/ready").unwrap();
        assert!(page.contains("there are no prices of the market"), "{page}");
        // They do not come back by themselves.
        std::thread::sleep(Duration::from_millis(1_000));
        assert_eq!(trader.order(&bid), ("8".to_owned(), NO_PRICE.to_owned()));
        signal(&plant.0, "-CONT");
    }
    [gateway, exchange, venue, plant].into_iter().for_each(Running::stop);
}

/// A connection to the page from an address of this machine, which has sent `bytes`.
///
/// It is closed with a reset: thousands a second that wait for their last packets would take all ports of the machine.
fn sent(page: SocketAddr, from: u8, bytes: &[u8]) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.bind(&SocketAddr::from(([127, 0, 0, from], 0)).into())?;
    socket.connect(&page.into())?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(bytes)?;
    Ok(stream)
}

/// The beginning of a request.
const SLOW: &[u8] = b"GET /status.json HTTP/1.1\r\nX: ";

/// Slow connections from each of `addresses`, opened again when the server closes them.
fn flood(page: SocketAddr, addresses: std::ops::Range<u8>, each: usize) -> Attack<()> {
    Attack::start(move |is_over| {
        let mut connections = VecDeque::new();
        let most = addresses.len() * each;
        let mut from = addresses.cycle();
        while !is_over.load(Ordering::Relaxed) {
            while connections.len() >= most {
                connections.pop_front();
            }
            connections.extend(sent(page, from.next().unwrap(), SLOW).ok());
            std::thread::sleep(Duration::from_micros(200));
        }
    })
}

/// A command between slow connections that have all come while the gateway had no processor: by when it looks, its request is there.
fn is_obeyed_behind_a_burst(gateway: &Running, page: SocketAddr) {
    // The kernel queues 128 connections. Once this one is answered, no earlier one is left in the queue.
    support::wait_for(|| get(page, "/ready").is_some());
    signal(&gateway.0, "-STOP");
    // Those of one address are 32; the reserve has 64.
    let slow = |count| (0..count).map(|_| sent(page, 1, SLOW).unwrap()).collect::<Vec<_>>();
    let before = slow(34);
    let request = format!("POST /halt HTTP/1.0\r\nHost: {page}\r\nContent-Length: 0\r\n\r\n");
    let mut command = sent(page, 1, request.as_bytes()).unwrap();
    let behind = slow(80);
    signal(&gateway.0, "-CONT");
    command.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    let read = command.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.0 200"), "{read:?}: {answer}");
    drop((before, behind));
}

#[test]
fn slow_connections_keep_nobody_from_the_kill_switch() {
    let mut rounds = Rounds::new(12, 1);
    let folder = Folder::new("hostile-kill-switch");
    let addresses = [590, 591, 592].map(free_port);
    let page = free_port(593);
    let more = format!("[web]\naddress = \"{page}\"\n");
    let [exchange, gateway] = collar::configs(&folder, "VGSA", addresses, &more);
    // The operator does not have the venue's password, nor needs it.
    let text = fs::read_to_string(&gateway).unwrap();
    let text = text.replace("password = \"password\"", "password_env = \"HOSTILE_VENUE_PASSWORD\"");
    fs::write(&gateway, text.replace("collar_basis_points = 100\n", "")).unwrap();
    let exchange = Running::start(&["exchange", "serve", &exchange]);
    let mut program = command(&["gateway", &gateway]);
    program.env("HOSTILE_VENUE_PASSWORD", "password").stdout(Stdio::null()).stderr(Stdio::null());
    let gateway_runs = Running(program.spawn().unwrap());
    support::wait_for(|| get(page, "/ready").is_some());
    let by_page = page.to_string();
    while rounds.next() {
        for (addresses, each) in [(1..2, 64), (2..10, 40)] {
            let flood = flood(page, addresses.clone(), each);
            std::thread::sleep(Duration::from_millis(500));
            for place in [&by_page, &gateway] {
                let mut longest = Duration::ZERO;
                for _ in 0..12 {
                    for command in ["halt", "resume"] {
                        let began = Instant::now();
                        let output = run(&["gateway", command, place]);
                        longest = longest.max(began.elapsed());
                        let what = format!("{command} {place} beside {addresses:?} with {each} each");
                        is_sound(&output, &stderr(&output), &[0], &what);
                    }
                }
                println!(
                    "24 of 24 commands are obeyed by {place}, beside {each} slow connections of each of {} addresses; the slowest took {longest:?}",
                    addresses.len()
                );
            }
            flood.stop();
        }
        is_obeyed_behind_a_burst(&gateway_runs, page);
    }
    assert_eq!(run(&["gateway", "halt", &gateway]).status.code(), Some(0));
    let status = status(page).unwrap();
    assert_eq!(status["is_halted"], true, "{status}");
    [gateway_runs, exchange].into_iter().for_each(Running::stop);
    let control = format!("{}.control", folder.path("gateway-store"));
    assert!(!Path::new(&control).exists(), "the socket is left behind");
}
