//! The host's two queues: a thread copies, a thread computes; each waits for the other only where it was told to.
#![allow(unsafe_code)]

use super::{kernels, processors};
use crate::backend::BackendError;
use crate::compute::{Kernel, Span};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Times kept for a caller that may never ask for them.
const MOST_SPANS: usize = 1 << 20;

/// What a queue runs.
pub(super) enum Work {
    /// Bytes from one address to another; they do not overlap.
    Copy { from: usize, to: usize, bytes: usize },
    /// A kernel over addresses.
    Kernel(Kernel<usize>),
}

struct Job {
    work: Work,
    /// Operations of the other queue that must be done first.
    after: u64,
}

/// Operations done so far by each queue, and who waits for more.
pub(super) struct Progress {
    done: [AtomicU64; 2],
    lock: Mutex<()>,
    changed: Condvar,
    spans: [Mutex<Vec<Span>>; 2],
    origin: Instant,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            done: [AtomicU64::new(0), AtomicU64::new(0)],
            lock: Mutex::new(()),
            changed: Condvar::new(),
            spans: [Mutex::new(Vec::new()), Mutex::new(Vec::new())],
            origin: Instant::now(),
        }
    }

    pub(super) fn done(&self, queue: usize) -> u64 {
        self.done[queue].load(Ordering::Acquire)
    }

    pub(super) fn wait(&self, queue: usize, wanted: u64) {
        if self.done(queue) >= wanted {
            return;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.done(queue) < wanted {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn take_spans(&self, queue: usize) -> Vec<Span> {
        std::mem::take(&mut *self.spans[queue].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn finish(&self, queue: usize, span: Span) {
        let mut spans = self.spans[queue].lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < MOST_SPANS {
            spans.push(span);
        }
        drop(spans);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.done[queue].fetch_add(1, Ordering::Release);
        drop(guard);
        self.changed.notify_all();
    }
}

/// One queue and its thread.
pub(super) struct Worker {
    sender: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(queue: usize, name: &str, progress: &Arc<Progress>) -> Result<Self, BackendError> {
        let (sender, receiver) = channel();
        let shared = Arc::clone(progress);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                processors::keep_apart(queue == super::COPIES);
                serve(queue, &receiver, &shared);
            })
            .map_err(|error| BackendError::System { call: "spawn", reason: error.to_string() })?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    pub(super) fn send(&self, work: Work, after: u64) -> Result<(), BackendError> {
        match self.sender.as_ref().map(|queue| queue.send(Job { work, after })) {
            Some(Ok(())) => Ok(()),
            _ => Err(BackendError::System { call: "queue", reason: "its thread has ended".to_owned() }),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends when the queue is closed; it has nothing to say.
            let _ = thread.join();
        }
    }
}

fn serve(queue: usize, receiver: &Receiver<Job>, progress: &Progress) {
    for job in receiver {
        progress.wait(1 - queue, job.after);
        let start = progress.now();
        match job.work {
            Work::Copy { from, to, bytes } => {
                // SAFETY: `Host::copy` checked that both ranges are committed and do not overlap; every call of `Host`
                // that could unmap or touch them drains the queues first, and kernels on the same bytes are waited for.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
            }
            // SAFETY: as above: every operand was checked by `Host::launch`.
            Work::Kernel(kernel) => unsafe { kernels::run(&kernel) },
        }
        progress.finish(queue, Span { start, end: progress.now() });
    }
}
