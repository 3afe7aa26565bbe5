//! Tests of the kernel: threads, channels, parking, polls, kills and power losses.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mio::{Interest, Token};
use tapeworks_disk::{Access, Disk, DiskFile};
use tapeworks_runtime::world::{
    BlockingStream, Listener, Poll, Receive, SendTo, Source, ThreadHandle, Unpark, Wake, World,
};

use super::*;

type W = Simulated;

fn options(seed: u64) -> RunOptions {
    RunOptions { seed, epoch_ns: 1_763_130_600_000_000_000, schedule: Schedule::default(), keeps_trace: true }
}

/// Runs `main` with this seed. Returns the lines that it logged.
fn logged(seed: u64, main: impl FnOnce(&dyn Fn(String)) + Send + 'static) -> (Vec<String>, Ended) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&log);
    let ended = run(&options(seed), move || main(&|line| its.lock().unwrap().push(line)));
    let log = std::mem::take(&mut *log.lock().unwrap());
    (log, ended)
}

#[test]
fn threads_take_turns_and_equal_seeds_give_equal_runs() {
    let scene = |seed| {
        logged(seed, |log| {
            let (to, from) = W::channel();
            let workers: Vec<_> = (0..5)
                .map(|number| {
                    let to = to.clone();
                    let work = move || {
                        for item in 0..3 {
                            W::sleep(Duration::from_micros(10));
                            to.send((number, item)).unwrap();
                        }
                    };
                    W::spawn("worker", work).unwrap()
                })
                .collect();
            drop(to);
            while let Ok(item) = from.recv() {
                log(format!("{item:?}"));
            }
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        })
    };
    let (log, ended) = scene(1);
    assert_eq!(log.len(), 15);
    assert!(!ended.is_stuck);
    let (again, ended_again) = scene(1);
    assert_eq!((&log, ended.hash, ended.now_ns), (&again, ended_again.hash, ended_again.now_ns));
    let orders: std::collections::BTreeSet<Vec<String>> = (0..10).map(|seed| scene(seed).0).collect();
    assert!(orders.len() > 1, "the order of equal times is drawn");
}

#[test]
fn a_lost_wake_up_leaves_a_simulation_without_events() {
    let (_, ended) = logged(1, |_| {
        let (_to, from) = W::channel::<u8>();
        // No sender sends, and none is dropped.
        let _never = from.recv();
    });
    assert!(ended.is_stuck);
}

#[test]
fn a_permit_ends_the_next_park_and_a_park_ends_with_its_time() {
    let (log, _) = logged(1, |log| {
        let own = W::current();
        own.unpark();
        let began = W::instant();
        W::park(Duration::from_secs(5));
        log(format!("{}", W::since(began).as_secs()));
        W::park(Duration::from_secs(5));
        log(format!("{}", W::since(began).as_secs()));
        let other = W::spawn("other", move || {
            W::sleep(Duration::from_secs(1));
            own.unpark();
        });
        W::park(Duration::from_secs(5));
        log(format!("{}", W::since(began).as_secs()));
        other.unwrap().join().unwrap();
    });
    assert_eq!(log, ["0", "5", "6"]);
}

#[test]
fn a_killed_process_is_unwound_and_its_calls_have_no_effect() {
    struct Guard(Arc<AtomicU64>);

    impl Drop for Guard {
        fn drop(&mut self) {
            // What a program does when it ends. A killed program does none of it.
            W::sleep(Duration::from_secs(100));
            assert!(W::open(Path::new("/left"), Access::Create).is_err());
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    use std::path::Path;
    let dropped = Arc::new(AtomicU64::new(0));
    let of_process = Arc::clone(&dropped);
    let (log, ended) = logged(1, |log| {
        let host = add_host("one", [10, 0, 0, 2].into());
        let process = start(host, "victim", move || {
            let _guard = Guard(Arc::clone(&of_process));
            let thread = W::spawn("busy", move || {
                let _guard = Guard(of_process);
                loop {
                    W::pause();
                }
            });
            let _never = thread.unwrap().join();
        });
        W::sleep(Duration::from_millis(10));
        kill(process);
        W::sleep(Duration::from_millis(10));
        log(format!("{} {}", has_ended(process), panic_of(process).is_none()));
    });
    assert_eq!(log, ["true true"]);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    assert!(ended.now_ns < 1_000_000_000);
}

#[test]
fn a_panic_is_noted_and_the_other_threads_go_on() {
    let (log, _) = logged(1, |log| {
        let host = add_host("one", [10, 0, 0, 2].into());
        let process = start(host, "victim", || {
            let thread = W::spawn("bad", || panic!("of no use"));
            assert!(thread.unwrap().join().is_err());
            W::sleep(Duration::from_millis(1));
        });
        W::sleep(Duration::from_millis(10));
        log(format!("{} {}", has_ended(process), panic_of(process).unwrap_or_default()));
    });
    assert!(log[0].starts_with("true thread 'bad' panicked") && log[0].contains("of no use"), "{log:?}");
}

#[test]
fn bytes_go_over_tcp_and_a_poll_reports_them() {
    use std::io::{ErrorKind, Read, Write};
    let (log, _) = logged(3, |log| {
        let server = add_host("server", [10, 0, 0, 2].into());
        let address: SocketAddr = "10.0.0.2:900".parse().unwrap();
        set_tcp_pieces(1);
        start(server, "echo", move || {
            let mut listener = <W as World>::Listener::bind(address).unwrap();
            let mut poll = <W as World>::Poll::new(8).unwrap();
            listener.register(&poll, Token(0), Interest::READABLE).unwrap();
            let mut streams = Vec::new();
            let mut ready = Vec::new();
            loop {
                poll.wait(&mut ready, None).unwrap();
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.register(&poll, Token(1), Interest::READABLE).unwrap();
                    streams.push(stream);
                }
                for stream in &mut streams {
                    let mut buffer = [0; 64];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        stream.write_all(&buffer[..read]).unwrap();
                    }
                }
            }
        });
        W::sleep(Duration::from_millis(1));
        let refused =
            <W as World>::BlockingStream::connect("10.0.0.2:901".parse().unwrap(), Duration::from_secs(1));
        log(format!("{:?}", refused.unwrap_err().kind()));
        let nobody =
            <W as World>::BlockingStream::connect("10.0.0.9:900".parse().unwrap(), Duration::from_secs(1));
        log(format!("{:?}", nobody.unwrap_err().kind()));
        let mut stream = <W as World>::BlockingStream::connect(address, Duration::from_secs(1)).unwrap();
        stream.set_time_limits(Some(Duration::from_secs(1)), None).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).unwrap();
        log(String::from_utf8_lossy(&buffer).into_owned());
        assert_eq!(stream.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
    assert_eq!(log, ["ConnectionRefused", "TimedOut", "hello"]);
}

fn set_tcp_pieces(piece: u32) {
    network::set_tcp(network::TcpFaults { piece, ..network::TcpFaults::default() });
}

#[test]
fn a_waker_ends_the_wait_of_a_poll() {
    let (log, _) = logged(1, |log| {
        let mut poll = <W as World>::Poll::new(8).unwrap();
        let waker = poll.waker(Token(7)).unwrap();
        let thread = W::spawn("waker", move || {
            W::sleep(Duration::from_secs(1));
            waker.wake().unwrap();
        });
        let (mut ready, began) = (Vec::new(), W::instant());
        poll.wait(&mut ready, None).unwrap();
        log(format!(
            "{} {:?}",
            W::since(began).as_secs(),
            ready.iter().map(|one| one.token.0).collect::<Vec<_>>()
        ));
        thread.unwrap().join().unwrap();
    });
    assert_eq!(log, ["1 [7]"]);
}

/// Writes two files, one correctly and one without a sync before it gets its name, and then cuts the power.
fn after_power_loss(seed: u64) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let left = Arc::new(Mutex::new((None, None)));
    let its = Arc::clone(&left);
    logged(seed, move |_| {
        use std::path::Path;
        let host = add_host("one", [10, 0, 0, 2].into());
        start(host, "writer", || {
            for (name, is_careful) in [("careful", true), ("careless", false)] {
                let partial = Path::new("/partial");
                let file = W::open(partial, Access::Replace).unwrap();
                file.write_all_at(&[7; 5_000], 0).unwrap();
                if is_careful {
                    file.sync_all().unwrap();
                }
                W::rename(partial, &Path::new("/").join(name)).unwrap();
                if is_careful {
                    W::sync_folder(Path::new("/")).unwrap();
                }
            }
            W::sleep(Duration::from_secs(1_000));
        });
        W::sleep(Duration::from_millis(100));
        power_off(host);
        W::sleep(Duration::from_secs(1));
        power_on(host);
        let reading = start(host, "reader", move || {
            let read = |name: &str| W::read(&Path::new("/").join(name)).ok();
            *its.lock().unwrap() = (read("careful"), read("careless"));
        });
        while !has_ended(reading) {
            W::sleep(Duration::from_millis(1));
        }
    });
    Arc::try_unwrap(left).unwrap().into_inner().unwrap()
}

#[test]
fn synced_bytes_survive_a_power_loss_and_the_rest_may_not() {
    let mut careless = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let (synced, unsynced) = after_power_loss(seed);
        assert_eq!(synced.as_deref(), Some(&[7; 5_000][..]), "seed {seed}");
        careless.insert(unsynced.map(|bytes| (bytes.len(), bytes.iter().filter(|byte| **byte == 7).count())));
    }
    assert!(careless.contains(&None) && careless.contains(&Some((5_000, 5_000))), "{careless:?}");
    assert!(careless.iter().flatten().any(|(_, written)| *written < 5_000), "torn or empty: {careless:?}");
}

#[test]
fn a_removed_file_takes_memory_until_the_disk_knows_and_nobody_has_it_open() {
    let (log, _) = logged(1, |log| {
        use std::path::Path;
        let host = add_host("one", [10, 0, 0, 2].into());
        let (to, from) = W::channel();
        start(host, "writer", move || {
            let (path, root) = (Path::new("/file"), Path::new("/"));
            let file = W::open(path, Access::Replace).unwrap();
            file.write_all_at(&[7; 5_000], 0).unwrap();
            file.sync_all().unwrap();
            W::sync_folder(root).unwrap();
            let say = |what: &str| to.send(format!("{what}: {}", disk::memory_of(host))).unwrap();
            say("written");
            W::remove_file(path).unwrap();
            drop(file);
            say("removed");
            W::sync_folder(root).unwrap();
            say("synced");
            let file = W::open(path, Access::Replace).unwrap();
            file.write_all_at(&[7; 3_000], 0).unwrap();
            W::remove_file(path).unwrap();
            W::sync_folder(root).unwrap();
            let mut bytes = [0; 3_000];
            file.read_full_at(&mut bytes, 0).unwrap();
            say(if bytes == [7; 3_000] { "open" } else { "changed" });
        });
        while let Ok(line) = from.recv() {
            log(line);
        }
    });
    assert_eq!(log, ["written: 10000", "removed: 10000", "synced: 0", "open: 3000"]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 64, ..Default::default() })]

    #[test]
    fn the_disk_does_what_the_systems_disk_does(operations in tapeworks_disk::testing::operations()) {
        let failed = Arc::new(Mutex::new(None));
        let its = Arc::clone(&failed);
        logged(1, move |_| {
            let folder = std::path::Path::new("/test");
            W::create_dir_all(folder).unwrap();
            *its.lock().unwrap() = tapeworks_disk::testing::check::<W>(folder, &operations).err();
        });
        if let Some(error) = failed.lock().unwrap().take() {
            return Err(error);
        }
    }
}
