//! Checks the plant's counters against what the network did and what the venues sent.
//!
//! A restarted plant counts from its journal, so its counters prove nothing and are not checked.

use std::net::SocketAddr;

use tapeworks_generator::live::NonsenseCounts;
use tapeworks_market::Line;
use tapeworks_plant::{ChannelStatus, Status};
use tapeworks_venues::Report;

use crate::kernel::network::{LinkCounts, link_counts};
use crate::oracle::{Oracle, Sums};
use crate::plan::{Plan, What};

/// Checks, at the end, a plant that has run since before the first packet.
pub(crate) fn check(
    plan: &Plan,
    status: &Status,
    oracle: &mut Oracle,
    venues: Option<&Report>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut is_whole = true;
    let (mut all, mut sent_wrongly) = (Sums::default(), NonsenseCounts::default());
    for (place, (venue, channel)) in plan.venues.iter().zip(&status.channels).enumerate() {
        let sums = oracle.sums(place);
        let mut note = |text: String| wrong.push(format!("counters of {}: {text}", channel.name));
        is_whole &= lines(plan, place, channel, &mut note);
        sequence(plan, place, channel, &sums, &mut note);
        let is_complete = sums.sessions == 1
            && channel.next == Some(sums.sent + 1)
            && channel.counters.missing == sums.unreadable
            && channel.snapshots.requests == 0
            && venue.answers.garbage_per_million == 0;
        is_whole &= is_complete && channel.counters.missing == 0;
        if let Some(report) = venues.and_then(|report| report.venues.get(place)).filter(|_| is_complete) {
            sent_wrongly.renamed += report.live.nonsense.renamed;
            sent_wrongly.too_much += report.live.nonsense.too_much;
        }
        all.add(&sums);
    }
    // A plant that has every message, and no other, finds exactly the venue's errors.
    let found = (status.engine.problems, status.books.rejected, status.books.contradicted as u64);
    let is = (all.problems, all.rejected, all.contradicted_books);
    if is_whole && found != is {
        wrong.push(format!(
            "problems, rejected changes, contradicted books are {found:?}, and the venues sent {is:?}"
        ));
    }
    // The venues know which of their readable messages no locate and no book can accept.
    let NonsenseCounts { renamed, too_much, .. } = sent_wrongly;
    if status.engine.problems < renamed || status.books.rejected < too_much {
        wrong.push(format!(
            "{} problems and {} rejected changes, and the venues sent {renamed} other symbols and {too_much} orders overfilled",
            status.engine.problems, status.books.rejected
        ));
    }
    wrong
}

/// Checks the lines: each datagram that arrived is counted once. Returns whether all of them arrived as sent.
fn lines(plan: &Plan, place: usize, channel: &ChannelStatus, note: &mut impl FnMut(String)) -> bool {
    let mut is_undamaged = true;
    // A second plant on the machine briefly has its own sockets.
    let is_alone = !plan.faults.iter().any(|fault| matches!(fault.what, What::SecondPlant));
    for line in &channel.lines {
        let (number, to): (usize, SocketAddr) = match line.line {
            Line::A => (0, Plan::line(place, 0).into()),
            Line::B => (1, Plan::line(place, 1).into()),
            // A connection carries no datagrams.
            Line::Recovery if plan.answers_over_tcp(place) => continue,
            Line::Recovery | Line::Snapshot => {
                let LinkCounts { sent, damaged, .. } = link_counts(line.address);
                is_undamaged &= damaged == 0;
                let counters = &line.counters;
                let taken = counters.packets + counters.malformed;
                if taken > link_counts(line.address).arrived {
                    note(format!("{taken} answers were taken, and {sent} sent"));
                }
                continue;
            }
        };
        let LinkCounts { sent, lost, twice, late_copies, damaged, overflowed, arrived, .. } = link_counts(to);
        is_undamaged &= damaged == 0;
        if !is_alone {
            continue;
        }
        // Some late copies may still be in flight.
        let on_lines = sent + twice..=sent + twice + late_copies;
        if !on_lines.contains(&(lost + arrived + overflowed)) {
            note(format!(
                "line {number}: {sent} sent, {twice} twice, {late_copies} copied late, {lost} lost, {overflowed} dropped, {arrived} \
                 arrived"
            ));
        }
        if line.kernel_drops != overflowed {
            let drops = line.kernel_drops;
            note(format!("line {number}: {drops} drops are reported, and {overflowed} happened"));
        }
        let counters = &line.counters;
        let counted = counters.packets
            + counters.malformed
            + counters.of_past_sessions
            + counters.of_other_feeds
            + counters.implausible;
        // A partly read packet counts as malformed too. A packet of a possible next session waits.
        let is_right = match damaged == 0 && plan.has_one_session(place) {
            // The plant's counters lag, and late copies may arrive until the end.
            true => (counted..=counted + late_copies).contains(&arrived),
            false => counted <= arrived + damaged,
        };
        if !is_right {
            note(format!(
                "line {number}: {counted} packets are counted, {arrived} arrived, {damaged} of them damaged"
            ));
        }
    }
    is_undamaged
}

/// Checks the sequence: each message is shown or missing, and each shown message came from one line.
fn sequence(plan: &Plan, place: usize, channel: &ChannelStatus, sums: &Sums, note: &mut impl FnMut(String)) {
    let Some(venue) = plan.venues.get(place) else { return };
    let counters = &channel.counters;
    let won: u64 = channel.lines.iter().map(|line| line.counters.won).sum();
    if won != counters.messages {
        note(format!("the lines brought {won} messages, and {} were handed on", counters.messages));
    }
    if counters.late > counters.missing {
        note(format!("{} messages came late, and {} were missing", counters.late, counters.missing));
    }
    let by_reason: u64 = counters.gaps_by.iter().sum();
    if by_reason != counters.gaps {
        note(format!("{} gaps were given up, and {by_reason} for a reason", counters.gaps));
    }
    if venue.nonsense_per_million == 0
        && venue.answers.garbage_per_million == 0
        && sums.named != counters.missing
    {
        note(format!("{} messages are missing, and {} were named", counters.missing, sums.named));
    }
    if plan.has_one_session(place) && channel.snapshots.requests == 0 && counters.session_changes == 0 {
        let reached = channel.next.unwrap_or(1) - 1;
        let accounted = counters.messages + counters.missing;
        if accounted != reached || reached > sums.sent {
            let sent = sums.sent;
            note(format!(
                "{accounted} messages are shown or missing, of {reached} up to now, and {sent} sent"
            ));
        }
    }
}
