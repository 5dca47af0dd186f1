//! Every option of ptxas, with good and bad values, against ours: exit status, files, messages, and what changes in the
//! output. Writes docs/options.md.

mod cases;
mod report;

use cases::{Case, Probe};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whose.
#[derive(clap::Args)]
pub struct Options {
    /// Our compiler, as it is built.
    #[arg(long, default_value = "target/release/oxptxas")]
    compiler: PathBuf,
    /// Only options whose long name has this in it; nothing is written then.
    #[arg(long)]
    only: Option<String>,
    /// Print each command line whose outcome differs.
    #[arg(long)]
    list: bool,
    /// Do not look at the outputs' contents.
    #[arg(long)]
    no_effects: bool,
}

/// What one program did with a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Exit status; -1 where a signal ended it.
    status: i32,
    /// The files that it left.
    files: BTreeSet<String>,
    /// Messages: class and what they are about, each as often as it was said.
    messages: Vec<String>,
    /// As they are.
    text: String,
}

impl Outcome {
    /// Whether a caller notices no difference.
    fn same(&self, ours: &Outcome) -> bool {
        self.status == ours.status && self.files == ours.files && self.messages == ours.messages
    }
}

/// Runs a program in a folder of its own with the probes in it.
fn outcome(program: &Path, folder: &Path, args: &[String], stdin: &str) -> std::io::Result<Outcome> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    for probe in cases::PROBES {
        std::fs::write(folder.join(probe.file()), probe.text)?;
    }
    for (name, text) in cases::FILES {
        std::fs::write(folder.join(name), text)?;
    }
    let before = names(folder)?;
    let input = folder.join("stdin");
    std::fs::write(&input, stdin)?;
    let out = Command::new(program)
        .args(args)
        .current_dir(folder)
        .env_remove("MAKEFLAGS")
        .stdin(Stdio::from(std::fs::File::open(&input)?))
        .output()?;
    std::fs::remove_file(&input)?;
    let files = names(folder)?.difference(&before).cloned().collect();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let _ = std::fs::remove_dir_all(folder);
    let mut messages: Vec<String> = text.lines().filter_map(subject).collect();
    messages.sort();
    Ok(Outcome { status: out.status.code().unwrap_or(-1), files, messages, text })
}

fn names(folder: &Path) -> std::io::Result<BTreeSet<String>> {
    std::fs::read_dir(folder)?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
}

/// The class of a message, where it points and what it quotes; `None` of what is not a message.
fn subject(line: &str) -> Option<String> {
    let classes = ["fatal", "error", "warning", "info"];
    let (head, rest) = line.split_once(": ")?;
    let class = head.split_whitespace().last().filter(|c| classes.contains(c))?;
    let place: String = head
        .split_once(", line ")
        .map_or("", |(_, at)| at)
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let quoted: Vec<&str> = rest.split('\'').skip(1).step_by(2).collect();
    // Without quotes, the options and numbers that it names; how long something took is no subject.
    let word = |w: &&str| w.starts_with('-') || w.bytes().all(|b| b.is_ascii_digit());
    // Figures of the code are not compared here.
    let figures = rest.starts_with("Compile time") || rest.starts_with("Used ");
    let named: Vec<&str> = if quoted.is_empty() && !figures {
        rest.split([' ', ',', ';']).filter(|w| !w.is_empty()).filter(word).collect()
    } else {
        quoted
    };
    Some(format!("{class} {place} {}", named.join(" ")))
}

/// A case's two outcomes.
pub struct Result2 {
    case: Case,
    theirs: Outcome,
    ours: Outcome,
}

/// What an option changes in the output for a probe: of ptxas's file, of ours; `None` where there is no file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    option: &'static str,
    probe: &'static str,
    sm: u32,
    theirs: Option<bool>,
    ours: Option<bool>,
}

/// The sections of a file but for the note with the command line.
fn sections(file: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let word =
        |at: usize| file.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()));
    let half =
        |at: usize| file.get(at..at + 4).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap_or_default()));
    let (table, count) = (word(0x28) as usize, (half(0x3c) & 0xffff) as usize);
    let names = table + 0x40 * (half(0x3c) >> 16) as usize;
    let strings = word(names + 0x18) as usize;
    let section = |n: usize| {
        let header = table + 0x40 * n;
        let name = strings + half(header) as usize;
        let name: Vec<u8> = file.get(name..).unwrap_or(&[]).iter().copied().take_while(|b| *b != 0).collect();
        let (at, size) = (word(header + 0x18) as usize, word(header + 0x20) as usize);
        let no_bits = half(header + 4) == 8;
        let bytes = if no_bits {
            size.to_le_bytes().to_vec()
        } else {
            file.get(at..at + size).unwrap_or(&[]).to_vec()
        };
        (String::from_utf8_lossy(&name).into_owned(), bytes)
    };
    // Symbols' numbers and names follow from the sections.
    let other =
        |name: &str| name.starts_with(".note.nv.tkinfo") || name.contains("tab") || name.contains(".merc");
    (0..count).map(section).filter(|(name, _)| !other(name)).collect()
}

fn compiled(
    program: &Path,
    folder: &Path,
    probe: &Probe,
    sm: u32,
    args: &[&str],
) -> Option<BTreeMap<String, Vec<u8>>> {
    std::fs::create_dir_all(folder).ok()?;
    std::fs::write(folder.join(probe.file()), probe.text).ok()?;
    let arch = format!("-arch=sm_{sm}");
    let mut all: Vec<&str> = vec![&arch, "-o", "out"];
    all.extend(probe.options.iter().chain(args));
    let file = probe.file();
    all.push(&file);
    let out = Command::new(program).args(&all).current_dir(folder).stdin(Stdio::null()).output().ok()?;
    let bytes = std::fs::read(folder.join("out")).ok().filter(|_| out.status.success());
    let _ = std::fs::remove_dir_all(folder);
    bytes.map(|b| sections(&b))
}

/// Runs it.
pub fn run(root: &Path, bin: &Path, o: &Options) -> Result<(), String> {
    let compiler = if o.compiler.is_absolute() { o.compiler.clone() } else { root.join(&o.compiler) };
    // Messages begin with the program's name.
    let folder = std::env::temp_dir().join(format!("options.{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let ours = folder.join("ptxas");
    std::fs::copy(&compiler, &ours).map_err(|e| format!("{}: {e}", compiler.display()))?;
    let theirs = bin.join("ptxas");
    let wanted = |name: &str| o.only.as_deref().is_none_or(|only| name.contains(only));
    let cases: Vec<Case> = cases::all().into_iter().filter(|c| wanted(c.option)).collect();
    let results: Vec<Result2> = cases
        .into_par_iter()
        .enumerate()
        .map(|(n, case)| {
            let place = folder.join(format!("case.{n}"));
            let theirs = outcome(&theirs, &place, &case.args, case.stdin)?;
            let ours = outcome(&ours, &place, &case.args, case.stdin)?;
            Ok(Result2 { case, theirs, ours })
        })
        .collect::<std::io::Result<_>>()
        .map_err(|e| e.to_string())?;
    let effects = if o.no_effects { Vec::new() } else { effects(&folder, [&theirs, &ours], &wanted) };
    let _ = std::fs::remove_dir_all(&folder);
    let unexplained = report::unexplained(&results, &effects);
    for r in results.iter().filter(|r| !r.theirs.same(&r.ours) && o.list) {
        println!(
            "{:?}\n  ptxas {} {:?}\n{}  ours {} {:?}\n{}",
            r.case.shown(),
            r.theirs.status,
            r.theirs.files,
            r.theirs.text,
            r.ours.status,
            r.ours.files,
            r.ours.text
        );
    }
    for e in effects.iter().filter(|e| e.theirs != e.ours && o.list) {
        println!("{e:?}");
    }
    let same = results.iter().filter(|r| r.theirs.same(&r.ours)).count();
    println!(
        "{} command lines, the same outcome for {same}; {} effects looked at",
        results.len(),
        effects.len()
    );
    if o.only.is_none() && !o.no_effects {
        let path = root.join("docs/options.md");
        std::fs::write(&path, report::page(&results, &effects))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    unexplained.iter().for_each(|u| println!("{u}"));
    if unexplained.is_empty() {
        Ok(())
    } else {
        Err(format!("{} rows differ without a reason", unexplained.len()))
    }
}

/// What each option changes in each probe's file.
fn effects(folder: &Path, programs: [&Path; 2], wanted: &(impl Fn(&str) -> bool + Sync)) -> Vec<Effect> {
    let places: Vec<(&'static Probe, u32)> = cases::PROBES
        .iter()
        .filter(|p| p.effects)
        .flat_map(|p| cases::SMS.iter().map(move |sm| (p, *sm)))
        .collect();
    let tried: Vec<_> = cases::EFFECTS.iter().filter(|(option, _)| wanted(option)).collect();
    let at = |name: String| folder.join(name);
    places
        .par_iter()
        .enumerate()
        .flat_map_iter(|(n, (probe, sm))| {
            let base = programs.map(|p| compiled(p, &at(format!("base.{n}")), probe, *sm, &[]));
            let mut out = Vec::new();
            for (option, args) in &tried {
                let changed = |side: usize| {
                    let with = compiled(programs[side], &at(format!("with.{n}")), probe, *sm, args)?;
                    Some(base[side].as_ref() != Some(&with))
                };
                out.push(Effect { option, probe: probe.name, sm: *sm, theirs: changed(0), ours: changed(1) });
            }
            out
        })
        .collect()
}
