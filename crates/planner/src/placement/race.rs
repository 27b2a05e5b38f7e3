//! Two attempts that know nothing of each other, on as many threads as the caller has.
//!
//! ```text
//!   one thread     first ----------> second ------>
//!   two threads    first ---------->
//!                  second ------>
//! ```
//!
//! What comes of a race is a rule about the two answers, never about who was faster: when the first one decides,
//! the second one is void and its work is not counted, whether it ran or not. So the number of threads changes the time alone.

use std::sync::atomic::{AtomicBool, Ordering};

/// What can stop an attempt: the caller's flag, or a rival that made it void.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Halt<'a> {
    caller: Option<&'a AtomicBool>,
    rival: Option<&'a AtomicBool>,
}

impl<'a> Halt<'a> {
    /// Stopped by the caller alone.
    pub fn by(caller: Option<&'a AtomicBool>) -> Halt<'a> {
        Halt { caller, rival: None }
    }

    pub fn is_set(self) -> bool {
        [self.caller, self.rival].into_iter().flatten().any(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Runs both attempts. `None` for the second when the first decides.
pub(crate) fn both<A, B: Send>(
    threads: usize,
    halt: Halt,
    first: impl FnOnce(Halt) -> A,
    second: impl FnOnce(Halt) -> B + Send,
    decides: impl Fn(&A) -> bool,
) -> (A, Option<B>) {
    if threads < 2 {
        let a = first(halt);
        let b = if decides(&a) { None } else { Some(second(halt)) };
        return (a, b);
    }
    let void = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let rival = Halt { caller: halt.caller, rival: Some(&void) };
        let other = scope.spawn(move || second(rival));
        let a = first(halt);
        let decided = decides(&a);
        void.store(decided, Ordering::Relaxed);
        match other.join() {
            Ok(_) if decided => (a, None),
            Ok(b) => (a, Some(b)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_does_not_depend_on_the_threads() {
        for threads in [1, 2, 8] {
            let run = |decided: bool| both(threads, Halt::default(), |_| 1, |_| 2, |_| decided);
            assert_eq!(run(true), (1, None));
            assert_eq!(run(false), (1, Some(2)));
        }
    }

    #[test]
    fn a_void_attempt_is_stopped() {
        let endless = |halt: Halt| {
            while !halt.is_set() {
                std::thread::yield_now();
            }
        };
        assert_eq!(both(2, Halt::default(), |_| 1, endless, |_| true), (1, None));
    }
}
