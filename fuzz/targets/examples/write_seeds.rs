//! Writes every target's seeds into `fuzz/corpus`, where `cargo fuzz` looks for them.
//!
//!     cargo run --package tapeworks-fuzz-targets --example write_seeds

use std::path::Path;
use std::{fs, io};

use tapeworks_fuzz_targets::{TARGETS, seeds, seeds_of};

fn main() -> io::Result<()> {
    for (name, _) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
        fs::create_dir_all(&folder)?;
        let mut inputs = seeds::made(name)?;
        inputs.extend(seeds::kept(seeds_of(name))?);
        for (number, input) in inputs.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:03}")), input)?;
        }
        println!("{name}: {} seeds", inputs.len());
    }
    Ok(())
}
