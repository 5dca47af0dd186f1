//! Runs a program by definition (the PTX interpreter) and as compiled code (the SASS simulator), and looks for
//! hazards in the code.

use super::generate::Program;
use sass::Target;
use sim::launch::Buffers;
use sim::ptx::Fill;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Most warp instructions that the interpreter runs for a program; longer ones are left out.
const LIMIT: u64 = 30_000;
/// Most that code runs for each: where a target lacks an instruction, and at -O0, it may be a hundred.
const CODE: u64 = 200;

/// Longest time for ptxas, which needs a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The interpreter refuses the program, or its result depends on what is not defined: the generator's fault.
    Undefined,
    /// It runs longer than the limit: left out.
    TooLong,
    /// The compiler refuses it.
    Rejected,
    /// The compiler, the checker or a simulator panics.
    Panic,
    /// The code faults in the simulator, or never ends.
    Fault,
    /// The code gives another result.
    Mismatch,
    /// The code has a hazard.
    Hazard,
    /// ptxas refuses it.
    VendorRejected,
    /// ptxas dies, or does not end.
    VendorCrash,
    /// ptxas's code holds a word that nvdisasm calls illegal (docs/verification.md).
    VendorIllegal,
    /// ptxas's code faults in the simulator.
    VendorFault,
    /// ptxas's code gives another result.
    VendorMismatch,
    /// ptxas's code keeps something in a uniform register of lanes that run apart (docs/verification.md).
    VendorUniform,
    /// In ptxas's code lanes wait at BSYNC for others that left without BREAK and wait elsewhere.
    VendorMeeting,
    /// ptxas's optimized code gives another result than its code at -O0, which gives the defined one.
    VendorOptimizer,
}

/// How to compile.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Setup {
    /// `sm_XX`
    pub sm: u8,
    /// `-O`
    pub level: u8,
    /// Run ptxas's code, not ours.
    pub vendor: Option<PathBuf>,
    /// Run the checkers after each phase.
    pub verify_each: bool,
}

/// A failure of one program.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What.
    pub kind: Kind,
    /// Where.
    pub setup: Setup,
    /// In words.
    pub message: String,
}

impl Kind {
    /// Whether it says nothing of our code or the simulator: programs that are left out, and faults of ptxas's that
    /// are known, of which the generator can't keep clear.
    pub fn explained(self) -> bool {
        use Kind::{TooLong, VendorCrash, VendorIllegal, VendorMeeting, VendorOptimizer, VendorUniform};
        matches!(
            self,
            TooLong | VendorUniform | VendorMeeting | VendorOptimizer | VendorCrash | VendorIllegal
        )
    }

    /// Of a fault in the simulator.
    fn of(error: &sim::sass::SimError, vendor: bool) -> Kind {
        let text = error.to_string();
        match () {
            () if !vendor => Kind::Fault,
            () if text.contains("sm_75: cannot decode")
                && [0x23e, 0x83e].iter().any(|op| text.contains(&format!("unknown opcode {op:#x}"))) =>
            {
                Kind::VendorIllegal
            }
            // Names that nvdisasm does not know: UF2FP from pairs of binary16 on sm_120.
            () if text.contains("not supported: modifier .???") => Kind::VendorIllegal,
            () if text.contains("holds what other lanes wrote") => Kind::VendorUniform,
            () if text.starts_with("deadlock") && text.contains("Bsync") => Kind::VendorMeeting,
            () => Kind::VendorFault,
        }
    }
}

impl Failure {
    /// What failures of the same cause have in common: the message without numbers and names of registers.
    pub fn signature(&self) -> String {
        let kept = match self.kind {
            Kind::Mismatch | Kind::VendorMismatch | Kind::VendorOptimizer => String::new(),
            // The instruction, without its address and operands.
            Kind::Fault | Kind::VendorFault => {
                let rest = self.message.split_once("*/ ").map_or(&self.message[..], |p| p.1);
                let op = rest.split([' ', ';']).find(|w| !w.starts_with('@')).unwrap_or("");
                let what = rest.rsplit_once(": ").map_or("", |p| p.1);
                let words = what.split(['(', '[']).next().unwrap_or("").split(' ');
                let words: Vec<&str> = words.filter(|w| !w.starts_with("0x")).collect();
                format!("{} {}", op.split('.').next().unwrap_or(op), words.join(" "))
            }
            _ => self.message.clone(),
        };
        let text: String = kept.chars().filter(|c| !c.is_ascii_digit()).take(120).collect();
        format!("{:?} {text}", self.kind)
    }
}

/// Where the last panic was.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps panics quiet and notes where they happen.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut place) = PANIC.lock() {
            *place = info.to_string();
        }
    }));
}

/// Runs `f`; a panic becomes an error.
fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| {
        let place = PANIC.lock().map(|p| p.clone()).unwrap_or_default();
        place.lines().collect::<Vec<_>>().join(" ")
    })
}

/// The memory after the program, as PTX defines it.
///
/// # Errors
/// Why there is no such thing.
pub fn define(p: &Program, sm: u8, strict: bool) -> Result<Buffers, (Kind, String)> {
    let undefined = |m: String| match m.contains("stopped after") {
        true => (Kind::TooLong, m),
        false => (Kind::Undefined, m),
    };
    let module = front_end(&p.text, sm).map_err(undefined)?;
    let run = |fill| -> Result<Buffers, (Kind, String)> {
        guarded(|| sim::ptx::execute_filled(&module, &p.launch, LIMIT, fill))
            .map_err(|e| (Kind::Panic, e))?
            .map(|memory| p.launch.collect(&memory))
            .map_err(|e| undefined(e.render("fuzz.ptx", &p.text)))
    };
    let memory = run(Fill::Zero)?;
    if strict {
        for fill in [Fill::Random(0), Fill::Byte(0x5b), Fill::Byte(0x17)] {
            let other = run(fill)?;
            compare(p, &other, &memory).map_err(|e| undefined(format!("reads what is not defined: {e}")))?;
        }
    }
    Ok(memory)
}

/// Parses and checks.
pub fn front_end(text: &str, sm: u8) -> Result<ptx::Module, String> {
    let target = Target::new(sm).ok_or("unknown target")?;
    oxptxas::pipeline::front_end(text, "fuzz.ptx", target, &target.to_string())
        .map_err(|e| e.render("oxptxas"))
}

/// Compares what two runs left.
fn compare(p: &Program, got: &Buffers, want: &Buffers) -> Result<(), String> {
    let bytes = |m: &Buffers, name: &str| -> Vec<u8> { m.get(name).cloned().unwrap_or_default() };
    let (a, b) = (bytes(got, "sums"), bytes(want, "sums"));
    if let Some(at) = (0..a.len()).find(|i| a[*i] != b[*i]) {
        return Err(format!("sum at {at} is {:#x}, not {:#x}", a[at], b[at]));
    }
    let (mut a, mut b) = (bytes(got, "out"), bytes(want, "out"));
    for thread in 0..a.len() / p.output.stride.max(1) {
        let start = thread * p.output.stride;
        for (at, class) in &p.output.slots {
            let place = start + at..start + at + class.bytes();
            let (x, y) = (word(&a[place.clone()]), word(&b[place.clone()]));
            if !class.same(x, y) {
                return Err(format!("thread {thread}, {at} ({class:?}) is {x:#x}, not {y:#x}"));
            }
            a[place.clone()].fill(0);
            b[place].fill(0);
        }
        let integers = start..start + p.output.stride;
        if let Some(at) = integers.clone().find(|i| a[*i] != b[*i]) {
            let from = at & !3;
            let (x, y) = (word(&a[from..from + 4]), word(&b[from..from + 4]));
            return Err(format!("thread {thread}, {} is {x:#x}, not {y:#x}", from - start));
        }
    }
    Ok(())
}

fn word(bytes: &[u8]) -> u64 {
    sim::memory::little_endian(bytes)
}

/// Compiles and runs a program and compares with what it should give.
pub fn check(p: &Program, want: &Buffers, setup: &Setup) -> Option<Failure> {
    let fail = |kind, message: String| Some(Failure { kind, setup: setup.clone(), message });
    let vendor = setup.vendor.is_some();
    let cubin = match &setup.vendor {
        Some(program) => match vendor_compile(program, p, setup) {
            Ok(c) => c,
            Err(e) if e.is_empty() => return fail(Kind::VendorCrash, e),
            Err(e) => return fail(Kind::VendorRejected, e),
        },
        None => match guarded(|| compile(&p.text, setup)) {
            Ok(Ok(c)) => c,
            Ok(Err(e)) => return fail(Kind::Rejected, e),
            Err(e) => return fail(Kind::Panic, e),
        },
    };
    if !vendor {
        match guarded(|| sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in())) {
            Err(e) => return fail(Kind::Panic, e),
            Ok(Err(e)) => return fail(Kind::Hazard, e.to_string()),
            Ok(Ok(kernels)) => {
                if let Some(v) = kernels.iter().flat_map(|k| &k.1).next() {
                    return fail(Kind::Hazard, format!("{v:?}"));
                }
            }
        }
    }
    // Ours never relies on what lanes that run apart leave in uniform registers.
    let options = sim::sass::Options { limit: CODE * LIMIT, strict_uniform: !vendor, ..Default::default() };
    let failure = match guarded(|| sim::sass::run(&cubin, &p.launch, options)) {
        Err(e) => fail(Kind::Panic, e),
        Ok(Err(e)) => fail(Kind::of(&e, vendor), e.to_string()),
        Ok(Ok(got)) => match compare(p, &got.buffers, want) {
            Ok(()) => None,
            Err(e) => fail(if vendor { Kind::VendorMismatch } else { Kind::Mismatch }, e),
        },
    };
    // Lanes that run apart and spoil each other's uniform registers explain it.
    let failure = failure?;
    let strict = sim::sass::Options { strict_uniform: true, ..options };
    match guarded(|| sim::sass::run(&cubin, &p.launch, strict)) {
        Ok(Err(e)) if vendor && Kind::of(&e, vendor) == Kind::VendorUniform => {
            fail(Kind::VendorUniform, e.to_string())
        }
        _ if failure.kind == Kind::VendorMismatch && setup.level > 0 => {
            // Only the optimizer says so if the unoptimized code says what is defined.
            let plain = Setup { level: 0, ..setup.clone() };
            match check(p, want, &plain) {
                None => fail(Kind::VendorOptimizer, failure.message),
                Some(_) => Some(failure),
            }
        }
        _ => Some(failure),
    }
}

fn compile(text: &str, setup: &Setup) -> Result<Vec<u8>, String> {
    let target = Target::new(setup.sm).ok_or("unknown target")?;
    let mut settings = oxptxas::Settings::new(target);
    // The interpreter rounds products and sums apart, and every bit is compared.
    settings.fmad = false;
    settings.opt_level = setup.level;
    settings.knobs.verify = setup.verify_each;
    match oxptxas::compile(text, "fuzz.ptx", &settings) {
        Ok(out) => Ok(out.cubin),
        Err(e) => Err(e.render("oxptxas")),
    }
}

fn vendor_compile(program: &Path, p: &Program, setup: &Setup) -> Result<Vec<u8>, String> {
    let thread = rayon::current_thread_index().unwrap_or(0);
    let dir = std::env::temp_dir().join(format!("ptxfuzz-{}-{thread}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let (source, cubin) = (dir.join("fuzz.ptx"), dir.join("fuzz.cubin"));
    std::fs::write(&source, &p.text).map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .arg(format!("-arch=sm_{}", setup.sm))
        .arg(format!("-O{}", setup.level))
        .arg("-o")
        .args([&cubin, &source])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE && child.try_wait().map_err(|e| e.to_string())?.is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Nothing happens where it has ended.
    let _ = child.kill();
    let out = child.wait_with_output().map_err(|e| e.to_string())?;
    let read = if out.status.success() {
        std::fs::read(&cubin).map_err(|e| e.to_string())
    } else {
        Err(String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or("").to_string())
    };
    let _ = std::fs::remove_dir_all(&dir);
    read
}
