//! The main job as a whole process: `npumem plan` on a model, time and peak memory.

/// Measures and returns the line to record.
///
/// # Errors
/// When the program cannot be built or run.
pub fn run() -> Result<serde_json::Value, String> {
    Err("joins with the command line".to_owned())
}
