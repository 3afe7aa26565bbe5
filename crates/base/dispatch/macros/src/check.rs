//! Checks of a declaration. Every fault is reported, each at the token that caused it.
//!
//! The most specific row wins: one that names state and event, then `State + _`, then `_ + Event`, then `_ + _`. Among rows of
//! the same rank, the first whose guard holds applies; a row without a guard ends the search.

use std::collections::HashMap;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::Error;

use crate::declaration::{Declaration, Row};

/// The most states, and the most events: each is numbered in a byte.
const MOST: usize = 256;

/// The rows that apply to each pair: by state, then event, row numbers in the order their guards are tried. The last row has no
/// guard.
pub(crate) struct Plan {
    pub(crate) cells: Vec<Vec<Vec<usize>>>,
    /// The event of each code, by the code's slot in a perfect hash of the codes.
    pub(crate) coded: Vec<(u64, usize)>,
}

/// Collects faults, so that one compilation reports them all.
#[derive(Default)]
struct Faults(Option<Error>);

impl Faults {
    fn add(&mut self, span: Span, message: String) {
        let error = Error::new(span, message);
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn end(self) -> Result<(), Error> {
        self.0.map_or(Ok(()), Err)
    }
}

pub(crate) fn check(declaration: &Declaration) -> Result<Plan, Error> {
    let mut faults = Faults::default();
    let states = numbered("state", declaration.states.iter().map(|state| &state.name), &mut faults);
    let events = numbered("event", declaration.events.iter().map(|event| &event.name), &mut faults);
    for (what, count) in [("states", declaration.states.len()), ("events", declaration.events.len())] {
        if count == 0 || count > MOST {
            faults.add(declaration.name.span(), format!("a machine has 1 to {MOST} {what}, not {count}"));
        }
    }
    let coded = codes(declaration, &mut faults);
    lifetimes_of_parameters(declaration, &mut faults);
    names_of_rows(declaration, &states, &events, &mut faults);
    // Otherwise later checks would repeat an unknown name for every pair.
    faults.end()?;

    let mut faults = Faults::default();
    let cells = cells(declaration, &mut faults);
    rows_that_never_apply(declaration, &cells, &mut faults);
    // A state may be unreachable only because of a faulty row.
    faults.end()?;

    let mut faults = Faults::default();
    unreachable_states(declaration, &cells, &states, &mut faults);
    faults.end()?;
    Ok(Plan { cells, coded })
}

fn numbered<'d>(
    what: &str,
    names: impl Iterator<Item = &'d Ident>,
    faults: &mut Faults,
) -> HashMap<String, usize> {
    let mut numbers = HashMap::new();
    for (number, name) in names.enumerate() {
        if numbers.insert(name.to_string(), number).is_some() {
            faults.add(name.span(), format!("{what} `{name}` is declared twice"));
        }
    }
    numbers
}

fn codes(declaration: &Declaration, faults: &mut Faults) -> Vec<(u64, usize)> {
    let mut coded: Vec<(u64, usize)> = Vec::new();
    for (number, event) in declaration.events.iter().enumerate() {
        let Some((code, span)) = event.code else { continue };
        if let Some((_, first)) = coded.iter().find(|(known, _)| *known == code) {
            let first = &declaration.events[*first].name;
            faults.add(span, format!("code {code:#x} is that of event `{first}` already"));
        }
        if let (None, Some(parameter)) = (&declaration.message, event.parameters.first()) {
            faults.add(
                parameter.name.span(),
                format!(
                    "`{}` comes by its code, so `{}` must be read from a message: say which, with `message: TYPE`",
                    event.name, parameter.name
                ),
            );
        }
        coded.push((code, number));
    }
    if coded.is_empty() && declaration.message.is_some() {
        faults.add(declaration.name.span(), "there is a `message`, but no event has a code".to_owned());
    }
    coded
}

/// Checks that each lifetime in a parameter has a name declared by the machine, because a parameter is a field of the event enum.
fn lifetimes_of_parameters(declaration: &Declaration, faults: &mut Faults) {
    let machine = &declaration.name;
    for parameter in declaration.events.iter().flat_map(|event| &event.parameters) {
        for (lifetime, span) in lifetimes_in(parameter.of.to_token_stream()) {
            let name = &parameter.name;
            let text = match lifetime {
                None => format!(
                    "the type of `{name}` lacks a lifetime: write `&'a` here, and `machine {machine}<'a>`"
                ),
                Some(lifetime) if lifetime == "_" => format!(
                    "the lifetime in the type of `{name}` needs a name: write `'a` here, and `machine {machine}<'a>`"
                ),
                Some(lifetime)
                    if lifetime == "static"
                        || declaration.lifetimes.iter().any(|known| known.ident == lifetime) =>
                {
                    continue;
                }
                Some(lifetime) => {
                    format!(
                        "the lifetime `'{lifetime}` is not declared: write `machine {machine}<'{lifetime}>`"
                    )
                }
            };
            faults.add(span, text);
        }
    }
}

/// Returns the lifetimes in a type, with `None` for a reference without one.
fn lifetimes_in(tokens: TokenStream) -> Vec<(Option<String>, Span)> {
    let mut found = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => found.extend(lifetimes_in(group.stream())),
            TokenTree::Punct(mark) if mark.as_char() == '\'' => {
                if let Some(TokenTree::Ident(name)) = tokens.peek() {
                    found.push((Some(name.to_string()), name.span()));
                }
            }
            TokenTree::Punct(mark)
                if mark.as_char() == '&'
                    && !matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == '\'') =>
            {
                found.push((None, mark.span()));
            }
            _ => {}
        }
    }
    found
}

fn names_of_rows(
    declaration: &Declaration,
    states: &HashMap<String, usize>,
    events: &HashMap<String, usize>,
    faults: &mut Faults,
) {
    for row in &declaration.rows {
        for state in row.states.iter().flatten().chain(&row.next) {
            if !states.contains_key(&state.to_string()) {
                faults.add(state.span(), format!("no state `{state}` is declared"));
            }
        }
        match (&row.event, &row.guard) {
            (Some(event), _) if !events.contains_key(&event.to_string()) => {
                faults.add(event.span(), format!("no event `{event}` is declared"));
            }
            (None, Some(guard)) => faults.add(
                guard.span(),
                "a row for any event has no guard: a guard takes the event's parameters".to_owned(),
            ),
            _ => {}
        }
    }
}

impl Row {
    /// Returns the row's rank if it applies; 0 is the most specific.
    fn rank(&self, state: &Ident, event: &Ident) -> Option<usize> {
        let is_state = self.states.as_ref().is_none_or(|states| states.contains(state));
        let is_event = self.event.as_ref().is_none_or(|name| name == event);
        (is_state && is_event)
            .then_some(2 * usize::from(self.states.is_none()) + usize::from(self.event.is_none()))
    }

    /// Returns where errors point: at the event, because the state may be one of several.
    fn place(&self) -> Span {
        self.event.as_ref().map_or(self.span, Ident::span)
    }
}

fn cells(declaration: &Declaration, faults: &mut Faults) -> Vec<Vec<Vec<usize>>> {
    let mut all = Vec::new();
    for state in declaration.states.iter().map(|state| &state.name) {
        let mut of_state = Vec::new();
        let mut missing = Vec::new();
        for event in declaration.events.iter().map(|event| &event.name) {
            let mut applying: Vec<(usize, usize)> = declaration
                .rows
                .iter()
                .enumerate()
                .filter_map(|(number, row)| Some((row.rank(state, event)?, number)))
                .collect();
            // Stable sort: rows of the same rank keep the order of the declaration.
            applying.sort_by_key(|(rank, _)| *rank);
            repeated(declaration, &applying, (state, event), faults);
            let is_last = |(_, number): &(usize, usize)| declaration.rows[*number].guard.is_none();
            let end = applying.iter().position(is_last);
            let chain: Vec<usize> = applying
                .iter()
                .take(end.map_or(applying.len(), |end| end + 1))
                .map(|(_, number)| *number)
                .collect();
            match (end, chain.last()) {
                (Some(_), _) => {}
                (None, None) => missing.push(format!("`{event}`")),
                (None, Some(last)) => {
                    let row = &declaration.rows[*last];
                    let guard = row.guard.as_ref().map(ToString::to_string).unwrap_or_default();
                    faults.add(
                        row.place(),
                        format!(
                            "`{state} + {event}` has no row for when `{guard}` says no: add `{state} + {event} => ..;` \
                             below, or a default `_ + _ => ..;`"
                        ),
                    );
                }
            }
            of_state.push(chain);
        }
        if let Some(first) = missing.first() {
            faults.add(
                state.span(),
                format!(
                    "state `{state}` has no row for {}: add `{state} + {} => ..;`, or a default `_ + _ => ..;`",
                    missing.join(", "),
                    first.trim_matches('`')
                ),
            );
        }
        all.push(of_state);
    }
    all
}

/// Reports rows of the same rank that repeat this pair.
fn repeated(
    declaration: &Declaration,
    applying: &[(usize, usize)],
    (state, event): (&Ident, &Ident),
    faults: &mut Faults,
) {
    for rank in applying.chunk_by(|a, b| a.0 == b.0) {
        for (at, (_, number)) in rank.iter().enumerate() {
            let row = &declaration.rows[*number];
            let before = rank[..at].iter().map(|(_, number)| &declaration.rows[*number]);
            for earlier in before {
                let (state_name, event_name) = (
                    row.states.as_ref().map_or("_".to_owned(), |_| state.to_string()),
                    row.event.as_ref().map_or("_".to_owned(), |_| event.to_string()),
                );
                let what = match (&earlier.guard, &row.guard) {
                    (None, _) => "a row without a guard already: this one is never reached".to_owned(),
                    (Some(first), Some(second)) if first == second => {
                        format!("a row with the guard `{first}` already")
                    }
                    _ => continue,
                };
                faults.add(row.place(), format!("`{state_name} + {event_name}` has {what}"));
                break;
            }
        }
    }
}

fn rows_that_never_apply(declaration: &Declaration, cells: &[Vec<Vec<usize>>], faults: &mut Faults) {
    if faults.0.is_some() {
        return;
    }
    for (number, row) in declaration.rows.iter().enumerate() {
        if !cells.iter().flatten().any(|chain| chain.contains(&number)) {
            faults.add(row.span, "this row never applies: every pair has a more particular one".to_owned());
        }
    }
}

fn unreachable_states(
    declaration: &Declaration,
    cells: &[Vec<Vec<usize>>],
    states: &HashMap<String, usize>,
    faults: &mut Faults,
) {
    let mut is_reached = vec![false; declaration.states.len()];
    let mut ways = vec![0];
    while let Some(state) = ways.pop() {
        if std::mem::replace(&mut is_reached[state], true) {
            continue;
        }
        let next = cells[state].iter().flatten().filter_map(|row| declaration.rows[*row].next.as_ref());
        ways.extend(next.filter_map(|name| states.get(&name.to_string())));
    }
    let first = &declaration.states[0].name;
    for (state, _) in declaration.states.iter().zip(is_reached).filter(|(_, is_reached)| !is_reached) {
        faults.add(state.name.span(), format!("no row leads from `{first}` to state `{}`", state.name));
    }
}
