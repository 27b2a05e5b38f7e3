//! Running other programs: with their output shown, or read.

use npumem_testing::workspace_root;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A command in the workspace's root.
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(workspace_root()).stdin(Stdio::null());
    command
}

/// `cargo` as it runs us.
pub fn cargo(arguments: &[&str]) -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()), arguments)
}

/// Runs a command with its output shown.
///
/// # Errors
/// When it cannot start or exits with anything but 0.
pub fn run(mut command: Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let status = command.status().map_err(|error| format!("{shown} did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown} ended with {status}")) }
}

/// Runs a command and hands each line of its standard output to `line`; its errors are shown.
///
/// # Errors
/// When it cannot start or exits with anything but 0.
pub fn each_line(mut command: Command, mut line: impl FnMut(&str)) -> Result<(), String> {
    let shown = format!("{command:?}");
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("{shown} did not start: {error}"))?;
    if let Some(output) = child.stdout.take() {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).unwrap_or(0) > 0 {
            line(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
            bytes.clear();
        }
    }
    let status = child.wait().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown} ended with {status}")) }
}

/// Whether a command can be run and exits with 0, its output thrown away.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = command(program, arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
