//! `vendor-words`: every instruction word of cubins, as the table and as nvdisasm read it.

use crate::fuzz::{Answer, ask, squeeze};
use rayon::prelude::*;
use sass::{Control, Target, assemble, disassemble};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Which files to read.
#[derive(clap::Args)]
pub struct Options {
    /// Cubins, and folders of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Print so many words of each kind of difference.
    #[arg(long, default_value_t = 3)]
    examples: usize,
}

fn collect(path: &Path, out: &mut Vec<PathBuf>) -> Result<(), String> {
    if !path.is_dir() {
        out.push(path.into());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut entries: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    entries.retain(|p| p.is_dir() || p.extension().is_some_and(|e| e == "cubin"));
    entries.iter().try_for_each(|p| collect(p, out))
}

/// How often each word of a target occurs in the files.
type Words = BTreeMap<Target, HashMap<u128, u64>>;

fn words(files: &[PathBuf]) -> (Words, usize) {
    let read = |path: &PathBuf| {
        let image = cubin::read::read(&std::fs::read(path).ok()?).ok()?;
        let code: Vec<u128> = image.kernels.into_values().flat_map(|k| k.code).collect();
        Some((Target::new(image.sm)?, code))
    };
    let mut all = Words::new();
    let mut unread = 0;
    for path in files {
        let Some((target, code)) = read(path) else {
            unread += 1;
            continue;
        };
        let counts = all.entry(target).or_default();
        code.into_iter().for_each(|w| *counts.entry(w).or_default() += 1);
    }
    (all, unread)
}

/// What differs about a word.
enum Verdict {
    Same,
    /// The text is the same; assembled it gives these other bits.
    Bits(u128),
    Text(String),
}

fn judge(answer: &Answer, target: Target) -> Verdict {
    let Answer { word, text, pc } = answer;
    let ours = disassemble(*word, target, *pc);
    let (Some(text), Ok(ours)) = (text, &ours) else {
        return match (text, ours) {
            (None, Err(_)) => Verdict::Same,
            (_, Ok(ours)) => Verdict::Text(ours),
            (_, Err(e)) => Verdict::Text(e.to_string()),
        };
    };
    if squeeze(ours) != *text {
        return Verdict::Text(ours.clone());
    }
    match assemble(ours, target, *pc, Control::from_bits(*word)) {
        Ok(again) if again == *word => Verdict::Same,
        Ok(again) => Verdict::Bits(again ^ word),
        Err(e) => Verdict::Text(e.to_string()),
    }
}

/// Compares every word of the files and prints how many agree.
pub fn run(options: &Options, bin: &Path, dir: &Path) -> Result<(), String> {
    let mut files = Vec::new();
    options.paths.iter().try_for_each(|p| collect(p, &mut files))?;
    let (all, unread) = words(&files);
    println!("{} files, {unread} of them not readable", files.len());
    println!("target   instructions  distinct  same text  same 128 bits");
    let mut kinds: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
    let mut sum = [0u64; 4];
    for (target, counts) in &all {
        let mut distinct: Vec<u128> = counts.keys().copied().collect();
        distinct.sort_unstable();
        let folder = dir.join(target.to_string());
        std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let answers = ask(&bin.join("nvdisasm"), &folder, *target, &distinct)?;
        let judged: Vec<_> = answers.par_iter().map(|a| (a, judge(a, *target))).collect();
        let (mut text, mut bits) = (0, 0);
        let total: u64 = counts.values().sum();
        for (answer, verdict) in judged {
            let n = counts[&answer.word];
            let expected = answer.text.as_deref().unwrap_or("(illegal)");
            let name = expected.split(' ').find(|w| !w.starts_with('@')).unwrap_or("");
            let name = name.split('.').next().unwrap_or("");
            let (kind, note) = match verdict {
                Verdict::Same => {
                    (text, bits) = (text + n, bits + n);
                    continue;
                }
                Verdict::Bits(other) => {
                    text += n;
                    (format!("{name}: other bits"), format!("{other:#x}"))
                }
                Verdict::Text(ours) => (format!("{name}: other text"), format!("`{ours}`")),
            };
            let entry = kinds.entry(kind).or_default();
            entry.0 += n;
            if entry.1.len() < options.examples {
                entry.1.push(format!("{target} {:#034x} `{expected}` {note}", answer.word));
            }
        }
        println!("{:8} {total:12}  {:8}  {text:9}  {bits:13}", target.to_string(), distinct.len());
        for (s, n) in sum.iter_mut().zip([total, distinct.len() as u64, text, bits]) {
            *s += n;
        }
    }
    println!("all      {:12}  {:8}  {:9}  {:13}", sum[0], sum[1], sum[2], sum[3]);
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
    for (kind, (n, examples)) in kinds {
        println!("{n:8} {kind}");
        examples.iter().for_each(|e| println!("           {e}"));
    }
    Ok(())
}
