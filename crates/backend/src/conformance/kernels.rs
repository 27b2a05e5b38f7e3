//! The suite for devices that compute: every kernel against its plainest form, and the order of the two queues.

use super::ok;
use crate::backend::{BackendError, Place, RegionId};
use crate::compute::{Access, Compute, ConvolutionShape, Element, Kernel, Operand, reference};
use npumem_ir::{Bytes, SpaceId};

/// Checks the rules of [`Compute`] on a backend whose first space holds 4 MiB.
///
/// # Errors
/// The first rule that is broken, in words.
pub fn check_compute(backend: &mut dyn Compute) -> Result<(), String> {
    let page = backend.spaces()[0].page.get();
    let bytes = (4_u64 << 20).next_multiple_of(page);
    let region = ok(backend.reserve(SpaceId::new(0), Bytes(bytes)))?;
    ok(backend.commit(Place { region, offset: 0 }, Bytes(bytes)))?;
    add_and_copy(backend, region)?;
    products(backend, region)?;
    convolutions(backend, region)?;
    mixes(backend, region)?;
    reads(backend, region)?;
    refusals(backend, region, bytes)?;
    queues(backend, region)?;
    ok(backend.release(region))
}

fn floats(seed: u32, count: usize) -> Vec<f32> {
    (0..count as u64).map(|index| reference::pattern_float(seed, index)).collect()
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn put(backend: &mut dyn Compute, at: Place, values: &[f32]) -> Result<(), String> {
    ok(backend.write(at, &to_bytes(values)))
}

fn expect(backend: &mut dyn Compute, at: Place, wanted: &[u8], what: &str) -> Result<(), String> {
    let mut found = vec![0; wanted.len()];
    ok(backend.read(at, &mut found))?;
    match found.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
        None => Ok(()),
        Some(index) => Err(format!("{what}: byte {index} is {}, not {}", found[index], wanted[index])),
    }
}

fn add_and_copy(backend: &mut dyn Compute, region: RegionId) -> Result<(), String> {
    let at = |offset| Place { region, offset };
    let (left, right) = (floats(1, 1001), floats(2, 1001));
    for fold in [false, true] {
        put(backend, at(0), &left)?;
        put(backend, at(8192), &right)?;
        let sum = to_bytes(&reference::add(&left, &right, fold));
        ok(backend.launch(&Kernel::Add { left: at(0), right: at(8192), to: at(16384), count: 1001, fold }))?;
        expect(backend, at(16384), &sum, "a sum")?;
        ok(backend.launch(&Kernel::Add { left: at(0), right: at(8192), to: at(8192), count: 1001, fold }))?;
        expect(backend, at(8192), &sum, "a sum in the place of a summand")?;
    }
    for bytes in [0, 1, 15, 16, 33, 4000] {
        put(backend, at(16384), &vec![0.0; 1000])?;
        ok(backend.launch(&Kernel::Copy { from: at(1), to: at(16384), bytes }))?;
        let mut wanted = to_bytes(&left)[1..1 + bytes as usize].to_vec();
        wanted.push(0);
        expect(backend, at(16384), &wanted, "a copy by the compute unit")?;
    }
    Ok(())
}

fn products(backend: &mut dyn Compute, region: RegionId) -> Result<(), String> {
    let at = |offset| Place { region, offset };
    for (rows, columns, depth) in [(1, 1, 1), (5, 7, 3), (64, 48, 33), (3, 300, 17), (4, 8, 1), (70, 1, 9)] {
        let (left, right) = (floats(3, rows * depth), floats(4, depth * columns));
        put(backend, at(0), &left)?;
        put(backend, at(1 << 20), &right)?;
        for fold in [false, true] {
            let wanted = reference::matmul(&left, &right, rows, columns, depth, fold);
            let kernel = Kernel::Matmul {
                left: at(0),
                right: at(1 << 20),
                to: at(2 << 20),
                rows: rows as u32,
                columns: columns as u32,
                depth: depth as u32,
                fold,
            };
            ok(backend.launch(&kernel))?;
            expect(backend, at(2 << 20), &to_bytes(&wanted), &format!("a {rows}x{depth}x{columns} product"))?;
        }
    }
    Ok(())
}

fn convolutions(backend: &mut dyn Compute, region: RegionId) -> Result<(), String> {
    let at = |offset| Place { region, offset };
    let plain = ConvolutionShape {
        batch: 2,
        input: [3, 9, 11],
        output: [4, 9, 11],
        window: [3, 3],
        strides: [1, 1],
        padding: [1, 1],
        dilations: [1, 1],
        groups: 1,
    };
    let shapes = [
        plain,
        ConvolutionShape { window: [1, 1], padding: [0, 0], ..plain },
        ConvolutionShape { output: [4, 5, 6], strides: [2, 2], ..plain },
        ConvolutionShape { output: [6, 7, 5], strides: [1, 2], padding: [0, 0], groups: 3, ..plain },
        ConvolutionShape { output: [4, 7, 9], padding: [1, 1], dilations: [2, 2], ..plain },
        // A window that hangs out on both sides.
        ConvolutionShape { input: [3, 2, 2], output: [4, 4, 4], window: [5, 5], padding: [3, 3], ..plain },
    ];
    for shape in shapes {
        let [read, windows, written] = shape.counts().ok_or("a shape of the suite is wrong")?;
        let (input, weights) = (floats(5, read as usize), floats(6, windows as usize));
        put(backend, at(0), &input)?;
        put(backend, at(1 << 20), &weights)?;
        for fold in [false, true] {
            let wanted = reference::convolution(&input, &weights, &shape, fold);
            debug_assert_eq!(wanted.len() as u64, written);
            ok(backend.launch(&Kernel::Convolution {
                input: at(0),
                weights: at(1 << 20),
                to: at(2 << 20),
                shape,
                fold,
            }))?;
            expect(backend, at(2 << 20), &to_bytes(&wanted), &format!("the convolution {shape:?}"))?;
        }
    }
    Ok(())
}

fn mixes(backend: &mut dyn Compute, region: RegionId) -> Result<(), String> {
    let at = |offset| Place { region, offset };
    for (from, to) in [(Element::F32, Element::F32), (Element::Byte, Element::F32), (Element::F32, Element::Byte)] {
        for (read, count) in [(100, 100), (7, 100), (100, 7), (0, 10)] {
            let source = Operand { place: at(0), count: read, element: from };
            let target = Operand { place: at(4096), count, element: to };
            ok(backend.launch(&Kernel::Pattern { to: source, seed: 9, first: 0 }))?;
            ok(backend.launch(&Kernel::Pattern { to: target, seed: 10, first: 70_000 }))?;
            let mut source_bytes = vec![0; (read * from.bytes()) as usize];
            let mut wanted = vec![0; (count * to.bytes()) as usize];
            reference::pattern_into(&mut source_bytes, from, read, 9, 0);
            reference::pattern_into(&mut wanted, to, count, 10, 70_000);
            expect(backend, at(0), &source_bytes, "a pattern")?;
            for accumulate in [true, false] {
                ok(backend.launch(&Kernel::Mix { from: source, to: target, accumulate }))?;
                reference::mix_into((&source_bytes, from, read), (&mut wanted, to, count), accumulate);
                expect(backend, at(4096), &wanted, "a mix")?;
            }
        }
    }
    Ok(())
}

fn reads(backend: &mut dyn Compute, region: RegionId) -> Result<(), String> {
    let at = |offset| Place { region, offset };
    for count in [1_u64, 63, 64, 1000, 4096] {
        let words: Vec<u32> = (0..count as u32).map(|word| (word * 7 + 3) % count as u32).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        ok(backend.write(at(0), &bytes))?;
        for access in [Access::Stream, Access::Strided, Access::Random] {
            for (accesses, lanes) in [(0, 1), (1, 2), (count, 1), (5 * count + 3, 3)] {
                let kernel = Kernel::Read { from: at(0), words: count, access, accesses, lanes, to: at(1 << 20) };
                ok(backend.launch(&kernel))?;
                let sums =
                    (0..u64::from(lanes)).map(|lane| reference::read(&words, access, accesses, lane, u64::from(lanes)));
                let sums: Vec<u8> = sums.flat_map(u32::to_le_bytes).collect();
                expect(backend, at(1 << 20), &sums, &format!("{access:?} of {accesses} of {count} words"))?;
            }
        }
        for steps in [0, 1, 10, 5000] {
            ok(backend.write(at(1 << 20), &[0; 4]))?;
            let kernel = Kernel::Chase { table: at(0), count: count as u32, steps, to: at(1 << 20) };
            ok(backend.launch(&kernel))?;
            let end = reference::chase(&words, 0, steps).to_le_bytes();
            expect(backend, at(1 << 20), &end, &format!("a chain of {steps} loads"))?;
        }
    }
    // A chain that leaves the table ends there.
    ok(backend.write(at(0), &[200, 0, 0, 0]))?;
    ok(backend.write(at(1 << 20), &[0; 4]))?;
    ok(backend.launch(&Kernel::Chase { table: at(0), count: 1, steps: 9, to: at(1 << 20) }))?;
    expect(backend, at(1 << 20), &[200, 0, 0, 0], "a chain that leaves its table")
}

fn refusals(backend: &mut dyn Compute, region: RegionId, bytes: u64) -> Result<(), String> {
    let at = |offset| Place { region, offset };
    let add = |left, right, to, count| Kernel::Add { left, right, to, count, fold: false };
    let product = |to| Kernel::Matmul { left: at(0), right: at(4096), to, rows: 4, columns: 4, depth: 4, fold: false };
    let shape = ConvolutionShape {
        batch: 1,
        input: [4, 4, 4],
        output: [4, 4, 4],
        window: [1, 1],
        strides: [1, 1],
        padding: [0, 0],
        dilations: [1, 1],
        groups: 3,
    };
    let far = Place { region: RegionId(77), offset: 0 };
    let kernels = [
        ("a result over half an operand", add(at(0), at(4096), at(4), 4)),
        ("a product over an operand", product(at(0))),
        ("floats at an odd place", product(at(8193))),
        ("an operand past the end", add(at(bytes - 8), at(0), at(8192), 4)),
        ("more than can be counted", add(at(0), at(4096), at(8192), u64::MAX)),
        (
            "groups that do not divide",
            Kernel::Convolution { input: at(0), weights: at(4096), to: at(8192), shape, fold: false },
        ),
        ("a region that never was", add(far, at(0), at(8192), 4)),
    ];
    for (what, kernel) in kernels {
        match backend.launch(&kernel) {
            Err(BackendError::BadRange { .. } | BackendError::NoRegion(_)) => {}
            other => return Err(format!("{what} gave {other:?}")),
        }
    }
    Ok(())
}

/// A chain over both queues: each operation needs the one before, which ran on the other queue.
fn queues(backend: &mut dyn Compute, region: RegionId) -> Result<(), String> {
    const WORDS: u64 = 1 << 16;
    let at = |offset| Place { region, offset };
    let mut wanted = vec![0; WORDS as usize * 4];
    reference::pattern_into(&mut wanted, Element::F32, WORDS, 3, 0);
    ok(backend.finish())?;
    let _ = ok(backend.take_spans())?;
    let place = |slot: u64| Operand { place: at(slot * WORDS * 4), count: WORDS, element: Element::F32 };
    ok(backend.launch(&Kernel::Pattern { to: place(0), seed: 3, first: 0 }))?;
    let mut sum = wanted.clone();
    for round in 0..40_u64 {
        // The copy must wait for the kernel before it, and the kernel after it for the copy; slots come round.
        let (from, to) = (round % 4, (round + 1) % 4);
        ok(backend.copy(place(from).place, place(to).place, Bytes(WORDS * 4)))?;
        ok(backend.launch(&Kernel::Mix { from: place(from), to: place(to), accumulate: true }))?;
        let before = sum.clone();
        reference::mix_into((&before, Element::F32, WORDS), (&mut sum, Element::F32, WORDS), true);
    }
    expect(backend, place(40 % 4).place, &sum, "forty steps over both queues")?;
    let spans = ok(backend.take_spans())?;
    if spans.copies.len() != 40 || spans.kernels.len() != 41 {
        return Err(format!("{} copies and {} kernels have a time", spans.copies.len(), spans.kernels.len()));
    }
    match spans.copies.iter().chain(&spans.kernels).find(|span| span.end < span.start) {
        Some(span) => Err(format!("an operation ran in {span:?}")),
        None => Ok(()),
    }
}
