//! A protobuf file without its weights: the same message, big payloads left out, read front to back.
//!
//! ```text
//!   file:  [tag len [graph ... [initializer dims type raw_data(98 MB) name] ...]]
//!   slim:  [tag len [graph ... [initializer dims type                 name] ...]]
//! ```
//! Nothing is allocated for a length that a file claims: a length is first held against what encloses it,
//! and payloads past [`PAYLOAD`] bytes are seeked over. The slim bytes are a well-formed message of their own,
//! so the decoder behind needs no care for sizes; its memory is estimated here, before it is spent.

use super::proto;
use crate::{ErrorKind, ImportError};
use std::io::{BufRead, BufReader, ErrorKind as IoKind, Read, Seek, SeekFrom};
use std::mem::size_of;

/// The elements of a tensor are kept up to this many bytes: enough for axes, pads and target shapes.
const PAYLOAD: u64 = 4 << 10;
/// The integers or numbers of an attribute are kept up to this many bytes.
const LIST: u64 = 64 << 10;
/// The longest name that is read.
const NAME: u64 = 64 << 10;
/// Messages inside messages, at most; a body of a body of ... costs three levels each.
const DEPTH: usize = 64;
/// What the decoded messages may take beyond a multiple of the slim bytes.
const MEMORY: u64 = 32 << 20;

/// What a field holds.
#[derive(Clone, Copy)]
enum Holds {
    Message(Kind),
    Text,
    /// Bytes that are of use only when few.
    Bytes,
    /// A scalar, or a list of few scalars, packed or not: the wire type of one, and the bytes that are kept.
    Scalar(u8),
    List(u8, u64),
}

#[derive(Clone, Copy)]
enum Kind {
    Model,
    OperatorSet,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    ValueInfo,
    Type,
    TensorType,
    ElementOf,
    Anything,
    Shape,
    Dimension,
    Function,
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const DELIMITED: u8 = 2;
const FIXED32: u8 = 5;

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Model => "the model",
            Kind::OperatorSet => "an operator set",
            Kind::Graph => "a graph",
            Kind::Node => "a node",
            Kind::Attribute => "an attribute",
            Kind::Tensor => "a tensor",
            Kind::Sparse => "a sparse tensor",
            Kind::ValueInfo => "a value's description",
            Kind::Type | Kind::TensorType | Kind::ElementOf | Kind::Anything => "a type",
            Kind::Shape => "a shape",
            Kind::Dimension => "a dimension",
            Kind::Function => "a function",
        }
    }

    /// What the decoded message takes, without its parts; lists of messages grow by doubling.
    const fn cost(self) -> u64 {
        (match self {
            Kind::Model => size_of::<proto::Model>(),
            Kind::OperatorSet => 2 * size_of::<proto::OperatorSet>(),
            Kind::Graph => 2 * size_of::<proto::Graph>(),
            Kind::Node => 2 * size_of::<proto::Node>(),
            Kind::Attribute => 2 * size_of::<proto::Attribute>(),
            Kind::Tensor => 2 * size_of::<proto::Tensor>(),
            Kind::Sparse => 2 * size_of::<proto::SparseTensor>(),
            Kind::ValueInfo => 2 * size_of::<proto::ValueInfo>(),
            Kind::Type | Kind::TensorType | Kind::ElementOf | Kind::Anything => size_of::<proto::Type>(),
            Kind::Shape => size_of::<proto::Shape>(),
            Kind::Dimension => 2 * size_of::<proto::Dimension>(),
            Kind::Function => 2 * size_of::<proto::Function>(),
        }) as u64
    }

    /// What a field of this message holds; `None` for what npumem does not read.
    const fn field(self, number: u64) -> Option<Holds> {
        use Holds::{Bytes, List, Message, Scalar, Text};
        Some(match (self, number) {
            (Kind::Model, 1) => Scalar(VARINT),
            (Kind::Model, 2) => Text,
            (Kind::Model, 7) => Message(Kind::Graph),
            (Kind::Model, 8) | (Kind::Function, 9) => Message(Kind::OperatorSet),
            (Kind::Model, 25) => Message(Kind::Function),
            (Kind::OperatorSet, 1) => Text,
            (Kind::OperatorSet, 2) => Scalar(VARINT),
            (Kind::Graph, 1) | (Kind::Function, 7) => Message(Kind::Node),
            (Kind::Graph, 2) => Text,
            (Kind::Graph, 5) => Message(Kind::Tensor),
            (Kind::Graph, 11..=13) | (Kind::Function, 12) => Message(Kind::ValueInfo),
            (Kind::Graph, 15) => Message(Kind::Sparse),
            (Kind::Node, 1..=4 | 7 | 8) => Text,
            (Kind::Node, 5) | (Kind::Function, 11) => Message(Kind::Attribute),
            (Kind::Attribute, 1 | 21) => Text,
            (Kind::Attribute, 2) => Scalar(FIXED32),
            (Kind::Attribute, 3 | 20) => Scalar(VARINT),
            (Kind::Attribute, 4 | 9) => Bytes,
            (Kind::Attribute, 5) => Message(Kind::Tensor),
            (Kind::Attribute, 6 | 11) => Message(Kind::Graph),
            (Kind::Attribute, 7) => List(FIXED32, LIST),
            (Kind::Attribute, 8) => List(VARINT, LIST),
            (Kind::Attribute, 14) => Message(Kind::Type),
            (Kind::Attribute, 22) => Message(Kind::Sparse),
            (Kind::Tensor, 1) => List(VARINT, PAYLOAD),
            (Kind::Tensor, 2 | 14) => Scalar(VARINT),
            (Kind::Tensor, 4) => List(FIXED32, PAYLOAD),
            (Kind::Tensor, 5 | 7 | 11) => List(VARINT, PAYLOAD),
            (Kind::Tensor, 8) => Text,
            (Kind::Tensor, 9) => Bytes,
            (Kind::Tensor, 10) => List(FIXED64, PAYLOAD),
            (Kind::Sparse, 1 | 2) => Message(Kind::Tensor),
            (Kind::Sparse, 3) => List(VARINT, PAYLOAD),
            (Kind::ValueInfo, 1) => Text,
            (Kind::ValueInfo, 2) => Message(Kind::Type),
            (Kind::Type, 1 | 8) => Message(Kind::TensorType),
            (Kind::Type, 4 | 9) => Message(Kind::ElementOf),
            (Kind::Type, 5 | 7) => Message(Kind::Anything),
            (Kind::TensorType, 1) => Scalar(VARINT),
            (Kind::TensorType, 2) => Message(Kind::Shape),
            (Kind::ElementOf, 1) => Message(Kind::Type),
            (Kind::Shape, 1) => Message(Kind::Dimension),
            (Kind::Dimension, 1) => Scalar(VARINT),
            (Kind::Dimension, 2) => Text,
            (Kind::Function, 1 | 4..=6 | 10 | 13) => Text,
            _ => return None,
        })
    }
}

/// A message that is being read.
struct Level {
    kind: Kind,
    /// Where it ends in the file.
    end: u64,
    /// Where its length stands in the slim bytes; the outermost has none.
    length_at: Option<usize>,
    /// Payload bytes kept so far.
    kept: u64,
}

/// The file's message with payloads over a few KiB left out.
///
/// # Errors
/// A message that is not well-formed protobuf or ends early, with the byte; one past a limit; a failing read.
pub fn slim<R: Read + Seek>(source: R) -> Result<Vec<u8>, ImportError> {
    let mut walk = Walk::open(source)?;
    let mut levels = vec![Level { kind: Kind::Model, end: walk.end, length_at: None, kept: 0 }];
    while let Some(level) = levels.last_mut() {
        if walk.at == level.end {
            if let Some(length_at) = level.length_at {
                walk.patch_length(length_at);
            }
            levels.pop();
            continue;
        }
        if let Some(inner) = walk.field(level)? {
            if levels.len() == DEPTH {
                return Err(ImportError::new(ErrorKind::Limit, "the model")
                    .at_byte(walk.at)
                    .found(format!("messages nested more than {DEPTH} deep"))
                    .expected(format!("at most {DEPTH} levels, which is {} bodies inside each other", DEPTH / 3)));
            }
            levels.push(inner);
        }
    }
    Ok(walk.out)
}

struct Walk<R> {
    source: BufReader<R>,
    at: u64,
    end: u64,
    out: Vec<u8>,
    cost: u64,
}

impl<R: Read + Seek> Walk<R> {
    fn open(mut source: R) -> Result<Self, ImportError> {
        let io = |error| read_failed(&error, 0);
        let end = source.seek(SeekFrom::End(0)).map_err(io)?;
        source.seek(SeekFrom::Start(0)).map_err(io)?;
        Ok(Walk { source: BufReader::with_capacity(64 << 10, source), at: 0, end, out: Vec::new(), cost: 0 })
    }

    /// Reads one field; a message that is of use is returned, to be read next.
    fn field(&mut self, level: &mut Level) -> Result<Option<Level>, ImportError> {
        let start = self.at;
        let tag = self.varint(level)?;
        let (number, wire) = (tag >> 3, (tag & 7) as u8);
        if number == 0 || tag > u64::from(u32::MAX) {
            return Err(syntax(level, start).found(format!("field number {number}")).expected("one of the format's"));
        }
        let holds = level.kind.field(number);
        let fits = match holds {
            None => matches!(wire, VARINT | FIXED64 | DELIMITED | FIXED32),
            Some(Holds::Message(_) | Holds::Text | Holds::Bytes) => wire == DELIMITED,
            Some(Holds::Scalar(scalar)) => wire == scalar,
            Some(Holds::List(scalar, _)) => wire == scalar || wire == DELIMITED,
        };
        if !fits {
            return Err(syntax(level, start)
                .found(format!("wire type {wire} for field {number}"))
                .expected("the type that ONNX gives this field")
                .hint("is this an ONNX file?"));
        }
        let length = match wire {
            VARINT => return self.scalar(level, tag, holds).map(|()| None),
            FIXED64 => 8,
            FIXED32 => 4,
            _ => self.varint(level)?,
        };
        if length > level.end - self.at {
            return Err(syntax(level, start)
                .found(format!("field {number} of {length} bytes, where {} are left", level.end - self.at))
                .expected("a length that fits")
                .hint("the file is truncated or damaged: fetch or export it again"));
        }
        match holds {
            None => self.skip(length)?,
            Some(Holds::Message(kind)) => {
                self.spend(kind.cost(), start)?;
                put_varint(&mut self.out, tag);
                let length_at = self.out.len();
                self.out.extend([0; 5]);
                return Ok(Some(Level { kind, end: self.at + length, length_at: Some(length_at), kept: 0 }));
            }
            Some(Holds::Text) => self.text(level, tag, length, start)?,
            Some(Holds::Bytes) => self.keep(level, tag, wire, length, PAYLOAD, start)?,
            Some(Holds::Scalar(_)) => self.keep(level, tag, wire, length, u64::MAX, start)?,
            Some(Holds::List(_, most)) => self.keep(level, tag, wire, length, most, start)?,
        }
        Ok(None)
    }

    /// A varint value: kept when it is of use and few.
    fn scalar(&mut self, level: &mut Level, tag: u64, holds: Option<Holds>) -> Result<(), ImportError> {
        let start = self.at;
        let value = self.varint(level)?;
        let most = match holds {
            None => return Ok(()),
            Some(Holds::List(_, most)) => most,
            Some(_) => u64::MAX,
        };
        level.kept += self.at - start;
        if level.kept <= most {
            self.spend(16, start)?;
            put_varint(&mut self.out, tag);
            put_varint(&mut self.out, value);
        }
        Ok(())
    }

    fn text(&mut self, level: &Level, tag: u64, length: u64, start: u64) -> Result<(), ImportError> {
        if length > NAME {
            return Err(ImportError::new(ErrorKind::Limit, level.kind.name())
                .at_byte(start)
                .found(format!("a name of {length} bytes"))
                .expected(format!("at most {NAME}")));
        }
        self.spend(2 * size_of::<String>() as u64 + 16 + length, start)?;
        put_varint(&mut self.out, tag);
        put_varint(&mut self.out, length);
        let from = self.out.len();
        self.copy(length)?;
        if std::str::from_utf8(&self.out[from..]).is_err() {
            return Err(syntax(level, start).found("a name that is not UTF-8").expected("text"));
        }
        Ok(())
    }

    fn keep(
        &mut self,
        level: &mut Level,
        tag: u64,
        wire: u8,
        length: u64,
        most: u64,
        start: u64,
    ) -> Result<(), ImportError> {
        level.kept = level.kept.saturating_add(length);
        if level.kept > most {
            return self.skip(length);
        }
        // A packed varint of one byte becomes eight; lists grow by doubling.
        let growth = match level.kind.field(tag >> 3) {
            Some(Holds::List(VARINT, _)) if wire == DELIMITED => 16,
            Some(Holds::List(..)) => 4,
            _ => 1,
        };
        self.spend(growth * length + 2 * size_of::<Vec<u8>>() as u64, start)?;
        put_varint(&mut self.out, tag);
        if wire == DELIMITED {
            put_varint(&mut self.out, length);
        }
        self.copy(length)
    }

    /// Counts what the decoded form will take, and refuses a file that would take out of proportion to its size.
    fn spend(&mut self, bytes: u64, at: u64) -> Result<(), ImportError> {
        self.cost += bytes;
        let most = MEMORY + 10 * self.out.len() as u64;
        if self.cost > most {
            return Err(ImportError::new(ErrorKind::Limit, "the model")
                .at_byte(at)
                .found(format!("parts that would take {} bytes of memory so far", self.cost))
                .expected(format!("at most {most}, ten times the bytes read and 32 MiB"))
                .hint("the file holds masses of empty parts: it is damaged or hostile"));
        }
        Ok(())
    }

    fn varint(&mut self, level: &Level) -> Result<u64, ImportError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            if self.at == level.end {
                return Err(syntax(level, start)
                    .found("the end of the message inside of a number")
                    .expected("more bytes")
                    .hint("the file is truncated or damaged: fetch or export it again"));
            }
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(syntax(level, start).found("a number past 64 bits").expected("at most ten bytes"))
    }

    fn byte(&mut self) -> Result<u8, ImportError> {
        let at = self.at;
        let buffer = self.source.fill_buf().map_err(|error| read_failed(&error, at))?;
        let byte = *buffer.first().ok_or_else(|| read_failed(&IoKind::UnexpectedEof.into(), at))?;
        self.source.consume(1);
        self.at += 1;
        Ok(byte)
    }

    fn copy(&mut self, length: u64) -> Result<(), ImportError> {
        let read = (&mut self.source).take(length).read_to_end(&mut self.out);
        match read {
            Ok(read) if read as u64 == length => {}
            Ok(_) => return Err(read_failed(&IoKind::UnexpectedEof.into(), self.at)),
            Err(error) => return Err(read_failed(&error, self.at)),
        }
        self.at += length;
        Ok(())
    }

    fn skip(&mut self, length: u64) -> Result<(), ImportError> {
        let past = |_| read_failed(&IoKind::InvalidInput.into(), self.at);
        let distance = i64::try_from(length).map_err(past)?;
        self.source.seek_relative(distance).map_err(|error| read_failed(&error, self.at))?;
        self.at += length;
        Ok(())
    }

    /// Writes the length of the message that ends here: five bytes always, so that it can be known last.
    fn patch_length(&mut self, length_at: usize) {
        let length = self.out.len() - length_at - 5;
        for (index, byte) in self.out[length_at..length_at + 5].iter_mut().enumerate() {
            let more = if index < 4 { 0x80 } else { 0 };
            *byte = (length >> (7 * index)) as u8 & 0x7f | more;
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn syntax(level: &Level, at: u64) -> ImportError {
    ImportError::new(ErrorKind::Syntax, level.kind.name()).at_byte(at)
}

fn read_failed(error: &std::io::Error, at: u64) -> ImportError {
    ImportError::new(ErrorKind::Syntax, "the file").at_byte(at).found(format!("a failing read: {error}"))
}
