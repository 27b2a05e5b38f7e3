//! What a device must be able to compute for the executor: a fixed set of kernels, on a queue beside the copies.
//!
//! ```text
//!   copy queue      |copy a|copy b|      |copy c|
//!   compute queue          |kernel on a  |kernel on b|
//! ```
//! Each queue runs in order. Across the two, an operation starts after every earlier one that touches the same bytes,
//! and after no other: callers state no dependencies and cannot get one wrong.

use crate::backend::{Backend, BackendError, Place};

pub(crate) mod order;
pub mod reference;

/// What the elements of a tensor are to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 32-bit floats.
    F32,
    /// Anything else, byte by byte.
    Byte,
}

impl Element {
    /// Bytes of one.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Byte => 1,
        }
    }
}

/// Elements somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand<P> {
    /// Where they start.
    pub place: P,
    /// How many.
    pub count: u64,
    /// Of what kind.
    pub element: Element,
}

/// In which order words are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// One after the other, from the start again past the end.
    Stream,
    /// One of every 64 words (256 bytes), from the start again past the end.
    Strided,
    /// At random, by [`reference::scatter`].
    Random,
}

/// The shape of a two-dimensional convolution, `NCHW` by `OIHW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvolutionShape {
    /// Images.
    pub batch: u32,
    /// Channels, rows and columns of one image.
    pub input: [u32; 3],
    /// Channels, rows and columns of one result.
    pub output: [u32; 3],
    /// Rows and columns of the window.
    pub window: [u32; 2],
    /// Steps of the window.
    pub strides: [u32; 2],
    /// Zeros above and to the left.
    pub padding: [u32; 2],
    /// Distance of the window's taps.
    pub dilations: [u32; 2],
    /// Groups of channels.
    pub groups: u32,
}

impl ConvolutionShape {
    /// Elements of the input, the weights and the output; `None` when one is past 2^40 or the shape contradicts itself.
    #[must_use]
    pub fn counts(&self) -> Option<[u64; 3]> {
        let product = |parts: &[u32]| {
            let counted = parts.iter().try_fold(1_u64, |sum, part| sum.checked_mul(u64::from(*part)))?;
            (counted > 0 && counted <= 1 << 40).then_some(counted)
        };
        let groups = self.groups;
        let whole = groups > 0 && self.input[0].is_multiple_of(groups) && self.output[0].is_multiple_of(groups);
        let positive = self.strides.iter().chain(&self.dilations).all(|step| *step > 0);
        if !whole || !positive {
            return None;
        }
        let input = product(&[self.batch, self.input[0], self.input[1], self.input[2]])?;
        let weights = product(&[self.output[0], self.input[0] / groups, self.window[0], self.window[1]])?;
        let output = product(&[self.batch, self.output[0], self.output[1], self.output[2]])?;
        Some([input, weights, output])
    }

    /// Multiply-accumulates of one result.
    #[must_use]
    pub fn depth(&self) -> u64 {
        u64::from(self.input[0] / self.groups.max(1)) * u64::from(self.window[0]) * u64::from(self.window[1])
    }
}

/// A kernel; `P` says where its operands are.
///
/// Matrices are row-major floats. `fold` maps each result to an integer of [-16, 16] by [`reference::fold`]: on inputs that are
/// small integers every order of summation then gives the same bits, on every device, so that results can be compared exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel<P = Place> {
    /// `to = from`, moved by the compute unit.
    Copy {
        /// From.
        from: P,
        /// To.
        to: P,
        /// How much.
        bytes: u64,
    },
    /// `to = left + right`, element by element.
    Add {
        /// One summand.
        left: P,
        /// The other.
        right: P,
        /// The sum; may be one of the summands.
        to: P,
        /// Floats.
        count: u64,
        /// See the type.
        fold: bool,
    },
    /// `to[rows, columns] = left[rows, depth] * right[depth, columns]`.
    Matmul {
        /// The left matrix.
        left: P,
        /// The right matrix.
        right: P,
        /// The product, apart from both.
        to: P,
        /// Rows of the result.
        rows: u32,
        /// Columns of the result.
        columns: u32,
        /// Columns of the left matrix.
        depth: u32,
        /// See the type.
        fold: bool,
    },
    /// A two-dimensional convolution.
    Convolution {
        /// The images.
        input: P,
        /// The windows.
        weights: P,
        /// The result, apart from both.
        to: P,
        /// The shape.
        shape: ConvolutionShape,
        /// See the type.
        fold: bool,
    },
    /// A stand-in for any other operator: each element of `to` gets a value that depends on one of `from`
    /// (and on what it was, with `accumulate`). Floats become integers of [-16, 16].
    Mix {
        /// What is read; element `i mod count` for element `i` of `to`.
        from: Operand<P>,
        /// What is written; may be `from`.
        to: Operand<P>,
        /// Whether the old value counts.
        accumulate: bool,
    },
    /// Follows a chain of dependent loads: `at = table[at]`, so many times, from the word in `to`, which gets the last one.
    Chase {
        /// Words, each the number of another one; the chain ends at one that is none.
        table: P,
        /// How many there are.
        count: u32,
        /// How many loads.
        steps: u64,
        /// One word.
        to: P,
    },
    /// Reads words and leaves their sums: lane `l` of `lanes` reads its part of the accesses and leaves word `l` of `to`.
    Read {
        /// Words.
        from: P,
        /// How many there are.
        words: u64,
        /// In which order.
        access: Access,
        /// How many are read in all.
        accesses: u64,
        /// Threads or work items side by side, at most 1024.
        lanes: u32,
        /// One word a lane.
        to: P,
    },
    /// Fills with a pattern that depends on the seed and the position. Floats are integers of [-4, 4].
    Pattern {
        /// What is written.
        to: Operand<P>,
        /// The seed.
        seed: u32,
        /// The position of the first element in the pattern.
        first: u64,
    },
}

/// Bytes that an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<P = Place> {
    /// From where.
    pub place: P,
    /// How many.
    pub bytes: u64,
    /// Whether they change.
    pub write: bool,
}

impl<P: Copy> Kernel<P> {
    /// The same kernel with its operands named in another way.
    ///
    /// # Errors
    /// The first that `place` gives.
    pub fn try_map<Q, E>(&self, mut place: impl FnMut(P) -> Result<Q, E>) -> Result<Kernel<Q>, E> {
        let mut operand =
            |from: Operand<P>| Ok(Operand { place: place(from.place)?, count: from.count, element: from.element });
        Ok(match *self {
            Self::Mix { from, to, accumulate } => Kernel::Mix { from: operand(from)?, to: operand(to)?, accumulate },
            Self::Pattern { to, seed, first } => Kernel::Pattern { to: operand(to)?, seed, first },
            Self::Chase { table, count, steps, to } => {
                Kernel::Chase { table: place(table)?, count, steps, to: place(to)? }
            }
            Self::Read { from, words, access, accesses, lanes, to } => {
                Kernel::Read { from: place(from)?, words, access, accesses, lanes, to: place(to)? }
            }
            Self::Copy { from, to, bytes } => Kernel::Copy { from: place(from)?, to: place(to)?, bytes },
            Self::Add { left, right, to, count, fold } => {
                Kernel::Add { left: place(left)?, right: place(right)?, to: place(to)?, count, fold }
            }
            Self::Matmul { left, right, to, rows, columns, depth, fold } => {
                let (left, right, to) = (place(left)?, place(right)?, place(to)?);
                Kernel::Matmul { left, right, to, rows, columns, depth, fold }
            }
            Self::Convolution { input, weights, to, shape, fold } => {
                let (input, weights, to) = (place(input)?, place(weights)?, place(to)?);
                Kernel::Convolution { input, weights, to, shape, fold }
            }
        })
    }

    /// The bytes that it reads and writes; `None` when they are more than can be counted, or the shape contradicts itself.
    #[must_use]
    pub fn touches(&self) -> Option<Vec<Touch<P>>> {
        let touch = |place, bytes, write| Touch { place, bytes, write };
        let floats = |count: u64| count.checked_mul(4);
        let of = |operand: &Operand<P>| operand.count.checked_mul(operand.element.bytes());
        Some(match self {
            Self::Copy { from, to, bytes } => vec![touch(*from, *bytes, false), touch(*to, *bytes, true)],
            Self::Add { left, right, to, count, .. } => {
                let bytes = floats(*count)?;
                vec![touch(*left, bytes, false), touch(*right, bytes, false), touch(*to, bytes, true)]
            }
            Self::Matmul { left, right, to, rows, columns, depth, .. } => {
                let [rows, columns, depth] = [*rows, *columns, *depth].map(u64::from);
                let area = |high: u64, wide: u64| high.checked_mul(wide).and_then(floats);
                vec![
                    touch(*left, area(rows, depth)?, false),
                    touch(*right, area(depth, columns)?, false),
                    touch(*to, area(rows, columns)?, true),
                ]
            }
            Self::Convolution { input, weights, to, shape, .. } => {
                let [read, windows, written] = shape.counts()?;
                vec![
                    touch(*input, floats(read)?, false),
                    touch(*weights, floats(windows)?, false),
                    touch(*to, floats(written)?, true),
                ]
            }
            Self::Mix { from, to, .. } => vec![touch(from.place, of(from)?, false), touch(to.place, of(to)?, true)],
            Self::Chase { table, count, to, .. } => {
                vec![touch(*table, floats(u64::from(*count))?, false), touch(*to, 4, true)]
            }
            Self::Read { from, words, lanes, to, .. } => {
                let lanes = (1..=1024).contains(lanes).then_some(u64::from(*lanes))?;
                vec![touch(*from, floats(*words)?, false), touch(*to, lanes * 4, true)]
            }
            Self::Pattern { to, .. } => vec![touch(to.place, of(to)?, true)],
        })
    }

    /// Floating-point operations; a multiply-accumulate counts two.
    #[must_use]
    pub fn operations(&self) -> u64 {
        match self {
            Self::Matmul { rows, columns, depth, .. } => {
                [*columns, *depth].iter().fold(2 * u64::from(*rows), |sum, part| sum.saturating_mul(u64::from(*part)))
            }
            Self::Convolution { shape, .. } => {
                shape.counts().map_or(0, |counts| counts[2].saturating_mul(2 * shape.depth()))
            }
            Self::Add { count, .. } => *count,
            Self::Mix { .. } | Self::Pattern { .. } | Self::Copy { .. } => 0,
            Self::Chase { .. } | Self::Read { .. } => 0,
        }
    }

    /// Whether its floats must start at multiples of four.
    pub(crate) fn has_floats(&self) -> bool {
        match self {
            Self::Copy { .. } => false,
            Self::Mix { from, to, .. } => from.element == Element::F32 || to.element == Element::F32,
            Self::Pattern { to, .. } => to.element == Element::F32,
            _ => true,
        }
    }
}

/// Names a kernel that was started; see [`Compute::launch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Launch(pub u64);

/// When one operation ran, in nanoseconds of a clock that all operations of the backend share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// From.
    pub start: u64,
    /// To.
    pub end: u64,
}

/// When the operations of both queues ran, in the order in which they were started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Those of the copy queue.
    pub copies: Vec<Span>,
    /// Those of the compute queue.
    pub kernels: Vec<Span>,
}

/// A device that computes.
pub trait Compute: Backend {
    /// Starts a kernel on the compute queue.
    ///
    /// # Errors
    /// When an operand is not committed, is not aligned to its elements, overlaps the result where it must not,
    /// or the device has no such kernel. Nothing is started then.
    fn launch(&mut self, kernel: &Kernel) -> Result<Launch, BackendError>;

    /// Waits for both queues.
    ///
    /// # Errors
    /// What the device says of an operation that failed.
    fn finish(&mut self) -> Result<(), BackendError>;

    /// Waits for both queues and takes the times of what ran since the last call.
    ///
    /// # Errors
    /// As [`Self::finish`].
    fn take_spans(&mut self) -> Result<Spans, BackendError>;
}

/// Checks what no device allows: too much to count, floats off their alignment, a result over an operand.
pub(crate) fn check_kernel(kernel: &Kernel) -> Result<Vec<Touch>, BackendError> {
    let fault = |touch: Option<&Touch>, problem| {
        let (region, start) = touch.map_or((u32::MAX, 0), |touch| (touch.place.region.0, touch.place.offset));
        let end = start.saturating_add(touch.map_or(0, |touch| touch.bytes));
        BackendError::BadRange { region, start, end, problem }
    };
    let touches = kernel.touches().ok_or_else(|| fault(None, "of a kernel whose shape contradicts itself"))?;
    if let Some(crooked) = touches.iter().find(|touch| kernel.has_floats() && !touch.place.offset.is_multiple_of(4)) {
        return Err(fault(Some(crooked), "hold floats and do not start at a multiple of 4"));
    }
    let elementwise = matches!(kernel, Kernel::Add { .. } | Kernel::Mix { .. });
    for written in touches.iter().filter(|touch| touch.write) {
        for read in touches.iter().filter(|touch| !touch.write) {
            let same = elementwise && read.place == written.place && read.bytes == written.bytes;
            if order::overlap(read, written) && !same {
                return Err(fault(Some(written), "are a result that lies over an operand"));
            }
        }
    }
    Ok(touches)
}
