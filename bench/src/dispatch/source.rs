//! Machines as source text: the same one as a declaration for each dispatcher, and in C++ for Boost.MSM.
//!
//! A machine has four states. Its first type of message moves on to the next state; every other type does one thing in states A
//! and C and another in B and D. So the action depends on the type and on the state, and a compiler cannot make one function of
//! all. Used by the build script, which makes the machines that are timed, and by the benchmark itself, which times how long
//! such machines take to build.

use std::fmt::Write as _;

/// The forms of dispatch.
pub const DISPATCHES: [&str; 3] = ["table", "match", "chain"];

/// The sets of message types that are measured, by name: so many at random, and those of a protocol.
pub const SETS: [&str; 6] = ["3", "8", "16", "32", "64", "itch"];

/// The types of TotalView-ITCH 5.0: letters, as most protocols have.
pub const ITCH: &[u8] = b"SRHYLVWKJhAFECXDUPQBINO";

/// The codes of a set.
pub fn codes_of(set: &str) -> Vec<u64> {
    match set.parse() {
        Ok(count) => codes(count),
        Err(_) => ITCH.iter().copied().map(u64::from).collect(),
    }
}

/// Codes of `count` types: random numbers of 16 bits, the same every time.
pub fn codes(count: usize) -> Vec<u64> {
    let mut codes = Vec::new();
    let mut state = 0x5eed_u64 ^ (count as u64) << 32;
    while codes.len() < count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let code = state >> 48;
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    codes
}

/// The action of one type: eight kinds, so that no two neighbours are alike. `this` is `self.` or nothing.
fn statement(kind: usize, number: usize, this: &str) -> String {
    let slot = number % 64;
    let odd = 2 * number + 1;
    match kind % 8 {
        0 => format!("{this}sum += message ^ {number};"),
        1 => format!("{this}counts[{slot}] += message;"),
        2 => format!("{this}last = message * {odd};"),
        3 => format!("{this}sum ^= message << {};", number % 60),
        4 => format!("{this}sum -= message | {number};"),
        5 => format!("{this}counts[{slot}] ^= message; {this}last = {number};"),
        6 => format!("{this}last += message >> {};", 1 + number % 7),
        _ => format!("{this}counts[{slot}] = message; {this}sum += {this}last;"),
    }
}

/// The statement with arithmetic that wraps, as C++ has it of its own.
fn rust_statement(kind: usize, number: usize) -> String {
    let mut rust = String::new();
    for part in statement(kind, number, "self.").split_inclusive(';') {
        let part = part.trim().trim_end_matches(';');
        let wrapped = if let Some((place, value)) = part.split_once(" += ") {
            format!("{place} = {place}.wrapping_add({value});")
        } else if let Some((place, value)) = part.split_once(" -= ") {
            format!("{place} = {place}.wrapping_sub({value});")
        } else if let Some((place, factor)) = part.split_once(" = message * ") {
            format!("{place} = message.wrapping_mul({factor});")
        } else {
            format!("{part};")
        };
        rust.push_str(&wrapped);
        rust.push(' ');
    }
    rust
}

/// The context of all machines of a crate, with the actions of up to `types` types.
pub fn context(types: usize) -> String {
    let mut text = String::from(
        "/// What the actions work on.\npub struct Work { pub sum: u64, pub last: u64, pub turns: u64, pub counts: [u64; 64] }\n\n\
         impl Work {\n    pub fn new() -> Self { Self { sum: 0, last: 0, turns: 0, counts: [0; 64] } }\n    \
         pub fn total(&self) -> u64 { self.counts.iter().fold(self.sum ^ self.last ^ self.turns, |sum, count| \
         sum.rotate_left(1) ^ count) }\n    #[inline] fn turn(&mut self, message: u64) { self.turns = \
         self.turns.wrapping_add(message | 1); }\n",
    );
    for number in 1..types {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    #[inline] fn odd_{number}(&mut self, message: u64) {{ {}}}\n    \
             #[inline] fn even_{number}(&mut self, message: u64) {{ {}}}",
            rust_statement(number, number),
            rust_statement(number + 3, number)
        );
    }
    text.push_str("}\n");
    text
}

/// One machine in a separate module.
pub fn machine(module: &str, dispatch: &str, codes: &[u64]) -> String {
    let mut text = format!(
        "pub mod {module} {{\n    use super::Work;\n    tapeworks_dispatch::machine! {{\n        pub machine Bench {{ \
         context: Work, message: u64, dispatch: {dispatch} }}\n        states {{ A, B, C, D }}\n        events {{\n"
    );
    for (number, code) in codes.iter().enumerate() {
        let _ = writeln!(text, "            M{number} = {code:#x} (message: u64),");
    }
    text.push_str("        }\n        rows {\n");
    for (state, next) in [("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")] {
        let _ = writeln!(text, "            {state} + M0 => turn -> {next};");
    }
    for number in 1..codes.len() {
        let _ = writeln!(text, "            A | C + M{number} => odd_{number};");
        let _ = writeln!(text, "            B | D + M{number} => even_{number};");
    }
    text.push_str("        }\n    }\n}\n");
    text
}

/// The same machine for Boost.MSM, with a program that reads codes of 16 bits from a file, dispatches them
/// `repetitions` times, and prints the nanoseconds of each time and the total.
pub fn boost_msm(codes: &[u64]) -> String {
    let mut text = String::from(
        "#define BOOST_ALLOW_DEPRECATED_HEADERS\n#define BOOST_BIND_GLOBAL_PLACEHOLDERS\n#define BOOST_MPL_CFG_NO_PREPROCESSED_HEADERS\n#define BOOST_MPL_LIMIT_LIST_SIZE 50\n#define \
         BOOST_MPL_LIMIT_VECTOR_SIZE 50\n#define FUSION_MAX_VECTOR_SIZE 50\n#include <chrono>\n#include <cstdint>\n\
         #include <cstdio>\n#include <cstdlib>\n#include <vector>\n#include <boost/msm/back/state_machine.hpp>\n\
         #include <boost/msm/front/state_machine_def.hpp>\nnamespace msm = boost::msm;\nnamespace mpl = boost::mpl;\n\
         typedef std::uint64_t u64;\n",
    );
    for number in 0..codes.len() {
        let _ = writeln!(text, "struct M{number} {{ u64 message; }};");
    }
    text.push_str(
        "struct Bench_ : msm::front::state_machine_def<Bench_> {\n  typedef int no_exception_thrown;\n  typedef int \
         no_message_queue;\n  u64 sum = 0, last = 0, turns = 0, counts[64] = {};\n",
    );
    for state in ["A", "B", "C", "D"] {
        let _ = writeln!(text, "  struct {state} : msm::front::state<> {{}};");
    }
    text.push_str(
        "  typedef A initial_state;\n  void turn(M0 const& event) { turns += event.message | 1; }\n",
    );
    for number in 1..codes.len() {
        for (name, kind) in [("odd", number), ("even", number + 3)] {
            let _ = writeln!(
                text,
                "  void {name}_{number}(M{number} const& event) {{ u64 const message = event.message; {} }}",
                statement(kind, number, "")
            );
        }
    }
    let mut rows = Vec::new();
    for (state, next) in [("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")] {
        rows.push(format!("a_row<{state}, M0, {next}, &Bench_::turn>"));
    }
    for number in 1..codes.len() {
        for (state, name) in [("A", "odd"), ("C", "odd"), ("B", "even"), ("D", "even")] {
            rows.push(format!("a_irow<{state}, M{number}, &Bench_::{name}_{number}>"));
        }
    }
    let _ = write!(
        text,
        "  struct transition_table : mpl::vector<\n    {}\n  > {{}};\n  template <class F, class E> void \
         no_transition(E const&, F&, int) {{}}\n}};\ntypedef msm::back::state_machine<Bench_> Bench;\n",
        rows.join(",\n    ")
    );
    text.push_str(
        "int main(int, char** arguments) {\n  std::vector<std::uint16_t> codes(std::atol(arguments[2]));\n  std::FILE* \
         file = std::fopen(arguments[1], \"rb\");\n  if (!file || std::fread(codes.data(), 2, codes.size(), file) != \
         codes.size()) return 1;\n  for (int repetition = std::atoi(arguments[3]); repetition > 0; --repetition) {\n    \
         Bench bench;\n    bench.start();\n    auto const started = std::chrono::steady_clock::now();\n    u64 number = \
         0;\n    for (std::uint16_t const code : codes) {\n      switch (code) {\n",
    );
    for (number, code) in codes.iter().enumerate() {
        let _ = writeln!(text, "        case {code}: bench.process_event(M{number}{{number}}); break;");
    }
    text.push_str(
        "      }\n      ++number;\n    }\n    auto const ended = std::chrono::steady_clock::now();\n    u64 total = \
         bench.sum ^ bench.last ^ bench.turns;\n    for (u64 const count : bench.counts) total = (total << 1 | total >> \
         63) ^ count;\n    std::printf(\"%lld %llu\\n\", (long long)std::chrono::nanoseconds(ended - started).count(), \
         (unsigned long long)total);\n  }\n}\n",
    );
    text
}
