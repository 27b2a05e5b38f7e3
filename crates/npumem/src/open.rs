//! From a path to a noun: opens an input, finds out what it is, and reads it.

use npumem_import::onnx::{self, Model};
use npumem_import::{Format, ImportError, dsa, minimalloc, sniff};
use npumem_ir::form::FormError;
use npumem_ir::{Graph, Offset, Plan, Problem};
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Longest text input that is read; a placement problem of ten million buffers is half of it.
pub const MAX_TEXT: u64 = 1 << 30;

/// How much of an input says which format it is in.
const HEAD: u64 = 64 * 1024;

/// Why an input gives no noun.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system does not let us read it.
    #[error("{}: cannot be read: {error}", shown(.path))]
    Unreadable {
        /// The input.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is a folder.
    #[error("{}: is a folder; name one file (only 'check' takes a folder of kernels)", shown(.path))]
    Folder {
        /// The input.
        path: PathBuf,
    },
    /// It is longer than we read.
    #[error("{}: longer than {MAX_TEXT} bytes, the most that is read of a text input", shown(.path))]
    TooLong {
        /// The input.
        path: PathBuf,
    },
    /// A foreign format has a mistake in it.
    #[error("{}: {error}", shown(.path))]
    Import {
        /// The input.
        path: PathBuf,
        /// The mistake.
        error: ImportError,
    },
    /// One of our own forms has a mistake in it.
    #[error("{}: {error}", shown(.path))]
    Form {
        /// The input.
        path: PathBuf,
        /// The mistake.
        error: FormError,
    },
    /// It is something else than what is needed here.
    #[error("{}: found a {found}, expected {expected}", shown(.path))]
    WrongKind {
        /// The input.
        path: PathBuf,
        /// What it is.
        found: Format,
        /// What is needed.
        expected: &'static str,
    },
}

fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// An input, as far as it is told apart.
pub struct Opened {
    /// Where it came from.
    pub path: PathBuf,
    /// What it is.
    pub format: Format,
    source: Source,
}

enum Source {
    /// Read whole.
    Bytes(Vec<u8>),
    /// A model, of which only the small parts are read.
    File(File),
}

/// Opens an input and tells its format; `-` is standard input.
///
/// # Errors
/// [`OpenError`].
pub fn open(path: &Path) -> Result<Opened, OpenError> {
    let unreadable = |error| OpenError::Unreadable { path: path.to_path_buf(), error };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.as_os_str() != "-" {
        if path.is_dir() {
            return Err(OpenError::Folder { path: path.to_path_buf() });
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let mut head = Vec::new();
        (&mut file).take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
        // A pipe cannot go back to its start: it is read whole below.
        if matches!(sniff(&head, &name), Ok(Format::Onnx)) && file.seek(SeekFrom::Start(0)).is_ok() {
            return Ok(Opened { path: path.to_path_buf(), format: Format::Onnx, source: Source::File(file) });
        }
        if file.metadata().is_ok_and(|found| found.is_file() && found.len() > MAX_TEXT) {
            return Err(OpenError::TooLong { path: path.to_path_buf() });
        }
        let rest = Cursor::new(head).chain(file);
        return whole(path, &name, rest);
    }
    whole(path, &name, std::io::stdin().lock())
}

/// Tells the format of bytes that are already here.
///
/// # Errors
/// [`OpenError`].
pub fn open_bytes(name: &str, bytes: Vec<u8>) -> Result<Opened, OpenError> {
    whole(Path::new(name), name, Cursor::new(bytes))
}

fn whole(path: &Path, name: &str, source: impl Read) -> Result<Opened, OpenError> {
    let mut bytes = Vec::new();
    let read = source.take(MAX_TEXT + 1).read_to_end(&mut bytes);
    read.map_err(|error| OpenError::Unreadable { path: path.to_path_buf(), error })?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(OpenError::TooLong { path: path.to_path_buf() });
    }
    let format = sniff(&bytes, name).map_err(|error| OpenError::Import { path: path.to_path_buf(), error })?;
    Ok(Opened { path: path.to_path_buf(), format, source: Source::Bytes(bytes) })
}

impl Opened {
    /// The input's name without its folder: what a problem is called.
    #[must_use]
    pub fn name(&self) -> String {
        let stem = self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        stem.filter(|stem| stem != "-").unwrap_or_else(|| "input".to_owned())
    }

    /// The bytes of a text input; empty for a model that is read in parts.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Bytes(bytes) => bytes,
            Source::File(_) => &[],
        }
    }

    /// The text, its invalid parts as replacement characters: the readers then refuse them with their line.
    #[must_use]
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.bytes())
    }

    fn import(&self, error: ImportError) -> OpenError {
        OpenError::Import { path: self.path.clone(), error }
    }

    fn form(&self, error: FormError) -> OpenError {
        OpenError::Form { path: self.path.clone(), error }
    }

    fn wrong(&self, expected: &'static str) -> OpenError {
        OpenError::WrongKind { path: self.path.clone(), found: self.format, expected }
    }

    /// Whether this is a graph of any form.
    #[must_use]
    pub fn is_graph(&self) -> bool {
        matches!(self.format, Format::Onnx | Format::GraphJson | Format::GraphText)
    }

    /// Whether this is a plan of any form that is nothing besides.
    #[must_use]
    pub fn is_plan(&self) -> bool {
        matches!(self.format, Format::PlanJson | Format::PlanText | Format::DsaSolution)
    }

    /// The graph.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn graph(&mut self, options: &onnx::Options) -> Result<Model, OpenError> {
        let plain = |graph: Graph| Model { graph, folded: 0, notes: Vec::new() };
        match (self.format, &mut self.source) {
            (Format::Onnx, Source::File(file)) => onnx::read(BufReader::with_capacity(1 << 16, file), options)
                .map_err(|error| OpenError::Import { path: self.path.clone(), error }),
            (Format::Onnx, Source::Bytes(bytes)) => onnx::read(Cursor::new(bytes), options)
                .map_err(|error| OpenError::Import { path: self.path.clone(), error }),
            (Format::GraphJson, _) => Graph::from_json(&self.text()).map(plain).map_err(|error| self.form(error)),
            (Format::GraphText, _) => Graph::from_text(&self.text()).map(plain).map_err(|error| self.form(error)),
            _ => Err(self.wrong("a model")),
        }
    }

    /// The placement problem; an `offset` of a MiniMalloc CSV is a pin.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn problem(&self) -> Result<Problem, OpenError> {
        match self.format {
            Format::MinimallocCsv => {
                let document = minimalloc::read(self.bytes(), &self.name()).map_err(|error| self.import(error))?;
                Ok(document.into_problem())
            }
            Format::ProblemJson => Problem::from_json(&self.text()).map_err(|error| self.form(error)),
            Format::ProblemText => Problem::from_text(&self.text()).map_err(|error| self.form(error)),
            Format::DsaProblem => Ok(dsa::read(self.bytes()).map_err(|error| self.import(error))?.problem),
            _ => Err(self.wrong("a placement problem or a model")),
        }
    }

    /// A problem and the plan that the same file states (a MiniMalloc CSV with offsets).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn problem_and_plan(&self) -> Result<(Problem, Plan), OpenError> {
        match self.format {
            Format::MinimallocCsv => minimalloc::read(self.bytes(), &self.name())
                .and_then(minimalloc::Document::into_plan)
                .map_err(|error| self.import(error)),
            _ => Err(self.wrong("a MiniMalloc CSV with offsets, or a second file with the plan")),
        }
    }

    /// The problem alone, where the file may state offsets beside it: they are dropped, as a plan of its own follows.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn problem_without_offsets(&self) -> Result<Problem, OpenError> {
        match self.format {
            Format::MinimallocCsv => {
                let document = minimalloc::read(self.bytes(), &self.name()).map_err(|error| self.import(error))?;
                Ok(document.problem)
            }
            _ => self.problem(),
        }
    }

    /// A plan for the problem that `of` was read as.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn plan(&self, of: &Opened, problem: &Problem) -> Result<Plan, OpenError> {
        match self.format {
            Format::PlanJson => Plan::from_json(&self.text()).map_err(|error| self.form(error)),
            Format::PlanText => Plan::from_text(&self.text()).map_err(|error| self.form(error)),
            Format::MinimallocCsv => {
                let (stated, plan) = self.problem_and_plan()?;
                self.by_name(problem, &stated, &plan)
            }
            Format::DsaSolution if of.format == Format::DsaProblem => {
                let document = dsa::read(of.bytes()).map_err(|error| of.import(error))?;
                let solution = document.read_solution(self.bytes()).map_err(|error| self.import(error))?;
                let mut plan = solution.plan;
                if !solution.fingerprint_matches {
                    // A digest that no problem has: whoever compares it says that the plan is of another statement.
                    plan.origin.digest = "foreign fingerprint".to_owned();
                }
                Ok(plan)
            }
            Format::DsaSolution => Err(of.wrong("the dsa-problem that the solution answers")),
            _ => Err(self.wrong("a plan")),
        }
    }

    /// The plan of a CSV, whose rows may stand in another order than the problem's.
    fn by_name(&self, problem: &Problem, stated: &Problem, plan: &Plan) -> Result<Plan, OpenError> {
        let offsets: std::collections::HashMap<&str, Offset> = stated
            .buffers()
            .filter_map(|(id, buffer)| Some((buffer.name.as_str(), plan.residencies_of(id).first()?.offset)))
            .collect();
        let missing = |name: &str| {
            let error = ImportError::new(npumem_import::ErrorKind::Missing, format!("buffer '{name}'"))
                .expected("an offset: the problem has this buffer and the plan does not");
            self.import(error)
        };
        let mut plan = Plan { residencies: Vec::with_capacity(problem.buffers.len()), ..plan.clone() };
        plan.problem.clone_from(&problem.name);
        for (id, buffer) in problem.buffers() {
            let (Some(offset), Some(steps)) = (offsets.get(buffer.name.as_str()), buffer.lifetime()) else {
                return Err(missing(&buffer.name));
            };
            let space = buffer.spaces.first().copied().unwrap_or(npumem_ir::SpaceId(0));
            plan.residencies.push(npumem_ir::Residency { buffer: id, space, offset: *offset, steps });
        }
        Ok(plan)
    }
}
