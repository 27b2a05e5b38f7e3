//! Flags, events, barriers and buffer tokens.

use super::Lowering;
use crate::pto::PtoError;
use crate::pto::dialect::{pipe_engine, stage_engine};
use crate::pto::parse::{Clause, RawOp};
use crate::pto::scope::Value;
use npumem_ir::program::{Affine, Assign, Op, Step, Sync};

/// `PIPE_MTE2` of `<PIPE_MTE2>` or `#pto.pipe<PIPE_MTE2>`.
fn inner(text: &str) -> &str {
    text.rsplit_once('<').map_or(text, |(_, rest)| rest.trim_end_matches('>')).trim()
}

/// Events between two engines that have a name.
const EVENT_IDS: i64 = 8;
/// Events of one array.
const MAX_EVENTS: usize = 64;

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

    /// `pto.declare_eventid_array -> !pto.eventid_array<4>`.
    pub(super) fn declare_events(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let text = op.arrow().first().copied().unwrap_or("");
        let count = text.rsplit_once('<').and_then(|(_, rest)| rest.trim_end_matches('>').trim().parse::<usize>().ok());
        let count = count.filter(|count| (1..=MAX_EVENTS).contains(count));
        let count = count.ok_or_else(|| {
            self.error(op.start, format!("expected '-> !pto.eventid_array<N>', N from 1 to {MAX_EVENTS}"))
        })?;
        let name = op.results.first().map_or("%events", |(name, _)| *name);
        let mut events = Vec::with_capacity(count);
        for index in 0..count {
            let name = self.scalar_name(&format!("{name}.{index}"));
            events.push(self.builder.variable(name));
        }
        self.set_results(&op.results, vec![Value::Events(events)]);
        Ok(())
    }

    /// `pto.eventid_array_set %array[%index], %event` and `%event = pto.eventid_array_get %array[%index]`.
    pub(super) fn event_of_array(&mut self, op: &RawOp<'s>, short: &str) -> Result<(), PtoError> {
        let mut named: Vec<(&'s str, usize)> = Vec::new();
        for clause in &op.clauses {
            match clause {
                Clause::Group { items, .. } => named.extend(items.iter().map(|item| (item.text, item.at))),
                Clause::Value(text, at) => named.push((text, *at)),
                _ => {}
            }
        }
        let [(array, at), (index, index_at), rest @ ..] = named.as_slice() else {
            return Err(self.error(op.start, "expected %array[%index]"));
        };
        let Value::Events(events) = self.get(array, *at)? else {
            return Err(self.error(*at, format!("'{array}' is not an array of events")));
        };
        let index = self.int(index, *index_at)?;
        if let Some(number) = index.as_constant().filter(|n| usize::try_from(*n).map_or(true, |n| n >= events.len())) {
            return Err(self.error(*index_at, format!("event {number} of an array of {}", events.len())));
        }
        if short == "eventid_array_get" {
            // A variable of its own: the array may be set again before the event is used.
            let mut value = Affine::scalar(events[events.len() - 1]);
            for (number, event) in events.iter().enumerate().rev().skip(1) {
                let is_it = self.builder.value(Op::Eq, vec![index.clone(), (number as i64).into()]);
                value = self.builder.value(Op::Select, vec![is_it, Affine::scalar(*event), value]);
            }
            let name = self.scalar_name(op.results.first().map_or("%event", |(name, _)| *name));
            let copy = self.builder.variable(name);
            self.builder.assign(copy, value);
            self.set_results(&op.results, vec![Value::Int(Affine::scalar(copy))]);
            return Ok(());
        }
        let [(value, value_at), ..] = rest else {
            return Err(self.error(op.end, "expected the event after %array[%index],"));
        };
        let value = self.int(value, *value_at)?;
        let mut scalars = Vec::new();
        for (number, event) in events.iter().enumerate() {
            let is_it = self.builder.value(Op::Eq, vec![index.clone(), (number as i64).into()]);
            let after = self.builder.value(Op::Select, vec![is_it, value.clone(), Affine::scalar(*event)]);
            if after != Affine::scalar(*event) {
                scalars.push((*event, after));
            }
        }
        self.step(Step::Assign(Assign { scalars, handles: Vec::new() }));
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
                let number = number.parse::<i64>().ok().filter(|number| (0..EVENT_IDS).contains(number));
                let number = number.ok_or_else(|| {
                    let last = EVENT_IDS - 1;
                    self.error(*at, format!("'{name}' is not an event: there are EVENT_ID0 to EVENT_ID{last}"))
                })?;
                Ok(Affine::constant(number))
            }
            None => self.int(text, *at),
        }
    }
}
