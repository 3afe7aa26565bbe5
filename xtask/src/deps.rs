//! Which crate may use which.
//!
//! Dependencies run down the order in which market data passes through the house, and never back. [`MAY_USE`] is that
//! order as a table; [`check`] holds it against `cargo metadata`. Only what ships is looked at: a test may use what it
//! likes. Below [`ABOVE`] nothing uses async runtimes, logging frameworks, configuration files or command lines,
//! not even through a dependency ([`KEPT_OUT`]).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::process;

/// Each crate of ours, and which of ours it may use. A crate that is not here is a violation by itself.
const MAY_USE: &[(&str, &[&str])] = &[
    ("tapeworks-planted", &[]),
    ("tapeworks-disk", &[]),
    ("tapeworks-cloud", &[]),
    ("tapeworks-drawing", &[]),
    ("tapeworks-ring", &[]),
    ("tapeworks-dispatch-search", &[]),
    ("tapeworks-dispatch-macros", &["tapeworks-dispatch-search"]),
    ("tapeworks-dispatch", &["tapeworks-dispatch-macros", "tapeworks-dispatch-search"]),
    ("tapeworks-wire-macros", &[]),
    ("tapeworks-wire", &["tapeworks-wire-macros"]),
    ("tapeworks-fix-wire", &["tapeworks-wire", "tapeworks-wire-macros"]),
    ("tapeworks-capture", &[]),
    ("tapeworks-nic", &["tapeworks-capture", "tapeworks-ring"]),
    ("tapeworks-stage", &[]),
    ("tapeworks-time", &[]),
    ("tapeworks-random", &[]),
    (
        "tapeworks-matching",
        &["tapeworks-random", "tapeworks-wire", "tapeworks-session", "tapeworks-order-session"],
    ),
    ("tapeworks-journal", &["tapeworks-planted", "tapeworks-disk"]),
    ("tapeworks-session", &["tapeworks-wire"]),
    (
        "tapeworks-order-session",
        &["tapeworks-planted", "tapeworks-wire", "tapeworks-fix-wire", "tapeworks-session"],
    ),
    ("tapeworks-flow", &["tapeworks-stage", "tapeworks-ring", "tapeworks-capture", "tapeworks-nic"]),
    ("tapeworks-market", &["tapeworks-planted", "tapeworks-ring", "tapeworks-stage", "tapeworks-time"]),
    (
        "tapeworks-follow",
        &["tapeworks-planted", "tapeworks-wire", "tapeworks-session", "tapeworks-market", "tapeworks-time"],
    ),
    (
        "tapeworks-feed",
        &[
            "tapeworks-follow",
            "tapeworks-time",
            "tapeworks-planted",
            "tapeworks-wire",
            "tapeworks-capture",
            "tapeworks-session",
            "tapeworks-market",
            "tapeworks-stage",
            "tapeworks-fix-wire",
        ],
    ),
    ("tapeworks-store", &["tapeworks-capture", "tapeworks-market", "tapeworks-stage", "tapeworks-time"]),
    (
        "tapeworks-translate",
        &[
            "tapeworks-planted",
            "tapeworks-wire",
            "tapeworks-dispatch",
            "tapeworks-session",
            "tapeworks-fix-wire",
            "tapeworks-order-session",
        ],
    ),
    (
        "tapeworks-generator",
        &[
            "tapeworks-random",
            "tapeworks-matching",
            "tapeworks-wire",
            "tapeworks-capture",
            "tapeworks-session",
            "tapeworks-market",
            "tapeworks-time",
        ],
    ),
    (
        "tapeworks-engine",
        &[
            "tapeworks-time",
            "tapeworks-planted",
            "tapeworks-disk",
            "tapeworks-stage",
            "tapeworks-capture",
            "tapeworks-market",
            "tapeworks-feed",
            "tapeworks-store",
            "tapeworks-journal",
        ],
    ),
    (
        "tapeworks-analysis",
        &[
            "tapeworks-time",
            "tapeworks-drawing",
            "tapeworks-wire",
            "tapeworks-capture",
            "tapeworks-session",
            "tapeworks-stage",
            "tapeworks-market",
            "tapeworks-follow",
            "tapeworks-feed",
            "tapeworks-generator",
            "tapeworks-store",
            "tapeworks-fix-wire",
        ],
    ),
    (
        "tapeworks-batch",
        &[
            "tapeworks-time",
            "tapeworks-cloud",
            "tapeworks-capture",
            "tapeworks-market",
            "tapeworks-feed",
            "tapeworks-store",
            "tapeworks-analysis",
        ],
    ),
    (
        "tapeworks-runtime",
        &["tapeworks-disk", "tapeworks-capture", "tapeworks-nic", "tapeworks-ring", "tapeworks-time"],
    ),
    (
        "tapeworks-gateway",
        &[
            "tapeworks-time",
            "tapeworks-planted",
            "tapeworks-disk",
            "tapeworks-wire",
            "tapeworks-session",
            "tapeworks-translate",
            "tapeworks-journal",
            "tapeworks-runtime",
            // Of the market only prices in shared memory.
            "tapeworks-market",
            "tapeworks-fix-wire",
            "tapeworks-order-session",
        ],
    ),
    (
        "tapeworks-venues",
        &[
            "tapeworks-time",
            "tapeworks-planted",
            "tapeworks-disk",
            "tapeworks-wire",
            "tapeworks-capture",
            "tapeworks-nic",
            "tapeworks-market",
            "tapeworks-feed",
            "tapeworks-random",
            "tapeworks-matching",
            "tapeworks-generator",
            "tapeworks-session",
            "tapeworks-journal",
            "tapeworks-runtime",
            "tapeworks-order-session",
        ],
    ),
    (
        "tapeworks-lab",
        &[
            "tapeworks-drawing",
            "tapeworks-ring",
            "tapeworks-dispatch",
            "tapeworks-wire",
            "tapeworks-capture",
            "tapeworks-nic",
            "tapeworks-flow",
            "tapeworks-market",
            "tapeworks-stage",
        ],
    ),
    (
        "tapeworks-plant",
        &[
            "tapeworks-time",
            "tapeworks-planted",
            "tapeworks-disk",
            "tapeworks-ring",
            "tapeworks-wire",
            "tapeworks-capture",
            "tapeworks-nic",
            "tapeworks-stage",
            "tapeworks-market",
            "tapeworks-session",
            "tapeworks-follow",
            "tapeworks-feed",
            "tapeworks-engine",
            "tapeworks-store",
            "tapeworks-journal",
            "tapeworks-runtime",
        ],
    ),
    (
        "tapeworks-outputs",
        &[
            "tapeworks-time",
            "tapeworks-planted",
            "tapeworks-disk",
            "tapeworks-ring",
            "tapeworks-wire",
            "tapeworks-capture",
            "tapeworks-nic",
            "tapeworks-stage",
            "tapeworks-market",
            "tapeworks-session",
            "tapeworks-follow",
            "tapeworks-feed",
            "tapeworks-engine",
            "tapeworks-store",
            "tapeworks-runtime",
        ],
    ),
    (
        "tapeworks-service",
        &[
            "tapeworks-time",
            "tapeworks-ring",
            "tapeworks-capture",
            "tapeworks-nic",
            "tapeworks-market",
            "tapeworks-session",
            "tapeworks-follow",
            "tapeworks-feed",
            "tapeworks-engine",
            "tapeworks-store",
            "tapeworks-journal",
            "tapeworks-runtime",
            "tapeworks-flow",
            "tapeworks-plant",
            "tapeworks-gateway",
            "tapeworks-outputs",
        ],
    ),
    (
        "tapeworks-sim",
        &[
            "tapeworks-time",
            "tapeworks-planted",
            "tapeworks-disk",
            "tapeworks-ring",
            "tapeworks-stage",
            "tapeworks-capture",
            "tapeworks-nic",
            "tapeworks-market",
            "tapeworks-session",
            "tapeworks-follow",
            "tapeworks-feed",
            "tapeworks-engine",
            "tapeworks-store",
            "tapeworks-journal",
            "tapeworks-random",
            "tapeworks-matching",
            "tapeworks-generator",
            "tapeworks-runtime",
            "tapeworks-venues",
            "tapeworks-plant",
            "tapeworks-outputs",
            "tapeworks-wire",
            "tapeworks-gateway",
            "tapeworks-fix-wire",
            "tapeworks-order-session",
        ],
    ),
    ("xtask", &["tapeworks-drawing"]),
];

/// Crates that nothing uses: they may use everything else.
const LEAVES: &[&str] = &[
    "tapeworks",
    "tapeworks-python",
    "tapeworks-bench",
    "tapeworks-examples",
    "tapeworks-fuzz-targets",
    "tapeworks-measured",
];

/// The crates that may know of what [`KEPT_OUT`] lists.
const ABOVE: &[&str] = &[
    "tapeworks-cloud",
    "tapeworks-analysis",
    "tapeworks-batch",
    "tapeworks-runtime",
    "tapeworks-venues",
    "tapeworks-plant",
    "tapeworks-outputs",
    "tapeworks-service",
    "tapeworks-gateway",
    "tapeworks-lab",
    "tapeworks-sim",
    "xtask",
];

/// What the crates below must not link, however far down.
const KEPT_OUT: &[&str] = &[
    "async-std",
    "axum",
    "clap",
    "config",
    "core_affinity",
    "env_logger",
    "figment",
    "hyper",
    "smol",
    "tokio",
    "toml",
    "tower",
    "tracing",
    "tracing-subscriber",
];

/// Each crate and the crates that it may use, by the names of their folders: `wire`, not `tapeworks-wire`.
pub(crate) fn rules() -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str>)> {
    let short = |name: &'static str| name.strip_prefix("tapeworks-").unwrap_or(name);
    MAY_USE.iter().map(move |(name, uses)| (short(name), uses.iter().map(move |used| short(used))))
}

/// Runs the check on this workspace.
pub(crate) fn run() -> Result<String, String> {
    let metadata = process::metadata(&[])?;
    let violations = check(&metadata);
    if violations.is_empty() {
        let crates = metadata["workspace_members"].as_array().map_or(0, Vec::len);
        return Ok(format!("{crates} crates use only what they may"));
    }
    Err(format!("{} dependencies that may not be:\n  {}", violations.len(), violations.join("\n  ")))
}

/// A package as far as the rule is concerned.
struct Package<'a> {
    name: &'a str,
    is_macro: bool,
    /// Identifiers of what it links.
    uses: Vec<&'a str>,
}

/// Whether a dependency of this kind is part of what ships: not of tests or builds, nor of loom's models.
fn ships(kind: &Value) -> bool {
    kind["kind"].is_null() && kind["target"] != "cfg(loom)"
}

/// The items of an array; none of anything else.
fn list(value: &Value) -> Vec<&Value> {
    value.as_array().map_or_else(Vec::new, |items| items.iter().collect())
}

fn packages(metadata: &Value) -> BTreeMap<&str, Package<'_>> {
    let mut packages = BTreeMap::new();
    for package in list(&metadata["packages"]) {
        let (Some(id), Some(name)) = (package["id"].as_str(), package["name"].as_str()) else { continue };
        let is_macro = list(&package["targets"])
            .iter()
            .any(|target| list(&target["kind"]).iter().any(|kind| *kind == "proc-macro"));
        packages.insert(id, Package { name, is_macro, uses: Vec::new() });
    }
    for node in list(&metadata["resolve"]["nodes"]) {
        let Some(package) = node["id"].as_str().and_then(|id| packages.get_mut(id)) else { continue };
        // The kind of a normal dependency is null; the others are `dev` and `build`.
        package.uses = list(&node["deps"])
            .iter()
            .filter(|dependency| list(&dependency["dep_kinds"]).iter().any(|kind| ships(kind)))
            .filter_map(|dependency| dependency["pkg"].as_str())
            .collect();
    }
    packages
}

/// What breaks the rule, a line each.
fn check(metadata: &Value) -> Vec<String> {
    let packages = packages(metadata);
    let members: Vec<&str> = metadata["workspace_members"]
        .as_array()
        .map_or_else(Vec::new, |members| members.iter().filter_map(Value::as_str).collect());
    let mut violations = Vec::new();
    for member in &members {
        let Some(package) = packages.get(member) else { continue };
        let is_leaf = LEAVES.contains(&package.name);
        let rule = MAY_USE.iter().find(|(name, _)| *name == package.name);
        if rule.is_none() && !is_leaf {
            violations
                .push(format!("{} has no rule: add it to the table in xtask/src/deps.rs", package.name));
            continue;
        }
        for id in &package.uses {
            let Some(used) = packages.get(id).filter(|_| members.contains(id)) else { continue };
            let may = if is_leaf {
                !LEAVES.contains(&used.name)
            } else {
                rule.is_some_and(|(_, may_use)| may_use.contains(&used.name))
            };
            if !may {
                violations.push(format!("{} may not use {}", package.name, used.name));
            }
        }
        if !is_leaf && !ABOVE.contains(&package.name) {
            violations.extend(kept_out(member, &packages));
        }
    }
    violations.sort();
    violations
}

/// What `start` links of [`KEPT_OUT`], with the way to it.
fn kept_out(start: &str, packages: &BTreeMap<&str, Package<'_>>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    let mut ways: Vec<(&str, Vec<&str>)> = vec![(start, Vec::new())];
    while let Some((id, mut way)) = ways.pop() {
        let Some(package) = packages.get(id).filter(|_| seen.insert(id)) else { continue };
        // What a macro uses runs in the compiler and is not linked.
        if package.is_macro {
            continue;
        }
        way.push(package.name);
        if KEPT_OUT.contains(&package.name) {
            violations.push(format!("{} must not know of {}: {}", way[0], package.name, way.join(" > ")));
            continue;
        }
        ways.extend(package.uses.iter().map(|used| (*used, way.clone())));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of ours, all below a name, and what each uses: `(name, [(used, kind)])`.
    fn metadata(packages: &[(&str, &[(&str, Value)])]) -> Value {
        let nodes = packages.iter().map(|(name, uses)| {
            let deps = uses
                .iter()
                .map(|(used, kind)| serde_json::json!({ "pkg": used, "dep_kinds": [{ "kind": kind }] }));
            serde_json::json!({ "id": name, "deps": deps.collect::<Vec<_>>() })
        });
        let listed = packages.iter().map(|(name, _)| {
            let kind = if name.ends_with("-derive") { "proc-macro" } else { "lib" };
            serde_json::json!({ "id": name, "name": name, "targets": [{ "kind": [kind] }] })
        });
        let ours = |name: &&str| name.starts_with("tapeworks") || *name == "xtask";
        serde_json::json!({
            "packages": listed.collect::<Vec<_>>(),
            "resolve": { "nodes": nodes.collect::<Vec<_>>() },
            "workspace_members": packages.iter().map(|(name, _)| *name).filter(ours).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn a_workspace_that_keeps_the_rule_passes() {
        let good = metadata(&[
            ("tapeworks-ring", &[("libc", Value::Null)]),
            ("tapeworks-nic", &[("tapeworks-ring", Value::Null)]),
            ("tapeworks-plant", &[("tapeworks-nic", Value::Null), ("tokio", Value::Null)]),
            ("tapeworks", &[("tapeworks-plant", Value::Null), ("clap", Value::Null)]),
            ("libc", &[]),
            ("tokio", &[]),
            ("clap", &[]),
        ]);
        assert_eq!(check(&good), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_up_the_table_is_found() {
        let bad = metadata(&[
            ("tapeworks-market", &[("tapeworks-feed", Value::Null)]),
            ("tapeworks-feed", &[]),
            ("tapeworks-generator", &[("tapeworks-feed", Value::Null)]),
        ]);
        let expected =
            ["tapeworks-generator may not use tapeworks-feed", "tapeworks-market may not use tapeworks-feed"];
        assert_eq!(check(&bad), expected);
    }

    #[test]
    fn a_test_may_use_any_crate() {
        let dev =
            metadata(&[("tapeworks-wire", &[("tapeworks-feed", "dev".into())]), ("tapeworks-feed", &[])]);
        assert_eq!(check(&dev), Vec::<String>::new());
    }

    #[test]
    fn an_indirect_runtime_is_found_with_its_path_but_not_behind_a_macro() {
        let bad = metadata(&[
            ("tapeworks-store", &[("object-store", Value::Null), ("nice-derive", Value::Null)]),
            ("object-store", &[("tokio", Value::Null)]),
            ("nice-derive", &[("toml", Value::Null)]),
            ("tokio", &[]),
            ("toml", &[]),
        ]);
        let expected = "tapeworks-store must not know of tokio: tapeworks-store > object-store > tokio";
        assert_eq!(check(&bad), [expected]);
    }

    #[test]
    fn a_dependency_of_models_only_may_be_any_crate() {
        let mut model = metadata(&[
            ("tapeworks-ring", &[("loom", Value::Null)]),
            ("loom", &[("tracing", Value::Null)]),
            ("tracing", &[]),
        ]);
        assert_eq!(check(&model).len(), 1);
        model["resolve"]["nodes"][0]["deps"][0]["dep_kinds"][0]["target"] = "cfg(loom)".into();
        assert_eq!(check(&model), Vec::<String>::new());
    }

    #[test]
    fn a_crate_without_a_rule_is_found() {
        let bad = metadata(&[("tapeworks-new", &[])]);
        assert_eq!(check(&bad), ["tapeworks-new has no rule: add it to the table in xtask/src/deps.rs"]);
    }

    #[test]
    fn nothing_may_use_a_leaf() {
        let bad = metadata(&[("tapeworks-python", &[("tapeworks", Value::Null)]), ("tapeworks", &[])]);
        assert_eq!(check(&bad), ["tapeworks-python may not use tapeworks"]);
    }

    #[test]
    fn every_crate_named_by_a_rule_has_one() {
        for (name, may_use) in MAY_USE {
            for used in *may_use {
                assert!(
                    MAY_USE.iter().any(|(known, _)| known == used),
                    "{name} may use {used}, which has no rule"
                );
            }
        }
    }
}
