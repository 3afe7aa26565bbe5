//! Disassembles variants from the program's own file.
//!
//! A catalogue function is never inlined, so it has a symbol. Its bytes are decoded here without external tools. A stripped program has no
//! symbols, which is reported. Code for an instruction set chosen at run time is in a generic function of the dispatching crate, whose
//! name does not mention ours; it is found through our call to it.

use std::path::{Path, PathBuf};

use iced_x86::{
    Decoder, DecoderOptions, Formatter as _, Instruction, IntelFormatter, SymbolResolver, SymbolResult,
};
use object::{Architecture, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::technique::Assembly;

/// A function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The variant's name.
    pub variant: String,
    /// Size of the code in bytes.
    pub bytes: usize,
    /// Its instructions, in order.
    pub lines: Vec<Line>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Offset from the start of the function, in bytes.
    pub offset: u64,
    /// The instruction in Intel syntax; jumps show offsets from the start, calls show names.
    pub text: String,
    /// Whether it is one of the instructions that make the difference.
    pub is_marked: bool,
}

/// Why a listing is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// The program's file cannot be read.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The program is for another processor.
    #[error("{path}: only code of x86-64 can be shown, and this is of {architecture}", path = path.display())]
    OtherProcessor {
        /// The file.
        path: PathBuf,
        /// The processor.
        architecture: String,
    },
    /// The function does not exist.
    #[error("{path}: no symbol `{symbol}`: the program is stripped, or the function was inlined", path = path.display())]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The function's path.
        symbol: String,
    },
}

/// Separator in [`Assembly::symbol`] between a function and the name of its callee.
const CALLS: &str = " -> ";

/// Function names by address.
struct Names(Vec<(u64, String)>);

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        _instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        let found = self.0.binary_search_by_key(&address, |(at, _)| *at).ok()?;
        self.0.get(found).map(|(at, name)| SymbolResult::with_str(*at, name))
    }
}

/// Reads the functions from a program's file.
///
/// # Errors
/// The file is not a program for this kind of processor, or a function is missing.
pub fn listings(program: &Path, functions: &[Assembly]) -> Result<Vec<Listing>, AssemblyError> {
    let fault = |why: String| AssemblyError::File { path: program.to_owned(), why };
    let bytes = std::fs::read(program).map_err(|error| fault(error.to_string()))?;
    let file = object::File::parse(bytes.as_slice()).map_err(|error| fault(error.to_string()))?;
    if file.architecture() != Architecture::X86_64 {
        return Err(AssemblyError::OtherProcessor {
            path: program.to_owned(),
            architecture: format!("{:?}", file.architecture()),
        });
    }
    let mut symbols: Vec<(u64, u64, String)> = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| {
            let name = symbol.name().ok()?;
            // Omit the hash at the end.
            Some((symbol.address(), symbol.size(), format!("{:#}", rustc_demangle::demangle(name))))
        })
        .collect();
    symbols.sort();
    let mut names = Names(symbols.iter().map(|(address, _, name)| (*address, name.clone())).collect());
    names.0.dedup_by_key(|(address, _)| *address);
    functions
        .iter()
        .map(|function| {
            let missing =
                || AssemblyError::NoSymbol { path: program.to_owned(), symbol: function.symbol.into() };
            let code_at = |address: u64, size: u64| {
                file.sections().find_map(|section| section.data_range(address, size).ok().flatten())
            };
            let (path, callee) = match function.symbol.split_once(CALLS) {
                Some((path, callee)) => (path, Some(callee)),
                None => (function.symbol, None),
            };
            let named = symbols.iter().find(|(_, _, name)| name == path);
            let (mut address, mut size) =
                named.map(|(address, size, _)| (*address, *size)).ok_or_else(missing)?;
            let mut code = code_at(address, size).ok_or_else(missing)?;
            // Follow the calls as far as functions with that name go.
            while let Some(callee) = callee {
                let called = targets(address, code).find_map(|target| {
                    let found = symbols.binary_search_by_key(&target, |(at, _, _)| *at).ok()?;
                    symbols.get(found).filter(|(at, _, name)| *at != address && name.contains(callee))
                });
                let Some((at, bytes, _)) = called else { break };
                (address, size) = (*at, *bytes);
                code = code_at(address, size).ok_or_else(missing)?;
            }
            if callee.is_some() && named.is_some_and(|(at, _, _)| *at == address) {
                return Err(missing());
            }
            Ok(listing(function, address, code, Names(names.0.clone())))
        })
        .collect()
}

/// Returns the targets of calls and jumps that leave a function.
fn targets(address: u64, code: &[u8]) -> impl Iterator<Item = u64> {
    let inside = address..address + code.len() as u64;
    let decoded: Vec<u64> = Decoder::with_ip(64, code, address, DecoderOptions::NONE)
        .into_iter()
        .map(|instruction| instruction.near_branch_target())
        .filter(|target| *target != 0 && !inside.contains(target))
        .collect();
    decoded.into_iter()
}

fn listing(function: &Assembly, address: u64, code: &[u8], names: Names) -> Listing {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::with_options(Some(Box::new(names)), None);
    let options = formatter.options_mut();
    options.set_first_operand_char_index(8);
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_rip_relative_addresses(true);
    let end = address + code.len() as u64;
    let mut lines = Vec::new();
    for instruction in &mut decoder {
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        let target = instruction.near_branch_target();
        // Show a jump within the function as an offset, which the first column lists.
        if (address..end).contains(&target) && !text.starts_with("call") {
            let mnemonic = text.split(' ').next().unwrap_or_default();
            text = format!("{mnemonic:<7} +{:x}", target - address);
        }
        let is_marked = function.marks.iter().any(|mark| text.starts_with(mark));
        lines.push(Line { offset: instruction.ip() - address, text, is_marked });
    }
    // Remove the padding after the last return.
    while lines.last().is_some_and(|line| line.text.starts_with("int3") || line.text.starts_with("nop")) {
        lines.pop();
    }
    Listing { variant: function.variant.into(), bytes: code.len(), lines }
}

/// Formats one listing, or two side by side, in columns of `width`; marked lines start with `>`.
#[must_use]
pub fn side_by_side(left: &Listing, right: Option<&Listing>, width: usize) -> String {
    let heading = |listing: &Listing| {
        format!("{}: {} instructions, {} bytes", listing.variant, listing.lines.len(), listing.bytes)
    };
    let cut = |text: &str| text.chars().take(width).collect::<String>();
    let cell = |listing: &Listing, index: usize| {
        listing.lines.get(index).map_or_else(String::new, |line| {
            cut(&format!("{} {:>4x}  {}", if line.is_marked { '>' } else { ' ' }, line.offset, line.text))
        })
    };
    let row = |left: String, right: Option<String>| match right {
        Some(right) => format!("{left:<width$}  {right}").trim_end().to_owned() + "\n",
        None => left + "\n",
    };
    let lines = left.lines.len().max(right.map_or(0, |right| right.lines.len()));
    let mut out = row(cut(&heading(left)), right.map(|right| cut(&heading(right))));
    for index in 0..lines {
        out.push_str(&row(cell(left, index), right.map(|right| cell(right, index))));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_instructions_with_offsets() {
        // A loop: add rax, [rdi]; add rdi, 8; dec rsi; jne back; ret; int3.
        let code = [0x48, 0x03, 0x07, 0x48, 0x83, 0xc7, 0x08, 0x48, 0xff, 0xce, 0x75, 0xf4, 0xc3, 0xcc];
        let function = Assembly { variant: "loop", symbol: "none", marks: &["add", "j"] };
        let listing = listing(&function, 0x1000, &code, Names(Vec::new()));
        let texts: Vec<&str> = listing.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["add     rax, [rdi]", "add     rdi, 8", "dec     rsi", "jne     +0", "ret"]);
        let marked: Vec<bool> = listing.lines.iter().map(|line| line.is_marked).collect();
        assert_eq!(marked, [true, true, false, true, false]);
        let beside = side_by_side(&listing, Some(&listing), 40);
        assert!(beside.starts_with("loop: 5 instructions, 14 bytes"), "{beside}");
        assert_eq!(beside.lines().count(), 6);
        assert_eq!(side_by_side(&listing, None, 40).lines().nth(1), Some(">    0  add     rax, [rdi]"));
    }

    #[test]
    fn a_file_that_is_no_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "no program").unwrap();
        let error = listings(&path, &[]).unwrap_err().to_string();
        assert!(error.contains("text: "), "{error}");
        assert!(listings(&folder.path().join("none"), &[]).is_err());
    }

    #[test]
    fn a_function_of_the_catalogue_is_in_the_program() {
        let program = std::env::current_exe().unwrap();
        // A test program is not optimised, but contains all functions in use. It is read once for all techniques.
        let functions: Vec<Assembly> =
            crate::catalogue::CATALOGUE.iter().flat_map(|technique| technique.assembly).copied().collect();
        for (listing, function) in listings(&program, &functions).unwrap().iter().zip(&functions) {
            assert!(!listing.lines.is_empty(), "{}", function.symbol);
        }
        let none = [Assembly { variant: "none", symbol: "tapeworks_lab::none", marks: &[] }];
        assert!(matches!(listings(&program, &none), Err(AssemblyError::NoSymbol { .. })));
    }
}
