//! `vendor-words`: every instruction word of cubins, as the table and as nvdisasm read it.

use crate::fuzz::{Answer, ask, code, squeeze};
use rayon::prelude::*;
use sass::{Control, Target, assemble, disassemble};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
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
    /// Write a page with the counts and with every difference, grouped by instruction and bits.
    #[arg(long)]
    report: Option<PathBuf>,
    /// What the words are, for the page.
    #[arg(long, default_value = "cubins")]
    name: String,
    /// Do not read more than so many different words of a target.
    #[arg(long)]
    limit: Option<usize>,
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

fn words(files: &[PathBuf]) -> (Words, BTreeMap<String, usize>) {
    let read = |path: &PathBuf| -> Result<(Target, Vec<u128>), String> {
        let image = cubin::read::read(&std::fs::read(path).map_err(|e| e.to_string())?)?;
        let target = Target::new(image.sm).ok_or_else(|| format!("sm_{} is not a target", image.sm))?;
        Ok((target, image.kernels.into_values().flat_map(|k| k.code).collect()))
    };
    let mut all = Words::new();
    let mut unread = BTreeMap::new();
    for path in files {
        match read(path) {
            Ok((target, code)) => {
                let counts = all.entry(target).or_default();
                code.into_iter().for_each(|w| *counts.entry(w).or_default() += 1);
            }
            Err(why) => *unread.entry(why).or_default() += 1,
        }
    }
    (all, unread)
}

/// What differs in the bits of one instruction.
#[derive(Default)]
struct Unshown {
    /// Instructions.
    count: u64,
    /// All bits that differ in one of them.
    bits: u128,
    targets: BTreeSet<String>,
    /// An example: target, word, text.
    example: String,
    /// Words as they are and as the text assembles, to be asked about.
    pairs: Vec<(Target, u128, u128)>,
}

/// Ranges of set bits, as `32-37`.
fn ranges(bits: u128) -> String {
    let mut out = Vec::new();
    let mut lo = 0;
    while lo < 128 {
        let len = (bits >> lo).trailing_ones();
        match len {
            0 => lo += 1,
            1 => out.push(lo.to_string()),
            _ => out.push(format!("{lo}-{}", lo + len - 1)),
        }
        lo += len;
    }
    out.join(", ")
}

/// What the bits of a difference are, as far as the table says.
fn meaning(text: &str, bits: u128) -> &'static str {
    let within = |lo: u32, len: u32| bits & !(((1 << len) - 1) << lo) == 0;
    if text.contains("NAN") {
        "payload of the NaN"
    } else if text.contains(".64") && (within(32, 8) || within(64, 8)) {
        "uniform register of the descriptor, which nvdisasm does not print"
    } else {
        "a field that this form does not use"
    }
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
    let mut page = String::new();
    let _ = writeln!(page, "{} files", files.len());
    unread.iter().for_each(|(why, n)| _ = writeln!(page, "{n} files left out: {why}"));
    let _ = writeln!(page, "\ntarget   instructions  distinct  same text  same 128 bits  only bits unshown");
    let mut texts: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
    let mut unshown: BTreeMap<(String, u16), Unshown> = BTreeMap::new();
    let mut sum = [0u64; 5];
    for (target, counts) in &all {
        let mut distinct: Vec<u128> = counts.keys().copied().collect();
        distinct.sort_unstable_by_key(|w| (w.wrapping_mul(0x9e37_79b9_7f4a_7c15), *w));
        distinct.truncate(options.limit.unwrap_or(usize::MAX));
        let folder = dir.join(target.to_string());
        std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let answers = ask(&bin.join("nvdisasm"), &folder, *target, &distinct)?;
        let judged: Vec<_> = answers.par_iter().map(|a| (a, judge(a, *target))).collect();
        let (mut text, mut bits) = (0, 0);
        let total: u64 = distinct.iter().map(|w| counts[w]).sum();
        for (answer, verdict) in judged {
            let n = counts[&answer.word];
            let expected = answer.text.as_deref().unwrap_or("(illegal)");
            let name = expected.split(' ').find(|w| !w.starts_with('@')).unwrap_or("");
            let name = name.split('.').next().unwrap_or("");
            let example = format!("{target} {:#034x} `{expected}`", answer.word);
            match verdict {
                Verdict::Same => (text, bits) = (text + n, bits + n),
                Verdict::Bits(other) => {
                    text += n;
                    let entry = unshown.entry((name.into(), code(answer.word))).or_default();
                    entry.count += n;
                    entry.bits |= other;
                    entry.targets.insert(target.to_string());
                    if entry.example.is_empty() {
                        entry.example = example;
                    }
                    entry.pairs.push((*target, answer.word, other));
                }
                Verdict::Text(ours) => {
                    let entry = texts.entry(name.into()).or_default();
                    entry.0 += n;
                    if entry.1.len() < options.examples {
                        entry.1.push(format!("{example}; the table: `{ours}`"));
                    }
                }
            }
        }
        let line = [total, distinct.len() as u64, text, bits, text - bits];
        row(&mut page, &target.to_string(), line);
        sum.iter_mut().zip(line).for_each(|(s, n)| *s += n);
    }
    row(&mut page, "all", sum);
    differences(&mut page, texts, &unshown, bin, dir)?;
    print!("{page}");
    if let Some(path) = &options.report {
        let title = format!("# Words of {}\n\nWritten by `cargo xtask vendor-words --report`.", options.name);
        let note = "Columns: how many instructions, how many different words; the text is nvdisasm's; text and \
                    control field assemble to the same 128 bits; they assemble to another word with the same text.";
        std::fs::write(path, format!("{title}\n{note}\n\n```text\n{page}```\n"))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn row(page: &mut String, name: &str, [total, distinct, text, bits, other]: [u64; 5]) {
    let _ = writeln!(page, "{name:8} {total:12}  {distinct:8}  {text:9}  {bits:13}  {other:17}");
}

/// Lists what differs. Of what text and control field leave open, nvdisasm must print the same with our bits.
fn differences(
    page: &mut String,
    texts: BTreeMap<String, (u64, Vec<String>)>,
    unshown: &BTreeMap<(String, u16), Unshown>,
    bin: &Path,
    dir: &Path,
) -> Result<(), String> {
    for (name, (n, examples)) in texts {
        let _ = writeln!(page, "\n{n} {name} with another text");
        examples.iter().for_each(|e| _ = writeln!(page, "    {e}"));
    }
    let mut changed: BTreeMap<Target, Vec<u128>> = BTreeMap::new();
    for (target, word, other) in unshown.values().flat_map(|u| &u.pairs) {
        changed.entry(*target).or_default().extend([*word, word ^ other]);
    }
    let mut shown = HashMap::new();
    for (target, words) in &mut changed {
        words.sort_unstable();
        words.dedup();
        // Labels are relative: the text without the address that it ends with.
        for a in ask(&bin.join("nvdisasm"), &dir.join(target.to_string()), *target, words)? {
            shown.insert((*target, a.word), a.text);
        }
    }
    if !unshown.is_empty() {
        let _ = writeln!(page, "\nBits that the text does not show, by instruction; an example of each:");
    }
    for ((name, code), u) in unshown {
        let silent = |(target, word, other): &&(Target, u128, u128)| {
            shown.get(&(*target, *word)) == shown.get(&(*target, word ^ other))
        };
        let same = u.pairs.iter().filter(silent).count();
        let targets: Vec<&str> = u.targets.iter().map(String::as_str).collect();
        let _ = writeln!(
            page,
            "\n{name} {code:#x}: bits {}: {}\n    {} instructions, {} words; nvdisasm prints the same for ours: {same}; {}\n    {}",
            ranges(u.bits),
            meaning(&u.example, u.bits),
            u.count,
            u.pairs.len(),
            targets.join(" "),
            u.example,
        );
    }
    Ok(())
}
