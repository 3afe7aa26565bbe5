//! The terminal: size, colours, the progress bar.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tapeworks_analysis::paint::Paint;

use crate::interrupt;

/// Width of text if there is no terminal, in columns.
const DEFAULT_WIDTH: usize = 120;

/// Height of a terminal that does not report it, in rows.
const DEFAULT_HEIGHT: usize = 24;

/// Work shorter than this shows no progress bar.
pub(crate) const QUIET_TIME: Duration = Duration::from_secs(1);

/// Prints one line on standard error.
pub(crate) fn complain(text: &str) {
    use std::io::Write as _;
    // If standard error is closed, the line is lost.
    let _ = writeln!(std::io::stderr(), "tapeworks: {text}");
}

/// Returns the width of standard output in columns.
pub(crate) fn width() -> usize {
    if std::io::stdout().is_terminal()
        && let Some((terminal_size::Width(width), _)) = terminal_size::terminal_size()
    {
        return usize::from(width).max(40);
    }
    DEFAULT_WIDTH
}

/// Returns the columns and rows of standard error.
pub(crate) fn stderr_size() -> (usize, usize) {
    terminal_size::terminal_size_of(std::io::stderr())
        .map_or((DEFAULT_WIDTH, DEFAULT_HEIGHT), |(width, height)| {
            (usize::from(width.0), usize::from(height.0))
        })
}

/// Returns whether the terminal declares that it shows plain text only.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Returns whether standard error may be coloured.
pub(crate) fn is_coloured_stderr() -> bool {
    is_coloured(&std::io::stderr())
}

/// Returns the colours for standard output.
pub(crate) fn paint() -> Paint {
    Paint { is_coloured: is_coloured(&std::io::stdout()) }
}

/// Returns whether a stream may be coloured: a terminal, or any stream with `CLICOLOR_FORCE` (<https://bixense.com/clicolors>),
/// unless the environment forbids colours (<https://no-color.org>).
fn is_coloured(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let is_forced = set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    (stream.is_terminal() || is_forced) && set("NO_COLOR").is_none() && !is_dumb()
}

/// A progress bar on standard error, shown only on a terminal and only if the work takes longer than a second.
pub(crate) struct Bar {
    what: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
    is_terminal: bool,
    /// Whether the work is counted in bytes, instead of messages.
    has_bytes: bool,
}

impl Bar {
    /// Creates a bar for work named `what`.
    pub(crate) fn new(what: &'static str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { what, started: Instant::now(), bar: None, is_terminal, has_bytes: true }
    }

    /// Creates a bar for work that is counted only in messages.
    pub(crate) fn of_messages(what: &'static str) -> Self {
        let mut bar = Self::new(what);
        bar.has_bytes = false;
        bar
    }

    /// Shows the progress in bytes or messages, with `total` and the messages so far if they are known. Breaks if the user
    /// requested a stop.
    pub(crate) fn show(&mut self, done: u64, total: Option<u64>, messages: Option<u64>) -> ControlFlow<()> {
        if interrupt::is_requested() {
            return ControlFlow::Break(());
        }
        if self.is_terminal && (self.bar.is_some() || self.started.elapsed() >= QUIET_TIME) {
            let bar = self.bar.get_or_insert_with(|| bar(self.what, total, self.has_bytes));
            bar.set_position(done);
            if let Some(messages) = messages {
                let rate = messages as f64 / self.started.elapsed().as_secs_f64().max(1e-9) / 1e6;
                bar.set_message(format!("{} messages, {rate:.2} M/s", HumanCount(messages)));
            }
        }
        ControlFlow::Continue(())
    }

    /// Shows that `done` of `of` steps are done, and names the next step. The caller must check for a stop.
    pub(crate) fn step(&mut self, done: u64, of: u64, next: &str) {
        if self.is_terminal && (self.bar.is_some() || self.started.elapsed() >= QUIET_TIME) {
            let bar = self.bar.get_or_insert_with(|| bar(self.what, Some(of), false));
            bar.set_position(done);
            bar.set_message(next.to_owned());
        }
    }

    /// Removes the bar from the screen.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar(what: &'static str, total: Option<u64>, has_bytes: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    let template = match total {
        Some(_) if !has_bytes => "{what} [{bar:30}] {percent:>3} %  {eta} left  {msg}",
        None if !has_bytes => "{what} {spinner} {elapsed}  {msg}",
        Some(_) => "{what} [{bar:30}] {percent:>3} %  {bytes} of {total_bytes}  {eta} left  {msg}",
        None => "{what} {spinner} {bytes}  {elapsed}  {msg}",
    };
    let name = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _shown_without_its_name_at_worst = out.write_str(what);
    };
    // The templates above are valid. Without a style the bar has the library's default form.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("what", name).progress_chars("=> "));
    }
    bar
}
