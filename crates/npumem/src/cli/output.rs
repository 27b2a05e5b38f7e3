//! Where answers go: standard output that may close at any time, and files that are whole or absent.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether standard output gets colours.
    pub fn on_stdout(self) -> bool {
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }
}

/// The columns of the terminal, or 100 where there is none.
pub fn width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    asked.filter(|columns| (40..=400).contains(columns)).unwrap_or(100)
}

/// Prints to standard output; a reader that went away (`| head`) ends the program quietly.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let outcome = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if outcome.is_err() {
        std::process::exit(0);
    }
}

/// Prints to standard error, where a failure to print has nowhere to be told.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes a file whole or not at all: into a file beside it, which then takes its name. `-` is standard output.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), String> {
    if path.as_os_str() == "-" {
        let mut out = io::stdout().lock();
        if out.write_all(content).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
        return Ok(());
    }
    let beside = beside(path);
    let written = std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        format!("{}: cannot be written: {error}", path.display())
    })
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}
