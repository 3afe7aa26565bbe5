//! Writes the machines that `bench dispatch` times: each number of message types with each dispatcher.

#[allow(dead_code, reason = "the benchmark uses the rest")]
#[path = "src/dispatch/source.rs"]
mod source;

fn main() {
    println!("cargo::rerun-if-changed=src/dispatch/source.rs");
    let most = source::SETS.iter().map(|set| source::codes_of(set).len()).max().unwrap_or_default();
    let mut text = source::context(most);
    for set in source::SETS {
        for dispatch in source::DISPATCHES {
            text.push_str(&source::machine(
                &format!("{dispatch}_of_{set}"),
                dispatch,
                &source::codes_of(set),
            ));
        }
    }
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(format!("{folder}/machines.rs"), text).expect("the folder can be written");
}
