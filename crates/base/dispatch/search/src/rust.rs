//! Generates the Rust code of a perfect hash.

use std::fmt::Write as _;

use crate::formula::{Family, Formula};
use crate::hash::PerfectHash;
use crate::set::Width;

/// The width of generated lines.
const COLUMNS: usize = 100;

impl PerfectHash {
    /// Returns the items of the lookup: constant tables and `const fn index(value: T) -> Option<usize>`, where `T` is `input`, at
    /// least as wide as the values. `visibility` precedes the function.
    #[must_use]
    pub fn rust_items(&self, input: Width, visibility: &str) -> String {
        let mut text = String::new();
        let (width, size) = (self.width(), self.size());
        let is_direct = self.formula().family() == Family::Direct;
        if let Formula::Displace { displacements, .. } = self.formula() {
            let name = Formula::displacement_width(displacements).rust_name();
            table(&mut text, "DISPLACEMENTS", name, displacements.iter().map(|number| format!(" {number},")));
        }
        if !self.is_checked_by_bound() {
            table(&mut text, "KEYS", width.rust_name(), self.keys().iter().map(hexadecimal));
        }
        let function = format!("#[inline]\n{visibility}const fn index(value: {input}) -> Option<usize> {{\n");
        text.push_str(&function);
        let word = if width.word_bits() == 64 { Width::U64 } else { Width::U32 };
        let operand = match self.formula() {
            Formula::Direct { .. } | Formula::Displace { .. } => "value",
            _ if word == input => "value",
            _ => {
                line(&mut text, format_args!("let word = value as {word};"));
                "word"
            }
        };
        let expression = self.formula().expression(operand, width);
        let key = if width == input { "KEYS[slot]".to_owned() } else { format!("KEYS[slot] as {input}") };
        if is_direct {
            line(&mut text, format_args!("let offset = {expression};"));
            let wide = if input == Width::U64 { "offset" } else { "(offset as u64)" };
            line(&mut text, format_args!("let is_within = {wide} < {size};"));
            line(&mut text, format_args!("let slot = offset as usize;"));
            let found = if self.is_checked_by_bound() {
                "is_within".to_owned()
            } else {
                format!("is_within && {key} == value")
            };
            line(&mut text, format_args!("if {found} {{ Some(slot) }} else {{ None }}"));
        } else {
            line(&mut text, format_args!("let slot = ({expression}) as usize;"));
            line(&mut text, format_args!("if {key} == value {{ Some(slot) }} else {{ None }}"));
        }
        text.push_str("}\n");
        text
    }

    /// Returns a separate module: public items with documentation and a test. It compiles without warnings or other crates.
    #[must_use]
    pub fn rust_module(&self) -> String {
        let mut text = format!(
            "//! A perfect hash of {} values: {}.\n//! Made by `tapeworks hash`.\n\n\
             /// Slots: what [`index`] answers is below it.\npub const SIZE: usize = {};\n\n",
            self.values().len(),
            self.formula(),
            self.size()
        );
        let documented =
            self.rust_items(self.width(), "pub ").replace(
                "#[inline]\n",
                "\n/// The slot of `value`, different for each value of the set; `None` of any other value.\n#[inline]\n",
            );
        text.push_str(&documented);
        text.push_str("\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n");
        let mut values = String::new();
        table(&mut values, "VALUES", self.width().rust_name(), self.values().iter().map(hexadecimal));
        for value_line in values.lines() {
            line(&mut text, format_args!("{value_line}"));
        }
        text.push_str(
            "
    #[test]
    fn every_value_has_a_slot_of_its_own() {
        let mut is_taken = [false; SIZE];
        for value in VALUES {
            let slot = index(value).expect(\"the value is of the set\");
            assert!(!std::mem::replace(&mut is_taken[slot], true), \"{value:#x}\");
        }
    }

    #[test]
    fn a_value_beside_the_set_has_none() {
        for value in VALUES {
            for other in [value.wrapping_add(1), value.wrapping_sub(1), !value, value.rotate_left(1)] {
                assert_eq!(index(other).is_some(), VALUES.contains(&other), \"{other:#x}\");
            }
        }
    }
}
",
        );
        text
    }
}

/// Writes a line of a function's body. Writing to a String cannot fail.
fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "    {what}");
}

fn hexadecimal(number: &u64) -> String {
    format!(" {number:#x},")
}

/// Writes a constant array, with as many numbers per line as fit.
fn table(text: &mut String, name: &str, type_name: &str, numbers: impl ExactSizeIterator<Item = String>) {
    let _ = writeln!(text, "static {name}: [{type_name}; {}] = [", numbers.len());
    let mut row = String::from("   ");
    for number in numbers {
        if row.len() + number.len() > COLUMNS {
            text.push_str(&row);
            text.push('\n');
            row = String::from("   ");
        }
        row.push_str(&number);
    }
    text.push_str(&row);
    text.push_str("\n];\n");
}
