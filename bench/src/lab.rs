//! The lab's techniques, with peers beside them: the lab runs, judges and prints them; here is only which.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use tapeworks_lab::measure::{Selection, Settings};
use tapeworks_lab::results::Run;
use tapeworks_lab::technique::Technique;
use tapeworks_lab::{callgrind, catalogue, report, run, text};
use tapeworks_time::Nanos;

use crate::{Options, dispatch, ring};

/// The technique of that name: the catalogue's, or one that only this program has.
pub fn find(name: &str) -> Option<&'static Technique> {
    let own = [&dispatch::TECHNIQUE];
    own.into_iter().find(|technique| technique.name == name).or_else(|| catalogue::find(name))
}

/// Measures the techniques and prints what was found; with `--out`, writes the results and their page too.
pub fn measure(techniques: &[&'static Technique], options: &Options) {
    let settings = Settings { rounds: options.rounds, ..Settings::FULL };
    let run = ran(techniques, settings);
    println!("{}", text::plain(&run));
    let Some(folder) = &options.out else { return };
    let write = |name: &str, content: String| {
        let path: &Path = &folder.join(name);
        std::fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        println!("{}", path.display());
    };
    std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    write("results.json", run.to_json());
    write("report.html", report::html(&run));
}

/// Counts the instructions of the techniques' variants under callgrind.
pub fn count(techniques: &[&'static Technique]) {
    let mut run = ran(techniques, Settings { rounds: 1, ..Settings::QUICK });
    match callgrind::count(&mut run, &alone_command, &mut |_| {}, &|| false) {
        Ok(()) => println!("instructions, counted by callgrind on less input\n{}", text::plain(&run)),
        Err(error) => println!("SKIPPED, instructions: {error}\n"),
    }
}

fn ran(techniques: &[&'static Technique], settings: Settings) -> Run {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut began = String::new();
    tapeworks_time::clock::iso_time(&mut began, Nanos(since.as_nanos() as u64));
    let mut last = String::new();
    let mut on_progress = |progress: run::Progress<'_>| {
        if progress.what != last {
            last = progress.what.into();
            eprintln!("{last}");
        }
    };
    run::run(techniques, ring::PEERS, settings, &began, &mut on_progress, &|| false)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The words behind `bench alone`: a technique, and which of its variants runs how often. It measures nothing: callgrind counts it.
pub fn alone(words: &[String]) -> Option<()> {
    let (name, numbers) = words.split_first()?;
    let numbers: Vec<u64> = numbers.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let &[experiment, point, variant, times] = numbers.as_slice() else { return None };
    let [experiment, point, variant] = [experiment, point, variant].map(|number| number as usize);
    let selection = Selection { experiment, point, variant, times };
    run::run_alone(find(name)?, ring::PEERS, Settings::QUICK, selection).ok()
}

fn alone_command(technique: &str, Selection { experiment, point, variant, times }: Selection) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the program's own path is known"));
    command.args(["alone", technique]);
    command.args([experiment as u64, point as u64, variant as u64, times].map(|number| number.to_string()));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_gives_the_answers_of_the_catalogue() {
        let techniques: Vec<_> = ring::TECHNIQUES.into_iter().filter_map(find).collect();
        assert_eq!(techniques.len(), ring::TECHNIQUES.len());
        let run = ran(&techniques, Settings { rounds: 1, ..Settings::QUICK });
        for technique in &run.techniques {
            assert_eq!(technique.failed, None, "{}", technique.name);
        }
        for peers in ring::PEERS {
            let technique = run.techniques.iter().find(|technique| technique.name == peers.technique);
            let experiments = &technique.expect("it ran").experiments;
            assert!(experiments.iter().any(|found| found.title == peers.experiment), "{}", peers.experiment);
        }
    }

    #[test]
    fn every_dispatcher_gives_the_same_answers() {
        let run = ran(&[&dispatch::TECHNIQUE], Settings { rounds: 1, ..Settings::QUICK });
        assert_eq!(run.techniques[0].failed, None);
        assert_eq!(run.techniques[0].experiments.len(), 2);
    }
}
