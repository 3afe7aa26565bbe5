//! What is shipped for running a plant and a gateway: checked by those who will read it.

use std::path::{Path, PathBuf};

use crate::process;
use crate::tools::{self, Lack};

/// Where the units say that the binary is.
const INSTALLED: &str = "/usr/local/bin/tapeworks";

/// The version of Kubernetes whose schemas the objects must fit.
const KUBERNETES: &str = "1.37.0";

/// The exposure that `systemd-analyze security` may find in a unit, in tenths: 0 is none, 100 all.
const MOST_EXPOSED: u32 = 15;

pub(crate) fn needs() -> Result<(), Lack> {
    tools::debian("systemd-analyze", "systemd")?;
    tools::python().map(drop)
}

pub(crate) fn run() -> Result<String, Lack> {
    let binary = tools::release_binary()?;
    let failed = |error: std::io::Error| Lack::Failed(error.to_string());
    let root = process::root();
    for (command, folder) in [
        (&["validate"][..], "examples/plant"),
        (&["validate"], "deploy/compose"),
        (&["validate"], "deploy/kubernetes"),
        (&["exchange", "check"], "examples/exchange"),
        (&["gateway", "check"], "examples/gateway"),
    ] {
        for path in files(&root.join(folder), "toml")? {
            // A gateway's prices come from a plant, whose configuration lies beside the gateway's.
            let command = if path.ends_with("plant.toml") { &["validate"][..] } else { command };
            process::program(&binary).args(command).arg(&path).run().map_err(Lack::Failed)?;
        }
    }
    let folder = process::target_folder().join("deploy");
    std::fs::create_dir_all(&folder).map_err(failed)?;
    for path in files(&root.join("deploy/systemd"), "service")? {
        let name = path.file_name().unwrap_or_default();
        let unit = std::fs::read_to_string(&path).map_err(failed)?;
        // The program must know the arguments. It reads them up to the request for help.
        let commands = unit.lines().filter_map(|line| line.split_once(INSTALLED));
        for (_, arguments) in commands.filter(|(key, _)| key.starts_with("ExecStart")) {
            let command = process::program(&binary).args(arguments.split_whitespace());
            command.arg("--help").output().map_err(Lack::Failed)?;
        }
        // The same unit with the binary that is there: a missing one is an error to it.
        let copy = folder.join(name);
        std::fs::write(&copy, unit.replace(INSTALLED, &binary.display().to_string())).map_err(failed)?;
        // What it finds it says on standard error.
        let verify = "systemd-analyze verify --man=no \"$0\" 2>&1";
        let answer = process::program("sh").args(["-c", verify]).arg(&copy).output().map_err(Lack::Failed)?;
        // It warns about units of the machine too; what it says of ours counts.
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(line) = answer.lines().find(|line| line.contains(&*name)) {
            return Err(Lack::Failed(line.to_owned()));
        }
        let exposure = process::program("systemd-analyze").args(["security", "--offline=true", "--no-pager"]);
        let exposure = exposure.arg(format!("--threshold={MOST_EXPOSED}")).arg(&copy).output();
        // The line of the figure is its last.
        println!("{}", exposure.map_err(Lack::Failed)?.trim_end().lines().next_back().unwrap_or_default());
    }
    let python = tools::python()?;
    let hadolint = python.with_file_name("hadolint");
    process::program(hadolint).arg(root.join("deploy/Dockerfile")).run().map_err(Lack::Failed)?;
    let schema = process::program(python.with_file_name("check-jsonschema"));
    let schema = schema
        .args(["--builtin-schema", "vendor.compose-spec"])
        .arg(root.join("deploy/compose/compose.yaml"));
    schema.run().map_err(Lack::Failed)?;
    let mut objects = files(&root.join("deploy/kubernetes"), "yaml")?;
    // What is made of them is no object of Kubernetes.
    objects.retain(|path| !path.ends_with("kustomization.yaml"));
    let kubernetes = process::program(python.with_file_name("kubernetes-validate"));
    kubernetes
        .args(["--strict", "--kubernetes-version", KUBERNETES])
        .args(objects)
        .run()
        .map_err(Lack::Failed)?;
    Ok("systemd, hadolint, the schemas of compose and Kubernetes, and the product itself have nothing to say"
        .into())
}

/// The files of a folder with an ending, of which there is at least one.
pub(crate) fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Lack> {
    let paths = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>());
    let mut found = paths.map_err(|error| Lack::Failed(format!("{}: {error}", folder.display())))?;
    found.retain(|path| path.extension().is_some_and(|of| of == ending));
    if found.is_empty() {
        return Err(Lack::Failed(format!("{}: no {ending} file", folder.display())));
    }
    Ok(found)
}
