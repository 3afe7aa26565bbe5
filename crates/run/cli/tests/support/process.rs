//! Programs that run beside a test.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use super::command;

/// A running process; killed when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it, and waits until its log has one of these texts.
    pub(crate) fn start(arguments: &[&str], texts: &[&str]) -> Self {
        let mut child = command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !texts.iter().any(|text| said.contains(text)) {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "{arguments:?} ended: {said}");
            said.push_str(&line);
        }
        // A pipe that is not read blocks its writer.
        std::thread::spawn(move || log.lines().for_each(drop));
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}
