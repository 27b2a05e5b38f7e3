//! The plain machine of comparisons: unbounded DRAM, one SRAM, an array that keeps a sum while it is in the SRAM.

use super::nest::{Nest, NestOperand, NestSetup, Pool, Slots};
use super::operator::{OperandRole, Operator};
use super::search::{BUDGET, Found, LeastTraffic, SearchError, search};

/// The best schedule of an operator between DRAM and one SRAM of `capacity` bytes, for the least traffic.
///
/// Sums that are not complete are as wide as the result, buffers start at any byte, tile sizes need not divide.
///
/// # Errors
/// When no tile fits.
pub fn two_level(operator: &Operator, capacity: u64, slots: Slots) -> Result<Found, SearchError> {
    search(&Nest::new(operator, &setup(operator, capacity, slots)), &LeastTraffic, BUDGET)
}

/// The boundary between DRAM and the SRAM.
#[must_use]
pub fn setup(operator: &Operator, capacity: u64, slots: Slots) -> NestSetup {
    NestSetup {
        pools: vec![Pool { name: "sram".into(), capacity, alignment: 1 }],
        operands: operator
            .operands
            .iter()
            .map(|operand| NestOperand {
                pool: Some(0),
                near_bits: operand.element.bits(),
                row_unit: 1,
                moved: operand.role != OperandRole::Temporary,
            })
            .collect(),
        granules: vec![1; operator.dims.len()],
        largest: operator.dims.iter().map(|dim| dim.extent).collect(),
        slots,
        spill: true,
        exact: None,
        coarse: false,
    }
}
