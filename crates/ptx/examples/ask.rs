//! `ask < FILE`: each line is a PTX version, a target and a statement, `8.0 90a add.u32 u32r1, u32r2, 3;`; says what
//! ptxas and we think of it. The registers are those of the examples' prelude.

#[allow(dead_code)]
#[path = "ptxas/mod.rs"]
mod ptxas;

use ptx::isa::Suffix;
use ptxas::Header;
use std::io::Read;

fn parse(line: &str) -> Option<(Header, &str)> {
    let (version, rest) = line.trim().split_once(' ')?;
    let (target, statement) = rest.split_once(' ')?;
    let (major, minor) = version.split_once('.')?;
    let sm = target.trim_end_matches(['a', 'f']).parse().ok()?;
    Some((Header::new((major.parse().ok()?, minor.parse().ok()?), sm, Suffix::of(target)), statement))
}

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("text");
    let cases: Vec<(Header, &str)> = text.lines().filter_map(parse).collect();
    let theirs = ptxas::ask_all(&ptxas::tools().join("ptxas"), &cases);
    for ((header, statement), theirs) in cases.iter().zip(theirs) {
        let ours = ptxas::ours(*header, statement);
        let mark = if ours.is_some() == theirs.is_some() { ' ' } else { '*' };
        let verdict = |v: &Option<String>| v.clone().unwrap_or_else(|| "ok".into());
        println!("{mark} {statement}\n    ptxas: {}\n    ours:  {}", verdict(&theirs), verdict(&ours));
    }
}
