//! Who holds what: sites, leaks, growth from step to step, late frees, damage.

use npumem_allocator::Handle;
use npumem_ir::trace::{BlockId, Frame, StackId};
use npumem_ir::{Bytes, SpaceId, TraceSink};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::panic::Location;

/// Steps that the growth detector looks back on.
const HISTORY: usize = 32;
/// Steps it needs before it speaks.
const ENOUGH: usize = 4;

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) block: BlockId,
    pub(super) bytes: Bytes,
    pub(super) site: u32,
    born: u64,
    step: u64,
    /// When it was last used, where uses are known.
    used: Option<u64>,
    damaged: bool,
}

#[derive(Debug, Default)]
struct Site {
    frames: Vec<Frame>,
    space: Option<SpaceId>,
    live: u64,
    /// Live bytes at the last marks.
    marks: Vec<u64>,
    late: u128,
    late_count: u64,
    trace: Option<StackId>,
}

/// Live blocks of one site in one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// In which space.
    pub space: SpaceId,
    /// Who allocated, innermost frame first.
    pub frames: Vec<Frame>,
    /// How many bytes.
    pub bytes: Bytes,
    /// In how many blocks.
    pub count: u64,
    /// How many calls ago the oldest was allocated.
    pub age: u64,
    /// In which step that was.
    pub step: u64,
}

/// A site whose live bytes grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// Who allocates, innermost frame first.
    pub frames: Vec<Frame>,
    /// By how many bytes a step.
    pub bytes_per_step: f64,
    /// Over so many steps.
    pub steps: u64,
    /// After how many more steps the space is full.
    pub steps_to_full: f64,
}

/// A site whose blocks are held after their last use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateFree {
    /// Who allocated, innermost frame first.
    pub frames: Vec<Frame>,
    /// Bytes times the calls between last use and free.
    pub byte_events: u128,
    /// Over so many blocks.
    pub count: u64,
}

/// A write past the end of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Who allocated the block.
    pub frames: Vec<Frame>,
    /// Its bytes.
    pub bytes: Bytes,
    /// How many bytes past its end the first changed byte is.
    pub past_end: u64,
}

/// File, line and column of a caller, and the scope.
type Key = (&'static str, u32, u32, u32);

/// All of it; see the module.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    /// Calls so far.
    pub(super) clock: u64,
    pub(super) damage: Vec<Damage>,
    steps: u64,
    next_block: u64,
    live: BTreeMap<(SpaceId, Handle), Record>,
    sites: Vec<Site>,
    /// Caller and scope to site, to find it only.
    known: HashMap<Key, u32>,
    /// The same with stacks, to find it only.
    known_stacks: HashMap<Vec<Frame>, HashMap<Key, u32>>,
    scopes: Vec<u32>,
    scope_names: Vec<(u32, String)>,
}

impl Tracking {
    /// The scope that is open now, 0 for none.
    fn scope(&self) -> u32 {
        self.scopes.last().copied().unwrap_or(0)
    }

    pub(super) fn enter(&mut self, name: &str) {
        let parent = self.scope();
        let found = self.scope_names.iter().position(|(above, known)| *above == parent && known == name);
        let index = found.unwrap_or_else(|| {
            self.scope_names.push((parent, name.to_owned()));
            self.scope_names.len() - 1
        });
        self.scopes.push(index as u32 + 1);
    }

    pub(super) fn exit(&mut self) {
        self.scopes.pop();
    }

    /// The site of an allocation: its caller, its stack where one was taken, and the scopes that are open.
    pub(super) fn site(&mut self, caller: &'static Location<'static>, stack: Vec<Frame>) -> u32 {
        let key = (caller.file(), caller.line(), caller.column(), self.scope());
        let known = if stack.is_empty() {
            self.known.get(&key)
        } else {
            self.known_stacks.get(&stack).and_then(|sites| sites.get(&key))
        };
        if let Some(site) = known {
            return *site;
        }
        let mut frames = if stack.is_empty() {
            vec![Frame { function: String::new(), file: caller.file().to_owned(), line: caller.line() }]
        } else {
            stack.clone()
        };
        let mut scope = self.scope();
        while scope > 0 {
            let (parent, name) = &self.scope_names[scope as usize - 1];
            frames.push(Frame { function: name.clone(), file: String::new(), line: 0 });
            scope = *parent;
        }
        let site = self.sites.len() as u32;
        self.sites.push(Site { frames, ..Site::default() });
        if stack.is_empty() {
            self.known.insert(key, site);
        } else {
            self.known_stacks.entry(stack).or_default().insert(key, site);
        }
        site
    }

    pub(super) fn enter_block(&mut self, space: SpaceId, handle: Handle, bytes: Bytes, site: u32) -> Record {
        self.clock += 1;
        self.next_block += 1;
        let record = Record {
            block: super::block_id(self.next_block),
            bytes,
            site,
            born: self.clock,
            step: self.steps,
            used: None,
            damaged: false,
        };
        self.live.insert((space, handle), record);
        let site = &mut self.sites[site as usize];
        site.live += bytes.get();
        site.space = Some(space);
        record
    }

    pub(super) fn leave_block(&mut self, space: SpaceId, handle: Handle) -> Option<Record> {
        self.clock += 1;
        let record = self.live.remove(&(space, handle))?;
        let site = &mut self.sites[record.site as usize];
        site.live -= record.bytes.get();
        if let Some(used) = record.used {
            // The call after the last use is the earliest that could free it.
            let idle = self.clock - used - 1;
            site.late += u128::from(record.bytes.get()) * u128::from(idle);
            site.late_count += u64::from(idle > 0);
        }
        Some(record)
    }

    pub(super) fn use_block(&mut self, space: SpaceId, handle: Handle) -> Option<Record> {
        self.clock += 1;
        let record = self.live.get_mut(&(space, handle))?;
        record.used = Some(self.clock);
        Some(*record)
    }

    pub(super) fn find(&self, space: SpaceId, handle: Handle) -> Option<Record> {
        self.live.get(&(space, handle)).copied()
    }

    pub(super) fn live(&self) -> Vec<(SpaceId, Handle, Record)> {
        self.live.iter().map(|((space, handle), record)| (*space, *handle, *record)).collect()
    }

    pub(super) fn mark(&mut self) {
        self.steps += 1;
        for site in &mut self.sites {
            if site.marks.len() == HISTORY {
                site.marks.remove(0);
            }
            site.marks.push(site.live);
        }
    }

    pub(super) fn note_damage(&mut self, record: &Record, past_end: u64) {
        let mut seen = false;
        for live in self.live.values_mut().filter(|live| live.block == record.block) {
            seen = std::mem::replace(&mut live.damaged, true);
        }
        if !seen {
            let frames = self.sites[record.site as usize].frames.clone();
            self.damage.push(Damage { frames, bytes: record.bytes, past_end });
        }
    }

    pub(super) fn leaks(&self) -> Vec<Leak> {
        let mut leaks: BTreeMap<(u32, SpaceId), Leak> = BTreeMap::new();
        for ((space, _), record) in &self.live {
            let age = self.clock - record.born;
            let leak = leaks.entry((record.site, *space)).or_insert_with(|| Leak {
                space: *space,
                frames: self.sites[record.site as usize].frames.clone(),
                bytes: Bytes::ZERO,
                count: 0,
                age,
                step: record.step,
            });
            leak.bytes = leak.bytes.saturating_add(record.bytes.get());
            leak.count += 1;
            leak.age = leak.age.max(age);
            leak.step = leak.step.min(record.step);
        }
        let mut leaks: Vec<Leak> = leaks.into_values().collect();
        leaks.sort_by_key(|leak| std::cmp::Reverse(leak.bytes));
        leaks
    }

    /// Sites whose bytes at the marks never fell and rose in at least half of the steps.
    pub(super) fn growth(&self, free: &[u64]) -> Vec<Growth> {
        let mut growth: Vec<Growth> = self
            .sites
            .iter()
            .filter(|site| site.marks.len() >= ENOUGH && site.marks.is_sorted())
            .filter_map(|site| {
                let rises = site.marks.windows(2).filter(|pair| pair[1] > pair[0]).count();
                let steps = site.marks.len() - 1;
                if rises * 2 < steps {
                    return None;
                }
                let bytes = site.marks.last()? - site.marks.first()?;
                let bytes_per_step = bytes as f64 / steps as f64;
                let room = site.space.and_then(|space| free.get(space.index())).copied().unwrap_or(0);
                Some(Growth {
                    frames: site.frames.clone(),
                    bytes_per_step,
                    steps: steps as u64,
                    steps_to_full: room as f64 / bytes_per_step,
                })
            })
            .collect();
        growth.sort_by(|a, b| b.bytes_per_step.total_cmp(&a.bytes_per_step));
        growth
    }

    pub(super) fn late_frees(&self) -> Vec<LateFree> {
        let mut late: Vec<LateFree> = self
            .sites
            .iter()
            .filter(|site| site.late > 0)
            .map(|site| LateFree { frames: site.frames.clone(), byte_events: site.late, count: site.late_count })
            .collect();
        late.sort_by_key(|late| std::cmp::Reverse(late.byte_events));
        late
    }

    /// The three largest holders, in words.
    pub(super) fn holders(&self) -> String {
        let mut text = String::new();
        for leak in self.leaks().iter().take(3) {
            let separator = if text.is_empty() { "; held by" } else { "," };
            let place = leak.frames.first().map_or_else(String::new, |frame| format!("{}:{}", frame.file, frame.line));
            let scopes: String = leak.frames.iter().skip(1).map(|frame| format!(" in {}", frame.function)).collect();
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator} {place}{scopes} ({} in {} blocks)", leak.bytes.short(), leak.count);
        }
        text
    }

    pub(super) fn trace_stack(&mut self, site: u32, sink: &mut impl TraceSink) -> StackId {
        let site = &mut self.sites[site as usize];
        *site.trace.get_or_insert_with(|| sink.stack(&site.frames))
    }

    /// A new trace defines its stacks anew.
    pub(super) fn forget_trace_stacks(&mut self) {
        for site in &mut self.sites {
            site.trace = None;
        }
    }
}
