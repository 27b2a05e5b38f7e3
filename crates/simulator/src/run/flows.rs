//! Transfers that share the bandwidth of a memory.
//!
//! ```text
//!   alone     every transfer takes its own time D and draws bytes/D from each shared memory
//!   together  the memory is short: transfers slow down alike (by one factor), save those that need less
//! ```
//!
//! The factor is the max-min one: no transfer could be faster without making a slower one slower still. Speeds
//! change only when a transfer starts or ends, so between two such moments everything is a straight line.

use super::machine::MAX_SHARED;

/// One transfer under way.
#[derive(Clone, Copy, Debug)]
struct Flow {
    owner: u32,
    /// Cycles that are left when it runs alone.
    left: f64,
    /// Bytes per cycle that it draws from each shared memory when it runs alone.
    draw: [f64; MAX_SHARED],
    speed: f64,
}

/// All transfers under way.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    flows: Vec<Flow>,
    capacity: [f64; MAX_SHARED],
    drawn: [f64; MAX_SHARED],
    now: f64,
    /// The end of the first one to end; stale after a change.
    next: Option<(f64, usize)>,
}

impl Flows {
    pub fn new(capacity: [f64; MAX_SHARED]) -> Self {
        Flows { flows: Vec::new(), capacity, drawn: [0.0; MAX_SHARED], now: 0.0, next: None }
    }

    /// A transfer starts: `cycles` alone, with so many bytes of each shared memory.
    pub fn start(&mut self, now: f64, owner: u32, cycles: f64, bytes: [f64; MAX_SHARED]) {
        self.advance(now);
        let cycles = cycles.max(1e-9);
        let draw = bytes.map(|bytes| bytes / cycles);
        self.flows.push(Flow { owner, left: cycles, draw, speed: 1.0 });
        self.share();
    }

    /// When the first transfer ends, and whose it is.
    pub fn next(&self) -> Option<(f64, u32)> {
        self.next.map(|(time, index)| (time, self.flows[index].owner))
    }

    /// Takes the transfer that [`Flows::next`] named out.
    pub fn finish(&mut self) {
        if let Some((time, index)) = self.next {
            self.advance(time);
            self.flows.remove(index);
            self.share();
        }
    }

    fn advance(&mut self, now: f64) {
        let passed = now - self.now;
        if passed > 0.0 {
            for flow in &mut self.flows {
                flow.left = (flow.left - passed * flow.speed).max(0.0);
            }
        }
        self.now = now;
    }

    fn share(&mut self) {
        self.drawn = [0.0; MAX_SHARED];
        for flow in &self.flows {
            for (sum, draw) in self.drawn.iter_mut().zip(flow.draw) {
                *sum += draw;
            }
        }
        let short = self.drawn.iter().zip(self.capacity).any(|(drawn, capacity)| *drawn > capacity);
        if short {
            self.fill();
        } else {
            self.flows.iter_mut().for_each(|flow| flow.speed = 1.0);
        }
        self.next = None;
        for (index, flow) in self.flows.iter().enumerate() {
            let end = self.now + flow.left / flow.speed;
            if self.next.is_none_or(|(first, _)| end < first) {
                self.next = Some((end, index));
            }
        }
    }

    /// Raises all speeds together until a memory is full, fixes those that draw from it, and goes on with the rest.
    fn fill(&mut self) {
        let mut open: Vec<usize> = (0..self.flows.len()).collect();
        let mut room = self.capacity;
        while !open.is_empty() {
            let mut level = 1.0_f64;
            let mut full = None;
            for (memory, room) in room.iter().enumerate() {
                let draw: f64 = open.iter().map(|index| self.flows[*index].draw[memory]).sum();
                if draw > 0.0 && room.max(0.0) / draw < level {
                    level = room.max(0.0) / draw;
                    full = Some(memory);
                }
            }
            // A speed of exactly 0 would never end: rounding may leave a memory with nothing.
            level = level.max(1e-12);
            open.retain(|index| {
                let flow = &mut self.flows[*index];
                let fixed = full.is_none_or(|memory| flow.draw[memory] > 0.0);
                if fixed {
                    flow.speed = level;
                    for (room, draw) in room.iter_mut().zip(flow.draw) {
                        *room -= draw * level;
                    }
                }
                !fixed
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(flows: &mut Flows) -> Vec<(u32, f64)> {
        let mut list = Vec::new();
        while let Some((time, owner)) = flows.next() {
            list.push((owner, time));
            flows.finish();
        }
        list
    }

    #[test]
    fn two_that_want_all_of_it_take_twice_as_long() {
        let mut flows = Flows::new([100.0, 1e9, 1e9, 1e9]);
        flows.start(0.0, 1, 10.0, [1000.0, 0.0, 0.0, 0.0]);
        flows.start(0.0, 2, 10.0, [1000.0, 0.0, 0.0, 0.0]);
        assert_eq!(ends(&mut flows), [(1, 20.0), (2, 20.0)]);
    }

    #[test]
    fn one_that_needs_little_of_another_memory_is_not_slowed() {
        let mut flows = Flows::new([100.0, 50.0, 1e9, 1e9]);
        flows.start(0.0, 1, 10.0, [1000.0, 0.0, 0.0, 0.0]);
        flows.start(0.0, 2, 10.0, [0.0, 100.0, 0.0, 0.0]);
        flows.start(5.0, 3, 10.0, [1000.0, 0.0, 0.0, 0.0]);
        // 1 has 5 left at half speed; 3 then has 5 left alone.
        assert_eq!(ends(&mut flows), [(2, 10.0), (1, 15.0), (3, 20.0)]);
    }
}
