//! Items by time: which of them are live in a stretch, without a look at all the others.

use super::instance::Instance;

/// Items that are skipped at once.
const STRETCH: usize = 256;

/// Items in the order of their start, with the latest end in each stretch of them.
pub(crate) struct Timeline {
    by_start: Vec<u32>,
    starts: Vec<i32>,
    latest: Vec<i32>,
}

impl Timeline {
    pub fn new(instance: &Instance) -> Timeline {
        let items = &instance.items;
        let mut by_start: Vec<u32> = (0..items.len() as u32).collect();
        by_start.sort_unstable_by_key(|&i| (items[i as usize].start, i));
        let starts = by_start.iter().map(|&i| items[i as usize].start).collect();
        let ends = |stretch: &[u32]| stretch.iter().map(|&i| items[i as usize].end).max().unwrap_or(0);
        let latest = by_start.chunks(STRETCH).map(ends).collect();
        Timeline { by_start, starts, latest }
    }

    /// Items that are live at some slot of `[start, end)`, by start.
    pub fn live(&self, instance: &Instance, start: i32, end: i32) -> Vec<u32> {
        let before = self.starts.partition_point(|&s| s < end);
        let mut out = Vec::new();
        for (k, stretch) in self.by_start[..before].chunks(STRETCH).enumerate() {
            if self.latest[k] > start {
                out.extend(stretch.iter().copied().filter(|&i| instance.items[i as usize].end > start));
            }
        }
        out
    }

    /// Items whose whole life lies in `[start, end)`, by start.
    pub fn within(&self, instance: &Instance, start: i32, end: i32) -> Vec<u32> {
        let (from, to) = (self.starts.partition_point(|&s| s < start), self.starts.partition_point(|&s| s < end));
        self.by_start[from..to.max(from)].iter().copied().filter(|&i| instance.items[i as usize].end <= end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    #[test]
    fn live_and_within_agree_with_a_look_at_every_item() {
        let mut random = Random(4);
        let buffers = (0..2_000).map(|_| {
            let start = random.below(3_000);
            let live = vec![Live { start, end: start + 1 + random.below(40), low: 0, high: 8 }];
            SpaceBuffer { size: 8, alignment: 1, live, pin: None, hint: None }
        });
        let raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        let instance = Instance::new(&raw).unwrap();
        let timeline = Timeline::new(&instance);
        for _ in 0..200 {
            let start = random.below(2_500) as i32;
            let end = start + 1 + random.below(300) as i32;
            let of = |wanted: &dyn Fn(i32, i32) -> bool| {
                let items = instance.items.iter().enumerate();
                items.filter(|(_, i)| wanted(i.start, i.end)).map(|(k, _)| k as u32).collect::<Vec<_>>()
            };
            let sorted = |mut items: Vec<u32>| {
                items.sort_unstable();
                items
            };
            assert_eq!(sorted(timeline.live(&instance, start, end)), of(&|s, e| s < end && start < e));
            assert_eq!(sorted(timeline.within(&instance, start, end)), of(&|s, e| start <= s && e <= end));
        }
    }
}
