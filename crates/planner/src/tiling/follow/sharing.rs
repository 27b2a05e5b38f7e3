//! Copies that share main memory and the cache: how fast each is, and when the next one ends.
//!
//! Every copy has a pace of 1 while there is enough for all. Where a memory is asked for more than it gives, its copies
//! go at one common pace, as large as the memory allows, and what they leave of the other memory is for the rest.

/// A copy under way.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// Whose it is.
    owner: usize,
    /// Cycles of its own that are left.
    left: f64,
    /// Bytes of main memory and of the cache in a cycle of its own.
    asks: [f64; 2],
    pace: f64,
}

/// All copies under way.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    gives: [f64; 2],
    copies: Vec<Copy>,
    now: f64,
    stale: bool,
}

/// Cycles that count as none.
const NOTHING: f64 = 1e-6;

impl Sharing {
    pub fn new(gives: [f64; 2]) -> Self {
        Sharing { gives, copies: Vec::new(), now: 0.0, stale: false }
    }

    /// Goes on to a time.
    pub fn advance(&mut self, time: f64) {
        let passed = time - self.now;
        if passed > 0.0 {
            self.settle();
            for copy in &mut self.copies {
                copy.left -= passed * copy.pace;
            }
            self.now = time;
        }
    }

    /// A copy of so many cycles begins, with bytes of main memory and of the cache.
    pub fn begin(&mut self, owner: usize, cycles: f64, bytes: [f64; 2]) {
        let cycles = cycles.max(NOTHING);
        self.copies.push(Copy { owner, left: cycles, asks: bytes.map(|bytes| bytes / cycles), pace: 1.0 });
        self.stale = true;
    }

    /// When the next one ends.
    pub fn next(&mut self) -> Option<f64> {
        self.settle();
        self.copies.iter().map(|copy| self.now + copy.left.max(0.0) / copy.pace).reduce(f64::min)
    }

    /// Takes out all that have ended by now, the oldest first.
    pub fn ended(&mut self, owners: &mut Vec<usize>) {
        let before = owners.len();
        self.copies.retain(|copy| {
            let over = copy.left <= NOTHING;
            if over {
                owners.push(copy.owner);
            }
            !over
        });
        self.stale |= owners.len() > before;
    }

    fn settle(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut left = self.gives;
        let mut open = [0.0_f64; 2];
        for copy in &mut self.copies {
            copy.pace = 0.0;
            open[0] += copy.asks[0];
            open[1] += copy.asks[1];
        }
        // At most one round for each memory, and one for those that neither holds back.
        for _ in 0..3 {
            let share = |at: usize| if open[at] > 0.0 { left[at].max(0.0) / open[at] } else { f64::INFINITY };
            let (at, pace) = if share(0) <= share(1) { (0, share(0)) } else { (1, share(1)) };
            let short = pace < 1.0;
            let pace = pace.clamp(1e-9, 1.0);
            for copy in self.copies.iter_mut().filter(|copy| copy.pace == 0.0) {
                if short && copy.asks[at] <= 0.0 {
                    continue;
                }
                copy.pace = pace;
                for side in 0..2 {
                    left[side] -= copy.asks[side] * pace;
                    open[side] -= copy.asks[side];
                }
            }
            if !short {
                break;
            }
            // What rounding leaves is nobody's.
            open[at] = 0.0;
        }
        for copy in self.copies.iter_mut().filter(|copy| copy.pace == 0.0) {
            copy.pace = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(sharing: &mut Sharing) -> Vec<(usize, f64)> {
        let (mut list, mut owners) = (Vec::new(), Vec::new());
        while let Some(time) = sharing.next() {
            sharing.advance(time);
            owners.clear();
            sharing.ended(&mut owners);
            list.extend(owners.iter().map(|owner| (*owner, time)));
        }
        list
    }

    #[test]
    fn copies_that_ask_for_more_than_there_is_go_slower_alike() {
        let mut sharing = Sharing::new([10.0, 100.0]);
        sharing.begin(0, 10.0, [100.0, 0.0]);
        sharing.begin(1, 10.0, [50.0, 50.0]);
        // 15 bytes a cycle of 10: two thirds of their pace; the second has nothing to share with once both end.
        assert_eq!(ends(&mut sharing), [(0, 15.0), (1, 15.0)]);
    }

    #[test]
    fn what_the_other_memory_holds_back_leaves_room() {
        let mut sharing = Sharing::new([100.0, 10.0]);
        sharing.begin(0, 10.0, [0.0, 200.0]);
        sharing.begin(1, 10.0, [1000.0, 0.0]);
        sharing.begin(2, 5.0, [0.0, 0.0]);
        assert_eq!(ends(&mut sharing), [(2, 5.0), (1, 10.0), (0, 20.0)]);
    }
}
