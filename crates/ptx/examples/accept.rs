//! `accept FILE…`: parses and checks PTX files, each for its own target, and says which are refused, what the
//! most frequent complaints are, and how fast that was. With `ALL_TARGETS` set, for every SM that `.target` allows; with
//! `OXPTXAS_ORACLES` too, `ptxas -arch=compute_N` must say the same.

use ptx::check::runs_on;
use ptx::isa::Suffix;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What ptxas 13.0 compiles for.
const TARGETS: &[&str] = &[
    "75", "80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121", "90a", "100a", "103a",
    "110a", "120a", "121a",
];

/// Files times targets that were tried, and what went wrong.
#[derive(Default)]
struct Targets {
    tried: usize,
    accepted: usize,
    asked: usize,
    refused_by_ptxas: usize,
}

impl Targets {
    fn run(&mut self, file: &str, module: &ptx::Module) {
        let tools = std::env::var_os("OXPTXAS_ORACLES");
        for name in TARGETS {
            let (sm, suffix) = (name.trim_end_matches('a').parse().expect("a number"), Suffix::of(name));
            if !runs_on(module, sm, suffix) {
                continue;
            }
            self.tried += 1;
            match ptx::check(module, sm) {
                Ok(()) => self.accepted += 1,
                Err(errors) => println!("{file} for sm_{name}: {}", errors[0].message),
            }
            let Some(tools) = &tools else { continue };
            let ptxas = Command::new(Path::new(tools).join("ptxas"))
                .arg(format!("-arch=compute_{name}"))
                .arg(file)
                .output();
            self.asked += 1;
            if !ptxas.is_ok_and(|o| o.status.success()) {
                self.refused_by_ptxas += 1;
                println!("{file} for sm_{name}: refused by ptxas");
            }
        }
    }
}

fn main() {
    let all_targets = std::env::var_os("ALL_TARGETS").is_some();
    let mut targets = Targets::default();
    let (mut accepted, mut bytes, mut refused) = (0usize, 0usize, Vec::new());
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let (mut parsing, mut checking) = (0.0, 0.0);
    for file in std::env::args().skip(1) {
        let source = match std::fs::read_to_string(&file) {
            Ok(source) => source,
            Err(e) => {
                eprintln!("{file}: {e}");
                continue;
            }
        };
        bytes += source.len();
        let start = Instant::now();
        let module = ptx::parse(&source);
        parsing += start.elapsed().as_secs_f64();
        if let (true, Ok(module)) = (all_targets, &module) {
            targets.run(&file, module);
        }
        let start = Instant::now();
        let verdict = module.and_then(|m| ptx::check(&m, ptx::check::target_sm(&m)));
        checking += start.elapsed().as_secs_f64();
        match verdict {
            Ok(()) => accepted += 1,
            Err(errors) => {
                let lines = ptx::LineIndex::new(&source);
                for e in &errors {
                    *reasons.entry(e.message.clone()).or_default() += 1;
                }
                refused.push(errors[0].render("ptxas", &file, &source, &lines));
            }
        }
    }
    if std::env::var_os("VERBOSE").is_some() {
        refused.iter().for_each(|r| print!("{r}"));
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|r| std::cmp::Reverse(r.1));
    for (message, n) in reasons.iter().take(40) {
        println!("{n:6}  {message}");
    }
    if all_targets {
        let Targets { tried, accepted, asked, refused_by_ptxas } = targets;
        println!(
            "files times targets: {accepted} of {tried} accepted; ptxas asked about {asked}, refuses {refused_by_ptxas}"
        );
    }
    let mb = bytes as f64 / 1e6;
    println!(
        "accepted {accepted}, refused {}; {mb:.1} MB: parse {:.1} MB/s, check {:.1} MB/s",
        refused.len(),
        mb / parsing,
        mb / checking
    );
}
