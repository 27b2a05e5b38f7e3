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

/// Prints to standard output. A reader that went away (`| head`) ends the program quietly; a full disk is an error.
pub fn print(text: &str) {
    print_bytes(text.as_bytes());
}

fn print_bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            complain(&format!("npumem: standard output: {error}"));
            std::process::exit(2);
        }
    }
}

/// Prints to standard error, where a failure to print has nowhere to be told.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether a file could be written there: what would fail after minutes of work is refused before it.
pub fn check_writable(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.as_os_str() != "-" && !folder.is_dir() {
        return Err(format!("{}: there is no folder {}", path.display(), folder.display()));
    }
    if path.is_dir() {
        return Err(format!("{}: is a folder; name a file in it", path.display()));
    }
    Ok(())
}

/// An option and the file that it names.
pub type Named<'a> = (&'a str, Option<&'a Path>);

/// Refuses one file for two purposes: an output would replace what was read, or another output.
pub fn check_distinct(read: &[Named<'_>], written: &[Named<'_>]) -> Result<(), String> {
    let same = |path: &Path| -> Option<PathBuf> {
        // Pipes and devices may be named twice; a file that is not there yet is told by its folder.
        match std::fs::canonicalize(path) {
            Ok(found) => found.is_file().then_some(found),
            Err(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                Some(std::fs::canonicalize(folder).ok()?.join(path.file_name()?))
            }
        }
    };
    let real = |named: &Named<'_>| named.1.filter(|path| path.as_os_str() != "-").and_then(same);
    let mut seen: Vec<(&str, PathBuf)> = read.iter().filter_map(|named| Some((named.0, real(named)?))).collect();
    for named in written {
        let Some(path) = real(named) else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, before)| *before == path) {
            return Err(format!("{}: is named by {other} and by {}; name two files", path.display(), named.0));
        }
        seen.push((named.0, path));
    }
    Ok(())
}

/// Writes a file whole or not at all: into a file beside it, which then takes its name. `-` is standard output.
///
/// A link is followed to its file; a pipe or a device is written to, never replaced.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), String> {
    if path.as_os_str() == "-" {
        print_bytes(content);
        return Ok(());
    }
    let failed = |error: io::Error| format!("{}: cannot be written: {error}", path.display());
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| followed(path));
    if std::fs::metadata(&target).is_ok_and(|found| found.is_file() && found.permissions().readonly()) {
        return Err(format!("{}: is write-protected; name another file, or make it writable", path.display()));
    }
    if std::fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
        let mut file = std::fs::OpenOptions::new().write(true).open(&target).map_err(failed)?;
        return file.write_all(content).map_err(failed);
    }
    let beside = beside(&target);
    let written = std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, &target));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}

/// Where a link to a file that is not there yet leads.
fn followed(path: &Path) -> PathBuf {
    let mut at = path.to_path_buf();
    for _ in 0..32 {
        let Ok(next) = std::fs::read_link(&at) else { break };
        at = at.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    at
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}
