//! `garbage SECONDS SEED FILE.cubin…`: random words, spoiled cubins and spoiled listings through what
//! `oxsass dis`, `asm` and `check` call. Counts the inputs; one that panics is an error and is written out.

use oxsass::listing::{self, Style};
use sass::{Control, Target, assemble, disassemble};
use sim::launch::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Random(Rng);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next()
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Changes, removes, repeats or inserts bytes; most changes are near the start, where headers are.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(6) {
            if bytes.is_empty() {
                return;
            }
            let end = if self.below(2) == 0 { bytes.len() } else { bytes.len().min(512) };
            let at = self.below(end);
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => {
                    let len = (1 + self.below(8)).min(bytes.len() - at);
                    bytes[at..at + len].fill(0xff);
                }
                3 => bytes.truncate(at),
                4 => {
                    let n = (at + 1 + self.below(32)).min(bytes.len());
                    let piece = bytes[at..n].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                _ => bytes[at] = self.next() as u8,
            }
        }
    }
}

/// Disassembles a word for a target and assembles the text again.
fn word(bits: u128, target: Target, pc: i64) {
    if let Ok(text) = disassemble(bits, target, pc) {
        let _ = assemble(&text, target, pc, Control::from_bits(bits));
    }
}

/// What `oxsass dis --control` and `oxsass check` do with a file.
fn cubin_file(bytes: &[u8]) -> Option<()> {
    let image = cubin::read::read(bytes).ok()?;
    let target = Target::new(image.sm)?;
    let (mut text, mut label) = (String::new(), 0);
    for kernel in image.kernels.values() {
        let style = Style { labels: true, control: true, ..Style::default() };
        listing::write(&mut text, &kernel.code, target, style, &mut label);
    }
    let _ = sim::hazard::check_cubin(bytes, sim::hazard::Minima::built_in());
    let _ = listing::patch(&text, bytes, None);
    Some(())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut number = || args.next().and_then(|a| a.parse::<u64>().ok()).expect("SECONDS SEED FILE.cubin…");
    let (seconds, mut random) = (number(), Random(Rng::new(number())));
    let files: Vec<Vec<u8>> = args.map(|p| std::fs::read(p).expect("readable file")).collect();
    let listings: Vec<(Target, String)> = files
        .iter()
        .filter_map(|bytes| {
            let image = cubin::read::read(bytes).ok()?;
            let target = Target::new(image.sm)?;
            let (mut text, style) = (String::new(), Style { control: true, ..Style::default() });
            let code = &image.kernels.values().next()?.code;
            listing::write(&mut text, &code[..code.len().min(100)], target, style, &mut 0);
            Some((target, text))
        })
        .collect();
    let targets: Vec<Target> = sass::target::SMS.iter().filter_map(|s| Target::new(s.sm)).collect();
    let (mut words, mut cubins, mut texts) = (0u64, 0u64, 0u64);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut failed = false;
    while Instant::now() < end && !failed {
        for _ in 0..20_000 {
            let bits = u128::from(random.next()) << 64 | u128::from(random.next());
            let (target, pc) = (targets[random.below(targets.len())], random.next() as i64 & !15);
            if catch_unwind(|| word(bits, target, pc)).is_err() {
                eprintln!("{target} {bits:#034x} at {pc:#x}");
                failed = true;
            }
            words += 1;
        }
        for _ in 0..if files.is_empty() { 0 } else { 50 } {
            let mut bytes = files[random.below(files.len())].clone();
            random.spoil(&mut bytes);
            if catch_unwind(AssertUnwindSafe(|| cubin_file(&bytes))).is_err() {
                std::fs::write("garbage.cubin", &bytes).expect("writable folder");
                failed = true;
            }
            cubins += 1;
        }
        for _ in 0..if listings.is_empty() { 0 } else { 50 } {
            let (target, text) = &listings[random.below(listings.len())];
            let mut bytes = text.clone().into_bytes();
            random.spoil(&mut bytes);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if catch_unwind(|| drop(listing::assemble(&text, *target))).is_err() {
                std::fs::write("garbage.txt", &text).expect("writable folder");
                failed = true;
            }
            texts += 1;
        }
    }
    println!("{words} words, {cubins} cubins, {texts} listings");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
