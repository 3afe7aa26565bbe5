//! Private network interfaces.

use std::process::Command;

use super::{root, stderr};

/// Whether nothing may be skipped.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// A network namespace with a veth pair, `in` and `out`, for one test. It is removed when the test ends.
pub(crate) struct Namespace(String);

impl Namespace {
    /// `None`, and a word about it, where that is not permitted; any other failure is one of the test.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let name = format!("tapeworks-{}-{test}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        if !made.as_ref().is_ok_and(|output| output.status.success()) {
            let is_denied = made.as_ref().is_ok_and(|output| {
                let errors = stderr(output);
                errors.contains("not permitted") || errors.contains("ermission denied")
            });
            assert!(is_denied || !is_ci(), "no network namespace: {made:?}");
            eprintln!("SKIPPED: no network namespace ({made:?}): network interfaces are not tested");
            return None;
        }
        let namespace = Self(name);
        // No frames but ours: where there is no such file, there is no IPv6.
        namespace
            .command("sh")
            .args(["-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; :"])
            .output()
            .unwrap();
        for arguments in
            ["link add in type veth peer name out", "link set in up", "link set out up", "link set lo up"]
        {
            namespace.ip(arguments);
        }
        Some(namespace)
    }

    pub(crate) fn ip(&self, arguments: &str) {
        let output = self.command("ip").args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// A program inside of it.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).current_dir(root());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _left_behind_at_worst = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}
