//! `tapeworks-query`: SQL over the files of `tapeworks batch`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tapeworks_query::program::main()
}
