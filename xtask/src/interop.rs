//! Other people's programs over our files: the scripts in `interop/`, one for each counterpart.
//!
//! Each script is given the release binary, the repository and a folder to write to, compares, and prints what it
//! compared; it exits with 1 and a line for each difference.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::deploy;
use crate::features::Features;
use crate::process::{self, Program};
use crate::tools::{self, Lack};

/// The counterparts whose scripts need the Python packages of `interop/requirements.txt`.
const PYTHON: [&str; 3] = ["with_databento.py", "with_duckdb.py", "with_polars.py"];

/// What tshark shows, against what `tapeworks dump` says; and what it says of checksums after a flow's rewriting.
pub(crate) fn tshark() -> Result<String, Lack> {
    let python = if process::is_installed("python3") { "python3" } else { "python" };
    script(python.as_ref(), "with_tshark.py")?;
    script(python.as_ref(), "with_tshark_flow.py")?;
    script(python.as_ref(), "with_tshark_multicast.py")?;
    Ok("tshark shows the fields that dump prints, finds rewritten checksums good, and reads the multicast"
        .into())
}

/// What databento, DuckDB and Polars read, against each other and against the text outputs.
pub(crate) fn python() -> Result<String, Lack> {
    let python = tools::python()?;
    for name in PYTHON {
        script(python.as_os_str(), name)?;
    }
    Ok(format!("{} counterparts read the same records", PYTHON.len()))
}

/// The program of SQL: its own tests, and its answers beside those of DuckDB.
pub(crate) fn query() -> Result<String, Lack> {
    let target = process::target_folder();
    let of_query = |command: &str| {
        let run = process::cargo([
            command,
            "--locked",
            "--manifest-path",
            "query/Cargo.toml",
            "--features",
            "cloud",
        ]);
        run.arg("--target-dir").arg(&target)
    };
    // With its tests cargo builds the program. Linted on the way: the engine takes longer to check than all else of ours.
    of_query("test").linted().run().map_err(Lack::Failed)?;
    let python = tools::python()?;
    script_with(python.as_os_str(), "with_query.py", |run| {
        run.arg("--query").arg(target.join("debug/tapeworks-query"))
    })?;
    Ok("the answers are DuckDB's".into())
}

pub(crate) fn needs_of_cloud() -> Result<(), Lack> {
    tools::python()?;
    azurite().map(drop)
}

/// Microsoft's own server of Azure's blobs.
fn azurite() -> Result<PathBuf, Lack> {
    tools::node("interop/azurite", "interop-azurite")
}

/// Batches with addresses, in moto's store, as S3 and as Google's, and in Azurite's.
pub(crate) fn cloud(features: &Features) -> Result<String, Lack> {
    let (python, azurite) = (tools::python()?, azurite()?);
    features.build("--bin", &["tapeworks"])?;
    let program = process::target_folder().join("debug/tapeworks");
    script_with(python.as_os_str(), "with_batch_cloud.py", |run| run.arg("--cloud").arg(&program))?;
    script_with(python.as_os_str(), "with_batch_azurite.py", |run| {
        run.arg("--cloud").arg(&program).arg("--server").arg(azurite)
    })?;
    script_with(python.as_os_str(), "with_batch_google.py", |run| run.arg("--cloud").arg(&program))?;
    Ok("the bytes are those of folders, in S3, in Azure, and in S3 behind Google's conditions".into())
}

/// The Python package: the wheel, built as the tests of the workspace are, in an environment with what it works with; and the notebook of
/// the book.
pub(crate) fn python_package(features: &Features) -> Result<String, Lack> {
    let python = tools::python()?;
    let package = process::root().join("bindings/python");
    let wheels = process::target_folder().join("wheels");
    // A wheel of an earlier run is not what is tested.
    let _none_is_fine = std::fs::remove_dir_all(&wheels);
    let build = process::program(&python)
        .args(["-m", "maturin", "build", "--locked", "--interpreter"])
        .arg(&python)
        .args(["--manifest-path", "bindings/python/Cargo.toml", "--features", "cloud", "--target-dir"])
        .arg(process::target_folder())
        .arg("--out")
        .arg(&wheels);
    build.linted().run().map_err(Lack::Failed)?;
    let nautilus = tools::python_of_nautilus()?;
    for python in [&python, &nautilus] {
        let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", "--no-index"];
        let install = process::program(python).args(install).arg("--find-links").arg(&wheels);
        install.arg("tapeworks").run().map_err(Lack::Failed)?;
    }
    features.build("--example", &["live_server", "stream_server"])?;
    features.build("--bin", &["tapeworks"])?;
    let server = |name: &str| process::target_folder().join("debug/examples").join(name);
    let tests = |of: &[&str]| {
        let tests =
            process::program(&python).args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]).args(of);
        tests
            .folder(&package)
            .env("TAPEWORKS_LIVE_SERVER", server("live_server"))
            .env("TAPEWORKS_STREAM_SERVER", server("stream_server"))
            .env("TAPEWORKS_PROGRAM", process::target_folder().join("debug/tapeworks"))
            .env("TAPEWORKS_CLOUD", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .run()
            .map_err(Lack::Failed)
    };
    std::thread::scope(|scope| {
        // These tests wait most of the time: Ray notices late that a process is gone.
        let of_ray = scope.spawn(|| tests(&["tests/test_ray.py", "tests/test_cloud.py"]));
        let rest = tests(&["tests", "--ignore", "tests/test_ray.py", "--ignore", "tests/test_cloud.py"])
            .and_then(|()| python_beside_ray(&python, &nautilus, &package));
        let of_ray =
            of_ray.join().unwrap_or_else(|_| Err(Lack::Failed("the thread of Ray's tests panicked".into())));
        match (rest, of_ray) {
            (Err(Lack::Failed(one)), Err(Lack::Failed(other))) => Err(Lack::Failed(one + "\n" + &other)),
            (rest, of_ray) => rest.and(of_ray),
        }
    })?;
    Ok("the wheel builds, its tests pass, the notebook runs, and mypy and pyright have nothing to say of its types"
        .into())
}

/// What of the package's checks has nothing to do with Ray: nautilus_trader, the notebook, the types.
fn python_beside_ray(python: &Path, nautilus: &Path, package: &Path) -> Result<(), Lack> {
    let tests = process::program(nautilus)
        .args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"])
        .arg(package.join("tests/test_nautilus.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    tests.run().map_err(Lack::Failed)?;
    let notebook = process::program(python)
        .arg(process::root().join("interop/run_notebook.py"))
        .args(["--notebook", "docs/src/notebooks/day.ipynb", "--page", "docs/src/notebook.md", "--figures"])
        .arg(process::target_folder().join("interop/notebook"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    notebook.run().map_err(Lack::Failed)?;
    let sources = ["python/tapeworks", "tests/typed_use.py"].map(|name| package.join(name));
    // What it need not know of others stands in the configuration.
    let types = process::program(python)
        .args(["-m", "mypy", "--strict", "--cache-dir=/dev/null", "--config-file"])
        .arg(package.join("pyproject.toml"))
        .args(&sources);
    types.run().map_err(Lack::Failed)?;
    // Else it asks whichever Python comes first on the path what is installed.
    let types = process::program(python).args(["-m", "pyright", "--pythonpath"]).arg(python).args(&sources);
    types.run().map_err(Lack::Failed)
}

pub(crate) fn needs_of_python_package() -> Result<(), Lack> {
    tools::python()?;
    tools::python_of_nautilus().map(drop)
}

pub(crate) fn needs_of_page() -> Result<(), Lack> {
    tools::debian("chromium", "chromium")?;
    page_of_node().map(drop)
}

fn page_of_node() -> Result<PathBuf, Lack> {
    tools::node("interop/page", "interop-node")
}

/// The pages of a plant and of a gateway in Chromium, as a person uses them.
pub(crate) fn page() -> Result<String, Lack> {
    let folder = page_of_node()?;
    for test in ["test.mjs", "gateway.mjs"] {
        process::program("node")
            .arg(folder.join(test))
            .arg("--tapeworks")
            .arg(tools::release_binary()?)
            .arg("--work")
            .arg(process::target_folder().join("interop"))
            .args(["--chromium", "chromium"])
            .run()
            .map_err(Lack::Failed)?;
    }
    Ok("the pages do in Chromium what they should".into())
}

/// What the official clients get from the live server, against the files of the same session; and from a plant that listens to
/// venues, against the files of its journal.
pub(crate) fn live(features: &Features) -> Result<String, Lack> {
    features.build("--example", &["live_server"])?;
    let server = process::target_folder().join("debug/examples/live_server");
    let work = process::target_folder().join("interop");
    let manifest = ["run", "--locked", "--manifest-path", "interop/live/Cargo.toml", "--target-dir"];
    let rust = process::cargo(manifest).arg(process::target_folder()).arg("--").arg(&server).arg(&work);
    rust.linted().run().map_err(Lack::Failed)?;
    let python = tools::python()?;
    let run = process::program(python)
        .arg(process::root().join("interop/with_databento_live.py"))
        .arg("--server")
        .arg(server)
        .arg("--work")
        .arg(&work);
    run.env("PYTHONDONTWRITEBYTECODE", "1").run().map_err(Lack::Failed)?;
    let run = process::program(tools::python()?)
        .arg(process::root().join("interop/with_databento_plant.py"))
        .arg("--tapeworks")
        .arg(tools::release_binary()?)
        .arg("--rust-client")
        .arg(process::target_folder().join("debug/tapeworks-interop-live"))
        .arg("--work")
        .arg(work);
    run.env("PYTHONDONTWRITEBYTECODE", "1").run().map_err(Lack::Failed)?;
    let python = tools::python()?;
    let tutorial = features.workspace("test").args(["--test", "book", "tutorial"]);
    let tutorial = tutorial.env("TAPEWORKS_BOOK_PYTHON", python.parent().unwrap_or_else(|| Path::new("/")));
    tutorial.run().map_err(Lack::Failed)?;
    Ok("the official clients, Rust and Python, get from server and plant the records that the files hold"
        .into())
}

pub(crate) fn needs_of_java() -> Result<(), Lack> {
    tools::debian("mvn", "maven")?;
    tools::debian("javac", "openjdk-17-jdk-headless")?;
    tools::debian("python3", "python3")
}

pub(crate) fn needs_of_java_client() -> Result<(), Lack> {
    needs_of_java()?;
    tools::python().map(drop)
}

/// The Java client, built and tested by Maven: the stream in both encodings, every field of live records, a plant that is stopped
/// and started, and a pair whose plants are killed in turn.
pub(crate) fn java(features: &Features) -> Result<String, Lack> {
    let maven = ["--quiet", "--batch-mode", "--file", "clients/java/pom.xml", "package"];
    process::program("mvn").args(maven).run().map_err(Lack::Failed)?;
    features.build("--example", &["stream_server", "live_server"])?;
    let python = tools::python()?;
    let server = |name: &str| process::target_folder().join("debug/examples").join(name);
    let work = process::target_folder().join("interop");
    let compare = |name: &str| {
        process::program(&python)
            .arg(process::root().join("interop").join(name))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg("--client")
            .arg(process::root().join("clients/java/target"))
    };
    compare("with_java_stream.py")
        .arg("--server")
        .arg(server("stream_server"))
        .run()
        .map_err(Lack::Failed)?;
    let live = compare("with_java_live.py").arg("--server").arg(server("live_server"));
    live.arg("--work").arg(&work).run().map_err(Lack::Failed)?;
    let plant = compare("with_java_plant.py").arg("--tapeworks").arg(tools::release_binary()?);
    plant.arg("--work").arg(&work).run().map_err(Lack::Failed)?;
    let pair = compare("with_java_pair.py").arg("--tapeworks").arg(tools::release_binary()?);
    pair.arg("--work").arg(&work).run().map_err(Lack::Failed)?;
    Ok("the Java client reads stream and live records as others do, each once over a plant's second start and over a pair"
        .into())
}

/// The folder of QuickFIX/J's client, built by Maven with its dependencies.
fn quickfix_j_client() -> Result<PathBuf, Lack> {
    let maven = ["--quiet", "--batch-mode", "--file", "examples/quickfixj/pom.xml", "package"];
    process::program("mvn").args(maven).run().map_err(Lack::Failed)?;
    Ok(process::root().join("examples/quickfixj/target"))
}

/// QuickFIX/J, unmodified, trades through the gateway.
pub(crate) fn quickfix_j() -> Result<String, Lack> {
    let client = quickfix_j_client()?;
    script_with("python3".as_ref(), "with_quickfix_j.py", |run| run.arg("--client").arg(client))?;
    Ok("QuickFIX/J trades through the gateway: 4.2, 4.4, 5.0 SP2; cuts and kills lose and double nothing"
        .into())
}

pub(crate) fn needs_of_quickfix_cpp() -> Result<(), Lack> {
    tools::debian("g++", "g++")?;
    tools::debian_library("quickfix", "libquickfix-dev")?;
    // The dictionaries are those of QuickFIX/J: Debian's package has none.
    needs_of_java()
}

/// QuickFIX C++, unmodified, trades through the gateway.
pub(crate) fn quickfix_cpp() -> Result<String, Lack> {
    let jars = quickfix_j_client()?.join("dependency");
    let client = process::target_folder().join("quickfix-cpp");
    // Its headers need C++14, and warn.
    process::program("g++")
        .args(["-std=c++14", "-w", "-o"])
        .arg(&client)
        .args(["interop/quickfix-cpp/client.cpp", "-lquickfix", "-lpthread"])
        .run()
        .map_err(Lack::Failed)?;
    script_with("python3".as_ref(), "with_quickfix_cpp.py", |run| {
        run.arg("--client").arg(client).arg("--jars").arg(jars)
    })?;
    Ok("QuickFIX C++ trades through the gateway: 4.4, 5.0 SP2; cuts and kills lose and double nothing".into())
}

pub(crate) fn needs_of_questdb() -> Result<(), Lack> {
    tools::debian("mvn", "maven")?;
    tools::debian("java", "openjdk-17-jre-headless")?;
    tools::python().map(drop)
}

/// A real QuestDB, fetched by Maven: what a plant wrote into it, against the files of the plant's journal.
pub(crate) fn questdb() -> Result<String, Lack> {
    with_fetched("questdb")?;
    Ok("QuestDB has the records of the plant's journal, each once, after it and the plant were killed".into())
}

/// What building the feature `aeron` takes, and running its driver.
pub(crate) fn needs_of_aeron() -> Result<(), Lack> {
    needs_of_questdb()?;
    tools::openssl()?;
    tools::aeron()
}

/// Aeron's own media driver, fetched by Maven: what readers get of a plant's streams, against what a live client gets of its journal.
pub(crate) fn aeron() -> Result<String, Lack> {
    with_fetched("aeron")?;
    Ok("readers of Aeron and plants downstream have the records of the plant's journal, each once, after plants and driver were killed".into())
}

/// What building the feature `kafka` takes: a compiler of C, and headers.
pub(crate) fn needs_of_kafka() -> Result<(), Lack> {
    needs_of_questdb()?;
    tools::kafka()
}

/// A real broker of Kafka, fetched by Maven: what a plant wrote there, as Confluent's client reads it, against the files of the plant's
/// journal.
pub(crate) fn kafka() -> Result<String, Lack> {
    with_fetched("kafka")?;
    Ok("Kafka has the records of the plant's journal, each once, after plant and broker were killed".into())
}

pub(crate) fn needs_of_otel() -> Result<(), Lack> {
    tools::go()?;
    tools::openssl()?;
    tools::python().map(drop)
}

/// The Collector of OpenTelemetry, built from the modules that `interop/otel/go.sum` pins: what it got of a plant and of a gateway, against what
/// these have counted.
pub(crate) fn otel() -> Result<String, Lack> {
    let server = process::target_folder().join("interop-otel");
    let build = process::program(tools::go()?);
    let build = build.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o"]);
    let build = build.arg(server.join("collector")).arg(".").folder(&process::root().join("interop/otel"));
    build.run().map_err(Lack::Failed)?;
    with_server("otel", &server)?;
    Ok("the Collector has the spans that plant and gateway have counted, well formed, and a dead one disturbs neither".into())
}

/// Fetches a server by `interop/NAME/pom.xml`, checks the examples of `deploy/NAME`, and runs `interop/with_NAME.py` with both.
fn with_fetched(name: &str) -> Result<(), Lack> {
    let server = process::target_folder().join(format!("interop-{name}"));
    let pom = format!("interop/{name}/pom.xml");
    let maven = ["--quiet", "--batch-mode", "--file", &pom, "package"];
    let fetch = process::program("mvn").args(maven).arg(format!("-Dserver={}", server.display()));
    fetch.run().map_err(Lack::Failed)?;
    with_server(name, &server)
}

/// Checks the examples of `deploy/NAME`, and runs `interop/with_NAME.py` with a server that lies in a folder.
fn with_server(name: &str, server: &Path) -> Result<(), Lack> {
    let python = tools::python()?;
    Features::all().map_err(Lack::Failed)?.build("--bin", &["tapeworks"])?;
    let binary = process::target_folder().join("debug/tapeworks");
    for example in deploy::files(&process::root().join("deploy").join(name), "toml")? {
        let is_of_gateway = example.file_stem().is_some_and(|name| name == "gateway");
        let check: &[&str] = if is_of_gateway { &["gateway", "check"] } else { &["validate"] };
        process::program(&binary).args(check).arg(example).run().map_err(Lack::Failed)?;
    }
    let run = process::program(python)
        .arg(process::root().join(format!("interop/with_{name}.py")))
        .arg("--tapeworks")
        .arg(binary)
        .arg("--work")
        .arg(process::target_folder().join("interop"))
        .arg("--server")
        .arg(server);
    run.env("PYTHONDONTWRITEBYTECODE", "1").run().map_err(Lack::Failed)
}

fn script(python: &OsStr, name: &str) -> Result<(), Lack> {
    script_with(python, name, |run| run)
}

fn script_with(python: &OsStr, name: &str, more: impl FnOnce(Program) -> Program) -> Result<(), Lack> {
    let run = process::program(python)
        .arg(process::root().join("interop").join(name))
        .arg("--tapeworks")
        .arg(tools::release_binary()?)
        .arg("--work")
        .arg(process::target_folder().join("interop"));
    more(run).env("PYTHONDONTWRITEBYTECODE", "1").run().map_err(Lack::Failed)
}
