//! FIX messages read and written: what `benches/fix.rs` of the codec times.

#[path = "../../../crates/protocols/fix-wire/benches/orders/mod.rs"]
mod orders;

use std::hint::black_box;

use orders::{Sender, Values};
use tapeworks_fix_wire::LastTimestamp;
use tapeworks_fix_wire::order_entry::{ExecutionReport, NewOrderSingle};
use tapeworks_wire::schema::SplitMix64;

/// Different messages.
const MESSAGES: u64 = 4_000;

/// Runs `counted` over the messages of a stage, and returns how many they are; `None` for another stage, or if a message is not read.
pub(crate) fn run(stage: &str, counted: fn(&mut dyn FnMut())) -> Option<u64> {
    let mut random = SplitMix64::new(0xf1c5);
    let values: Vec<Values> = (1..=MESSAGES).map(|sequence| Values::random(&mut random, sequence)).collect();
    let mut sender = Sender::new();
    let written = |write: for<'s> fn(&'s mut Sender, &Values) -> &'s [u8]| -> Vec<Vec<u8>> {
        let mut sender = Sender::new();
        values.iter().map(|values| write(&mut sender, values).to_vec()).collect()
    };
    let mut done = 0;
    match stage {
        "fix-order" => {
            let messages = written(Sender::order);
            let (mut view, mut last) = (NewOrderSingle::unread(), LastTimestamp::NONE);
            counted(&mut || {
                for message in &messages {
                    done += u64::from(view.read_into_behind(black_box(message), &mut last).is_ok());
                    black_box(&view);
                }
            });
        }
        "fix-report" => {
            let messages = written(Sender::report);
            let (mut view, mut last) = (ExecutionReport::unread(), LastTimestamp::NONE);
            counted(&mut || {
                for message in &messages {
                    done += u64::from(view.read_into_behind(black_box(message), &mut last).is_ok());
                    black_box(&view);
                }
            });
        }
        "fix-write-order" => counted(&mut || {
            for values in &values {
                done += u64::from(!sender.order(black_box(values)).is_empty());
            }
        }),
        "fix-write-report" => counted(&mut || {
            for values in &values {
                done += u64::from(!sender.report(black_box(values)).is_empty());
            }
        }),
        _ => return None,
    }
    (done == MESSAGES).then_some(done)
}
