//! What npumem's tests share: the path to the shared data, seeded numbers, expected texts.
//!
//! Only `dev-dependencies` name this crate.
#![allow(clippy::print_stdout)]
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// The root of the workspace.
#[must_use]
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").components().collect()
}

/// A path under the shared data folder (`NPUMEM_SHARED`, default `../shared` beside the workspace), if it is there.
///
/// Where it is missing the test prints a line that `cargo xtask test` counts as skipped, and returns:
///
/// ```no_run
/// let Some(folder) = npumem_testing::shared("data/placement/minimalloc") else { return };
/// ```
#[must_use]
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("NPUMEM_SHARED").map_or_else(|| workspace_root().join("../shared"), PathBuf::from);
    let full = root.join(path);
    if full.exists() {
        Some(full)
    } else {
        skipped(&format!("{} is not there (set NPUMEM_SHARED)", full.display()));
        None
    }
}

/// Says that a test cannot run here, in the form that `cargo xtask test` counts.
pub fn skipped(why: &str) {
    println!("skipped: {why}");
}

/// The files under a folder whose name ends in `ending`, at any depth, sorted.
///
/// # Panics
/// When the folder cannot be read.
#[must_use]
pub fn files_under(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(folder) = todo.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
            if path.is_dir() {
                todo.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A folder for a test's own files, gone with the value.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty folder; `name` keeps tests of one process apart.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("npumem-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Scratch(folder)
    }

    /// A file in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compares `actual` with the text of a file beside the tests; `UPDATE_EXPECT=1` writes the file instead.
///
/// # Panics
/// When the two differ, with the first line that does.
pub fn expect_file(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        }
        std::fs::write(path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let expected = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error} (UPDATE_EXPECT=1 writes it)", path.display()));
    if expected != actual {
        let line = expected.lines().zip(actual.lines()).take_while(|(a, b)| a == b).count();
        panic!(
            "{} line {}:\n  expected {:?}\n  found    {:?}\n(UPDATE_EXPECT=1 takes what was found)\n{actual}",
            path.display(),
            line + 1,
            expected.lines().nth(line),
            actual.lines().nth(line),
        );
    }
}

/// Seeded numbers, the same on every machine (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `[0, bound)`.
    ///
    /// # Panics
    /// For a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        self.next_u64() % bound
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of the items.
    ///
    /// # Panics
    /// For an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}
