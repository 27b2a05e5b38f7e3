//! What a caller may ask of the placement, and every switch of it.

use std::collections::BTreeMap;

/// How much work a placement may be worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Greedy orders only: at most twenty times the counted work of one first fit.
    Fast,
    /// Also exact search and local search within a budget of counted work: most inputs end in a second, the hardest in half a minute.
    #[default]
    Normal,
    /// The same methods with sixty times the budget.
    Thorough,
}

impl Effort {
    /// The word for it, as an option takes it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Effort::Fast => "fast",
            Effort::Normal => "normal",
            Effort::Thorough => "thorough",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Effort> {
        [Effort::Fast, Effort::Normal, Effort::Thorough].into_iter().find(|e| e.word() == word)
    }

    /// Counted work that the effort stands for when no budget is given.
    #[must_use]
    pub const fn budget(self) -> u64 {
        match self {
            Effort::Fast => 20_000_000,
            Effort::Normal => 2_000_000_000,
            Effort::Thorough => 120_000_000_000,
        }
    }
}

/// How to place: effort, budget, seed, threads and the switches.
///
/// The same problem, options and seed give the same placement, whatever the number of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementOptions {
    /// How hard to try.
    pub effort: Effort,
    /// Counted work in place of the effort's own budget.
    pub budget: Option<u64>,
    /// Seed of everything random.
    pub seed: u64,
    /// Threads to use; changes the time alone.
    pub threads: usize,
    /// Parts of the search that can be turned off.
    pub switches: Switches,
}

impl Default for PlacementOptions {
    fn default() -> Self {
        PlacementOptions { effort: Effort::default(), budget: None, seed: 0, threads: 1, switches: Switches::default() }
    }
}

impl PlacementOptions {
    /// Only the greedy orders.
    #[must_use]
    pub fn fast() -> Self {
        PlacementOptions { effort: Effort::Fast, ..PlacementOptions::default() }
    }

    /// Counted work that may be spent.
    #[must_use]
    pub fn work_limit(&self) -> u64 {
        self.budget.unwrap_or(self.effort.budget())
    }

    /// The options that differ from their defaults, by name.
    #[must_use]
    pub fn non_default(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let default = PlacementOptions::default();
        if self.effort != default.effort {
            out.insert("effort".to_owned(), self.effort.word().to_owned());
        }
        if let Some(budget) = self.budget {
            out.insert("budget".to_owned(), budget.to_string());
        }
        for (name, on) in self.switches.list() {
            if !on {
                out.insert(name.to_owned(), "off".to_owned());
            }
        }
        out
    }
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Parts of the search that can be turned off: each changes the work, none the validity of an
        /// answer nor the optimum of a search that ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Switches { $($(#[$doc])* pub $name: bool,)+ }

        impl Default for Switches {
            fn default() -> Self { Switches { $($name: true,)+ } }
        }

        impl Switches {
            /// Every switch with its state.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, bool)> {
                vec![$((stringify!($name), self.$name),)+]
            }

            /// Sets a switch by name; false when there is none of that name.
            pub fn set(&mut self, name: &str, on: bool) -> bool {
                match name {
                    $(stringify!($name) => { self.$name = on; true })+
                    _ => false,
                }
            }
        }
    };
}

switches! {
    /// Remember failed states of the exact search.
    table,
    /// Only look at placements in which every buffer rests on something.
    support,
    /// Reject gaps into which a waiting buffer would fit.
    fill,
    /// Of equal buffers try one.
    twins,
    /// Prefer sections that failed often.
    weights,
    /// Start the search again with another order.
    restarts,
    /// Solve independent parts of the problem one by one.
    split,
    /// Keep only maximal live sets as sections.
    dominate,
    /// Search for a better order after the greedy orders.
    local,
    /// Exact search at all.
    exact,
}
