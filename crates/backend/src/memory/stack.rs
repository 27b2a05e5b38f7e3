//! The whole stack of an allocation, on demand: symbols are looked up for each call, which costs tens of microseconds.

use npumem_ir::trace::Frame;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::Location;

/// Frames that are kept.
const MOST: usize = 32;

/// The frames from the caller of [`super::Memory`] on, innermost first; empty where this platform gives none.
pub(super) fn capture(caller: &Location<'_>) -> Vec<Frame> {
    let stack = Backtrace::force_capture();
    if stack.status() != BacktraceStatus::Captured {
        return Vec::new();
    }
    parse(&stack.to_string(), caller.file(), caller.line())
}

/// The last part of a path: the compiler and the debug information name the same file by different ones.
fn name_of(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Reads the text form, which is all that the standard library gives: `12: function` and `at file:line:column` in turn.
fn parse(text: &str, file: &str, line: u32) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for text in text.lines().map(str::trim) {
        if let Some(place) = text.strip_prefix("at ") {
            let mut parts = place.rsplitn(3, ':');
            let (_, number, file) = (parts.next(), parts.next(), parts.next());
            if let (Some(frame), Some(file), Some(number)) = (frames.last_mut(), file, number) {
                (frame.file, frame.line) = (file.to_owned(), number.parse().unwrap_or(0));
            }
        } else if let Some((number, function)) = text.split_once(": ")
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            frames.push(Frame { function: function.to_owned(), file: String::new(), line: 0 });
        }
    }
    // What lies within the memory itself, and what lies before `main`, says nothing of the owner.
    let entry = |frame: &Frame| frame.line == line && name_of(&frame.file) == name_of(file);
    let inner = frames.iter().position(entry).unwrap_or(0);
    let start = |frame: &Frame| frame.function.contains("__rust_begin_short_backtrace");
    let outer = frames.iter().position(start).unwrap_or(frames.len());
    frames.into_iter().take(outer).skip(inner).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_stack_is_read() {
        let text = "   0: std::backtrace::Backtrace::force_capture\n   1: npumem_backend::memory::Memory::allocate\n             at ./src/memory.rs:10:5\n   \
                    2: model::layer::<impl X>::run\n             at /home/a b/model.rs:77:13\n   3: model::main\n   \
                    4: std::sys::backtrace::__rust_begin_short_backtrace\n   5: main\n";
        let frame = |function: &str, file: &str, line| Frame { function: function.into(), file: file.into(), line };
        let wanted = [frame("model::layer::<impl X>::run", "/home/a b/model.rs", 77), frame("model::main", "", 0)];
        assert_eq!(parse(text, "src/model.rs", 77), wanted);
        // A caller that is not among them: all are kept.
        assert_eq!(parse(text, "src/model.rs", 78).len(), 4);
        assert!(parse("", "", 0).is_empty() && parse("at x\n: \nq: r", "", 0).is_empty());
    }
}
