//! Generated problems of any size, in the shapes that compilers and traces have.

use npumem_ir::problem::{Buffer, Goal, Space};
use npumem_ir::{Bytes, Problem, SpaceId, StepRange};
use npumem_testing::Random;

/// A shape: its generator, given the number of buffers.
type Shape = fn(u64) -> Problem;

/// Every shape by name.
pub const ALL: [(&str, Shape); 6] = [
    ("training", training),
    ("uniform", uniform),
    ("skewed", skewed),
    ("layers", layers),
    ("nested", nested),
    ("sliding", sliding),
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
