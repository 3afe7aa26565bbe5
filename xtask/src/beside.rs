//! Steps that run beside the others. Most of them wait for servers, clients and package managers more than they compute. Another process of ours runs them one after
//! the other; what it prints is shown when it has ended.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::ended::{Ended, Outcome};
use crate::process;

/// The variable with the file that such a process leaves its results in.
const RECORD: &str = "TAPEWORKS_STEPS_BESIDE";

/// Whether this is such a process. It leaves the files of others alone.
pub(crate) fn is_one() -> bool {
    std::env::var_os(RECORD).is_some()
}

/// A process that runs steps.
pub(crate) struct Beside {
    names: Vec<&'static str>,
    child: Child,
    output: PathBuf,
    record: PathBuf,
}

impl Beside {
    /// Starts the steps of these names; no process without one.
    pub(crate) fn start(names: Vec<&'static str>) -> Result<Option<Self>, String> {
        if names.is_empty() {
            return Ok(None);
        }
        let folder = process::target_folder();
        let (output, record) = (folder.join("beside.log"), folder.join("beside.json"));
        let failed = |error: std::io::Error| format!("steps beside the others: {error}");
        // That of an earlier run is not this one's.
        let _none_is_fine = std::fs::remove_file(&record);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let file = File::create(&output).map_err(failed)?;
        // The name that the kernel keeps: a full disk may have cost the file its own.
        let child = Command::new("/proc/self/exe")
            .args(["test", "--long"])
            .args(&names)
            .env(RECORD, &record)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(failed)?)
            .stderr(file)
            .spawn()
            .map_err(failed)?;
        println!("\nbeside the steps that follow: {}", names.join(", "));
        Ok(Some(Self { names, child, output, record }))
    }

    /// Waits for the end, shows what was printed, and gives the results.
    pub(crate) fn join(mut self) -> Vec<Ended> {
        println!("\nwaiting for the steps beside: {}", self.names.join(", "));
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        match std::fs::read_to_string(&self.output) {
            Ok(printed) => print!("{printed}"),
            Err(error) => eprintln!("{}: {error}", self.output.display()),
        }
        let record = std::fs::read_to_string(&self.record).unwrap_or_default();
        results(&record, &self.names, &status)
    }
}

/// The results of the steps by the record of their process, which ended with a status.
fn results(record: &str, names: &[&'static str], status: &str) -> Vec<Ended> {
    let lines: Vec<Value> = record.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |name: &'static str| {
        let line = lines.iter().find(|line| line["name"] == name);
        let number = |key: &str| line.and_then(|line| line[key].as_f64());
        let what = line.and_then(|line| line["what"].as_str()).unwrap_or_default().to_owned();
        let outcome = match line.and_then(|line| line["outcome"].as_str()) {
            Some("passed") => Outcome::Passed(what),
            Some("skipped") => Outcome::Skipped(what),
            Some("failed") => Outcome::Failed(what),
            _ => Outcome::Failed(format!("its process ended before it: {status}")),
        };
        Ended {
            name,
            outcome,
            time: Duration::from_secs_f64(number("seconds").unwrap_or_default()),
            processor_time: number("processor_seconds").map(Duration::from_secs_f64),
            free_gigabytes: number("free_gigabytes"),
        }
    };
    names.iter().copied().map(of).collect()
}

/// Leaves the results for the process that waits for them, if this is one that runs beside it.
pub(crate) fn leave(ended: &[Ended]) -> Result<(), String> {
    let Some(path) = std::env::var_os(RECORD) else { return Ok(()) };
    let lines = ended.iter().map(|one| line_of(one).to_string() + "\n").collect::<String>();
    std::fs::write(&path, lines).map_err(|error| format!("{}: {error}", PathBuf::from(path).display()))
}

fn line_of(ended: &Ended) -> Value {
    let (outcome, what) = match &ended.outcome {
        Outcome::Passed(what) => ("passed", what.as_str()),
        Outcome::Failed(why) => ("failed", why.as_str()),
        Outcome::Skipped(why) => ("skipped", why.as_str()),
        Outcome::Unchanged => ("skipped", "unchanged"),
    };
    json!({
        "name": ended.name,
        "outcome": outcome,
        "what": what,
        "seconds": ended.time.as_secs_f64(),
        "processor_seconds": ended.processor_time.map(|time| time.as_secs_f64()),
        "free_gigabytes": ended.free_gigabytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_as_it_was_left_and_a_step_without_one_has_failed() {
        let left = [
            (Outcome::Passed("well".into()), Some(Duration::from_secs(2))),
            (Outcome::Failed("a line\nand another".into()), None),
            (Outcome::Skipped("no server".into()), None),
        ];
        let names = ["one", "two", "three", "four"];
        let record: String = left
            .into_iter()
            .zip(names)
            .map(|((outcome, processor_time), name)| {
                let time = Duration::from_millis(1_500);
                let ended = Ended { name, outcome, time, processor_time, free_gigabytes: Some(1.5) };
                line_of(&ended).to_string() + "\n"
            })
            .collect();
        let results = results(&record, &names, "signal: 9");
        assert!(matches!(&results[0].outcome, Outcome::Passed(what) if what == "well"));
        assert_eq!(results[0].processor_time, Some(Duration::from_secs(2)));
        assert_eq!((results[0].time, results[0].free_gigabytes), (Duration::from_millis(1_500), Some(1.5)));
        assert!(matches!(&results[1].outcome, Outcome::Failed(why) if why == "a line\nand another"));
        assert!(matches!(&results[2].outcome, Outcome::Skipped(why) if why == "no server"));
        assert!(matches!(&results[3].outcome, Outcome::Failed(why) if why.contains("signal: 9")));
    }
}
