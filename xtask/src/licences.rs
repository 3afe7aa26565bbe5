//! What we link: whose licences fit, from the one public registry, and nothing that the house has ruled out.
//!
//! The licences are those that each crate declares, read as SPDX expressions.

use serde_json::Value;

use crate::process;

/// Licences that require no more than a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// One clock, one TLS: what the house has chosen, it does not link twice.
const RULED_OUT: &[&str] = &["openssl-sys", "chrono-tz"];

/// The engine of `tapeworks query` brings time zones of its own. It is a program apart, so nobody links both.
const OF_QUERY: (&str, &[&str]) = ("query/Cargo.toml", &["chrono-tz"]);

/// Parts of peers in the benches, whose licence asks for the source of changed files. Nobody gets the benches as a program, and we change
/// nothing.
const OF_BENCHES: (&str, &[&str]) = ("bench/Cargo.toml", &["smartstring"]);

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Ours, each with a lock file of its own.
const WORKSPACES: [&str; 6] = [
    "Cargo.toml",
    "bench/Cargo.toml",
    "bindings/python/Cargo.toml",
    "fuzz/Cargo.toml",
    "interop/live/Cargo.toml",
    "query/Cargo.toml",
];

/// Checks every crate of every lock file.
pub(crate) fn run() -> Result<String, String> {
    let mut faults = Vec::new();
    let mut checked = 0;
    for manifest in WORKSPACES {
        let metadata = process::metadata(&["--all-features", "--manifest-path", manifest])?;
        let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
        if packages.is_empty() {
            return Err(format!("{manifest}: cargo lists no packages"));
        }
        let excepted = [OF_BENCHES, OF_QUERY].into_iter().filter(|(of, _)| *of == manifest);
        let excepted: Vec<&str> = excepted.flat_map(|(_, names)| names.iter().copied()).collect();
        let is_excepted = |package: &&Value| excepted.iter().any(|name| package["name"] == **name);
        faults.extend(packages.iter().filter(|package| !is_excepted(package)).filter_map(fault));
        checked += packages.len();
    }
    faults.sort();
    faults.dedup();
    if faults.is_empty() {
        Ok(format!("the licences and sources of {checked} crates fit"))
    } else {
        Err(faults.join("\n"))
    }
}

/// What is wrong with a package.
fn fault(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    if RULED_OUT.contains(&name) {
        return Some(format!("{name}: is ruled out"));
    }
    let Some(source) = package["source"].as_str() else {
        // Ours: each dependency names a version.
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let any = dependencies.iter().find(|one| one["req"] == "*" && one["path"].is_null())?;
        return Some(format!("{name}: takes any version of {}", any["name"]));
    };
    if source != REGISTRY {
        return Some(format!("{name}: comes from {source}"));
    }
    match package["license"].as_str() {
        Some(licence) if fits(licence) => None,
        Some(licence) => Some(format!("{name}: the licence is {licence}")),
        None => Some(format!("{name}: declares no licence")),
    }
}

/// Whether what [`ALLOWED`] lists satisfies the expression.
fn fits(licence: &str) -> bool {
    // Older crates write a slash where SPDX has `OR`.
    let Ok(expression) = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) else { return false };
    expression.evaluate(|requirement| ALLOWED.contains(&requirement.to_string().as_str()))
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn one_allowed_alternative_is_enough_and_every_part_of_it_is_needed() {
        for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(fits(good), "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "proprietary", ""] {
            assert!(!fits(bad), "{bad}");
        }
    }
}
