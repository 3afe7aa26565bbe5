//! What is shipped for running a plant: checked by those who will read it.

use crate::process;
use crate::tools::{self, Lack};

/// Where the unit says that the binary is.
const INSTALLED: &str = "/usr/local/bin/tapeworks";

pub(crate) fn needs() -> Result<(), Lack> {
    tools::debian("systemd-analyze", "systemd")?;
    tools::python().map(drop)
}

pub(crate) fn run() -> Result<String, Lack> {
    let binary = tools::release_binary()?;
    let failed = |error: std::io::Error| Lack::Failed(error.to_string());
    let root = process::root();
    for (command, folder) in
        [(&["validate"][..], "examples/plant"), (&["exchange", "check"], "examples/exchange")]
    {
        for entry in std::fs::read_dir(root.join(folder)).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                process::program(&binary).args(command).arg(&path).run().map_err(Lack::Failed)?;
            }
        }
    }
    let unit =
        std::fs::read_to_string(root.join("deploy/systemd/tapeworks-plant.service")).map_err(failed)?;
    let folder = process::target_folder().join("deploy");
    std::fs::create_dir_all(&folder).map_err(failed)?;
    // The same unit with the binary that is there: a missing one is an error to it.
    let copy = folder.join("tapeworks-plant.service");
    std::fs::write(&copy, unit.replace(INSTALLED, &binary.display().to_string())).map_err(failed)?;
    // What it finds it says on standard error.
    let verify = "systemd-analyze verify --man=no \"$0\" 2>&1";
    let answer = process::program("sh").args(["-c", verify]).arg(&copy).output().map_err(Lack::Failed)?;
    // It warns about units of the machine too; what it says of ours counts.
    if let Some(line) = answer.lines().find(|line| line.contains("tapeworks-plant")) {
        return Err(Lack::Failed(line.to_owned()));
    }
    let python = tools::python()?;
    let hadolint = python.with_file_name("hadolint");
    process::program(hadolint).arg(root.join("deploy/Dockerfile")).run().map_err(Lack::Failed)?;
    Ok("systemd, hadolint and the product itself have nothing to say".into())
}
