//! Stores that are removed or replaced while their gateway runs, and stores whose end is cut off.

use super::*;
use crate::support::trader::Trader;

type Harm = fn(&Folder, &str);

/// What is done to a store, what the gateway says of it, and whether the next start finds no store.
const HARMS: [(Harm, &str, bool); 3] = [
    (|_, store| fs::remove_dir_all(store).unwrap(), "lock was removed", true),
    (
        |folder, store| {
            fs::rename(store, folder.path("elsewhere")).unwrap();
            fs::create_dir(store).unwrap();
        },
        "lock was removed",
        true,
    ),
    // A copy in the place of the segment: its name is there, and the file is another.
    (
        |folder, store| {
            for entry in fs::read_dir(store).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|ending| ending == "journal") {
                    let copy = folder.path("copy");
                    fs::copy(&path, &copy).unwrap();
                    fs::rename(&copy, &path).unwrap();
                }
            }
        },
        ".journal was removed or replaced",
        false,
    ),
];

#[test]
fn a_store_that_is_removed_or_replaced_halts_its_gateway() {
    let mut rounds = Rounds::new(14, HARMS.len() as u32);
    let mut harms = HARMS.iter().cycle();
    while rounds.next() {
        let (harm, why, is_lost) = harms.next().unwrap();
        let folder = Folder::new("hostile-removed-store");
        let addresses = [610, 611, 612, 613].map(free_port);
        let (page, store) = (addresses[3], folder.path("store"));
        let config = gateway_toml(&folder, "gateway.toml", &addresses, addresses[2], &store);
        let text = format!("{}[web]\naddress = \"{page}\"\n", fs::read_to_string(&config).unwrap());
        fs::write(&config, text).unwrap();
        let exchange = Running::start(&["exchange", "serve", &orders_toml(&folder, &addresses)]);
        let gateway = Running::start(&["gateway", &config]);
        let is_ready = || get(page, "/ready").is_some_and(|page| page.starts_with("HTTP/1.1 200"));
        support::wait_for(is_ready);
        let mut trader = Trader::connect(addresses[2], "ALPHA");
        for _ in 0..=rounds.below(50) {
            assert_eq!(trader.order("new AAPL buy 100 @100").0, "0");
        }
        harm(&folder, &store);
        trader.order_until("new AAPL buy 100 @99", why, |_, text| text == "Trading is halted");
        let seen = get(page, "/ready").unwrap();
        assert!(seen.starts_with("HTTP/1.1 503") && seen.contains(why), "{seen}");
        assert_eq!(status(page).unwrap()["is_halted"], true);
        // Nobody can let orders pass again, and cancels pass.
        let resumed = run(&["gateway", "resume", &config]);
        assert_eq!(resumed.status.code(), Some(1), "{}", stderr(&resumed));
        assert!(stderr(&resumed).contains("409: the store is gone"), "{}", stderr(&resumed));
        trader.send("cancel ALPHA-1");
        assert_eq!(trader.report().0, "4");
        drop(gateway);
        // The next start begins a new store where there is none, and says so. A copy lacks what came after it, and is refused.
        let begun = run(&["gateway", &config, "--seconds", "100ms"]);
        let (code, what) = if *is_lost { (0, " is new") } else { (1, "cut off before record") };
        is_sound(&begun, &stderr(&begun), &[code], "the next start");
        assert!(stderr(&begun).contains(what), "{}", stderr(&begun));
        exchange.stop();
    }
}

#[test]
fn a_store_whose_end_was_cut_off_stops_each_start() {
    let mut rounds = Rounds::new(15, 4);
    let folder = Folder::new("hostile-cut-store");
    let addresses = [620, 621, 622, 623].map(free_port);
    let (store, cut) = (folder.path("store"), folder.path("cut"));
    let config = gateway_toml(&folder, "gateway.toml", &addresses, addresses[2], &store);
    let of_cut = gateway_toml(&folder, "cut.toml", &addresses, addresses[3], &cut);
    let exchange = Running::start(&["exchange", "serve", &orders_toml(&folder, &addresses)]);
    let mut gateway = start(&["gateway", &config]);
    said(&mut gateway, "orders pass");
    let listen = addresses[2].to_string();
    let traded = run(&["fix", &listen, "--comp-id", "ALPHA", "--rate", "200", "--seconds", "1s"]);
    assert_eq!(traded.status.code(), Some(0), "{}", stderr(&traded));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    let mut round = 0;
    while rounds.next() {
        let _fresh = fs::remove_dir_all(&cut);
        fs::create_dir_all(&cut).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in &names {
            fs::copy(Path::new(&store).join(name), Path::new(&cut).join(name)).unwrap();
        }
        let last = names.iter().rfind(|name| name.to_string_lossy().ends_with(".journal")).unwrap();
        let last = Path::new(&cut).join(last);
        let mut bytes = fs::read(&last).unwrap();
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |place| place + 1);
        // To half, to nothing, away, or somewhere before the half.
        let length = [written / 2, 0, 0, rounds.below(written / 2)][round % 4];
        bytes.truncate(length);
        match round % 4 {
            2 => fs::remove_file(&last).unwrap(),
            _ => fs::write(&last, &bytes).unwrap(),
        }
        round += 1;
        let what = format!("seed {}: cut to {length} of {written} bytes", rounds.seed);
        for _ in 0..2 {
            let (output, errors) = run_quietly(&["gateway", &of_cut, "--seconds", "300ms"], &folder);
            is_sound(&output, &errors, &[1], &what);
            assert!(errors.contains(&cut), "{what}: {errors}");
        }
        let verified = run(&["gateway", "store", "verify", &cut]);
        is_sound(&verified, &stderr(&verified), &[1, 3], &what);
    }
    exchange.stop();
}
