//! `cargo xtask zluda FOLDER`: the hand-written PTX tests of a checkout of ZLUDA, whose expected values others worked
//! out, in the PTX interpreter and in the SASS simulator (docs/verification.md).

mod table;

use oxptxas::Settings;
use rayon::prelude::*;
use sass::Target;
use sim::launch::{Arg, Buffer, Elem, Launch};
use sim::number::Number;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::{Test, Values};

#[derive(clap::Args)]
pub struct Options {
    /// A checkout of ZLUDA.
    folder: PathBuf,
    /// Targets.
    #[arg(long, value_delimiter = ',', default_value = "75,90,120")]
    sm: Vec<u8>,
    /// Only tests whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

/// Where the tests are in a checkout.
const PLACE: &str = "ptx/src/test/spirv_run";
/// Most warp instructions.
const LIMIT: u64 = 1_000_000;
/// Bytes of dynamic shared memory that every test is launched with.
const SHARED: u32 = 1024;
/// Bytes behind each buffer.
const PAGE: usize = 4096;

/// Who is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Interpreter,
    Ours,
    Ptxas,
}

/// What one of them says.
#[derive(Clone, PartialEq)]
enum Answer {
    /// The expected values, or the file is compiled where there are none.
    Right,
    /// Others.
    Wrong(String),
    /// It doesn't compile.
    Refused(String),
}

/// Runs every test and reports who disagrees.
pub fn run(bin: &Path, options: &Options) -> Result<(), String> {
    let place = options.folder.join(PLACE);
    let read = |name: &str| {
        let path = place.join(name);
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut tests = table::parse(&read("mod.rs")?)?;
    tests.retain(|t| options.only.as_ref().is_none_or(|o| t.name.contains(o)));
    let found: Result<Vec<_>, String> = tests
        .par_iter()
        .map(|t| read(&format!("{}.ptx", t.name)).map(|source| one(t, &source, bin, &options.sm)))
        .collect();
    let mut counts = BTreeMap::<String, usize>::new();
    let mut faults = 0;
    for (test, answers) in tests.iter().zip(found?) {
        let executed = if test.output.is_some() { "executed" } else { "compiled only" };
        *counts.entry(format!("tests, {executed}")).or_default() += 1;
        for (sm, who, level, answer) in &answers {
            let place = match who {
                Who::Interpreter => format!("interpreter for sm_{sm}"),
                Who::Ours => format!("ours, sm_{sm} -O{level}"),
                Who::Ptxas => format!("ptxas, sm_{sm} -O{level}"),
            };
            // What ptxas refuses for a target is none of its tests.
            let foreign = |a: &(u8, Who, u8, Answer)| a.0 == *sm && a.1 == Who::Ptxas && a.3 != Answer::Right;
            let (label, what) = match answer {
                Answer::Right => ("right", None),
                Answer::Wrong(how) => ("wrong", Some(how)),
                Answer::Refused(why) => ("refused", Some(why)),
            };
            let who =
                if *who == Who::Interpreter { "interpreter" } else { place.split(',').next().unwrap_or("") };
            *counts.entry(format!("{who}: {label}")).or_default() += 1;
            if let Some(what) = what {
                let excused = answers.iter().any(foreign);
                println!(
                    "{}: {place}: {label}{}: {what}",
                    test.name,
                    if excused { " (as ptxas)" } else { "" }
                );
                faults += usize::from(!excused);
            }
        }
    }
    counts.iter().for_each(|(what, n)| println!("{n:6} {what}"));
    if faults == 0 { Ok(()) } else { Err(format!("{faults} answers are wrong where ptxas's are right")) }
}

/// All answers to a test.
fn one(test: &Test, source: &str, bin: &Path, sms: &[u8]) -> Vec<(u8, Who, u8, Answer)> {
    let mut answers = Vec::new();
    for &sm in sms {
        let Some(target) = Target::new(sm) else { continue };
        answers.push((sm, Who::Interpreter, 0, interpret(test, source, target)));
        for level in [0, 3] {
            let settings = Settings { opt_level: level, ..Settings::new(target) };
            let ours = oxptxas::compile(source, &test.name, &settings);
            let ours = ours.map(|o| o.cubin).map_err(|e| e.render("oxptxas"));
            answers.push((sm, Who::Ours, level, execute(test, ours)));
            answers.push((sm, Who::Ptxas, level, execute(test, vendor(bin, test, source, sm, level))));
        }
    }
    answers
}

fn interpret(test: &Test, source: &str, target: Target) -> Answer {
    let module = match oxptxas::pipeline::front_end(source, &test.name, target, &target.to_string()) {
        Ok(module) => module,
        Err(e) => return Answer::Refused(first_line(&e.render("oxptxas"))),
    };
    let kernel = module.funcs.values().find(|f| f.name == test.name);
    let params = kernel.map_or(0, |f| module.param_layout(f).1);
    let (Some(launch), Some(want)) = (launch(test, params), &test.output) else { return Answer::Right };
    let options = sim::ptx::Options { limit: LIMIT, ..Default::default() };
    match sim::ptx::execute_with(&module, &launch, options) {
        Ok(run) => judge(want, launch.collect(&run).get("output").map_or(&[], |b| b)),
        Err(e) => Answer::Wrong(e.render(&test.name, source)),
    }
}

fn execute(test: &Test, cubin: Result<Vec<u8>, String>) -> Answer {
    let cubin = match cubin {
        Ok(cubin) => cubin,
        Err(e) => return Answer::Refused(first_line(&e)),
    };
    let params = match cubin::read::read(&cubin) {
        Ok(image) => image.kernels.get(&test.name).map_or(0, |k| k.params.1),
        Err(e) => return Answer::Refused(e.to_string()),
    };
    let (Some(launch), Some(want)) = (launch(test, params.into()), &test.output) else {
        return Answer::Right;
    };
    let options = sim::sass::Options { limit: LIMIT, ..Default::default() };
    match sim::sass::run(&cubin, &launch, options) {
        Ok(run) => judge(want, run.buffers.get("output").map_or(&[], |b| b)),
        Err(e) => Answer::Wrong(e.to_string()),
    }
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_string()
}

/// One block; as many parameters as the kernel has point to the input and the output.
fn launch(test: &Test, params: u32) -> Option<Launch> {
    // Some threads reach beyond what the tests allocate, but not beyond a driver's page.
    let zeros = |bytes: &[u8]| Buffer::zeros(Elem::U8, bytes.len() + PAGE);
    let buffer = |bytes: &[u8]| Buffer {
        list: Some(bytes.iter().map(|b| Number::Int((*b).into())).collect()),
        ..zeros(bytes)
    };
    let output = test.output.as_ref()?;
    let mut buffers = BTreeMap::from([("output".to_string(), zeros(&output.bytes))]);
    let mut first = "output";
    if let Some(input) = &test.input {
        buffers.insert("input".into(), buffer(&input.bytes));
        first = "input";
    }
    let arg = |name: &str| Arg { buffer: Some(name.into()), ..Arg::default() };
    Some(Launch {
        images: Default::default(),
        names: Default::default(),
        kernel: test.name.clone(),
        grid: [1; 3],
        block: [test.threads, 1, 1],
        cluster: None,
        cooperative: false,
        stack: 0,
        shared: SHARED,
        args: [first, "output"].into_iter().take(params as usize / 8).map(arg).collect(),
        buffers,
        generated: None,
    })
}

/// Compares as Rust's `==` does: a NaN equals nothing, zeros are equal.
fn judge(want: &Values, got: &[u8]) -> Answer {
    let size = want.size();
    let equal = |a: &[u8], b: &[u8]| {
        let (a, b) = (sim::memory::little_endian(a), sim::memory::little_endian(b));
        let (sign, infinity) = match &*want.ty {
            "f16" => (1 << 15, 0x7c00),
            "f32" => (1 << 31, 0x7f80_0000),
            "f64" => (1 << 63, 0x7ff0_0000_0000_0000),
            _ => return a == b,
        };
        let magnitude = |x: u64| x & !sign;
        (a == b || magnitude(a) == 0 && magnitude(b) == 0) && magnitude(a) <= infinity
    };
    let pairs = || want.bytes.chunks(size).zip(got.chunks(size)).enumerate();
    let wrong: Vec<String> = pairs()
        .filter(|(_, (a, b))| !equal(a, b))
        .map(|(i, (a, b))| {
            let (a, b) = (sim::memory::little_endian(a), sim::memory::little_endian(b));
            format!("[{i}] is {b:#x}, not {a:#x}")
        })
        .collect();
    match wrong.as_slice() {
        [] => Answer::Right,
        [first, ..] => {
            Answer::Wrong(format!("{first} ({} of {} differ)", wrong.len(), want.bytes.len() / size))
        }
    }
}

fn vendor(bin: &Path, test: &Test, source: &str, sm: u8, level: u8) -> Result<Vec<u8>, String> {
    let dir = std::env::temp_dir().join(format!("zluda-{}-{}-{sm}-{level}", std::process::id(), test.name));
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let (ptx, cubin) = (dir.join("test.ptx"), dir.join("test.cubin"));
    std::fs::write(&ptx, source).map_err(|e| e.to_string())?;
    let mut c = Command::new(bin.join("ptxas"));
    c.arg(format!("-arch=sm_{sm}")).arg(format!("-O{level}")).arg("-o").args([&cubin, &ptx]);
    let done = c.output().map_err(|e| format!("ptxas: {e}"))?;
    let read = match done.status.success() {
        true => std::fs::read(&cubin).map_err(|e| e.to_string()),
        false => {
            let text = String::from_utf8_lossy(&done.stderr);
            let line = text.lines().find(|l| l.contains("error") || l.contains("fatal")).unwrap_or("it dies");
            Err(line.replace(&ptx.display().to_string(), "test.ptx"))
        }
    };
    let _ = std::fs::remove_dir_all(&dir);
    read
}
