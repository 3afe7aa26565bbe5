//! A page that shows a run over time, with rows for lines, channels, the plant and clients.
//!
//! A [`Recorder`] has recorded the run; this module adds the faults of the plan, the notes and the violations.

mod page;

use crate::kernel::network::LinkFaults;
use crate::market::{Outcome, run_market};
use crate::plan::{Fault, Plan, What};
use crate::recorder::rows::{self, EVERY_NS, Row};
use crate::recorder::{Recorded, Recorder, text};
use crate::trace::Note;

/// A run over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    summary: page::Summary,
    groups: Vec<Group>,
}

/// A group of rows.
#[derive(Clone, Debug)]
struct Group {
    name: String,
    hint: String,
    rows: Vec<Row>,
}

/// Runs the plan, and keeps its trace and the data for a page. The run is the same as without a timeline.
pub fn simulate_with_timeline(plan: &Plan) -> (Outcome, Timeline) {
    let (outcome, recorded) = run_market(plan, true, Some(Recorder::new(plan)));
    let recorded = recorded.unwrap_or_else(|| Recorder::new(plan).so_far());
    let timeline = Timeline::new(recorded, plan, &outcome);
    (outcome, timeline)
}

impl Timeline {
    fn new(mut recorded: Recorded, plan: &Plan, outcome: &Outcome) -> Self {
        let end_ns = outcome.ended.now_ns;
        for burst in &plan.bursts {
            let label = format!("{} messages a second more", text::number(burst.rate));
            let (from, to) = (plan.with_night(burst.at_ns), plan.with_night(burst.at_ns + burst.length_ns));
            recorded.market.bar(from, to, "burst", label);
        }
        if let Some(night) = plan.night.filter(|night| night.at_ns < end_ns) {
            let to = (night.at_ns + night.length_ns).min(end_ns);
            recorded.market.bar(night.at_ns, to, "out", "night");
        }
        recorded.market.mark(plan.with_night(plan.trouble_ns).min(end_ns), "end", "no more faults");
        plan.timed_faults().iter().for_each(|fault| add_fault(&mut recorded, fault, end_ns));
        let notes = add_notes(&mut recorded, &outcome.ended.trace);
        let seen = &recorded.violations;
        let violations = outcome.violations.iter().enumerate();
        // A violation found after the last sample was found at the end.
        let violations = violations
            .map(|(place, text)| (seen.get(place).copied().unwrap_or(end_ns), text.clone()))
            .collect();
        let together = rows::together(end_ns);
        let summary = page::Summary::new(plan, outcome, violations, EVERY_NS * together as u64);
        let mut groups = groups(recorded, notes, plan);
        groups.iter_mut().flat_map(|group| &mut group.rows).for_each(|row| row.finish(end_ns, together));
        Self { summary, groups }
    }
}

/// Adds the trace's notes about the plant to its row. Returns a row of the notes that no other row shows.
fn add_notes(recorded: &mut Recorded, trace: &[Note]) -> Row {
    let mut others = Row::new("notes", "marks: lines of the trace");
    for Note { at_ns, text } in trace {
        let starts_with = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
        match () {
            // Bars, clients' rows and the list of violations show these.
            () if starts_with(&["VIOLATION ", "for ", "over: ", "client"]) => {}
            () if text == "plant: started" => recorded.plant.life.mark(*at_ns, "start", text.as_str()),
            () if starts_with(&["the plant ", "plant: "]) => {
                recorded.plant.life.mark(*at_ns, "note", text.as_str());
            }
            () => others.mark(*at_ns, "note", text.as_str()),
        }
    }
    others
}

/// Returns the rows in page order.
fn groups(recorded: Recorded, notes: Row, plan: &Plan) -> Vec<Group> {
    let group = |name: &str, hint: String, rows: Vec<Row>| Group { name: name.to_owned(), hint, rows };
    let Recorded { market, venues, plant, connections, group: multicast, clients, .. } = recorded;
    let mut groups = vec![group("Market", String::new(), vec![market, notes])];
    for (venue, rows) in plan.venues.iter().zip(venues) {
        groups.push(group(&format!("{:?}", venue.kind), text::venue(venue), rows.into_rows(venue)));
    }
    let starts = if plant.starts == 1 { "1 start".to_owned() } else { format!("{} starts", plant.starts) };
    groups.push(group("Plant", starts, plant.into_rows(plan)));
    let with_faults = [connections, multicast].into_iter().filter(|row| !row.bars.is_empty());
    let of_clients: Vec<Row> = with_faults.chain(clients).collect();
    if !of_clients.is_empty() {
        groups.push(group("Clients", String::new(), of_clients));
    }
    groups
}

/// Adds the bar of a fault.
fn add_fault(recorded: &mut Recorded, fault: &Fault, end_ns: u64) {
    if fault.at_ns >= end_ns {
        return;
    }
    let (from, to) = (fault.at_ns, (fault.at_ns + fault.length_ns).min(end_ns));
    let lasts = text::time(fault.length_ns);
    let life = &mut recorded.plant.life;
    match fault.what {
        What::Line { venue, line, faults } => {
            let row = recorded.venues.get_mut(venue).and_then(|venue| venue.lines.get_mut(line));
            row.into_iter().for_each(|(_, row)| add_link(row, (from, to), &faults));
        }
        What::LinesOut { venue } => {
            let lines = recorded.venues.get_mut(venue).into_iter().flat_map(|venue| &mut venue.lines);
            lines.for_each(|(_, row)| row.bar(from, to, "out", "out: both lines"));
        }
        What::Requests { venue, faults } => {
            let row = recorded.venues.get_mut(venue).map(|venue| &mut venue.requests);
            row.into_iter().for_each(|row| add_link(row, (from, to), &faults));
        }
        What::Group { of_requests, faults } => {
            let which = if of_requests { "requests: " } else { "" };
            add_link_as(&mut recorded.group, (from, to), &faults, which);
        }
        What::SnapshotsOut { venue } => {
            let row = recorded.venues.get_mut(venue).map(|venue| &mut venue.snapshots);
            row.into_iter().for_each(|row| row.bar(from, to, "out", "connections are refused"));
        }
        What::Tcp(faults) => {
            let out_until = faults.out_until_ns.clamp(from, to);
            if out_until > from {
                recorded.connections.bar(from, out_until, "out", "out");
            }
            recorded.connections.bar(out_until, to, "lossy", text::tcp(&faults));
        }
        What::Disk(faults) => recorded.plant.disk.bar(from, to, "lossy", text::disk(&faults)),
        What::Kill => life.bar(from, to, "out", format!("killed; starts again after {lasts}")),
        What::PowerOff => life.bar(from, to, "out", format!("power loss; starts again after {lasts}")),
        What::Rot { bits, .. } => {
            life.bar(
                from,
                to,
                "out",
                format!("power loss, and {bits} bits turn; starts again after {lasts}"),
            );
        }
        What::LostPages { pages } => {
            life.bar(
                from,
                to,
                "out",
                format!("power loss, and {pages} synced pages are gone; starts again after {lasts}"),
            );
        }
        What::Hang => life.bar(from, to, "out", "hangs"),
        What::VenuesHang => recorded.market.bar(from, to, "out", "the venues hang"),
        What::SecondPlant => life.mark(from, "note", "a second plant is started on the same journal"),
        What::Clock(ahead_ns) => {
            recorded.plant.clock.bar(from, to, "garbled", format!("the clock is {}", text::ahead(ahead_ns)));
        }
        What::Drift(gains_ppm) => recorded.plant.clock.bar(from, to, "garbled", text::drift(gains_ppm)),
    }
}

/// Adds bars for the network's faults on a line or on requests.
fn add_link(row: &mut Row, at: (u64, u64), faults: &LinkFaults) {
    add_link_as(row, at, faults, "");
}

/// Like `add_link`, for a row with more than one kind of link.
fn add_link_as(row: &mut Row, (from, to): (u64, u64), faults: &LinkFaults, which: &str) {
    let out_until = faults.out_until_ns.clamp(from, to);
    if out_until > from {
        row.bar(from, out_until, "out", format!("{which}out"));
    }
    let is_usual = LinkFaults { out_until_ns: 0, ..*faults } == LinkFaults::default();
    if out_until < to && !is_usual {
        let kind = if faults.damages() || faults.padded_per_million > 0 { "garbled" } else { "lossy" };
        row.bar(out_until, to, kind, format!("{which}{}", text::link(faults)));
    }
}

#[cfg(test)]
mod tests;
