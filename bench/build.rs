//! Writes the machines that `bench dispatch` times, each number of message types with each dispatcher; and has `sbe_gen` write the decoder
//! that `bench feeds` compares with ours.

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
    memoir(&folder);
}

/// The modules of `sbe_gen`, and a file to include: theirs begin with attributes that an included file must not have.
fn memoir(folder: &str) {
    const SCHEMA: &str = "peers/sbe/memoir.xml";
    println!("cargo::rerun-if-changed={SCHEMA}");
    let schema = std::fs::read_to_string(SCHEMA).expect("the schema is here");
    // It does not read the schema's byte order.
    let options = sbe_gen::GeneratorOptions { endian: "big".into(), ..Default::default() };
    sbe_gen::generate_to(&schema, format!("{folder}/memoir"), &options).expect("the schema is sound");
    let file = "#[path = \"memoir/mod.rs\"]\npub mod memoir;\n";
    std::fs::write(format!("{folder}/sbe.rs"), file).expect("the folder can be written");
}
