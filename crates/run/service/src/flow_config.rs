//! The configuration of a packet flow. Turns a TOML file into a graph and the descriptions of its stages.
//!
//! Errors contain the file, line, column and expected value. They are found in three steps: TOML syntax errors; unknown keys,
//! values of the wrong type or out of range, and names that do not exist; and faults of the graph
//! ([`Graph::faults`](tapeworks_flow::graph::Graph::faults)). Each step reports all its errors, and runs only if the step
//! before found none. Parsing happens once, at startup, so its cost does not matter.

mod network;

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tapeworks_capture::MAX_CAPTURED_BYTES;
use tapeworks_capture::net::rewrite::Rewrite;
use tapeworks_flow::builder::{Builder, DEFAULT_BATCH, DEFAULT_PACKET_BYTES, Flow, Output, Ring, Stage};
use tapeworks_flow::graph::{EdgeKind, MAX_BATCH, MAX_CAPACITY, Place, WhenFull};
use tapeworks_flow::packets::expression;
use tapeworks_flow::packets::filter::{Cidr, Predicate, Side, parse_mac};
use tapeworks_flow::packets::reader::Pace;
use tapeworks_flow::packets::rewriter::Steps;
use tapeworks_flow::packets::writer::{capture_format, why_occupied};
use tapeworks_flow::stages::{KINDS, Spec};
use tapeworks_ring::wait::Wait;
use toml::Spanned;
use toml::de::DeTable;

use tapeworks_runtime::config::{ConfigError, Reading, Section, read_file, read_text};

/// Parses the configuration `text` of a file named `file`.
///
/// # Errors
/// Every error, in the order of the file; at least one. The graph is checked only if the rest is valid.
pub fn parse(file: &str, text: &str) -> Result<Flow, Vec<ConfigError>> {
    parse_for(file, text, true)
}

fn parse_for(file: &str, text: &str, may_run: bool) -> Result<Flow, Vec<ConfigError>> {
    read_text(Reading::new(file, text, may_run), read_document)
}

/// Reads the configuration file at `path`.
///
/// # Errors
/// The same as for [`parse`]. An unreadable file is reported without a line.
pub fn load(path: &Path) -> Result<Flow, Vec<ConfigError>> {
    load_for(path, true)
}

/// Reads the configuration file at `path` for drawing: its output files may already exist.
///
/// # Errors
/// The same as for [`load`].
pub fn load_to_draw(path: &Path) -> Result<Flow, Vec<ConfigError>> {
    load_for(path, false)
}

fn load_for(path: &Path, may_run: bool) -> Result<Flow, Vec<ConfigError>> {
    let file = path.display().to_string();
    parse_for(&file, &read_file(path, &file)?, may_run)
}

/// The keys of rings and queues.
const RING_KEYS: [&str; 3] = ["capacity", "wait", "when_full"];

const INLINE_HAS_NONE: &str =
    "an inline edge has no capacity, wait or when_full: it is a call; kind = \"spsc\" makes it a ring";

/// The defaults of edges.
#[derive(Clone)]
struct EdgeDefaults {
    kind: EdgeKind,
    capacity: usize,
    /// Where the file sets the capacity.
    capacity_span: Option<Range<usize>>,
    wait: Wait,
    when_full: WhenFull,
}

fn read_document(reading: &mut Reading<'_>, document: &Spanned<DeTable<'_>>) -> Flow {
    let mut top = Section::new("the file", document.get_ref(), 0..0);
    let flow = top.table(reading, "flow");
    let stages = top.tables(reading, "stage");
    let edges = top.tables(reading, "edge");
    if stages.is_empty() {
        reading.wrong_at_end("there are no stages; each is a [[stage]] with name and type".to_owned());
    }
    top.refuse_the_rest(reading);

    let mut flow_section = None;
    let mut batch = DEFAULT_BATCH;
    let mut packet_bytes = DEFAULT_PACKET_BYTES;
    let mut packet_bytes_span = None;
    let mut defaults = EdgeDefaults {
        kind: EdgeKind::Inline,
        capacity: 1024,
        capacity_span: None,
        wait: Wait::Backoff,
        when_full: WhenFull::Wait,
    };
    if let Some(mut flow) = flow {
        batch = flow.integer(reading, "batch", 1..=MAX_BATCH).map_or(batch, |(value, _)| value);
        if let Some((value, span)) = flow.integer(reading, "packet_bytes", 64..=MAX_CAPTURED_BYTES) {
            (packet_bytes, packet_bytes_span) = (value, Some(span));
        }
        defaults = read_edge_keys(reading, &mut flow, &defaults);
        flow.refuse_the_rest(reading);
        flow_section = Some(flow);
    }

    let mut builder = Builder::new();
    builder.batch(batch).packet_bytes(packet_bytes);
    let mut stages_read = Vec::new();
    let mut places = Places::default();
    let mut written: HashMap<PathBuf, String> = HashMap::new();
    for stage in stages {
        stages_read.extend(read_stage(reading, stage, &mut builder, &mut places, &mut written));
    }
    let named = |stage: &Stage| (builder.graph().nodes[stage.index()].name.clone(), *stage);
    let stage_of: HashMap<String, Stage> = stages_read.iter().rev().map(named).collect();
    for edge in edges {
        read_edge(reading, edge, &mut builder, &mut places, &defaults, &stage_of);
    }
    let flow = builder.finish_unchecked();
    if let Some(section) = flow_section
        && reading.is_clean()
        && flow.graph.edges.iter().all(|edge| edge.kind == EdgeKind::Inline)
    {
        for key in RING_KEYS.into_iter().filter(|key| section.has(key)) {
            section.wrong_at(
                reading,
                key,
                "every edge is inline, and an inline edge has no capacity, wait or when_full",
            );
        }
    }
    // After an error the graph is incomplete, and its faults would name parts that the file does contain.
    if reading.is_clean() {
        let is_graph_sound = flow.graph.faults().is_empty();
        for fault in flow.faults() {
            match fault.place {
                // A sound graph can still need too much memory for its rings. If the file sets no capacity, the packets are too
                // long.
                Place::Edge(edge) if is_graph_sound => {
                    match places.capacities[edge].clone().or(packet_bytes_span.clone()) {
                        Some(span) => reading.wrong(span, fault.text),
                        None => reading.wrong_at_end(fault.text),
                    }
                }
                Place::Graph => reading.wrong_at_end(fault.text),
                Place::Node(node) => reading.wrong(places.nodes[node].clone(), fault.text),
                Place::Edge(edge) => reading.wrong(places.edges[edge].clone(), fault.text),
            }
        }
    }
    flow
}

/// Where stages and edges are in the file.
#[derive(Default)]
struct Places {
    nodes: Vec<Range<usize>>,
    edges: Vec<Range<usize>>,
    /// Where the capacities of edges are in the file.
    capacities: Vec<Option<Range<usize>>>,
    /// Stages of unknown type, so that edges to them are not reported again.
    unreadable: Vec<String>,
}

fn read_stage(
    reading: &mut Reading<'_>,
    mut stage: Section<'_>,
    builder: &mut Builder,
    places: &mut Places,
    written: &mut HashMap<PathBuf, String>,
) -> Option<Stage> {
    let name = stage.text(reading, "name");
    let kind = stage.text(reading, "type");
    for key in [("name", name.is_none()), ("type", kind.is_none())] {
        if key.1 && !stage.has(key.0) {
            stage.missing(reading, key.0);
        }
    }
    let known_name = name.as_ref().map(|(name, _)| name.clone());
    let Some((kind, kind_span)) = kind else {
        places.unreadable.extend(known_name);
        return None;
    };
    let Some(known) = KINDS.iter().find(|known| known.name == kind) else {
        // Do not suggest a kind that this build lacks.
        let of_features = [("xdp_reader", cfg!(feature = "af-xdp")), ("dpdk_reader", cfg!(feature = "dpdk"))];
        let is_there = |name: &&str| of_features.iter().all(|(kind, is_built)| kind != name || *is_built);
        let known: Vec<&str> = KINDS.iter().map(|known| known.name).filter(is_there).collect();
        reading.unknown(kind_span, &format!("the type '{kind}'"), &kind, &known);
        places.unreadable.extend(known_name);
        return None;
    };
    let wait = if known.accepts.is_empty() {
        stage.choice(reading, "wait", &Wait::ALL, Wait::name).unwrap_or(Wait::Backoff)
    } else {
        Wait::Backoff
    };
    let (name, span) = name.unwrap_or_else(|| (String::new(), stage.span.clone()));
    if name.contains('.') || (name.is_empty() && stage.has("name")) {
        reading.wrong(
            span.clone(),
            "a name has at least one letter and no dot: 'stage.port' names a port".to_owned(),
        );
    }
    let (spec, label) = match kind.as_str() {
        "capture_reader" => read_capture_reader(reading, &mut stage),
        "udp_reader" => network::read_udp_reader(reading, &mut stage),
        "packet_reader" => network::read_packet_reader(reading, &mut stage),
        "xdp_reader" => network::read_xdp_reader(reading, &mut stage, kind_span),
        "dpdk_reader" => network::read_dpdk_reader(reading, &mut stage, kind_span),
        "filter" => read_filter(reading, &mut stage),
        "rewriter" => read_rewriter(reading, &mut stage),
        "capture_writer" => read_capture_writer(reading, &mut stage, &name, written),
        "udp_writer" => network::read_udp_writer(reading, &mut stage),
        "packet_writer" => network::read_packet_writer(reading, &mut stage),
        _ => (Spec::Dropper, String::new()),
    };
    stage.refuse_the_rest(reading);
    places.nodes.push(span);
    Some(builder.stage_with(name, spec, label, wait))
}

fn read_capture_reader(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> (Spec, String) {
    let file = stage.required_text(reading, "file");
    if let Some((file, span)) = &file {
        match std::fs::metadata(file) {
            Ok(metadata) if metadata.is_dir() => {
                reading.wrong(span.clone(), format!("{file}: is a directory, not a capture file"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file != "-" => {
                reading.wrong(
                    span.clone(),
                    format!("{file}: no such file; paths count from the current directory"),
                );
            }
            // Other errors are reported when the file is opened.
            _ => {}
        }
    }
    let speed = stage.number(reading, "speed", 1e-6..=1e9).map(|(speed, _)| speed);
    let repeat = stage.integer(reading, "repeat", 1..=1_000_000_000).map_or(1, |(repeat, _)| repeat as u64);
    let file = file.map_or_else(String::new, |(file, _)| file);
    if file == "-" && repeat > 1 {
        reading
            .wrong(stage.span.clone(), "standard input can be read once only: leave repeat out".to_owned());
    }
    (Spec::CaptureReader { file: file.clone().into(), pace: Pace { speed, repeat } }, file)
}

fn read_capture_writer(
    reading: &mut Reading<'_>,
    stage: &mut Section<'_>,
    name: &str,
    written: &mut HashMap<PathBuf, String>,
) -> (Spec, String) {
    let overwrite = stage.boolean(reading, "overwrite").unwrap_or(false);
    let Some((file, span)) = stage.required_text(reading, "file") else {
        return (Spec::CaptureWriter { file: PathBuf::new(), overwrite }, String::new());
    };
    let path = PathBuf::from(&file);
    let is_special = std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if capture_format(&path).is_none() && !is_special {
        reading.wrong(
            span.clone(),
            format!("'{file}' ends in neither .pcap nor .pcapng, which says the format"),
        );
    }
    if reading.may_run
        && let Some(problem) = why_not_begun(&path, overwrite)
    {
        reading.wrong(span.clone(), problem);
    }
    let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    if let Some(other) = written.insert(absolute, name.to_owned())
        && !is_special
    {
        let problem = format!("'{file}' is written by '{other}' already; join both to one stage");
        reading.wrong(span, problem);
    }
    (Spec::CaptureWriter { file: path, overwrite }, file)
}

/// Returns why a run would refuse to write `path`. The run checks again when it starts.
fn why_not_begun(path: &Path, overwrite: bool) -> Option<String> {
    if let Some(problem) = why_occupied(path, overwrite) {
        return Some(problem);
    }
    if path.exists() {
        return None;
    }
    let file = path.display();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    match std::fs::metadata(folder) {
        Ok(metadata) if !metadata.is_dir() => Some(format!("{file}: {} is not a folder", folder.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let folder = folder.display();
            Some(format!("{file}: there is no folder {folder}; paths count from the current directory"))
        }
        _ => None,
    }
}

fn read_filter(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> (Spec, String) {
    let matched = stage.table(reading, "match");
    let text = stage.text(reading, "expression");
    let label = text.as_ref().map_or_else(|| stage.source(reading, "match"), |(text, _)| text.clone());
    let mut parts = Vec::new();
    if matched.is_none() && text.is_none() && !stage.has("match") && !stage.has("expression") {
        reading.wrong(
            stage.span.clone(),
            "a filter has match = { ... } or expression = \"...\", which says which packets pass".to_owned(),
        );
    }
    parts.extend(text.and_then(|(text, span)| read_expression(reading, &text, span)));
    parts.extend(matched.map(|matched| read_match(reading, matched, 0)));
    let predicate = if parts.len() == 1 { parts.remove(0) } else { Predicate::All(parts) };
    (Spec::Filter(predicate), label)
}

fn read_expression(reading: &mut Reading<'_>, text: &str, span: Range<usize>) -> Option<Predicate> {
    match expression::parse(text) {
        Ok(predicate) => Some(predicate),
        Err(error) => {
            // Skip the quote. In strings with escapes or triple quotes the position is slightly off.
            let at = (span.start + 1 + error.offset).min(span.end.saturating_sub(1));
            reading.wrong(at..at, error.problem);
            None
        }
    }
}

/// Maximum nesting depth of `not`, `any` and `all`.
const MAX_DEPTH: usize = 32;

fn read_match(reading: &mut Reading<'_>, mut matched: Section<'_>, depth: usize) -> Predicate {
    let mut parts = Vec::new();
    if depth > MAX_DEPTH {
        reading.wrong(matched.span, format!("more than {MAX_DEPTH} levels of not, any and all"));
        return Predicate::All(parts);
    }
    if let Some((version, span)) = matched.integer(reading, "ip", 0..=usize::MAX) {
        match version {
            4 => parts.push(Predicate::Ipv4),
            6 => parts.push(Predicate::Ipv6),
            _ => reading.wrong(span, "ip is 4 or 6".to_owned()),
        }
    }
    let protocols = "tcp, udp, icmp, icmp6, igmp or a number from 0 to 255";
    let protocol = matched.each(reading, "protocol", protocols, |text| match text {
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        "icmp6" => Some(58),
        "igmp" => Some(2),
        text => text.parse().ok(),
    });
    parts.extend(protocol.map(|all| Predicate::Any(all.into_iter().map(Predicate::Protocol).collect())));
    let ethertype = matched.each(reading, "ethertype", "a number from 0 to 65535", |text| text.parse().ok());
    parts.extend(ethertype.map(|all| Predicate::Any(all.into_iter().map(Predicate::EtherType).collect())));
    if let Some(is_tagged) = matched.boolean(reading, "tagged") {
        parts.push(if is_tagged { Predicate::Tagged } else { Predicate::Not(Box::new(Predicate::Tagged)) });
    }
    let vlan = matched.each(
        reading,
        "vlan",
        "a VLAN identifier from 0 to 4095, or a range such as \"100-199\"",
        |text| expression::port_range(text).filter(|range| *range.end() < 4096),
    );
    parts.extend(vlan.map(Predicate::Vlan));
    for (key, side) in
        [("source", Side::Source), ("destination", Side::Destination), ("address", Side::Either)]
    {
        let ranges = matched.each_checked(reading, key, |text| text.parse::<Cidr>());
        parts.extend(ranges.map(|ranges| Predicate::Address(side, ranges)));
    }
    for (key, side) in
        [("source_mac", Side::Source), ("destination_mac", Side::Destination), ("mac", Side::Either)]
    {
        let macs = matched.each_checked(reading, key, parse_mac);
        parts.extend(macs.map(|macs| Predicate::Mac(side, macs)));
    }
    for (key, side) in
        [("source_port", Side::Source), ("destination_port", Side::Destination), ("port", Side::Either)]
    {
        let what = "a port from 0 to 65535, or a range such as \"5000-5010\"";
        parts.extend(
            matched
                .each(reading, key, what, expression::port_range)
                .map(|ranges| Predicate::Port(side, ranges)),
        );
    }
    let length =
        matched.each(reading, "length", "a length in bytes, or a range such as \"64-128\"", |text| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last).then_some(Predicate::Length(first..=last))
        });
    parts.extend(length.map(Predicate::Any));
    if let Some(is_multicast) = matched.boolean(reading, "multicast") {
        let multicast = Predicate::Multicast;
        parts.push(if is_multicast { multicast } else { Predicate::Not(Box::new(multicast)) });
    }
    if let Some((text, span)) = matched.text(reading, "expression") {
        parts.extend(read_expression(reading, &text, span));
    }
    if let Some(not) = matched.table(reading, "not") {
        parts.push(Predicate::Not(Box::new(read_match(reading, not, depth + 1))));
    }
    for (key, join) in [("any", Predicate::Any as fn(_) -> _), ("all", Predicate::All)] {
        let inner = matched.tables(reading, key);
        if !inner.is_empty() {
            parts.push(join(inner.into_iter().map(|inner| read_match(reading, inner, depth + 1)).collect()));
        }
    }
    matched.refuse_the_rest(reading);
    if parts.is_empty() && reading.is_clean() {
        reading.wrong(matched.span, "no condition: everything would pass".to_owned());
    }
    if parts.len() == 1 { parts.remove(0) } else { Predicate::All(parts) }
}

fn read_rewriter(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> (Spec, String) {
    let mut set = Rewrite::default();
    let mut words = Vec::new();
    for (key, is_source) in [("source_mac", true), ("destination_mac", false)] {
        let mac = stage.each_checked(reading, key, parse_mac);
        if let Some([mac]) = mac.as_deref() {
            let field = if is_source { &mut set.source_mac } else { &mut set.destination_mac };
            *field = Some(*mac);
            words.push(key.to_owned());
        } else if mac.is_some() {
            stage.wrong_at(reading, key, "one Ethernet address is set, not several");
        }
    }
    for (key, is_source) in [("source", true), ("destination", false)] {
        let what = "an IP address such as 10.0.0.1; one of each version may be given";
        let addresses = stage.each(reading, key, what, |text| text.parse::<IpAddr>().ok());
        let Some(addresses) = addresses else { continue };
        let of_v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
        if of_v4 > 1 || addresses.len() - of_v4 > 1 {
            stage.wrong_at(reading, key, "at most one IPv4 and one IPv6 address are set");
        }
        for address in addresses {
            set = if is_source { set.with_source(address) } else { set.with_destination(address) };
            words.push(format!("{key} {address}"));
        }
    }
    set.source_port = stage.integer(reading, "source_port", 0..=65535).map(|(port, _)| port as u16);
    set.destination_port = stage.integer(reading, "destination_port", 0..=65535).map(|(port, _)| port as u16);
    set.vlan = stage.integer(reading, "vlan", 0..=4095).map(|(vlan, _)| vlan as u16);
    let push_vlan = stage.integer(reading, "push_vlan", 0..=4095).map(|(vlan, _)| vlan as u16);
    let pop_vlan = stage.boolean(reading, "pop_vlan").unwrap_or(false);
    for (name, value) in [
        ("source_port", set.source_port),
        ("destination_port", set.destination_port),
        ("vlan", set.vlan),
        ("push_vlan", push_vlan),
    ] {
        words.extend(value.map(|value| format!("{name} {value}")));
    }
    words.extend(pop_vlan.then(|| "pop_vlan".to_owned()));
    if words.is_empty() && reading.is_clean() {
        reading.wrong(
            stage.span.clone(),
            "a rewriter that rewrites nothing: set source, destination, source_port, destination_port, source_mac, \
             destination_mac, vlan, push_vlan or pop_vlan"
                .to_owned(),
        );
    }
    (Spec::Rewriter(Steps { pop_vlan, set, push_vlan }), words.join(", "))
}

fn read_edge_keys(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    defaults: &EdgeDefaults,
) -> EdgeDefaults {
    let (capacity, capacity_span) = match section.integer(reading, "capacity", 1..=MAX_CAPACITY) {
        Some((capacity, span)) => (capacity, Some(span)),
        None => (defaults.capacity, defaults.capacity_span.clone()),
    };
    EdgeDefaults {
        kind: section.choice(reading, "kind", &EdgeKind::ALL, EdgeKind::name).unwrap_or(defaults.kind),
        capacity,
        capacity_span,
        wait: section.choice(reading, "wait", &Wait::ALL, Wait::name).unwrap_or(defaults.wait),
        when_full: section
            .choice(reading, "when_full", &WhenFull::ALL, WhenFull::name)
            .unwrap_or(defaults.when_full),
    }
}

fn read_edge(
    reading: &mut Reading<'_>,
    mut edge: Section<'_>,
    builder: &mut Builder,
    places: &mut Places,
    defaults: &EdgeDefaults,
    stage_of: &HashMap<String, Stage>,
) {
    let from = edge.names(reading, "from");
    let to = edge.names(reading, "to");
    let mut keys = read_edge_keys(reading, &mut edge, defaults);
    if keys.kind == EdgeKind::Inline {
        // An unknown kind may or may not have them.
        let is_said = edge.source(reading, "kind").trim_matches(['"', '\'']) == EdgeKind::Inline.name();
        for key in RING_KEYS.into_iter().filter(|_| is_said || !edge.has("kind")) {
            if edge.has(key) {
                edge.wrong_at(reading, key, INLINE_HAS_NONE);
            }
        }
        (keys.capacity, keys.capacity_span, keys.when_full) = (0, None, WhenFull::Wait);
    }
    edge.refuse_the_rest(reading);
    let (nodes, unreadable) = (&builder.graph().nodes, &places.unreadable);
    let find = |reading: &mut Reading<'_>, name: &str, span: &Range<usize>| {
        let found = stage_of.get(name).copied();
        if found.is_none() && !unreadable.iter().any(|stage| stage == name) {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            reading.unknown(span.clone(), &format!("a stage named '{name}'"), name, &names);
        }
        found
    };
    let mut starts: Vec<(Output, Range<usize>)> = Vec::new();
    for (name, span) in from {
        let (stage, port_name) =
            name.split_once('.').map_or((&*name, None), |(stage, port)| (stage, Some(port)));
        let Some(node) = find(reading, stage, &span) else { continue };
        let ports = nodes[node.index()].ports;
        let port = match port_name {
            None => Some(0),
            Some(port_name) => {
                let port = ports.iter().position(|port| port.name == port_name);
                if port.is_none() {
                    let known: Vec<&str> = ports.iter().map(|port| port.name).collect();
                    reading.unknown(
                        span.clone(),
                        &format!("a port '{port_name}' of '{stage}'"),
                        port_name,
                        &known,
                    );
                }
                port
            }
        };
        starts.extend(port.map(|port| (node.port(port), span)));
    }
    let ends: Vec<_> =
        to.into_iter().filter_map(|(name, span)| Some((find(reading, &name, &span)?, span))).collect();
    for (to, span) in ends {
        for (from, from_span) in &starts {
            let EdgeDefaults { kind, capacity, wait, when_full, .. } = keys;
            builder.ring(*from, to, Ring { kind, capacity, wait, when_full });
            places.edges.push(from_span.start..span.end);
            places.capacities.push(keys.capacity_span.clone());
        }
    }
}

#[cfg(test)]
mod tests;
