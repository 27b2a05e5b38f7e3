//! Sums that a product goes on with, and buffers that no space holds.

#![allow(clippy::unwrap_used)]

use npumem::check_program::{Kind, Severity, Standing};
use npumem::ir::program::{Program, text};
use npumem::ir::{Bytes, Device, Offset};
use npumem::kernel::{self, KernelError, KernelPlan};
use npumem::plan::Fit;
use npumem::{PlacementOptions, catalogue};

fn device(name: &str) -> Device {
    catalogue::device(name).unwrap()
}

fn plan(program: &Program) -> Result<KernelPlan, KernelError> {
    kernel::plan(program, &device("ascend-910b2"), &PlacementOptions::fast(), &[], None)
}

/// `u = o + a b`, then a store of `u`; `last` comes behind it.
fn sums(at: [&str; 2], name: &str, last: &str) -> Program {
    let source = format!(
        "npumem-program 1\nprogram sums\nbuffer a in left bytes 8192 align 512 at 0 : f16\n\
         buffer b in right bytes 8192 align 512 at 0 : f16\nbuffer o in acc bytes 16384 align 512{} : f32\n\
         buffer u in acc bytes 16384 align 512{} : f32\nexternal y in gm bytes 16384 : f32\nsteps\n\
         fill @mte1 cube writes a[0]:f16\nfill @mte1 cube writes b[0]:f16\n\
         tmatmul @m cube reads a[0]:f16, b[0]:f16 writes o[0]:f32\n\
         {name} @m cube reads o[0]:f32, a[0]:f16, b[0]:f16 writes u[0]:f32\n\
         tstore @fix cube reads u[0]:f32 writes y[0]:f32\n{last}",
        at[0], at[1]
    );
    text::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn judged(program: &Program, on: &str) -> (Standing, Vec<Severity>) {
    let verdict = kernel::check(program, &device(on), false).unwrap();
    let told = verdict.findings.iter().filter(|finding| matches!(finding.kind, Kind::OtherSum { .. }));
    (verdict.standing, told.map(|finding| finding.severity).collect())
}

/// The 910B adds to what lies at the output and never reads the input.
#[test]
fn a_sum_that_moves_is_unsound() {
    for apart in [" at 16384", " at 1024"] {
        let program = sums([" at 0", apart], "tmatmul.acc", "");
        let (standing, told) = judged(&program, "ascend-910b2");
        assert_eq!((standing, told), (Standing::Unsound, vec![Severity::Fault]), "{apart}");
    }
    let one = sums([" at 0", " at 0"], "tmatmul.acc", "");
    assert_eq!(judged(&one, "ascend-910b2").1, []);
    let vector = sums([" at 0", " at 16384"], "tgemv.acc", "");
    assert_eq!(judged(&vector, "ascend-910b2").1, [Severity::Fault]);
    let elsewhere = sums([" at 0", " at 16384"], "tmatmul.acc", "");
    assert_eq!(judged(&elsewhere, "ascend-950").1, [Severity::Doubt], "nobody says for this device");
    let afresh = sums([" at 0", " at 16384"], "tmatmul", "");
    assert_eq!(judged(&afresh, "ascend-910b2").1, [], "it does not go on with a sum");
}

#[test]
fn a_sum_is_planned_in_one_place_or_not_at_all() {
    let planned = plan(&sums(["", ""], "tmatmul.acc", "")).unwrap();
    assert_eq!(planned.planned.fit, Fit::Yes);
    let places: Vec<Offset> = planned
        .addresses
        .iter()
        .filter(|(id, _)| planned.program.buffer(**id).space == "acc")
        .map(|(_, offset)| *offset)
        .collect();
    assert_eq!(places, [Offset(0), Offset(0)]);
    assert_eq!(judged(&planned.program, "ascend-910b2").1, []);
    // The old sum is stored behind: one place cannot hold both.
    let lives = plan(&sums(["", ""], "tmatmul.acc", "tstore @fix cube reads o[0]:f32 writes y[0]:f32\n"));
    let Err(KernelError::Refused { reason, .. }) = lives else { panic!("{lives:?}") };
    assert!(reason.starts_with("statement 3 'tmatmul.acc'") && reason.contains("the sum in 'o'"), "{reason}");
}

/// Needed bytes and the capacity of a plan that does not fit.
fn short(source: &str) -> (Bytes, Option<Bytes>) {
    let planned = plan(&text::parse(source).unwrap()).unwrap().planned;
    assert_eq!((planned.fit, planned.report.fits), (Fit::No, false));
    let why = planned.report.infeasible.unwrap();
    (why.needed, why.capacity)
}

#[test]
fn a_tile_that_nothing_touches_must_fit_too() {
    let kernel = |bytes: u64| {
        format!(
            "npumem-program 1\nprogram dead\nbuffer p in vec bytes 8192 align 32 : u8\n\
             buffer dead in vec bytes {bytes} align 32 : u8\nsteps\nw @v vector writes p[0]:u8\nr @v vector reads p[0]:u8\n"
        )
    };
    assert_eq!(short(&kernel(262_144)), (Bytes(262_144), Some(Bytes(196_608))));
    assert_eq!(plan(&text::parse(&kernel(196_608)).unwrap()).unwrap().planned.fit, Fit::Yes, "it fits exactly");
}

#[test]
fn a_workspace_past_the_end_does_not_fit() {
    let kernel = |bytes: u64| {
        format!(
            "npumem-program 1\nprogram own\nbuffer x in vec bytes 256 align 32 : u8\n\
             buffer own in vec bytes {bytes} at 188416 : u8 workspace fixed\nsteps\nw @v vector writes x[0]:u8\n\
             spread @v vector reads x[0]:u8 writes x[0]:u8, own[0]:u8 set scratch = \"last write\"\nr @v vector reads x[0]:u8\n"
        )
    };
    assert_eq!(short(&kernel(188_672)), (Bytes(377_088), Some(Bytes(196_608))));
    assert_eq!(short(&kernel(8193)), (Bytes(196_609), Some(Bytes(196_608))));
    assert_eq!(plan(&text::parse(&kernel(8192)).unwrap()).unwrap().planned.fit, Fit::Yes, "up to the end");
}
