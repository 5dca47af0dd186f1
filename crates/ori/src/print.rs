//! The text form.
//!
//! ```text
//! function saxpy sm_90 entry local=0 shared=0 {
//! block0:
//!     v0:R = S2R SR_TID.X                       ; 12
//!     v3:R2 = IMAD.WIDE PT, v0, 0x4, c[0x0][0x210], PT
//!     @!v4 STG.E desc[v5][v3.64], v6
//!     branch v4, block1, block2(v0)
//! ```
//! Written operands that are values come first, before `=`, with file and width; other operands follow in
//! slot order (written ones that are physical registers too). `_` before `=` says that a written slot holds a
//! physical register where the next value would fit. `; n` is the PTX line.

use crate::abi::Convention;
use crate::function::{
    Block, BlockCall, Callee, Function, InstData, Keeps, Name, Op, Operand, Register, Terminator, ValueData,
};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use sass::{AddrWidth, ConstBank, Reg, RegFile};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};

/// Name of a value's shape: `R`, `R2`, `P`, `UR2`.
pub fn shape_name(d: ValueData) -> String {
    let file = match d.file {
        RegFile::R => "R",
        RegFile::P => "P",
        RegFile::UR => "UR",
        RegFile::UP => "UP",
        RegFile::B => "B",
    };
    if d.width == 1 { file.to_string() } else { format!("{file}{}", d.width) }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Name::Val(v) => write!(f, "{v}"),
            Name::Part(v, i) => write!(f, "{v}.{i}"),
            Name::Phys(r) => write!(f, "{r}"),
        }
    }
}

fn signed_hex(f: &mut impl Write, n: i32) -> fmt::Result {
    if n < 0 { write!(f, "-{:#x}", n.unsigned_abs()) } else { write!(f, "{n:#x}") }
}

/// Writes one operand.
pub fn operand<R: Register, L: Display>(f: &mut impl Write, o: &sass::Operand<R, L>) -> fmt::Result {
    use sass::Operand;
    match o {
        Operand::Reg(r) => {
            if r.neg {
                f.write_str("-")?;
            }
            if r.not {
                f.write_str(
                    if matches!(r.reg.into(), Name::Phys(p) if matches!(p.file, RegFile::P | RegFile::UP)) {
                        "!"
                    } else {
                        "~"
                    },
                )?;
            }
            if r.abs {
                write!(f, "|{}|", r.reg)?;
            } else {
                write!(f, "{}", r.reg)?;
            }
            if r.reuse {
                f.write_str(".reuse")?;
            }
            Ok(())
        }
        Operand::Imm(n) => write!(f, "{n:#x}"),
        Operand::Const { bank, index, offset, neg, abs, not } => {
            if *neg {
                f.write_str("-")?;
            }
            if *not {
                f.write_str("~")?;
            }
            if *abs {
                f.write_str("|")?;
            }
            match bank {
                ConstBank::Index(b) => write!(f, "c[{b:#x}][")?,
                ConstBank::Bindless(r) => write!(f, "cx[{r}][")?,
            }
            if let Some(r) = index {
                write!(f, "{r}+")?;
            }
            signed_hex(f, *offset)?;
            f.write_str("]")?;
            if *abs {
                f.write_str("|")?;
            }
            Ok(())
        }
        Operand::Addr { desc, base, width, uniform, offset } => {
            if let Some(d) = desc {
                write!(f, "desc[{d}]")?;
            }
            f.write_str("[")?;
            let mut plus = "";
            if let Some(b) = base {
                let suffix = match width {
                    AddrWidth::R32 => "",
                    AddrWidth::R64 => ".64",
                    AddrWidth::U32 => ".U32",
                    AddrWidth::X4 => ".X4",
                    AddrWidth::X8 => ".X8",
                    AddrWidth::X16 => ".X16",
                };
                write!(f, "{b}{suffix}")?;
                plus = "+";
            }
            if let Some(u) = uniform {
                write!(f, "{plus}{u}")?;
                plus = "+";
            }
            if *offset != 0 || plus.is_empty() {
                f.write_str(plus)?;
                signed_hex(f, *offset)?;
            }
            f.write_str("]")
        }
        Operand::Label(b) => write!(f, "{b}"),
        Operand::Special(s) => f.write_str(s.name()),
        Operand::Scoreboard(n) => write!(f, "SB{n}"),
        Operand::ScoreboardSet(s) => write!(f, "sb{s:#x}"),
    }
}

fn inst<R: Register>(f: &mut impl Write, func: &Function<R>, d: &InstData<R>) -> fmt::Result {
    if !d.is_unguarded() {
        write!(f, "@{}{} ", if d.guard.not { "!" } else { "" }, d.guard.pred)?;
    }
    let value_def = |i: usize, o: &Operand<R>| match o {
        Operand::Reg(r) if d.is_def(i) => r.reg.into().value(),
        _ => None,
    };
    let defs = || d.operands.iter().enumerate().filter(|(i, _)| d.is_def(*i));
    let mut any = false;
    for (i, o) in defs() {
        let sep = if any { ", " } else { "" };
        if let Some(v) = value_def(i, o) {
            write!(f, "{sep}{v}:{}", shape_name(func.values[v]))?;
            any = true;
        } else if let Some(Name::Phys(r)) = o.as_reg().map(|r| r.reg.into())
            && let Some(v) = defs().skip_while(|(j, _)| *j <= i).find_map(|(j, o)| value_def(j, o))
            && func.values[v].file == r.file
        {
            // The next value would be taken for this slot.
            write!(f, "{sep}_")?;
            any = true;
        }
    }
    if any {
        f.write_str(" = ")?;
    }
    match d.op {
        Op::Sass(op) => f.write_str(op.name())?,
        Op::Macro(m) => f.write_str(m.name())?,
    }
    for m in d.mods.iter() {
        write!(f, ".{}", m.name())?;
    }
    let mut comma = " ";
    for (i, o) in d.operands.iter().enumerate() {
        if value_def(i, o).is_none() {
            f.write_str(comma)?;
            operand(f, o)?;
            comma = ", ";
        }
    }
    if !d.kept.is_empty() {
        f.write_str(" keep")?;
        for k in &d.kept {
            write!(f, " {k}")?;
        }
    }
    if d.loc.0 != 0 {
        write!(f, " ; {}", d.loc.0)?;
    }
    Ok(())
}

impl Display for BlockCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.block)?;
        if !self.args.is_empty() {
            let args: Vec<String> = self.args.iter().map(ToString::to_string).collect();
            write!(f, "({})", args.join(", "))?;
        }
        Ok(())
    }
}

impl<R: Register> Display for Terminator<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Terminator::Jump(t) => write!(f, "jump {t}"),
            Terminator::Branch { cond, not, taken, fall } => {
                write!(f, "branch {}{cond}, {taken}, {fall}", if *not { "!" } else { "" })
            }
            Terminator::Switch { index, table } => {
                write!(f, "switch {index}")?;
                table.iter().try_for_each(|t| write!(f, ", {t}"))
            }
            Terminator::Exit => f.write_str("exit"),
            Terminator::Return(v) => write!(f, "return {v}"),
            Terminator::Unreachable => f.write_str("unreachable"),
        }
    }
}

/// One instruction as text.
pub fn inst_text<R: Register>(func: &Function<R>, d: &InstData<R>) -> String {
    let mut s = String::new();
    let _ = inst(&mut s, func, d);
    s
}

fn block<R: Register>(f: &mut Formatter<'_>, func: &Function<R>, b: Block) -> fmt::Result {
    let data = &func.blocks[b];
    write!(f, "{b}")?;
    if !data.params.is_empty() {
        let params: Vec<String> =
            data.params.iter().map(|v| format!("{v}:{}", shape_name(func.values[*v]))).collect();
        write!(f, "({})", params.join(", "))?;
    }
    writeln!(f, "{}:", if data.rolled { " rolled" } else { "" })?;
    for i in &data.insts {
        f.write_str("    ")?;
        inst(f, func, &func.insts[*i])?;
        writeln!(f)?;
    }
    write!(f, "    {}", data.term)?;
    if data.term_loc.0 != 0 {
        write!(f, " ; {}", data.term_loc.0)?;
    }
    writeln!(f)
}

/// ` callees=f,*,*40/3,!`: a name, `*` for an indirect callee, with its convention if that is its own, `!` for an external one.
fn callees(list: &IndexSet<Callee, FxBuildHasher>) -> String {
    if list.is_empty() {
        return String::new();
    }
    let names: Vec<String> = list
        .iter()
        .map(|c| match c {
            Callee::Internal(name) => name.clone(),
            Callee::Indirect(convention) if *convention == Convention::default() => "*".into(),
            Callee::Indirect(convention) => format!("*{convention}"),
            Callee::External => "!".into(),
        })
        .collect();
    format!(" callees={}", names.join(","))
}

/// ` convention=40/3`: a function's own.
fn convention(own: Convention) -> String {
    if own == Convention::default() { String::new() } else { format!(" convention={own}") }
}

/// ` conventions=f:40/3,g:8/6`: those of callees.
fn conventions(of: &BTreeMap<String, Convention>) -> String {
    let all: Vec<String> = of.iter().map(|(name, c)| format!("{name}:{c}")).collect();
    if all.is_empty() { String::new() } else { format!(" conventions={}", all.join(",")) }
}

/// ` quiet=f,g`: callees that wait for no other lane.
fn quiet(names: &IndexSet<String, FxBuildHasher>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if names.is_empty() { String::new() } else { format!(" quiet={}", names.join(",")) }
}

/// ` symbols=low:x,high:x`: parts of addresses.
fn symbols(list: &[crate::SymbolUse]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let words: Vec<String> = list.iter().map(|s| format!("{}:{}", s.part.name(), s.name)).collect();
    format!(" symbols={}", words.join(","))
}

/// ` literals=3ff0000000000000,7`: words of 64 bits in constant bank 2.
fn literals(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    let word = |c: &[u8]| c.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let words: Vec<String> = bytes.chunks(8).map(|c| format!("{:x}", word(c))).collect();
    format!(" literals={}", words.join(","))
}

impl<R: Register> Display for Function<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = if self.entry { "entry" } else { "func" };
        writeln!(
            f,
            "function {} {} {kind} local={}{} shared={} barriers={} regs={}{}{}{}{}{}{}{}{}{}{}{}{}{} {{",
            self.name,
            self.target,
            self.local_size,
            if self.local_align > 1 { format!(" align={}", self.local_align) } else { String::new() },
            self.shared_size,
            self.barriers,
            self.max_regs,
            if self.aim_regs == self.target.info().full_registers() {
                String::new()
            } else {
                format!(" aim={}", self.aim_regs)
            },
            threads(&self.threads),
            callees(&self.callees),
            changes(&self.changes),
            match self.keeps {
                Keeps::Convention => "",
                Keeps::FramePointer => " private=1",
                Keeps::Unchanged => " private=2",
            },
            convention(self.convention),
            conventions(&self.conventions),
            quiet(&self.quiet),
            symbols(&self.symbols),
            literals(&self.literals),
            if self.relocatable { " relocatable=1" } else { "" },
            if self.apart { " apart=1" } else { "" },
            match self.tuning.to_string() {
                text if text.is_empty() => text,
                text => format!(" tuning={text}"),
            },
        )?;
        self.layout.iter().try_for_each(|b| block(f, self, *b))?;
        writeln!(f, "}}")
    }
}

/// What calls change.
fn changes(of: &BTreeMap<u32, Vec<Reg>>) -> String {
    if of.is_empty() {
        return String::new();
    }
    let registers = |r: &[Reg]| r.iter().map(Reg::to_string).collect::<Vec<_>>().join("+");
    let all: Vec<String> = of.iter().map(|(n, r)| format!("{n}:{}", registers(r))).collect();
    format!(" changes={}", all.join(","))
}

/// Those of launch bounds.
fn threads(most: &[u32; 3]) -> String {
    let stated = most.iter().zip(crate::MOST_THREADS).zip(["x", "y", "z"]).filter(|((n, all), _)| *n != all);
    stated.map(|((n, _), name)| format!(" {name}={n}")).collect()
}
