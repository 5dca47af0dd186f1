//! `mutate COUNT FILE…`: changes one token, operand or statement of a file, COUNT times in all, and compares whether ptxas and
//! we accept what comes out, and the line of the first complaint. `OXPTXAS=FILE`, the built compiler, compiles what the
//! checks accept, and so does ptxas then. `SEED=n` chooses others, `VERBOSE=1` prints what differs, `KEEP=FOLDER` keeps it.

#[allow(dead_code)]
#[path = "ptxas/mod.rs"]
mod ptxas;

use ptx::isa::Mod;
use ptx::lexer::{Tok, lex};
use ptxas::Random;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Larger files take ptxas too long.
const LARGEST: usize = 12_000;

/// Numbers at the ends of ranges.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "15",
    "16",
    "31",
    "32",
    "33",
    "63",
    "64",
    "127",
    "128",
    "255",
    "256",
    "1024",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "0x10",
    "010",
    "1U",
    "-1",
    "-2147483649",
    "1.0",
    "1e999",
    "0f3f800000",
    "0d3ff0000000000000",
    "(1+1)",
    "!0",
    "WARP_SZ",
];

/// Operands of every kind that a file without them has, too.
const OPERANDS: &[&str] = &[
    "_",
    "%tid.x",
    "%tid",
    "%clock64",
    "%clock",
    "%laneid",
    "%lanemask_lt",
    "{_, _}",
    "[0]",
    "-1",
    "0",
    "1",
    "1.0",
    "0f00000000",
    "nosuch",
    "k",
    "()",
    "%envreg0",
    "%globaltimer",
    "%smid.x",
    "%pm0",
    "%ctaid.w",
];

/// A file with one token, operand or statement changed, and what was done.
fn mutant(source: &str, random: &mut Random) -> (String, String) {
    let tokens = lex(source);
    let tokens = &tokens[..tokens.len() - 1];
    let text_of = |at: usize| &source[tokens[at].1.start as usize..tokens[at].1.end as usize];
    // The header says for whom the file is.
    let target = tokens.iter().enumerate().position(|(at, t)| t.0 == Tok::Dot && text_of(at) == ".target");
    let first = target.map_or(0, |t| t + 2).min(tokens.len() - 1);
    let any = |random: &mut Random| first + random.below(tokens.len() - first);
    // A token of a kind, and another one of it.
    let of = |kinds: &[Tok], random: &mut Random| {
        (0..200).map(|_| any(random)).find(|at| kinds.contains(&tokens[*at].0)).unwrap_or(first)
    };
    let (from, to, replacement, what) = match random.below(10) {
        0 => {
            let at = any(random);
            (at, at, String::new(), "deleted")
        }
        1 => {
            let at = any(random);
            (at, at, format!("{0} {0}", text_of(at)), "doubled")
        }
        2 => {
            let (at, other) = (any(random), any(random));
            (at, at, text_of(other).to_string(), "any other for")
        }
        // One of the same kind.
        3 => {
            let at = any(random);
            let other = of(&[tokens[at].0], random);
            (at, at, text_of(other).to_string(), "same kind for")
        }
        // Any word of the table for a word.
        4 => {
            let at = of(&[Tok::Dot], random);
            (at, at, format!(".{}", random.pick(Mod::ALL).name()), "any word for")
        }
        5 => {
            let at = of(&[Tok::Dot], random);
            let word = match random.below(2) {
                0 => format!(".{}", random.pick(Mod::ALL).name()),
                _ => text_of(of(&[Tok::Dot], random)).to_string(),
            };
            (at, at, format!("{}{word}", text_of(at)), "a word more behind")
        }
        6 => {
            let at = of(&[Tok::Dot], random);
            (at, at, String::new(), "deleted")
        }
        7 => {
            let at = of(&[Tok::Int, Tok::Float], random);
            (at, at, (*random.pick(NUMBERS)).to_string(), "number for")
        }
        8 => {
            let at = of(&[Tok::Name, Tok::Int], random);
            (at, at, (*random.pick(OPERANDS)).to_string(), "operand for")
        }
        // A statement away, twice, or that of another place.
        _ => {
            let end = of(&[Tok::Semi], random);
            let statement = |end: usize| {
                let closes = |at: &usize| matches!(tokens[*at].0, Tok::Semi | Tok::LBrace | Tok::RBrace);
                let start = (first..end).rev().find(closes).map_or(first, |at| at + 1);
                (start, &source[tokens[start].1.start as usize..tokens[end].1.end as usize])
            };
            let (start, own) = statement(end);
            let (_, other) = statement(of(&[Tok::Semi], random));
            match random.below(3) {
                0 => (start, end, String::new(), "deleted"),
                1 => (start, end, format!("{own} {own}"), "doubled"),
                _ => (start, end, format!("{own} {other}"), "a statement more behind"),
            }
        }
    };
    let (start, end) = (tokens[from].1.start as usize, tokens[to].1.end as usize);
    let line = source[..start].matches('\n').count() + 1;
    let shown = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = format!("line {line}: {what} '{}': '{}'", shown(&source[start..end]), shown(&replacement));
    (format!("{}{replacement}{}", &source[..start], &source[end..]), what)
}

/// What `-arch` takes for a module; ptxas has none older than 75.
fn arch(source: &str) -> Option<String> {
    let name =
        source.split(".target").nth(1)?.trim_start().split([',', ' ', '\n', '\r', '\t', '/']).next()?;
    let number = name.strip_prefix("sm_")?;
    let sm: u16 = number.trim_end_matches(['a', 'f']).parse().ok()?;
    Some(if sm < 75 { "sm_75".into() } else { format!("sm_{number}") })
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
    let keep = std::env::var_os("KEEP").map(std::path::PathBuf::from);
    let compiler = std::env::var_os("OXPTXAS").map(std::path::PathBuf::from);
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (next, counts, files, ptxas) = (&next, &counts, &files, &ptxas);
            let (compiler, keep) = (&compiler, &keep);
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
                    let whole =
                        compiler.as_ref().map_or_else(|| arch.replace("sm_", "compute_"), |_| arch.clone());
                    let (accepted, output) = ptxas::run(ptxas, &whole, &path);
                    let sm = arch.trim_start_matches("sm_").trim_end_matches(['a', 'f']).parse().expect("SM");
                    let mut errors = match ptx::parse(&text).and_then(|m| ptx::check(&m, sm)) {
                        Ok(()) => Vec::new(),
                        Err(e) => e,
                    };
                    if let (Some(compiler), true) = (compiler, errors.is_empty())
                        && let (false, output) = ptxas::run(compiler, arch, &path)
                    {
                        let said = output.lines().find(|l| l.contains("error") || l.contains("fatal"));
                        errors.push(ptx::Diagnostic::whole(said.unwrap_or("CRASHED")));
                    }
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
                    if let (false, Some(folder)) = (agree, &keep) {
                        let _ = std::fs::copy(&path, folder.join(format!("{n}.ptx")));
                    }
                    if !agree || !same {
                        let theirs =
                            theirs.first().map_or("ok".to_string(), |(l, m)| format!("line {l}: {m}"));
                        let ours = errors.first().map_or("ok".to_string(), |e| {
                            format!("line {}: {}", line.unwrap_or(0), e.message)
                        });
                        let verdict = if agree { "line" } else { "verdict" };
                        counts.said.push(format!(
                            "{verdict} {n} {name} {what}\n    ptxas: {theirs}\n    ours:  {ours}"
                        ));
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
