//! The rules of style that are tests: crate directions, module docs, banned words, file sizes, dead links.

use npumem_testing::{files_under, workspace_root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which of our crates each of our crates may name. A crate that is not here may not exist.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("check", &["ir"]),
    ("import", &["ir"]),
    ("planner", &["ir"]),
    ("allocator", &["ir"]),
    ("backend", &["ir", "allocator"]),
    ("simulator", &["ir", "backend"]),
    ("report", &["ir"]),
    ("capi", &["ir", "allocator", "backend"]),
    ("npumem", &["ir", "check", "import", "planner", "allocator", "backend", "simulator", "report"]),
    ("testing", &[]),
];

/// Where `unsafe` may stand.
const MAY_BE_UNSAFE: &[&str] = &["crates/backend/", "crates/capi/"];

/// Crates that may not read a clock, so that no result can depend on one.
const WITHOUT_CLOCK: &[&str] = &["ir", "check", "import", "planner", "allocator", "simulator", "report"];

/// Crates that may not touch a file or a stream: what they need is handed to them.
const WITHOUT_FILES: &[&str] = &["ir", "check", "planner", "allocator", "simulator"];

/// A file of more lines is split by what it does.
const MOST_LINES: usize = 900;

/// Runs every rule.
///
/// # Errors
/// All that was found, a line each.
pub fn run() -> Result<(), String> {
    let root = workspace_root();
    let mut found = Vec::new();
    directions(&root, &mut found);
    for path in sources(&root) {
        source(&root, &path, &mut found);
    }
    for path in pages(&root) {
        links(&root, &path, &mut found);
    }
    needed_files(&root, &mut found);
    if found.is_empty() { Ok(()) } else { Err(format!("\n  {}", found.join("\n  "))) }
}

fn sources(root: &Path) -> Vec<PathBuf> {
    ["crates", "xtask"].iter().flat_map(|folder| files_under(&root.join(folder), ".rs")).collect()
}

fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = files_under(&root.join("docs"), ".md");
    pages.extend(
        ["README.md", "README.zh.md", "CHANGELOG.md"].iter().map(|name| root.join(name)).filter(|p| p.exists()),
    );
    pages
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// The manifest of every crate names only the crates that it may (dev-dependencies are free to name what they test against).
fn directions(root: &Path, found: &mut Vec<String>) {
    let rules: BTreeMap<&str, &[&str]> = MAY_DEPEND_ON.iter().copied().collect();
    for manifest in files_under(&root.join("crates"), "Cargo.toml") {
        let name = manifest.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let Some(allowed) = rules.get(name.as_str()) else {
            found.push(format!(
                "crates/{name}: add it to the crate directions in xtask/src/tidy.rs and docs/architecture.md"
            ));
            continue;
        };
        let text = std::fs::read_to_string(&manifest).unwrap_or_default();
        let mut in_dependencies = false;
        for line in text.lines() {
            if line.starts_with('[') {
                in_dependencies = line == "[dependencies]" || line.ends_with(".dependencies]");
            }
            let Some(ours) = line.strip_prefix("npumem-").filter(|_| in_dependencies) else { continue };
            let other = ours.split(['.', ' ', '=']).next().unwrap_or_default();
            if !allowed.contains(&other) {
                found.push(format!("crates/{name} may not depend on crates/{other}"));
            }
        }
    }
}

/// The rules about one source file.
fn source(root: &Path, path: &Path, found: &mut Vec<String>) {
    let name = relative(root, path);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        found.push(format!("{name}: {lines} lines: split it by what it does (at most {MOST_LINES})"));
    }
    if !text.starts_with("//!") {
        found.push(format!("{name}:1: a file starts with `//!` and what it is for"));
    }
    if name == "xtask/src/tidy.rs" {
        return;
    }
    let krate = name.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let library = name.contains("/src/");
    let mut banned = |word: &str, why: &str, applies: bool| {
        if !applies {
            return;
        }
        for (index, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains(word) {
                found.push(format!("{name}:{}: `{word}`: {why}", index + 1));
            }
        }
    };
    banned("unsafe {", "only the backend may", !MAY_BE_UNSAFE.iter().any(|start| name.starts_with(start)));
    banned("unsafe fn", "only the backend may", !MAY_BE_UNSAFE.iter().any(|start| name.starts_with(start)));
    banned("todo!(", "no stub is called done", true);
    banned("unimplemented!(", "no stub is called done", true);
    banned("#[ignore", "a test runs, or goes to `cargo xtask soak`", true);
    let clockless = library && WITHOUT_CLOCK.contains(&krate);
    banned("Instant::now", "no clock reaches a result", clockless);
    banned("SystemTime", "no clock reaches a result", clockless);
    let fileless = library && WITHOUT_FILES.contains(&krate) && !name.ends_with("tests.rs");
    banned("std::fs", "this crate does no I/O", fileless);
    banned("File::open", "this crate does no I/O", fileless);
    banned("thread_rng", "seeds are arguments", true);
    let machine = root.parent().map(|path| path.to_string_lossy().into_owned()).filter(|path| path.len() > 2);
    if let Some(machine) = machine {
        banned(&format!("{machine}/"), "a path of this machine", true);
    }
}

/// Every relative link of a page leads to a file.
fn links(root: &Path, path: &Path, found: &mut Vec<String>) {
    let name = relative(root, path);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let folder = path.parent().unwrap_or(root);
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            let external = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !external && !folder.join(target).exists() {
                found.push(format!("{name}:{}: the link to {target} leads nowhere", index + 1));
            }
        }
    }
}

fn needed_files(root: &Path, found: &mut Vec<String>) {
    const NEEDED: &[&str] = &[
        "README.md",
        "README.zh.md",
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "Cargo.lock",
        ".ci/run",
        "docs/architecture.md",
        "docs/glossary.md",
        "docs/decisions.md",
    ];
    for name in NEEDED {
        if !root.join(name).exists() {
            found.push(format!("{name} is missing"));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        if let Err(found) = super::run() {
            panic!("{found}");
        }
    }
}
