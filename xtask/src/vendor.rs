//! Our cubins in the vendor's tools.

use rayon::prelude::*;
use sass::target::{HARDWARE_REGISTERS, LEAST_LIMIT, LEAST_REGISTERS};
use sass::{Opcode, Operand, Reg};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles every kernel × target × {-O0, -O3}, runs nvdisasm, cuobjdump and nvlink on the files and compares
/// the resources that they state with the code.
pub fn check(root: &Path, bin: &Path) -> Result<(), String> {
    let cc = crate::compiler(root)?;
    let dir = root.join("target/vendor-check");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let kernels = crate::kernels(root)?;
    let jobs: Vec<(&Path, u32, u32)> = kernels
        .iter()
        .flat_map(|k| crate::SMS.iter().flat_map(|sm| [0, 3].map(|level| (k.as_path(), *sm, level))))
        .collect();
    let complaints: Vec<String> = jobs
        .par_iter()
        .filter_map(|(ptx, sm, level)| {
            let e = check_file(&cc, bin, &dir, ptx, *sm, *level).err()?;
            Some(format!("{} sm_{sm} -O{level}: {e}", ptx.display()))
        })
        .collect();
    complaints.iter().for_each(|c| println!("{c}"));
    println!(
        "{} of {} accepted by every tool, with true -res-usage",
        jobs.len() - complaints.len(),
        jobs.len()
    );
    if complaints.is_empty() { Ok(()) } else { Err(format!("{} files have complaints", complaints.len())) }
}

fn check_file(cc: &Path, bin: &Path, dir: &Path, ptx: &Path, sm: u32, level: u32) -> Result<(), String> {
    let stem = ptx.file_stem().unwrap_or_default().to_string_lossy();
    let file = |kind: &str| dir.join(format!("{stem}.{sm}.{level}.{kind}.cubin"));
    let (cubin, linked, reference) = (file("ours"), file("linked"), file("reference"));
    let (arch, level) = (format!("-arch=sm_{sm}"), format!("-O{level}"));
    let run = |program: PathBuf, args: &[&dyn AsRef<OsStr>]| {
        let mut c = Command::new(program);
        for a in args {
            c.arg(a);
        }
        let out = c.output().map_err(|e| format!("{c:?}: {e}"))?;
        let text = String::from_utf8_lossy(&out.stderr);
        if out.status.success() && text.trim().is_empty() { Ok(()) } else { Err(format!("{c:?}\n{text}")) }
    };
    run(cc.into(), &[&arch, &level, &ptx, &"-o", &cubin])?;
    run(bin.join("nvdisasm"), &[&"-c", &cubin])?;
    for print in ["-elf", "-sass", "-res-usage"] {
        run(bin.join("cuobjdump"), &[&print, &cubin])?;
    }
    run(bin.join("nvlink"), &[&arch, &cubin, &"-o", &linked])?;
    run(bin.join("ptxas"), &[&arch, &level, &ptx, &"-o", &reference])?;
    usage_is_true(bin, &cubin, &reference)
}

/// What `cuobjdump -res-usage` says of one kernel.
struct Usage {
    registers: u32,
    stack: u32,
    shared: u32,
}

fn res_usage(bin: &Path, cubin: &Path) -> Result<BTreeMap<String, Usage>, String> {
    let mut c = Command::new(bin.join("cuobjdump"));
    let out = c.arg("-res-usage").arg(cubin).output().map_err(|e| format!("{c:?}: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut usage = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.trim().strip_prefix("Function ").and_then(|l| l.strip_suffix(':')) else {
            continue;
        };
        let figures = lines.next().unwrap_or_default();
        let figure = |key: &str| -> Result<u32, String> {
            let found = figures.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix(':'));
            found.and_then(|n| n.parse().ok()).ok_or_else(|| format!("no {key} in '{figures}'"))
        };
        let u = Usage { registers: figure("REG")?, stack: figure("STACK")?, shared: figure("SHARED")? };
        usage.insert(name.to_owned(), u);
    }
    Ok(usage)
}

/// Whether the resources that a cubin states are those that its code uses: registers as the instructions name
/// them, the stack as the code moves R1, static shared memory as in ptxas's file for the same source.
fn usage_is_true(bin: &Path, cubin: &Path, reference: &Path) -> Result<(), String> {
    let stated = res_usage(bin, cubin)?;
    let reference = res_usage(bin, reference)?;
    let image = cubin::read::read(&std::fs::read(cubin).map_err(|e| e.to_string())?)?;
    for (name, kernel) in &image.kernels {
        let usage = stated.get(name).ok_or_else(|| format!("{name}: -res-usage does not list it"))?;
        let theirs = reference.get(name).ok_or_else(|| format!("{name}: not in ptxas's file"))?;
        let (mut registers, mut stack, mut calls) = (0, 0, false);
        let target = sass::Target::new(image.sm).ok_or("unknown SM")?;
        for (at, word) in kernel.code.iter().enumerate() {
            let inst = sass::decode(*word, target, 16 * at as i64).map_err(|e| e.to_string())?;
            calls |= inst.op == Opcode::CALL;
            if inst.op.info().leaves_function() {
                continue;
            }
            let mut name_unit = |u: backend::units::Unit| {
                if u < 255 {
                    registers = registers.max(u32::from(u) + 1);
                }
            };
            backend::units::for_each_read(&inst, |u, _| name_unit(u));
            backend::units::for_each_write(&inst, |u, _| name_unit(u));
            let moves_stack = matches!(inst.op, Opcode::IADD3 | Opcode::IADD)
                && inst.operands.iter().filter(|o| matches!(o, Operand::Reg(r) if r.reg == Reg::SP)).count()
                    == 2;
            if let (true, Some(n)) = (moves_stack, inst.operands.iter().find_map(negative)) {
                stack = stack.max(n);
            }
        }
        // Code that calls what the driver brings states more.
        let needed = (registers + u32::from(HARDWARE_REGISTERS)).max(LEAST_REGISTERS.into());
        if usage.registers != needed && !(calls && usage.registers == needed.max(LEAST_LIMIT.into())) {
            return Err(format!("{name}: states {} registers, needs {needed}", usage.registers));
        }
        // With calls, it is the deepest chain of them that counts.
        if usage.stack != stack && !calls {
            return Err(format!("{name}: states a stack of {} bytes, takes {stack}", usage.stack));
        }
        if usage.shared != theirs.shared {
            return Err(format!(
                "{name}: states {} bytes of shared memory, ptxas {}",
                usage.shared, theirs.shared
            ));
        }
    }
    Ok(())
}

/// The magnitude of a negative 32-bit immediate.
fn negative(o: &Operand) -> Option<u32> {
    match o {
        Operand::Imm(n) if (*n as i32) < 0 => Some((*n as i32).unsigned_abs()),
        _ => None,
    }
}
