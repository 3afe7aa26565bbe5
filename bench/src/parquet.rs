//! The whole replay into files: read, decode, books, NBBO, write.

use std::ops::ControlFlow;

use tapeworks_analysis::replay::{self, Output};
use tapeworks_store::Schema;

use crate::Options;
use crate::rounds::Rounds;

pub fn run(options: &Options) {
    let folder = options.folder.join(format!("tapeworks-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    let input = folder.join("bench-2025-11-14.itch");
    let (bytes, messages) = crate::itch::file(options);
    std::fs::write(&input, bytes).expect("the folder has room");
    println!(
        "file: {messages} messages, {} symbols at random; read from and written to {}\n",
        options.symbols,
        folder.display()
    );
    let mut rounds = Rounds::new(messages);
    let outputs = [
        ("replay, no output", None, 1),
        ("replay to Parquet, mbo", Some(("out.parquet", Schema::Mbo)), 1),
        ("replay to Parquet, mbo, two threads", Some(("two.parquet", Schema::Mbo)), 2),
        ("replay to Parquet, cmbp-1", Some(("nbbo.parquet", Schema::Cmbp1)), 1),
        ("replay to DBN, mbo", Some(("out.dbn", Schema::Mbo)), 1),
        ("replay to DBN zstd, mbo", Some(("out.dbn.zst", Schema::Mbo)), 1),
        ("replay to CSV, mbo", Some(("out.csv", Schema::Mbo)), 1),
    ];
    for (name, output, threads) in outputs {
        let outputs = output.map(|(file, schema)| Output {
            path: folder.join(file),
            schema,
            options: tapeworks_store::Options { overwrite: true, ..Default::default() },
        });
        let options = replay::Options {
            inputs: vec![input.clone()],
            outputs: outputs.into_iter().collect(),
            threads,
            ..replay::Options::default()
        };
        rounds.add(name, move || {
            let summary =
                replay::replay(&options, &mut |_| ControlFlow::Continue(())).expect("the replay succeeds");
            summary.events
        });
    }
    rounds.run("whole replay, one core but for the line with two threads", options.rounds);
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}
