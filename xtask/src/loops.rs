//! `cargo xtask loops`: the loops that multiply matrices, in our code and ptxas's: instructions and stall cycles of a round, registers, spills.

use crate::code::{jobs, reference};
use crate::score::Mean;
use oxsass::flow;
use rayon::prelude::*;
use sass::{Inst, Opcode, Operand, Reg, Target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// PTX files or folders of them.
    paths: Vec<PathBuf>,
    /// For these targets (75, 90a …); without it, the files' own.
    #[arg(long, value_delimiter = ',')]
    sm: Vec<String>,
    /// Knobs of our compiler (docs/phases.md).
    #[arg(long)]
    knob: Vec<String>,
    /// Another build of our compiler instead of this one.
    #[arg(long)]
    compiler: Option<PathBuf>,
    /// Only the kernels in which a ratio is above this.
    #[arg(long)]
    above: Option<f64>,
    /// What else loops execute, instruction by instruction, as far as it differs.
    #[arg(long)]
    mix: bool,
}

/// A round of a loop, and the kernel around it.
#[derive(Default)]
struct Round {
    /// Products of matrices.
    products: u64,
    /// Instructions but NOP.
    instructions: u64,
    /// The sum of the stall counts.
    stalls: u64,
    /// Bytes that move between registers and the frame in a round.
    spilled: u64,
    /// The same in all of the kernel.
    spilled_in_all: u64,
    /// Registers that the kernel states.
    registers: u64,
    /// How often each opcode is there.
    mix: BTreeMap<&'static str, i64>,
}

fn is_product(inst: &Inst) -> bool {
    inst.op.mnemonic().split('.').next().is_some_and(|name| name.ends_with("MMA"))
}

/// Bytes that an instruction moves to or from the frame, at a place that stands in it.
fn spills(inst: &Inst) -> u64 {
    let framed = |o: &Operand| matches!(o, Operand::Addr { base: Some(Reg::SP), uniform: None, .. });
    if !matches!(inst.op, Opcode::LDL | Opcode::STL) || !inst.operands.iter().any(framed) {
        return 0;
    }
    match () {
        () if inst.mods.has(sass::Mod::_128) => 16,
        () if inst.mods.has(sass::Mod::_64) => 8,
        () => 4,
    }
}

/// Whether a guard says, after this code, that not all lanes of the warp are there: `VOTE.ANY R0, PT, PT; ISETP.NE.U32.AND P0, PT, R0, -0x1, PT`.
fn asks_for_all(code: &[Option<Inst>], guard: sass::Guard<Reg>) -> bool {
    let is = |o: &Operand, r: Reg| matches!(o, Operand::Reg(x) if x.reg == r);
    let back = || code.iter().rev().map_while(|i| i.as_ref()).take_while(|i| i.op != Opcode::BRA);
    let compares = |i: &&Inst| i.operands.first().is_some_and(|o| is(o, guard.pred));
    let Some(compared) = back().find(compares).filter(|i| !guard.not && i.op == Opcode::ISETP) else {
        return false;
    };
    match &compared.operands[..] {
        [_, _, Operand::Reg(here), Operand::Imm(0xffff_ffff), ..] if compared.mods.has(sass::Mod::NE) => {
            back()
                .any(|i| i.op == Opcode::VOTE && is(&i.operands[0], here.reg) && is(&i.operands[2], Reg::PT))
        }
        _ => false,
    }
}

/// The loop with the most products, of those in which no other has any; loops in it without products, in which something is waited for, do
/// not count.
fn round(kernel: &cubin::read::KernelImage, target: Target) -> Option<Round> {
    let code: Vec<Option<Inst>> =
        (0..).zip(&kernel.code).map(|(n, w)| sass::decode(*w, target, 16 * n).ok()).collect();
    // Where lanes are apart at a collective instruction the code goes another way, with a copy of the products: none goes there here.
    let apart = |k: usize, i: &Inst| {
        i.op == Opcode::BRA && (i.mods.has(sass::Mod::DIV) || asks_for_all(&code[..k], i.guard))
    };
    let mut straight = code.clone();
    for (k, i) in straight.iter_mut().enumerate().filter_map(|(k, i)| Some((k, i.as_mut()?))) {
        if apart(k, i) {
            i.op = Opcode::NOP;
        }
    }
    let products =
        |l: &flow::Loop| l.body.iter().filter_map(|k| code[*k].as_ref()).filter(|i| is_product(i)).count();
    let all: Vec<(flow::Loop, usize)> =
        flow::loops(&straight).into_iter().map(|l| (products(&l), l)).map(|(n, l)| (l, n)).collect();
    let inside = |a: &flow::Loop, b: &flow::Loop| a.head != b.head && a.body.is_subset(&b.body);
    let leaf = |l: &flow::Loop| !all.iter().any(|(o, n)| *n > 0 && inside(o, l));
    let (hot, most) =
        all.iter().filter(|(l, n)| *n > 0 && leaf(l)).max_by_key(|(l, n)| (*n, usize::MAX - l.head))?;
    let mut r = Round { products: *most as u64, registers: kernel.registers.into(), ..Round::default() };
    r.spilled_in_all = code.iter().flatten().map(spills).sum();
    for k in hot.body.iter().filter(|k| !all.iter().any(|(o, _)| inside(o, hot) && o.body.contains(k))) {
        let Some(inst) = &code[*k] else { continue };
        r.stalls += u64::from(inst.ctrl.stall);
        if inst.op != Opcode::NOP {
            r.instructions += 1;
            r.spilled += spills(inst);
            *r.mix.entry(inst.op.mnemonic()).or_default() += 1;
        }
    }
    Some(r)
}

/// A kernel's loop in both codes.
struct Row {
    file: String,
    sm: String,
    kernel: String,
    ours: Round,
    theirs: Round,
}

impl Row {
    /// Ours over theirs for the same number of products.
    fn ratio(&self, of: impl Fn(&Round) -> u64) -> f64 {
        let each = |r: &Round| of(r) as f64 / r.products as f64;
        each(&self.ours) / each(&self.theirs)
    }

    fn worst(&self) -> f64 {
        self.ratio(|r| r.instructions).max(self.ratio(|r| r.stalls))
    }
}

fn rows(
    root: &Path,
    bin: &Path,
    options: &Options,
    (file, sm): &(PathBuf, String),
) -> Result<Vec<Row>, String> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let target = Target::parse(&format!("sm_{sm}")).ok_or("unknown target")?;
    let source = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let mut settings = oxptxas::Settings::new(target);
    options.knob.iter().try_for_each(|k| settings.knobs.add(k))?;
    let theirs = cubin::read::read(&reference(root, bin, file, sm)?)?;
    let ours = match &options.compiler {
        None => oxptxas::compile(&source, &name, &settings).map_err(|e| e.render("xtask"))?.cubin,
        Some(compiler) => {
            let out = std::env::temp_dir().join(format!("loops-{}-{name}-{sm}.cubin", std::process::id()));
            let arch = format!("-arch=sm_{sm}");
            let mut c = std::process::Command::new(compiler);
            let done = c.arg(arch).arg(file).arg("-o").arg(&out).output().map_err(|e| e.to_string())?;
            let code = std::fs::read(&out).map_err(|_| String::from_utf8_lossy(&done.stderr).into_owned())?;
            std::fs::remove_file(&out).map_err(|e| e.to_string())?;
            code
        }
    };
    let ours = cubin::read::read(&ours)?;
    let both = theirs.kernels.iter().filter_map(|(kernel, t)| {
        let (theirs, ours) = (round(t, target)?, round(ours.kernels.get(kernel)?, target)?);
        Some(Row { file: name.clone(), sm: sm.clone(), kernel: kernel.clone(), ours, theirs })
    });
    Ok(both.collect())
}

/// Prints a table, the worst first, and geometric means.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let jobs = jobs(root, &options.paths, &options.sm);
    let found: Vec<Result<Vec<Row>, String>> = jobs
        .par_iter()
        .map(|j| {
            rows(root, bin, options, j)
                .map_err(|e| format!("{}: {}", j.0.display(), e.lines().next().unwrap_or("")))
        })
        .collect();
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    found.into_iter().for_each(|f| match f {
        Ok(rows) => all.extend(rows),
        Err(e) => failed.push(e),
    });
    all.sort_by(|a, b| b.worst().total_cmp(&a.worst()));
    println!(
        "| file | target | kernel | products | instructions | stalls | registers | spilled in the loop | in all |\n|---|---|---|---|---|---|---|---|---|"
    );
    for r in all.iter().filter(|r| options.above.is_none_or(|a| r.worst() > a)) {
        let pair = |of: fn(&Round) -> u64| format!("{}/{}", of(&r.ours), of(&r.theirs));
        let ratio = |of: fn(&Round) -> u64| format!("{} {:.2}", pair(of), r.ratio(of));
        let kernel: String = r.kernel.chars().take(24).collect();
        println!(
            "| {} | sm_{} | {kernel} | {} | {} | {} | {} | {} | {} |",
            r.file,
            r.sm,
            pair(|r| r.products),
            ratio(|r| r.instructions),
            ratio(|r| r.stalls),
            pair(|r| r.registers),
            pair(|r| r.spilled),
            pair(|r| r.spilled_in_all)
        );
        if options.mix {
            let mut mix = r.ours.mix.clone();
            r.theirs.mix.iter().for_each(|(op, n)| *mix.entry(op).or_default() -= n);
            let mut mix: Vec<(i64, &str)> =
                mix.into_iter().map(|(op, n)| (n, op)).filter(|m| m.0 != 0).collect();
            mix.sort_unstable_by_key(|m| std::cmp::Reverse((m.0.abs(), m.1)));
            let mix: Vec<String> = mix.iter().map(|(n, op)| format!("{op} {n:+}")).collect();
            println!("  {}", mix.join(", "));
        }
    }
    let mean = |of: fn(&Round) -> u64| {
        let mut m = Mean::default();
        all.iter().for_each(|r| m.add(r.ratio(of), 1.0));
        m.get()
    };
    let most = |limit: f64, of: fn(&Round) -> u64| all.iter().filter(|r| r.ratio(of) > limit).count();
    let sum = |of: fn(&Row) -> u64| all.iter().map(of).sum::<u64>();
    println!(
        "{} loops: instructions {:.3}, above 1.1 {}; stalls {:.3}, above 1.1 {}; more registers {}; spilled bytes in loops {}, {}, in all {}, {}",
        all.len(),
        mean(|r| r.instructions),
        most(1.1, |r| r.instructions),
        mean(|r| r.stalls),
        most(1.1, |r| r.stalls),
        all.iter().filter(|r| r.ours.registers > r.theirs.registers).count(),
        sum(|r| r.ours.spilled),
        sum(|r| r.theirs.spilled),
        sum(|r| r.ours.spilled_in_all),
        sum(|r| r.theirs.spilled_in_all)
    );
    failed.iter().for_each(|e| println!("not compared: {e}"));
    Ok(())
}
