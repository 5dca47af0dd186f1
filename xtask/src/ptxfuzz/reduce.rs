//! Makes a failing program small: lines are left out as long as the program stays defined and fails in the same way.

use super::generate::Program;
use super::run::{self, Failure, Kind};
use std::collections::HashSet;

/// Whether the program still fails as `failure` says.
fn still(p: &Program, failure: &Failure) -> bool {
    if mixes_carries(&p.text) || reads_before_writing(&p.text) {
        return false;
    }
    let sm = failure.setup.sm;
    let runs = !matches!(failure.kind, Kind::Rejected | Kind::Hazard | Kind::VendorRejected);
    let want = match run::define(p, sm, runs) {
        Ok(m) => m,
        Err((kind, _)) => return kind == Kind::Panic && failure.kind == Kind::Panic,
    };
    run::check(p, &want, &failure.setup).is_some_and(|f| f.signature() == failure.signature())
}

/// Whether something reads a carry that nothing, or the opposite operation, wrote.
fn mixes_carries(text: &str) -> bool {
    let mut last = "";
    for l in text.lines() {
        let op = l.trim().split(' ').next().unwrap_or("");
        let kind = if op.starts_with("sub") { "sub" } else { "add" };
        let reads = ["subc.", "addc.", "madc."].iter().any(|p| op.starts_with(p));
        if reads && last != kind {
            return true;
        }
        if op.contains(".cc.") {
            last = kind;
        }
    }
    false
}

/// Whether some line names a register that no line before it, and none of the same function, has written.
fn reads_before_writing(text: &str) -> bool {
    let mut written: HashSet<&str> = HashSet::new();
    let registers = |s: &'_ str| -> Vec<(usize, usize)> {
        let mut found = vec![];
        for (at, _) in s.match_indices('%') {
            let rest = &s[at + 1..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            found.push((at, at + 1 + end));
        }
        found
    };
    for line in text.lines() {
        if line.starts_with(".func") || line.contains(".entry") {
            written.clear();
        }
        let statement = line.trim_start();
        if statement.starts_with('.') || statement.starts_with('{') {
            continue;
        }
        let (guard, rest) = match statement.strip_prefix('@') {
            Some(s) => s.split_once(' ').unwrap_or((s, "")),
            None => ("", statement),
        };
        let (op, operands) = rest.split_once(' ').unwrap_or((rest, ""));
        let stores = ["st.", "red.", "bra", "bar", "call"].iter().any(|s| op.starts_with(s));
        // The first operand is the result; a vector up to its closing brace.
        let end = match operands.strip_prefix('{') {
            _ if stores => 0,
            Some(v) => v.find('}').unwrap_or(0),
            None => operands.find(',').unwrap_or(operands.len()),
        };
        let known = |s: &str| written.contains(s) || ["%tid", "%ctaid", "%ntid", "%laneid"].contains(&s);
        let special = |s: &str| matches!(s, "%nctaid" | "%warpid" | "%activemask");
        let mut results = vec![];
        for (from, to) in registers(operands) {
            match from < end {
                true => results.push(&operands[from..to]),
                false if !known(&operands[from..to]) && !special(&operands[from..to]) => return true,
                false => {}
            }
        }
        if registers(guard).iter().any(|(from, to)| !known(&guard[*from..*to])) {
            return true;
        }
        written.extend(results);
    }
    false
}

/// The smallest program found that fails in the same way.
pub fn reduce(program: &Program, failure: &Failure) -> Program {
    let mut best = program.clone();
    let whole = [".sync", "%lane", "bar."].iter().any(|w| program.text.contains(w));
    for threads in [1, 2, 32].into_iter().filter(|n| *n == 32 || !whole) {
        let mut p = best.clone();
        p.launch.block = [threads, 1, 1];
        p.launch.grid = [1; 3];
        if threads < best.launch.block[0] && still(&p, failure) {
            best = p;
            break;
        }
    }
    loop {
        let before = best.text.len();
        functions(&mut best, failure);
        lines(&mut best, failure);
        guards(&mut best, failure);
        if best.text.len() == before {
            return best;
        }
    }
}

fn with_lines(p: &Program, lines: &[&str]) -> Program {
    let mut text = lines.join("\n");
    text.push('\n');
    Program { text, ..p.clone() }
}

/// Leaves out whole functions and their calls.
fn functions(best: &mut Program, failure: &Failure) {
    for k in 0..8 {
        let name = format!("fn{k}");
        let mut kept: Vec<&str> = Vec::new();
        let mut inside = false;
        for l in best.text.lines() {
            if l.starts_with(".func") && l.contains(&format!("{name}(")) {
                inside = true;
            }
            let called = l.contains("call") && l.contains(&format!("{name},"));
            if !inside && !called {
                kept.push(l);
            }
            inside &= l != "}";
        }
        let p = with_lines(best, &kept);
        if p.text.len() < best.text.len() && still(&p, failure) {
            *best = p;
        }
    }
}

/// Leaves out runs of lines, long ones first.
fn lines(best: &mut Program, failure: &Failure) {
    let mut length = best.text.lines().count() / 2;
    while length > 0 {
        let mut at = 0;
        loop {
            let text = best.text.clone();
            let all: Vec<&str> = text.lines().collect();
            if at >= all.len() {
                break;
            }
            let end = (at + length).min(all.len());
            let kept: Vec<&str> = all[..at].iter().chain(&all[end..]).copied().collect();
            let p = with_lines(best, &kept);
            if still(&p, failure) { *best = p } else { at += length }
        }
        length /= 2;
    }
}

/// Takes predicates off instructions.
fn guards(best: &mut Program, failure: &Failure) {
    for i in 0..best.text.lines().count() {
        let text = best.text.clone();
        let mut all: Vec<String> = text.lines().map(str::to_string).collect();
        let Some(rest) = all[i].trim_start().strip_prefix('@') else { continue };
        let Some((_, inst)) = rest.split_once(' ') else { continue };
        all[i] = format!("\t{inst}");
        let p = with_lines(best, &all.iter().map(String::as_str).collect::<Vec<_>>());
        if still(&p, failure) {
            *best = p;
        }
    }
}
