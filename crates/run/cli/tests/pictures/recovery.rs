//! Lines A and B of a channel with losses, and how the arbiter merges them, on a time line.

use tapeworks_drawing::{Anchor, Drawing, colour};
use tapeworks_follow::arbitration::{Arbiter, ArbiterOptions, Delivery, RetransmissionOptions};
use tapeworks_market::Line;
use tapeworks_session::TransportKind;
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacketFields;

use super::compare_with_book;

/// Messages of the channel, one in each packet, and the time from one to the next, in µs.
const MESSAGES: u64 = 18;
const SPACING_US: u64 = 100;

/// How much later line B delivers a packet, in µs.
const B_BEHIND_US: u64 = 30;

/// Numbers that each line loses. Both lose 9 and 10.
const LOST_BY_A: [u64; 4] = [4, 9, 10, 15];
const LOST_BY_B: [u64; 3] = [6, 9, 10];

/// How long the retransmission server takes for an answer, in µs.
const ANSWER_US: u64 = 250;

const US: u64 = 1_000;

/// A packet of one message on a lane, and when.
struct Arrival {
    us: u64,
    line: Line,
    numbers: std::ops::Range<u64>,
}

fn packet(numbers: &std::ops::Range<u64>) -> Vec<u8> {
    let mut blocks = Vec::new();
    for number in numbers.clone() {
        blocks.extend_from_slice(&8u16.to_be_bytes());
        blocks.extend_from_slice(&number.to_be_bytes());
    }
    let fields = DownstreamPacketFields {
        session: Ascii(*b"SESSION001"),
        sequence_number: numbers.start,
        message_count: (numbers.end - numbers.start) as u16,
        messages: &[],
    };
    // The header first: a count that differs from the blocks' is not encoded.
    let mut bytes = vec![0; 20];
    fields.encode_into(&mut bytes).unwrap();
    bytes.extend(blocks);
    bytes
}

/// What the arbiter does: numbers with the line that delivered them, and requests, each with its time in µs.
struct Outcome {
    delivered: Vec<(u64, u64, Line)>,
    requests: Vec<(u64, std::ops::Range<u64>)>,
    arrivals: Vec<Arrival>,
}

/// Runs the arbiter over the lines, with a server that answers its requests.
fn outcome() -> Outcome {
    let mut arrivals = Vec::new();
    for number in 1..=MESSAGES {
        let (us, numbers) = (number * SPACING_US, number..number + 1);
        for (line, lost, behind) in [(Line::A, &LOST_BY_A[..], 0), (Line::B, &LOST_BY_B[..], B_BEHIND_US)] {
            if !lost.contains(&number) {
                arrivals.push(Arrival { us: us + behind, line, numbers: numbers.clone() });
            }
        }
    }
    let retransmission = Some(RetransmissionOptions::default());
    let options = ArbiterOptions { retransmission, ..ArbiterOptions::default() };
    let mut arbiter = Arbiter::new(TransportKind::MoldUdp64, options);
    let (mut delivered, mut requests) = (Vec::new(), Vec::new());
    let end = (MESSAGES + 3) * SPACING_US;
    for us in 0..end {
        let now = Nanos(us * US);
        let mut deliver = |delivery: Delivery<'_>| match delivery {
            Delivery::Packet { header, line, .. } => {
                delivered
                    .extend((header.first..header.first + header.count).map(|number| (us, number, line)));
            }
            Delivery::Gap { missing, .. } => panic!("given up: {missing:?}"),
            _ => {}
        };
        arbiter.advance(now, &mut deliver);
        for arrival in arrivals.iter().filter(|arrival| arrival.us == us) {
            arbiter.packet(arrival.line, now, &packet(&arrival.numbers), &mut deliver).unwrap();
        }
        while let Some(request) = arbiter.take_request() {
            let numbers = request.first..request.first + u64::from(request.count);
            requests.push((us, numbers.clone()));
            arrivals.push(Arrival { us: us + ANSWER_US, line: Line::Recovery, numbers });
        }
    }
    Outcome { delivered, requests, arrivals }
}

const WIDTH: f64 = 1_000.0;
const LABEL: f64 = 120.0;
/// Vertical places of the lanes.
const LANE_A: f64 = 70.0;
const LANE_B: f64 = 120.0;
const SERVER: f64 = 170.0;
const OUTPUT: f64 = 230.0;
const STEP: f64 = 7.0;

fn x(us: u64) -> f64 {
    LABEL + us as f64 * (WIDTH - LABEL - 24.0) / ((MESSAGES + 3) * SPACING_US) as f64
}

fn draw(outcome: &Outcome) -> String {
    let mut drawing = Drawing::new(WIDTH);
    let bottom = OUTPUT + STEP * (MESSAGES + 2) as f64;
    drawing.text(
        "strong",
        (16.0, 28.0),
        Anchor::Start,
        "What one line loses, the other delivers; what both lose is requested",
    );
    for (name, y) in [("line A", LANE_A), ("line B", LANE_B), ("requests", SERVER)] {
        drawing.text("ink", (16.0, y + 14.0), Anchor::Start, name);
        drawing.line("grid", (LABEL, y + 10.0), (WIDTH - 16.0, y + 10.0));
    }
    drawing.text("ink", (16.0, OUTPUT + 20.0), Anchor::Start, "delivered,");
    drawing.text("ink", (16.0, OUTPUT + 36.0), Anchor::Start, "in order");
    for number in 1..=MESSAGES {
        for (lost, behind, y, line) in
            [(&LOST_BY_A[..], 0, LANE_A, Line::A), (&LOST_BY_B[..], B_BEHIND_US, LANE_B, Line::B)]
        {
            let us = number * SPACING_US + behind;
            let place = (x(us), y + 14.0);
            if lost.contains(&number) {
                drawing.text("faint", place, Anchor::Middle, "×");
                continue;
            }
            let is_first =
                outcome.delivered.iter().any(|(_, delivered, by)| (*delivered, *by) == (number, line));
            let shade = if is_first { colour(0) } else { "#6b7280" };
            drawing.rectangle((place.0 - 10.0, y), (20.0, 20.0), shade);
            drawing.text("label", place, Anchor::Middle, &number.to_string());
        }
    }
    for (us, numbers) in &outcome.requests {
        let text = format!("requests {} to {}", numbers.start, numbers.end - 1);
        drawing.text("ink", (x(*us) - 6.0, SERVER + 14.0), Anchor::End, &text);
        drawing.arrow(&[(x(*us), SERVER + 10.0), (x(us + ANSWER_US) - 14.0, SERVER + 10.0)], colour(1), 1.6);
    }
    for arrival in outcome.arrivals.iter().filter(|arrival| arrival.line == Line::Recovery) {
        for (place, number) in arrival.numbers.clone().enumerate() {
            let left = x(arrival.us) - 10.0 + 22.0 * place as f64;
            drawing.rectangle((left, SERVER), (20.0, 20.0), colour(1));
            drawing.text("label", (left + 10.0, SERVER + 14.0), Anchor::Middle, &number.to_string());
        }
    }
    let height_of = |count: usize| bottom - STEP * count as f64;
    let mut points = vec![(LABEL, height_of(0))];
    for (count, (us, _, _)) in outcome.delivered.iter().enumerate() {
        points.extend([(x(*us), height_of(count)), (x(*us), height_of(count + 1))]);
    }
    points.push((WIDTH - 16.0, height_of(outcome.delivered.len())));
    drawing.path(&points, colour(0), 2.0);
    for us in [0, 500, 1_000, 1_500, 2_000] {
        drawing.line("axis", (x(us), bottom), (x(us), bottom + 5.0));
        drawing.text("faint", (x(us), bottom + 20.0), Anchor::Middle, &format!("{us} µs"));
    }
    drawing.line("axis", (LABEL, bottom), (WIDTH - 16.0, bottom));
    let window = ArbiterOptions::default().reorder_window_ns / US;
    let note = format!(
        "Blue: the copy that was used. Grey: a copy that arrived later. ×: lost. The request waits {window} µs for the other line (reorder_window)."
    );
    drawing.text("faint", (16.0, bottom + 44.0), Anchor::Start, &note);
    drawing.finish("How a channel recovers what its lines lose", bottom + 58.0)
}

#[test]
fn the_picture_of_a_recovery_shows_what_the_arbiter_does() {
    let outcome = outcome();
    let numbers: Vec<u64> = outcome.delivered.iter().map(|(_, number, _)| *number).collect();
    assert_eq!(numbers, (1..=MESSAGES).collect::<Vec<_>>());
    let requested: Vec<u64> = outcome.requests.iter().flat_map(|(_, numbers)| numbers.clone()).collect();
    assert_eq!(requested, [9, 10]);
    compare_with_book("recovery", &draw(&outcome));
}
