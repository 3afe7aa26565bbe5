//! The declaration as a Mermaid state diagram.
//!
//! Every row that names its event becomes an arrow from each state it applies to. If a state ignores all other events, that row
//! becomes a comment, so that the diagram shows only transitions.

use std::fmt::Write as _;

use crate::check::Plan;
use crate::declaration::{Declaration, Row};

/// Returns the diagram, which starts with `stateDiagram-v2`.
pub(crate) fn mermaid(declaration: &Declaration, plan: &Plan) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "    [*] --> {}", declaration.states[0].name);
    for (state, cells) in declaration.states.iter().zip(&plan.cells) {
        let mut seen = Vec::new();
        for (event, chain) in declaration.events.iter().zip(cells) {
            for row in chain.iter().map(|number| &declaration.rows[*number]) {
                let event = if row.event.is_some() { event.name.to_string() } else { "any other".to_owned() };
                let arrow = arrow(&state.name.to_string(), &event, row);
                if !seen.contains(&arrow) {
                    text.push_str(&arrow);
                    seen.push(arrow);
                }
            }
        }
    }
    text
}

fn arrow(state: &str, event: &str, row: &Row) -> String {
    let next = row.next.as_ref().map_or_else(|| state.to_owned(), ToString::to_string);
    let guard = row.guard.as_ref().map(|guard| format!(" [{guard}]")).unwrap_or_default();
    let action = row.action.as_ref().map(|action| format!(" / {action}")).unwrap_or_default();
    let comment = if row.event.is_none() && row.next.is_none() { "%% " } else { "" };
    format!("    {comment}{state} --> {next}: {event}{guard}{action}\n")
}
