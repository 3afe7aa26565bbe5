//! Predicates as text, in the syntax of tcpdump.
//!
//! ```text
//! expression = term { "and" term } | term { "or" term }
//! term       = "not" term | "(" expression ")" | primitive
//! primitive  = "ip" | "ip6" | "arp" | "tcp" | "udp" | "icmp" | "icmp6" | "igmp" | "multicast" | "proto" NUMBER
//!            | "vlan" [ ID ] | "less" LENGTH | "greater" LENGTH
//!            | [ "tcp" | "udp" ] [ side ] "port" PORT | [ "tcp" | "udp" ] [ side ] "portrange" FIRST-LAST
//!            | [ side ] "host" ADDRESS | [ side ] "net" ADDRESS/BITS | "ether" [ side ] "host" MAC
//! side       = "src" | "dst"
//! ```
//!
//! tcpdump gives `and` and `or` the same precedence and reads from left to right; most languages do not. To avoid ambiguity, a
//! mixture requires parentheses here. Unlike in tcpdump, `vlan` does not shift the offsets of later primitives, because tags are
//! always skipped. Parsing happens once, at startup, and yields a [`Predicate`].

use std::ops::RangeInclusive;

use super::filter::{Cidr, Predicate, Side, parse_mac};

/// The deepest nesting of parentheses and `not`.
const MAX_DEPTH: usize = 64;

/// An error in an expression, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ExpressionError {
    /// The byte offset in the text.
    pub offset: usize,
    /// The error and the expected word.
    pub problem: String,
}

/// Parses an expression.
///
/// ```
/// use tapeworks_flow::packets::expression::parse;
/// assert!(parse("udp and (dst net 224.0.0.0/4 or port 53)").is_ok());
/// assert!(parse("tcp and udp or arp").unwrap_err().problem.contains("parentheses"));
/// ```
///
/// # Errors
/// The first error in the text.
pub fn parse(text: &str) -> Result<Predicate, ExpressionError> {
    let mut parser = Parser { words: words(text), next: 0, end: text.len(), depth: 0 };
    let predicate = parser.expression()?;
    match parser.peek() {
        None => Ok(predicate),
        Some(word) => {
            Err(parser.wrong(format!("'{word}' follows a whole expression; join with 'and' or 'or'")))
        }
    }
}

/// Splits the text into words with offsets. Parentheses and `!` are separate words.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, character) in text.char_indices() {
        let is_mark = matches!(character, '(' | ')' | '!');
        if is_mark || character.is_whitespace() {
            words.extend(start.take().map(|start| (start, &text[start..at])));
        } else {
            start.get_or_insert(at);
        }
        if is_mark {
            words.push((at, &text[at..=at]));
        }
    }
    words.extend(start.map(|start| (start, &text[start..])));
    words
}

struct Parser<'a> {
    words: Vec<(usize, &'a str)>,
    next: usize,
    end: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|(_, word)| *word)
    }

    fn accept(&mut self, wanted: &[&str]) -> bool {
        let is_there = self.peek().is_some_and(|word| wanted.contains(&word));
        self.next += usize::from(is_there);
        is_there
    }

    /// Creates an error at the next word.
    fn wrong(&self, problem: String) -> ExpressionError {
        ExpressionError { offset: self.words.get(self.next).map_or(self.end, |(offset, _)| *offset), problem }
    }

    /// Parses the next word as a value.
    fn value<T>(&mut self, what: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, ExpressionError> {
        match self.peek() {
            None => Err(self.wrong(format!("{what} is missing"))),
            Some(word) => match parse(word) {
                Some(value) => {
                    self.next += 1;
                    Ok(value)
                }
                None => Err(self.wrong(format!("'{word}' is not {what}"))),
            },
        }
    }

    fn expression(&mut self) -> Result<Predicate, ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(format!("more than {MAX_DEPTH} levels of parentheses and 'not'")));
        }
        let mut parts = vec![self.term()?];
        let mut joined_by = None;
        loop {
            let join = match self.peek() {
                Some("and" | "&&") => "and",
                Some("or" | "||") => "or",
                _ => break,
            };
            if *joined_by.get_or_insert(join) != join {
                return Err(
                    self.wrong("'and' and 'or' side by side: say with parentheses which is meant".into())
                );
            }
            self.next += 1;
            parts.push(self.term()?);
        }
        self.depth -= 1;
        Ok(match (joined_by, parts.len()) {
            (_, 1) => parts.remove(0),
            (Some("or"), _) => Predicate::Any(parts),
            _ => Predicate::All(parts),
        })
    }

    fn term(&mut self) -> Result<Predicate, ExpressionError> {
        if self.accept(&["not", "!"]) {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.wrong(format!("more than {MAX_DEPTH} levels of parentheses and 'not'")));
            }
            let term = self.term()?;
            self.depth -= 1;
            return Ok(Predicate::Not(Box::new(term)));
        }
        if self.accept(&["("]) {
            let inner = self.expression()?;
            if !self.accept(&[")"]) {
                return Err(self.wrong("a ')' is missing".into()));
            }
            return Ok(inner);
        }
        self.primitive()
    }

    fn primitive(&mut self) -> Result<Predicate, ExpressionError> {
        let start = self.next;
        let Some(word) = self.peek() else { return Err(self.wrong("a condition is missing".into())) };
        self.next += 1;
        let protocol = match word {
            "ip" => return Ok(Predicate::Ipv4),
            "ip6" => return Ok(Predicate::Ipv6),
            "arp" => return Ok(Predicate::EtherType(0x0806)),
            "icmp" => return Ok(Predicate::All(vec![Predicate::Ipv4, Predicate::Protocol(1)])),
            "icmp6" => return Ok(Predicate::All(vec![Predicate::Ipv6, Predicate::Protocol(58)])),
            "igmp" => return Ok(Predicate::Protocol(2)),
            "multicast" => return Ok(Predicate::Multicast),
            "proto" => {
                let number = |word: &str| word.parse().ok();
                return Ok(Predicate::Protocol(self.value("an IP protocol from 0 to 255", number)?));
            }
            "vlan" => {
                let Some(id) = self.peek().and_then(|word| word.parse::<u16>().ok()) else {
                    return Ok(Predicate::Tagged);
                };
                self.value("a VLAN identifier from 0 to 4095", |_| (id < 4096).then_some(()))?;
                return Ok(Predicate::Vlan(vec![id..=id]));
            }
            "less" => {
                let most = self.value("a length in bytes", |word| word.parse().ok())?;
                return Ok(Predicate::Length(0..=most));
            }
            "greater" => {
                let least = self.value("a length in bytes", |word| word.parse().ok())?;
                return Ok(Predicate::Length(least..=u32::MAX));
            }
            "ether" => {
                let side = self.side();
                if !self.accept(&["host"]) {
                    return Err(self.wrong("'ether' is followed by 'host' and an Ethernet address".into()));
                }
                let mac =
                    self.value("an Ethernet address such as 02:00:00:00:00:01", |word| parse_mac(word).ok())?;
                return Ok(Predicate::Mac(side, vec![mac]));
            }
            "tcp" => Some(Predicate::Protocol(6)),
            "udp" => Some(Predicate::Protocol(17)),
            _ => {
                self.next = start;
                None
            }
        };
        let of_ends = self.of_ends(protocol.is_some())?;
        match (protocol, of_ends) {
            (Some(protocol), Some(ports)) => Ok(Predicate::All(vec![protocol, ports])),
            (Some(predicate), None) | (None, Some(predicate)) => Ok(predicate),
            (None, None) => Err(self.wrong(format!(
                "'{word}' is no condition; use ip, ip6, arp, tcp, udp, icmp, icmp6, igmp, multicast, proto, vlan, less, \
                 greater, host, net, port, portrange, ether host, with src or dst before them"
            ))),
        }
    }

    fn side(&mut self) -> Side {
        if self.accept(&["src"]) {
            Side::Source
        } else if self.accept(&["dst"]) {
            Side::Destination
        } else {
            Side::Either
        }
    }

    /// Parses `[side] host|net|port|portrange VALUE`. Returns `None` and consumes nothing if other words follow.
    fn of_ends(&mut self, ports_only: bool) -> Result<Option<Predicate>, ExpressionError> {
        let start = self.next;
        let side = self.side();
        let Some(word) = self.peek() else {
            return match side {
                Side::Either => Ok(None),
                _ => Err(self.wrong("host, net, port or portrange is missing".into())),
            };
        };
        self.next += 1;
        Ok(Some(match word {
            "port" => {
                let port = self.value("a port from 0 to 65535", |word| word.parse().ok())?;
                Predicate::Port(side, vec![port..=port])
            }
            "portrange" => {
                Predicate::Port(side, vec![self.value("a range of ports such as 5000-5010", port_range)?])
            }
            "host" if !ports_only => {
                let address = self.value("an IP address", |word| word.parse().ok())?;
                Predicate::Address(
                    side,
                    Cidr::new(address, if address.is_ipv4() { 32 } else { 128 }).into_iter().collect(),
                )
            }
            "net" if !ports_only => {
                let range = match self.peek().map(str::parse::<Cidr>) {
                    None => return Err(self.wrong("an address range is missing".into())),
                    Some(Err(problem)) => return Err(self.wrong(problem)),
                    Some(Ok(range)) => range,
                };
                self.next += 1;
                Predicate::Address(side, vec![range])
            }
            _ => {
                self.next -= 1;
                if self.next > start {
                    let choice =
                        if ports_only { "port or portrange" } else { "host, net, port or portrange" };
                    return Err(self.wrong(format!("'{word}' is not {choice}")));
                }
                return Ok(None);
            }
        }))
    }
}

/// Parses `5000-5010`, or a single port.
pub fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expressions_mean_what_tcpdump_means() {
        let host = |side, text: &str| Predicate::Address(side, vec![text.parse().unwrap()]);
        for (text, meant) in [
            ("udp", Predicate::Protocol(17)),
            ("src host 10.0.0.1", host(Side::Source, "10.0.0.1")),
            ("host fd00::1", host(Side::Either, "fd00::1")),
            ("dst net 224.0.0.0/4", host(Side::Destination, "224.0.0.0/4")),
            (
                "tcp dst port 80",
                Predicate::All(vec![
                    Predicate::Protocol(6),
                    Predicate::Port(Side::Destination, vec![80..=80]),
                ]),
            ),
            ("portrange 1-3", Predicate::Port(Side::Either, vec![1..=3])),
            ("vlan 7 and ip6", Predicate::All(vec![Predicate::Vlan(vec![7..=7]), Predicate::Ipv6])),
            ("vlan", Predicate::Tagged),
            (
                "not(arp or tcp)",
                Predicate::Not(Box::new(Predicate::Any(vec![
                    Predicate::EtherType(0x0806),
                    Predicate::Protocol(6),
                ]))),
            ),
            ("! multicast", Predicate::Not(Box::new(Predicate::Multicast))),
            ("ether src host 02:00:00:00:00:01", Predicate::Mac(Side::Source, vec![[2, 0, 0, 0, 0, 1]])),
            (
                "greater 100 && less 200",
                Predicate::All(vec![Predicate::Length(100..=u32::MAX), Predicate::Length(0..=200)]),
            ),
        ] {
            assert_eq!(parse(text), Ok(meant), "{text}");
        }
    }

    #[test]
    fn an_expression_error_names_its_offset() {
        for (text, offset, expected) in [
            ("", 0, "missing"),
            ("udp port http", 9, "not a port"),
            ("udp or tcp and arp", 11, "parentheses"),
            ("(udp", 4, "')'"),
            ("udp tcp", 4, "join with"),
            ("src tcp", 4, "not host, net"),
            ("host 10.0.0", 5, "not an IP address"),
            ("net 10.0.0.1/8", 4, "bits behind"),
            ("vlan 5000", 5, "0 to 4095"),
            ("gopher", 0, "no condition"),
            ("portrange 9-1", 10, "range of ports"),
            ("tcp src", 7, "missing"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.offset, offset, "{text}: {error}");
            assert!(error.problem.contains(expected), "{text}: {error}");
        }
        assert!(parse(&"(".repeat(10_000)).unwrap_err().problem.contains("levels"));
        assert!(parse(&"not ".repeat(10_000)).unwrap_err().problem.contains("levels"));
    }

    proptest! {
        #[test]
        fn nothing_panics_on_any_words(words in proptest::collection::vec(
            prop_oneof![Just("("), Just(")"), Just("not"), Just("and"), Just("or"), Just("src"), Just("port"), Just("80"),
                Just("host"), Just("1.2.3.4"), Just("tcp"), Just("vlan"), Just("é")], 0..12)) {
            let text = words.join(" ");
            if let Err(error) = parse(&text) {
                prop_assert!(error.offset <= text.len());
            }
        }
    }
}
