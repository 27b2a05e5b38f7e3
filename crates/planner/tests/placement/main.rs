//! Placement against the checker, a brute-force oracle and its own laws.

mod generate;
mod laws;
mod oracle;
mod random;
