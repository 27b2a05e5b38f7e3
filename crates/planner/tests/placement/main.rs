//! Placement against the checker, a brute-force oracle and its own laws.

mod blame;
mod exactness;
mod generate;
mod hints;
mod laws;
mod oracle;
mod random;
mod refused;
mod sequences;
