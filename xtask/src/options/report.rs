//! docs/options.md.

use super::cases::{self, PROBES, REASONS, SMS};
use super::{Effect, Result2};
use oxptxas::options::{OPTIONS, Opt, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What differs without a reason, and reasons for what does not differ.
pub fn unexplained(results: &[Result2], effects: &[Effect]) -> Vec<String> {
    let mut out = Vec::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut differ = |option: Option<&'static str>, what: String| match option {
        Some(option) => _ = used.insert(option),
        None => out.push(what),
    };
    for r in results.iter().filter(|r| !r.theirs.same(&r.ours)) {
        differ(reason(r), format!("differs: {}", r.case.shown()));
    }
    for e in effects.iter().filter(|e| e.theirs != e.ours) {
        let given = REASONS.iter().map(|(o, _)| *o).find(|o| *o == e.option);
        differ(given, format!("effect differs: --{} on {} for sm_{}", e.option, e.probe, e.sm));
    }
    let looked = |option: &str| results.iter().any(|r| r.case.option == option);
    let whole = !effects.is_empty();
    let stale = REASONS.iter().filter(|(o, _)| whole && looked(o) && !used.contains(o));
    out.extend(stale.map(|(o, _)| format!("a reason for --{o}, which does not differ")));
    out
}

/// The option whose reason explains why an outcome differs: the one that the line is about, or, where it is about several, the
/// first of them that has one.
fn reason(r: &Result2) -> Option<&'static str> {
    let about = |option: &str| {
        let named = |o: &Opt| {
            let names = [format!("-{}", o.short), format!("--{}", o.long)];
            r.case.args.iter().any(|a| a.split('=').next().is_some_and(|a| names.iter().any(|n| n == a)))
        };
        r.case.option == option
            || OPTIONS.iter().all(|o| o.long != r.case.option)
                && OPTIONS.iter().any(|o| o.long == option && named(o))
    };
    REASONS.iter().map(|(option, _)| *option).find(|option| about(option))
}

/// Where a file changes: probes, with the targets unless it is all.
fn places(effects: &[Effect], option: &str, of: impl Fn(&Effect) -> Option<bool>) -> String {
    let mut by_probe: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for e in effects.iter().filter(|e| e.option == option && of(e) == Some(true)) {
        by_probe.entry(e.probe).or_default().push(e.sm);
    }
    if by_probe.is_empty() {
        return "nothing".into();
    }
    let one = |(probe, sms): (&&str, &Vec<u32>)| {
        if sms.len() == SMS.len() {
            return (*probe).to_string();
        }
        let sms: Vec<String> = sms.iter().map(u32::to_string).collect();
        format!("{probe} ({})", sms.join(" "))
    };
    by_probe.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The page.
pub fn page(results: &[Result2], effects: &[Effect]) -> String {
    let mut out = String::from(
        "# Options\n\n\
         Written by `cargo xtask options`, which runs ptxas 13.0.88 and oxptxas on every option with good, bad, missing and\n\
         repeated values in all spellings, and compares exit status, files, and the messages' classes, lines and subjects (not their\n\
         words). \"Changes\" says for which probes the sections of the file change by the option: with ptxas, and with ours.\n\n",
    );
    let same = results.iter().filter(|r| r.theirs.same(&r.ours)).count();
    let _ = writeln!(out, "{} command lines; the outcome is the same for {same}.\n", results.len());
    out += "## Probes\n\n";
    for p in PROBES.iter().filter(|p| p.effects) {
        let options =
            if p.options.is_empty() { String::new() } else { format!(", with `{}`", p.options.join(" ")) };
        let _ = writeln!(out, "* **{}**: {}{options}", p.name, p.what);
    }
    let sms: Vec<String> = SMS.iter().map(|sm| format!("sm_{sm}")).collect();
    let _ = writeln!(out, "\nEach for {}.\n\n## All options\n", sms.join(", "));
    out += "| option | short | what it does | same | changes with ptxas | with ours |\n|---|---|---|---:|---|---|\n";
    for opt in OPTIONS.iter().filter(|o| !cases::OURS.contains(&o.long)) {
        let own: Vec<&Result2> = results.iter().filter(|r| r.case.option == opt.long).collect();
        let same = own.iter().filter(|r| r.theirs.same(&r.ours)).count();
        let short = if opt.short.is_empty() { String::new() } else { format!("`-{}`", opt.short) };
        let tried = effects.iter().any(|e| e.option == opt.long);
        let (theirs, ours) = match tried {
            true => (places(effects, opt.long, |e| e.theirs), places(effects, opt.long, |e| e.ours)),
            false => (String::new(), String::new()),
        };
        let _ = writeln!(
            out,
            "| `--{}` | {short} | {}{} | {same} of {} | {theirs} | {ours} |",
            opt.long,
            opt.help.replace('|', "\\|"),
            state(opt),
            own.len()
        );
    }
    out += "\n## Options together\n\n";
    let own: Vec<&Result2> =
        results.iter().filter(|r| OPTIONS.iter().all(|o| o.long != r.case.option)).collect();
    let _ = writeln!(out, "| command line | ptxas | ours |\n|---|---|---|");
    for r in own {
        let _ = writeln!(out, "| `{}` | {} | {} |", r.case.shown(), verdict(r, true), verdict(r, false));
    }
    out += "\n## What differs, and why\n\n";
    for (option, why) in REASONS {
        let _ = writeln!(out, "* **`--{option}`**: {why}.");
        for r in results.iter().filter(|r| reason(r) == Some(option) && !r.theirs.same(&r.ours)) {
            let _ = writeln!(
                out,
                "  * `{}`: ptxas {}; ours {}",
                r.case.shown(),
                verdict(r, true),
                verdict(r, false)
            );
        }
    }
    out
}

fn state(opt: &Opt) -> String {
    match opt.status {
        Status::NotBuilt => " **(refused)**".into(),
        Status::Built | Status::Moot => String::new(),
    }
}

/// Status, files and the number of messages.
fn verdict(r: &Result2, theirs: bool) -> String {
    let o = if theirs { &r.theirs } else { &r.ours };
    let files = if o.files.is_empty() {
        "no file".to_string()
    } else {
        o.files.iter().cloned().collect::<Vec<_>>().join(" ")
    };
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for m in &o.messages {
        *count.entry(m.split(' ').next().unwrap_or("")).or_default() += 1;
    }
    let said: Vec<String> = count.iter().map(|(class, n)| format!("{n} {class}")).collect();
    let said = if said.is_empty() { String::new() } else { format!(", {}", said.join(", ")) };
    let status = if o.status < 0 { "a signal".to_string() } else { o.status.to_string() };
    format!("{status}, {files}{said}")
}
