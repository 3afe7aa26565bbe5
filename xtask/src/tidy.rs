//! House rules that text alone can break.
//!
//! It checks the files that git has or would add. Each rule gives a line per violation: file, line, and what is wrong.
//!
//! | files | rule |
//! | --- | --- |
//! | all text | ends with one newline; no notes to self; no paths of somebody's machine; the field's words ([`PLAIN_WORDS`]); at most [`MOST_LINES`] lines |
//! | Rust | no placeholders, debug prints or switched-off tests; no names made of words that [`NOT_IN_NAMES`] lists, nor test names that begin like [`NOT_AT_STARTS`]; begins with a module doc |
//! | Rust outside `ring`, `capture`, `nic` and the peers in `bench/src/ring` | no unsafe code |
//! | Rust of a library crate | names no file outside the crate: what a test or `include_str!` needs is there, as a link if others have it |
//! | Markdown | links into the repository lead somewhere; the book's summary lists every page |

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use crate::process;

/// The most lines of a file that somebody is to read.
const MOST_LINES: usize = 1_500;

/// What no line of code may say. Written in halves, since this file is looked at too.
const NOT_IN_CODE: &[(&str, &str)] = &[
    (concat!("to", "do!("), "a placeholder"),
    (concat!("unimpl", "emented!("), "a placeholder"),
    (concat!("db", "g!("), "a debug print"),
    (concat!("#[ig", "nore"), "a test that is switched off"),
];

/// What no text may say, as a word.
const NOT_AS_WORD: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "a note to self"),
    (concat!("TO", "DO"), "a note to self"),
    (concat!("XX", "X"), "a note to self"),
];

/// Words that a reader must think about, and the field's word for each: the glossary (`docs/src/glossary.md`) has those that stay. Written
/// in halves, since this file is looked at too.
const PLAIN_WORDS: &[(&str, &str)] = &[
    (concat!("state snap", "shot"), "checkpoint"),
    (concat!("way", "s out"), "outputs"),
    (concat!("way", " out"), "output"),
    (concat!("nobody", "'s"), "private"),
    (concat!("had", " again"), "recovered"),
    (concat!("err", "and"), "I/O task"),
    (concat!("err", "ands"), "I/O tasks"),
    (concat!("cho", "re"), "task"),
    (concat!("cho", "res"), "tasks"),
    (concat!("be", "ll"), "wake-up"),
    (concat!("be", "lls"), "wake-ups"),
    (concat!("na", "ps"), "sleeps"),
    (concat!("scri", "be"), "writer"),
    (concat!("kee", "per"), "writer"),
    (concat!("machine's", " death"), "machine crash"),
    (concat!("is met", " again"), "is reported"),
    (concat!("who", "ever"), "the caller, the reader, the thread"),
    (concat!("comes", " of it"), "its result"),
    (concat!("to", "ld"), "reported, returned, named"),
    (concat!("te", "lls"), "reports, returns, names"),
    (concat!("passed", " over"), "skipped"),
    (concat!("to be", " had"), "available"),
    (concat!("as good", " for"), "equal to"),
    (concat!("comes", " of"), "results from"),
    (concat!("came", " of"), "resulted from"),
];

/// Parts of names in Rust, between underscores, and the field's word for each.
const NOT_IN_NAMES: &[(&str, &str)] = &[
    (concat!("to", "ld"), "reported, found, counted"),
    (concat!("te", "ll"), "report, return, notify"),
    (concat!("te", "lls"), "reports, returns, has"),
    (concat!("unto", "ld"), "unreported"),
    (concat!("ask", "er"), "client"),
    (concat!("who", "ever"), "the caller, the reader, the thread"),
];

/// What no function's name begins with: a test's name begins with the actor.
const NOT_AT_STARTS: &[&str] =
    &[concat!("wh", "at_"), concat!("wh", "o_"), concat!("wh", "ose_"), concat!("wh", "om_")];

/// Paths of somebody's machine, in any text.
const MACHINE_PATHS: &[&str] = &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/main")];

/// A path that code may use and docs may not promise.
const TEMPORARY: &str = concat!("/t", "mp/");

/// The keyword.
const UNSAFE: &str = concat!("uns", "afe");

/// Where such code may be.
/// The peers that are written anew for the benches of the ring need what the originals have; nothing of it ships.
const MAY_BE_UNSAFE: &[&str] =
    &["crates/base/ring/", "crates/packets/capture/", "crates/packets/nic/", "bench/src/ring/"];

/// The threat model, which names the test of each of its claims.
const SECURITY: &str = "SECURITY.md";

/// Files whose lines are made by machines, or are not ours to shape.
fn is_exempt(path: &str) -> bool {
    path.ends_with("Cargo.lock")
        || path.ends_with("package-lock.json")
        || ["testdata/", "fuzz/seeds/", "web/vendor/"].iter().any(|folder| path.starts_with(folder))
}

/// Runs the check on this repository.
pub(crate) fn run() -> Result<String, String> {
    let listed = process::program("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()?;
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let (mut violations, mut looked_at) = (Vec::new(), 0);
    let mut functions = HashSet::new();
    for path in paths {
        // A file of git's list may have been removed; one that is no text has no lines to look at.
        let Ok(text) = std::fs::read_to_string(process::root().join(path)) else { continue };
        if is_exempt(path) {
            continue;
        }
        looked_at += 1;
        if path.ends_with(".rs") {
            functions.extend(functions_of(&text).map(str::to_owned));
        }
        let exists = |target: &Path| process::root().join(target).exists();
        violations.extend(check(path, &text, &exists));
    }
    violations.extend(pages_missing_from_the_summary()?);
    let promised = std::fs::read_to_string(process::root().join(SECURITY));
    let promised = promised.map_err(|error| format!("{SECURITY}: {error}"))?;
    violations.extend(tests_missing(&promised, &functions));
    violations.extend(lints_that_differ());
    if violations.is_empty() {
        return Ok(format!("{looked_at} files are tidy"));
    }
    Err(format!("{} untidy places:\n  {}", violations.len(), violations.join("\n  ")))
}

/// The names of the functions of a Rust file.
fn functions_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("fn ")?;
        rest.split_once(['(', '<']).map(|(name, _)| name)
    })
}

/// The tests that the threat model names and that are not there. A test's name has three underscores at least; no other word of it
/// has.
fn tests_missing(text: &str, functions: &HashSet<String>) -> Vec<String> {
    let names = text.split('`').skip(1).step_by(2);
    let tests = names.filter(|name| {
        name.matches('_').count() >= 3
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    });
    let missing = tests.filter(|name| !functions.contains(*name));
    missing.map(|name| format!("{SECURITY}: no test is called {name}")).collect()
}

/// What is wrong with one file.
fn check(path: &str, text: &str, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |line: usize, what: String| found.push(format!("{path}:{line}: {what}"));
    let lines = text.lines().count();
    if !text.is_empty() && !text.ends_with('\n') {
        note(lines, "no newline at the end".into());
    }
    if text.ends_with("\n\n") {
        note(lines, "blank lines at the end".into());
    }
    if lines > MOST_LINES {
        note(lines, format!("{lines} lines: a file has one story, in at most {MOST_LINES}"));
    }
    let (is_rust, is_markdown) = (path.ends_with(".rs"), path.ends_with(".md"));
    if is_rust && !is_example_of_a_fault(path) && !text.starts_with("//!") && !text.starts_with("#!") {
        note(1, "no module doc".into());
    }
    let mut in_fence = false;
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        for (word, what) in NOT_AS_WORD.iter().filter(|(word, _)| has_word(line, word)) {
            note(number, format!("{word} is {what}"));
        }
        let lower = line.to_lowercase();
        for (word, instead) in PLAIN_WORDS.iter().filter(|(word, _)| has_word(&lower, word)) {
            note(number, format!("say {instead}, not {word}"));
        }
        for machine_path in MACHINE_PATHS.iter().filter(|machine_path| line.contains(**machine_path)) {
            note(number, format!("{machine_path} is a path of somebody's machine"));
        }
        // A technique of the lab names the places of the product that use it.
        if path.starts_with("lab/src/catalogue/")
            && let Some((place, _)) = line.split_once("path: \"").and_then(|(_, rest)| rest.split_once('"'))
            && !exists(Path::new(place))
        {
            note(number, format!("{place} is no file"));
        }
        let is_doc = is_markdown || line.trim_start().starts_with("//");
        if is_doc && line.contains(TEMPORARY) {
            note(number, format!("docs name a path in {TEMPORARY}"));
        }
        if is_rust {
            let code = line.split("//").next().unwrap_or_default();
            for (words, what) in NOT_IN_CODE.iter().filter(|(words, _)| code.contains(words)) {
                note(number, format!("{words} is {what}"));
            }
            for name in names(code) {
                for (word, instead) in NOT_IN_NAMES.iter().filter(|(word, _)| has_part(name, word)) {
                    note(number, format!("the name {name}: say {instead}, not {word}"));
                }
            }
            for start in NOT_AT_STARTS.iter().filter(|start| code.contains(&format!("fn {start}"))) {
                note(number, format!("a function's name begins with the actor, not with {start}"));
            }
            if has_word(code, UNSAFE) && !MAY_BE_UNSAFE.iter().any(|folder| path.starts_with(folder)) {
                note(number, format!("{UNSAFE} code outside of ring, capture and nic"));
            }
            if leaves_its_crate(path, code) {
                note(number, "a file outside of the crate: link to it from within".into());
            }
        }
        if is_markdown {
            in_fence ^= line.trim_start().starts_with("```");
            if !in_fence {
                for target in links(line).filter(|target| !leads_somewhere(path, target, exists)) {
                    note(number, format!("the link to {target} leads nowhere"));
                }
            }
        }
    }
    found
}

/// Sources that a test shows to the compiler for it to complain.
fn is_example_of_a_fault(path: &str) -> bool {
    path.contains("/tests/ui/")
}

/// Whether `line` has `word` with nothing of a word beside it.
fn has_word(line: &str, word: &str) -> bool {
    let is_of_word = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_of_word(line[..at].chars().next_back()) && !is_of_word(line[at + word.len()..].chars().next())
    })
}

/// Whether a line of a library crate names a file outside of the crate's folder, which a package of the crate does not hold.
fn leaves_its_crate(path: &str, line: &str) -> bool {
    let Some((name, inside)) = path
        .strip_prefix("crates/")
        .and_then(|path| path.split_once('/'))
        .and_then(|(_wing, path)| path.split_once('/'))
    else {
        return false;
    };
    // The program's tests run the program in its repository.
    if name == "cli" && inside.starts_with("tests/") {
        return false;
    }
    let of_file = line.contains("include_str!") || line.contains("include_bytes!") || line.contains("#[path");
    if !of_file && !line.contains("CARGO_MANIFEST_DIR") {
        return false;
    }
    let folders = Path::new(inside).components().count() - 1;
    line.split('"').skip(1).step_by(2).any(|text| {
        let up = text.trim_start_matches('/').split('/').take_while(|part| *part == "..").count();
        up > if of_file { folders } else { 0 }
    })
}

/// The names and words of a line of code. Texts in quotes count too.
fn names(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// Whether `word` is a part of `name`: between underscores, or as a word of a type's name.
fn has_part(name: &str, word: &str) -> bool {
    let mut parts = vec![String::new()];
    let mut is_after_lower = false;
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && is_after_lower {
            parts.push(String::new());
        }
        is_after_lower = letter.is_lowercase();
        if letter != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts.iter().any(|part| part == word)
}

/// The targets of a line's Markdown links and images, outside code spans.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(move |(at, _)| {
        let is_in_code = line[..at].matches('`').count() % 2 == 1;
        let target = line[at + 2..].split([')', ' ']).next()?;
        (!is_in_code).then_some(target)
    })
}

/// Where links from the book and from packages into the repository start.
const REPOSITORY: [&str; 2] = [
    "https://github.com/tapeworks/tapeworks/blob/main/",
    "https://github.com/tapeworks/tapeworks/tree/main/",
];

/// Whether a link resolves: to a file beside the page, or by [`REPOSITORY`]. A page of the book may not link out of the book by a relative
/// path, because the built book holds nothing else.
fn leads_somewhere(page: &str, target: &str, exists: &dyn Fn(&Path) -> bool) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    if let Some(path) = REPOSITORY.iter().find_map(|start| file.strip_prefix(start)) {
        return exists(Path::new(path));
    }
    if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
        return true;
    }
    let Some(folder) = Path::new(page).parent() else { return false };
    let mut resolved = PathBuf::new();
    for component in folder.join(file).components() {
        match component {
            Component::ParentDir if !resolved.pop() => return false,
            Component::ParentDir | Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    let is_within = !page.starts_with(BOOK) || resolved.starts_with(BOOK);
    is_within && (resolved.as_os_str().is_empty() || exists(&resolved))
}

/// The folder of the book's pages.
const BOOK: &str = "docs/src";

/// Pages of the book that its summary does not lead to.
fn pages_missing_from_the_summary() -> Result<Vec<String>, String> {
    let book = process::root().join(BOOK);
    let Ok(summary) = std::fs::read_to_string(book.join("SUMMARY.md")) else { return Ok(Vec::new()) };
    let listed: Vec<PathBuf> = summary.lines().flat_map(links).map(|target| book.join(target)).collect();
    let mut missing = Vec::new();
    let mut folders = vec![book];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md")
                && !path.ends_with("SUMMARY.md")
                && !listed.contains(&path)
            {
                let page = path.strip_prefix(process::root()).unwrap_or(&path);
                missing.push(format!("{}: docs/src/SUMMARY.md does not lead to this page", page.display()));
            }
        }
    }
    missing.sort();
    Ok(missing)
}

/// Files of lints that are to be alike, byte for byte: a crate that may not touch the system names no fewer calls than its peers.
const ALIKE: [(&str, &[&str]); 2] = [
    (
        "crates/run/outputs/clippy.toml",
        &["crates/run/plant/clippy.toml", "crates/simulated/venues/clippy.toml"],
    ),
    ("crates/market/journal/clippy.toml", &["crates/market/engine/clippy.toml"]),
];

/// Files of lints that differ from the one they copy.
fn lints_that_differ() -> Vec<String> {
    let text = |path: &str| std::fs::read(process::root().join(path)).ok();
    ALIKE
        .iter()
        .flat_map(|(first, copies)| copies.iter().map(move |copy| (first, copy)))
        .filter(|(first, copy)| text(first).is_none() || text(first) != text(copy))
        .map(|(first, copy)| format!("{copy}: not a copy of {first}: copy it anew"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        check(path, text, &|target| target == Path::new("docs/there.md"))
    }

    #[test]
    fn a_tidy_file_passes() {
        assert_eq!(
            faults("crates/protocols/wire/src/lib.rs", "//! What it is.\n\nfn main() {}\n"),
            Vec::<String>::new()
        );
        assert_eq!(faults("crates/base/ring/src/lib.rs", "//! A.\nunsafe { f() }\n"), Vec::<String>::new());
    }

    #[test]
    fn each_rule_of_code_is_held() {
        for (line, what) in [
            (concat!("to", "do!()"), "placeholder"),
            (concat!("db", "g!(x);"), "debug print"),
            (concat!("#[ig", "nore]"), "switched off"),
            (concat!("// FIX", "ME later"), "note to self"),
            (concat!("// It rings the be", "ll."), "say wake-up"),
            (concat!("uns", "afe { f() }"), "outside of ring, capture and nic"),
            (concat!("let x = \"/ho", "me/me\";"), "somebody's machine"),
            (concat!("/// See /t", "mp/x."), "docs name a path"),
        ] {
            let found = faults("crates/protocols/wire/src/lib.rs", &format!("//! Doc.\n{line}\n"));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(
                found[0].starts_with("crates/protocols/wire/src/lib.rs:2: ") && found[0].contains(what),
                "{found:?}"
            );
        }
    }

    #[test]
    fn names_are_made_of_the_fields_words() {
        for (line, what) in [
            (concat!("let is_to", "ld = 1;"), "say reported"),
            (concat!("const TO", "LD_NS: u64 = 1;"), "say reported"),
            (concat!("fn te", "ll_drops() {}"), "say report"),
            (concat!("struct Ask", "er;"), "say client"),
            (concat!("struct ItTe", "lls;"), "say reports"),
            (concat!("fn wh", "at_is_lost_is_counted() {}"), "begins with the actor"),
            (concat!("fn wh", "o_joins_late_waits() {}"), "begins with the actor"),
        ] {
            let found = faults("crates/protocols/wire/src/lib.rs", &format!("//! Doc.\n{line}\n"));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].contains(what), "{found:?}");
        }
        for line in
            ["let masked_task = intelligent(satellite);", "fn it_is_what_it_was() {}", "let retold = cold;"]
        {
            assert_eq!(
                faults("crates/protocols/wire/src/lib.rs", &format!("//! Doc.\n{line}\n")),
                Vec::<String>::new()
            );
        }
    }

    #[test]
    fn a_word_inside_another_is_no_note() {
        assert_eq!(faults("a.md", concat!("AXX", "XB and TO", "DOS\n")), Vec::<String>::new());
    }

    #[test]
    fn the_shape_of_a_file_is_held() {
        assert_eq!(faults("a.toml", "a = 1"), ["a.toml:1: no newline at the end"]);
        assert_eq!(faults("a.rs", "fn main() {}\n"), ["a.rs:1: no module doc"]);
        assert_eq!(faults("a.txt", &"x\n".repeat(MOST_LINES + 1)).len(), 1);
    }

    #[test]
    fn a_library_crate_names_no_file_outside() {
        let found = |path: &str, line: &str| faults(path, &format!("//! Doc.\n{line}\n")).len();
        assert_eq!(found("crates/protocols/wire/src/a/b.rs", "include_str!(\"../../README.md\")"), 0);
        assert_eq!(found("crates/protocols/wire/src/a/b.rs", "include_str!(\"../../../README.md\")"), 1);
        assert_eq!(found("crates/protocols/wire/tests/a.rs", "#[path = \"../../feed/tests/a.rs\"]"), 1);
        assert_eq!(
            found(
                "crates/protocols/wire/tests/a.rs",
                "env!(\"CARGO_MANIFEST_DIR\").join(\"../../testdata\")"
            ),
            1
        );
        assert_eq!(
            found(
                "crates/protocols/wire/tests/a.rs",
                "env!(\"CARGO_MANIFEST_DIR\").join(\"tests/testdata\")"
            ),
            0
        );
        assert_eq!(found("crates/protocols/wire/tests/a.rs", "let text = \"../../..\";"), 0);
        assert_eq!(found("crates/run/cli/tests/a.rs", "env!(\"CARGO_MANIFEST_DIR\").join(\"../..\")"), 0);
    }

    #[test]
    fn a_test_that_the_threat_model_names_must_be_there() {
        let functions = functions_of("    fn a_key_is_never_shown() {\n    pub(crate) fn two<T>(x: T) {}\n")
            .map(str::to_owned);
        let functions: HashSet<String> = functions.collect();
        assert!(functions.contains("two"));
        let text = "| `a_key_is_never_shown`, `a_key_is_never_kept` | `max_connections` of `[a_b_c_d]` |";
        assert_eq!(tests_missing(text, &functions), ["SECURITY.md: no test is called a_key_is_never_kept"]);
    }

    #[test]
    fn links_must_lead_somewhere() {
        let page = "[a](there.md#part) [b](https://x.org) [c](#here) [d](../docs/there.md) `[e](gone.md)`\n";
        assert_eq!(faults("docs/page.md", page), Vec::<String>::new());
        assert_eq!(
            faults("docs/page.md", "[a](gone.md)\n"),
            ["docs/page.md:1: the link to gone.md leads nowhere"]
        );
        assert_eq!(faults("docs/page.md", "[a](../../out.md)\n").len(), 1);
        assert_eq!(faults("docs/src/page.md", "[a](../there.md)\n").len(), 1);
        for start in REPOSITORY {
            assert_eq!(faults("docs/src/page.md", &format!("[a]({start}docs/there.md#x)\n")).len(), 0);
            assert_eq!(faults("docs/src/page.md", &format!("[a]({start}gone.rs)\n")).len(), 1);
        }
        assert_eq!(faults("docs/page.md", "```\n[a](gone.md)\n```\n"), Vec::<String>::new());
    }
}
