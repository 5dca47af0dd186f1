//! `roundtrip FILE…`: prints each file's module, and says whether ptxas makes the same bytes of it as of the file. Line
//! tables name lines of the text, so where a file has them (`.loc`), the sections of code, constants, data and kernel
//! attributes are compared instead of the whole. `LEVEL=n` gives ptxas `-On`; 0 unless told. `SECONDS=n` starts no file after
//! so many seconds.

#[allow(dead_code)]
#[path = "ptxas/mod.rs"]
mod ptxas;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// ptxas's file, or why there is none.
fn compile(ptxas: &Path, arch: &str, level: &str, file: &Path, text: &str) -> Result<Vec<u8>, String> {
    std::fs::write(file, text).map_err(|e| e.to_string())?;
    let out = file.with_extension("cubin");
    let run =
        Command::new(ptxas).args(["-arch", arch, &format!("-O{level}"), "-o"]).arg(&out).arg(file).output();
    let run = run.map_err(|e| e.to_string())?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).lines().next().unwrap_or("no reason").to_string());
    }
    let bytes = std::fs::read(&out).map_err(|e| e.to_string());
    let _ = std::fs::remove_file(&out);
    bytes
}

/// The sections of an ELF file that no line number is in: names and contents.
fn code(elf: &[u8]) -> Option<BTreeMap<&str, &[u8]>> {
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = elf.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
    };
    let (table, count, names) = (number(0x28, 8)?, number(0x3c, 2)?, number(0x3e, 2)?);
    let header = |n: usize| table + 64 * n;
    let names = number(header(names) + 0x18, 8)?;
    let mut out = BTreeMap::new();
    for n in 0..count {
        let name = elf.get(names + number(header(n), 4)?..)?;
        let name = std::str::from_utf8(name.split(|b| *b == 0).next()?).ok()?;
        let kept = [
            ".text.",
            ".nv.info",
            ".nv.constant",
            ".nv.global",
            ".nv.shared",
            ".nv.capmerc.text",
            ".nv.compat",
        ];
        let empty = number(header(n) + 4, 4)? == 8;
        if kept.iter().any(|k| name.starts_with(k)) {
            let (at, size) = (number(header(n) + 0x18, 8)?, number(header(n) + 0x20, 8)?);
            out.insert(name, if empty { &[][..] } else { elf.get(at..at + size)? });
        }
    }
    Some(out)
}

enum Outcome {
    Refused,
    Same,
    SameCode,
    Differs,
    Worse(String),
}

fn examine(ptxas: &Path, level: &str, folder: &Path, source: &str) -> Outcome {
    let Ok(module) = ptx::parse(source) else { return Outcome::Refused };
    let Some(target) = module.targets.first() else { return Outcome::Refused };
    let sm = ptx::check::target_sm(&module);
    let arch = if sm < 75 { "sm_75".to_string() } else { target.clone() };
    // The same name, for the file may hold it.
    let file = folder.join("module.ptx");
    let Ok(want) = compile(ptxas, &arch, level, &file, source) else { return Outcome::Refused };
    match compile(ptxas, &arch, level, &file, &module.to_string()) {
        Ok(got) if got == want => Outcome::Same,
        Ok(got) if source.contains(".loc") && code(&got).is_some() && code(&got) == code(&want) => {
            Outcome::SameCode
        }
        Ok(_) => Outcome::Differs,
        Err(e) => Outcome::Worse(e),
    }
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let level = std::env::var("LEVEL").unwrap_or_else(|_| "0".into());
    let ptxas = ptxas::tools().join("ptxas");
    let (next, counts) = (AtomicUsize::new(0), Mutex::new([0usize; 5]));
    let limit: Option<u64> = std::env::var("SECONDS").ok().and_then(|s| s.parse().ok());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (next, counts, files, ptxas, level) = (&next, &counts, &files, &ptxas, &level);
            scope.spawn(move || {
                let folder = std::env::temp_dir().join(format!("roundtrip.{}.{worker}", std::process::id()));
                std::fs::create_dir_all(&folder).expect("the temporary folder");
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if limit.is_some_and(|s| start.elapsed().as_secs() > s) {
                        break;
                    }
                    let Ok(source) = std::fs::read_to_string(file) else { continue };
                    let at = match examine(ptxas, level, &folder, &source) {
                        Outcome::Refused => 0,
                        Outcome::Same => 1,
                        Outcome::SameCode => 4,
                        Outcome::Differs => {
                            println!("{file}: other bytes");
                            2
                        }
                        Outcome::Worse(e) => {
                            println!("{file}: {e}");
                            3
                        }
                    };
                    counts.lock().expect("no panic")[at] += 1;
                }
                let _ = std::fs::remove_dir_all(&folder);
            });
        }
    });
    let [refused, same, differs, worse, code] = counts.into_inner().expect("no panic");
    println!(
        "same bytes {same}, same code beside line tables {code}, others {differs}, printed module refused {worse}; left out, as ptxas refuses them: {refused}"
    );
}
