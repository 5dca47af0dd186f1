//! Every legal form of the arithmetic instructions × targets: our code in the SASS simulator gives what the PTX
//! interpreter gives, on edge cases and random operands. With the vendor's tools at hand (`OXPTXAS_ORACLES`),
//! ptxas's code must give the same in the same simulator, and whatever ptxas compiles must be compiled.
//!
//! Without the tools, every third case is run for each of three targets, in turn.
//!
//! `FORMS=setp.,cvt.` restricts the test to instructions whose text contains one of these, `FORMS_SM=75,90a` chooses the
//! targets (`all`: every one), `FORMS_LIST=file` gets every complaint.

mod generate;
mod moves;
mod values;

use generate::{Case, THREADS, Tolerance};
use ptx::Type;
use ptx::isa::Suffix;
use rayon::prelude::*;
use sass::Target;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernels in a module.
const BATCH: usize = 48;

/// What one case gives: the output words, or why there are none.
type Outcome = Result<Vec<u8>, String>;

fn header(target: Target) -> String {
    format!(".version 9.0\n.target {target}\n.address_size 64\n")
}

/// The module of some cases, and the line on which each begins.
fn module(cases: &[(usize, &Case)], target: Target) -> (String, Vec<usize>) {
    let mut text = header(target);
    let mut lines = Vec::new();
    for (i, c) in cases {
        lines.push(text.lines().count() + 1);
        text.push_str(&c.kernel(&format!("f{i}")));
    }
    (text, lines)
}

/// The first message about each kernel, from messages that name lines.
fn messages(text: &str, lines: &[usize]) -> BTreeMap<usize, String> {
    let mut out = BTreeMap::new();
    for l in text.lines() {
        let Some((_, rest)) = l.split_once(", line ") else { continue };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let Ok(n) = digits.parse::<usize>() else { continue };
        let k = lines.partition_point(|first| *first <= n).saturating_sub(1);
        let message = rest.split_once(':').map_or(rest, |(_, m)| m).trim();
        out.entry(k).or_insert_with(|| message.to_string());
    }
    out
}

/// Compiles cases with `compile`, leaving out those that it complains about, and runs what is left.
fn outcomes(
    cases: &[(usize, &Case)],
    target: Target,
    compile: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Vec<Outcome> {
    let mut results: Vec<Option<Outcome>> = vec![None; cases.len()];
    loop {
        let left: Vec<usize> = (0..cases.len()).filter(|i| results[*i].is_none()).collect();
        if left.is_empty() {
            break;
        }
        let chosen: Vec<(usize, &Case)> = left.iter().map(|i| cases[*i]).collect();
        let (text, lines) = module(&chosen, target);
        match compile(&text) {
            Ok(cubin) => {
                for k in left {
                    let (i, c) = cases[k];
                    results[k] = Some(simulate(&cubin, i, c));
                }
            }
            Err(e) => {
                let found = messages(&e, &lines);
                if found.is_empty() {
                    if left.len() == 1 {
                        results[left[0]] = Some(Err(format!("refused: {}", e.lines().next().unwrap_or("?"))));
                        continue;
                    }
                    // No telling which one: halve.
                    let (a, b) = chosen.split_at(chosen.len() / 2);
                    let both = [outcomes(a, target, compile), outcomes(b, target, compile)].concat();
                    for (k, r) in left.into_iter().zip(both) {
                        results[k] = Some(r);
                    }
                    break;
                }
                for (k, m) in found {
                    results[left[k]] = Some(Err(format!("refused: {m}")));
                }
            }
        }
    }
    results.into_iter().map(|r| r.unwrap_or_else(|| Err("not run".into()))).collect()
}

fn simulate(cubin: &[u8], i: usize, case: &Case) -> Outcome {
    let launch = case.launch(&format!("f{i}"));
    let run = sim::sass::run(cubin, &launch, sim::sass::Options::default())
        .map_err(|e| format!("simulator: {e}"))?;
    Ok(run.buffers["out"].clone())
}

fn interpret(i: usize, case: &Case) -> Outcome {
    let text = header(Target::parse("sm_103a").expect("a target")) + &case.kernel(&format!("f{i}"));
    let m = ptx::parse(&text).map_err(|d| format!("interpreter: {}", d[0].message))?;
    let run = std::panic::catch_unwind(|| sim::ptx::run(&m, &case.launch(&format!("f{i}"))));
    let run = run.map_err(|_| "interpreter: panic".to_string())?.map_err(|e| format!("interpreter: {e}"))?;
    Ok(run["out"].clone())
}

fn ours(target: Target) -> impl Fn(&str) -> Result<Vec<u8>, String> {
    move |text| {
        let settings = oxptxas::Settings::new(target);
        let run = || oxptxas::compile(text, "k.ptx", &settings);
        match std::panic::catch_unwind(run) {
            Ok(Ok(out)) => Ok(out.cubin),
            Ok(Err(f)) => Err(f.render("oxptxas")),
            Err(p) => {
                let m = p.downcast_ref::<String>().cloned();
                let m = m.or_else(|| p.downcast_ref::<&str>().map(|s| s.to_string()));
                Err(format!("panic {}", m.unwrap_or_default()))
            }
        }
    }
}

fn reference(ptxas: PathBuf, target: Target) -> impl Fn(&str) -> Result<Vec<u8>, String> {
    move |text| {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (from, to) = (dir.path().join("k.ptx"), dir.path().join("k.cubin"));
        std::fs::write(&from, text).map_err(|e| e.to_string())?;
        let out = Command::new(&ptxas)
            .arg(format!("-arch={target}"))
            .args([&from, Path::new("-o"), &to])
            .output()
            .map_err(|e| e.to_string())?;
        if !out.status.success() {
            return Err(
                String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout)
            );
        }
        std::fs::read(&to).map_err(|e| e.to_string())
    }
}

/// The first difference between two outputs, if it counts.
fn difference(case: &Case, a: &[u8], b: &[u8]) -> Option<String> {
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    for at in (0..THREADS * 32).step_by(8) {
        let (x, y) = (word(a, at), word(b, at));
        let close = x == y
            || match case.tolerance {
                Tolerance::Exact => false,
                Tolerance::Ulps(t, n) => near(t, x, y, n),
            };
        if !close {
            let t = at / 32;
            let inputs: Vec<String> = case.inputs[t * 5..t * 5 + 4]
                .iter()
                .map(|w| format!("{:x}", u64::from(w[0]) | u64::from(w[1]) << 32))
                .collect();
            return Some(format!("{x:x} / {y:x} of {} (byte {})", inputs.join(" "), at % 32));
        }
    }
    None
}

fn near(t: Type, x: u64, y: u64, ulps: u64) -> bool {
    let (width, exponent) = match t {
        Type::f16 | Type::f16x2 => (16, 5),
        Type::bf16 | Type::bf16x2 => (16, 8),
        Type::f32 => (32, 8),
        _ => (64, 11),
    };
    (0..64 / width).all(|i| {
        let mask = u64::MAX >> (64 - width);
        let (a, b) = (x >> (i * width) & mask, y >> (i * width) & mask);
        let top = 1u64 << (width - 1);
        let infinity = ((1u64 << exponent) - 1) << (width - 1 - exponent);
        let nan = |v: u64| v & (top - 1) > infinity;
        let key = |v: u64| if v & top != 0 { -((v & (top - 1)) as i64) } else { v as i64 };
        a == b || nan(a) && nan(b) || key(a).abs_diff(key(b)) <= if width == 64 { 1 << 33 } else { ulps }
    })
}

fn targets() -> Vec<Target> {
    let text = std::env::var("FORMS_SM").unwrap_or_else(|_| "75,90,120".into());
    let text = if text == "all" {
        "75,80,86,87,88,89,90,100,103,110,120,121,90a,100a,103a,110a,120a,121a".into()
    } else {
        text
    };
    text.split(',').map(|s| Target::parse(&format!("sm_{s}")).expect("a target")).collect()
}

/// Whether the front end's table says that the target has it.
fn exists(case: &Case, target: Target) -> bool {
    let suffix = match target.suffix {
        sass::target::Suffix::None => Suffix::None,
        sass::target::Suffix::A => Suffix::Arch,
        sass::target::Suffix::F => Suffix::Family,
    };
    case.targets.is_empty() || case.targets.iter().any(|g| g.has(target.sm.into(), suffix))
}

/// Groups equal complaints.
#[derive(Default)]
struct Report {
    kinds: BTreeMap<String, Vec<String>>,
}

impl Report {
    fn add(&mut self, kind: &str, text: String) {
        self.kinds.entry(kind.to_string()).or_default().push(text);
    }
}

#[test]
fn every_form_gives_the_interpreters_result() {
    let filter = std::env::var("FORMS").unwrap_or_default();
    let wanted = |c: &Case| filter.is_empty() || filter.split(',').any(|f| c.text.contains(f));
    let cases: Vec<Case> = generate::cases().into_iter().filter(wanted).collect();
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    let ptxas = std::env::var_os("OXPTXAS_ORACLES").map(|d| Path::new(&d).join("ptxas"));
    if ptxas.is_none() {
        eprintln!("oracle tools not installed: ptxas's code is not compared");
    }
    let expected: Vec<Outcome> = numbered.par_iter().map(|(i, c)| interpret(*i, c)).collect();
    let mut report = Report::default();
    let mut compared = 0;
    let thin = ptxas.is_none() && filter.is_empty() && std::env::var_os("FORMS_SM").is_none();
    for (n, target) in targets().into_iter().enumerate() {
        let taken = |i: usize, c: &Case| (ptxas.is_some() || exists(c, target)) && (!thin || i % 3 == n);
        let chosen: Vec<(usize, &Case)> = numbered.iter().copied().filter(|(i, c)| taken(*i, c)).collect();
        let mine: Vec<Outcome> =
            chosen.par_chunks(BATCH).flat_map_iter(|b| outcomes(b, target, &ours(target))).collect();
        let theirs: Option<Vec<Outcome>> = ptxas.as_ref().map(|p| {
            let compile = reference(p.clone(), target);
            chosen.par_chunks(BATCH).flat_map_iter(|b| outcomes(b, target, &compile)).collect()
        });
        for (k, (i, c)) in chosen.iter().enumerate() {
            let place = |m: &str| format!("{target}: {}: {m}", c.text);
            let their = theirs.as_ref().map(|t| &t[k]);
            let refused = |o: &Outcome| matches!(o, Err(m) if m.starts_with("refused"));
            if their.is_some_and(refused) {
                if mine[k].is_ok() {
                    report.add("accepted, not by ptxas", place(their.unwrap().as_ref().unwrap_err()));
                }
                continue;
            }
            // What makes a NaN special to `.oob` is not known: compiled, but not simulated.
            if c.text.contains(".oob") && mine[k].as_ref().is_err_and(|m| m.contains("modifier .OOB")) {
                continue;
            }
            match (&mine[k], &expected[*i]) {
                (Err(m), _) => report.add("ours", place(m)),
                (_, Err(m)) => report.add("interpreter", place(m)),
                (Ok(a), Ok(b)) => {
                    compared += 1;
                    if let Some(d) = difference(c, a, b) {
                        report.add("ours / interpreter", place(&d));
                    }
                }
            }
            // ptxas computes some 33- and 34-bit intermediate results of video instructions in 32 bits.
            // For sm_75 its `.satfinite.f16.f32` is an opcode that sm_75 does not have.
            let invalid = |c: &Case| target.sm == 75 && c.text.contains(".satfinite.f16.f32");
            let their = their.filter(|_| !c.text.starts_with('v') && !invalid(c));
            match (their, &expected[*i], &mine[k]) {
                (Some(Err(m)), _, _) => report.add("ptxas's code", place(m)),
                (Some(Ok(a)), Ok(b), _) => {
                    if let Some(d) = difference(c, a, b) {
                        report.add("ptxas / interpreter", place(&d));
                    }
                }
                (Some(Ok(a)), _, Ok(b)) => {
                    if let Some(d) = difference(c, a, b) {
                        report.add("ptxas / ours", place(&d));
                    }
                }
                _ => {}
            }
        }
    }
    if let Some(path) = std::env::var_os("FORMS_LIST") {
        let lines = |(kind, list): (&String, &Vec<String>)| -> String {
            list.iter().map(|l| format!("{kind}\t{l}\n")).collect()
        };
        std::fs::write(path, report.kinds.iter().map(lines).collect::<String>())
            .expect("FORMS_LIST can be written");
    }
    let mut text = format!("{compared} forms compared\n");
    for (kind, list) in &report.kinds {
        text += &format!("== {kind}: {}\n", list.len());
        for l in list.iter().take(12) {
            text += &format!("  {l}\n");
        }
    }
    eprintln!("{text}");
    // What the simulator cannot run of ptxas's code is no failure of ours.
    let failure = |k: &str| !matches!(k, "accepted, not by ptxas" | "ptxas's code" | "interpreter");
    assert!(compared > 0 && !report.kinds.keys().any(|k| failure(k)), "{text}");
}
