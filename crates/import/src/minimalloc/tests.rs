//! Every spelling, every refusal with its line, both directions, and the real files.

use super::*;
use npumem_ir::interval::Interval;
use npumem_ir::problem::LiveRange;
use npumem_ir::{Alignment, Buffer, Space, StepRange};
use npumem_testing::{Random, files_under, shared};

fn sound(csv: &str) -> Document {
    read(csv.as_bytes(), "test").unwrap_or_else(|error| panic!("{csv}: {error}"))
}

/// Start, end and window.
type Range = (u64, u64, Option<(u64, u64)>);

fn live(ranges: &[Range]) -> Vec<LiveRange> {
    let window = |(low, high)| Interval { start: Offset(low), end: Offset(high) };
    ranges
        .iter()
        .map(|(start, end, w)| LiveRange { steps: StepRange::steps(*start, *end), window: w.map(window) })
        .collect()
}

#[test]
fn every_spelling_is_the_same_problem() {
    let plain = sound("id,lower,upper,size\na,0,3,64\nb,3,8,32\n");
    assert_eq!(plain.problem.buffers[1], Buffer::new("b", Bytes(32), StepRange::steps(3, 8), SpaceId(0)));
    assert_eq!((plain.problem.spaces[0].name.as_str(), plain.offsets.len()), (SPACE, 0));
    for other in [
        "size,buffer,start,end\n64,a,0,2\n32,b,3,7",
        "\u{feff}buffer_id,begin,upper,size\r\na,0,3,64\r\n\r\nb,3,8,32\r\n",
        "\n\n id , lower,upper ,size\n  \na, 0,3 ,64\n\"b\",3,8,32\n\n",
        "id,lower,upper,size,alignment,hint,gaps\na,0,3,64,,,\nb,3,8,32,1,, \n",
    ] {
        assert_eq!(sound(other), plain, "{other:?}");
    }
}

#[test]
fn gaps_cut_the_lifetime_and_windows_narrow_it() {
    let document = sound("id,lower,upper,size,gaps\na,0,10,64,6-7@0:32 2-4\nb,0,10,64,0-3\nc,0,9,64,8-9@8:64");
    let buffers = &document.problem.buffers;
    assert_eq!(buffers[0].live, live(&[(0, 2, None), (4, 6, None), (6, 7, Some((0, 32))), (7, 10, None)]));
    assert_eq!(buffers[1].live, live(&[(3, 10, None)]));
    assert_eq!(buffers[2].live, live(&[(0, 8, None), (8, 9, Some((8, 64)))]));
    // The end of a gap is inclusive where the column is called `end`.
    let inclusive = sound("id,start,end,size,gaps\na,0,9,64,6-6@0:32 2-3\n");
    assert_eq!(inclusive.problem.buffers[0].live, buffers[0].live);
}

#[test]
fn offsets_are_pins_for_plan_and_the_plan_for_check() {
    let document = sound("id,lower,upper,size,offset,hint\na,0,3,64,0,\nb,2,8,32,64,96\n");
    let problem = document.clone().into_problem();
    assert_eq!(problem.buffers[1].pin, Some(Location { space: SpaceId(0), offset: Offset(64) }));
    assert_eq!(problem.buffers[1].hint, Some(Location { space: SpaceId(0), offset: Offset(96) }));
    let (problem, plan) = document.into_plan().unwrap();
    assert_eq!(problem.buffers[1].pin, None);
    assert_eq!(plan.spaces[0].peak, Bytes(96));
    assert_eq!(plan.residencies[1].steps, StepRange::steps(2, 8));
    assert_eq!(plan.origin.digest, problem.digest());

    let some = sound("id,lower,upper,size,offset\na,0,3,64,\nb,2,8,32,64\n");
    assert_eq!(some.clone().into_problem().buffers[0].pin, None);
    assert!(some.into_plan().unwrap_err().to_string().contains("buffer 'a', column 'offset'"));
    let none = sound("id,lower,upper,size\na,0,3,64\n").into_plan().unwrap_err().to_string();
    assert!(none.contains("line 1, column 'offset'"), "{none}");
}

#[test]
fn every_refusal_names_line_column_and_value() {
    let h = "id,lower,upper,size\n";
    let cases = [
        (String::new(), "line 1, header: found an empty file"),
        ("\u{feff}\n\n".into(), "found an empty file"),
        ("id,lower,upper\n".into(), "line 1, header: found columns 'id,lower,upper', expected also a column size"),
        ("id,lower,upper,size,colour\n".into(), "line 1, header: found column 'colour', expected id (or"),
        ("id;lower;upper;size\n".into(), "separated by commas"),
        ("id,lower,upper,end,size\n".into(), "found columns 'upper' and 'end', expected one of them"),
        (format!("{h}a,0,3\n"), "line 2, row: found 3 cells, expected 4"),
        (format!("{h}a,0,3,64,\n"), "line 2, row: found 5 cells, expected 4"),
        (
            format!("{h}a,0,3,64\n\n\n \nb,-1,3,64\n"),
            "line 6, column 'lower': found '-1', expected a whole number of at least 0",
        ),
        (format!("{h}a,3,1,64\n"), "line 2, column 'upper': found '1', expected more than the 3 of column 'lower'"),
        (format!("{h}a,3,3,64\n"), "line 2, column 'upper': found '3', expected more than the 3"),
        ("id,start,end,size\na,3,2,64\n".into(), "column 'end': found '2', expected at least the 3 of column 'start'"),
        ("id,start,end,size\na,0,18446744073709551615,1\n".into(), "expected an inclusive end below"),
        (
            format!("{h}a,0,3,18446744073709551616\n"),
            "column 'size': found '18446744073709551616', expected a number of 64 bits",
        ),
        (format!("{h}a,0,3,1e6\n"), "column 'size': found '1e6', expected a whole number"),
        (format!("{h}a,0,,4\n"), "column 'upper': found an empty cell, expected a number"),
        (format!("{h},0,3,4\n"), "column 'id': found an empty cell, expected a name"),
        (format!("{h}a,0,3,4\r\n\r\nb,0,3,4\r\na,5,6,7\r\n"), "line 5, column of ids: found 'a' a second time"),
        (
            format!("{h}a,0,3,18446744073709551615\nb,0,3,1\n"),
            "problem: found the sizes of the buffers add up past 64 bits",
        ),
        ("id,lower,upper,size,alignment\na,0,3,4,0\n".into(), "column 'alignment': found '0', expected at least 1"),
        ("id,lower,upper,size,offset\na,0,3,4,-1\n".into(), "leave the cell empty"),
        ("id,lower,upper,size,offset\na,0,3,4,18446744073709551615\n".into(), "whose 4 bytes end within 64 bits"),
        ("id,lower,upper,size,gaps\na,0,9,4,2\n".into(), "expected gaps such as 2-4 or 6-7@0:32"),
        ("id,lower,upper,size,gaps\na,0,9,4,2-4@3\n".into(), "expected gaps such as"),
        ("id,lower,upper,size,gaps\na,0,9,4,4-4\n".into(), "'4-4' does not"),
        ("id,lower,upper,size,gaps\na,0,9,4,4-10\n".into(), "lie within [0, 9), but '4-10' does not"),
        ("id,lower,upper,size,gaps\na,0,9,4,2-4 3-5\n".into(), "gaps that do not overlap, but [3, 5) does"),
        ("id,lower,upper,size,gaps\na,0,9,4,0-9\n".into(), "expected gaps that leave a step"),
        ("id,lower,upper,size,gaps\na,0,9,4,2-4@2:5\n".into(), "lie within [0, 4), but [2, 5) does not"),
        ("id,lower,upper,size,gaps\na,0,9,4,2-4@2:2\n".into(), "windows that hold a byte"),
        ("id,lower,upper,size,gaps\na,0,9,4,2-x\n".into(), "column 'gaps': found '2-x', expected a whole number"),
    ];
    for (csv, expected) in cases {
        let error = read(csv.as_bytes(), "test").expect_err(&csv).to_string();
        assert!(error.contains(expected), "{csv:?}\n  {error:?}\n  lacks {expected:?}");
    }
    let error = read(b"id,lower,upper,size\na,0,1,1\n\xff\xfe,0,3,4\n", "").unwrap_err().to_string();
    assert!(error.contains("line 3, column 'id'") && error.contains("UTF-8"), "{error}");
}

fn random_problem(random: &mut Random) -> Problem {
    let mut problem = Problem { spaces: vec![Space::unbounded(SPACE)], ..Problem::default() };
    for index in 0..random.below(20) {
        let size = 1 + random.below(1 << 30);
        let mut at = random.below(100);
        let mut ranges: Vec<Range> = Vec::new();
        for _ in 0..1 + random.below(3) {
            let window = random.one_in(3).then(|| random.below(size)).map(|low| (low, size));
            // Two whole ranges that touch are one in CSV.
            let touches = ranges.last().is_some_and(|last| last.1 == at && last.2.is_none() && window.is_none());
            let start = at + u64::from(touches) + random.below(3);
            at = start + 1 + random.below(9);
            ranges.push((start, at, window));
        }
        let mut buffer = Buffer::new(format!("b,{index}\""), Bytes(size), StepRange::steps(0, 1), SpaceId(0));
        buffer.live = live(&ranges);
        buffer.alignment = Alignment::new(1 + random.below(2) * 31).unwrap();
        buffer.hint = random.one_in(4).then_some(Location { space: SpaceId(0), offset: Offset(random.below(99)) });
        buffer.pin = random.one_in(4).then_some(Location { space: SpaceId(0), offset: Offset(random.below(99)) });
        problem.buffers.push(buffer);
    }
    problem
}

#[test]
fn generated_problems_go_through_csv() {
    let mut random = Random(7);
    for _ in 0..300 {
        let problem = random_problem(&mut random);
        let csv = write(&problem, None).unwrap();
        let again = read(&csv, "").unwrap_or_else(|error| panic!("{}\n{error}", String::from_utf8_lossy(&csv)));
        assert_eq!(again.into_problem(), problem, "{}", String::from_utf8_lossy(&csv));
    }
}

#[test]
fn offsets_are_added_to_the_file_as_it_was() {
    let csv = "size,buffer,start,end,gaps\r\n64,\"a,b\",0,2,\r\n\r\n32,b,3,7,4-4@0:16\r\n";
    let problem = sound(csv).into_problem();
    let plan = Plan {
        residencies: vec![
            Residency {
                buffer: npumem_ir::BufferId(0),
                space: SpaceId(0),
                offset: Offset(32),
                steps: StepRange::steps(0, 3),
            },
            Residency {
                buffer: npumem_ir::BufferId(1),
                space: SpaceId(0),
                offset: Offset(0),
                steps: StepRange::steps(3, 8),
            },
        ],
        ..Plan::default()
    };
    let out = String::from_utf8(add_offsets(csv.as_bytes(), &plan).unwrap()).unwrap();
    assert_eq!(out, "size,buffer,start,end,gaps,offset\r\n64,\"a,b\",0,2,,32\r\n32,b,3,7,4-4@0:16,0\r\n");
    let (again, read_back) = sound(&out).into_plan().unwrap();
    assert_eq!((again, read_back.residencies), (problem, plan.residencies.clone()));
    // An offset column that is already there is filled in place.
    let csv = "id,offset,lower,upper,size\na,,0,3,64\nb,7,3,8,32\n";
    let out = String::from_utf8(add_offsets(csv.as_bytes(), &plan).unwrap()).unwrap();
    assert_eq!(out, "id,offset,lower,upper,size\na,32,0,3,64\nb,0,3,8,32\n");
    let error = add_offsets(b"id,lower,upper,size\na,0,1,1\nb,0,1,1\nc,0,1,1\n", &plan).unwrap_err().to_string();
    assert!(error.contains("buffer #2 'c'"), "{error}");
}

#[test]
fn what_csv_has_no_words_for_is_refused() {
    let mut problem = sound("id,lower,upper,size\na,0,3,64\nb,0,3,64\n").problem;
    problem.constraints.never_coexist.push((npumem_ir::BufferId(0), npumem_ir::BufferId(1)));
    assert!(write(&problem, None).unwrap_err().to_string().contains("1 pairs that never coexist"));
    problem.constraints.never_coexist.clear();
    problem.spaces.push(Space::unbounded("other"));
    assert!(write(&problem, None).unwrap_err().to_string().contains("2 spaces"));
}

#[test]
fn damaged_files_never_panic() {
    let mut random = Random(8);
    let start = "id,lower,upper,size,alignment,hint,gaps,offset\na,0,10,64,32,,2-4 6-7@0:32,64\n\"b\",3,8,32,1,5,,\n";
    for _ in 0..20_000 {
        let mut bytes = start.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = *random.pick(b"0123456789-@:, \n\r\"\xff"),
                1 => bytes.insert(at, *random.pick(b"09-@:, \n\"")),
                _ => drop(bytes.remove(at)),
            }
        }
        if let Ok(document) = read(&bytes, "") {
            let problem = document.into_problem();
            assert_eq!(problem.validate(), vec![]);
            let csv = write(&problem, None).unwrap();
            assert_eq!(read(&csv, "").unwrap().into_problem(), problem, "{}", String::from_utf8_lossy(&csv));
        }
    }
}

#[test]
fn every_shared_file_loads_and_comes_back() {
    let Some(folder) = shared("data/placement") else { return };
    let mut count = 0;
    for part in ["minimalloc", "large", "iopddl"] {
        for path in files_under(&folder.join(part), ".csv") {
            let bytes = std::fs::read(&path).unwrap();
            let document = read(&bytes, "").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let again = read(&write(&document.problem, None).unwrap(), "").unwrap();
            assert_eq!(again, document, "{}", path.display());
            let text = document.problem.to_text();
            assert_eq!(Problem::from_text(&text).unwrap(), document.problem, "{}", path.display());
            count += 1;
        }
    }
    assert_eq!(count, 22);
}
