//! Valid configurations, and every kind of error.

use tapeworks_flow::graph::Edge;
use tapeworks_nic::PacketOptions;

use super::*;

const READER: &str = "\
[[stage]]
name = \"in\"
type = \"capture_reader\"
file = \"Cargo.toml\"
";

const END: &str = "\
[[stage]]
name = \"end\"
type = \"dropper\"
";

/// Returns a flow with one stage of this description between a reader and a dropper.
fn around(stage: &str) -> String {
    format!(
        "{READER}{END}[[stage]]\nname = \"it\"\n{stage}\n[[edge]]\nfrom = \"in\"\nto = \"it\"\n[[edge]]\nfrom = \"it\"\nto = \
         \"end\"\n"
    )
}

fn errors(text: &str) -> Vec<String> {
    parse("flow.toml", text).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn spec(stage: &str) -> Spec {
    match parse("flow.toml", &around(stage)) {
        Ok(config) => config.specs[2].clone(),
        Err(errors) => panic!("{errors:?}"),
    }
}

#[test]
fn a_filter_is_read_with_all_its_keys() {
    let Spec::Filter(predicate) = spec(
        "type = \"filter\"\nmatch = { ip = 4, protocol = [\"tcp\", 17], vlan = [5, \"100-199\"], tagged = true, ethertype = 2048, \
         source = \"10.0.0.0/8\", destination = [\"fd00::/8\", \"1.2.3.4\"], address = \"0.0.0.0/0\", \
         source_mac = \"02:00:00:00:00:01\", destination_mac = [\"02:00:00:00:00:02\"], mac = \"02:00:00:00:00:03\", \
         source_port = 80, destination_port = \"5000-5010\", port = [1, \"2-3\"], length = \"64-128\", multicast = false, \
         expression = \"not arp\", not = { ip = 6 }, any = [{ port = 1 }, { port = 2 }], all = [{ port = 3 }] }",
    ) else {
        panic!("no filter")
    };
    let Predicate::All(parts) = predicate else { panic!("one condition") };
    assert_eq!(parts.len(), 20);
    assert_eq!(parts[1], Predicate::Any(vec![Predicate::Protocol(6), Predicate::Protocol(17)]));
    assert!(parts.contains(&Predicate::Vlan(vec![5..=5, 100..=199])));
    assert!(parts.contains(&Predicate::Not(Box::new(Predicate::Ipv6))));
}

#[test]
fn a_rewriter_is_read_with_all_its_keys() {
    let Spec::Rewriter(steps) = spec(
        "type = \"rewriter\"\nsource = [\"10.0.0.1\", \"fd00::1\"]\ndestination = \"10.0.0.2\"\nsource_port = 1\n\
         destination_port = 2\nsource_mac = \"02:00:00:00:00:01\"\ndestination_mac = \"02:00:00:00:00:02\"\nvlan = 7\n\
         push_vlan = 8\npop_vlan = true",
    ) else {
        panic!("no rewriter")
    };
    let set = Rewrite {
        source_mac: Some([2, 0, 0, 0, 0, 1]),
        destination_mac: Some([2, 0, 0, 0, 0, 2]),
        vlan: Some(7),
        source_port: Some(1),
        destination_port: Some(2),
        ..Rewrite::default()
    };
    let set = set
        .with_source([10, 0, 0, 1].into())
        .with_source("fd00::1".parse().unwrap())
        .with_destination([10, 0, 0, 2].into());
    assert_eq!(steps, Steps { pop_vlan: true, set, push_vlan: Some(8) });
}

/// Returns the flow's only reader, which has this description.
#[track_caller]
fn reader(stage: &str) -> Spec {
    let text = format!("{END}[[stage]]\nname = \"it\"\n{stage}\n[[edge]]\nfrom = \"it\"\nto = \"end\"\n");
    match parse("flow.toml", &text) {
        Ok(config) => config.specs[1].clone(),
        Err(errors) => panic!("{errors:?}"),
    }
}

#[test]
fn a_packet_reader_is_read_with_all_its_keys() {
    let kind = "type = \"packet_reader\"\ninterface = \"lo\"\n";
    assert_eq!(reader(kind), Spec::PacketReader { options: PacketOptions::new("lo"), count: None });
    let all = "block_bytes = 8192\nblocks = 8\nblock_timeout = \"5ms\"\npromiscuous = false\noutgoing = true\ncount = 7";
    let options = PacketOptions {
        interface: "lo".to_owned(),
        block_bytes: 8192,
        blocks: 8,
        block_timeout_ms: 5,
        promiscuous: false,
        outgoing: true,
    };
    assert_eq!(reader(&format!("{kind}{all}")), Spec::PacketReader { options, count: Some(7) });
}

#[test]
fn edges_take_the_defaults_of_the_flow_unless_they_have_their_own() {
    let text = format!(
        "[flow]\nbatch = 8\npacket_bytes = 512\nkind = \"spsc\"\ncapacity = 16\nwait = \"park\"\nwhen_full = \"drop\"\n{READER}{END}\
         [[stage]]\nname = \"f\"\ntype = \"filter\"\nexpression = \"udp\"\n\
         [[edge]]\nfrom = \"in\"\nto = [\"f\", \"end\"]\n\
         [[edge]]\nfrom = \"f.pass\"\nto = \"end\"\nkind = \"queue\"\ncapacity = 4\nwait = \"busy_spin\"\nwhen_full = \"wait\"\n"
    );
    let config = parse("flow.toml", &text).unwrap();
    assert_eq!((config.graph.batch, config.packet_bytes), (8, 512));
    let edge =
        |edge: &Edge| (edge.from, edge.port, edge.to, edge.kind, edge.capacity, edge.wait, edge.when_full);
    let edges: Vec<_> = config.graph.edges.iter().map(edge).collect();
    assert_eq!(
        edges,
        [
            (0, 0, 2, EdgeKind::Spsc, 16, Wait::Park, WhenFull::Drop),
            (0, 0, 1, EdgeKind::Spsc, 16, Wait::Park, WhenFull::Drop),
            (2, 0, 1, EdgeKind::Queue, 4, Wait::BusySpin, WhenFull::Wait),
        ]
    );
}

#[test]
fn every_error_names_line_column_and_the_expected_value() {
    let rewriter = "type = \"rewriter\"\n";
    let filter = "type = \"filter\"\n";
    for (stage, expected) in [
        (
            "type = \"fliter\"\nexpression = \"udp\"",
            "10:8: the type 'fliter' is not known; did you mean 'filter'?",
        ),
        (
            &*format!("{filter}expresion = \"udp\""),
            "11:1: the key 'expresion' is not known; did you mean 'expression'?",
        ),
        (&format!("{filter}expression = \"udp prt 5\""), "11:19: 'prt' follows a whole expression"),
        (&format!("{filter}expression = 5"), "11:14: 'expression' must be a string, not an integer"),
        (&format!("{filter}match = {{ ip = 5 }}"), "11:16: ip is 4 or 6"),
        (&format!("{filter}match = {{ protocol = \"sctp\" }}"), "11:22: 'protocol': 'sctp' is not tcp, udp"),
        (
            &format!("{filter}match = {{ source = \"10.0.0.1/8\" }}"),
            "11:20: 'source': '10.0.0.1/8' has bits behind",
        ),
        (&format!("{filter}match = {{ vlan = 4096 }}"), "11:18: 'vlan': '4096' is not a VLAN identifier"),
        (&format!("{filter}match = {{ port = \"9-1\" }}"), "11:18: 'port': '9-1' is not a port"),
        (&format!("{filter}match = {{ port = [] }}"), "11:18: 'port' is an empty list"),
        (&format!("{filter}match = {{ }}"), "11:9: no condition: everything would pass"),
        (&format!("{filter}match = {{ not = {{ prot = 1 }} }}"), "11:19: the key 'prot' is not known"),
        (filter, "8:1: a filter has match"),
        (
            &format!("{rewriter}destination = \"10.0.0\""),
            "11:15: 'destination': '10.0.0' is not an IP address",
        ),
        (
            &format!("{rewriter}destination = [\"1.1.1.1\", \"2.2.2.2\"]"),
            "11:15: at most one IPv4 and one IPv6",
        ),
        (
            &format!("{rewriter}source_port = 65536"),
            "11:15: 'source_port' must be a whole number from 0 to 65535",
        ),
        (&format!("{rewriter}source_port = -1"), "11:15: 'source_port' must be a whole number"),
        (rewriter, "a rewriter that rewrites nothing"),
    ] {
        let errors_found = errors(&around(stage));
        assert!(errors_found.iter().any(|error| error.contains(expected)), "{expected}: {errors_found:?}");
    }
}

#[test]
fn errors_of_readers_writers_and_edges_are_reported_too() {
    let flow = |more: &str| format!("{READER}{END}{more}");
    let edge = "[[edge]]\nfrom = \"in\"\nto = \"end\"\n";
    for (text, expected) in [
        (String::new(), "flow.toml:1:1: there are no stages"),
        (flow(""), "the output of 'in' leads nowhere"),
        (flow(&format!("{edge}kind = \"inline\"\ncapacity = 5\n")), "12:12: an inline edge has no capacity"),
        (flow(&format!("{edge}capacity = 5\n")), "11:12: an inline edge has no capacity"),
        (flow(&format!("{edge}when_full = \"drop\"\n")), "11:13: an inline edge has no capacity"),
        (format!("[flow]\ncapacity = 5\n{}", flow(edge)), "2:12: every edge is inline"),
        (format!("[flow]\nwhen_full = \"drop\"\n{}", flow(edge)), "2:13: every edge is inline"),
        (flow(&format!("{edge}kind = \"disrupter\"\n")), "did you mean 'disruptor'?"),
        (flow(&format!("{edge}capacity = 0\n")), "'capacity' must be a whole number from 1 to 1048576"),
        (flow("[[edge]]\nfrom = \"in.put\"\nto = \"end\"\n"), "9:8: a port 'put' of 'in' is not known"),
        (
            flow("[[edge]]\nfrom = \"inn\"\nto = \"end\"\n"),
            "9:8: a stage named 'inn' is not known; did you mean 'in'?",
        ),
        (flow("[[edge]]\nto = \"end\"\n"), "8:1: edge lacks the key 'from'"),
        (flow("[edge]\nfrom = \"in\"\n"), "'edge' must be a list of tables: write [[edge]]"),
        (flow(&format!("{edge}{END}")), "12:8: a stage named 'end' is there already"),
        (flow(&format!("{edge}[flow]\nbatch = 0\n")), "'batch' must be a whole number from 1 to 1024"),
        ("[[stage]]\ntype = \"dropper\"\n".into(), "1:1: stage lacks the key 'name'"),
        ("[[stage]]\nname = \"a.b\"\ntype = \"dropper\"\n".into(), "no dot"),
        ("[[stage]]\nname = \"r\"\ntype = \"capture_reader\"\n".into(), "stage lacks the key 'file'"),
        (
            "[[stage]]\nname = \"r\"\ntype = \"capture_reader\"\nfile = \"src\"\n".into(),
            "4:8: src: is a directory",
        ),
        (
            "[[stage]]\nname = \"r\"\ntype = \"capture_reader\"\nfile = \"no.pcap\"\n".into(),
            "4:8: no.pcap: no such file",
        ),
        (
            "[[stage]]\nname = \"r\"\ntype = \"capture_reader\"\nfile = \"a\"\nspeed = 0\n".into(),
            "'speed' must be a number",
        ),
        (
            "[[stage]]\nname = \"w\"\ntype = \"capture_writer\"\nfile = \"a.txt\"\n".into(),
            "neither .pcap nor .pcapng",
        ),
        (
            "[[stage]]\nname = \"w\"\ntype = \"udp_writer\"\nto = \"1.2.3.4\"\n".into(),
            "an address with a port",
        ),
        ("[[stage]]\nname = \"w\"\ntype = \"udp_writer\"\n".into(), "lacks the key 'to'"),
        (
            "[[stage]]\nname = \"w\"\ntype = \"packet_writer\"\n".into(),
            "1:1: stage lacks the key 'interface'",
        ),
        (
            "[[stage]]\nname = \"r\"\ntype = \"packet_reader\"\ninterface = \"lo\"\nblock_bytes = 5000\n"
                .into(),
            "5:15: 'block_bytes' must be a multiple of 4096",
        ),
        (
            "[[stage]]\nname = \"r\"\ntype = \"packet_reader\"\ninterface = \"lo\"\nblock_bytes = 67108864\n"
                .into(),
            "5:15: the ring would take more than 1024 MiB",
        ),
        ("a = ".into(), "1:"),
        ("a = 1\na = 2\n".into(), "not TOML: duplicate key"),
    ] {
        let errors_found = errors(&text);
        assert!(errors_found.iter().any(|error| error.contains(expected)), "{expected}: {errors_found:?}");
    }
}

#[test]
fn a_reader_that_this_build_lacks_is_not_offered() {
    let found = errors("[[stage]]\nname = \"r\"\ntype = \"something else\"\n");
    assert!(found[0].contains("packet_reader, "), "{found:?}");
    assert_eq!(found[0].contains("xdp_reader"), cfg!(feature = "af-xdp"), "{found:?}");
    assert_eq!(found[0].contains("dpdk_reader"), cfg!(feature = "dpdk"), "{found:?}");
}

#[test]
fn two_writers_of_one_file_are_refused() {
    let writer = |name: &str, file: &str| {
        format!(
            "[[stage]]\nname = \"{name}\"\ntype = \"capture_writer\"\nfile = \"{file}\"\n[[edge]]\nfrom = \"in\"\nto = \"{name}\"\n"
        )
    };
    let found = errors(&format!("{READER}{}{}", writer("a", "x.pcap"), writer("b", "./x.pcap")));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("'./x.pcap' is written by 'a' already"), "{found:?}");
}

#[test]
fn buffers_that_would_not_fit_are_refused() {
    let text = format!(
        "[flow]\npacket_bytes = 65536\ncapacity = 1048576\nkind = \"spsc\"\n{READER}{END}[[edge]]\nfrom = \"in\"\nto = \"end\"\n"
    );
    let found = errors(&text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("flow.toml:3:12: 1048768 packet buffers and the rings would take 64.3 GiB"),
        "{found:?}"
    );
    let own = text.replace("capacity = 1048576\n", "") + "capacity = 1048576\n";
    assert!(errors(&own)[0].starts_with("flow.toml:14:12: 1048768 packet buffers"), "{:?}", errors(&own));
}

#[test]
fn an_unreadable_file_is_reported() {
    let found = load(Path::new("nowhere.toml")).unwrap_err();
    assert_eq!(found[0].to_string(), "nowhere.toml: no such file");
}

#[test]
fn nothing_panics_on_any_text() {
    // Truncate a valid file at every position, and change every letter.
    let text = around("type = \"filter\"\nmatch = { any = [{ port = 1 }], not = { vlan = \"1-2\" } }");
    for at in 0..text.len() {
        let _parsed = parse("flow.toml", &text[..at]);
        for letter in ["\"", "{", "[", "\n", "é", "="] {
            let _parsed = parse("flow.toml", &format!("{}{letter}{}", &text[..at], &text[at + 1..]));
        }
    }
}
