//! Command lines at random, ptxas's verdict against ours: whether it is accepted, the exit status, whether there is an output.

use oxptxas::options::{Kind, OPTIONS, Opt, Status};
use rayon::prelude::*;
use sim::launch::Rng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many, and whose.
#[derive(clap::Args)]
pub struct Options {
    /// Command lines.
    #[arg(long, default_value_t = 2000)]
    count: u64,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Our compiler, as it is built.
    #[arg(long, default_value = "target/release/oxptxas")]
    compiler: PathBuf,
    /// Options that are known but not built, too.
    #[arg(long)]
    all: bool,
    /// Print each command line whose verdicts differ.
    #[arg(long)]
    list: bool,
}

/// Options that ptxas has not.
const OURS: &[&str] = &["diagnostics", "knob", "apply-controls", "list-arch", "query-controls", "verbose2"];

/// A kernel that needs no warning, and a function.
const SOURCE: &str = ".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .entry k(.param .u64 a)\n{\n.reg .b64 d;\n.reg .f32 f;\nld.param.u64 d, [a];\nld.global.f32 f, [d];\n\
    fma.rn.f32 f, f, f, f;\nst.global.f32 [d], f;\nret;\n}\n";

/// Values for every kind of option.
const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "-1",
    "-3",
    "32",
    "64",
    "255",
    "256",
    "08",
    "010",
    "0x10",
    "1.5",
    "1e3",
    "x",
    "",
    ",",
    "true",
    "false",
    "True",
    "yes",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9223372036854775808",
    "k",
    "nosuch",
    "k,k",
    "k,nosuch",
    "sm_75",
    "sm_80",
    "sm_90",
    "sm_90a",
    "sm_100f",
    "sm_120",
    "sm_70",
    "sm_99",
    "sm_107",
    "compute_80",
    "compute_75",
    "sm_",
    "80",
    "lto_80",
    "archmax",
    "archmin",
    "ca",
    "cg",
    "cs",
    "cv",
    "wb",
    "wt",
    "lu",
    "max",
    "mid",
    "min",
    "0,1",
    "t",
    "m,t",
    "time,memory",
    "k.ptx",
    "nosuch.ptx",
    "1,2,3",
    "32,32",
    " 3",
    "3 ",
    "+3",
    "--",
    "-v",
];

/// An option under one of its names, now and then not quite.
fn spelled(opt: &Opt, rng: &mut Rng) -> String {
    let name = if opt.short.is_empty() || pick(rng, 2) == 0 { opt.long } else { opt.short };
    let dashes = match (name == opt.long, pick(rng, 8)) {
        (_, 0) => ["-", "--", "---"][pick(rng, 3)],
        (true, _) => "--",
        (false, _) => "-",
    };
    let mut name = name.to_string();
    match pick(rng, 24) {
        0 => drop(name.pop()),
        1 => name.push(['s', '-', '0', '_'][pick(rng, 4)]),
        2 => name = name.to_uppercase(),
        3 => name = name.replace('-', "_"),
        _ => {}
    }
    format!("{dashes}{name}")
}

fn pick(rng: &mut Rng, n: usize) -> usize {
    (rng.next() % n as u64) as usize
}

/// A value that the option may well take, or any.
fn value(opt: &Opt, rng: &mut Rng) -> String {
    let words = match opt.kind {
        Kind::Bool => &["true", "false"][..],
        Kind::Word(words) | Kind::LateWord(words) | Kind::Words(words) => words,
        Kind::Number | Kind::LongNumber => &["0", "1", "2", "3"],
        Kind::Flag | Kind::List | Kind::Repeated => &[],
    };
    let text = match opt.long {
        "gpu-name" => ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120a", "compute_90"][pick(rng, 6)],
        "maxrregcount" => ["0", "16", "32", "128", "256", "archmax"][pick(rng, 6)],
        "entry" => "k",
        // Files are the harness's.
        "output-file" => return "out".into(),
        "compiler-stats-file" | "fdevice-time-trace" => return "stats".into(),
        "options-file" => return "nosuch.opt".into(),
        _ if words.is_empty() => VALUES[pick(rng, VALUES.len())],
        _ => words[pick(rng, words.len())],
    };
    if pick(rng, 4) == 0 { VALUES[pick(rng, VALUES.len())].into() } else { text.into() }
}

/// A command line, and the options that are in it.
fn line(options: &[&Opt], rng: &mut Rng) -> (Vec<String>, Vec<&'static str>) {
    let (mut args, mut names): (Vec<String>, Vec<&'static str>) = (Vec::new(), Vec::new());
    if pick(rng, 4) != 0 {
        args.extend(["-arch".to_string(), "sm_80".to_string()]);
    }
    for _ in 0..1 + pick(rng, 3) {
        let opt = options[pick(rng, options.len())];
        names.push(opt.long);
        let name = spelled(opt, rng);
        let text = value(opt, rng);
        match (opt.kind == Kind::Flag, pick(rng, 12)) {
            (true, 1..) => args.push(name),
            (false, 0) => args.push(name),
            (_, 1 | 2) => args.push(format!("{name}{text}")),
            (_, 3..7) => args.push(format!("{name}={text}")),
            _ => args.extend([name, text]),
        }
    }
    match pick(rng, 16) {
        0 => {}
        1 => args.push("nosuch.ptx".into()),
        2 => args.insert(pick(rng, args.len() + 1), "k.ptx".into()),
        _ => args.push("k.ptx".into()),
    }
    if pick(rng, 3) != 0 {
        args.extend(["-o".to_string(), "out".to_string()]);
    }
    match pick(rng, 20) {
        0 => drop(args.remove(pick(rng, args.len()))),
        1 => {
            let at = pick(rng, args.len());
            args.insert(at, args[at].clone());
        }
        2 => {
            let (a, b) = (pick(rng, args.len()), pick(rng, args.len()));
            args.swap(a, b);
        }
        _ => {}
    }
    (args, names)
}

/// Exit status, whether there is an output, the first line that is said.
fn outcome(program: &Path, folder: &Path, args: &[String]) -> std::io::Result<(Option<i32>, bool, String)> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("k.ptx"), SOURCE)?;
    let out =
        Command::new(program).args(args).current_dir(folder).stdin(std::process::Stdio::null()).output()?;
    let written = ["out", "elf.o"].iter().any(|f| folder.join(f).exists());
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().find(|l| l.contains("error") || l.contains("fatal")).unwrap_or("").to_string();
    Ok((out.status.code(), written, said))
}

pub fn run(root: &Path, bin: &Path, o: &Options) -> Result<(), String> {
    let options: Vec<&Opt> = OPTIONS
        .iter()
        .filter(|opt| !OURS.contains(&opt.long) && (o.all || opt.status != Status::NotBuilt))
        .collect();
    let compiler = if o.compiler.is_absolute() { o.compiler.clone() } else { root.join(&o.compiler) };
    let results: Vec<_> = (0..o.count)
        .into_par_iter()
        .map(|n| {
            let mut rng = Rng::new(o.seed << 32 | n);
            let (args, names) = line(&options, &mut rng);
            let folder = std::env::temp_dir().join(format!("mutate-options.{}.{n}", std::process::id()));
            let both = outcome(&bin.join("ptxas"), &folder, &args)
                .and_then(|theirs| outcome(&compiler, &folder, &args).map(|ours| (theirs, ours)));
            let _ = std::fs::remove_dir_all(&folder);
            both.map(|(theirs, ours)| (args, names, theirs, ours)).map_err(|e| e.to_string())
        })
        .collect::<Result<_, String>>()?;
    let mut by_option: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut same, mut accepted, mut crashed, mut files) = (0u64, 0u64, 0u64, 0u64);
    for (args, names, theirs, ours) in &results {
        accepted += u64::from(theirs.0 == Some(0));
        crashed += u64::from(ours.0.is_none() || ours.0 == Some(101));
        if theirs.0 == ours.0 {
            same += 1;
            files += u64::from(theirs.1 != ours.1);
            if theirs.1 != ours.1 && o.list {
                println!("{args:?}\n    an output of one of them only: {theirs:?}, {ours:?}");
            }
            continue;
        }
        for name in names {
            *by_option.entry(name).or_default() += 1;
        }
        if o.list {
            println!("{args:?}\n    ptxas: {theirs:?}\n    ours:  {ours:?}");
        }
    }
    for (name, n) in by_option {
        println!("{n:6} with --{name}");
    }
    let count = results.len();
    let percent = 100.0 * same as f64 / count.max(1) as f64;
    println!(
        "{count} command lines, {accepted} accepted by ptxas; the same exit status for {same} ({percent:.2} %)"
    );
    println!("{files} of these left an output in one of the two only; {crashed} crashes");
    if crashed > 0 { Err(format!("{crashed} crashes")) } else { Ok(()) }
}
