//! The text form of a plan.

use super::problem_text::{GOALS, value_of, word_of};
use super::words::{Line, Names, Read, lines, push_name, push_quoted};
use super::{FormError, PLAN, VERSION};
use crate::ids::{BufferId, LinkId, SpaceId};
use crate::plan::{Move, Plan, Residency, SpaceUse, Stop};
use crate::problem::{Location, Problem};
use crate::units::{Bytes, Offset};
use std::fmt::Write;

const STOPS: [(Stop, &str); 6] = [
    (Stop::Optimal, "optimal"),
    (Stop::Satisfied, "satisfied"),
    (Stop::Exhausted, "exhausted"),
    (Stop::Budget, "budget"),
    (Stop::Interrupted, "interrupted"),
    (Stop::Infeasible, "infeasible"),
];

impl Plan {
    /// The text form: one line an item, made to be read in a diff.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.write_text(None)
    }

    /// The text form with each buffer's name behind it as a comment.
    #[must_use]
    pub fn to_text_with(&self, problem: &Problem) -> String {
        self.write_text(Some(problem))
    }

    fn write_text(&self, problem: Option<&Problem>) -> String {
        let mut text = format!("{PLAN} {VERSION}\n");
        let named = |text: &mut String, key: &str, value: &str| {
            if !value.is_empty() {
                text.push_str(key);
                push_name(text, value);
                text.push('\n');
            }
        };
        named(&mut text, "problem ", &self.problem);
        named(&mut text, "digest ", &self.origin.digest);
        if let Some(device) = &self.device {
            text.push_str("device ");
            push_name(&mut text, device);
            text.push('\n');
        }
        self.write_origin(&mut text);
        self.spaces.iter().for_each(|space| write_space(&mut text, space));
        let spaces = Names::of(self.spaces.iter().map(|space| space.space.as_str()));
        let location = |text: &mut String, place: Location| {
            spaces.push(text, place.space.index(), self.spaces.get(place.space.index()).map(|s| s.space.as_str()));
            let _ = write!(text, "+{}", place.offset);
        };
        let comment = |text: &mut String, id: BufferId| {
            if let Some(buffer) = problem.and_then(|problem| problem.buffers.get(id.index())) {
                text.push_str(" # ");
                push_name(text, &buffer.name);
            }
            text.push('\n');
        };
        for residency in &self.residencies {
            let _ = write!(text, "place {} [{},{}) ", residency.buffer, residency.steps.start, residency.steps.end);
            location(&mut text, residency.location());
            comment(&mut text, residency.buffer);
        }
        for copy in &self.moves {
            let _ = write!(text, "move {} [{},{}) ", copy.buffer, copy.steps.start, copy.steps.end);
            location(&mut text, copy.from);
            text.push_str(" -> ");
            location(&mut text, copy.to);
            if let Some(link) = copy.link {
                let _ = write!(text, " link=#{}", link.0);
            }
            comment(&mut text, copy.buffer);
        }
        for buffer in &self.pooled {
            let _ = write!(text, "pooled {buffer}");
            comment(&mut text, *buffer);
        }
        text
    }

    fn write_origin(&self, text: &mut String) {
        let origin = &self.origin;
        for (key, value) in [("tool", &origin.tool), ("method", &origin.method)] {
            if !value.is_empty() {
                let _ = write!(text, "{key} ");
                push_name(text, value);
                text.push('\n');
            }
        }
        for goal in &origin.goals {
            let _ = writeln!(text, "goal {}", word_of(&GOALS, *goal));
        }
        let _ = writeln!(text, "stop {}", word_of(&STOPS, origin.stop));
        if origin.seed != 0 {
            let _ = writeln!(text, "seed {}", origin.seed);
        }
        for (key, value) in &origin.options {
            text.push_str("option ");
            push_name(text, key);
            text.push(' ');
            push_name(text, value);
            text.push('\n');
        }
        for (key, value) in &origin.work {
            text.push_str("work ");
            push_name(text, key);
            let _ = writeln!(text, " {value}");
        }
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The first thing that is not as it should be, with line and character.
    pub fn from_text(text: &str) -> Result<Plan, FormError> {
        let mut reader = Reader::default();
        for mut line in lines(text, PLAN)? {
            reader.item(&mut line)?;
        }
        sound(reader.plan)
    }
}

/// The plan, when its ranges are not reversed and its lists are sorted as [`Plan`] says.
pub(super) fn sound(plan: Plan) -> Read<Plan> {
    for residency in &plan.residencies {
        if residency.steps.start > residency.steps.end {
            let place = format!("the residency of buffer {} at steps {}", residency.buffer, residency.steps);
            return Err(FormError::whole(format!("{place} is reversed")));
        }
    }
    if let Some(copy) = plan.moves.iter().find(|copy| copy.steps.start > copy.steps.end) {
        return Err(FormError::whole(format!(
            "the move of buffer {} at steps {} is reversed",
            copy.buffer, copy.steps
        )));
    }
    let key = |residency: &Residency| (residency.buffer, residency.steps.start);
    if let Some(pair) = plan.residencies.windows(2).find(|pair| key(&pair[0]) > key(&pair[1])) {
        let message = "residencies must be sorted by buffer, then by start";
        return Err(FormError::whole(format!(
            "buffer {} follows buffer {}: {message}",
            pair[1].buffer, pair[0].buffer
        )));
    }
    if let Some(pair) = plan.moves.windows(2).find(|pair| pair[0].steps.start > pair[1].steps.start) {
        let (first, second) = (pair[0].steps.start, pair[1].steps.start);
        return Err(FormError::whole(format!("a move at step {second} follows one at {first}: sort moves by start")));
    }
    if let Some(pair) = plan.pooled.windows(2).find(|pair| pair[0] >= pair[1]) {
        let message = "pooled buffers must be sorted, each once";
        return Err(FormError::whole(format!("buffer {} follows buffer {}: {message}", pair[1], pair[0])));
    }
    Ok(plan)
}

fn write_space(text: &mut String, space: &SpaceUse) {
    text.push_str("space ");
    push_name(text, &space.space);
    let _ = write!(text, " peak={} lower-bound={}", space.peak.0, space.lower_bound.0);
    if let Some(capacity) = space.capacity {
        let _ = write!(text, " capacity={}", capacity.0);
    }
    if !space.bound_reason.is_empty() {
        text.push_str(" because=");
        push_quoted(text, &space.bound_reason);
    }
    text.push('\n');
}

#[derive(Default)]
struct Reader {
    plan: Plan,
    spaces: Names,
}

impl Reader {
    fn item(&mut self, line: &mut Line<'_>) -> Read<()> {
        const ITEMS: &str = "problem, digest, device, tool, method, goal, stop, seed, option, work, space, place, \
                             move or pooled at the start of the line";
        line.skip_blanks();
        let at = line.at;
        let origin = &mut self.plan.origin;
        match line.word(ITEMS)? {
            "problem" => self.plan.problem = line.name("a name")?.into_owned(),
            "digest" => origin.digest = line.name("a digest")?.into_owned(),
            "device" => self.plan.device = Some(line.name("a name")?.into_owned()),
            "tool" => origin.tool = line.name("a name")?.into_owned(),
            "method" => origin.method = line.name("a name")?.into_owned(),
            "goal" => origin.goals.push(value_of(line, &GOALS)?),
            "stop" => origin.stop = value_of(line, &STOPS)?,
            "seed" => {
                line.skip_blanks();
                origin.seed = line.number()?;
            }
            "option" => {
                let key = line.name("an option")?.into_owned();
                origin.options.insert(key, line.name("its value")?.into_owned());
            }
            "work" => {
                let key = line.name("a method")?.into_owned();
                line.skip_blanks();
                origin.work.insert(key, line.number()?);
            }
            "space" => self.space(line)?,
            "place" => {
                let buffer = buffer_id(line)?;
                let steps = line.steps()?;
                let Location { space, offset } = self.location(line)?;
                self.plan.residencies.push(Residency { buffer, space, offset, steps });
            }
            "move" => self.copy(line)?,
            "pooled" => {
                let buffer = buffer_id(line)?;
                self.plan.pooled.push(buffer);
            }
            other => return Err(line.fault_at(at, format!("'{other}'"), ITEMS)),
        }
        line.finish()
    }

    fn location(&self, line: &mut Line<'_>) -> Read<Location> {
        line.skip_blanks();
        // A plan may name a space that it does not list: it is the checker's to say so.
        let space = if line.rest().starts_with('#') {
            SpaceId(id_number(line, "a space")?)
        } else {
            SpaceId::new(line.resolve("space", &self.spaces)?)
        };
        line.expect("+")?;
        Ok(Location { space, offset: Offset(line.number()?) })
    }

    fn copy(&mut self, line: &mut Line<'_>) -> Read<()> {
        let buffer = buffer_id(line)?;
        let steps = line.steps()?;
        let from = self.location(line)?;
        line.skip_blanks();
        line.expect("->")?;
        let to = self.location(line)?;
        let mut link = None;
        while let Some((at, key)) = line.key()? {
            if key != "link" {
                return Err(line.fault_at(at, format!("'{key}'"), "link"));
            }
            link = Some(LinkId(id_number(line, "a link")?));
        }
        self.plan.moves.push(Move { steps, buffer, from, to, link });
        Ok(())
    }

    fn space(&mut self, line: &mut Line<'_>) -> Read<()> {
        let space = line.name("the space's name")?.into_owned();
        let mut entry = SpaceUse {
            space,
            peak: Bytes::ZERO,
            lower_bound: Bytes::ZERO,
            bound_reason: String::new(),
            capacity: None,
        };
        while let Some((at, key)) = line.key()? {
            match key {
                "peak" => entry.peak = Bytes(line.number()?),
                "lower-bound" => entry.lower_bound = Bytes(line.number()?),
                "capacity" => entry.capacity = Some(Bytes(line.number()?)),
                "because" => entry.bound_reason = line.name("a reason")?.into_owned(),
                _ => return Err(line.fault_at(at, format!("'{key}'"), "peak, lower-bound, capacity or because")),
            }
        }
        self.spaces.declare(&entry.space);
        self.plan.spaces.push(entry);
        Ok(())
    }
}

fn id_number(line: &mut Line<'_>, what: &str) -> Read<u32> {
    line.skip_blanks();
    let at = line.at;
    if !line.eat("#") {
        return Err(line.unexpected(format!("{what} by position, such as #3")));
    }
    let number = line.number()?;
    u32::try_from(number).map_err(|_| line.fault_at(at, format!("#{number}"), format!("at most #{}", u32::MAX)))
}

fn buffer_id(line: &mut Line<'_>) -> Read<BufferId> {
    id_number(line, "a buffer").map(BufferId)
}
