//! Run-time allocators over offsets, with one conformance suite
