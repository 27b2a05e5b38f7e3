//! Very large problems: what lives always goes to the floor, the rest is swept; where a sweep ends high, windows try too.

use super::board::Fit;
use super::bounds;
use super::counters::Meter;
use super::floor::{self, Pass};
use super::greedy::{self, FanResult, Keys, Most, Order};
use super::instance::Instance;
use super::sweep::Ground;
use super::windows;

/// Number of items from which on a problem is very large.
pub(crate) const FEWEST: usize = 120_000;

/// Work of one sweep, and of one over hills, which ends near its ceiling where windows do not.
const SWEEP: (u64, u64) = (1_200_000_000, 3_500_000_000);

/// Work of the first fit that an answer is held against.
const FLOOR: u64 = 2_000_000_000;

/// How many hot steps are looked at before all of it.
const PARTS: usize = 3;

/// Places a very large problem, never above a first fit by size where that can be told; `Err` names a pinned item that clashes.
pub(crate) fn place(instance: &Instance, keys: &Keys, target: i64, meter: &mut Meter) -> Result<FanResult, u32> {
    let found = spread(instance, keys, target, meter)?;
    if found.peak <= target || meter.is_interrupted() || !floor::can_tell(instance) {
        return Ok(found);
    }
    let order = keys.sorted(instance, Order::Size);
    let mut fits = |order: &[u32]| {
        let (pass, work) = floor::first_fit(instance, order, found.peak - 1, FLOOR);
        meter.spend(work + order.len() as u64);
        pass
    };
    // Where the load is largest first fit most likely breaks the ceiling, and that shows without the rest.
    for slot in hottest(instance) {
        if fits(&floor::part_at(instance, &order, slot)) == Pass::Reaches {
            return Ok(found);
        }
    }
    let pass = fits(&order);
    Ok(match pass {
        Pass::Placed(offsets) => FanResult {
            peak: instance.peak(&offsets),
            offsets,
            method: greedy::method_name((Order::Size, Fit::First)),
            winner: (Order::Size, Fit::First),
            passes: found.passes + 1,
        },
        Pass::Reaches | Pass::Unknown => found,
    })
}

/// Slots of largest load, the first of them the largest of all, none within a few lives of another.
fn hottest(instance: &Instance) -> Vec<i32> {
    let mut loads = bounds::loads(instance);
    let lives: i64 = instance.items.iter().map(|i| i64::from(i.end - i.start)).sum();
    let far = (4 * lives / instance.items.len().max(1) as i64) as usize;
    let mut out = Vec::new();
    while let Some(at) = (0..loads.len()).max_by_key(|&t| (loads[t], std::cmp::Reverse(t)))
        && loads[at] > 0
        && out.len() < PARTS
    {
        out.push(at as i32);
        let end = (at + far + 1).min(loads.len());
        loads[at.saturating_sub(far)..end].fill(0);
    }
    out
}

/// What lives always at the floor, the rest by sweeps and windows.
fn spread(instance: &Instance, keys: &Keys, target: i64, meter: &mut Meter) -> Result<FanResult, u32> {
    let always = always(instance, target);
    if always.iter().filter(|&&a| a).count() < instance.items.len() / 64 {
        return changing(instance, keys, target, meter);
    }
    let mut stacked: Vec<usize> = (0..always.len()).filter(|&i| always[i]).collect();
    // In the order of their alignment they leave the least padding.
    stacked.sort_by_key(|&i| (-instance.items[i].align, i));
    let mut offsets = vec![0; instance.items.len()];
    let mut base = 0;
    for &i in &stacked {
        offsets[i] = instance.items[i].lowest_from(base);
        base = offsets[i] + instance.items[i].height;
    }
    meter.spend(64 * stacked.len() as u64);
    let rest: Vec<usize> = (0..instance.items.len()).filter(|&i| !always[i]).collect();
    let above = Instance {
        items: rest.iter().map(|&i| instance.items[i].clone()).collect(),
        times: instance.times.clone(),
        reserved: vec![(0, base)],
        penalties: Vec::new(),
        ..*instance
    };
    let found = if rest.len() < FEWEST {
        greedy::fan(&above, &Keys::new(&above), target, Most::Work(1_000_000_000), meter)?
    } else {
        changing(&above, &Keys::new(&above), target, meter)?
    };
    for (&i, at) in rest.iter().zip(found.offsets) {
        offsets[i] = at;
    }
    Ok(FanResult { peak: instance.peak(&offsets), offsets, ..found })
}

/// Which items may be taken to live always: those that do for nearly all the time, if that raises no bound.
fn always(instance: &Instance, target: i64) -> Vec<bool> {
    let free = instance.plain && instance.reserved.is_empty() && instance.items.iter().all(|i| i.pin.is_none());
    let slots = instance.slots() as i64;
    let of = |share: i64| -> Vec<bool> {
        instance.items.iter().map(|i| free && 100 * i64::from(i.end - i.start) >= share * slots).collect()
    };
    let nearly = of(90);
    let mut change = vec![0i64; slots as usize + 1];
    for (item, _) in instance.items.iter().zip(&nearly).filter(|(_, n)| **n) {
        change[0] += item.height;
        change[item.start as usize] -= item.height;
        change[item.end as usize] += item.height;
    }
    let mut more = 0;
    let loads = bounds::loads(instance).into_iter().zip(change);
    let raised = loads.map(|(load, c)| {
        more += c;
        load + more
    });
    if raised.max().unwrap_or(0) <= target { nearly } else { of(100) }
}

/// What does not live always.
fn changing(instance: &Instance, keys: &Keys, target: i64, meter: &mut Meter) -> Result<FanResult, u32> {
    let above = |step: i64| target + (i128::from(target) * i128::from(step) / 1024) as i64;
    let ground = Ground::new(instance, keys.urgency());
    let limit = if ground.has_hills() { SWEEP.1 } else { SWEEP.0 };
    let swept = ground.sweep(above(8), limit, meter)?;
    // Near enough that windows, which are dearer, are hardly worth their work; below that they may reach the bound itself.
    if let Some(swept) = &swept
        && (swept.left > 0 || ground.has_hills())
        && swept.peak <= above(25)
    {
        return Ok(result(swept.peak, swept.offsets.clone()));
    }
    let found = windows::place(instance, keys, target, meter)?;
    Ok(match swept {
        Some(swept) if swept.peak < found.peak => result(swept.peak, swept.offsets),
        _ => found,
    })
}

fn result(peak: i64, offsets: Vec<i64>) -> FanResult {
    FanResult { peak, offsets, method: "sweep".to_owned(), winner: (Order::Start, Fit::Touch), passes: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::bounds::lower_bound;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    #[test]
    fn what_lives_always_goes_to_the_floor_without_a_search() {
        let mut random = Random(7);
        let count = 60_000;
        let buffers = (0..count).map(|k| {
            let size = 64 * (1 + random.below(512));
            let start = if k % 2 == 0 { k % 9 } else { k + 9 };
            let end = if k % 2 == 0 { count } else { k + 10 + random.below(200) };
            let alignment = 1 << (6 + random.below(3));
            SpaceBuffer { size, alignment, live: vec![Live { start, end, low: 0, high: size }], pin: None, hint: None }
        });
        let raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        let instance = Instance::new(&raw).unwrap();
        let target = lower_bound(&instance).value;
        let mut meter = Meter::new(u64::MAX, None);
        let found = spread(&instance, &Keys::new(&instance), target, &mut meter).unwrap();
        assert_eq!(found.peak, instance.peak(&found.offsets));
        // A scan over the others for each of them would be 900 million.
        assert!(meter.spent() < 1_300_000_000, "{}", meter.spent());
        assert!(100 * found.peak <= 101 * target, "{} for {target}", found.peak);
        let mut always: Vec<(i64, i64)> =
            (0..instance.items.len()).step_by(2).map(|i| (found.offsets[i], instance.items[i].height)).collect();
        always.sort_unstable();
        assert!(always.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        let floor = always.last().map_or(0, |l| l.0 + l.1);
        for a in (1..instance.items.len()).step_by(2) {
            let item = &instance.items[a];
            assert!(found.offsets[a] >= floor && item.lowest_from(found.offsets[a]) == found.offsets[a]);
            for b in (a + 2..(a + 402).min(instance.items.len())).step_by(2) {
                assert!(!instance.clash(a, found.offsets[a], b, found.offsets[b]), "items {a} and {b}");
            }
        }
    }

    /// Sizes that halve and lives that nest, which first fit by size packs without a hole, beside what sweeps are made for.
    #[test]
    fn a_very_large_answer_is_never_above_first_fit() {
        let mut random = Random(19);
        type Shape = fn(&mut Random, u64) -> (u64, u64, u64);
        let shapes: [Shape; 2] = [
            |random, k| (8 * (k / 8), 1 + random.below(40), 64 << random.below(8)),
            |random, k| {
                let life = 1 << random.below(7);
                (k / life * life, life, 8 * life)
            },
        ];
        for shape in shapes {
            let buffers = (0..FEWEST as u64).map(|k| {
                let (start, life, size) = shape(&mut random, k);
                let live = vec![Live { start, end: start + life, low: 0, high: size }];
                SpaceBuffer { size, alignment: 1, live, pin: None, hint: None }
            });
            let raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
            let instance = Instance::new(&raw).unwrap();
            let keys = Keys::new(&instance);
            let target = lower_bound(&instance).value;
            let mut meter = Meter::new(u64::MAX, None);
            let found = place(&instance, &keys, target, &mut meter).unwrap();
            let order = keys.sorted(&instance, Order::Size);
            let Pass::Placed(offsets) = floor::first_fit(&instance, &order, i64::MAX / 4, u64::MAX).0 else {
                panic!("no ceiling, no limit")
            };
            assert!(found.peak <= instance.peak(&offsets), "{} > {}", found.peak, instance.peak(&offsets));
        }
    }
}
