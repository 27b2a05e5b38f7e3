//! Who wrote each byte last, as runs of bytes.

use super::Writer;
use std::collections::BTreeMap;

/// The writer of bytes that one of several may have written.
pub(super) const ANYBODY: u32 = u32::MAX;

/// Bytes of one place: start -> end and writer; what is in no run was never written.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    runs: BTreeMap<u64, (u64, u32)>,
}

impl Cells {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// Makes `[start, end)` the bytes of a writer.
    pub fn write(&mut self, start: u64, end: u64, writer: u32) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        let inside: Vec<u64> = self.runs.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            self.runs.remove(&at);
        }
        // Side by side with bytes of the same writer, they are one run.
        let mut from = start;
        if let Some((&before, &(until, who))) = self.runs.range(..start).next_back()
            && until == start
            && who == writer
        {
            from = before;
        }
        self.runs.insert(from, (end, writer));
    }

    /// A write of some of `[start, end)`: holes become the writer's, what others wrote becomes [`ANYBODY`]'s.
    pub fn write_some(&mut self, start: u64, end: u64, writer: u32, own: impl Fn(u32) -> bool) {
        let mut changed = Vec::new();
        self.each(start, end, |from, to, found| match found {
            None => changed.push((from, to, writer)),
            Some(before) if before == ANYBODY || own(before) => {}
            Some(_) => changed.push((from, to, ANYBODY)),
        });
        for (from, to, who) in changed {
            self.write(from, to, who);
        }
    }

    /// Every writer of these bytes gets its number from `change`.
    pub fn renumber(&mut self, mut change: impl FnMut(u32) -> u32) {
        let named = self.runs.values_mut().filter(|(_, writer)| *writer != ANYBODY);
        named.for_each(|(_, writer)| *writer = change(*writer));
    }

    /// No run crosses `at` any more.
    fn cut(&mut self, at: u64) {
        if let Some((&start, &(end, writer))) = self.runs.range(..at).next_back()
            && end > at
        {
            self.runs.insert(start, (at, writer));
            self.runs.insert(at, (end, writer));
        }
    }

    /// Every part of `[start, end)` with its writer, in order.
    pub fn each(&self, start: u64, end: u64, mut each: impl FnMut(u64, u64, Option<u32>)) {
        let mut at = start;
        if let Some((_, &(until, writer))) = self.runs.range(..start).next_back()
            && until > start
        {
            let to = until.min(end);
            each(start, to, Some(writer));
            at = to;
        }
        for (&from, &(until, writer)) in self.runs.range(start..end) {
            if from > at {
                each(at, from, None);
            }
            let to = until.min(end);
            each(from, to, Some(writer));
            at = to;
        }
        if at < end {
            each(at, end, None);
        }
    }
}

/// Writers by number: what is still in a cell is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    list: Vec<Writer>,
}

impl Writers {
    pub fn add(&mut self, writer: Writer) -> u32 {
        self.list.push(writer);
        (self.list.len() - 1) as u32
    }

    pub fn get(&self, id: u32) -> &Writer {
        &self.list[id as usize]
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Keeps the writers that some byte still names.
    pub fn compact<'a>(&mut self, all: impl Iterator<Item = &'a mut Cells>) {
        let mut kept = Vec::new();
        let mut numbers = vec![u32::MAX; self.list.len()];
        for cells in all {
            cells.renumber(|old| {
                let place = &mut numbers[old as usize];
                if *place == u32::MAX {
                    *place = kept.len() as u32;
                    kept.push(self.list[old as usize].clone());
                }
                *place
            });
        }
        self.list = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use npumem_testing::Random;

    #[test]
    fn the_same_as_an_array_of_bytes() {
        let mut random = Random(3);
        let mut cells = Cells::default();
        let mut bytes = [None::<u32>; 64];
        for writer in 0..3000 {
            let start = random.below(64);
            let end = (start + random.below(20)).min(64);
            let all = &mut bytes[start as usize..end as usize];
            if random.one_in(4) {
                // Odd writers are of one buffer, even ones of another.
                cells.write_some(start, end, writer, |before| before % 2 == writer % 2);
                for byte in all {
                    *byte = match *byte {
                        None => Some(writer),
                        Some(before) if before == ANYBODY || before % 2 == writer % 2 => Some(before),
                        Some(_) => Some(ANYBODY),
                    };
                }
            } else {
                cells.write(start, end, writer);
                all.fill(Some(writer));
            }
            if random.one_in(50) {
                cells.clear();
                bytes.fill(None);
            }
            let mut found = Vec::new();
            cells.each(3, 60, |from, to, who| found.extend((from..to).map(|_| who)));
            assert_eq!(found, bytes[3..60]);
        }
    }
}
