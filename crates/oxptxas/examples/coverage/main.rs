//! `coverage`: compiles statements of every form in the PTX instruction table for every target that has them, runs each in a
//! kernel of its own, by definition and as code, and writes docs/ptx-coverage.md: how many of those that the front end takes
//! are compiled and give what PTX says, and why others don't. With `LIST` in the environment it also prints every statement
//! that is refused, differs or can't be compared; `ONLY=ld,st` takes these instructions alone,
//! `TARGETS=sm_75,sm_90` these targets. With `REFERENCE` it is ptxas's code
//! (of the tools in `OXPTXAS_ORACLES`, at -O3) that runs: how the executors are calibrated on what oxptxas refuses; `KEEP=FOLDER` keeps its cubins there.

#[path = "../../../ptx/examples/forms/operands.rs"]
#[allow(dead_code)]
mod operands;
#[path = "../../../ptx/examples/ptxas/mod.rs"]
#[allow(dead_code)]
mod ptxas;

mod image;
mod kernel;

use operands::{Style, modifiers};
use oxptxas::{Failure, Settings, compile};
use oxsass::verify::{self, Verdict};
use ptx::isa::{Form, Op, Suffix};
use ptxas::Header;
use rayon::prelude::*;
use sass::Target;
use sass::target::SMS;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Launches that are made up: of one thread, and of a warp.
const LAUNCHES: [u64; 2] = [6, 8];

/// What becomes of a form's statements; each counts where it does on all of its targets.
#[derive(Default)]
struct Row {
    op: &'static str,
    legal: usize,
    compiled: usize,
    verified: usize,
    /// Statements times targets.
    pairs: usize,
    pairs_compiled: usize,
    pairs_verified: usize,
    refused: Option<(String, String)>,
    unproven: Option<(String, String)>,
    wrong: Vec<String>,
}

/// What was found out about a statement on a target.
enum Found {
    Refused(String),
    Verified,
    /// Nothing can be said, and why.
    Unproven(String),
    Wrong(String),
}

/// The targets that have a form: plain ones, and those with `a` that have it alone.
fn targets(form: &Form) -> Vec<(Header, Target)> {
    let mut found = Vec::new();
    for info in SMS {
        let sm = u16::from(info.sm);
        let suffix = [Suffix::None, Suffix::Arch].into_iter().find(|s| form.on(sm, *s));
        let Some(suffix) = suffix.filter(|s| *s == Suffix::None || info.has_a) else { continue };
        let letter = if suffix == Suffix::Arch { "a" } else { "" };
        let target = Target::parse(&format!("sm_{sm}{letter}"));
        found.extend(target.map(|t| (Header::new((9, 0), sm, suffix), t)));
    }
    found
}

/// Our cubin, or why there is none.
fn own(source: &str, target: Target, opt_level: u8) -> Result<Vec<u8>, String> {
    let settings = Settings { opt_level, ..Settings::new(target) };
    let refused = |e: Failure| e.diagnostics.first().map(|d| d.message.clone()).unwrap_or_default();
    compile(source, "coverage.ptx", &settings).map(|output| output.cubin).map_err(refused)
}

/// The reference compiler's.
fn reference(tools: &Path, source: &str, target: Target) -> Result<Vec<u8>, String> {
    let id = rayon::current_thread_index().unwrap_or(0);
    let file = |ending| std::env::temp_dir().join(format!("coverage{id}.{ending}"));
    let (input, output) = (file("ptx"), file("cubin"));
    std::fs::write(&input, source).map_err(|e| e.to_string())?;
    let mut ptxas = Command::new(tools.join("ptxas"));
    let run = ptxas.arg(format!("-arch={target}")).arg(&input).arg("-o").arg(&output).output();
    let run = run.map_err(|e| e.to_string())?;
    if run.status.success() {
        if let Some(folder) = std::env::var_os("KEEP") {
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let name = format!("{}.{target}.cubin", NUMBER.fetch_add(1, Ordering::Relaxed));
            std::fs::copy(&output, Path::new(&folder).join(name)).map_err(|e| e.to_string())?;
        }
        return std::fs::read(&output).map_err(|e| e.to_string());
    }
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    Err(text.lines().find(|l| !l.contains(": Advisory")).unwrap_or_default().to_string())
}

fn judge(statement: &str, target: Target, tools: Option<&Path>) -> Found {
    let found = judge_kernel(statement, &kernel::module(statement, &target.to_string()), target, tools);
    match kernel::varying(statement, &target.to_string()) {
        Some(source) if matches!(found, Found::Verified) => judge_kernel(statement, &source, target, tools),
        _ => found,
    }
}

fn judge_kernel(statement: &str, source: &str, target: Target, tools: Option<&Path>) -> Found {
    let mut found = Found::Unproven("it does not return".into());
    let levels: &[u8] = if tools.is_some() { &[3] } else { &[3, 0] };
    for &opt_level in levels {
        let cubin =
            match tools.map_or_else(|| own(source, target, opt_level), |t| reference(t, source, target)) {
                Ok(cubin) => cubin,
                Err(why) => return Found::Refused(why),
            };
        if !kernel::runs(statement) {
            continue;
        }
        match sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in()) {
            Ok(kernels) if kernels.iter().all(|k| k.1.is_empty()) => {}
            Ok(kernels) => {
                let first = kernels.iter().find_map(|k| k.1.first());
                let what = first.map_or(String::new(), ToString::to_string);
                return Found::Wrong(format!("{target} -O{opt_level}: a hazard: {what}"));
            }
            Err(e) => return Found::Wrong(format!("{target} -O{opt_level}: {e}")),
        }
        let Ok(module) = verify::module(source, target) else { return Found::Unproven(String::new()) };
        let mut same = false;
        // One thread is no warp.
        let all = if image::is_image(statement) { &image::LAUNCHES[..] } else { &LAUNCHES[..] };
        let launches = all.iter().copied().filter(|l| *l != LAUNCHES[0] || !kernel::is_for_warps(statement));
        for seed in launches {
            match verify::kernel(&module, source, &cubin, "k", seed..seed + 1) {
                Verdict::Same | Verdict::Close => same = true,
                Verdict::Differs(how) => return Found::Wrong(format!("{target} -O{opt_level}: {how}")),
                v => found = Found::Unproven(v.to_string()),
            }
        }
        if !same {
            return found;
        }
        found = Found::Verified;
    }
    found
}

fn row(op: Op, form: &Form, loud: bool, tools: Option<&Path>) -> Row {
    let mut row = Row { op: op.name(), ..Row::default() };
    let mut targets = targets(form);
    if let Ok(list) = std::env::var("TARGETS") {
        targets.retain(|t| list.split(',').any(|name| name == t.1.to_string()));
    }
    for mods in modifiers(form) {
        let optional = form.operands.iter().filter(|o| o.optional).count();
        let mut seen = BTreeSet::new();
        for (style, optional) in [(Style::Typed, 0), (Style::Rich, optional)] {
            let Some(list) = operands::operands(op, form, &mods, style, optional) else { continue };
            let words: String = mods.iter().map(|m| format!(".{}", m.name())).collect();
            let statement = format!("{}{words} {};", op.name(), list.join(", "));
            // Textures and surfaces as handles.
            let statement = statement.replace("[tx", "[b64r200").replace("[sf", "[b64r200");
            if !seen.insert(statement.clone()) {
                continue;
            }
            let legal: Vec<Target> = targets
                .iter()
                .filter(|(header, _)| ptxas::ours(*header, &statement).is_none())
                .map(|t| t.1)
                .collect();
            if legal.is_empty() {
                continue;
            }
            let (mut compiled, mut verified) = (0, 0);
            for target in &legal {
                let say = |what: &str| {
                    if loud {
                        eprintln!("{target} {statement} {what}");
                    }
                };
                match judge(&statement, *target, tools) {
                    Found::Refused(why) => {
                        say(&why);
                        row.refused.get_or_insert((statement.clone(), why));
                        continue;
                    }
                    Found::Verified => verified += 1,
                    Found::Unproven(why) => {
                        say(&why);
                        row.unproven.get_or_insert((statement.clone(), why));
                    }
                    Found::Wrong(how) => {
                        say(&how);
                        row.wrong.push(format!("{statement} {how}"));
                    }
                }
                compiled += 1;
            }
            row.legal += 1;
            row.compiled += usize::from(compiled == legal.len());
            row.verified += usize::from(verified == legal.len());
            row.pairs += legal.len();
            row.pairs_compiled += compiled;
            row.pairs_verified += verified;
        }
    }
    row
}

/// Products of warp groups and in tensor memory, and copies by other engines: not compiled yet.
fn excluded(op: &str) -> bool {
    matches!(op, "wgmma" | "tcgen05" | "tensormap")
}

fn main() {
    let loud = std::env::var_os("LIST").is_some();
    let tools = std::env::var_os("REFERENCE").map(|_| {
        PathBuf::from(std::env::var_os("OXPTXAS_ORACLES").expect("REFERENCE needs OXPTXAS_ORACLES"))
    });
    let only = std::env::var("ONLY").ok();
    let wanted = |op: &Op| only.as_ref().is_none_or(|list| list.split(',').any(|o| o == op.name()));
    let forms: Vec<(Op, &Form)> = Op::ALL
        .iter()
        .filter(|op| wanted(op))
        .flat_map(|op| op.forms().iter().map(move |f| (*op, f)))
        .collect();
    let rows: Vec<Row> =
        forms.par_iter().with_max_len(1).map(|(op, f)| row(*op, f, loud, tools.as_deref())).collect();
    println!("# PTX coverage\n");
    println!(
        "Generated by `cargo run --release -p oxptxas --example coverage > docs/ptx-coverage.md`. Of every form in the \
         instruction\ntable (`crates/ptx/isa/`), statements with each of its words in turn, textures and surfaces as \
         handles, for every\ntarget that has them: how many of those that the front end takes are compiled, and, in a \
         kernel of their own, decoded and run\nat -O3 and -O0 by one thread and by a warp, give what the PTX interpreter \
         gives, without a hazard. A statement counts if it does on\nall of its targets, a form if all of its statements \
         do.\n"
    );
    let known: Vec<&Row> = rows.iter().filter(|r| r.legal > 0).collect();
    let bulk = |r: &&&Row| r.op == "cp" && r.refused.is_some();
    let (out, within): (Vec<&Row>, Vec<&Row>) = known.iter().partition(|r| excluded(r.op) || bulk(r));
    let sum = |list: &[&Row], f: fn(&Row) -> usize| list.iter().map(|r| f(r)).sum::<usize>();
    let whole = |list: &[&Row], f: fn(&Row) -> usize| list.iter().filter(|r| f(r) == r.legal).count();
    println!(
        "Without `wgmma`, `tcgen05`, bulk copies and tensor maps: {} of {} forms compile, {} are verified; {} of {} \
         statements, {};\n{} of {} pairs of statement and target, {}. The others: {} forms, of which {} compile. {} forms \
         have no statement here.\n",
        whole(&within, |r| r.compiled),
        within.len(),
        whole(&within, |r| r.verified),
        sum(&within, |r| r.compiled),
        sum(&within, |r| r.legal),
        sum(&within, |r| r.verified),
        sum(&within, |r| r.pairs_compiled),
        sum(&within, |r| r.pairs),
        sum(&within, |r| r.pairs_verified),
        out.len(),
        whole(&out, |r| r.compiled),
        rows.len() - known.len()
    );
    println!(
        "| instruction | forms | statements | verified | not compiled, or not verified, for example |\n|---|---|---|---|---|"
    );
    for op in Op::ALL {
        let own: Vec<&Row> = known.iter().copied().filter(|r| r.op == op.name()).collect();
        if own.is_empty() {
            continue;
        }
        let example = |(s, m): &(String, String)| {
            let s = s.split(' ').next().unwrap_or_default();
            // Where in the launch is of no interest.
            let m = m.split(" (block").next().unwrap_or_default();
            let m = if m.starts_with(s) { "not supported yet" } else { m };
            format!("`{s}`: {}", m.replace('|', "\\|"))
        };
        let first = own.iter().find_map(|r| r.refused.as_ref());
        let first = first.or(own.iter().find_map(|r| r.unproven.as_ref()));
        println!(
            "| `{}` | {} of {} | {} of {} | {} | {} |",
            op.name(),
            whole(&own, |r| r.compiled),
            own.len(),
            sum(&own, |r| r.compiled),
            sum(&own, |r| r.legal),
            sum(&own, |r| r.verified),
            first.map_or(String::new(), example),
        );
    }
    let wrong: Vec<&String> = rows.iter().flat_map(|r| &r.wrong).collect();
    if !wrong.is_empty() {
        for w in &wrong {
            eprintln!("DIFFERS: {w}");
        }
        std::process::exit(1);
    }
}
