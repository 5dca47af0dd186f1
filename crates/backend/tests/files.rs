//! File tests: `files/NAME.ori` starts with `// test PASS` and holds functions in Ori's text form; the result
//! of the pass stands beside it in `NAME.out`. `UPDATE_EXPECT=1 cargo test -p oxptxas-backend` writes the results.

use backend::{
    async_copies, balance, convergence, emit, hazards, legalize, machine, meet_once, prepass, regalloc,
    schedule, together, uniform, zero,
};
use ori::{Allocated, Manager, Plan};
use std::fmt::Write;
use std::path::Path;

fn machine_code(func: ori::Function) -> machine::Machine {
    let func = Allocated::try_from(func).expect("no values");
    machine::lower(&func, func.local_size).unwrap()
}

fn hazards_text(func: ori::Function, serial: bool) -> String {
    let mut m = machine_code(func);
    hazards::run(&mut m, serial);
    let (insts, _) = emit::resolve(&m);
    if let Err(violations) = hazards::check::check(m.target, &insts) {
        for v in violations {
            eprintln!("{v}");
        }
        panic!("uncovered dependence in\n{m}");
    }
    m.to_string()
}

fn run(pass: &str, mut func: ori::Function) -> String {
    let verified = |func: ori::Function| {
        if let Err(e) = ori::verify::verify(&func) {
            panic!("{}\n{func}", e.join("\n"));
        }
        func.to_string()
    };
    match pass {
        "legalize" => {
            legalize::run(&mut func).unwrap();
            verified(func)
        }
        "bring-less" => {
            let cfg = ori::cfg::Cfg::new(&func);
            uniform::bring_less(&mut func, &cfg);
            ori::dead::remove(&mut func);
            verified(func)
        }
        "uniform" => {
            let cfg = ori::cfg::Cfg::new(&func);
            let cfg =
                if uniform::part_at_barriers(&mut func, &cfg) { ori::cfg::Cfg::new(&func) } else { cfg };
            let changed = uniform::run(&mut func, &cfg, &Default::default()).is_some();
            format!("// {changed}\n{}", verified(func))
        }
        "together" => {
            together::run(&mut func);
            verified(func)
        }
        "meet-once" => {
            let mut lanes = ori::verify::lanes::Watch::new(&func, true);
            meet_once::run(&mut func);
            lanes.step(&func, ori::verify::lanes::Kind::Usual).unwrap_or_else(|e| panic!("{e:?}"));
            verified(func)
        }
        "convergence" => {
            convergence::run(&mut func).unwrap();
            verified(func)
        }
        "regalloc" => {
            let limits = regalloc::Limits::of(&func);
            let found = regalloc::allocate(func, &limits).unwrap_or_else(|e| panic!("{e}"));
            format!("// {:?}\n{found}", found.stats)
        }
        "prepass" => {
            let attempt = prepass::Attempt { more: 0, counters: false, together: false };
            prepass::run(&mut func, &mut Manager::new(&Plan::new(1)), attempt);
            verified(func)
        }
        "remat" => {
            let attempt = prepass::Attempt { more: 0, counters: true, together: true };
            prepass::run(&mut func, &mut Manager::new(&Plan::new(3)), attempt);
            verified(func)
        }
        "balance" => {
            let mut m = machine_code(func);
            balance::run(&mut m);
            m.to_string()
        }
        "async-copies" => {
            let entry = func.entry;
            let mut m = machine_code(func);
            async_copies::run(&mut m, entry);
            m.to_string()
        }
        "zero" => {
            let mut m = machine_code(func);
            zero::run(&mut m);
            m.to_string()
        }
        "schedule" => {
            let mut m = machine_code(func);
            schedule::run(&mut m);
            m.to_string()
        }
        "hazards" => hazards_text(func, false),
        "serial" => hazards_text(func, true),
        _ => panic!("unknown pass {pass}"),
    }
}

#[test]
fn files() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "ori"));
    paths.sort();
    let mut wrong = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let pass =
            text.lines().next().and_then(|l| l.strip_prefix("// test ")).expect("first line: // test PASS");
        let mut out = String::new();
        for func in ori::parse::parse_all(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            writeln!(out, "// {} {}", func.name, func.target).unwrap();
            out += &run(pass, func);
        }
        let golden = path.with_extension("out");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&golden, &out).unwrap();
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != out {
            wrong.push(format!("{}:\n{out}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
