//! Indices as types: the n-th buffer is not the n-th space.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id of the `index`-th one.
            ///
            /// # Panics
            /// Past 2^32: the readers refuse such a count at the door.
            #[must_use]
            pub fn new(index: usize) -> Self {
                assert!(index <= u32::MAX as usize, concat!(stringify!($name), " past 2^32"));
                Self(index as u32)
            }

            /// The position in its list.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id! {
    /// A buffer of a problem or program.
    BufferId, "#"
}
id! {
    /// A memory space of a device or problem.
    SpaceId, "space"
}
id! {
    /// A link between two spaces of a device.
    LinkId, "link"
}
id! {
    /// An engine of a device: a DMA queue or a compute unit.
    EngineId, "engine"
}
id! {
    /// A tensor of a graph.
    TensorId, "%"
}
id! {
    /// An operator of a graph.
    OperatorId, "op"
}
id! {
    /// A symbolic dimension of a graph.
    SymbolId, "s"
}
id! {
    /// A scalar of a program.
    ScalarId, "$"
}
id! {
    /// A tile handle of a program: a variable that names a buffer.
    HandleId, "&"
}
id! {
    /// A step of a program: its position in the flat list.
    StepId, ""
}
