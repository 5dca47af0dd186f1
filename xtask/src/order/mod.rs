//! The order checker on folders of PTX: our code or the reference compiler's, as it is and with accesses exchanged.

mod fences;
mod tasks;

use crate::code::{How, Source, jobs};
use rayon::prelude::*;
use sass::memory::{MemoryEffect, MemoryEffects, MemorySpace};
use sass::{AddrWidth, Guard, Inst, Mod, Opcode, Operand, Role};
use sim::order::{self, Code, Options as Trust, Split, Stats};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// PTX files, CUDA files (which nvcc turns into PTX), or folders of them.
    #[command(flatten)]
    source: Source,
    /// Every nth file only.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// PTX of more bytes is left out.
    #[arg(long, default_value_t = u64::MAX)]
    most_bytes: u64,
    /// Sabotaged copies per kernel.
    #[arg(long, default_value_t = 16)]
    copies: usize,
    /// Count instead which statements are in the order of the PTX.
    #[arg(long)]
    pairs: bool,
}

/// CUDA files under a path.
fn cuda_files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return if path.extension().is_some_and(|x| x == "cu") { vec![path.into()] } else { Vec::new() };
    }
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    entries.iter().flat_map(|p| cuda_files(p)).collect()
}

/// The PTX files to look at, with targets; CUDA files outside kernels/ are compiled first. What nvcc refuses by itself
/// (a part of another file) is left out.
fn work(root: &Path, bin: &Path, options: &Options) -> Result<Vec<(PathBuf, String)>, String> {
    let out = root.join("target/order");
    std::fs::create_dir_all(&out).map_err(|e| e.to_string())?;
    let kernels = root.join("kernels");
    let files = &options.source.files;
    let mut paths = files.paths.clone();
    for (n, cu) in files.paths.iter().flat_map(|p| cuda_files(p)).enumerate() {
        if cu.canonicalize().is_ok_and(|f| f.starts_with(&kernels)) {
            continue;
        }
        let stem = cu.file_stem().unwrap_or_default().to_string_lossy();
        let ptx = out.join(format!("{n}.{stem}.ptx"));
        let mut c = Command::new(bin.join("nvcc"));
        c.args(["-arch=sm_75", "--ptx", "-o"]).arg(&ptx).arg(&cu);
        if c.output().map_err(|e| format!("nvcc: {e}"))?.status.success() {
            paths.push(ptx);
        } else {
            println!("{}: nvcc makes no PTX of it", cu.display());
        }
    }
    let mut jobs = jobs(root, &paths, &files.sm);
    jobs.retain(|(ptx, _)| std::fs::metadata(ptx).is_ok_and(|m| m.len() <= options.most_bytes));
    Ok(jobs.into_iter().step_by(options.every.max(1)).collect())
}

/// PTX with one statement on a line, so that each instruction says which statement it is of, and its code.
fn cubin(
    root: &Path,
    bin: &Path,
    ptx: &Path,
    sm: &str,
    options: &Options,
) -> Result<(Split, Vec<u8>), String> {
    let text = std::fs::read_to_string(ptx).map_err(|e| e.to_string())?;
    let module = ptx::parse(&text).map_err(|_| "not parsed".to_string())?;
    let split = order::one_per_line(&module, &text);
    let how = How { lines: true, ..How::default() };
    let mut path = ptx.to_path_buf();
    if options.source.ptxas && split.source != text {
        // The reference compiler reads a file.
        let dir = root.join("target/order/split");
        std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let name: Vec<_> = ptx.components().map(|c| c.as_os_str().to_string_lossy()).collect();
        path = dir.join(format!("{}.{sm}.ptx", name.join("_").trim_start_matches(['/', '_'])));
        std::fs::write(&path, &split.source).map_err(|e| e.to_string())?;
    }
    let bytes = options.source.cubin(root, bin, (&path, &split.source), sm, how)?;
    Ok((split, bytes))
}

/// How much to believe.
fn trust(options: &Options) -> Trust {
    Trust { foreign: options.source.ptxas, ..Trust::default() }
}

/// Prints for each two families how often the code has them in the order of the PTX, and how often not.
fn pairs(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let jobs = work(root, bin, options)?;
    let count = |(ptx, sm): &(PathBuf, String)| -> Result<order::Pairs, String> {
        let (split, bytes) = cubin(root, bin, ptx, sm, options)?;
        let module = ptx::parse(&split.source).map_err(|_| "not parsed".to_string())?;
        let index = ptx::LineIndex::new(&split.source);
        let mut pairs = order::Pairs::new();
        for (name, code, functions) in order::load(&bytes)? {
            order::Checker::new(&module, &index, &name).count(&code, &functions, trust(options), &mut pairs);
        }
        for p in pairs.values_mut() {
            if let Some((lines, _)) = &mut p.2 {
                *lines = (split.original(lines.0), split.original(lines.1));
            }
        }
        Ok(pairs)
    };
    let all: Vec<_> = jobs.par_iter().map(count).collect();
    let mut total: std::collections::BTreeMap<_, (u64, u64, Option<String>)> = Default::default();
    for ((path, sm), pairs) in jobs.iter().zip(all) {
        for (sides, (kept, exchanged, example)) in pairs.unwrap_or_default() {
            let t = total.entry(sides).or_default();
            (t.0, t.1) = (t.0 + kept, t.1 + exchanged);
            if let Some(((a, b), (x, y))) = example.filter(|_| t.2.is_none()) {
                t.2 = Some(format!("{} sm_{sm} lines {a} {b} at {x:#x} {y:#x}", path.display()));
            }
        }
    }
    for ((a, b), (kept, exchanged, example)) in total {
        println!("{a:?}\t{b:?}\t{kept}\t{exchanged}\t{}", example.unwrap_or_default());
    }
    Ok(())
}

/// Checks every kernel.
pub fn check(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    if options.pairs {
        return pairs(root, bin, options);
    }
    let trust = trust(options);
    let jobs = work(root, bin, options)?;
    let found: Vec<Result<Vec<order::Kernel>, String>> = jobs
        .par_iter()
        .map(|(ptx, sm)| {
            let (split, bytes) = cubin(root, bin, ptx, sm, options)?;
            let module = ptx::parse(&split.source).map_err(|_| "not parsed".to_string())?;
            let mut kernels = order::check_cubin(&module, &split.source, &bytes, trust)?;
            kernels.iter_mut().for_each(|k| split.of_original(k));
            Ok(kernels)
        })
        .collect();
    let (mut total, mut wrong, mut refused) = (Stats::default(), 0, 0);
    for ((path, sm), kernels) in jobs.iter().zip(found) {
        let Ok(kernels) = kernels else {
            refused += 1;
            continue;
        };
        for k in kernels {
            total += k.stats;
            wrong += k.findings().count();
            k.findings().take(5).for_each(|v| println!("{} sm_{sm} {}: {v}", path.display(), k.name));
        }
    }
    let Stats { instructions, accesses, matched, asynchronous, unchecked } = total;
    println!(
        "{} compilations, {refused} more refused; {instructions} instructions, {accesses} accesses of memory, \
         {matched} matched with the PTX, {asynchronous} others that have to do with asynchronous work, {unchecked} not checked (too many pairs); \
         {wrong} out of order",
        jobs.len() - refused
    );
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} accesses out of order")) }
}

/// Where an instruction accesses memory: space, base, offset and bytes; `None` for other instructions, for those that never
/// run (they are there for their scoreboard), and for surfaces: the PTX manual's memory consistency model does not apply to them.
fn place(inst: &Inst) -> Option<(MemorySpace, MemoryEffect, &Operand, i64, i64)> {
    let never = inst.guard == (Guard { not: true, ..Guard::TRUE });
    if never || ["SULD", "SUST", "SURED"].iter().any(|surface| inst.op.name().starts_with(surface)) {
        return None;
    }
    let MemoryEffects::Accesses([access]) = inst.op.info().accesses else { return None };
    let address = inst.operands.iter().find(|o| matches!(o, Operand::Addr { .. }))?;
    let Operand::Addr { width, offset, .. } = address else { return None };
    let plain = matches!(width, AddrWidth::R32 | AddrWidth::R64);
    // Spills are local.
    let kept = plain && access.space != MemorySpace::Local && !inst.mods.has(Mod::CONSTANT);
    // A sum over many memories changes none of them.
    let effect = if inst.op == Opcode::LDGMC { MemoryEffect::Read } else { access.effect };
    kept.then_some((
        access.space,
        effect,
        address,
        (*offset).into(),
        access.size(&inst.mods).map_or(4, i64::from),
    ))
}

fn base(address: &Operand) -> Option<(Option<sass::Reg>, Option<sass::Reg>)> {
    match address {
        Operand::Addr { base, uniform, .. } => Some((*base, *uniform)),
        _ => None,
    }
}

/// Whether the instruction writes a register of the address.
fn changes(inst: &Inst, address: &Operand) -> bool {
    let Some((base, uniform)) = base(address) else { return false };
    let mut operands = inst.operands.iter().zip(inst.op.slots()).enumerate();
    operands.any(|(k, (o, slot))| match o {
        Operand::Reg(r) if slot.role != Role::Use => {
            let to = r.reg.index..=r.reg.index.saturating_add(inst.op.width(k, &inst.mods) - 1);
            [base, uniform].into_iter().flatten().any(|b| {
                b.file == r.reg.file && (to.contains(&b.index) || to.contains(&b.index.saturating_add(1)))
            })
        }
        _ => false,
    })
}

/// Pairs of accesses that change places badly: what they do to the same bytes, or what lies between them, shows it.
fn plan(code: &Code, functions: &[usize], source: &[&str]) -> Vec<(&'static str, usize, usize)> {
    const REACH: usize = 48;
    let leaders = code.leaders(functions);
    let mut out = Vec::new();
    let is_volatile = |k: usize| {
        source.get((code.lines[k] as usize).saturating_sub(1)).is_some_and(|l| l.contains(".volatile"))
    };
    for (i, first) in code.insts.iter().enumerate() {
        let Some(first) = first else { continue };
        let Some((space, effect, address, offset, bytes)) = place(first) else { continue };
        if code.lines[i] == 0 {
            continue;
        }
        let (mut fenced, mut same) = (false, true);
        let behind = code.insts.iter().zip(&leaders).enumerate().skip(i + 1).take(REACH - 1);
        for (j, (second, leader)) in behind {
            let Some(second) = second else { break };
            let info = second.op.info();
            if *leader || info.control && second.op != Opcode::WARPSYNC {
                break;
            }
            // A NOP may also be there to pass the time.
            let apart = || {
                let line = source.get((code.lines[j] as usize).saturating_sub(1));
                line.is_some_and(|l| l.contains("bar.warp.sync") || l.contains(".acquire"))
            };
            fenced |= match second.op {
                Opcode::NOP => apart(),
                Opcode::BAR => !second.mods.has(Mod::ARV),
                op => op == Opcode::MEMBAR,
            };
            let here = place(second).filter(|_| code.lines[j] != code.lines[i] && code.lines[j] != 0);
            if let Some((s, e, a, o, n)) = here
                && second.guard == first.guard
            {
                let writes = |e: MemoryEffect| e != MemoryEffect::Read;
                let overlap = offset < o + n && o < offset + bytes;
                if fenced {
                    out.push(("across a fence", i, j));
                } else if same
                    && s == space
                    && base(a) == base(address)
                    && overlap
                    && (writes(e) || writes(effect))
                {
                    out.push(("of the same bytes", i, j));
                } else if is_volatile(i) && is_volatile(j) {
                    out.push(("both volatile", i, j));
                }
            }
            same &= !changes(second, address);
        }
    }
    out
}

/// Exchanges accesses in good code and counts what the checker finds.
pub fn sabotage(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let trust = trust(options);
    let jobs = work(root, bin, options)?;
    let tried: Vec<(&'static str, bool, String)> = jobs
        .par_iter()
        .flat_map_iter(|(ptx, sm)| {
            let all = || -> Result<Vec<(&'static str, bool, String)>, String> {
                let (Split { source, .. }, bytes) = cubin(root, bin, ptx, sm, options)?;
                let module = ptx::parse(&source).map_err(|_| "not parsed".to_string())?;
                let text: Vec<&str> = source.lines().collect();
                let index = ptx::LineIndex::new(&source);
                let mut out = Vec::new();
                let hazards: std::collections::BTreeMap<_, _> =
                    sim::hazard::load(&bytes)?.into_iter().collect();
                for (name, code, functions) in order::load(&bytes)? {
                    let starts: Vec<u64> = functions.iter().map(|f| 16 * *f as u64).collect();
                    let checker = order::Checker::new(&module, &index, &name);
                    let good = |code: &Code| checker.check(code, &functions, trust).is_good();
                    if !good(&code) {
                        continue;
                    }
                    let plan = plan(&code, &functions, &text);
                    for kind in KINDS {
                        let pairs: Vec<_> = plan.iter().copied().filter(|p| p.0 == kind).collect();
                        let step = pairs.len().div_ceil(options.copies.max(1)).max(1);
                        for (_, i, j) in pairs.into_iter().step_by(step) {
                            let mut spoilt = code.clone();
                            spoilt.insts.swap(i, j);
                            spoilt.lines.swap(i, j);
                            let place =
                                format!("{} sm_{sm} {name} {:#x}, {:#x}", ptx.display(), 16 * i, 16 * j);
                            out.push((kind, !good(&spoilt), place));
                        }
                    }
                    let sm = sass::Target::parse(&format!("sm_{sm}")).map_or(0, |t| t.sm);
                    let mut plan = fences::plan(&code, &functions, sm, &text);
                    plan.extend(tasks::plan(&code, &functions));
                    for kind in fences::KINDS.into_iter().chain(tasks::KINDS) {
                        let changes: Vec<_> = plan.iter().filter(|p| p.0 == kind).map(|p| &p.1).collect();
                        let step = changes.len().div_ceil(options.copies.max(1)).max(1);
                        for change in changes.into_iter().step_by(step) {
                            let said = |at: usize| {
                                let line = code.lines[at] as usize;
                                let statement = text.get(line.wrapping_sub(1)).map_or("", |l| l.trim());
                                let statement: String = statement.chars().take(60).collect();
                                let op = code.insts[at].as_ref().map_or("", |i| i.op.name());
                                format!("{:#x} {op} ({statement})", 16 * at)
                            };
                            let mut place =
                                format!("{} sm_{sm} {name:.20} {}", ptx.display(), said(change.at()));
                            if let fences::Change::Exchange(_, j) = change {
                                place += &format!(", {}", said(*j));
                            }
                            // What is said of the code alone.
                            let tokens = || match change {
                                fences::Change::Exchange(i, j) => hazards.get(&name).is_some_and(|h| {
                                    h.tokens().is_empty() && !h.exchanged(*i, *j, &starts).tokens().is_empty()
                                }),
                                fences::Change::Replace(..) => false,
                            };
                            out.push((kind, !good(&change.apply(&code)) || tokens(), place));
                        }
                    }
                }
                Ok(out)
            };
            all().unwrap_or_default()
        })
        .collect();
    for kind in KINDS.into_iter().chain(fences::KINDS).chain(tasks::KINDS) {
        let of: Vec<_> = tried.iter().filter(|t| t.0 == kind).collect();
        println!("{kind}: {} of {} found", of.iter().filter(|t| t.1).count(), of.len());
        of.iter().filter(|t| !t.1).take(8).for_each(|t| println!("  missed: {}", t.2));
    }
    Ok(())
}

const KINDS: [&str; 3] = ["of the same bytes", "across a fence", "both volatile"];
