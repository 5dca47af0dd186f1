//! `accept FILE…`: parses and checks PTX files, each for its own target, and says which are refused, what the
//! most frequent complaints are, and how fast that was.

use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
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
    let mb = bytes as f64 / 1e6;
    println!(
        "accepted {accepted}, refused {}; {mb:.1} MB: parse {:.1} MB/s, check {:.1} MB/s",
        refused.len(),
        mb / parsing,
        mb / checking
    );
}
