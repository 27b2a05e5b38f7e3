//! `cargo xtask models`: writes the example models that ship with the repository.

use npumem_import::onnx::write::models::{Decoder, decoder, small_cnn};
use npumem_testing::workspace_root;

/// The models of `testdata/models/`, by file name.
#[must_use]
pub fn examples() -> Vec<(&'static str, Vec<u8>)> {
    vec![("example-cnn.onnx", small_cnn()), ("example-decoder.onnx", decoder(Decoder::SMALL))]
}

/// Writes them.
///
/// # Errors
/// When a file cannot be written.
pub fn run() -> Result<(), String> {
    for (name, bytes) in examples() {
        let path = workspace_root().join("testdata/models").join(name);
        std::fs::write(&path, &bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{name}: {} bytes", bytes.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_shipped_examples_are_what_the_generator_writes() {
        for (name, bytes) in super::examples() {
            let path = npumem_testing::workspace_root().join("testdata/models").join(name);
            assert!(std::fs::read(&path).unwrap() == bytes, "{name} is stale: run `cargo xtask models`");
        }
    }
}
