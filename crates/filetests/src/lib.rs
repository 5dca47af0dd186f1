//! File tests of the compiler's stages: a file holds what one of them gets, and what it makes of that.
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
//! The first line names the stage: a pass of the optimizer, which gets a function and changes it; a phase of the backend (`legalize` …
//! `hazards`), which gets a function in SSA that goes through the backend up to that phase, or `emit` for the words in the end; or
//! `lower sm_90`, which gets a kernel in PTX.
//!
//! `// run` has it executed on several random inputs, and wants the same in memory. A function is executed before and after a pass, both
//! compiled without optimization; one for the backend without and with optimization; what PTX is lowered to beside the PTX. `// run n=5`
//! gives the number that [`Run`] names, `// run threads=32` another number of threads.
//! `UPDATE_EXPECT=1 cargo test -p filetests` writes what comes behind `// becomes` anew.

mod error;

pub use error::{CaseError, Failure};

use ori::{Analyses, Function, Manager, Phase, Plan};
use sass::Target;
use sim::image::spec::ImageSpec;
use sim::launch::{Arg, Buffer, Elem, Launch};
use sim::number::Number;
use std::collections::BTreeMap;

/// What separates a function from what becomes of it.
const BECOMES: &str = "// becomes\n";

/// What is tested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    /// A pass of the optimizer, by the name of its phase.
    Pass(String),
    /// A phase of the backend.
    Backend(Phase),
    /// The words that come out of it.
    Emit,
    /// Lowering for a target.
    Lower(Target),
}

/// What a stage gets.
pub enum Input {
    /// A function.
    Function(Box<Function>),
    /// A module with one kernel.
    Ptx(Box<ptx::Module>),
}

/// A test: a stage, how what it makes is run, what it gets and is to make of that.
pub struct Case {
    /// The stage.
    pub stage: Stage,
    /// Whether it is executed, and how.
    pub run: Option<Run>,
    /// Everything in front of what becomes of it.
    pub head: String,
    /// What the stage gets.
    pub before: Input,
    /// The text of what it is to become.
    pub after: String,
}

/// How a kernel is launched: its parameters are the addresses of a buffer of random words and of one for results, of
/// [`WORDS`] words each, a number, and a random word; or, in place of the latter two, the handle of a texture with the random words. Kernels
/// that have fewer leave out the last ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The number.
    pub n: i64,
    /// Threads of a block; there are two blocks.
    pub threads: u32,
    /// Whether there is a texture: rows of [`TEXELS`] texels of four channels of 32 bits.
    pub texture: bool,
}

/// Words of a buffer.
pub const WORDS: usize = 2048;

/// Texels in each direction of the texture.
pub const TEXELS: u32 = 16;

/// Inputs on which a function is executed.
const SEEDS: std::ops::Range<u64> = 1..4;

impl Default for Run {
    fn default() -> Run {
        Run { n: 3, threads: 64, texture: false }
    }
}

impl Run {
    fn read(words: &str) -> Result<Run, CaseError> {
        let mut run = Run::default();
        for word in words.split_whitespace() {
            if word == "texture" {
                run.texture = true;
                continue;
            }
            let (name, value) = word.split_once('=').ok_or_else(|| CaseError::Word(word.into()))?;
            let number = value.parse().map_err(|_| CaseError::Number(value.into()))?;
            match name {
                "n" => run.n = number,
                "threads" => run.threads = u32::try_from(number).map_err(CaseError::Threads)?,
                _ => return Err(CaseError::NoInput(name.into())),
            }
        }
        Ok(run)
    }

    /// Buffers as the kernel leaves them, for each seed.
    ///
    /// # Errors
    /// What the backend or the simulator says of the function.
    pub fn results(self, func: &Function, level: u8) -> Result<Vec<sim::launch::Buffers>, Failure> {
        let cubin = cubin_of(func, level, self.texture)?;
        let run = |seed| {
            let launch = self.launch(&func.name, seed);
            let done = sim::sass::run(&cubin, &launch, sim::sass::Options { fill: 0, ..Default::default() });
            Ok(done?.buffers)
        };
        SEEDS.map(run).collect()
    }

    /// What the interpreter says of a kernel in PTX.
    ///
    /// # Errors
    /// What is wrong with the kernel.
    pub fn interpreted(
        self,
        module: &ptx::Module,
        kernel: &str,
    ) -> Result<Vec<sim::launch::Buffers>, Failure> {
        let run = |seed| Ok(sim::ptx::run(module, &self.launch(kernel, seed))?);
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
        let mut args = vec![address("data"), address("out")];
        let mut images = BTreeMap::new();
        if self.texture {
            args.push(Arg { texture: Some("texels".into()), ..Arg::default() });
            images.insert("texels".into(), texels());
        } else {
            args.extend([number(self.n), number(word)]);
        }
        Launch {
            grid: [2, 1, 1],
            block: [self.threads, 1, 1],
            args,
            images,
            buffers: [("data".into(), buffer(random)), ("out".into(), buffer(None))].into(),
            ..Launch::of(kernel)
        }
    }
}

/// The texture of the random words.
fn texels() -> ImageSpec {
    ImageSpec {
        buffer: "data".into(),
        geometry: "2d".into(),
        ty: "u32".into(),
        channels: 4,
        normalized: false,
        size: vec![TEXELS, TEXELS],
        layers: 1,
        samples: 1,
        levels: 1,
        pitch: 0,
        coordinates: None,
        filter: None,
        level_filter: None,
        address: Vec::new(),
        border: Vec::new(),
        compare: None,
    }
}

/// Offset and size of the parameters that [`Run`] gives a kernel, without and with a texture.
const PARAMS: [&[(u16, u32)]; 2] = [&[(0, 8), (8, 8), (16, 4), (20, 4)], &[(0, 8), (8, 8), (16, 8)]];

/// A file with the function's code, compiled at this level.
fn cubin_of(func: &Function, level: u8, texture: bool) -> Result<Vec<u8>, Failure> {
    let target = func.target;
    let params = PARAMS[usize::from(texture)];
    let plan = Plan::new(level);
    let mut func = func.clone();
    opt::expand(&mut func);
    let code = backend::compile(func.clone(), &mut Manager::new(&plan), false)?;
    let kernel = cubin::Kernel {
        name: func.name.clone(),
        registers: code.stated_registers(0).min(255) as u8,
        frame_bytes: code.frame_bytes,
        barriers: code.barriers as u8,
        shared_bytes: code.shared_size,
        shared_align: if code.shared_size > 0 { 16 } else { 0 },
        param_base: target.info().param_base,
        param_bytes: params.last().map_or(0, |(at, size)| at + *size as u16),
        params: params
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
    Ok(cubin::write::write(&file)?)
}

/// Runs the first pass of this name; whether it says that it changed anything.
///
/// # Errors
/// That there is no such pass, or what the verifier says of what it made.
pub fn apply(pass: &str, func: &mut Function) -> Result<bool, Failure> {
    let found = opt::PASSES.iter().find(|p| p.phase.name() == pass);
    let changed = found.ok_or_else(|| Failure::NoPass(pass.into()))?.run.apply(func, &Analyses::default());
    ori::verify::verify(func).map_err(|e| Failure::Function(e, func.to_string()))?;
    Ok(changed != ori::Changed::Nothing)
}

/// What the backend shows of a function after a phase, the last time that it runs; with `None` the words in the end.
fn behind(phase: Option<Phase>, func: &Function) -> Result<String, Failure> {
    let plan = Plan { shown: phase.into_iter().collect(), ..Plan::new(3) };
    let mut manager = Manager::new(&plan);
    let code = backend::compile(func.clone(), &mut manager, false)?;
    let Some(phase) = phase else {
        let line = |(n, word): (usize, &u128)| {
            let text = sass::disassemble(*word, func.target, 16 * n as i64);
            let text = text.unwrap_or_else(|e| format!("{e:?}"));
            format!("/*{:04x}*/ {word:#034x} {text}\n", 16 * n)
        };
        return Ok(code.words.iter().enumerate().map(line).collect());
    };
    let title = format!("# after {}\n", phase.name());
    let shown = manager.report.text.rsplit_once(&title).ok_or(Failure::Hidden)?.1;
    Ok(format!("{}\n", shown.trim_end()))
}

/// Lowers the kernel of a module as for -O3.
///
/// # Errors
/// What the front end, lowering or the verifier say of it.
pub fn lowered(module: &ptx::Module, target: Target) -> Result<Function, Failure> {
    let layout = lower::ModuleLayout::new(module, target).map_err(Failure::Lower)?;
    let options = lower::Options { opt_level: 3, ..lower::Options::new(target) };
    let (id, _) = module.funcs.iter().find(|(_, f)| f.entry).ok_or(Failure::NoKernel)?;
    let mut func = lower::lower_function(module, id, &layout, &options).map_err(Failure::Lower)?;
    ori::edit::renumber(&mut func);
    ori::verify::verify(&func).map_err(|e| Failure::Function(e, func.to_string()))?;
    Ok(func)
}

/// Whether what was left in memory is the same.
fn same(
    run: Run,
    kernel: &str,
    want: &[sim::launch::Buffers],
    got: &[sim::launch::Buffers],
) -> Result<(), Failure> {
    for (seed, (want, got)) in SEEDS.zip(want.iter().zip(got)) {
        run.launch(kernel, seed).compare(got, want)?;
    }
    Ok(())
}

/// The stage that a first line names.
fn stage(name: &str) -> Result<Stage, CaseError> {
    if let Some(target) = name.strip_prefix("lower ") {
        return Ok(Stage::Lower(Target::parse(target).ok_or_else(|| CaseError::NoTarget(target.into()))?));
    }
    if name == backend::phases::EMIT.name() {
        return Ok(Stage::Emit);
    }
    let known = backend::phases::ALL.iter().find(|p| p.name() == name);
    Ok(known.map_or_else(|| Stage::Pass(name.into()), |p| Stage::Backend(*p)))
}

impl Case {
    /// Reads a test.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Case, CaseError> {
        let (head, after) = text.split_once(BECOMES).unwrap_or((text, ""));
        let mut lines = head.lines();
        let name = lines.next().and_then(|l| l.strip_prefix("// test ")).ok_or(CaseError::NoStage)?;
        let stage = stage(name)?;
        let run = lines.next().and_then(|l| l.strip_prefix("// run")).map(Run::read).transpose()?;
        let before = match stage {
            Stage::Lower(_) => Input::Ptx(Box::new(ptx::parse(head).map_err(CaseError::Ptx)?)),
            _ => {
                let before = ori::parse::parse(head).map_err(CaseError::Text)?;
                ori::verify::verify(&before).map_err(CaseError::Function)?;
                Input::Function(Box::new(before))
            }
        };
        Ok(Case { stage, run, head: head.into(), before, after: after.into() })
    }

    /// Does the test; what becomes of it.
    ///
    /// # Errors
    /// That a pass changes nothing, or what is made is wrong, or does something else.
    pub fn result(&self) -> Result<String, Failure> {
        match (&self.stage, &self.before) {
            (Stage::Pass(pass), Input::Function(before)) => {
                let mut func = (**before).clone();
                if !apply(pass, &mut func)? {
                    return Err(Failure::Nothing);
                }
                if let Some(run) = self.run {
                    same(run, &func.name, &run.results(before, 0)?, &run.results(&func, 0)?)?;
                }
                Ok(func.to_string())
            }
            (Stage::Backend(_) | Stage::Emit, Input::Function(func)) => {
                if let Some(run) = self.run {
                    same(run, &func.name, &run.results(func, 0)?, &run.results(func, 3)?)?;
                }
                behind(if let Stage::Backend(phase) = self.stage { Some(phase) } else { None }, func)
            }
            (Stage::Lower(target), Input::Ptx(module)) => {
                let func = lowered(module, *target)?;
                if let Some(run) = self.run {
                    same(run, &func.name, &run.interpreted(module, &func.name)?, &run.results(&func, 0)?)?;
                }
                Ok(func.to_string())
            }
            _ => Err(Failure::Input),
        }
    }

    /// The whole file with this result.
    pub fn with(&self, result: &str) -> String {
        format!("{}{BECOMES}{result}", self.head)
    }
}
