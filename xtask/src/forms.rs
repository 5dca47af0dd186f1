//! `form-cubins`: what ptxas makes of every form of every PTX instruction, for each target.

use crate::compile::succeeds;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What to compile.
#[derive(clap::Args)]
pub struct Options {
    /// Folder of the cubins: OUT/TARGET/NAME.cubin. A target that has one is left alone.
    #[arg(long)]
    out: PathBuf,
    /// Only these targets (`sm_90`, `sm_90a`).
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// Statements in one module.
    #[arg(long, default_value_t = 300)]
    batch: usize,
    /// Give up on a module after so many seconds, and try halves of it.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
}

/// All targets, the most able form of those that have several last.
const TARGETS: &[&str] = &[
    "75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "103", "103a", "110", "110a", "120",
    "120a", "121", "121a",
];

/// Registers of every type that the statements name.
const REGISTERS: &[(&str, &str)] = &[
    ("pred", "p"),
    ("b8", "b8r"),
    ("u8", "u8r"),
    ("s8", "s8r"),
    ("b16", "b16r"),
    ("u16", "u16r"),
    ("s16", "s16r"),
    ("f16", "f16r"),
    ("b32", "b32r"),
    ("u32", "u32r"),
    ("s32", "s32r"),
    ("f32", "f32r"),
    ("b64", "b64r"),
    ("u64", "u64r"),
    ("s64", "s64r"),
    ("f64", "f64r"),
    ("b128", "b128r"),
    ("f16x2", "f16x2r"),
];

/// The module up to the statements, with the symbols that they name (crates/ptx/examples/forms).
fn prelude(target: &str) -> String {
    let mut out = format!(".version 9.0\n.target sm_{target}\n.address_size 64\n");
    out += ".global .align 32 .b8 gv[64];\n.const .align 16 .b8 cv[64];\n.global .texref tx;\n.global .surfref sf;\n\
            .func ff() { ret; }\n.func (.param .b32 o) fg(.param .b32 i, .param .b64 j) { ret; }\n\
            .entry k(.param .u64 k0, .param .u32 k1)\n{\n";
    for (ty, name) in REGISTERS {
        out += &format!(".reg .{ty} {name}<260>;\n");
    }
    out += ".shared .align 16 .b8 sv[64];\n.local .align 16 .b8 lv[64];\nK:\nT: .branchtargets K;\n\
            .param .b32 pa, pr;\n.param .b64 pb;\n\
            P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);\n";
    out
}

/// The lines that ptxas complains about.
fn complaints(stderr: &str) -> BTreeSet<usize> {
    let number = |l: &str| {
        let (number, rest) = l.split_once(", line ")?.1.split_once(';')?;
        let kind = rest.split_once(':')?.0.trim();
        matches!(kind, "error" | "fatal").then(|| number.parse().ok())?
    };
    stderr.lines().filter_map(number).collect()
}

/// Compiles statements, leaving out those that ptxas refuses; the number that it takes.
fn compile(ptxas: &Path, target: &str, out: &Path, statements: &[&str], options: &Options) -> usize {
    let head = prelude(target);
    let first = head.lines().count() + 1;
    let mut live = statements.to_vec();
    let (source, errors) = (out.with_extension("ptx"), out.with_extension("txt"));
    let command = |file: &Path| {
        let mut c = Command::new("sh");
        c.args(["-c", r#""$0" -O0 -arch "sm_$1" "$2" -o "$3" 2>"$4""#]);
        c.arg(ptxas).arg(target).arg(file).arg(out).arg(&errors);
        c
    };
    let mut done = false;
    for _ in 0..8 {
        if live.is_empty() {
            break;
        }
        if std::fs::write(&source, format!("{head}{}\nret;\n}}\n", live.join("\n"))).is_err() {
            break;
        }
        if succeeds(&mut command(&source), Duration::from_secs(options.seconds)) {
            done = true;
            break;
        }
        let text = std::fs::read(&errors).unwrap_or_default();
        let bad = complaints(&String::from_utf8_lossy(&text));
        let before = live.len();
        let mut line = first;
        live.retain(|_| {
            line += 1;
            !bad.contains(&(line - 1))
        });
        if live.len() == before {
            break;
        }
    }
    let _ = std::fs::remove_file(&source);
    let _ = std::fs::remove_file(&errors);
    if done {
        return live.len();
    }
    let _ = std::fs::remove_file(out);
    if live.len() < 2 {
        return 0;
    }
    // Something with the whole module, or too slow.
    let name = out.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let half = |(i, part): (usize, &[&str])| {
        compile(ptxas, target, &out.with_file_name(format!("{name}{i}.cubin")), part, options)
    };
    live.chunks(live.len().div_ceil(2)).enumerate().map(half).sum()
}

/// Compiles the statements that `cargo run -p oxptxas-ptx --example forms` writes.
pub fn run(options: &Options, root: &Path, bin: &Path) -> Result<(), String> {
    let mut forms = Command::new("cargo");
    forms
        .args(["run", "-q", "--release", "-p", "oxptxas-ptx", "--example", "forms"])
        .env("DUMP", "1")
        .current_dir(root);
    let out = forms.env("OXPTXAS_ORACLES", bin).output().map_err(|e| format!("forms: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut by_op: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in text.lines() {
        let mut columns = line.splitn(3, '\t');
        if let (Some(op), _, Some(statement)) = (columns.next(), columns.next(), columns.next()) {
            by_op.entry(op).or_default().insert(statement);
        }
    }
    let total: usize = by_op.values().map(BTreeSet::len).sum();
    println!("{} instructions, {total} statements", by_op.len());
    for target in TARGETS {
        let dir = options.out.join(format!("sm_{target}"));
        let wanted = options.targets.is_empty() || options.targets.contains(&format!("sm_{target}"));
        if !wanted || dir.exists() {
            continue;
        }
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let jobs: Vec<(PathBuf, Vec<&str>)> = by_op
            .iter()
            .flat_map(|(op, statements)| {
                let list: Vec<&str> = statements.iter().copied().collect();
                let name = |i: usize| dir.join(format!("{}_{i}_.cubin", op.replace('.', "_")));
                let parts = list.chunks(options.batch).enumerate();
                parts.map(|(i, part)| (name(i), part.to_vec())).collect::<Vec<_>>()
            })
            .collect();
        let taken = AtomicUsize::new(0);
        jobs.par_iter().for_each(|(out, part)| {
            let n = compile(&bin.join("ptxas"), target, out, part, options);
            taken.fetch_add(n, Ordering::Relaxed);
        });
        println!("sm_{target}: ptxas takes {} statements", taken.into_inner());
    }
    Ok(())
}
