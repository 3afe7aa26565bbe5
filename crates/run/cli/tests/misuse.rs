//! Whatever goes wrong: one clear line on standard error, the right exit code, no panic, nothing lost silently.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::Read as _;
use std::process::Stdio;

#[cfg(unix)]
use support::interrupt_once;
use support::{Folder, assert_one_error, command, root, run, stderr, stdout};

const CAPTURE: &str = "testdata/captures/nasdaq-itch50/Multiple.Packets.pcap";

fn content(name: &str) -> Vec<u8> {
    std::fs::read(root().join(name)).unwrap()
}

/// The commands that read captures.
const READERS: [&str; 4] = ["dump", "stats", "study", "replay"];

#[test]
fn levels_that_a_file_of_orders_cannot_hold_are_named_with_the_schemas_that_have_them() {
    let folder = Folder::new("levels");
    let (capture, csv) = (folder.path("deep.pcap"), folder.path("x.csv"));
    let generate = ["exchange", "generate", "--venues", "iex-deep", "--messages", "2000", "--symbols", "5"];
    assert!(run(&[&generate[..], &["--out", &capture]].concat()).status.success());
    let text = stdout(&run(&["replay", &capture, "--out", &csv]));
    assert!(text.contains("updates of price levels and quotes were left out; mbp-1, mbp-10"), "{text}");
    assert!(!text.contains("Everything was understood"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&run(&["replay", &capture, "--out", &csv, "--force", "--json"])))
            .unwrap();
    let skipped = json["written"][0]["skipped"]["skipped_not_order_by_order"].as_u64().unwrap();
    assert!(
        skipped > 500 && json["lacking"][0].as_str().unwrap().contains(&format!(" {skipped} ")),
        "{json}"
    );
    let text = stdout(&run(&["replay", &capture, "--schema", "mbp-10", "--out", &csv, "--force"]));
    assert!(text.contains("Everything was understood; nothing is missing."), "{text}");
}

#[test]
fn a_missing_file_is_named() {
    for reader in READERS {
        assert_one_error(&run(&[reader, "nowhere.pcap"]), 1, "nowhere.pcap: no such file");
    }
}

#[test]
fn a_directory_is_named() {
    for reader in READERS {
        assert_one_error(&run(&[reader, "testdata"]), 1, "testdata: is a directory");
    }
    for reader in [&["validate"][..], &["exchange", "check"], &["gateway", "check"], &["flow", "check"]] {
        assert_one_error(&run(&[reader, &["testdata"]].concat()), 78, "testdata: is a directory");
    }
}

#[test]
fn an_empty_file_is_named() {
    let folder = Folder::new("empty");
    let file = folder.write("empty.pcap", &[]);
    for reader in READERS {
        assert_one_error(&run(&[reader, &file]), 1, "is empty");
    }
}

#[test]
fn a_wrong_magic_is_reported_with_the_first_bytes() {
    let folder = Folder::new("magic");
    let file = folder.write("noise.pcap", b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    for reader in READERS {
        assert_one_error(&run(&[reader, &file]), 1, "47 45 54 20");
    }
}

#[test]
fn a_truncated_file_is_read_up_to_there() {
    let folder = Folder::new("truncated");
    let bytes = content(CAPTURE);
    let file = folder.write("cut.pcap", &bytes[..bytes.len() - 100]);
    for reader in READERS {
        assert_one_error(&run(&[reader, &file]), 3, "packet 2");
    }
    assert_eq!(
        stdout(&run(&["dump", "--json", &file])).lines().count(),
        1,
        "the whole packet before is there"
    );
}

#[test]
fn a_packet_cut_by_the_capture_shows_its_whole_messages() {
    let folder = Folder::new("cut-packet");
    let mut bytes = content(CAPTURE);
    // The second record: its captured length says 300 bytes less than the packet had.
    let first = u32::from_le_bytes(bytes[32..36].try_into().unwrap()) as usize;
    let record = 24 + 16 + first;
    let length = u32::from_le_bytes(bytes[record + 8..record + 12].try_into().unwrap());
    bytes[record + 8..record + 12].copy_from_slice(&(length - 300).to_le_bytes());
    bytes.truncate(bytes.len() - 300);
    let file = folder.write("short.pcap", &bytes);
    let output = run(&["dump", "--json", &file]);
    assert_one_error(&output, 3, "could not be read");
    let text = stdout(&output);
    assert!(text.contains("the capture kept"), "{text}");
    assert!(text.lines().filter(|line| line.contains("\"AddOrder\"")).count() > 25, "{text}");
    let stats = run(&["stats", "--json", &file]);
    assert_eq!(stats.status.code(), Some(3));
    let study = run(&["study", "--json", &file]);
    assert_eq!(study.status.code(), Some(3));
    let study: serde_json::Value = serde_json::from_str(&stdout(&study)).unwrap();
    assert_eq!(study["problems"], 1, "the cut packet, not its cut message once more");
    assert_eq!(run(&["replay", &file]).status.code(), Some(3));
}

#[test]
fn an_unknown_message_is_shown_and_the_rest_goes_on() {
    let folder = Folder::new("unknown-message");
    let mut bytes = content(CAPTURE);
    let at = bytes.windows(6).rposition(|window| window[..3] == [0, 36, b'A']).unwrap();
    bytes[at + 2] = b'z';
    let file = folder.write("new.pcap", &bytes);
    let output = run(&["dump", "--json", &file]);
    assert_one_error(&output, 3, "1 place could not be read; 39 messages could");
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 39);
    assert!(text.contains("\"message\":null,\"error\":\"unknown message type 'z' (0x7a)\""), "{text}");
    let stats: serde_json::Value = serde_json::from_str(&stdout(&run(&["stats", "--json", &file]))).unwrap();
    assert_eq!(stats["unknown_types"][0]["count"], 1);
    assert_eq!(stats["messages"], 39);
    let study: serde_json::Value = serde_json::from_str(&stdout(&run(&["study", "--json", &file]))).unwrap();
    assert_eq!((&study["messages"], &study["problems"]), (&39.into(), &1.into()));
}

#[test]
fn an_unknown_protocol_in_a_capture_is_shown() {
    let folder = Folder::new("unknown-protocol");
    let mut bytes = content("testdata/captures/nasdaq-itch50/OrderDeleteMessage.pcap");
    let end = bytes.len();
    bytes[end - 41..].fill(0xFF);
    let file = folder.write("other.pcap", &bytes);
    let output = run(&["dump", &file]);
    assert_eq!(output.status.code(), Some(3));
    let errors = stderr(&output);
    assert!(errors.contains("not one of its 1 packets has a known protocol"), "{errors}");
    assert!(errors.contains("1 place could not be read") && errors.lines().count() == 2, "{errors}");
    assert!(stdout(&output).contains("no known protocol"), "{}", stdout(&output));
    let study = run(&["study", &file]);
    assert_eq!(study.status.code(), Some(3), "{}", stderr(&study));
    let text = stdout(&study);
    assert!(text.contains("0 gaps, 0 messages missing; 1 place unreadable; 1 file without"), "{text}");
    assert!(text.contains("There are no messages."), "{text}");
}

#[test]
fn a_study_of_a_capture_with_a_gap_reports_the_gap() {
    let studied = run(&["study", "--no-measure", CAPTURE]);
    assert_eq!(studied.status.code(), Some(3), "{}", stderr(&studied));
    let text = stdout(&studied);
    assert!(text.contains("1 gap, 4,244,620 messages missing; 0 places unreadable."), "{text}");
    let output = run(&["study", "--no-measure", "--json", CAPTURE]);
    let study: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&study["gaps"], &study["missing_messages"]), (&1.into(), &4_244_620.into()));
}

#[test]
fn a_study_of_no_message_gives_the_reason() {
    let folder = Folder::new("no-message");
    let session = folder.path("session.itch");
    let venue = ["exchange", "generate", "--scenario", "session", "--venues", "nasdaq"];
    run(&[&venue[..], &["--messages", "5000", "--symbols", "5", "--out", &session]].concat());
    let output = run(&["study", "--no-measure", &session, "--from", "2025-11-14T09:30-05:00"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("None of 5,000 messages is studied: 5,000 outside of --from and --to"), "{text}");
    assert!(text.contains("nanoseconds since midnight"), "{text}");
    let output = run(&["study", "--no-measure", CAPTURE, "--to", "2000-01-01T00:00Z"]);
    let text = stdout(&output);
    assert!(text.contains("None of 39 messages is studied: 39 outside"), "{text}");
    assert!(!text.contains("midnight"), "{text}");
    let output = run(&["study", "--no-measure", "--json", CAPTURE, "--to", "2000-01-01T00:00Z"]);
    let study: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&study["messages"], &study["messages_outside"]), (&0.into(), &39.into()));
}

#[test]
fn a_file_of_messages_is_read_as_no_other_protocol() {
    let folder = Folder::new("other-protocol");
    let file = folder.path("2025-11-14.itch");
    let small = ["--venues", "nasdaq", "--messages", "2000", "--symbols", "3"];
    let made = run(&[&["exchange", "generate", "--out", &file], &small[..]].concat());
    assert!(made.status.success(), "{}", stderr(&made));
    for command in ["dump", "stats", "replay"] {
        let other = run(&[command, "--protocol", "memoir", &file]);
        assert_one_error(&other, 1, "carries ITCH, not memoir");
        assert!(run(&[command, "--protocol", "itch", &file]).status.success(), "{command}");
    }
    for command in ["dump", "stats"] {
        let session = run(&[command, "--protocol", "cboe-grp", &file]);
        assert_one_error(&session, 1, "carries ITCH, not cboe-grp");
    }
}

#[test]
fn unknown_names_are_wrong_usage() {
    assert_one_error(&run(&["dump", "--protocol", "utdf", CAPTURE]), 2, "unknown protocol");
    assert_one_error(&run(&["dump", "--protocol", "utdf", CAPTURE]), 2, "cboe-grp");
    assert_one_error(&run(&["dump", "--protocol", "moldudp64", CAPTURE]), 2, "is a transport");
    assert_one_error(&run(&["dump", "--protocol", "ouch", CAPTURE]), 2, "is recognised by itself");
    assert_one_error(&run(&["replay", "--protocol", "cboe-grp", CAPTURE]), 2, "'tapeworks dump'");
    assert_one_error(&run(&["dump", "--message", "NoSuch", CAPTURE]), 2, "NoSuch");
    assert_one_error(&run(&["schema", "utdf"]), 2, "unknown protocol 'utdf'");
    assert_one_error(&run(&["replay", "--schema", "mbp-2", CAPTURE]), 2, "mbp-2");
    assert_one_error(&run(&["replay", "--out", "x.txt", CAPTURE]), 2, "x.txt");
    let other = ["replay", "--protocol", "integrated", "--venue", "edgx", CAPTURE];
    assert_one_error(&run(&other), 2, "Cboe EDGX does not speak NYSE Integrated 2.5; nyse, arca, american,");
    assert_one_error(&run(&["replay", "--speed", "fast", CAPTURE]), 2, "fast");
    assert_one_error(&run(&["replay", "--from", "noon", CAPTURE]), 2, "noon");
    assert_one_error(&run(&["exchange", "generate", "--out", "x.txt"]), 2, ".pcap or .itch");
    assert_one_error(&run(&["dump"]), 2, "<FILE>");
    assert_one_error(&run(&["dump", "--jsn", CAPTURE]), 2, "--json");
    assert_one_error(&run(&["dmp"]), 2, "dump");
}

#[test]
fn every_command_refuses_an_argument_that_it_does_not_know() {
    let folder = Folder::new("one-judgement");
    let mut files: Vec<String> =
        support::captures().into_iter().filter(|name| name.contains("ouch50")).collect();
    assert!(files.len() >= 4, "{files:?}");
    // The same with a message of no type that is known.
    for (name, message) in [
        ("CancelOrderMessage", b"UX\0"),
        ("CanceledMessage", b"SC\0"),
        ("EnterOrderMessage", b"UO\0"),
        ("OrderAcceptedMessage", b"SA\0"),
    ] {
        let mut bytes = content(&format!("testdata/captures/nasdaq-ouch50/{name}.pcap"));
        let place = bytes.windows(3).rposition(|window| window == message).unwrap();
        bytes[place + 1] = b'~';
        files.push(folder.write(&format!("{name}.pcap"), &bytes));
    }
    // The capture kept all but the last bytes of each frame, which the datagram in it does not need.
    let mut bytes = content("testdata/captures/nasdaq-itch50/AddOrderNoMpidAttributionMessage.pcap");
    let original = u32::from_le_bytes(bytes[36..40].try_into().unwrap());
    bytes[36..40].copy_from_slice(&(original + 4).to_le_bytes());
    files.push(folder.write("snapped.pcap", &bytes));
    let mut with_problems = 0;
    for file in &files {
        let codes = ["replay", "stats", "dump"].map(|command| run(&[command, file]).status.code());
        assert_eq!(codes, [codes[0]; 3], "{file}");
        let text = stdout(&run(&["replay", file]));
        assert_eq!(text.contains("Everything was understood"), codes[0] == Some(0), "{file}: {text}");
        with_problems += usize::from(codes[0] == Some(3));
    }
    assert!(with_problems >= 5, "{with_problems} of {files:?}");
}

#[test]
fn no_message_has_no_mean() {
    let heartbeat = "testdata/captures/iex-deep/Heartbeat.pcap";
    let text = stdout(&run(&["replay", heartbeat]));
    assert!(text.starts_with("0 messages, 0 events, 0 instruments in ") && !text.contains("mean"), "{text}");
    let summary: serde_json::Value =
        serde_json::from_str(&stdout(&run(&["replay", "--json", heartbeat]))).unwrap();
    assert!(summary["mean_ns_per_message"].is_null(), "{summary}");
}

#[test]
fn flags_that_request_nothing_are_refused() {
    for command in ["replay", "dump"] {
        let output = run(&[command, CAPTURE, "--symbols", "META,NONE,NADA"]);
        assert_one_error(&output, 3, "no message is about NADA, NONE");
        let seen = run(&[command, CAPTURE, "--symbols", "META"]);
        assert!(!stderr(&seen).contains("no message is about"), "{}", stderr(&seen));
    }
    for command in ["replay", "study"] {
        let window = ["--from", "2023-08-22T14:00Z", "--to", "2023-08-22T13:00Z"];
        assert_one_error(&run(&[&[command, CAPTURE][..], &window].concat()), 2, "--from must be before --to");
    }
    assert_one_error(&run(&["replay", CAPTURE, "--schema", "mbo"]), 2, "--out");
}

#[test]
fn a_generated_session_has_the_requested_size_and_venues() {
    let folder = Folder::new("requested");
    let path = folder.path("x.pcap");
    let generate = |more: &[&str]| {
        run(&[&["exchange", "generate", "--json", "--force", "--out", &path][..], more].concat())
    };
    for (wanted, venues) in
        [(100u64, "nasdaq"), (1_000, "nasdaq,bx,psx,iex-deep"), (20_000, "nasdaq,iex-deep")]
    {
        let output = generate(&["--messages", &wanted.to_string(), "--venues", venues]);
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let made = report["messages"].as_u64().unwrap();
        let most = wanted + wanted / 50 + 100 * venues.split(',').count() as u64;
        assert!((wanted * 9 / 10..=most).contains(&made), "{wanted}: {made}");
    }
    let output = generate(&["--messages", "1000", "--symbols", "300"]);
    assert_one_error(
        &output,
        0,
        "messages, not 1,000: the start of the day takes about five for each of 300 symbols",
    );
    for flag in ["--loss", "--duplicates", "--reorder"] {
        assert_one_error(&generate(&[flag, "2000000"]), 2, "2000000 packets per million");
    }
}

#[test]
fn a_duration_is_at_most_365_days() {
    for flag in [
        &["top", "--interval"][..],
        &["subscribe", "--seconds"],
        &["tap", "/nowhere", "--seconds"],
        &["plant", "nowhere.toml", "--seconds"],
        &["demo", "--seconds"],
        &["study", CAPTURE, "--window"],
        &["study", CAPTURE, "--service-ns"],
    ] {
        for value in ["nan", "inf", "-1", "1e300", "99999999999999999999", "5 years", ""] {
            let output = run(&[flag, &[value]].concat());
            assert_one_error(&output, 2, "from ");
            assert!(stderr(&output).contains("use a number of "), "{}", stderr(&output));
        }
    }
    assert_one_error(&run(&["tap", "/nowhere", "--seconds", "500ms"]), 1, "/nowhere");
}

#[test]
fn a_count_is_a_whole_number() {
    for flag in
        [&["replay", CAPTURE, "--limit"][..], &["dump", CAPTURE, "--limit"], &["subscribe", "--limit"]]
    {
        for (value, hint) in [
            ("-1", "for '--limit <N>': use a whole number"),
            ("x", "for '--limit <N>': use a whole number"),
            ("99999999999999999999", "for '--limit <N>': use a smaller whole number"),
        ] {
            assert_one_error(&run(&[flag, &[value]].concat()), 2, hint);
        }
    }
}

#[test]
fn two_outputs_of_one_name_are_wrong_usage_and_write_nothing() {
    let folder = Folder::new("same-name");
    let csv = folder.path("a.csv");
    // The same file, spelled in another way.
    let again = folder.path("./a.csv");
    let pattern = folder.path("x.{schema}.csv");
    for outputs in [
        &["--schema", "mbo,trades", "--out", &csv, "--out", &csv][..],
        &["--schema", "mbo,trades", "--out", &csv, "--out", &again],
        &["--schema", "mbo,mbo", "--out", &pattern],
    ] {
        assert_one_error(&run(&[&["replay", CAPTURE][..], outputs].concat()), 2, "twice");
    }
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}

#[test]
fn an_unwritable_output_is_named() {
    let session = ["exchange", "generate", "--messages", "5000", "--symbols", "5", "--out"];
    assert_one_error(
        &run(&[&session[..], &["/nowhere/x.pcap"]].concat()),
        1,
        "/nowhere/x.pcap: cannot be created",
    );
    assert_one_error(&run(&["replay", CAPTURE, "--out", "/nowhere/x.csv"]), 1, "/nowhere/x.csv");
    assert_one_error(
        &run(&["study", CAPTURE, "--no-measure", "--svg", "/nowhere/x.svg"]),
        1,
        "/nowhere/x.svg",
    );
}

#[test]
fn a_file_that_exists_is_replaced_only_by_force() {
    let folder = Folder::new("exists");
    let csv = folder.write("out.csv", b"mine");
    assert_one_error(&run(&["replay", CAPTURE, "--out", &csv]), 1, "--force");
    assert_eq!(std::fs::read(&csv).unwrap(), b"mine");
    let output = run(&["replay", CAPTURE, "--out", &csv, "--force"]);
    // The capture has a gap of its own.
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(std::fs::read_to_string(&csv).unwrap().starts_with("ts_recv"));
    assert_eq!(folder.files(), ["out.csv"], "nothing partial is left");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    for arguments in [&["dump", CAPTURE][..], &["stats", CAPTURE], &["schema", "itch"], &["replay", CAPTURE]]
    {
        let output = command(arguments).stdout(full()).output().unwrap();
        assert_one_error(&output, 1, "No space left on device");
    }
    let folder = Folder::new("full");
    let link = folder.path("full.pcap");
    std::os::unix::fs::symlink("/dev/full", &link).unwrap();
    let output = run(&["exchange", "generate", "--messages", "50000", "--symbols", "5", "--out", &link]);
    assert_one_error(&output, 1, "No space left on device");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let folder = Folder::new("pipe");
    let session = folder.path("session.pcap");
    run(&["exchange", "generate", "--messages", "50000", "--symbols", "20", "--out", &session]);
    let mut child =
        command(&["dump", &session]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[cfg(unix)]
#[test]
fn a_study_of_a_pipe_reads_it_once() {
    let folder = Folder::new("study-pipe");
    let session = folder.path("session.pcap");
    // Larger than what is read of it to recognise it.
    run(&[
        "exchange",
        "generate",
        "--scenario",
        "close",
        "--messages",
        "50000",
        "--symbols",
        "20",
        "--out",
        &session,
    ]);
    let whole = stdout(&run(&["study", "--json", "--no-measure", &session]));
    for name in ["/dev/stdin", "-"] {
        let mut cat = std::process::Command::new("cat").arg(&session).stdout(Stdio::piped()).spawn().unwrap();
        let piped = command(&["study", "--json", name]).stdin(cat.stdout.take().unwrap()).output().unwrap();
        cat.wait().unwrap();
        assert_eq!(piped.status.code(), Some(0), "{}", stderr(&piped));
        assert!(stdout(&piped) == whole, "{name}: {:.300}", stdout(&piped));
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_replay_and_keeps_the_records_written_so_far() {
    let folder = Folder::new("interrupt");
    let session = folder.path("session.pcap");
    run(&["exchange", "generate", "--messages", "20000", "--symbols", "20", "--out", &session]);
    let csv = folder.path("out.csv");
    // The session is a day long: at its own pace the replay would take as long.
    let child = command(&["replay", &session, "--speed", "1x", "--out", &csv])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It is under way once its output has begun.
    let partial = format!("{csv}.partial");
    let output = interrupt_once(child, || std::path::Path::new(&partial).exists());
    assert_one_error(&output, 130, "stopped");
    let text = stdout(&output);
    assert!(text.contains("Stopped before the end of the input") && !text.contains("Everything"), "{text}");
    assert!(std::fs::read_to_string(&csv).unwrap().starts_with("ts_recv"), "complete up to there");
    assert!(!std::path::Path::new(&partial).exists());
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_generation_of_a_session_and_leaves_no_part_of_it() {
    let folder = Folder::new("interrupt-generation");
    for arguments in [
        // More messages than anybody waits for.
        &["demo", "--messages", "500000000", "--out", &folder.path("")][..],
        &["study", "--generate", "close"],
    ] {
        let child = command(arguments)
            .env("TMPDIR", folder.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = interrupt_once(child, || folder.files().iter().any(|file| file.contains(".pcap")));
        assert_one_error(&output, 130, "stopped");
        assert!(!folder.files().iter().any(|file| file.contains(".pcap")), "{:?}", folder.files());
    }
}

/// The greatest size of a file stands for a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_no_part_of_a_generated_session() {
    let folder = Folder::new("full-session");
    for arguments in ["demo --messages 200000 --out .", "study --generate close"] {
        let limited =
            format!("trap '' XFSZ; ulimit -f 1000; exec {} {arguments}", env!("CARGO_BIN_EXE_tapeworks"));
        let output = std::process::Command::new("sh")
            .args(["-c", &limited])
            .current_dir(folder.path(""))
            .env("TMPDIR", folder.path(""))
            .output()
            .unwrap();
        assert_one_error(&output, 1, "cannot write");
        assert!(!folder.files().iter().any(|file| file.contains(".pcap")), "{:?}", folder.files());
    }
}

#[test]
fn an_unknown_schema_is_wrong_usage_before_anything_is_connected() {
    for arguments in [
        &["subscribe", "--schema", "nonsense"][..],
        &["replay", CAPTURE, "--schema", "nonsense", "--out", "x.csv"],
    ] {
        assert_one_error(&run(arguments), 2, "unknown schema 'nonsense'");
    }
}

/// The program that runs queries is not installed here.
#[test]
fn the_flags_of_a_query_are_shown_without_its_program() {
    for help in ["--help", "-h"] {
        let output = command(&["query", help]).env("PATH", "").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains("--memory <MB>"), "{}", stdout(&output));
    }
}

#[test]
fn help_and_version_are_answers() {
    for arguments in [&["--help"][..], &["dump", "--help"], &["--version"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("tapeworks"), "{}", stdout(&output));
    }
    assert_eq!(run(&[]).status.code(), Some(2), "a command is required");
}

/// It was sound, and the plant started without a word: its clients' own TLS refused it.
#[cfg(feature = "tls")]
#[test]
fn a_plant_or_gateway_with_an_expired_certificate_is_not_sound() {
    let folder = Folder::new("expired");
    let certificate = |name: &str, ends_s: u64| {
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(ends_s);
        let key = rcgen::KeyPair::generate().unwrap();
        folder.write(&format!("{name}.pem"), params.self_signed(&key).unwrap().pem().as_bytes());
        folder.write(&format!("{name}.key"), key.serialize_pem().as_bytes());
        format!("certificate = \"{name}.pem\"\nprivate_key = \"{name}.key\"\n")
    };
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let plant = |name: &str, tls: &str| {
        let text = format!(
            "[[venue]]\nname = \"A\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = [\"239.197.255.1:21001\"]\n\
             [clients]\nlisten = \"127.0.0.1:0\"\n{tls}\
             dataset = [{{ name = \"TAPEWORKS.DEMO\" }}]\nkey = [{{ name = \"me\", key = \"db-TapeworksDemoKey0000000000000\" }}]\n"
        );
        folder.write(name, text.as_bytes())
    };
    let expired = certificate("expired", 1_577_836_800);
    let old = plant("old.toml", &expired);
    let says = "clients.certificate: the certificate expired at 2020-01-01T00:00:00Z";
    assert_one_error(&run(&["validate", &old]), 78, says);
    // It serves nevertheless: the certificate may be replaced while it runs.
    let output = run(&["plant", &old, "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "the certificate expired at 2020-01-01T00:00:00Z";
    assert_eq!(stderr(&output).matches(expected).count(), 1, "{}", stderr(&output));

    let gateway = format!(
        "listen = \"127.0.0.1:0\"\n[store]\nfolder = \"store\"\n\
         [venue]\nprotocol = \"millennium\"\nreal_time = \"127.0.0.1:1\"\nrecovery = \"127.0.0.1:1\"\nuser = \"TW01\"\npassword = \"password\"\n\
         [[instrument]]\nsymbol = \"AAPL\"\nid = 1\n[[client]]\nname = \"alpha\"\ncomp_id = \"ALPHA\"\n[tls]\n{expired}"
    );
    let gateway = folder.write("gateway.toml", gateway.as_bytes());
    let says = "tls.certificate: the certificate expired at 2020-01-01T00:00:00Z";
    assert_one_error(&run(&["gateway", "check", &gateway]), 78, says);

    let soon = plant("soon.toml", &certificate("soon", now_s + 86_400));
    let output = run(&["validate", &soon]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("clients.certificate: the certificate expires at 2"),
        "{}",
        stderr(&output)
    );
    let sound = run(&["validate", &plant("sound.toml", &certificate("sound", now_s + 30 * 86_400))]);
    assert_eq!((sound.status.code(), stderr(&sound).as_str()), (Some(0), ""));

    let lacking = plant("lacking.toml", "certificate = \"none.pem\"\nprivate_key = \"none.key\"\n");
    assert_one_error(&run(&["validate", &lacking]), 78, "none.pem: no certificate can be read");
}
