//! Shared parsing of the tables of venues and exchanges: times, exclusive addresses, and line faults.

use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::time::Duration;

use tapeworks_generator::LineFaults;
use tapeworks_runtime::config::{Reading, Section};
use tapeworks_session::Credentials;
use tapeworks_session::snapshot::SnapshotProtocol;

pub(crate) const MILLION: usize = 1_000_000;
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Reads a time within `range`, in nanoseconds.
pub(crate) fn nanoseconds(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<Duration>,
) -> Option<u64> {
    section.time(reading, key, range).map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Rejects a snapshot login that is too long for the venue's login format.
pub(crate) fn refuse_long_login(
    reading: &mut Reading<'_>,
    venue: &Section<'_>,
    protocol: SnapshotProtocol,
    login: Option<&Credentials>,
) {
    let Some(login) = login else { return };
    let is_long = |text: &str, most: usize| text.len() > most;
    let limits = protocol.login_limits();
    let (user, password) = (limits.name(), limits.password);
    let mut refuse = |what: &str, most: usize| {
        let text = format!("the {what} of 'snapshot_login' must have at most {most} letters or digits here");
        venue.wrong_at(reading, "snapshot", &text);
    };
    if is_long(&login.user, user) {
        refuse("user", user);
    }
    // A refresh has no password.
    if password > 0 && is_long(&login.password, password) {
        refuse("password", password);
    }
}

/// Names and addresses that at most one venue may use.
#[derive(Default)]
pub(crate) struct Taken {
    names: Vec<String>,
    /// The venue of each line or server address.
    addresses: HashMap<(&'static str, SocketAddr), String>,
}

impl Taken {
    /// Claims a name, which is empty if the file has none.
    pub(crate) fn take_name(
        &mut self,
        reading: &mut Reading<'_>,
        name: Option<(String, Range<usize>)>,
    ) -> String {
        let Some((name, span)) = name else { return String::new() };
        if self.names.contains(&name) {
            reading.wrong(span, format!("there is a venue '{name}' already"));
        }
        self.names.push(name.clone());
        name
    }

    /// Claims the lines of a venue.
    pub(crate) fn take_lines(
        &mut self,
        reading: &mut Reading<'_>,
        venue: &Section<'_>,
        name: &str,
        lines: &[SocketAddrV4],
    ) {
        if lines.len() > 2 {
            venue.wrong_at(reading, "lines", "'lines' are line A and, perhaps, line B: no more");
        }
        for line in lines {
            if let Some(owner) = self.addresses.insert(("udp", (*line).into()), name.to_owned()) {
                let problem = if owner == name {
                    format!("{line} is line A already")
                } else if venue.has("lines") {
                    format!("{line} is a line of '{owner}' already")
                } else {
                    format!("'{owner}' has the same groups already: give 'lines'")
                };
                venue.wrong_at(reading, "lines", &problem);
            }
        }
    }

    /// Reads and claims the address of a venue's server; port 0 may be used by all.
    pub(crate) fn server(
        &mut self,
        reading: &mut Reading<'_>,
        venue: &mut Section<'_>,
        name: &str,
        key: &'static str,
        protocol: &'static str,
    ) -> Option<SocketAddr> {
        let address =
            venue.parsed(reading, key, "an address with a port such as 127.0.0.1:31001", |text| {
                text.parse::<SocketAddr>().ok()
            })?;
        if address.port() != 0
            && let Some(owner) = self.addresses.insert((protocol, address), name.to_owned())
        {
            venue.wrong_at(reading, key, &format!("{address} is taken by '{owner}' already"));
        }
        Some(address)
    }

    /// Reads and claims an address to which a venue sends datagrams in addition to its lines.
    pub(crate) fn group(
        &mut self,
        reading: &mut Reading<'_>,
        section: &mut Section<'_>,
        name: &str,
        key: &'static str,
    ) -> Option<SocketAddrV4> {
        let what = "a multicast group or an IPv4 address with a port";
        let group = section.parsed(reading, key, what, |text| {
            text.parse::<SocketAddrV4>().ok().filter(|group| group.port() != 0)
        })?;
        if let Some(owner) = self.addresses.insert(("udp", group.into()), name.to_owned()) {
            section.wrong_at(reading, key, &format!("{group} is taken by '{owner}' already"));
        }
        Some(group)
    }
}

/// Reads the faults of a venue's lines, and the skew of line B.
pub(crate) fn read_faults(
    reading: &mut Reading<'_>,
    venue: &mut Section<'_>,
    key: &'static str,
    lines: usize,
) -> ([LineFaults; 2], u64) {
    let Some(mut section) = venue.table(reading, key) else { return Default::default() };
    if lines < 2 {
        for key in ["b", "skew"] {
            if section.has(key) {
                section.wrong_at(reading, key, "there is no line B");
            }
        }
    }
    let skew_ns = nanoseconds(reading, &mut section, "skew", Duration::ZERO..=Duration::from_secs(1))
        .unwrap_or_default();
    let faults = ["a", "b"].map(|key| {
        let Some(mut line) = section.table(reading, key) else { return LineFaults::default() };
        let mut part = |key| line.integer(reading, key, 0..=MILLION).map_or(0, |(part, _)| part as u32);
        let mut faults = LineFaults {
            lost_per_million: part("lost_per_million"),
            duplicated_per_million: part("duplicated_per_million"),
            reordered_per_million: part("reordered_per_million"),
            late_copies_per_million: part("late_copies_per_million"),
            late_copy_ns: 0,
        };
        faults.late_copy_ns =
            nanoseconds(reading, &mut line, "late_copy", Duration::ZERO..=Duration::from_secs(60))
                .unwrap_or(LineFaults::USUAL_LATE_COPY_NS);
        line.refuse_the_rest(reading);
        faults
    });
    section.refuse_the_rest(reading);
    (faults, skew_ns)
}
