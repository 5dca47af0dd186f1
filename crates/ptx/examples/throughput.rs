//! `throughput FILE…`: how fast each file is lexed, parsed and checked (processor time, means of many runs), and, with
//! `OXPTXAS_ORACLES`, how long ptxas takes to do the same (`-arch=compute_N` goes no further), with and without the time
//! that it takes for an empty module. `throughput --grow MB FILE`: repeats the functions of a file under new names until
//! the text has so many megabytes, at a tenth, a third and all of them, and says time and memory of each.

#[allow(dead_code)]
#[path = "ptxas/mod.rs"]
mod ptxas;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Processor time of this process so far, in seconds: other work on the machine doesn't count.
fn cpu_time() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

/// Processor time of the processes that this one has waited for, in seconds.
fn children_time() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = text.split(' ').map(|n| n.parse().unwrap_or(0.0)).collect();
    (fields[15] + fields[16]) / 100.0
}

/// Processor time of one of `n` runs, in seconds, freeing the result included; the least mean of three. (The clock is
/// too coarse for single runs.)
fn fastest<T>(n: usize, mut run: impl FnMut() -> T) -> f64 {
    let mut mean = || {
        let start = cpu_time();
        (0..n).for_each(|_| drop(std::hint::black_box(run())));
        (cpu_time() - start) / n as f64
    };
    (0..3).map(|_| mean()).fold(f64::INFINITY, f64::min)
}

/// Processor time of one run of ptxas over a file, the least mean of some.
fn theirs(ptxas: &Path, arch: &str, file: &Path) -> f64 {
    let mean = || {
        let start = children_time();
        for _ in 0..20 {
            let status = Command::new(ptxas)
                .arg("-arch")
                .arg(arch)
                .arg(file)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            assert!(status.is_ok_and(|s| s.success()), "ptxas takes the file");
        }
        (children_time() - start) / 20.0
    };
    (0..3).map(|_| mean()).fold(f64::INFINITY, f64::min)
}

/// A field of `/proc/self/status`, in bytes.
fn memory(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap_or(": 0 kB");
    line.split_whitespace().find_map(|w| w.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn check(module: &ptx::Module) {
    ptx::check(module, ptx::check::target_sm(module)).expect("a right file");
}

fn compare(file: &str) {
    let source = std::fs::read_to_string(file).expect("a file");
    let mb = source.len() as f64 / 1e6;
    let lex = fastest(100, || ptx::lexer::lex(&source));
    let parse = fastest(100, || ptx::parse(&source).expect("a right file"));
    let module = ptx::parse(&source).expect("a right file");
    let checked = fastest(100, || check(&module));
    let whole = fastest(100, || {
        let module = ptx::parse(&source).expect("a right file");
        check(&module);
        module
    });
    println!("{file}: {} bytes", source.len());
    println!(
        "  lex {:.0} MB/s, parse {:.0} MB/s, check {:.0} MB/s; parse and check {:.2} ms, {:.0} MB/s",
        mb / lex,
        mb / parse,
        mb / checked,
        whole * 1e3,
        mb / whole
    );
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES") else { return };
    let ptxas = PathBuf::from(tools).join("ptxas");
    let target = module.targets.first().and_then(|t| t.strip_prefix("sm_")).unwrap_or("75");
    let arch = if target.trim_end_matches(['a', 'f']).parse::<u16>().is_ok_and(|sm| sm < 90) {
        "compute_90".to_string()
    } else {
        format!("compute_{target}")
    };
    let empty = std::env::temp_dir().join(format!("empty.{}.ptx", std::process::id()));
    std::fs::write(&empty, format!(".version 9.0\n.target sm_{target}\n.address_size 64\n")).expect("a file");
    let (all, start) = (theirs(&ptxas, &arch, Path::new(file)), theirs(&ptxas, &arch, &empty));
    let _ = std::fs::remove_file(&empty);
    println!(
        "  ptxas {:.2} ms, of it start-up {:.2} ms: {:.1} times as long, {:.1} without start-up",
        all * 1e3,
        start * 1e3,
        all / whole,
        (all - start) / whole
    );
}

/// The text with its functions repeated, each time under other names, to about `size` bytes.
fn grown(source: &str, size: usize) -> String {
    let body = source.find(".visible").or_else(|| source.find(".entry")).expect("a function");
    let (head, tail) = source.split_at(body);
    let names: Vec<String> =
        ptx::parse(source).expect("a right file").funcs.values().map(|f| f.name.clone()).collect();
    let mut out = head.to_string();
    let mut n = 0;
    while out.len() < size {
        // The numbers of files are given once.
        let again = |line: &&str| n == 0 || !line.trim_start().starts_with(".file");
        let mut copy: String = tail.split_inclusive('\n').filter(again).collect();
        for name in &names {
            copy = copy.replace(name.as_str(), &format!("{name}_{n}"));
        }
        out += &copy;
        n += 1;
    }
    out
}

fn grow(megabytes: usize, file: &str) {
    let source = std::fs::read_to_string(file).expect("a file");
    for part in [10, 3, 1] {
        let text = grown(&source, megabytes * 1_000_000 / part);
        let before = memory("VmRSS");
        let start = cpu_time();
        let module = ptx::parse(&text).expect("a right file");
        let parsed = cpu_time() - start;
        let peak = memory("VmHWM");
        let tree = memory("VmRSS");
        let start = cpu_time();
        check(&module);
        let checked = cpu_time() - start;
        let bytes = text.len() as f64;
        let of = |n: u64, m: u64| n.saturating_sub(m) as f64 / bytes;
        println!(
            "{:.0} MB: parse {parsed:.2} s, check {checked:.2} s, {:.0} MB/s; bytes of memory for a byte of text: tree {:.1}, more while \
             parsing {:.1}, while checking {:.1}",
            bytes / 1e6,
            bytes / 1e6 / (parsed + checked),
            of(tree, before),
            of(peak, tree),
            of(memory("VmHWM"), peak.max(tree)),
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--grow", megabytes, file] => grow(megabytes.parse().expect("megabytes"), file),
        ref files => files.iter().for_each(|f| compare(f)),
    }
}
