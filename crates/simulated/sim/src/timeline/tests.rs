//! Tests that a timeline does not change the run, and that its page shows what happened.

use serde_json::Value;

use super::*;
use crate::kernel::network::TcpFaults;
use crate::market::simulate;
use crate::plan::{ClientPlan, SECOND};
use crate::{Regression, Saved, Scenario};

/// Returns the data of a page, as its script reads it.
fn data(page: &str) -> Value {
    let begins = "<script type=\"application/json\" id=\"run\">";
    let (_, behind) = page.split_once(begins).unwrap();
    let (data, _) = behind.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

/// Returns the row with this name in a group.
fn row<'a>(data: &'a Value, group: &str, name: &str) -> &'a Value {
    let of_name = |all: &'a Value, name: &str| {
        let all = all.as_array().unwrap();
        all.iter().find(|one| one["name"].as_str().unwrap().starts_with(name)).unwrap()
    };
    of_name(&of_name(&data["groups"], group)["rows"], name)
}

/// Returns whether an entry has this kind, and a label that contains this text.
fn has(all: &Value, kind: &str, text: &str) -> bool {
    let is = |one: &Value| one["kind"] == kind && one["label"].as_str().unwrap().contains(text);
    all.as_array().unwrap().iter().any(is)
}

/// Returns a plan with faults for each row, a restart, and clients that are refused and leave.
fn plan() -> Plan {
    let mut plan = Scenario::of_name("new-sessions").unwrap().plan(5);
    (plan.trouble_ns, plan.rate, plan.symbols) = (6 * SECOND, 800, 5);
    for (place, venue) in plan.venues.iter_mut().enumerate() {
        venue.restart_after[0] = 500 + 100 * place as u64;
    }
    let lossy = LinkFaults { lost_per_million: 300_000, ..LinkFaults::default() };
    let garbled = LinkFaults { garbled_per_million: 10_000, ..LinkFaults::default() };
    let mut add = |at_ns, length_ns, what| plan.faults.push(Fault { at_ns, length_ns, what });
    add(SECOND, 2 * SECOND, What::Line { venue: 1, line: 0, faults: lossy });
    add(SECOND, 2 * SECOND, What::Line { venue: 1, line: 1, faults: lossy });
    add(SECOND, SECOND, What::Line { venue: 2, line: 0, faults: garbled });
    add(2 * SECOND, SECOND, What::Requests { venue: 1, faults: lossy });
    add(2 * SECOND, SECOND, What::Tcp(TcpFaults { reset_per_million: 100, ..TcpFaults::default() }));
    add(4 * SECOND, SECOND, What::Kill);
    plan.faults.sort_by_key(|fault| fault.at_ns);
    plan.clients.push(ClientPlan { leaves_after: 300, ..ClientPlan::default() });
    plan
}

#[test]
fn a_run_is_the_same_with_a_timeline() {
    let mut plans = vec![plan()];
    plans.extend((2..4).map(|seed| {
        let mut plan = Plan::draw(seed);
        plan.rate = plan.rate.min(200);
        plan.trouble_ns = plan.trouble_ns.min(3 * SECOND);
        plan
    }));
    for plan in plans {
        let without = simulate(&plan, false);
        let (with, _) = simulate_with_timeline(&plan);
        let all = |outcome: &Outcome| {
            let Outcome { ended, violations, counts, reached } = outcome.clone();
            (ended.hash, ended.steps, ended.now_ns, violations, counts, reached)
        };
        assert_eq!(all(&with), all(&without), "seed {}", plan.seed);
    }
}

#[test]
fn a_page_shows_faults_states_and_what_the_plant_did() {
    let (outcome, timeline) = simulate_with_timeline(&plan());
    assert_eq!(outcome.violations, Vec::<String>::new());
    let page = timeline.page("new-sessions </script><b>", "a story").unwrap();
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    for elsewhere in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    let data = data(&page);
    assert_eq!(data["name"], "new-sessions </script><b>");
    assert_eq!(data["hash"], format!("{:016x}", outcome.ended.hash));
    assert!(has(&row(&data, "Nasdaq", "line B")["bars"], "out", "out"));
    assert!(has(&row(&data, "Nasdaq", "channel")["marks"], "session", "session"));
    assert!(has(&row(&data, "Bx", "line A")["bars"], "lossy", "loses 30 %"));
    assert!(has(&row(&data, "Bx", "requests")["bars"], "lossy", "loses 30 %"));
    let sum = |row: &Value| -> i64 {
        row["columns"][0]["runs"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_i64)
            .filter(|run| *run > 0)
            .sum()
    };
    assert!(sum(row(&data, "Bx", "gaps")) > 0 && sum(row(&data, "Bx", "requests")) > 0);
    assert!(has(&row(&data, "IexDeep", "line A")["bars"], "garbled", "garbles 1 %"));
    let life = row(&data, "Plant", "process");
    assert!(has(&life["bars"], "out", "killed; starts again after 1 s"));
    assert!(has(&life["bars"], "running", "start 1") && has(&life["bars"], "running", "start 2"));
    assert!(has(&life["marks"], "note", "plant: killed"));
    assert!(has(&row(&data, "Plant", "checkpoints")["marks"], "good", "written"));
    assert!(has(&row(&data, "Clients", "connections")["bars"], "lossy", "resets 0.01 %"));
    assert!(has(&row(&data, "Clients", "client 0")["bars"], "connected", "start 2"));
    assert!(has(&row(&data, "Clients", "client 1")["marks"], "left", "left"));
    // The plant is killed while the client is connected, and is down for a second.
    let marks = &row(&data, "Clients", "client 0")["marks"];
    assert!(has(marks, "cut", "cut") && has(marks, "refused", "refused"), "{marks}");
    assert!(sum(row(&data, "Clients", "client 0")) > 0 && sum(row(&data, "Clients", "client 1")) >= 300);
}

#[test]
fn a_page_shows_violations_and_the_faults_of_a_regression() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let path = folder.join("clock-set-forward.json");
    let Regression { story, plan: Saved::Market(plan) } = Regression::load(&path).unwrap() else {
        panic!("it is of a market")
    };
    let (mut outcome, timeline) = simulate_with_timeline(&plan);
    let shown = data(&timeline.page("clock-set-forward", &story).unwrap());
    assert_eq!(shown["story"], story);
    let bars = |data: &Value, kinds: &[&str]| -> usize {
        let groups = data["groups"].as_array().unwrap().iter();
        let rows = groups.flat_map(|group| group["rows"].as_array().unwrap());
        let bars = rows.flat_map(|row| row["bars"].as_array().unwrap());
        bars.filter(|bar| kinds.contains(&bar["kind"].as_str().unwrap())).count()
    };
    assert!(bars(&shown, &["out", "lossy", "garbled"]) > 0);
    // The plan passes now. A failing one shows what is wrong, and when it was seen.
    let mut recorded = Recorder::new(&plan).so_far();
    let text = "a book is wrong </script> & \"so on\"".to_owned();
    recorded.violations.push(7 * SECOND);
    outcome.violations = vec![text.clone(), "another one".to_owned()];
    let failed = data(&Timeline::new(recorded, &plan, &outcome).page("failed", "").unwrap());
    assert_eq!(failed["violations"][0], serde_json::json!([7 * SECOND, text]));
    assert_eq!(failed["violations"][1][0], outcome.ended.now_ns);
}
