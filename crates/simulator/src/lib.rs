//! Runs a tile program on a described device: time, traffic, values, shadow memory
