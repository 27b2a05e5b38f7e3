//! Ctrl-C asks the search for its best answer so far; a second one ends the program.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

static ASKED: AtomicBool = AtomicBool::new(false);

/// The flag that searches look at; the first call installs the handler.
pub fn flag() -> &'static AtomicBool {
    // A second handler is refused; the first one stays, which is what is wanted.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
    &ASKED
}

/// Shows on a terminal that work goes on, from its second second; nothing in a pipe.
pub struct Progress(Option<Sender<()>>, Option<std::thread::JoinHandle<()>>);

impl Progress {
    /// Starts to show `what`.
    pub fn start(what: &'static str) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(None, None);
        }
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            while stopped.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
                let seconds = start.elapsed().as_secs();
                if seconds >= 1 {
                    let hint = if ASKED.load(Ordering::SeqCst) { "stopping" } else { "Ctrl-C takes the best so far" };
                    let _ = write!(std::io::stderr().lock(), "\r\x1b[K{what}: {seconds} s ({hint})");
                }
            }
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        });
        Progress(Some(stop), Some(thread))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.0.take());
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}
