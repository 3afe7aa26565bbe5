//! Other people's programs over our files: the scripts in `interop/`, one for each counterpart.
//!
//! Each script is given the release binary, the repository and a folder to write to, compares, and prints what it
//! compared; it exits with 1 and a line for each difference.

use crate::process;
use crate::tools::{self, Lack};

/// The counterparts whose scripts need the Python packages of `interop/requirements.txt`.
const PYTHON: [&str; 3] = ["with_databento.py", "with_duckdb.py", "with_polars.py"];

/// What tshark shows, against what `tapeworks dump` says.
pub(crate) fn tshark() -> Result<String, Lack> {
    tools::debian("tshark", "tshark")?;
    let python = if process::is_installed("python3") { "python3" } else { "python" };
    script(python.as_ref(), "with_tshark.py").map_err(Lack::Failed)?;
    Ok("tshark shows the fields that dump tells".into())
}

/// What databento, DuckDB and Polars read, against each other and against the text outputs.
pub(crate) fn python() -> Result<String, Lack> {
    let python = tools::python()?;
    for name in PYTHON {
        script(python.as_os_str(), name).map_err(Lack::Failed)?;
    }
    Ok(format!("{} counterparts read the same records", PYTHON.len()))
}

fn script(python: &std::ffi::OsStr, name: &str) -> Result<(), String> {
    let target = process::target_folder();
    process::program(python)
        .arg(process::root().join("interop").join(name))
        .arg("--tapeworks")
        .arg(target.join("release/tapeworks"))
        .arg("--work")
        .arg(target.join("interop"))
        .run()
}
