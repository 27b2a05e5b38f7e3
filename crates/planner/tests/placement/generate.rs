//! Small random problems with every feature.

use npumem_ir::problem::{Buffer, Colocation, Goal, LiveRange, Location, ReusePenalty, Separation, Space};
use npumem_ir::{Alignment, BufferId, ByteRange, Bytes, Offset, Problem, SpaceId, StepRange};

/// Splitmix64: small, seedable, the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Which features a generated problem may have.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    pub alignment: bool,
    pub holes: bool,
    pub windows: bool,
    pub pins: bool,
    pub reserved: bool,
    pub colocated: bool,
    pub apart: bool,
    pub exclusive: bool,
    pub penalties: bool,
    /// Buffers of no bytes.
    pub byteless: bool,
    pub spaces: u64,
}

impl Features {
    pub fn drawn(random: &mut Random) -> Features {
        Features {
            alignment: random.chance(30),
            holes: random.chance(30),
            windows: random.chance(25),
            pins: random.chance(20),
            reserved: random.chance(20),
            colocated: random.chance(30),
            apart: random.chance(30),
            exclusive: random.chance(25),
            penalties: random.chance(25),
            byteless: false,
            spaces: 1,
        }
    }
}

fn live(random: &mut Random, f: Features, size: u64, steps: u64) -> Vec<LiveRange> {
    let count = if f.holes { 1 + random.below(3) } else { 1 };
    let mut cuts: Vec<u64> = (0..2 * count).map(|_| random.below(steps + 1)).collect();
    cuts.sort_unstable();
    let mut out: Vec<LiveRange> = Vec::new();
    for pair in cuts.chunks(2) {
        if pair[0] < pair[1] && out.last().is_none_or(|l| l.steps.end.0 <= pair[0]) {
            let window = (f.windows && size > 0 && random.chance(40)).then(|| {
                let low = random.below(size);
                let high = low + 1 + random.below(size - low);
                ByteRange { start: Offset(low), end: Offset(high) }
            });
            out.push(LiveRange { steps: StepRange::steps(pair[0], pair[1]), window });
        }
    }
    if out.is_empty() {
        let at = random.below(steps);
        out.push(LiveRange { steps: StepRange::steps(at, at + 1), window: None });
    }
    out
}

/// A problem of up to `buffers` buffers with sizes up to `size` and `steps` steps.
pub fn problem(
    random: &mut Random,
    f: Features,
    buffers: u64,
    size: u64,
    steps: u64,
    capacity: Option<u64>,
) -> Problem {
    let mut p = Problem { name: "random".to_owned(), goals: vec![Goal::Peak], ..Problem::default() };
    for k in 0..f.spaces {
        let mut space = Space::unbounded(format!("space{k}"));
        space.capacity = capacity.map(Bytes);
        if f.alignment && random.chance(20) {
            space.alignment = Alignment::new(2).unwrap_or_default();
        }
        if f.reserved {
            let low = random.below(6);
            space.reserved.push(ByteRange { start: Offset(low), end: Offset(low + 1 + random.below(2)) });
        }
        p.spaces.push(space);
    }
    let n = 1 + random.below(buffers);
    for k in 0..n {
        let bytes = if f.byteless && random.chance(30) { 0 } else { 1 + random.below(size) };
        let mut b = Buffer::new(format!("b{k}"), Bytes(bytes), StepRange::steps(0, 1), SpaceId::new(0));
        b.live = live(random, f, bytes, steps);
        b.spaces = (0..f.spaces as usize).map(SpaceId::new).filter(|_| f.spaces == 1 || random.chance(70)).collect();
        if b.spaces.is_empty() {
            b.spaces.push(SpaceId::new(0));
        }
        if f.alignment && random.chance(40) {
            b.alignment = Alignment::new([2, 3, 4][random.below(3) as usize]).unwrap_or_default();
        }
        if f.pins && random.chance(20) {
            let a = b.alignment.get();
            b.pin = Some(Location { space: b.spaces[0], offset: Offset(random.below(6) / a * a) });
        }
        p.buffers.push(b);
    }
    let pair = |random: &mut Random| {
        let a = random.below(n);
        let b = random.below(n);
        (a != b).then(|| (BufferId::new(a as usize), BufferId::new(b as usize)))
    };
    for _ in 0..n {
        if f.colocated
            && random.chance(25)
            && let Some((buffer, base)) = pair(random)
        {
            let delta = Bytes(random.below(3));
            p.constraints.colocated.push(Colocation { buffer, base, delta });
        }
        if f.apart
            && random.chance(30)
            && let Some((first, second)) = pair(random)
        {
            p.constraints.separated.push(Separation { first, second, reasons: vec![] });
        }
        if f.exclusive
            && random.chance(30)
            && let Some((a, b)) = pair(random)
        {
            p.constraints.never_coexist.push((a, b));
        }
        if f.penalties
            && random.chance(40)
            && let Some((first, second)) = pair(random)
        {
            let cost = 1 + random.below(3);
            p.constraints.reuse_penalties.push(ReusePenalty { first, second, cost, reason: String::new() });
        }
    }
    p
}
