//! The cargo features of our crates: those that a run builds the workspace with, and each of them alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crate::process::{self, Program, cargo};
use crate::tools::{self, Lack};

/// The features that need more than the toolchain to build, each with what looks for it.
const DEMANDING: [Demanding; 4] =
    [("aeron", tools::aeron), ("af-xdp", tools::af_xdp), ("dpdk", tools::dpdk), ("kafka", tools::kafka)];

/// A feature's name, and what looks for its needs.
type Demanding = (&'static str, fn() -> Result<(), Lack>);

/// A feature that cannot be built here, and why.
type LeftOut = Vec<(&'static str, String)>;

/// What the workspace is built with. Every step that builds it takes the same, so that nothing is built twice.
#[derive(Default)]
pub(crate) struct Features {
    /// `package/feature`, besides the default ones.
    more: Vec<String>,
    left_out: LeftOut,
}

impl Features {
    /// All that can be built here.
    pub(crate) fn all() -> Result<Self, String> {
        let lacks = |(name, needs): Demanding| match needs() {
            Ok(()) => None,
            // Where nothing may be skipped the step of each feature alone fails for it.
            Err(Lack::Skipped(why) | Lack::Failed(why)) => Some((name, why)),
        };
        let left_out: LeftOut = DEMANDING.into_iter().filter_map(lacks).collect();
        let more = packages(&left_out)?.into_iter().flat_map(|(package, features)| {
            features.into_iter().map(move |feature| format!("{package}/{feature}"))
        });
        Ok(Self { more: more.collect(), left_out })
    }

    /// Which features are left out, and why.
    pub(crate) fn left_out(&self) -> Option<String> {
        let all: Vec<String> =
            self.left_out.iter().map(|(name, why)| format!("{name} is left out: {why}")).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Cargo's command for the whole workspace with these features.
    pub(crate) fn workspace(&self, command: &str) -> Program {
        let run = cargo([command, "--workspace", "--locked"]);
        if self.more.is_empty() { run } else { run.arg("--features").arg(self.more.join(",")) }
    }

    /// Builds what the workspace has for others to run: these programs and examples. What this process has built is there: cargo, asked again,
    /// would wait for the builds of the steps beside.
    pub(crate) fn build(&self, kind: &str, names: &[&str]) -> Result<(), Lack> {
        static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let folder =
            process::target_folder().join(if kind == "--example" { "debug/examples" } else { "debug" });
        let key = |name: &str| format!("{kind} {name} {}", self.more.join(","));
        let is_built = |name: &&&str| {
            let built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
            // Where the disk was full it has been removed.
            built.contains(&key(name)) && folder.join(name).is_file()
        };
        let missing: Vec<&str> = names.iter().filter(|name| !is_built(name)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let named = missing.iter().flat_map(|name| [kind, name]);
        self.workspace("build").with_features_of_tests().args(named).run().map_err(Lack::Failed)?;
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        built.extend(missing.iter().map(|name| key(name)));
        Ok(())
    }
}

/// Each package of ours that has features, and the names of those that can be built here.
fn packages(left_out: &LeftOut) -> Result<Vec<(String, Vec<String>)>, String> {
    let metadata = process::metadata(&["--no-deps"])?;
    let of = |package: &serde_json::Value| {
        let features = package["features"].as_object()?;
        let is_built =
            |name: &&String| *name != "default" && left_out.iter().all(|(left_out, _)| *name != left_out);
        let features: Vec<String> = features.keys().filter(is_built).cloned().collect();
        (!features.is_empty()).then_some((package["name"].as_str()?.to_owned(), features))
    };
    Ok(metadata["packages"].as_array().into_iter().flatten().filter_map(of).collect())
}

/// Lints each package with none of its features, and all packages that have a feature with it and no other. A package alone shows what
/// it uses and only another package asks for, and a feature that is off what is unused without it.
pub(crate) fn alone() -> Result<String, Lack> {
    let mut left_out = LeftOut::new();
    for (name, needs) in DEMANDING {
        match needs() {
            Ok(()) => {}
            Err(Lack::Skipped(why)) => left_out.push((name, why)),
            Err(failed) => return Err(failed),
        }
    }
    let lint = || cargo(["clippy", "--locked", "--no-default-features"]);
    let run = || {
        let packages = packages(&left_out)?;
        let mut with: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (package, features) in &packages {
            lint().args(["--package", package, "--", "--deny", "warnings"]).run()?;
            for feature in features {
                with.entry(feature).or_default().push(package);
            }
        }
        for (feature, packages) in &with {
            let named = packages.iter().flat_map(|package| ["--package", package]);
            let wanted: Vec<String> = packages.iter().map(|package| format!("{package}/{feature}")).collect();
            let run = lint().args(named).arg("--features").arg(wanted.join(","));
            run.args(["--", "--deny", "warnings"]).run()?;
        }
        Ok((packages.len(), with.len()))
    };
    let (packages, features) = run().map_err(Lack::Failed)?;
    let but: String = left_out.iter().map(|(name, why)| format!(", {name} left out: {why}")).collect();
    Ok(format!("{packages} packages build without a feature, and with each of {features} alone{but}"))
}
