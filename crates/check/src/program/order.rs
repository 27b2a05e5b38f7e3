//! Order between engines. (filled in next)

use super::Options;
use super::finding::Findings;
use npumem_ir::program::{Program, Structure};

pub(super) fn check(_program: &Program, _structure: &Structure, _options: &Options, _findings: &mut Findings) {}
