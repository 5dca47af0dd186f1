//! `mutate COUNT FILE…`: deletes, doubles or replaces one token of a file, COUNT times in all, and compares whether
//! ptxas and we accept what comes out, and the line of the first complaint. `SEED=n` chooses others, `VERBOSE=1`
//! prints what differs.

#[allow(dead_code)]
#[path = "ptxas/mod.rs"]
mod ptxas;

use ptx::lexer::{Tok, lex};
use ptxas::Random;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Larger files take ptxas too long.
const LARGEST: usize = 12_000;

/// A file with one token changed, and what was done.
fn mutant(source: &str, random: &mut Random) -> (String, String) {
    let tokens = lex(source);
    let tokens = &tokens[..tokens.len() - 1];
    // The header says for whom the file is.
    let target = tokens
        .iter()
        .position(|t| t.0 == Tok::Dot && &source[t.1.start as usize..t.1.end as usize] == ".target");
    let first = target.map_or(0, |t| t + 2).min(tokens.len() - 1);
    let pick = |random: &mut Random| tokens[first + random.below(tokens.len() - first)].1;
    let span = pick(random);
    let (start, end) = (span.start as usize, span.end as usize);
    let text = &source[start..end];
    let (replacement, what) = match random.below(3) {
        0 => (String::new(), format!("deleted '{text}'")),
        1 => (format!("{text} {text}"), format!("doubled '{text}'")),
        _ => {
            let other = pick(random);
            let other = &source[other.start as usize..other.end as usize];
            (other.to_string(), format!("'{other}' for '{text}'"))
        }
    };
    let line = source[..start].matches('\n').count() + 1;
    (format!("{}{replacement}{}", &source[..start], &source[end..]), format!("line {line}: {what}"))
}

/// What `-arch` takes for a module; ptxas has none older than 75.
fn arch(source: &str) -> Option<String> {
    let name =
        source.split(".target").nth(1)?.trim_start().split([',', ' ', '\n', '\r', '\t', '/']).next()?;
    let number = name.strip_prefix("sm_")?;
    let sm: u16 = number.trim_end_matches(['a', 'f']).parse().ok()?;
    Some(if sm < 75 { "compute_75".into() } else { format!("compute_{number}") })
}

#[derive(Default)]
struct Counts {
    all: usize,
    agree: usize,
    both_refuse: usize,
    same_line: usize,
    said: Vec<String>,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let files: Vec<(String, String, String)> = args
        .filter_map(|f| {
            let source = std::fs::read_to_string(&f).ok().filter(|s| s.len() <= LARGEST)?;
            let arch = arch(&source)?;
            Some((f, source, arch))
        })
        .collect();
    assert!(!files.is_empty(), "no files");
    let seed: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let ptxas = ptxas::tools().join("ptxas");
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (next, counts, files, ptxas) = (&next, &counts, &files, &ptxas);
            scope.spawn(move || {
                let path = std::env::temp_dir().join(format!("mutant.{}.{worker}.ptx", std::process::id()));
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        break;
                    }
                    let mut random = Random(seed << 32 | n as u64);
                    let (name, source, arch) = random.pick(files);
                    let (text, what) = mutant(source, &mut random);
                    std::fs::write(&path, &text).expect("a file of the temporary folder");
                    let (accepted, output) = ptxas::run(ptxas, arch, &path);
                    let sm =
                        arch.trim_start_matches("compute_").trim_end_matches(['a', 'f']).parse().expect("SM");
                    let errors = match ptx::parse(&text).and_then(|m| ptx::check(&m, sm)) {
                        Ok(()) => Vec::new(),
                        Err(e) => e,
                    };
                    let lines = ptx::LineIndex::new(&text);
                    let line = errors.first().map(|e| e.span.map_or(0, |s| lines.line(s.start)) as usize);
                    let theirs = ptxas::complaints(&output);
                    let mut counts = counts.lock().expect("no panic");
                    counts.all += 1;
                    let agree = accepted == errors.is_empty();
                    counts.agree += usize::from(agree);
                    let mut same = true;
                    if agree && !accepted {
                        same = theirs.iter().map(|t| t.0).min() == line;
                        counts.both_refuse += 1;
                        counts.same_line += usize::from(same);
                    }
                    if !agree || !same {
                        let theirs =
                            theirs.first().map_or("ok".to_string(), |(l, m)| format!("line {l}: {m}"));
                        let ours = errors.first().map_or("ok".to_string(), |e| {
                            format!("line {}: {}", line.unwrap_or(0), e.message)
                        });
                        let verdict = if agree { "line" } else { "verdict" };
                        counts
                            .said
                            .push(format!("{verdict} {name} {what}\n    ptxas: {theirs}\n    ours:  {ours}"));
                    }
                }
                let _ = std::fs::remove_file(&path);
            });
        }
    });
    let c = counts.into_inner().expect("no panic");
    if std::env::var_os("VERBOSE").is_some() {
        c.said.iter().for_each(|s| println!("{s}"));
    }
    let percent = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
    println!("verdicts: {} of {} agree ({:.2} %)", c.agree, c.all, percent(c.agree, c.all));
    println!(
        "both refuse {}, the line is the same in {} ({:.2} %)",
        c.both_refuse,
        c.same_line,
        percent(c.same_line, c.both_refuse)
    );
}
