//! `large [PART]`: parses and checks inputs that are large in one way (a line of 1 GB, 1,000,000 nested braces, …), or a
//! PART-th of them, and says what came of each and how long it took.

#[path = "../tests/large/cases.rs"]
mod cases;

use std::time::Instant;

fn main() {
    let part: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    for (name, whole, text, right) in cases::CASES {
        let n = (whole / part).max(1);
        let source = text(n);
        let start = Instant::now();
        let found = cases::complaints(&source);
        let verdict = if (found == 0) == *right { "" } else { "  UNEXPECTED" };
        println!(
            "{name:30} {n:>11}: {:9.1} MB, {:7.2} s, {found} complaints{verdict}",
            source.len() as f64 / 1e6,
            start.elapsed().as_secs_f64()
        );
    }
}
