//! Builds the shim of DPDK, if it is wanted.

fn main() {
    #[cfg(feature = "dpdk")]
    dpdk();
    println!("cargo::rerun-if-changed=build.rs");
}

/// Asks pkg-config for DPDK, links it, and compiles the shim.
#[cfg(feature = "dpdk")]
fn dpdk() {
    const SHIM: &str = "src/dpdk/shim.c";
    println!("cargo::rerun-if-changed={SHIM}");
    let found = pkg_config::Config::new().atleast_version("21.11").cargo_metadata(false).probe("libdpdk");
    let library = match found {
        Ok(library) => library,
        Err(error) => {
            println!(
                "cargo::error=the feature `dpdk` needs DPDK 21.11 or later (Debian: libdpdk-dev): {error}"
            );
            return;
        }
    };
    let mut shim = cc::Build::new();
    // DPDK's headers use instructions that it was built for, and a configuration of its own.
    shim.file(SHIM).includes(&library.include_paths).flag("-include").flag("rte_config.h");
    shim.flag_if_supported("-march=corei7").define("ALLOW_EXPERIMENTAL_API", None);
    shim.compile("tapeworks_dpdk_shim");
    for folder in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    // Only what the shim calls. Drivers are loaded when DPDK starts.
    for name in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_net", "rte_ring", "rte_kvargs", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
}
