//! `cargo xtask release`: everything that a release publishes, built and checked, below `target/release-VERSION`. Nothing leaves the machine.
//!
//! The program is built so that the same sources give the same bytes wherever they lie: paths are rewritten, what is archived has the time of the
//! commit. `--verify` builds it a second time from a checkout in another folder, and compares.
//!
//! Cost: both programs as users install them, each crate once more from its package.

use std::path::{Path, PathBuf};

use crate::process::{self, cargo, program};
use crate::tools::{self, Lack};

/// The version of cargo-cyclonedx that is installed where none is.
const CYCLONEDX: &str = "0.5.9";

/// A program that is released, in an archive of its own.
struct Program {
    name: &'static str,
    /// The folder of its package and the folder of its workspace, below the repository.
    package: &'static str,
    workspace: &'static str,
    profile: &'static str,
    /// Its features besides the default ones.
    features: &'static str,
    /// What lies beside it in the archive.
    beside: &'static [&'static str],
}

const TAPEWORKS: Program = Program {
    name: "tapeworks",
    package: "crates/run/cli",
    workspace: ".",
    profile: "dist",
    features: "lab,tls",
    beside: &["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "SECURITY.md", "deploy/systemd"],
};

/// It takes eleven minutes to build, and few who ask a table a question have a compiler.
const QUERY: Program = Program {
    name: "tapeworks-query",
    package: "query",
    workspace: "query",
    profile: "release",
    features: "cloud",
    beside: &["query/README.md", "LICENSE-APACHE", "LICENSE-MIT", "SECURITY.md"],
};

/// A part of a release, and what makes it.
type Part = (&'static str, fn(&Release) -> Result<(), String>);

const PARTS: [Part; 5] = [
    ("crates", Release::crates),
    ("program", |release| release.program(&TAPEWORKS)),
    ("query", |release| release.program(&QUERY)),
    ("wheel", Release::wheel),
    ("jar", Release::jar),
];

/// Makes the parts that are named, or all.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = arguments.iter().copied().filter(|argument| *argument != "--verify").collect();
    if let Some(unknown) = names.iter().find(|name| PARTS.iter().all(|(part, _)| part != *name)) {
        let parts = PARTS.map(|(part, _)| part).join(", ");
        return Err(format!("`{unknown}` is no part of a release: {parts}, or --verify"));
    }
    let release = Release::new()?;
    for (name, make) in PARTS.iter().filter(|(part, _)| names.is_empty() || names.contains(part)) {
        println!("\n=== {name} ===");
        make(&release)?;
    }
    if arguments.contains(&"--verify") {
        println!("\n=== verify ===");
        release.verify()?;
    }
    release.finish()
}

/// A release of the last commit.
struct Release {
    version: String,
    /// The time of the commit, in seconds since 1970.
    epoch: String,
    /// The toolchain's triple.
    target: String,
    folder: PathBuf,
}

impl Release {
    fn new() -> Result<Self, String> {
        let git = |arguments: &[&str]| program("git").args(arguments).output();
        let changed = git(&["status", "--porcelain"])?;
        if !changed.is_empty() {
            return Err(format!(
                "a release is of a commit, and these files are not as the last one has them:\n{changed}"
            ));
        }
        let metadata = process::metadata(&["--no-deps"])?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let version = packages
            .filter(|package| package["name"] == "tapeworks")
            .find_map(|package| package["version"].as_str());
        let version = version.ok_or("the workspace has no package `tapeworks`")?.to_owned();
        let changelog = read(&process::root().join("CHANGELOG.md"))?;
        if !changelog
            .lines()
            .any(|line| line.strip_prefix("## ").is_some_and(|title| title.starts_with(&version)))
        {
            return Err(format!("CHANGELOG.md has no section for {version}"));
        }
        let epoch = git(&["log", "-1", "--format=%ct"])?.trim().to_owned();
        let rustc = program("rustc").arg("-vV").output()?;
        let target = rustc
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .ok_or("rustc does not name its host")?;
        let folder = process::target_folder().join(format!("release-{version}"));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { version, epoch, target: target.to_owned(), folder })
    }

    /// Each crate as it is published: packed, and built from its package alone.
    fn crates(&self) -> Result<(), String> {
        let folder = self.folder.join("crates");
        cargo(["publish", "--workspace", "--dry-run", "--locked", "--target-dir"]).arg(folder).run()
    }

    /// A program with its licences and its bill of materials, in an archive.
    fn program(&self, what: &Program) -> Result<(), String> {
        let bill = self.bill_of_materials(what)?;
        let built = what.build(process::root(), &process::target_folder(), &self.epoch)?;
        let name = format!("{}-{}-{}", what.name, self.version, self.target);
        let folder = self.folder.join(&name);
        let _none_is_fine = std::fs::remove_dir_all(&folder);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::copy(&built, folder.join(what.name)).map_err(failed)?;
        std::fs::rename(&bill, folder.join(format!("{}.cdx.json", what.name))).map_err(failed)?;
        for beside in what.beside {
            program("cp").args(["-r", beside]).arg(&folder).run()?;
        }
        let archive = self.folder.join(format!("{name}.tar.gz"));
        // The same names, times and owners in the same order give the same bytes; gzip is given no name and no time.
        program("tar")
            .args([
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
                "--mode=go=rX,u+rw",
                "--format=gnu",
            ])
            .arg(format!("--mtime=@{}", self.epoch))
            .args(["--use-compress-program=gzip -n -9", "--create", "--directory"])
            .arg(&self.folder)
            .arg("--file")
            .arg(&archive)
            .arg(&name)
            .run()?;
        std::fs::remove_dir_all(&folder).map_err(failed)
    }

    /// What a program is made of (SBOM), as CycloneDX describes it.
    fn bill_of_materials(&self, what: &Program) -> Result<PathBuf, String> {
        let tool = had(tools::of_crate("cargo-cyclonedx", CYCLONEDX, &[]))?;
        let manifest = format!("{}/Cargo.toml", what.package);
        program(tool)
            .args(["cyclonedx", "--manifest-path", &manifest, "--features", what.features])
            .args(["--format", "json", "--spec-version", "1.5", "--target"])
            .arg(&self.target)
            .args(["--override-filename", "tapeworks.cdx"])
            .env("SOURCE_DATE_EPOCH", &self.epoch)
            .run()?;
        // It writes beside the manifest of each package of the workspace.
        let mut bill = None;
        let listed =
            program("git").args(["ls-files", "--others", "--exclude-standard", "*.cdx.json"]).output()?;
        for path in listed.lines() {
            let path = process::root().join(path);
            if path.parent().is_some_and(|folder| folder == process::root().join(what.package)) {
                let kept = self.folder.join(format!("{}.cdx.json", what.name));
                std::fs::copy(&path, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
                bill = Some(kept);
            }
            std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        bill.ok_or_else(|| format!("cargo-cyclonedx has written no bill of {}", what.package))
    }

    /// The Python package for this processor and every Python from 3.10 on.
    fn wheel(&self) -> Result<(), String> {
        program(had(tools::python())?)
            .args(["-m", "maturin", "build", "--release", "--locked", "--compatibility", "pypi"])
            .args(["--manifest-path", "bindings/python/Cargo.toml", "--target-dir"])
            .arg(process::target_folder())
            .arg("--out")
            .arg(&self.folder)
            .env("SOURCE_DATE_EPOCH", &self.epoch)
            .run()
    }

    /// The Java client.
    fn jar(&self) -> Result<(), String> {
        had(tools::debian("mvn", "maven"))?;
        program("mvn")
            .args(["--quiet", "--batch-mode", "--file", "clients/java/pom.xml", "package"])
            .run()?;
        let kept = self.folder.join(format!("tapeworks-client-{}.jar", self.version));
        let built = process::root().join("clients/java/target/tapeworks-client.jar");
        std::fs::copy(&built, kept).map(drop).map_err(|error| format!("{}: {error}", built.display()))
    }

    /// Builds the program of a checkout elsewhere, and compares it with the one that was built here.
    fn verify(&self) -> Result<(), String> {
        let ours = TAPEWORKS.build(process::root(), &process::target_folder(), &self.epoch)?;
        let elsewhere = std::env::temp_dir().join(format!("tapeworks-verify-{}", std::process::id()));
        program("git").args(["worktree", "add", "--detach"]).arg(&elsewhere).run()?;
        let same = TAPEWORKS
            .build(&elsewhere, &elsewhere.join("built"), &self.epoch)
            .and_then(|theirs| same_bytes(&ours, &theirs));
        program("git").args(["worktree", "remove", "--force"]).arg(&elsewhere).run()?;
        if same? {
            println!("built again in another folder, the program has the same bytes");
            Ok(())
        } else {
            Err("built again in another folder, the program has other bytes".into())
        }
    }

    /// Writes the hashes of all files, and says what is left to do.
    fn finish(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        let entries = std::fs::read_dir(&self.folder).map_err(failed)?.flatten();
        let files = entries.filter(|entry| entry.path().is_file() && entry.file_name() != "SHA256SUMS");
        let mut names: Vec<_> = files.map(|file| file.file_name()).collect();
        names.sort();
        if !names.is_empty() {
            let sums = program("sha256sum").folder(&self.folder).arg("--").args(&names).output()?;
            std::fs::write(self.folder.join("SHA256SUMS"), &sums).map_err(failed)?;
            print!("\n{sums}");
        }
        let Self { version, folder, .. } = self;
        let folder = folder.strip_prefix(process::root()).unwrap_or(folder).display();
        println!(
            "\n{folder} has what was built. To publish it:\n  \
             git tag --sign v{version} && git push origin v{version}\n  \
             cargo publish --workspace --locked\n  \
             python3 -m twine upload {folder}/*.whl\n  \
             mvn --file clients/java/pom.xml deploy"
        );
        Ok(())
    }
}

impl Program {
    /// Builds it from a checkout, without a trace of where that lies.
    fn build(&self, checkout: &Path, target: &Path, epoch: &str) -> Result<PathBuf, String> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        let home = home.ok_or("neither CARGO_HOME nor HOME is set")?;
        // Of several that fit a path the last one counts.
        let renamed = [(checkout, "/tapeworks"), (target, "/target"), (&home, "/cargo")];
        let rust =
            renamed.map(|(from, to)| format!("\"--remap-path-prefix={}={to}\"", from.display())).join(", ");
        let c = renamed.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).join(" ");
        cargo(["build", "--profile", self.profile, "--locked", "--package", self.name])
            .args(["--features", self.features])
            .arg("--config")
            .arg(format!("target.'cfg(all())'.rustflags=[{rust}]"))
            .arg("--target-dir")
            .arg(target)
            .folder(&checkout.join(self.workspace))
            .env("CFLAGS", c)
            .env("SOURCE_DATE_EPOCH", epoch)
            .run()?;
        Ok(target.join(self.profile).join(self.name))
    }
}

fn same_bytes(one: &Path, other: &Path) -> Result<bool, String> {
    let bytes = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    Ok(bytes(one)? == bytes(other)?)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A release lacks nothing.
fn had<T>(tool: Result<T, Lack>) -> Result<T, String> {
    tool.map_err(|lack| match lack {
        Lack::Failed(why) | Lack::Skipped(why) => why,
    })
}
