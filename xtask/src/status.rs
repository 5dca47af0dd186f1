//! The table of `docs/status.md`: instructions, registers, time and memory beside ptxas's, measured in one
//! run.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What one compiler did.
struct Run {
    instructions: usize,
    registers: u32,
    seconds: f64,
    /// Peak resident memory, KiB.
    memory: f64,
}

/// Prints the table as Markdown: per kernel and target, our instructions and registers over ptxas's, then
/// the geometric means of these and of the wall time.
pub fn print(root: &Path, bin: &Path) -> Result<(), String> {
    let cc = crate::compiler(root)?;
    let sms = crate::SMS;
    let columns: Vec<String> = sms.iter().map(|s| format!("sm_{s}")).collect();
    println!("| kernel | {} |\n|---|{}", columns.join(" | "), "---|".repeat(sms.len()));
    let (mut instructions, mut registers) = (Mean::default(), Mean::default());
    let (mut wall, mut memory) = (Mean::default(), Mean::default());
    for ptx in crate::kernels(root)? {
        let mut row = format!("| {} |", ptx.file_stem().unwrap_or_default().to_string_lossy());
        for sm in sms {
            let ours = compile(&cc, &ptx, *sm, root);
            let theirs = compile(&bin.join("ptxas"), &ptx, *sm, root);
            match (ours, theirs) {
                (Ok(a), Ok(b)) => {
                    let i = a.instructions as f64 / b.instructions as f64;
                    instructions.add(i);
                    registers.add(f64::from(a.registers) / f64::from(b.registers));
                    wall.add(a.seconds / b.seconds);
                    memory.add(a.memory / b.memory);
                    row.push_str(&format!(" {i:.2} {}/{} |", a.registers, b.registers));
                }
                (Err(_), _) => row.push_str(" – |"),
                (_, Err(e)) => return Err(e),
            }
        }
        println!("{row}");
    }
    println!(
        "\nGeometric means, ours over ptxas's: instructions {:.3}, registers {:.3}, wall time {:.3}, peak memory \
         {:.3} ({} files)",
        instructions.get(),
        registers.get(),
        wall.get(),
        memory.get(),
        instructions.count
    );
    Ok(())
}

#[derive(Default)]
struct Mean {
    log_sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, x: f64) {
        self.log_sum += x.ln();
        self.count += 1;
    }
    fn get(&self) -> f64 {
        (self.log_sum / f64::from(self.count)).exp()
    }
}

fn compile(cc: &Path, ptx: &Path, sm: u32, root: &Path) -> Result<Run, String> {
    let out = root.join("target/status.cubin");
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        let run = Command::new(cc).arg(format!("-arch=sm_{sm}")).arg(ptx).arg("-o").arg(&out).output();
        let run = run.map_err(|e| e.to_string())?;
        if !run.status.success() {
            return Err(String::from_utf8_lossy(&run.stderr).into_owned());
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    let memory = peak_memory(&[
        cc.as_os_str(),
        format!("-arch=sm_{sm}").as_ref(),
        ptx.as_ref(),
        "-o".as_ref(),
        out.as_ref(),
    ])?;
    let data = std::fs::read(&out).map_err(|e| e.to_string())?;
    let image = cubin::read::read(&data)?;
    let code = |words: &[u128]| {
        let padding = words.iter().rev().take_while(|w| **w & 0xfff == 0x918).count();
        let body = words.len() - padding;
        // The branch to itself that ends a function.
        if words[..body].last().is_some_and(|w| w & 0xfff == 0x947) { body - 1 } else { body }
    };
    Ok(Run {
        instructions: image.kernels.values().map(|k| code(&k.code)).sum(),
        registers: image.kernels.values().map(|k| k.registers).sum(),
        seconds: best,
        memory,
    })
}

/// Peak resident memory of a command in KiB, as Python's `resource` has it from the operating system.
fn peak_memory(command: &[&OsStr]) -> Result<f64, String> {
    const SCRIPT: &str = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); \
                          print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    let out =
        Command::new("python3").args(["-c", SCRIPT]).args(command).output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.trim().parse().map_err(|_| format!("no memory figure: {}", String::from_utf8_lossy(&out.stderr)))
}
