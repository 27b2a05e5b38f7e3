//! The model that `npumem plan` plans when no input is named: a small convolutional network of our own.
//!
//! `cargo xtask models` writes it, and a decoder block beside it, to `testdata/models/`.

/// What the example is called.
pub const NAME: &str = "example-cnn.onnx";

/// The file.
#[must_use]
pub fn model() -> Vec<u8> {
    include_bytes!("../../../testdata/models/example-cnn.onnx").to_vec()
}
