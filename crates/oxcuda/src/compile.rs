//! From PTX to a cubin: by this project's compiler, or by the one that is asked for.

use crate::error::{Error, Result};
use crate::settings;
use sass::Target;
use std::path::Path;
use std::process::Command;
use std::{fmt, io};

/// What a program asks of the compiler.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Most registers of a thread.
    pub registers: Option<u32>,
    /// 0 … 3.
    pub level: Option<u8>,
    /// For the linker, not for the loader.
    pub relocatable: bool,
}

/// Why there is no cubin.
#[derive(Debug)]
pub enum CompileError {
    /// This project's compiler refused the PTX.
    Refused(oxptxas::Failure),
    /// The compiler that is asked for did not make one.
    Tool(ToolError),
    /// Its files could not be written or read.
    Files(io::Error),
}

/// Why a tool did not do its work.
#[derive(Debug)]
pub enum ToolError {
    /// The one of this name could not be started.
    Start(String, io::Error),
    /// It failed and said this.
    Failed(String, String),
}

impl From<oxptxas::Failure> for CompileError {
    fn from(e: oxptxas::Failure) -> CompileError {
        CompileError::Refused(e)
    }
}

impl From<ToolError> for CompileError {
    fn from(e: ToolError) -> CompileError {
        CompileError::Tool(e)
    }
}

impl From<io::Error> for CompileError {
    fn from(e: io::Error) -> CompileError {
        CompileError::Files(e)
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Refused(failure) => f.write_str(&failure.render("oxptxas")),
            CompileError::Tool(e) => e.fmt(f),
            CompileError::Files(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolError::Start(name, e) => write!(f, "{name}: {e}"),
            ToolError::Failed(name, said) => write!(f, "{name}: {said}"),
        }
    }
}

impl std::error::Error for CompileError {}
impl std::error::Error for ToolError {}

/// The target that PTX names.
fn named_target(ptx: &str) -> Option<&str> {
    let line = ptx.lines().find_map(|l| l.trim_start().strip_prefix(".target"))?;
    line.split([',', '/']).next().map(str::trim)
}

/// The SM that PTX names, which its code says that it was made for, whatever it was compiled for.
pub fn virtual_sm(ptx: &str) -> Option<u8> {
    named_target(ptx)?.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok()
}

/// The target that PTX is compiled for: the device, with the features of its own that the PTX asks for.
pub fn target(ptx: &str) -> Target {
    let device = settings::get().target;
    let named = named_target(ptx).unwrap_or_default();
    match named.chars().last().filter(|c| matches!(c, 'a' | 'f')) {
        Some(suffix) => Target::parse(&format!("sm_{}{suffix}", device.sm)).unwrap_or(device),
        None => device,
    }
}

/// Why PTX could not be compiled, if it is its version: one that nobody here knows.
pub fn of_version(ptx: &str) -> Option<Error> {
    let line = ptx.lines().find_map(|l| l.trim_start().strip_prefix(".version"))?;
    let (major, minor) = line.split("//").next()?.trim().trim_end_matches(';').split_once('.')?;
    let version: (u32, u32) = (major.trim().parse().ok()?, minor.trim().parse().ok()?);
    let (newest, last) = ptx::parser::NEWEST_VERSION;
    (version > (newest.into(), last.into())).then_some(Error::UNSUPPORTED_PTX_VERSION)
}

/// Compiles.
pub fn compile(ptx: &str, options: &Options) -> std::result::Result<Vec<u8>, CompileError> {
    let target = target(ptx);
    match &settings::get().ptxas {
        Some(ptxas) => external(ptxas, ptx, target, options),
        None => {
            let mut s = oxptxas::Settings::new(target);
            s.line_info = Some(true);
            s.max_registers = options.registers;
            s.relocatable = options.relocatable;
            if let Some(level) = options.level {
                s.opt_level = level.min(3);
            }
            Ok(oxptxas::compile(ptx, "module.ptx", &s)?.cubin)
        }
    }
}

/// Runs a compiler with ptxas's command line.
fn external(
    ptxas: &Path,
    ptx: &str,
    target: Target,
    options: &Options,
) -> std::result::Result<Vec<u8>, CompileError> {
    let folder = tempfile::tempdir()?;
    let (from, to) = (folder.path().join("module.ptx"), folder.path().join("module.cubin"));
    std::fs::write(&from, ptx)?;
    let mut command = Command::new(ptxas);
    command.arg(format!("-arch={target}")).arg("-lineinfo");
    if let Some(n) = options.registers {
        command.arg(format!("-maxrregcount={n}"));
    }
    if let Some(level) = options.level {
        command.arg(format!("-O{level}"));
    }
    if options.relocatable {
        command.arg("-c");
    }
    run(command.arg(&from).arg("-o").arg(&to))?;
    Ok(std::fs::read(&to)?)
}

/// Runs a tool.
pub fn run(command: &mut Command) -> std::result::Result<(), ToolError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|e| ToolError::Start(name.clone(), e))?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stdout, done.stderr].concat();
    Err(ToolError::Failed(name, String::from_utf8_lossy(&said).into_owned()))
}

/// How many options there are.
const OPTIONS: u32 = 35;
/// The greatest value of those that have one: levels of optimization, what is loaded in place of what is missing, switches,
/// caches.
const LIMITS: [(u32, u32); 7] = [(7, 4), (10, 1), (11, 1), (12, 1), (13, 1), (14, 2), (30, 1)];

/// Options of `cuModuleLoadDataEx`, `cuLibraryLoadData` and `cuLinkCreate`, by their numbers in the header.
#[derive(Clone, Debug, Default)]
pub struct Jit {
    /// For the compiler.
    pub options: Options,
    /// Address and size of the buffers for what the compiler says, and the address of the size: information, errors.
    logs: [(u64, usize, u64); 2],
}

impl Jit {
    /// Reads the arrays.
    pub fn read(
        count: u32,
        options: crate::ffi::In<u32>,
        values: crate::ffi::In<u64>,
        at: u64,
    ) -> Result<Jit> {
        let mut jit = Jit::default();
        if count == 0 {
            return Ok(jit);
        }
        let (options, values) = (options.list(count as usize)?, values.list(count as usize)?);
        for (i, (option, value)) in options.into_iter().zip(values).enumerate() {
            let known = LIMITS.iter().find(|l| l.0 == option).is_none_or(|l| value as u32 <= l.1);
            if option >= OPTIONS || !known {
                return Err(Error::INVALID_VALUE);
            }
            match option {
                0 => jit.options.registers = Some(value as u32),
                3 => jit.logs[0].0 = value,
                4 => (jit.logs[0].1, jit.logs[0].2) = (value as u32 as usize, at + 8 * i as u64),
                5 => jit.logs[1].0 = value,
                6 => (jit.logs[1].1, jit.logs[1].2) = (value as u32 as usize, at + 8 * i as u64),
                7 => jit.options.level = Some(value as u8),
                _ => {}
            }
        }
        Ok(jit)
    }

    /// Tells the program what the compiler said: information (0) or errors (1).
    fn say(&self, which: usize, text: &str) {
        let (buffer, size, count) = self.logs[which];
        if buffer != 0 && size != 0 {
            let mut bytes = text.as_bytes()[..text.len().min(size - 1)].to_vec();
            bytes.push(0);
            let _ = crate::ffi::write(buffer, &bytes);
            if count != 0 {
                crate::ffi::Out::at(count).maybe(bytes.len() as u64);
            }
        }
    }

    /// Compiles PTX; what went wrong goes to the program's buffer and to standard error.
    pub fn compile(&self, ptx: &str, relocatable: bool) -> Result<Vec<u8>> {
        let options = Options { relocatable, ..self.options.clone() };
        let result = compile(ptx, &options);
        self.report(result).map_err(|e| of_version(ptx).unwrap_or(e))
    }

    /// Reads PTX; what is wrong with it goes where the compiler's messages go.
    pub fn parse(&self, ptx: &str) -> Result<ptx::Module> {
        let target = target(ptx);
        let parsed = oxptxas::pipeline::front_end(ptx, "module.ptx", target, &target.to_string());
        let result = self.report(parsed.map_err(CompileError::Refused));
        result.map_err(|e| of_version(ptx).unwrap_or(e))
    }

    /// The result of a tool, with its messages in their place.
    pub fn report<T>(&self, result: std::result::Result<T, impl fmt::Display>) -> Result<T> {
        match result {
            Ok(t) => {
                self.say(0, "");
                self.say(1, "");
                Ok(t)
            }
            Err(e) => {
                let message = e.to_string();
                self.say(1, &message);
                say!("oxcuda: PTX was not compiled:\n{}", message.trim_end());
                Err(Error::INVALID_PTX)
            }
        }
    }
}
