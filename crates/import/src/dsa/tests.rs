//! The real files go both ways unchanged; every field maps; every refusal has its path.

use super::*;
use npumem_ir::plan::Origin;
use npumem_ir::problem::{Goal, Location};
use npumem_ir::{Bytes, Offset, Plan, Residency, SpaceId, StepRange};
use npumem_testing::{Random, files_under, shared};
use serde_json::{Value, json};

/// One of everything.
fn everything() -> Value {
    json!({
        "schema_version": 1, "profile": "pypto_research_v1", "instance": "k", "metadata": {"target": "ascend910b"},
        "problem": {
            "pools": [
                {"id": 5, "name": "Vec", "capacity": 196608, "reserved_ranges": [{"begin": 0, "end": 8192}]},
                {"id": 2, "name": "Vec", "capacity": null, "reserved_ranges": [],
                 "bank_geometry": {"bank_size": 512, "num_banks": 16}}
            ],
            "buffers": [
                {"id": 7, "name": "x", "size": 64, "alignment": 32, "allowed_pools": [5],
                 "live_intervals": [{"lower": 0, "upper": 4}, {"lower": 6, "upper": 8}]},
                {"id": 3, "name": "", "size": 64, "alignment": 1, "allowed_pools": [5, 2],
                 "live_intervals": [{"lower": 2, "upper": 5}]},
                {"id": 9, "name": "z", "size": 64, "alignment": 1, "allowed_pools": [5],
                 "live_intervals": [{"lower": 4, "upper": 6}]}
            ],
            "constraints": {
                "colocations": [{"first": 7, "second": 9}],
                "separations": [{"first": 3, "second": 9, "reasons": ["semantic_no_alias"]}],
                "temporal_exclusions": [{"first": 7, "second": 3}],
                "pinned_allocations": [{"buffer": 3, "pool": 2, "offset": 128, "exclusive_for_all_time": false}]
            },
            "cost_model": {"reuse_penalties": [{"first": 7, "second": 3, "cost": 4, "reason": "cross_pipe"}]},
            "pypto_structure": {
                "alias_classes": [{"buffer": 7, "members": ["tile", "slice"]}],
                "pipeline_groups": [{"group": 0, "pool": 5, "slot_size": 64, "depth": 1, "effective_depth": 1,
                                     "members": [{"buffer": 7, "stage": 0, "residue": 0}]}]
            },
            "objective": {"aggregation": "lexicographic", "terms": ["capacity_overflow", "reuse_cost"]}
        }
    })
}

fn document(value: &Value) -> Document {
    read(value.to_string().as_bytes()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

#[test]
fn every_field_maps_and_comes_back() {
    let value = everything();
    let document = document(&value);
    let problem = &document.problem;
    assert_eq!((problem.name.as_str(), problem.spaces[1].name.as_str()), ("k", "Vec#2"));
    assert_eq!(problem.spaces[0].capacity, Some(Bytes(196_608)));
    assert_eq!(problem.buffers[1].spaces, [SpaceId(0), SpaceId(1)]);
    assert_eq!(problem.buffers[1].pin, Some(Location { space: SpaceId(1), offset: Offset(128) }));
    assert_eq!(problem.buffers[0].live[1].steps, StepRange::steps(6, 8));
    assert_eq!(problem.constraints.colocated[0].buffer, BufferId(2));
    assert_eq!(problem.constraints.never_coexist, [(BufferId(0), BufferId(1))]);
    assert_eq!(problem.constraints.reuse_penalties[0].cost, 4);
    assert_eq!(problem.goals, [Goal::Fit, Goal::ReuseCost]);
    assert_eq!(serde_json::from_str::<Value>(&document.to_json().unwrap()).unwrap(), value);
}

#[test]
fn an_exclusive_pin_keeps_all_others_away_and_comes_back() {
    let mut value = everything();
    value["problem"]["constraints"]["pinned_allocations"][0] =
        json!({"buffer": 3, "pool": 5, "offset": 8192, "exclusive_for_all_time": true});
    value["problem"]["constraints"]["separations"] = json!([]);
    let document = document(&value);
    let pairs: Vec<_> =
        document.problem.constraints.separated.iter().map(|entry| (entry.first, entry.second)).collect();
    assert_eq!(pairs, [(BufferId(1), BufferId(0)), (BufferId(1), BufferId(2))]);
    assert_eq!(serde_json::from_str::<Value>(&document.to_json().unwrap()).unwrap(), value);
}

#[test]
fn overlapping_intervals_of_one_buffer_are_one_live_range() {
    let mut value = everything();
    value["problem"]["buffers"][0]["live_intervals"] =
        json!([{"lower": 6, "upper": 8}, {"lower": 0, "upper": 4}, {"lower": 3, "upper": 5}]);
    let live = &document(&value).problem.buffers[0].live;
    let steps: Vec<_> = live.iter().map(|range| range.steps).collect();
    assert_eq!(steps, [StepRange::steps(0, 5), StepRange::steps(6, 8)]);
}

#[test]
fn every_refusal_has_its_path() {
    let cases: &[(&str, Value, &str)] = &[
        ("/schema_version", json!(2), "schema_version: found 2, expected 1"),
        ("/schema_version", json!("1"), "schema_version: found '\"1\"', expected 1"),
        ("/problem/buffers/0/colour", json!(1), "unknown field `colour`"),
        ("/problem/buffers/0/size", json!(-1), "invalid value: integer `-1`, expected u64"),
        ("/problem/buffers/0/alignment", json!(0), "problem.buffers[0].alignment: found 0, expected at least 1"),
        ("/problem/buffers/0/allowed_pools", json!([4]), "problem.buffers[0].allowed_pools: found pool 4"),
        ("/problem/buffers/0/allowed_pools", json!([5, 5]), "spaces must be sorted, each once"),
        ("/problem/buffers/0/live_intervals", json!([]), "has no live range"),
        (
            "/problem/buffers/0/live_intervals/1/upper",
            json!(6),
            "live_intervals[1]: found [6, 6), expected an upper past",
        ),
        ("/problem/buffers/0/live_intervals/0/lower", json!(-2), "live_intervals[0]: found [-2, 4), expected steps"),
        ("/problem/buffers/1/id", json!(7), "problem.buffers[1].id: found 7 a second time"),
        ("/problem/pools/1/id", json!(5), "problem.pools[1].id: found 5 a second time"),
        ("/problem/pools/0/reserved_ranges/0/end", json!(0), "reserved_ranges[0]: found [0, 0)"),
        ("/problem/constraints/colocations/0/first", json!(1), "problem.constraints.colocations[0]: found buffer 1"),
        ("/problem/constraints/colocations/0/first", json!(9), "names buffer #2 twice"),
        ("/problem/constraints/pinned_allocations/0/pool", json!(1), "pinned_allocations[0]: found pool 1"),
        ("/problem/cost_model/reuse_penalties/0/second", json!(1), "reuse_penalties[0]: found buffer 1"),
        ("/problem/objective/terms/0", json!("bank_cost"), "problem.objective.terms[0]: found 'bank_cost'"),
        ("/problem/objective/aggregation", json!("sum"), "expected 'lexicographic'"),
    ];
    for (path, wrong, expected) in cases {
        let mut value = everything();
        let (parent, key) = path.rsplit_once('/').unwrap();
        match value.pointer_mut(parent).unwrap() {
            Value::Object(object) => drop(object.insert(key.into(), wrong.clone())),
            Value::Array(array) => array[key.parse::<usize>().unwrap()] = wrong.clone(),
            other => panic!("{other}"),
        }
        let error = read(value.to_string().as_bytes()).expect_err(path).to_string();
        assert!(error.contains(expected), "{path}\n  {error:?}\n  lacks {expected:?}");
    }
    let mut value = everything();
    value["problem"]["pools"][0].as_object_mut().unwrap().remove("capacity");
    assert!(read(value.to_string().as_bytes()).unwrap_err().to_string().contains("missing field `capacity`"));
    for (text, expected) in [
        ("", "line 1"),
        ("[]", "found '[', expected a JSON object"),
        ("{\"instance\":", "line 1, character 12: found EOF"),
        (&"{\"problem\":".repeat(5000), "unknown field `problem`"),
        ("{\"schema_version\":1,\"instance\":99999999999999999999}", "invalid type"),
    ] {
        let error = read(text.as_bytes()).expect_err(text).to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
}

fn plan_of(document: &Document) -> Plan {
    let mut at = 0;
    let mut residencies = Vec::new();
    for (id, buffer) in document.problem.buffers() {
        let (space, steps) = (buffer.spaces[0], buffer.lifetime().unwrap());
        residencies.push(Residency { buffer: id, space, offset: Offset(at), steps });
        at += buffer.size.0;
    }
    Plan { residencies, origin: Origin { tool: "npumem".into(), ..Origin::default() }, ..Plan::default() }
}

#[test]
fn solutions_go_both_ways() {
    let document = document(&everything());
    let plan = plan_of(&document);
    let json = document.write_solution(&plan).unwrap();
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["placements"][0], json!({"buffer": 3, "pool": 5, "offset": 64}));
    assert_eq!(value["problem_fingerprint"].as_str().unwrap().len(), 16);
    let solution = document.read_solution(json.as_bytes()).unwrap();
    assert_eq!((solution.plan.residencies, solution.fingerprint_matches), (plan.residencies, true));
    assert_eq!(solution.plan.spaces[0].peak, Bytes(192));

    let cases: &[(&str, Value, &str)] = &[
        ("/instance", json!("other"), "instance: found 'other', expected 'k'"),
        ("/placements/0/buffer", json!(1), "placements[0].buffer: found 1, expected the id of a buffer"),
        ("/placements/0/buffer", json!(7), "placements[1].buffer: found 7 a second time"),
        ("/placements/0/pool", json!(1), "placements[0].pool: found 1"),
        ("/schema_version", json!(3), "schema_version: found 3, expected 1"),
        ("/placements/0/offset", json!(-1), "invalid value: integer `-1`"),
    ];
    for (path, wrong, expected) in cases {
        let mut value = value.clone();
        *value.pointer_mut(path).unwrap() = wrong.clone();
        let error = document.read_solution(value.to_string().as_bytes()).expect_err(path).to_string();
        assert!(error.contains(expected), "{path}\n  {error:?}\n  lacks {expected:?}");
    }
    let mut renamed = value;
    renamed["problem_fingerprint"] = json!("0000000000000000");
    assert!(!document.read_solution(renamed.to_string().as_bytes()).unwrap().fingerprint_matches);
}

#[test]
fn our_own_problems_become_documents() {
    let csv = b"id,lower,upper,size\na,0,3,64\nb,2,8,32\n";
    let mut problem = crate::minimalloc::read(csv, "two").unwrap().problem;
    let exported = Document::new(problem.clone()).unwrap();
    assert_eq!(exported.profile, "standard_dsa");
    let again = read(exported.to_json().unwrap().as_bytes()).unwrap();
    problem.goals = vec![Goal::TotalPeak, Goal::MaxPeak];
    assert_eq!(again.problem, problem);

    problem.buffers[0].alignment = npumem_ir::Alignment::new(32).unwrap();
    assert_eq!(Document::new(problem.clone()).unwrap().profile, "pypto_structured");
    problem.goals = vec![Goal::Traffic];
    assert!(Document::new(problem.clone()).unwrap_err().to_string().contains("Traffic"));
    problem.goals.clear();
    problem.buffers[1].live[0].window = Some(npumem_ir::Interval { start: Offset(0), end: Offset(8) });
    assert!(Document::new(problem).unwrap_err().to_string().contains("a byte window at steps [2, 8)"));
}

#[test]
fn damaged_documents_never_panic() {
    let mut random = Random(9);
    let sound = everything().to_string();
    for _ in 0..20_000 {
        let mut bytes = sound.as_bytes().to_vec();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = *random.pick(b"0123456789-\",:{}[]x\xff"),
                1 => bytes.insert(at, *random.pick(b"09-\",:{}[]")),
                _ => drop(bytes.remove(at)),
            }
        }
        if let Ok(document) = read(&bytes) {
            let errors = document.problem.validate();
            assert!(errors.iter().all(|error| error.kind.is_contradiction()), "{errors:?}");
            let json = document.to_json().unwrap();
            assert_eq!(read(json.as_bytes()).unwrap().problem, document.problem);
        }
    }
}

#[test]
fn every_shared_problem_comes_back_unchanged() {
    let Some(folder) = shared("data/placement/dsa-problems") else { return };
    let mut count = 0;
    for path in files_under(&folder, ".json") {
        if path.components().any(|part| part.as_os_str() == "architectures") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let document = read(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let json = document.to_json().unwrap();
        let (before, after): (Value, Value) =
            (serde_json::from_slice(&bytes).unwrap(), serde_json::from_str(&json).unwrap());
        assert_eq!(before, after, "{}", path.display());
        let plan = plan_of(&document);
        let solution = document.read_solution(document.write_solution(&plan).unwrap().as_bytes()).unwrap();
        assert_eq!(solution.plan.residencies, plan.residencies, "{}", path.display());
        assert_eq!(Problem::from_text(&document.problem.to_text()).unwrap(), document.problem, "{}", path.display());
        count += 1;
    }
    assert_eq!(count, 699);
}
