//! `fuzz-sass`: random variations of real instruction words, as the table and as nvdisasm read them.

use sass::{Target, disassemble};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to vary and how often.
#[derive(clap::Args)]
pub struct Options {
    /// Files of words: target, high half, low half, separated by tabs (more columns are ignored).
    #[arg(required = true)]
    seeds: Vec<PathBuf>,
    /// Variations per target.
    #[arg(long, default_value_t = 100_000)]
    count: usize,
    /// Flip each single bit of every seed instead.
    #[arg(long)]
    each_bit: bool,
    /// Ask about the words as they are.
    #[arg(long)]
    unchanged: bool,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these targets.
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// Write what disagrees here, in the format of the sass crate's `check` example.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ z >> 31) as u128 * n as u128) >> 64) as usize
    }
}

/// One word, nvdisasm's text (`None`: it refuses the word) and the address that the text is for.
pub struct Answer {
    pub word: u128,
    pub text: Option<String>,
    pub pc: i64,
}

/// The opcode bits of a word: 0 … 11 and 91.
pub fn code(word: u128) -> u16 {
    (word & 0xfff) as u16 | (word >> 79) as u16 & 0x1000
}

/// What nvdisasm makes of words. It prints nothing for a file with an illegal word, but names the addresses
/// of those: they are dropped and the rest is tried again. A word that fits two of its patterns ends it at
/// once: words of that opcode (of the graphics pipeline) are left out.
pub fn ask(nvdisasm: &Path, dir: &Path, target: Target, words: &[u128]) -> Result<Vec<Answer>, String> {
    let mut answers = Vec::with_capacity(words.len());
    let mut ambiguous: Vec<u16> = Vec::new();
    for chunk in words.chunks(50_000) {
        let mut live: Vec<u128> = chunk.to_vec();
        live.retain(|w| !ambiguous.contains(&code(*w)));
        let file = dir.join("words.bin");
        let arch = format!("SM{}", target.sm);
        while !live.is_empty() {
            let bytes: Vec<u8> = live.iter().flat_map(|w| w.to_le_bytes()).collect();
            std::fs::write(&file, bytes).map_err(|e| e.to_string())?;
            let run = Command::new(nvdisasm)
                .args(["-b", &arch, "-ndf"])
                .arg(&file)
                .output()
                .map_err(|e| format!("nvdisasm: {e}"))?;
            let errors = String::from_utf8_lossy(&run.stderr);
            let bad: std::collections::BTreeSet<usize> = errors
                .split("at address 0x")
                .skip(1)
                .filter_map(|t| {
                    let digits: String = t.chars().take_while(char::is_ascii_hexdigit).collect();
                    usize::from_str_radix(&digits, 16).ok().map(|a| a / 16)
                })
                .collect();
            if let (true, Some(&at)) = (errors.contains("More than one pattern"), bad.first()) {
                ambiguous.push(code(live[at]));
                eprintln!("{target}: left out words of opcode {:#x}", code(live[at]));
                live.retain(|w| !ambiguous.contains(&code(*w)));
                continue;
            }
            if !bad.is_empty() {
                let refused = bad.iter().map(|&i| Answer { word: live[i], text: None, pc: 0 });
                answers.extend(refused);
                let mut i = 0;
                live.retain(|_| {
                    i += 1;
                    !bad.contains(&(i - 1))
                });
                continue;
            }
            if !run.status.success() {
                // It names no address: halves tell which words it refuses.
                if let [word] = live[..] {
                    answers.push(Answer { word, text: None, pc: 0 });
                    break;
                }
                for half in live.chunks(live.len().div_ceil(2)) {
                    answers.extend(ask(nvdisasm, dir, target, half)?);
                }
                break;
            }
            let out = String::from_utf8_lossy(&run.stdout);
            for line in out.lines() {
                let Some((pc, text)) = line.trim_start().strip_prefix("/*").and_then(|l| l.split_once("*/"))
                else {
                    continue;
                };
                let Ok(pc) = i64::from_str_radix(pc, 16) else { continue };
                let Some((text, _)) = text.rsplit_once(';') else { continue };
                answers.push(Answer { word: live[pc as usize / 16], text: Some(squeeze(text)), pc });
            }
            break;
        }
    }
    Ok(answers)
}

/// Runs of spaces are one: nvdisasm pads after infinities and NaNs.
pub fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Varies the seeds of each target and prints how often the table agrees with nvdisasm.
pub fn run(options: &Options, bin: &Path, dir: &Path) -> Result<(), String> {
    let mut seeds: BTreeMap<Target, Vec<u128>> = BTreeMap::new();
    for path in &options.seeds {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let mut columns = line.split('\t');
            let mut next = || columns.next().unwrap_or("");
            let half = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16);
            let target = Target::parse(next()).and_then(|t| Target::new(t.sm));
            let (Some(target), Ok(high), Ok(low)) = (target, half(next()), half(next())) else {
                return Err(format!("{}: malformed line `{line}`", path.display()));
            };
            seeds.entry(target).or_default().push(u128::from(high) << 64 | u128::from(low));
        }
    }
    // Targets of which no words are known take those of the nearest one.
    for (target, like) in [(87, 86), (88, 86), (103, 100), (110, 120), (121, 120)] {
        let (target, like) = (Target::new(target).expect("known"), Target::new(like).expect("known"));
        let more = seeds.get(&like).cloned().unwrap_or_default();
        seeds.entry(target).or_insert(more);
    }
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    let mut out = String::new();
    println!("target   words     legal in both  only nvdisasm  only table  legality  text");
    for (target, seeds) in &mut seeds {
        if !options.targets.is_empty() && !options.targets.contains(&target.to_string()) {
            continue;
        }
        seeds.sort_unstable();
        seeds.dedup();
        let mut random = Random(options.seed << 8 | u64::from(target.sm));
        let mut words: Vec<u128> = if options.each_bit {
            seeds.iter().flat_map(|w| (0..128).map(move |b| w ^ 1 << b)).collect()
        } else if options.unchanged {
            seeds.clone()
        } else {
            let vary = |_| {
                let mut word = seeds[random.below(seeds.len())];
                for _ in 0..=random.below(4) {
                    word ^= 1 << random.below(128);
                }
                word
            };
            (0..options.count).map(vary).collect()
        };
        words.sort_unstable();
        words.dedup();
        let answers = ask(&bin.join("nvdisasm"), dir, *target, &words)?;
        let (mut both, mut theirs, mut ours, mut text) = (0, 0, 0, 0);
        for Answer { word, text: expected, pc } in &answers {
            let decoded = disassemble(*word, *target, *pc);
            let agrees = match (expected, &decoded) {
                (None, Err(_)) => true,
                (None, Ok(_)) => {
                    ours += 1;
                    false
                }
                (Some(_), Err(_)) => {
                    theirs += 1;
                    false
                }
                (Some(expected), Ok(printed)) => {
                    both += 1;
                    let same = squeeze(printed) == *expected;
                    text += usize::from(same);
                    same
                }
            };
            if !agrees {
                let (high, low) = ((word >> 64) as u64, *word as u64);
                let expected = expected.as_deref().unwrap_or("(illegal)");
                let ours = match decoded {
                    Ok(text) => squeeze(&text),
                    Err(e) => format!("{:?}", e.reason),
                };
                let _ = writeln!(out, "{target}\t{high:#018x}\t{low:#018x}\t{expected}\t{pc:#x}\t{ours}");
            }
        }
        let total = answers.len();
        println!(
            "{target:8} {total:7}   {both:13}  {theirs:13}  {ours:10}  {:7.3}%  {:7.3}%",
            100.0 * (total - theirs - ours) as f64 / total.max(1) as f64,
            100.0 * text as f64 / both.max(1) as f64,
        );
    }
    if let Some(path) = &options.out {
        std::fs::write(path, out).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
