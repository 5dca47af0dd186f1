//! Parses and checks PTX files and says how many are accepted: `cargo run -p ptx --example accept -- FILE…`.

use ptx::LineIndex;

fn main() {
    let (mut accepted, mut rejected, mut bytes) = (0, 0, 0);
    let start = std::time::Instant::now();
    for path in std::env::args().skip(1) {
        let source = match std::fs::read_to_string(&path) {
            Ok(s) => s,
            Err(e) => {
                println!("{path}: {e}");
                rejected += 1;
                continue;
            }
        };
        bytes += source.len();
        let result = ptx::parse(&source).and_then(|m| ptx::check(&m, 121));
        match result {
            Ok(()) => accepted += 1,
            Err(errors) => {
                rejected += 1;
                let lines = LineIndex::new(&source);
                print!("{}", errors[0].render("ptx", &path, &source, &lines));
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{accepted} accepted, {rejected} rejected, {:.1} MB/s", bytes as f64 / seconds / 1e6);
}
