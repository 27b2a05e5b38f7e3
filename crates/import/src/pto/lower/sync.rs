//! Flags, events, barriers and buffer tokens.

use super::Lowering;
use crate::pto::PtoError;
use crate::pto::dialect::{pipe_engine, stage_engine};
use crate::pto::parse::{Clause, RawOp};
use npumem_ir::program::{Affine, Sync};

/// `PIPE_MTE2` of `<PIPE_MTE2>` or `#pto.pipe<PIPE_MTE2>`.
fn inner(text: &str) -> &str {
    text.rsplit_once('<').map_or(text, |(_, rest)| rest.trim_end_matches('>')).trim()
}

impl<'s> Lowering<'s, '_> {
    pub(super) fn synchronize(&mut self, op: &RawOp<'s>, short: &str) -> Result<(), PtoError> {
        let mut words: Vec<(&str, usize)> = Vec::new();
        for clause in &op.clauses {
            match clause {
                Clause::Group { items, .. } => words.extend(items.iter().map(|item| (item.text, item.at))),
                Clause::Literal(text, at) | Clause::Value(text, at) => words.push((text, *at)),
                _ => {}
            }
        }
        let sync = match short {
            "barrier" | "barrier_sync" => {
                let name = words.first().map_or("PIPE_ALL", |(text, _)| inner(text));
                if name == "PIPE_ALL" {
                    Sync::Barrier(None)
                } else {
                    let engine = pipe_engine(name).or_else(|| stage_engine(name));
                    let engine = engine.ok_or_else(|| self.error(op.start, format!("'{name}' is not a pipe")))?;
                    Sync::Barrier(Some(engine.to_owned()))
                }
            }
            "set_flag" | "wait_flag" | "set_flag_dyn" | "wait_flag_dyn" | "record_event" | "wait_event" => {
                let [from, to, event] = words.as_slice() else {
                    return Err(self.error(op.start, "expected [from, to, event]"));
                };
                let (from, to) = (self.engine(from)?, self.engine(to)?);
                let event = self.event(event)?;
                if short.starts_with("set") || short.starts_with("record") {
                    Sync::SetFlag { from, to, event }
                } else {
                    Sync::WaitFlag { from, to, event }
                }
            }
            _ => {
                let [engine, number, ..] = words.as_slice() else {
                    return Err(self.error(op.start, "expected an engine and a number"));
                };
                let engine = self.engine(engine)?;
                let number = self.event(number)?;
                match short {
                    "get_buf" => Sync::Acquire { engine, token: number },
                    "rls_buf" => Sync::Release { engine, token: number },
                    "sync.set" => Sync::Post { engine, flag: number },
                    _ => Sync::Await { engine, flag: number },
                }
            }
        };
        let at = self.builder.sync(sync);
        let line = self.line(op.start);
        self.builder.program_mut().sync_lines.insert(at, line);
        Ok(())
    }

    fn engine(&self, (text, at): &(&str, usize)) -> Result<String, PtoError> {
        let name = inner(text);
        let found = pipe_engine(name).or_else(|| stage_engine(name));
        found.map(str::to_owned).ok_or_else(|| self.error(*at, format!("'{name}' is neither a pipe nor a stage")))
    }

    fn event(&mut self, (text, at): &(&'s str, usize)) -> Result<Affine, PtoError> {
        let name = inner(text);
        match name.strip_prefix("EVENT_ID") {
            Some(number) => {
                let number = number.parse::<i64>().map_err(|_| self.error(*at, format!("'{name}' is not an event")))?;
                Ok(Affine::constant(number))
            }
            None => self.int(text, *at),
        }
    }
}
