//! FIX messages read and written: what `benches/fix.rs` of the codec times.

#[path = "../../../crates/wire/benches/orders/mod.rs"]
mod orders;

use std::hint::black_box;

use orders::Values;
use tapeworks_wire::fix::order_entry::{ExecutionReport, NewOrderSingle};
use tapeworks_wire::schema::SplitMix64;

/// Different messages.
const MESSAGES: u64 = 4_000;

/// Runs `counted` over the messages of a stage, and returns how many they are; `None` for another stage, or if a message is not read.
pub(crate) fn run(stage: &str, counted: fn(&mut dyn FnMut())) -> Option<u64> {
    let mut random = SplitMix64::new(0xf1c5);
    let values: Vec<Values> = (1..=MESSAGES).map(|sequence| Values::random(&mut random, sequence)).collect();
    let mut buffer = [0; 1_024];
    let written = |write: for<'b> fn(&Values, &'b mut [u8]) -> &'b [u8]| -> Vec<Vec<u8>> {
        values.iter().map(|values| write(values, &mut [0; 1_024]).to_vec()).collect()
    };
    let mut done = 0;
    match stage {
        "fix-order" => {
            let messages = written(|values, buffer| values.write_order(buffer));
            counted(&mut || {
                for message in &messages {
                    let mut view = NewOrderSingle::unread();
                    done += u64::from(view.read_into(black_box(message)).is_ok());
                    black_box(&view);
                }
            });
        }
        "fix-report" => {
            let messages = written(|values, buffer| values.write_report(buffer));
            counted(&mut || {
                for message in &messages {
                    let mut view = ExecutionReport::unread();
                    done += u64::from(view.read_into(black_box(message)).is_ok());
                    black_box(&view);
                }
            });
        }
        "fix-write-order" => counted(&mut || {
            for values in &values {
                done += u64::from(!black_box(values).write_order(&mut buffer).is_empty());
            }
        }),
        "fix-write-report" => counted(&mut || {
            for values in &values {
                done += u64::from(!black_box(values).write_report(&mut buffer).is_empty());
            }
        }),
        _ => return None,
    }
    (done == MESSAGES).then_some(done)
}
