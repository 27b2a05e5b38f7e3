//! Generated problems of any size, in the shapes that compilers and traces have.

use npumem_ir::problem::{Buffer, Goal, LiveRange, Location, Space};
use npumem_ir::{Alignment, Bytes, Offset, Problem, SpaceId, StepRange};
use npumem_testing::Random;

/// A shape: its generator, given the number of buffers.
type Shape = fn(u64) -> Problem;

/// Every shape by name.
pub const ALL: [(&str, Shape); 8] = [
    ("training", training),
    ("uniform", uniform),
    ("skewed", skewed),
    ("layers", layers),
    ("nested", nested),
    ("sliding", sliding),
    ("two-peak", two_peak),
    ("bursts", bursts),
];

/// Kernels, where most buffers live together and each kind asks for something else.
pub const KERNELS: [(&str, Shape); 8] = [
    ("all-live", all_live),
    ("dense", dense),
    ("half-dense", half_dense),
    ("aligned", aligned),
    ("gaps", gaps),
    ("pins", pins),
    ("five-spaces", five_spaces),
    ("choice", choice),
];

fn problem(name: &str, buffers: Vec<(u64, u64, u64)>) -> Problem {
    let buffers = buffers
        .into_iter()
        .enumerate()
        .map(|(k, (start, end, size))| {
            Buffer::new(k.to_string(), Bytes(size), StepRange::steps(start, end), SpaceId::new(0))
        })
        .collect();
    Problem {
        name: name.to_owned(),
        spaces: vec![Space::unbounded("memory")],
        buffers,
        goals: vec![Goal::Peak],
        ..Problem::default()
    }
}

/// Sizes as tensors have them: a few dozen distinct ones.
fn tensor_size(random: &mut Random) -> u64 {
    (512 * (1 + random.below(8))) << random.below(10)
}

/// Activations of a forward pass live until their backward step; temporaries in between.
fn training(count: u64) -> Problem {
    let mut random = Random(1);
    let steps = count;
    let buffers = (0..count).map(|k| {
        let at = k * steps / count;
        if k % 64 == 0 && at < steps / 2 {
            (at, steps - at, tensor_size(&mut random))
        } else {
            (at, at + 1 + random.below(24), tensor_size(&mut random))
        }
    });
    problem("training", buffers.collect())
}

/// Starts, durations and sizes drawn evenly.
fn uniform(count: u64) -> Problem {
    let mut random = Random(2);
    let buffers = (0..count).map(|_| {
        let at = random.below(count);
        (at, at + 1 + random.below(1_000), 64 * (1 + random.below(4_096)))
    });
    problem("uniform", buffers.collect())
}

/// Most buffers are short and small; a few live for a tenth of the run.
fn skewed(count: u64) -> Problem {
    let mut random = Random(3);
    let buffers = (0..count).map(|_| {
        let at = random.below(count);
        let life = if random.one_in(1_000) { random.below(count / 10) } else { 1 << random.below(10) };
        (at, at + 1 + life, tensor_size(&mut random))
    });
    problem("skewed", buffers.collect())
}

/// The same layer again and again, as a compiler unrolls it.
fn layers(count: u64) -> Problem {
    let mut random = Random(4);
    let layer: Vec<(u64, u64, u64)> = (0..500)
        .map(|_| {
            let at = random.below(400);
            (at, 1 + random.below(120), tensor_size(&mut random))
        })
        .collect();
    let buffers = (0..count).map(|k| {
        let (at, life, size) = layer[(k % 500) as usize];
        let base = k / 500 * 400;
        (base + at, base + at + life, size)
    });
    problem("layers", buffers.collect())
}

/// Powers of two, each live range inside another one or apart from it, as calls and scopes make them.
fn nested(count: u64) -> Problem {
    let mut random = Random(5);
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut buffers = Vec::new();
    let mut step = 0;
    while (buffers.len() as u64) < count {
        let opens = open.len() < 4 || (open.len() < 200 && random.one_in(2));
        if opens {
            open.push((step, 4_096 << random.below(10)));
        } else if let Some((start, size)) = open.pop() {
            buffers.push((start, step + 1, size));
        }
        step += 1;
    }
    problem("nested", buffers)
}

/// A window that slides: most buffers are short, one in fifty lives up to a hundred times as long.
fn sliding(count: u64) -> Problem {
    let mut random = Random(6);
    let buffers = (0..count).map(|k| {
        let life = if random.one_in(50) { 2_000 + random.below(20_000) } else { 1 + random.below(200) };
        (k, k + life, tensor_size(&mut random))
    });
    problem("sliding", buffers.collect())
}

/// Two phases, each of which grows to its peak and ends, as the two halves of a training step do.
fn two_peak(count: u64) -> Problem {
    let mut random = Random(7);
    let buffers = (0..count).map(|_| {
        // The smaller of two draws leans to the middle of the phase.
        let half = random.below(2) * count / 2;
        let at = half + random.below(count / 4) + random.below(count / 4);
        (at, at + 1 + random.below(2_000), tensor_size(&mut random))
    });
    problem("two-peak", buffers.collect())
}

/// A thousand buffers begin within a hundred steps, then nothing for four hundred; they end one by one.
fn bursts(count: u64) -> Problem {
    let mut random = Random(8);
    let buffers = (0..count).map(|k| {
        let at = k / 1_000 * 500 + random.below(100);
        (at, at + 1 + random.below(900), tensor_size(&mut random))
    });
    problem("bursts", buffers.collect())
}

/// Starts and lives drawn evenly from so many steps.
fn drawn(name: &str, count: u64, steps: u64) -> Problem {
    let mut random = Random(9);
    let buffers = (0..count).map(|_| {
        let at = random.below(steps);
        (at, at + 1 + random.below(steps), 1 + random.below(100_000))
    });
    problem(name, buffers.collect())
}

fn all_live(count: u64) -> Problem {
    aligned_by(drawn("all-live", count, 1))
}

fn dense(count: u64) -> Problem {
    drawn("dense", count, count)
}

/// A buffer lives for a tenth of the run.
fn half_dense(count: u64) -> Problem {
    let mut random = Random(10);
    let buffers = (0..count).map(|_| {
        let at = random.below(count);
        (at, at + 1 + random.below(count / 5), tensor_size(&mut random))
    });
    problem("half-dense", buffers.collect())
}

fn aligned(count: u64) -> Problem {
    aligned_by(drawn("aligned", count, count))
}

/// Alignments of 1 to 128 bytes.
fn aligned_by(mut problem: Problem) -> Problem {
    for (k, b) in problem.buffers.iter_mut().enumerate() {
        b.alignment = Alignment::new(1 << (k % 8)).unwrap_or(Alignment::ONE);
    }
    problem
}

/// Each buffer lives twice.
fn gaps(count: u64) -> Problem {
    let mut problem = drawn("gaps", count, count);
    for b in &mut problem.buffers {
        let again = b.live[0].steps.end.get() + count / 10;
        b.live.push(LiveRange { steps: StepRange::steps(again, again + count / 10), window: None });
    }
    problem
}

/// Every tenth buffer has its offset.
fn pins(count: u64) -> Problem {
    let mut problem = drawn("pins", count, count);
    let mut at = 0;
    for b in problem.buffers.iter_mut().step_by(10) {
        b.pin = Some(Location { space: SpaceId::new(0), offset: Offset(at) });
        at += b.size.get();
    }
    problem
}

fn five_spaces(count: u64) -> Problem {
    let mut problem = drawn("five-spaces", count, count);
    problem.spaces = (0..5).map(|k| Space::unbounded(format!("memory {k}"))).collect();
    for (k, b) in problem.buffers.iter_mut().enumerate() {
        b.spaces = vec![SpaceId::new(k % 5)];
    }
    problem
}

/// A fast space that holds half of what is live at the peak, and one that holds all.
fn choice(count: u64) -> Problem {
    let mut problem = drawn("choice", count, count);
    let fast = Space { capacity: Some(Bytes(count * 12_500)), ..Space::unbounded("fast") };
    problem.spaces = vec![fast, Space::unbounded("slow")];
    for b in &mut problem.buffers {
        b.spaces = vec![SpaceId::new(0), SpaceId::new(1)];
    }
    problem
}
