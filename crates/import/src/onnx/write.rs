//! Writes ONNX files.
