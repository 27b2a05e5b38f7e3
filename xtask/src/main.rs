//! One command for each chore.
fn main() {}
