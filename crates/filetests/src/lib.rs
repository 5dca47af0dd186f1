//! File tests of the optimizer's passes: a file holds a function before the pass that its first line names, and after it.
//!
//! ```text
//! // test gvn
//! // run
//! function k sm_90 entry … {
//! …
//! }
//! // becomes
//! function k sm_90 entry … {
//! …
//! }
//! ```
//!
//! `// run` has the function executed before and after the pass, on several random inputs, and wants the same in memory:
//! both are compiled without optimization, and the simulator runs what came of it. `// run n=5` gives the number that
//! [`Run`] names, `// run threads=32` another number of threads.
//! `UPDATE_EXPECT=1 cargo test -p filetests` writes what comes behind `// becomes` anew.

use ori::{Analyses, Function, Manager, Plan};
use sim::launch::{Arg, Buffer, Elem, Launch};
use sim::number::Number;

/// What separates a function from what becomes of it.
const BECOMES: &str = "// becomes\n";

/// A test: the pass by name, how to run it, and the function before and after.
pub struct Case {
    /// Name of the pass's phase.
    pub pass: String,
    /// Whether the function is executed, and how.
    pub run: Option<Run>,
    /// Everything in front of what becomes of it.
    pub head: String,
    /// The function.
    pub before: Function,
    /// The text of what it is to become.
    pub after: String,
}

/// How a kernel is launched: its parameters are the addresses of a buffer of random words and of one for results, of
/// [`WORDS`] words each, a number, and a random word. Kernels that have fewer leave out the last ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The number.
    pub n: i64,
    /// Threads of a block; there are two blocks.
    pub threads: u32,
}

/// Words of a buffer.
pub const WORDS: usize = 2048;

/// Inputs on which a function is executed.
const SEEDS: std::ops::Range<u64> = 1..4;

impl Default for Run {
    fn default() -> Run {
        Run { n: 3, threads: 64 }
    }
}

impl Run {
    fn read(words: &str) -> Result<Run, String> {
        let mut run = Run::default();
        for word in words.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no NAME=VALUE"))?;
            let number = value.parse().map_err(|_| format!("`{value}` is no number"))?;
            match name {
                "n" => run.n = number,
                "threads" => run.threads = u32::try_from(number).map_err(|e| e.to_string())?,
                _ => return Err(format!("there is no `{name}` to give")),
            }
        }
        Ok(run)
    }

    /// Buffers as the kernel leaves them, for each seed.
    ///
    /// # Errors
    /// What the backend or the simulator says of the function.
    pub fn results(self, func: &Function) -> Result<Vec<sim::launch::Buffers>, String> {
        let cubin = cubin_of(func)?;
        let run = |seed| {
            let launch = self.launch(&func.name, seed);
            let done = sim::sass::run(&cubin, &launch, sim::sass::Options { fill: 0, ..Default::default() });
            done.map(|r| r.buffers).map_err(|e| e.to_string())
        };
        SEEDS.map(run).collect()
    }

    fn launch(self, kernel: &str, seed: u64) -> Launch {
        let random = Some([Number::Int(0), Number::Int(i64::from(u32::MAX))]);
        let buffer = |random| Buffer {
            random,
            seed,
            compare: Some("exact".into()),
            ..Buffer::zeros(Elem::U32, WORDS)
        };
        let address = |name: &str| Arg { buffer: Some(name.into()), ..Arg::default() };
        let number = |n| Arg { i32: Some(n), ..Arg::default() };
        let word = (seed as i64).wrapping_mul(0x9e37_79b9) & 0x7fff_ffff;
        Launch {
            grid: [2, 1, 1],
            block: [self.threads, 1, 1],
            args: vec![address("data"), address("out"), number(self.n), number(word)],
            buffers: [("data".into(), buffer(random)), ("out".into(), buffer(None))].into(),
            ..Launch::of(kernel)
        }
    }
}

/// Offset and size of the parameters that [`Run`] gives a kernel.
const PARAMS: [(u16, u32); 4] = [(0, 8), (8, 8), (16, 4), (20, 4)];

/// A file with the function's code, compiled without optimization.
fn cubin_of(func: &Function) -> Result<Vec<u8>, String> {
    let target = func.target;
    let plan = Plan::new(0);
    let code = backend::compile(func.clone(), &mut Manager::new(&plan), false).map_err(|e| e.to_string())?;
    let kernel = cubin::Kernel {
        name: func.name.clone(),
        registers: code.stated_registers(0).min(255) as u8,
        frame_bytes: code.frame_bytes,
        barriers: code.barriers as u8,
        shared_bytes: code.shared_size,
        shared_align: if code.shared_size > 0 { 16 } else { 0 },
        param_base: target.info().param_base,
        param_bytes: PARAMS.map(|(at, size)| at + size as u16)[PARAMS.len() - 1],
        params: PARAMS
            .iter()
            .map(|(offset, size)| cubin::Param { offset: *offset, size: *size, ..Default::default() })
            .collect(),
        exits: code.exit_offsets,
        literals: code.literals,
        instructions: code.insts.len() as u32,
        code: code.words,
        ..cubin::Kernel::default()
    };
    let sm = target.sm;
    let file = cubin::Cubin { sm, ptx_sm: sm, isa_class: 1, kernels: vec![kernel], ..Default::default() };
    cubin::write::write(&file)
}

/// Runs the first pass of this name; whether it says that it changed anything.
///
/// # Errors
/// That there is no such pass, or what the verifier says of what it made.
pub fn apply(pass: &str, func: &mut Function) -> Result<bool, String> {
    let found = opt::PASSES.iter().find(|p| p.phase.name() == pass);
    let changed =
        found.ok_or_else(|| format!("there is no pass `{pass}`"))?.run.apply(func, &Analyses::default());
    ori::verify::verify(func).map_err(|e| format!("{}\n{func}", e.join("\n")))?;
    Ok(changed != ori::Changed::Nothing)
}

/// Whether two functions leave the same in memory.
///
/// # Errors
/// Where they do not, or cannot be executed.
pub fn same(run: Run, before: &Function, after: &Function) -> Result<(), String> {
    let (want, got) = (run.results(before)?, run.results(after)?);
    for (seed, (want, got)) in SEEDS.zip(want.iter().zip(&got)) {
        run.launch(&before.name, seed).compare(got, want).map_err(|e| format!("other results: {e}"))?;
    }
    Ok(())
}

impl Case {
    /// Reads a test.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Case, String> {
        let (head, after) = text.split_once(BECOMES).unwrap_or((text, ""));
        let mut lines = head.lines();
        let pass = lines.next().and_then(|l| l.strip_prefix("// test ")).ok_or("first line: // test PASS")?;
        let run = lines.next().and_then(|l| l.strip_prefix("// run")).map(Run::read).transpose()?;
        let before = ori::parse::parse(head).map_err(|e| e.to_string())?;
        ori::verify::verify(&before).map_err(|e| e.join("\n"))?;
        Ok(Case { pass: pass.into(), run, head: head.into(), before, after: after.into() })
    }

    /// Does the test; what becomes of the function.
    ///
    /// # Errors
    /// That the pass changes nothing, makes something that is no function, or one that does something else.
    pub fn result(&self) -> Result<String, String> {
        let mut func = self.before.clone();
        if !apply(&self.pass, &mut func)? {
            return Err("the pass changes nothing".into());
        }
        if let Some(run) = self.run {
            same(run, &self.before, &func)?;
        }
        Ok(func.to_string())
    }

    /// The whole file with this result.
    pub fn with(&self, result: &str) -> String {
        format!("{}{BECOMES}{result}", self.head)
    }
}
