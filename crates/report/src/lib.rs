//! Analysis of plans and traces, as text, JSON and pictures.
//!
//! [`PlanReport::build`] turns a problem and its plan into one document;
//! [`text::render`] prints it for a terminal, and its JSON form is what `npumem plan --json` writes.
//! The pictures hold no number that the document does not carry.
#![forbid(unsafe_code)]

pub mod device;
pub mod html;
pub mod occupancy;
pub mod perfetto;
pub mod plan_report;
pub mod run_report;
pub mod text;

pub use plan_report::{Extras, PlanReport};
pub use run_report::RunReport;
