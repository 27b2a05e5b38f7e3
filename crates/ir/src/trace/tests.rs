//! The binary form: back and forth, cut anywhere, damaged, foreign.

use super::*;

fn sample() -> Trace {
    let mut trace = Trace {
        header: TraceHeader {
            clock: Clock::Microseconds,
            origin: "test".to_owned(),
            device: Some("ascend-910b2".to_owned()),
            spaces: vec!["hbm".to_owned(), "l1".to_owned()],
        },
        ..Trace::default()
    };
    let step = trace.name("step");
    let frame = Frame { function: "train".to_owned(), file: "train.py".to_owned(), line: 7 };
    let stack = trace.stack(&[frame.clone(), Frame { function: "main".to_owned(), file: String::new(), line: 0 }]);
    let (one, two) = (BlockId(1), BlockId(u64::MAX));
    let whats = [
        What::Mark { name: step },
        What::Allocate {
            block: one,
            space: SpaceId(0),
            offset: Offset(512),
            requested: Bytes(700),
            granted: Bytes(1024),
        },
        What::Allocate {
            block: two,
            space: SpaceId(1),
            offset: Offset(u64::MAX),
            requested: Bytes(1),
            granted: Bytes(u64::MAX),
        },
        What::Use { block: one, write: true },
        What::Use { block: one, write: false },
        What::Copy { from: one, to: two, bytes: Bytes(700), engine: EngineId(3), end: 1_000_050 },
        What::Run { name: step, engine: EngineId(1), end: 2_000_000 },
        What::SegmentTaken { space: SpaceId(0), offset: Offset(1 << 40), bytes: Bytes(2 << 20) },
        What::OutOfMemory { space: SpaceId(0), requested: Bytes(5), free: Bytes(4) },
        What::Free { block: one },
        What::Freed { block: one },
        What::SegmentReturned { space: SpaceId(0), offset: Offset(1 << 40), bytes: Bytes(2 << 20) },
    ];
    for (index, what) in whats.into_iter().enumerate() {
        trace.event(TraceEvent {
            time: 1_000_000 + index as u64,
            stream: StreamId(index as u32 % 3),
            stack: index.is_multiple_of(2).then_some(stack),
            what,
        });
    }
    trace
}

fn long(events: u64) -> Trace {
    let mut trace = sample();
    let last = trace.events.last().map_or(0, |event| event.time);
    for index in 0..events {
        let what = What::Allocate {
            block: BlockId(index),
            space: SpaceId(0),
            offset: Offset(index * 512),
            requested: Bytes(index % 7000 + 1),
            granted: Bytes(index % 7000 + 512),
        };
        trace.event(TraceEvent { time: last + index, stream: StreamId(0), stack: None, what });
    }
    trace
}

#[test]
fn every_kind_of_event_comes_back() {
    let trace = sample();
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    assert_eq!(Trace::read(&bytes[..]).unwrap(), (trace, Ending::Whole));
}

#[test]
fn a_long_trace_comes_back_in_about_ten_bytes_an_event() {
    let trace = long(100_000);
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    assert!(bytes.len() < 100_000 * 13, "{} bytes", bytes.len());
    assert_eq!(Trace::read(&bytes[..]).unwrap(), (trace, Ending::Whole));
}

#[test]
fn a_trace_cut_anywhere_opens_and_keeps_every_whole_chunk() {
    let trace = long(20_000);
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    let first_chunk = 18 + u32::from_le_bytes(bytes[10..14].try_into().unwrap()) as usize;
    let mut seen = 0;
    for cut in (0..bytes.len()).step_by(997).chain([first_chunk - 1, first_chunk, bytes.len() - 1]) {
        match Trace::read(&bytes[..cut]) {
            Ok((read, ending)) => {
                assert!(cut >= first_chunk);
                assert_eq!(read.events, trace.events[..read.events.len()], "cut at {cut}");
                assert_eq!(ending == Ending::Whole, cut == first_chunk, "cut at {cut}: {ending:?}");
                seen = seen.max(read.events.len());
            }
            Err(TraceError::NoTrace) => assert!(cut < first_chunk, "cut at {cut}"),
            Err(other) => panic!("cut at {cut}: {other}"),
        }
    }
    // Only the last chunk is lost: 64 KiB hold some thousand events.
    assert!(seen > 10_000, "{seen}");
}

#[test]
fn damage_ends_the_trace_and_never_panics() {
    let trace = long(3_000);
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    let mut state = 1_u64;
    for _ in 0..2_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut damaged = bytes.clone();
        let position = (state >> 20) as usize % damaged.len();
        damaged[position] ^= (state >> 12) as u8 | 1;
        if let Ok((read, ending)) = Trace::read(&damaged[..]) {
            assert!(ending != Ending::Whole, "byte {position}");
            assert!(read.events.len() < trace.events.len());
        }
    }
}

#[test]
fn records_that_make_no_sense_are_refused_with_their_place() {
    let mut start = Vec::new();
    Trace::default().write(&mut start).unwrap();
    let with = |records: &[u8]| {
        let mut bytes = start.clone();
        bytes.extend_from_slice(&(records.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(records).to_le_bytes());
        bytes.extend_from_slice(records);
        Trace::read(&bytes[..])
    };
    let too_long = [&[2, 0][..], &[0xff; 12]].concat();
    let cases: [(&[u8], &str); 6] = [
        (&[20, 0], "a kind that"),
        (&[11, 0, 5], "name that was not defined"),
        (&[2 | 64, 0, 9, 1], "stack that was not defined"),
        (&[1, 0, 2], "past the end of its chunk"),
        (&[33, 100], "more frames than bytes"),
        (&too_long, "past 64 bits"),
    ];
    for (records, problem) in cases {
        match with(records) {
            Err(error @ TraceError::Record { chunk, .. }) => {
                assert!(error.to_string().contains(problem), "{error}");
                assert_eq!(chunk, start.len() as u64);
            }
            other => panic!("{records:?} gave {other:?}"),
        }
    }
}

#[test]
fn foreign_files_and_later_versions_are_refused() {
    assert!(matches!(Trace::read(&b"PK\x03\x04 something else"[..]), Err(TraceError::NoTrace)));
    assert!(matches!(Trace::read(&b""[..]), Err(TraceError::NoTrace)));
    let mut bytes = Vec::new();
    sample().write(&mut bytes).unwrap();
    bytes[8] = 9;
    assert!(matches!(Trace::read(&bytes[..]), Err(TraceError::Version { found: 9, known: 1 })));
}

#[test]
fn what_is_flushed_is_readable_while_the_writer_lives() {
    let folder = std::env::temp_dir().join(format!("npumem-trace-{}", std::process::id()));
    let mut writer = TraceWriter::new(std::fs::File::create(&folder).unwrap(), &TraceHeader::default()).unwrap();
    let event = TraceEvent { time: 1, stream: StreamId(0), stack: None, what: What::Free { block: BlockId(4) } };
    writer.event(event);
    writer.flush().unwrap();
    writer.event(event);
    let (read, ending) = Trace::read(std::fs::File::open(&folder).unwrap()).unwrap();
    assert_eq!((read.events.len(), ending), (1, Ending::Whole));
    drop(writer);
    let (read, _) = Trace::read(std::fs::File::open(&folder).unwrap()).unwrap();
    assert_eq!(read.events.len(), 2);
    std::fs::remove_file(&folder).unwrap();
}
