//! Records a run for its timeline.
//!
//! A [`Recorder`] samples the simulation every 20 ms, and is notified of events between two samples: events of the plant, requests,
//! clients. It changes nothing: a recorded run has the same hash as an unrecorded one. Data from the plant's status is as old as the
//! status, at most 200 ms.
//!
//! Cost: a few hundred numbers per sample, about 10 MB for 200 simulated seconds of four venues.

pub(crate) mod rows;
pub(crate) mod text;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tapeworks_market::{Event, EventKind, InstrumentId, Line};
use tapeworks_plant::{ChannelStatus, Status};

use crate::kernel::disk::{disk_calls, disk_failures};
use crate::kernel::network::link_counts;
use crate::kernel::{HostId, ProcessId, clock_ahead_ns, has_ended};
use crate::plan::{MILLISECOND, Plan, VenuePlan};
pub(crate) use rows::EVERY_NS;
use rows::Row;

/// The state that the recorder samples.
pub(crate) struct Seen<'a> {
    /// The plant's status: `None` before it has started, `Some(None)` if it cannot be read now.
    pub(crate) status: Option<Option<&'a Status>>,
    pub(crate) violations: &'a [String],
    /// Sessions begun by each venue.
    pub(crate) begun: Vec<u64>,
    pub(crate) events: u64,
}

/// How a client's session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientEnds {
    /// The client left by itself, and will return.
    Left,
    /// The server or the network ended it.
    Cut,
    /// All clients stop.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Recorder(Mutex<Recorded>);

/// The recording of a run so far.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) market: Row,
    pub(crate) venues: Vec<VenueRows>,
    pub(crate) plant: PlantRows,
    pub(crate) connections: Row,
    pub(crate) group: Row,
    pub(crate) clients: Vec<Row>,
    /// Records read by each client.
    records: Vec<u64>,
    /// Time at which each violation was seen.
    pub(crate) violations: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct VenueRows {
    pub(crate) lines: Vec<(SocketAddr, Row)>,
    server: SocketAddr,
    gaps: Row,
    pub(crate) requests: Row,
    pub(crate) snapshots: Row,
    books: Row,
    /// Numbers of requests and answers sent.
    sent: [u64; 2],
    begun: u64,
    /// The channel at the last sample.
    last: Option<ChannelStatus>,
}

#[derive(Clone, Debug)]
pub(crate) struct PlantRows {
    /// The process and machine of the last start.
    process: Option<(ProcessId, HostId)>,
    pub(crate) starts: u64,
    is_alive: bool,
    /// The status at the last sample, without its tables.
    last: Option<LastStatus>,
    pub(crate) life: Row,
    events: Row,
    journal: Row,
    checkpoints: Row,
    pub(crate) disk: Row,
    pub(crate) clock: Row,
}

/// The part of a status that is compared with the next one.
#[derive(Clone, Copy, Default, Debug)]
struct LastStatus {
    lost: u64,
    unconfirmed: u64,
    written: u64,
    failed: u64,
    skipped: u64,
}

/// Intervals between two statuses of the plant, plus one.
const IN_A_STATUS: usize = 11;

/// Columns of the row of gaps.
const GAPS: [&str; 5] =
    ["opened", "filled by a line", "filled by retransmission", "given up", "messages missing"];

impl Recorder {
    pub(crate) fn new(plan: &Plan) -> Self {
        let venues: Vec<VenueRows> =
            (0..plan.venues.len()).map(|venue| VenueRows::new(plan, venue)).collect();
        let client = |(number, client)| {
            let hint = "shade: records read; bars: connected; marks: refused, cut, left";
            Row::new(format!("client {number}: {}", text::client(client)), hint).counting(&["records read"])
        };
        Self(Mutex::new(Recorded {
            market: Row::new("market", "shade: datagrams sent on all lines; bars: bursts")
                .counting(&["datagrams sent"]),
            plant: PlantRows::new(),
            connections: Row::new("connections", "what the network does to TCP"),
            group: Row::new("multicast", "what the network does to the plant's multicast and to requests"),
            clients: plan.clients.iter().enumerate().map(client).collect(),
            records: vec![0; plan.clients.len()],
            violations: Vec::new(),
            venues,
        }))
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample.
    pub(crate) fn look(&self, now_ns: u64, seen: &Seen<'_>) {
        self.recorded().look(now_ns, seen);
    }

    /// Notes a sent datagram, which may be a request or an answer.
    pub(crate) fn sends(&self, from: SocketAddr, to: SocketAddr) {
        let answer = Plan::answers_of(from).or_else(|| Plan::answered_to(to));
        let request = Plan::answers_of(to);
        let Some(venue) = request.or(answer) else { return };
        if let Some(rows) = self.recorded().venues.get_mut(venue) {
            rows.sent[usize::from(request.is_none())] += 1;
        }
    }

    /// Notes a start of the plant.
    pub(crate) fn plant_starts(&self, process: ProcessId, host: HostId) {
        let mut recorded = self.recorded();
        recorded.plant.starts += 1;
        recorded.plant.process = Some((process, host));
        recorded.plant.last = None;
        recorded.venues.iter_mut().for_each(|venue| venue.last = None);
    }

    /// Notes live events of the plant.
    pub(crate) fn publishes(&self, now_ns: u64, events: &[Event]) {
        let is_marked = |event: &&Event| matches!(event.kind, EventKind::Gap | EventKind::Recovered);
        let mut recorded = None;
        for event in events.iter().filter(is_marked) {
            let recorded = recorded.get_or_insert_with(|| self.recorded());
            if let Some(venue) = recorded.venues.get_mut(usize::from(event.channel)) {
                venue.event(now_ns, event);
            }
        }
    }

    /// Notes that the server refuses a client.
    pub(crate) fn refuses(&self, client: usize, now_ns: u64, why: String) {
        if let Some(row) = self.recorded().clients.get_mut(client) {
            row.mark(now_ns, "refused", format!("refused: {why}"));
        }
    }

    /// Notes that a client's session begins, with the plant of this start.
    pub(crate) fn connects(&self, client: usize, now_ns: u64, start: u64) {
        if let Some(row) = self.recorded().clients.get_mut(client) {
            row.state(now_ns, "connected", Some(format!("connected to the plant's start {start}")));
        }
    }

    /// Notes that a client has read a record.
    pub(crate) fn reads(&self, client: usize) {
        if let Some(records) = self.recorded().records.get_mut(client) {
            *records += 1;
        }
    }

    /// Notes that a client's session ends.
    pub(crate) fn disconnects(&self, client: usize, now_ns: u64, ends: ClientEnds) {
        let mut recorded = self.recorded();
        let Some(row) = recorded.clients.get_mut(client) else { return };
        row.close(now_ns);
        match ends {
            ClientEnds::Left => row.mark(now_ns, "left", "the client left"),
            ClientEnds::Cut => row.mark(now_ns, "cut", "the session was cut"),
            ClientEnds::Stopped => row.mark(now_ns, "left", "the client stops"),
        }
    }

    /// Returns the recording so far.
    pub(crate) fn so_far(&self) -> Recorded {
        self.recorded().clone()
    }
}

impl Recorded {
    fn look(&mut self, now_ns: u64, seen: &Seen<'_>) {
        while self.violations.len() < seen.violations.len() {
            self.violations.push(now_ns);
        }
        let sent =
            self.venues.iter().flat_map(|venue| &venue.lines).map(|(line, _)| link_counts(*line).sent).sum();
        self.market.counter(0, sent);
        self.plant.look(now_ns, seen);
        let status = if self.plant.is_alive { seen.status } else { None };
        for (place, venue) in self.venues.iter_mut().enumerate() {
            venue.look(now_ns, seen.begun.get(place).copied());
            // A status that cannot be read now counts as unchanged.
            let Some(status) = status.map_or(Some(None), |status| status.map(Some)) else {
                venue.gaps.columns_stay();
                continue;
            };
            venue.follow(now_ns, status, place);
        }
        for (row, records) in self.clients.iter_mut().zip(&self.records) {
            row.counter(0, *records);
        }
    }
}

impl VenueRows {
    fn new(plan: &Plan, venue: usize) -> Self {
        let has_line_b = plan.venues.get(venue).is_some_and(|venue| venue.has_line_b);
        let line = |line: usize| {
            let name = if line == 0 { "line A" } else { "line B" };
            let hint = "shade: datagrams that arrived; below: lost, damaged, dropped; bars: faults, and when the plant calls it silent";
            let columns = ["arrived", "sent", "lost", "damaged", "late", "twice", "dropped at a full buffer"];
            (Plan::line(venue, line).into(), Row::new(name, hint).counting(&columns))
        };
        let request =
            "shade: requests sent; below: answers, and datagrams lost; bars: what the network does to them";
        Self {
            lines: (0..=usize::from(has_line_b)).map(line).collect(),
            server: match plan.venues.get(venue) {
                Some(VenuePlan { requests_by_tcp: true, .. }) => Plan::answers_group(venue).into(),
                _ => Plan::retransmission(venue),
            },
            gaps: Row::new(
                "gaps",
                "shade: opened; bars: awaited from a line, or being requested; marks: messages named as missing",
            )
            .counting(&GAPS),
            requests: Row::new("requests", request).counting(&["requests", "answers", "lost", "damaged"]),
            snapshots: Row::new("snapshots", "marks: requested, applied, failed"),
            books: Row::new(
                "channel",
                "bars: joining, silent, stale books; marks: sessions, resets, recoveries",
            ),
            sent: [0; 2],
            begun: 0,
            last: None,
        }
    }

    /// Samples what the network and the venue have done.
    fn look(&mut self, now_ns: u64, begun: Option<u64>) {
        for (address, row) in &mut self.lines {
            let counts = link_counts(*address);
            let columns = [
                counts.arrived,
                counts.sent,
                counts.lost,
                counts.damaged,
                counts.late,
                counts.twice,
                counts.overflowed,
            ];
            columns.into_iter().enumerate().for_each(|(place, counter)| row.counter(place, counter));
        }
        let counts = link_counts(self.server);
        let columns = [self.sent[0], self.sent[1], counts.lost, counts.damaged];
        columns.into_iter().enumerate().for_each(|(place, counter)| self.requests.counter(place, counter));
        if let Some(begun) = begun {
            if begun > self.begun.max(1) {
                self.books.mark(now_ns, "session", format!("the venue begins session {begun}"));
            }
            self.begun = begun;
        }
    }

    /// Notes a live event if it is a gap or its end.
    fn event(&mut self, now_ns: u64, event: &Event) {
        let is_of_all = event.instrument == InstrumentId::ALL;
        match event.gap() {
            Some(_) if event.is_contradiction() => {
                self.books.mark(now_ns, "contradicted", "the venue's messages contradict a book");
            }
            Some(gap) if is_of_all && gap.count > 0 => {
                let label = match gap.count {
                    1 => format!("message {} is missing", gap.first),
                    count => format!("{} messages from {} on are missing", text::number(count), gap.first),
                };
                self.gaps.mark(now_ns, "given-up", label);
            }
            Some(_) if is_of_all => {
                self.gaps.mark(now_ns, "given-up", "an unknown number of messages is missing")
            }
            Some(_) => {}
            None if is_of_all => self.books.mark(now_ns, "good", "the books are good again"),
            None => {}
        }
    }

    /// Samples the plant's status of the channel, if the plant runs.
    fn follow(&mut self, now_ns: u64, status: Option<&Status>, place: usize) {
        let Some((status, channel)) = status.and_then(|status| Some((status, status.channels.get(place)?)))
        else {
            for row in
                [&mut self.gaps, &mut self.books].into_iter().chain(self.lines.iter_mut().map(|(_, row)| row))
            {
                row.close(now_ns);
            }
            self.gaps.columns_stay();
            return;
        };
        self.states(now_ns, channel);
        // Counts from before the end of the journal's replay are not new.
        let before = match self.last.take() {
            Some(last) => Some(last),
            None => {
                let at_start = status.at_start.get(place).cloned();
                self.gaps.rebase(&at_start.as_ref().map_or([0; GAPS.len()], gaps));
                at_start
            }
        };
        gaps(channel).into_iter().enumerate().for_each(|(place, counter)| self.gaps.counter(place, counter));
        self.marks(now_ns, channel, before.as_ref());
        self.last = Some(channel.clone());
    }

    fn states(&mut self, now_ns: u64, channel: &ChannelStatus) {
        let is = |is: bool, label: &str| is.then(|| label.to_owned());
        let is_requesting = channel.is_recovering && channel.recovering_since.is_some();
        self.gaps.state(now_ns, "requesting", is(is_requesting, "being requested"));
        let is_awaited = channel.is_recovering && !is_requesting;
        self.gaps.state(now_ns, "awaited", is(is_awaited, "awaited"));
        self.books.state(now_ns, "joining", is(channel.is_joining, "joining"));
        self.books.state(now_ns, "stale", is(channel.is_stale, "stale books"));
        self.books.state(now_ns, "silent", is(channel.is_silent, "silent: no packet on any line"));
        for line in &channel.lines {
            let place = match line.line {
                Line::A => 0,
                Line::B => 1,
                Line::Recovery | Line::Snapshot => continue,
            };
            if let Some((_, row)) = self.lines.get_mut(place) {
                row.state(now_ns, "silent", is(line.is_silent, "called silent"));
            }
        }
    }

    /// Adds marks for counters that have moved.
    fn marks(&mut self, now_ns: u64, channel: &ChannelStatus, before: Option<&ChannelStatus>) {
        let (now, old) = (&channel.counters, before.map(|before| before.counters).unwrap_or_default());
        let of_books = [
            ("session", "the plant follows session ", now.session_changes, old.session_changes),
            (
                "session",
                "the plant notices that the numbers began anew, session ",
                now.sequence_resets,
                old.sequence_resets,
            ),
            ("session", "the venue has ended session ", now.ends_of_session, old.ends_of_session),
        ];
        for (kind, text, now, old) in of_books {
            if now > old {
                self.books.mark(now_ns, kind, format!("{text}{}", channel.session.trim()));
            }
        }
        let (now, old) = (channel.snapshots, before.map(|before| before.snapshots).unwrap_or_default());
        let of_snapshots = [
            ("requested", "requested", now.requests, old.requests),
            ("good", "applied", now.applied, old.applied),
            ("bad", "failed", now.failed, old.failed),
            ("bad", "given up", now.given_up, old.given_up),
        ];
        for (kind, text, now, old) in of_snapshots {
            if now > old {
                self.snapshots.mark(now_ns, kind, format!("{} {text}", text::number(now - old)));
            }
        }
    }

    /// Returns the rows for which the plan has something to show.
    pub(crate) fn into_rows(self, plan: &VenuePlan) -> Vec<Row> {
        let mut rows: Vec<Row> = self.lines.into_iter().map(|(_, row)| row).collect();
        rows.push(self.gaps);
        rows.extend(plan.has_retransmission.then_some(self.requests));
        rows.extend(plan.has_snapshots.then_some(self.snapshots));
        rows.push(self.books);
        rows
    }
}

/// Returns the counters for the row of gaps.
const fn gaps(channel: &ChannelStatus) -> [u64; GAPS.len()] {
    let counters = &channel.counters;
    let (by_lines, by_retransmission) = (counters.filled_by_lines, counters.filled_by_retransmission);
    [counters.gaps_opened, by_lines, by_retransmission, counters.gaps, counters.missing]
}

impl PlantRows {
    fn new() -> Self {
        let disk = "shade: calls of the disk; bars: what it does badly";
        Self {
            process: None,
            starts: 0,
            is_alive: false,
            last: None,
            life: Row::new(
                "process",
                "bars: running, and why it is not; marks: starts, and what the trace says of the plant",
            ),
            events: Row::new("events", "shade: events published")
                .counting(&["events"])
                .level("unread in the ring"),
            journal: Row::new("journal", "shade: records appended, as the status counts them each 200 ms")
                .counting(&["records"])
                .level("next record"),
            checkpoints: Row::new("checkpoints", "marks: written, failed, skipped, used at a start"),
            disk: Row::new("disk", disk).counting(&["calls", "failures"]),
            clock: Row::new("clock", "bars: what is wrong with the time of day").level("ms ahead or behind"),
        }
    }

    fn look(&mut self, now_ns: u64, seen: &Seen<'_>) {
        self.is_alive = self.process.is_some_and(|(process, _)| !has_ended(process));
        let label = self.is_alive.then(|| format!("runs: start {}", self.starts));
        self.life.state(now_ns, "running", label);
        self.events.counter(0, seen.events);
        if let Some((_, host)) = self.process {
            self.disk.counter(0, disk_calls(host));
            self.disk.counter(1, disk_failures(host));
            self.clock.number(0, clock_ahead_ns(host).unsigned_abs() / MILLISECOND);
        } else {
            (0..2).for_each(|place| self.disk.number(place, 0));
            self.clock.number(0, 0);
        }
        match seen.status.flatten().filter(|_| self.is_alive) {
            Some(status) => self.follow(now_ns, status),
            None => {
                self.events.number(1, 0);
                self.journal.columns_stay();
                if !self.is_alive {
                    self.journal.close(now_ns);
                }
            }
        }
    }

    fn follow(&mut self, now_ns: u64, status: &Status) {
        self.events.number(1, status.ring.fill as u64);
        let journal = status.journal.as_ref();
        let checkpoints = &status.checkpoints;
        let is = LastStatus {
            lost: journal.map_or(0, |journal| journal.lost),
            unconfirmed: journal.map_or(0, |journal| journal.unconfirmed),
            written: checkpoints.written,
            failed: checkpoints.failed,
            skipped: checkpoints.skipped,
        };
        let next = journal.map_or(0, |journal| journal.next);
        let is_first = self.last.is_none();
        let last = self.last.replace(is).unwrap_or_default();
        if is_first {
            self.journal.rebase(&[next]);
            if let Some(record) = checkpoints.restored {
                self.checkpoints.mark(
                    now_ns,
                    "start",
                    format!("the start uses the checkpoint at record {}", text::number(record)),
                );
            }
            for why in &checkpoints.refused {
                self.checkpoints.mark(now_ns, "bad", format!("the start refuses a checkpoint: {why}"));
            }
        }
        self.journal.rare_counter(0, next, IN_A_STATUS);
        self.journal.number(1, next);
        let error = journal.filter(|journal| journal.is_failing);
        let error =
            error.map(|journal| format!("failing: {}", journal.error.as_deref().unwrap_or("writes fail")));
        self.journal.state(now_ns, "stale", error);
        if is.lost > last.lost {
            self.journal.mark(
                now_ns,
                "bad",
                format!("{} inputs are lost", text::number(is.lost - last.lost)),
            );
        }
        if is.unconfirmed > last.unconfirmed {
            let records = text::number(is.unconfirmed - last.unconfirmed);
            self.journal.mark(now_ns, "bad", format!("{records} records are written, and their sync failed"));
        }
        let error = checkpoints.error.as_deref().unwrap_or_default();
        if is.written > last.written {
            let size = text::number(checkpoints.bytes);
            self.checkpoints.mark(
                now_ns,
                "good",
                format!("written: {size} bytes, ingest paused {}", text::time(checkpoints.pause_ns)),
            );
        }
        if is.failed > last.failed {
            self.checkpoints.mark(now_ns, "bad", format!("failed: {error}"));
        }
        if is.skipped > last.skipped {
            self.checkpoints.mark(now_ns, "note", "skipped: the journal's queue was full");
        }
    }

    /// Returns the rows for which the plan has something to show.
    pub(crate) fn into_rows(self, plan: &Plan) -> Vec<Row> {
        let has_journal = plan.journal.is_some();
        let has_checkpoints = plan.journal.is_some_and(|journal| journal.checkpoint_every.is_some());
        let mut rows = vec![self.life, self.events];
        rows.extend(has_journal.then_some(self.journal));
        rows.extend(has_checkpoints.then_some(self.checkpoints));
        rows.extend(has_journal.then_some(self.disk));
        rows.extend((!plan.has_true_clock()).then_some(self.clock));
        rows
    }
}
