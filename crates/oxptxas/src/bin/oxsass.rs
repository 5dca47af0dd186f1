//! `oxsass`: the workbench.

use sass::Target;
use sim::launch::{Buffers, Launch, LaunchFile, format_elem, npy, output_name};
use sim::memory::little_endian;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
oxsass: look at and execute GPU code

  oxsass dis FILE.cubin
      Disassemble.
  oxsass run FILE LAUNCH.toml [--out DIR] [--all]
      Execute a cubin, or interpret a PTX file, as the launch file says (docs/launch-files.md). Prints the
      output buffers, with --all every buffer; with --out, writes all of them as .npy files instead.
  oxsass verify FILE OTHER LAUNCH.toml
      Execute both (cubin or PTX) and compare the output buffers as the launch file says.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match &args[..] {
        [] | ["help" | "--help" | "-h", ..] => write!(out, "{HELP}").map_err(|e| e.to_string()),
        ["dis", file] => dis(&mut out, file),
        ["run", file, launch, options @ ..] => run(&mut out, file, launch, options),
        ["verify", file, other, launch] => verify(&mut out, file, other, launch),
        _ => Err("bad arguments; see oxsass --help".into()),
    };
    // A closed pipe is the reader's choice.
    _ = out.flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("oxsass: {e}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{path}: {e}"))
}

fn launches(path: &str) -> Result<Vec<Launch>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(LaunchFile::parse(&text).map_err(|e| format!("{path}: {e}"))?.launch)
}

fn dis(out: &mut impl Write, path: &str) -> Result<(), String> {
    let image = cubin::read::read(&read(path)?).map_err(|e| format!("{path}: {e}"))?;
    let target = Target::new(image.sm).ok_or_else(|| format!("{path}: sm_{} is not known", image.sm))?;
    let mut write = || -> io::Result<()> {
        writeln!(out, "// {target}")?;
        for (name, kernel) in &image.kernels {
            writeln!(
                out,
                "\n// {} registers, {} bytes of stack, {} bytes of shared memory",
                kernel.registers, kernel.stack_bytes, kernel.shared_bytes
            )?;
            writeln!(out, "{name}:")?;
            for (i, word) in kernel.code.iter().enumerate() {
                let at = 16 * i as i64;
                match sass::decode(*word, target, at) {
                    Ok(inst) => writeln!(out, "    /*{at:04x}*/  {} ;", sass::print(&inst, target))?,
                    Err(_) => writeln!(out, "    /*{at:04x}*/  .word {word:#034x}")?,
                }
            }
        }
        Ok(())
    };
    write().map_err(|e| e.to_string())
}

/// A program to execute.
enum Program {
    Cubin { path: String, bytes: Vec<u8> },
    Ptx { path: String, source: String, module: Box<ptx::Module> },
}

impl Program {
    fn load(path: &str) -> Result<Program, String> {
        let bytes = read(path)?;
        if bytes.starts_with(b"\x7fELF") {
            return Ok(Program::Cubin { path: path.into(), bytes });
        }
        let source = String::from_utf8(bytes).map_err(|_| format!("{path}: neither a cubin nor text"))?;
        let lines = ptx::LineIndex::new(&source);
        let render = |errors: Vec<ptx::Diagnostic>| {
            let list: Vec<String> =
                errors.iter().map(|d| d.render("oxsass", path, &source, &lines)).collect();
            list.join("")
        };
        let module = ptx::parse(&source).map_err(render)?;
        Ok(Program::Ptx { path: path.into(), source, module: module.into() })
    }

    fn run(&self, launch: &Launch) -> Result<Buffers, String> {
        match self {
            Program::Cubin { path, bytes } => {
                let run = sim::sass::run(bytes, launch, sim::sass::Options::default());
                run.map(|r| r.buffers).map_err(|e| format!("{path}: kernel '{}': {e}", launch.kernel))
            }
            Program::Ptx { path, source, module } => {
                sim::ptx::run(module, launch).map_err(|e| e.render(path, source))
            }
        }
    }
}

fn run(out: &mut impl Write, file: &str, launch_file: &str, options: &[&str]) -> Result<(), String> {
    let (mut folder, mut all) = (None, false);
    let mut options = options.iter();
    while let Some(o) = options.next() {
        match *o {
            "--all" => all = true,
            "--out" => folder = Some(*options.next().ok_or("--out needs a folder")?),
            other => return Err(format!("unknown option '{other}'")),
        }
    }
    let program = Program::load(file)?;
    for (index, launch) in launches(launch_file)?.iter().enumerate() {
        let buffers = program.run(launch)?;
        match folder {
            Some(f) => save(Path::new(f), index, launch, &buffers).map_err(|e| format!("{f}: {e}"))?,
            None => show(out, launch, &buffers, all).map_err(|e| e.to_string())?,
        }
    }
    Ok(())
}

/// Writes every buffer as a `.npy` file.
fn save(folder: &Path, index: usize, launch: &Launch, buffers: &Buffers) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, b) in &launch.buffers {
        let bytes = buffers.get(name).map_or(&[][..], |b| b);
        fs::write(folder.join(output_name(index, launch, name)), npy(b.ty, bytes))?;
    }
    Ok(())
}

/// Prints the buffers, an element a line.
fn show(out: &mut impl Write, launch: &Launch, buffers: &Buffers, all: bool) -> io::Result<()> {
    writeln!(out, "{}:", launch.kernel)?;
    for (name, b) in launch.buffers.iter().filter(|(_, b)| all || b.compare.is_some()) {
        let bytes = buffers.get(name).map_or(&[][..], |b| b);
        for (i, x) in bytes.chunks(b.ty.size()).enumerate() {
            writeln!(out, "  {name}[{i}] = {}", format_elem(b.ty, little_endian(x)))?;
        }
    }
    Ok(())
}

fn verify(out: &mut impl Write, file: &str, other: &str, launch_file: &str) -> Result<(), String> {
    let (a, b) = (Program::load(file)?, Program::load(other)?);
    for launch in &launches(launch_file)? {
        launch.compare(&a.run(launch)?, &b.run(launch)?)?;
        writeln!(out, "{}: same", launch.kernel).map_err(|e| e.to_string())?;
    }
    Ok(())
}
