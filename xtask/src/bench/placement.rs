//! Placement: peak, bound and time on every stored problem, with the peers' published figures beside.
//!
//! One thread, CPU time of the thread, fixed seed; every plan is checked before its row is printed.

use super::shapes;
use npumem_ir::problem::{Goal, Space};
use npumem_ir::{Bytes, Problem};
use npumem_planner::placement::{Effort, Placement, PlacementOptions, Verdict, place};
use npumem_testing::{files_under, shared};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Best peaks and seconds of others on a file, as `shared/data/placement/README.md` records them.
const PEERS: [(&str, &str); 15] = [
    ("A.1048576", "minimalloc fits in 8.3 s; supermalloc LB in 0.78 s"),
    ("B.1048576", "minimalloc fits in 6.0 s; supermalloc LB in 0.81 s"),
    ("C.1048576", "minimalloc fits in 1.12 s; supermalloc LB in 0.04 s"),
    ("D.1048576", "minimalloc fits in 4.7 s; supermalloc 1059840 in 13.7 s"),
    ("E.1048576", "minimalloc fits in 6.1 s; supermalloc LB in 1.36 s"),
    ("F.1048576", "minimalloc fits in 9.7 s; supermalloc LB in 0.60 s"),
    ("G.1048576", "minimalloc fits in 2.2 s; supermalloc LB in 0.18 s"),
    ("H.1048576", "minimalloc fits in 3.1 s; supermalloc LB in 0.59 s"),
    ("I.1048576", "minimalloc fits in 6.4 s; supermalloc LB in 0.29 s"),
    ("J.1048576", "minimalloc fits in 1.47 s; supermalloc 1095680 in 12.5 s"),
    ("K.1048576", "minimalloc fits in 1.16 s; supermalloc LB in 0.15 s"),
    ("G_1", "idealloc 1.0011 in 7.7 s; omnimalloc 1.0000 in 0.04 s"),
    ("resnet50", "idealloc 1.0022 in 1.4 s; omnimalloc 1.0035 in 0.06 s"),
    ("pangu_2.6B", "idealloc 1.0334 in 3.7 s; omnimalloc 1.0076 in 3.1 s"),
    ("S_1", "idealloc 1.0293 in 13.7 s; omnimalloc 1.0139 in 12.5 s"),
];

/// Measures every data set and returns the line to record.
///
/// # Errors
/// When the data is missing, a file cannot be read, or a plan is unsound.
pub fn run() -> Result<Value, String> {
    if cfg!(debug_assertions) {
        let status = Command::new(env!("CARGO"))
            .args(["run", "-q", "--release", "-p", "xtask", "--", "bench", "placement"])
            .status()
            .map_err(|e| format!("cargo: {e}"))?;
        return if status.success() { Ok(Value::Null) } else { Err(format!("the measured run ended with {status}")) };
    }
    let folder = shared("data/placement").ok_or("the placement data is not there")?;
    let only = std::env::var("NPUMEM_BENCH_ONLY").unwrap_or_default();
    let mut line = serde_json::Map::new();
    line.insert("set".to_owned(), json!("placement"));
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|o| o == name);
    if wanted("fit") {
        heading("minimalloc, fits 1,048,576");
        line.insert("minimalloc_fit".to_owned(), csv_set(&folder.join("minimalloc"), Some(1_048_576), Effort::Normal)?);
    }
    if wanted("peak") {
        heading("minimalloc, smallest peak");
        line.insert("minimalloc_peak".to_owned(), csv_set(&folder.join("minimalloc"), None, Effort::Normal)?);
    }
    if wanted("fast") {
        line.insert("fast".to_owned(), fast_set(&folder.join("minimalloc"))?);
    }
    if wanted("threads") {
        line.insert("threads".to_owned(), threads_set(&folder.join("minimalloc"))?);
    }
    for name in ["large", "iopddl"] {
        if wanted(name) {
            heading(name);
            line.insert(name.to_owned(), csv_set(&folder.join(name), None, Effort::Normal)?);
        }
    }
    if wanted("dsa") {
        heading("dsa-problems");
        line.insert("dsa".to_owned(), dsa_set(&folder.join("dsa-problems"))?);
    }
    if wanted("million") {
        heading("a million buffers");
        let mut rows = Vec::new();
        let one_shape = std::env::var("NPUMEM_BENCH_SHAPE").unwrap_or_default();
        for (name, shape) in shapes::ALL.into_iter().filter(|(name, _)| one_shape.is_empty() || one_shape == *name) {
            rows.push(one(name, &shape(1_000_000), Effort::Normal)?);
        }
        line.insert("million".to_owned(), Value::Array(rows));
    }
    Ok(Value::Object(line))
}

fn heading(title: &str) {
    println!("\n{title}");
    println!(
        "{:<18} {:>8} {:>18} {:>18} {:>9} {:>10} {:>10} {:>7}  how; peers",
        "problem", "buffers", "lower bound", "peak", "gap %", "stop", "CPU ms", "MiB"
    );
}

/// Nanoseconds that this thread has run; wall time where the system does not say.
fn cpu_clock() -> impl Fn() -> u128 {
    let start = Instant::now();
    move || {
        std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|s| s.split(' ').next().and_then(|n| n.parse().ok()))
            .unwrap_or_else(|| start.elapsed().as_nanos())
    }
}

/// Peak resident memory in MiB since it was last reset.
fn peak_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn sound(problem: &Problem, placed: &Placement) -> Result<(), String> {
    let found = npumem_check::check(problem, &placed.plan);
    match found.violations.iter().find(|v| placed.plan.fits() || v.kind() != "outside-capacity") {
        Some(v) => Err(format!("{}: unsound plan: {v}", problem.name)),
        None => Ok(()),
    }
}

fn one(name: &str, problem: &Problem, effort: Effort) -> Result<Value, String> {
    let options = PlacementOptions { effort, ..PlacementOptions::default() };
    // Forgets the peak so far, where the system allows it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let clock = cpu_clock();
    let begun = clock();
    let placed = place(problem, &options, None).map_err(|e| format!("{name}: {e}"))?;
    let ms = (clock() - begun) as f64 / 1e6;
    let mib = peak_memory();
    sound(problem, &placed)?;
    let space = &placed.plan.spaces[0];
    let stop = format!("{:?}", placed.plan.origin.stop).to_lowercase();
    let peers = PEERS.iter().find(|p| p.0 == name).map_or("", |p| p.1);
    println!(
        "{name:<18} {:>8} {:>18} {:>18} {:>9.4} {stop:>10} {ms:>10.1} {mib:>7}  {}; {peers}",
        problem.buffers.len(),
        space.lower_bound.get(),
        space.peak.get(),
        100.0 * space.gap(),
        placed.plan.origin.method,
    );
    Ok(json!({
        "problem": name, "buffers": problem.buffers.len(), "lower_bound": space.lower_bound.get(),
        "peak": space.peak.get(), "gap": space.gap(), "proven": placed.spaces[0].proven, "stop": stop,
        "fits": matches!(placed.verdict, Verdict::Fits), "cpu_ms": (ms * 10.0).round() / 10.0, "peak_mib": mib,
        "method": placed.plan.origin.method, "work": placed.plan.origin.work,
    }))
}

/// `fast` on problems of about 500 buffers: the mean of many calls each, for a call is shorter than the clock's tick.
fn fast_set(folder: &Path) -> Result<Value, String> {
    const CALLS: u32 = 200;
    println!("\nfast, {CALLS} calls each");
    let shapes = shapes::ALL.iter().chain(&shapes::KERNELS);
    let mut problems: Vec<Problem> = shapes.map(|(_, shape)| shape(500)).collect();
    problems.push(csv_problem(&folder.join("K.1048576.csv"), None)?);
    let mut rows = Vec::new();
    let clock = cpu_clock();
    for problem in problems {
        let begun = clock();
        for _ in 0..CALLS {
            place(&problem, &PlacementOptions::fast(), None).map_err(|e| format!("{}: {e}", problem.name))?;
        }
        let ms = (clock() - begun) as f64 / 1e6 / f64::from(CALLS);
        println!("{:<18} {:>8} {ms:>10.3} ms a call", problem.name, problem.buffers.len());
        rows.push(
            json!({"problem": problem.name, "buffers": problem.buffers.len(), "cpu_ms": (ms * 1e3).round() / 1e3}),
        );
    }
    Ok(Value::Array(rows))
}

/// The same search on one thread and on two: the same answer, and how much sooner.
fn threads_set(folder: &Path) -> Result<Value, String> {
    println!("\none thread and two, 500 million units of work");
    let mut rows = Vec::new();
    for name in ["D.1048576", "J.1048576"] {
        let problem = csv_problem(&folder.join(format!("{name}.csv")), None)?;
        let timed = |threads: usize| {
            let options = PlacementOptions { threads, budget: Some(500_000_000), ..PlacementOptions::default() };
            let begun = Instant::now();
            place(&problem, &options, None)
                .map(|p| (p, begun.elapsed().as_secs_f64()))
                .map_err(|e| format!("{name}: {e}"))
        };
        let ((one, slow), (two, quick)) = (timed(1)?, timed(2)?);
        if one != two {
            return Err(format!("{name}: two threads gave another answer than one"));
        }
        println!("{name:<18} {slow:>8.2} s and {quick:.2} s of wall time: {:.2} times as long", quick / slow);
        rows.push(json!({"problem": name, "one_s": slow, "two_s": quick, "ratio": quick / slow}));
    }
    Ok(Value::Array(rows))
}

fn csv_problem(path: &Path, capacity: Option<u64>) -> Result<Problem, String> {
    let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut problem =
        npumem_import::minimalloc::read(&bytes, &name).map_err(|e| format!("{name}: {e}"))?.into_problem();
    problem.spaces = vec![Space { capacity: capacity.map(Bytes), ..Space::unbounded("memory") }];
    problem.goals = vec![if capacity.is_some() { Goal::Fit } else { Goal::Peak }];
    Ok(problem)
}

fn csv_set(folder: &Path, capacity: Option<u64>, effort: Effort) -> Result<Value, String> {
    let mut rows = Vec::new();
    let mut total = 0.0;
    for path in files_under(folder, ".csv") {
        let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        let problem = csv_problem(&path, capacity)?;
        let row = one(&name, &problem, effort)?;
        total += row["cpu_ms"].as_f64().unwrap_or(0.0);
        rows.push(row);
    }
    println!("total {total:.1} ms");
    Ok(Value::Array(rows))
}

/// The structured problems: verdicts and costs, against the best published ones.
fn dsa_set(folder: &Path) -> Result<Value, String> {
    let published = published_costs(&folder.join("published-reuse-costs.csv"))?;
    let options = PlacementOptions::default();
    let (mut fits, mut infeasible, mut undecided, mut optimal, mut files) = (0, 0, 0, 0, 0);
    let (mut ours, mut theirs, mut better, mut worse, mut proven, mut compared) = (0, 0, 0, 0, 0, 0);
    let mut slowest = (0.0, String::new());
    let clock = cpu_clock();
    let mut total = 0.0;
    for path in files_under(folder, ".json") {
        if path.components().any(|c| c.as_os_str() == "architectures") {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let document = npumem_import::dsa::read(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        let begun = clock();
        let placed = place(&document.problem, &options, None).map_err(|e| format!("{}: {e}", path.display()))?;
        let ms = (clock() - begun) as f64 / 1e6;
        sound(&document.problem, &placed)?;
        total += ms;
        files += 1;
        if ms > slowest.0 {
            slowest = (ms, document.problem.name.clone());
        }
        match placed.verdict {
            Verdict::Fits => fits += 1,
            Verdict::Infeasible(_) => infeasible += 1,
            Verdict::Undecided => {
                undecided += 1;
                println!("undecided: {}", document.problem.name);
            }
        }
        if placed.plan.origin.stop == npumem_ir::plan::Stop::Optimal {
            optimal += 1;
        }
        let of = |name: &str| document.metadata.get(name).cloned().unwrap_or_default();
        // The published table counts the edges between pipes, not the pairs of pipeline stages that are penalties too.
        let edges = of("dsa_rp_cross_pipe_edges").parse().unwrap_or(0);
        let key = (of("corpus_source_path"), of("dsa_rp_source_instance"), edges);
        if of("dsa_rp_edge_policy") == "soft_v1" && matches!(placed.verdict, Verdict::Fits) {
            let is_proven = placed.reuse_cost == placed.reuse_cost_bound;
            if let Some(best) = published.get(&key) {
                compared += 1;
                ours += placed.reuse_cost;
                theirs += best.unwrap_or(placed.reuse_cost);
                proven += u64::from(is_proven);
                match best {
                    Some(b) if placed.reuse_cost > *b => {
                        worse += 1;
                        println!("worse: {} {} against {b}", document.problem.name, placed.reuse_cost);
                    }
                    Some(b) if placed.reuse_cost < *b => better += 1,
                    _ => {}
                }
            }
        }
    }
    println!(
        "{files} files: {fits} fit, {infeasible} proven not to, {undecided} undecided, {optimal} optimal; {total:.0} ms in all, slowest {:.0} ms ({})",
        slowest.0, slowest.1
    );
    println!(
        "reuse cost on {compared} published ones: {ours} against {theirs}; {better} better, {worse} worse; {proven} proven"
    );
    Ok(json!({
        "files": files, "fit": fits, "infeasible": infeasible, "undecided": undecided, "optimal": optimal,
        "cpu_ms": total.round(), "slowest_ms": slowest.0.round(), "published": compared, "cost": ours,
        "published_cost": theirs, "better": better, "worse": worse, "proven": proven,
    }))
}

/// `(source path, instance, edges)` to the best published cost.
type Published = BTreeMap<(String, String, u64), Option<u64>>;

fn published_costs(path: &Path) -> Result<Published, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut out = BTreeMap::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [_, _, source, instance, edges, _, cost, _] = cells.as_slice() else {
            return Err(format!("{}: a line of {} cells: {line}", path.display(), cells.len()));
        };
        let edges = edges.parse().map_err(|e| format!("{}: {e}: {line}", path.display()))?;
        let cost = cost.parse::<u64>().ok();
        // Where two rows share a key the larger cost is the one that is certainly reachable.
        let slot: &mut Option<u64> = out.entry(((*source).to_owned(), (*instance).to_owned(), edges)).or_insert(cost);
        *slot = (*slot).max(cost);
    }
    Ok(out)
}
