//! The page of a timeline: a single file with its style, script and data. It loads nothing else.

use serde::Serialize;

use super::{Group, Timeline};
use crate::market::{Counts, Outcome};
use crate::plan::Plan;
use crate::recorder::rows::{Bar, Column, Mark, Row};
use crate::recorder::text;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The summary above the rows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    seed: u64,
    hash: String,
    steps: u64,
    end_ns: u64,
    /// The interval of the columns.
    every_ns: u64,
    configuration: Vec<(&'static str, String)>,
    counts: Vec<(&'static str, String)>,
    /// The time at which each violation was seen, and its text.
    violations: Vec<(u64, String)>,
}

impl Summary {
    pub(super) fn new(plan: &Plan, outcome: &Outcome, violations: Vec<(u64, String)>, every_ns: u64) -> Self {
        let Counts {
            messages,
            begun,
            entered,
            events,
            compared,
            stale,
            starts,
            refused,
            missing,
            again,
            sessions,
            records,
        } = outcome.counts;
        let counts = [
            ("messages that the venues sent", messages),
            ("sessions that they began", begun),
            ("sessions that the plant entered", entered),
            ("events that it published", events),
            ("books compared", compared),
            ("books that were stale", stale),
            ("starts of the plant", starts),
            ("starts that failed", refused),
            ("messages named as missing", missing),
            ("events that came again", again),
            ("client sessions", sessions),
            ("records that clients read", records),
        ];
        Self {
            seed: plan.seed,
            hash: format!("{:016x}", outcome.ended.hash),
            steps: outcome.ended.steps,
            end_ns: outcome.ended.now_ns,
            every_ns,
            configuration: text::configuration(plan),
            counts: counts.map(|(name, count)| (name, text::number(count))).to_vec(),
            violations,
        }
    }
}

#[derive(Serialize)]
struct PageData<'a> {
    name: &'a str,
    story: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
    groups: Vec<GroupData<'a>>,
}

#[derive(Serialize)]
struct GroupData<'a> {
    name: &'a str,
    hint: &'a str,
    rows: Vec<RowData<'a>>,
}

#[derive(Serialize)]
struct RowData<'a> {
    name: &'a str,
    hint: &'a str,
    bars: &'a [Bar],
    marks: &'a [Mark],
    columns: Vec<ColumnData<'a>>,
}

#[derive(Serialize)]
struct ColumnData<'a> {
    name: &'a str,
    is_level: bool,
    runs: Vec<i64>,
}

impl<'a> From<&'a Group> for GroupData<'a> {
    fn from(group: &'a Group) -> Self {
        Self { name: &group.name, hint: &group.hint, rows: group.rows.iter().map(RowData::from).collect() }
    }
}

impl<'a> From<&'a Row> for RowData<'a> {
    fn from(row: &'a Row) -> Self {
        let column = |(place, column): (usize, &'a Column)| {
            // The first column determines the shade; others are shown unless they are all 0.
            (place == 0 || !column.is_empty()).then(|| ColumnData {
                name: column.name,
                is_level: column.is_level,
                runs: column.runs(),
            })
        };
        let columns = row.columns.iter().enumerate().filter_map(column).collect();
        Self { name: &row.name, hint: row.hint, bars: &row.bars, marks: &row.marks, columns }
    }
}

impl Timeline {
    /// Returns an HTML page that shows the run. `name` is the name of the run, and `story` describes the plan or is empty.
    ///
    /// # Errors
    /// None is known: numbers and texts can be written as JSON.
    pub fn page(&self, name: &str, story: &str) -> Result<String, String> {
        let groups = self.groups.iter().map(GroupData::from).collect();
        let data = PageData { name, story, summary: &self.summary, groups };
        let data = serde_json::to_string(&data).map_err(|error| error.to_string())?;
        // In JSON this character occurs only in strings. Escaped, no string can end the script or begin a comment.
        let data = data.replace('<', "\\u003c");
        let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
        let mut rest = PAGE;
        for (place, part) in [("/*style*/", STYLE), ("/*data*/", data.as_str()), ("/*script*/", SCRIPT)] {
            let Some((before, behind)) = rest.split_once(place) else {
                return Err(format!("the page has no place {place}"));
            };
            page.push_str(before);
            page.push_str(part);
            rest = behind;
        }
        page.push_str(rest);
        Ok(page)
    }
}
