//! The generated Rust compiles without warnings, and its own tests pass.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use tapeworks_dispatch_search::{Family, PerfectHash, Width, compare};

/// Sets of which each family has some, in each width.
fn hashes() -> Vec<PerfectHash> {
    let wide: Vec<u64> = (1..40u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let sets = [
        (vec![0x30, 0x31, 0x32, 0x41, 0x44, 0x46], None),
        ((10..20).collect(), None),
        ((0..256).collect(), None),
        (vec![1, 2, 3, 500, 0x234, 0x1234], None),
        (wide.iter().map(|value| value >> 32).collect(), None),
        (wide, None),
        (vec![3, 5, 90], Some(Width::U64)),
    ];
    sets.iter()
        .flat_map(|(values, width)| compare(values, *width).unwrap())
        .filter_map(|(_, hash)| hash)
        .collect()
}

#[test]
fn the_module_compiles_without_warnings_and_its_tests_pass() {
    let folder = tempfile::tempdir().unwrap();
    let hashes = hashes();
    for family in Family::ALL {
        assert!(hashes.iter().any(|hash| hash.formula().family() == family), "{family} is among them");
    }
    // One crate with a module each, since starting the compiler takes longer than compiling.
    let mut root = String::from("//! All of them.\n#![deny(warnings, missing_docs)]\n");
    for (number, hash) in hashes.iter().enumerate() {
        std::fs::write(folder.path().join(format!("hash_{number}.rs")), hash.rust_module()).unwrap();
        root.push_str(&format!("pub mod hash_{number};\n"));
        // As the macro uses it, and in a constant.
        let items = hash.rust_items(Width::U64, "pub ").replace("#[inline]", "/// Items.\n#[inline]");
        root.push_str(&format!("/// Items.\npub mod items_{number} {{\n{items}}}\n"));
        let value = hash.values()[0];
        root.push_str(&format!(
            "const _: () = assert!(hash_{number}::index({value:#x}).is_some() && items_{number}::index({value:#x}).is_some());\n"
        ));
        root.push_str(&format!("#[test]\nfn items_{number}_are_right() {{\n"));
        for probe in
            hash.values().iter().flat_map(|value| [*value, value ^ 1, value | (1 << 40), value ^ (1 << 8)])
        {
            root.push_str(&format!(
                "    assert_eq!(items_{number}::index({probe:#x}), {:?});\n",
                hash.index(probe)
            ));
        }
        root.push_str("}\n");
    }
    std::fs::write(folder.path().join("lib.rs"), root).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let program = folder.path().join("tests");
    for arguments in [vec!["--crate-type", "lib", "--emit", "metadata"], vec!["--test", "-o"]] {
        let mut command = Command::new(&rustc);
        command.args(["--edition", "2024", "lib.rs"]).args(&arguments).current_dir(folder.path());
        if arguments.contains(&"-o") {
            command.arg(&program);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains(&format!("{} passed", 3 * hashes.len())), "{printed}");
}
