//! What tests need beside Rust: Chromium and its driver, OpenCL on the CPU, a Python environment.
//!
//! Each is looked for, installed where we may, and otherwise named with the command that installs it;
//! the tests that need it are then counted as skipped.

use crate::shell::{command, succeeds};
use npumem_testing::workspace_root;
use std::path::PathBuf;
use std::process::Stdio;

/// The Python packages of the test environment, pinned.
pub const PYTHON_PACKAGES: &[&str] = &["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.32.0"];

/// What is there for the tests that need more than Rust.
pub struct Tools {
    /// `chromium`, for the browser tests.
    pub chromium: Result<(), String>,
    /// PoCL, for OpenCL on the CPU.
    pub opencl: Result<(), String>,
    /// The interpreter of a virtual environment with [`PYTHON_PACKAGES`].
    pub python: Result<PathBuf, String>,
}

impl Tools {
    /// Looks, installs where it may, and looks again.
    pub fn install() -> Tools {
        let chromium = debian("chromium", &["chromium"], || succeeds("chromium", &["--version"]));
        let opencl = debian("OpenCL on the CPU", &["pocl-opencl-icd", "ocl-icd-libopencl1"], pocl_is_there);
        Tools { chromium, opencl, python: python() }
    }

    /// One line for each.
    pub fn print(&self) {
        let line = |name: &str, state: Option<&String>| match state {
            None => println!("{name}: ready"),
            Some(why) => println!("{name}: missing; {why}"),
        };
        line("chromium", self.chromium.as_ref().err());
        line("OpenCL on the CPU (PoCL)", self.opencl.as_ref().err());
        line("Python environment", self.python.as_ref().err());
    }
}

fn pocl_is_there() -> bool {
    let vendors = std::fs::read_dir("/etc/OpenCL/vendors")
        .map(|entries| entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("pocl")));
    vendors.unwrap_or(false)
}

/// Installs Debian packages when we are root and `apt-get` is there.
fn debian(name: &str, packages: &[&str], is_there: impl Fn() -> bool) -> Result<(), String> {
    if is_there() {
        return Ok(());
    }
    let by_hand = format!("install it with: sudo apt-get install {}", packages.join(" "));
    let may = succeeds("sh", &["-c", "test \"$(id -u)\" = 0 && command -v apt-get"]);
    if !may {
        return Err(by_hand);
    }
    println!("installing {name} ({})", packages.join(" "));
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend_from_slice(packages);
    let apt = |arguments: &[&str]| {
        let mut apt = command("apt-get", arguments);
        apt.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        apt.status().is_ok_and(|status| status.success())
    };
    if !apt(&arguments) {
        apt(&["update", "-q"]);
        apt(&arguments);
    }
    if is_there() { Ok(()) } else { Err(by_hand) }
}

/// A virtual environment under `target/`, with the pinned packages.
fn python() -> Result<PathBuf, String> {
    let folder = workspace_root().join("target/python");
    let interpreter = folder.join("bin/python");
    let stamp = folder.join("packages.txt");
    let wanted = PYTHON_PACKAGES.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(interpreter);
    }
    let by_hand = format!(
        "make it with: python3 -m venv target/python && target/python/bin/pip install {}",
        PYTHON_PACKAGES.join(" ")
    );
    println!("making a Python environment in target/python");
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    if !succeeds("python3", &["-m", "venv", &path(&folder)]) {
        return Err(format!("python3 -m venv failed; {by_hand}"));
    }
    let program = path(&interpreter);
    let mut arguments = vec!["-m", "pip", "install", "-q", "--disable-pip-version-check"];
    arguments.extend_from_slice(PYTHON_PACKAGES);
    if !succeeds(&program, &arguments) {
        return Err(format!("pip could not install the packages; {by_hand}"));
    }
    std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(interpreter)
}
