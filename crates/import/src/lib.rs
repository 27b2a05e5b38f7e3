//! Foreign formats read into npumem's vocabulary
