//! `cargo xtask regions`: where our code and ptxas's have convergence regions (BSSY … BSYNC), by the statement of the PTX whose
//! branch the region is around. What only one of the two has is counted by class (docs/convergence.md).

use crate::code::{Files, How, Source, jobs};
use rayon::prelude::*;
use sass::{Guard, Inst, Mod, Opcode, Operand, Reg};
use sim::order::{self, Code};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    files: Files,
    /// Every nth file only.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Places to show of every class.
    #[arg(long, default_value_t = 1)]
    examples: usize,
}

/// What a compiler's code has, by line of the PTX.
#[derive(Default)]
struct Shape {
    /// How many regions around a branch of the line.
    regions: BTreeMap<u32, usize>,
    /// Branches that some lanes may take, and calls.
    branches: BTreeSet<u32>,
    /// Branches that the instruction says all lanes take or none.
    uniform: BTreeSet<u32>,
    /// Any instruction.
    lines: BTreeSet<u32>,
    /// Regions in functions in the code.
    in_functions: usize,
}

/// Whether lanes may part at the instruction.
fn parts(inst: &Inst) -> bool {
    match inst.op {
        Opcode::BRA => {
            let second = inst.operands.iter().any(|o| o.as_reg().is_some_and(|r| r.reg != Reg::PT));
            inst.guard != Guard::TRUE || second
        }
        Opcode::BRX | Opcode::BRXU | Opcode::CALL => true,
        _ => false,
    }
}

fn shape(code: &Code, functions: &[usize]) -> Shape {
    let mut out = Shape::default();
    let own = functions.iter().copied().filter(|f| *f != 0).min().unwrap_or(usize::MAX);
    for (k, inst) in code.insts.iter().enumerate() {
        let Some(inst) = inst else { continue };
        let inside = k >= own;
        if inst.op == Opcode::BSSY && inside {
            out.in_functions += 1;
        }
        if inside {
            continue;
        }
        out.lines.insert(code.lines[k]);
        if parts(inst) {
            out.branches.insert(code.lines[k]);
            if inst.mods.has(Mod::U) {
                out.uniform.insert(code.lines[k]);
            }
        }
        if inst.op != Opcode::BSSY {
            continue;
        }
        let end = inst.operands.iter().find_map(|o| match o {
            Operand::Label(to) => usize::try_from(*to / 16).ok(),
            _ => None,
        });
        let behind = code.insts.iter().enumerate().take(end.unwrap_or(usize::MAX)).skip(k + 1);
        let around = behind.filter_map(|(n, i)| i.as_ref().filter(|i| parts(i)).map(|_| n)).next();
        *out.regions.entry(code.lines[around.unwrap_or(k)]).or_default() += 1;
    }
    out
}

/// What a statement is, and what lies between it and where it branches to.
fn statement(text: &[&str], line: u32) -> String {
    let at = (line as usize).saturating_sub(1);
    let own = text.get(at).copied().unwrap_or_default();
    let Some(label) = own.split("bra").nth(1).filter(|_| own.contains("bra")) else {
        let word = own.trim_start().trim_start_matches(['@', '!', '{']);
        let word = if own.trim_start().starts_with('@') {
            word.split_whitespace().nth(1)
        } else {
            word.split_whitespace().next()
        };
        let op = word.unwrap_or_default().split('.').next().unwrap_or_default().trim_end_matches(';');
        return match op {
            "div" | "rem" | "sqrt" | "rcp" | "rsqrt" => "a division or root".into(),
            "call" => "a call".into(),
            "" => "no statement".into(),
            _ => format!("'{op}'"),
        };
    };
    let label =
        label.trim_start_matches(".uni").split_whitespace().next().unwrap_or_default().trim_end_matches(';');
    let to = text.iter().position(|l| l.trim_start().starts_with(&format!("{label}:")));
    let Some(to) = to else { return "a branch by a table".into() };
    let between = &text[at.min(to)..at.max(to)];
    let has = |words: &[&str]| between.iter().any(|l| words.iter().any(|w| l.contains(w)));
    let gathers = has(&["bar.", "barrier.", ".sync", "mma."]);
    let spins = to < at && has(&["atom.", ".volatile", ".acquire", ".relaxed", "mbarrier."]);
    let next = text[to + 1..]
        .iter()
        .map(|l| l.trim())
        .find(|l| !l.is_empty() && !l.starts_with("//") && !l.ends_with(':') && !l.starts_with('.'));
    let ends = next.is_some_and(|l| l.starts_with("ret") || l.starts_with("exit"));
    let kind = if to < at {
        "a loop"
    } else if ends {
        "a branch to the end of the thread"
    } else {
        "a branch"
    };
    let what = match (spins, gathers) {
        (true, _) => " with an atomic or ordered access",
        (_, true) => " around a .sync statement",
        _ => "",
    };
    format!("{kind}{what}")
}

/// The class of a line where one side has regions and the other has fewer.
fn class(other: &Shape, whose: &str, line: u32, text: &[&str]) -> String {
    let there = match () {
        () if other.regions.contains_key(&line) => "has fewer copies of it",
        () if other.uniform.contains(&line) => "has a branch of all lanes",
        () if other.branches.contains(&line) => "has a branch without a region",
        () if other.lines.contains(&line) => "has no branch",
        () => "has nothing of that line",
    };
    format!("{}: {whose} {there}", statement(text, line))
}

/// Regions around branches that the other side has without one, or not at that line.
fn pairable(side: &[(String, String)]) -> Vec<usize> {
    let other = |class: &str| class.ends_with("without a region") || class.ends_with("nothing of that line");
    (0..side.len()).filter(|k| other(&side[*k].0)).collect()
}

/// Counts and prints.
///
/// # Errors
/// When nothing can be compiled.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let all: Vec<(PathBuf, String)> = jobs(root, &options.files.paths, &options.files.sm)
        .into_iter()
        .step_by(options.every.max(1))
        .collect();
    let source =
        |ptxas| Source { files: Files { paths: vec![], sm: vec![] }, ptxas, opt_level: 3, knob: vec![] };
    let (ours, theirs) = (source(false), source(true));
    let how = How { lines: true, ..How::default() };
    let one = |(ptx, sm): &(PathBuf, String)| -> Result<Vec<(String, usize, String)>, String> {
        let text = std::fs::read_to_string(ptx).map_err(|e| e.to_string())?;
        let own = order::load(&ours.cubin(root, bin, (ptx, &text), sm, how)?)?;
        let other = order::load(&theirs.cubin(root, bin, (ptx, &text), sm, how)?)?;
        let other: BTreeMap<String, Shape> =
            other.into_iter().map(|(name, code, functions)| (name, shape(&code, &functions))).collect();
        let lines: Vec<&str> = text.lines().collect();
        let mut found = Vec::new();
        for (name, code, functions) in own {
            let Some(b) = other.get(&name) else { continue };
            let a = shape(&code, &functions);
            found.push(("kernels".into(), 1, String::new()));
            found.push(("in functions in the code, ours".into(), a.in_functions, String::new()));
            found.push(("in functions in the code, ptxas's".into(), b.in_functions, String::new()));
            let (mut left, mut right) = (Vec::new(), Vec::new());
            let keys: BTreeSet<u32> = a.regions.keys().chain(b.regions.keys()).copied().collect();
            for line in keys {
                let count = |s: &Shape| s.regions.get(&line).copied().unwrap_or(0);
                let (m, n) = (count(&a), count(b));
                let place = format!("{} sm_{sm} {name}, line {line}", ptx.display());
                found.push(("both".into(), m.min(n), String::new()));
                if m > n {
                    let what = (format!("ours alone\t{}", class(b, "ptxas", line, &lines)), place);
                    left.extend(std::iter::repeat_n(what, m - n));
                } else if n > m {
                    let what = (format!("ptxas alone\t{}", class(&a, "ours", line, &lines)), place);
                    right.extend(std::iter::repeat_n(what, n - m));
                }
            }
            // The first branch of a region need not be the same, where it has several.
            let (l, r) = (pairable(&left), pairable(&right));
            let pairs = l.len().min(r.len());
            found.push(("both, the first branch is another".into(), pairs, String::new()));
            for (side, which) in [(left, l), (right, r)] {
                let rest = side.into_iter().enumerate().filter(|(k, _)| !which[..pairs].contains(k));
                found.extend(rest.map(|(_, (class, place))| (class, 1, place)));
            }
        }
        Ok(found)
    };
    let results: Vec<Result<_, String>> = all.par_iter().map(one).collect();
    let files = results.iter().flatten().count();
    let mut classes: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for (class, n, place) in results.into_iter().flatten().flatten() {
        let entry = classes.entry(class).or_default();
        entry.0 += n;
        if entry.1.len() < options.examples && !place.is_empty() {
            entry.1.push(place);
        }
    }
    if files == 0 {
        return Err("nothing was compiled".into());
    }
    println!("{files} files");
    let mut order: Vec<_> = classes.into_iter().collect();
    order.sort_by_key(|(class, (n, _))| (class.split('\t').next().map(String::from), std::cmp::Reverse(*n)));
    for (class, (n, places)) in order {
        println!("{n}\t{class}");
        places.iter().for_each(|p| println!("\t\t{p}"));
    }
    Ok(())
}
