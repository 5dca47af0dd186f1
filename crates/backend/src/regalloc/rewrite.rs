//! Puts physical registers into a function and turns copies into moves.

use super::Error;
use super::color::Coloring;
use super::webs::Webs;
use crate::liveness::Segment;
use cranelift_entity::PrimaryMap;
use ori::cfg::Cfg;
use ori::{
    Allocated, BlockData, Function, Guard, InstData, Loc, Macro, Name, Op, Operand, Operands, default_operand,
};
use rustc_hash::FxHashSet;
use sass::{ConstBank, Mod, Mods, Opcode, Reg, RegFile, RegOp, Role, SlotKind, Target};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// One register's move.
#[derive(Clone, Debug)]
struct Move {
    dst: Reg,
    src: Operand<Reg>,
}

impl Move {
    fn source(&self) -> Option<Reg> {
        match &self.src {
            Operand::Reg(RegOp { reg, .. }) if !reg.is_zero() => Some(*reg),
            _ => None,
        }
    }
    /// Whether it does nothing.
    fn is_idle(&self) -> bool {
        self.dst.is_zero() || self.src == Operand::reg(self.dst)
    }
}

/// Replaces names by registers, macro-operations by instructions, and drops block parameters.
///
/// # Errors
/// A move between files that no instruction does.
pub fn apply(func: &Function, cfg: &Cfg, webs: &Webs, colors: &Coloring) -> Result<Allocated, Error> {
    let reg = |n: Name| -> Reg {
        let (v, part) = match n {
            Name::Val(v) => (v, 0),
            Name::Part(v, part) => (v, part),
            Name::Phys(r) => return r,
        };
        let file = func.values[v].file;
        match webs.home[v].and_then(|(w, off)| Some(colors.reg[w]? + off + part)) {
            Some(index) => Reg { file, index },
            None => Reg { file, index: Reg::ZERO },
        }
    };
    // Instructions that stay keep their numbers; of others nothing is left.
    let mut insts: PrimaryMap<_, _> = func.insts.keys().map(|_| InstData::gone()).collect();
    let mut blocks: PrimaryMap<_, _> = func.blocks.keys().map(|_| BlockData::unreached()).collect();
    for &b in &cfg.rpo {
        let old = &func.blocks[b];
        let mut out = Vec::with_capacity(old.insts.len());
        for &i in &old.insts {
            let at = 2 * webs.numbering.inst[i];
            let told = &func.insts[i];
            let d = told.on_registers(reg);
            if let Op::Macro(m) = d.op
                && m.is_copy()
            {
                let widths: SmallVec<[u8; 6]> =
                    (0..d.operands.len()).map(|k| told.slot(k, &func.values).width).collect();
                let moves = macro_moves(m, &d, &widths);
                let scratch = |file| colors.scratch(file, Segment { start: at, end: at + 2 });
                sequence(func.target, moves, d.guard, d.loc, scratch, |d| out.push(insts.push(d)))?;
            } else {
                insts[i] = d;
                out.push(i);
            }
        }
        blocks[b] = old.on_registers(out, reg);
    }
    Ok(func.with_code(insts, blocks))
}

/// The single-register moves that a macro-operation stands for; they happen at once.
fn macro_moves(m: Macro, d: &InstData<Reg>, widths: &[u8]) -> Vec<Move> {
    let mut moves = Vec::new();
    let mut wide = |dst: Reg, src: &Operand<Reg>, width: u8| {
        for k in 0..width {
            let step = |r: Reg| if r.is_zero() { r } else { Reg { index: r.index + k, ..r } };
            let mut src = *src;
            match &mut src {
                Operand::Reg(RegOp { reg, .. }) => *reg = step(*reg),
                Operand::Const { offset, .. } => *offset += 4 * i32::from(k),
                // A wide immediate is its low word.
                Operand::Imm(n) if k > 0 => *n = 0,
                _ => {}
            }
            moves.push(Move { dst: step(dst), src });
        }
    };
    let dst = |k: usize| match &d.operands[k] {
        Operand::Reg(RegOp { reg, .. }) => *reg,
        _ => Reg::RZ,
    };
    match m {
        Macro::Undef => {}
        Macro::Copy | Macro::Settle => wide(dst(0), &d.operands[1], widths[0]),
        Macro::Collect => {
            let mut at = dst(0);
            for (src, width) in d.operands.iter().zip(widths).skip(1) {
                wide(at, src, *width);
                if !at.is_zero() {
                    at.index += width;
                }
            }
        }
        Macro::ParCopy(n) => {
            let n = usize::from(n);
            (0..n).for_each(|k| wide(dst(k), &d.operands[n + k], widths[k]));
        }
        _ => unreachable!("{} is no copy", m.name()),
    }
    moves.retain(|m| !m.is_idle());
    moves
}

/// Emits parallel moves one after the other; those that write the same register read the same one.
fn sequence(
    target: Target,
    mut moves: Vec<Move>,
    guard: Guard<Reg>,
    loc: Loc,
    scratch: impl Fn(RegFile) -> Option<Reg>,
    mut out: impl FnMut(InstData<Reg>),
) -> Result<(), Error> {
    // Two successors may want the same register in the same register: one move does.
    let mut written = FxHashSet::default();
    moves.retain(|m| written.insert(m.dst));
    let mut emit = |d: InstData<Reg>| out(InstData { guard, loc, ..d });
    while !moves.is_empty() {
        let ready = (0..moves.len())
            .find(|&k| !moves.iter().enumerate().any(|(j, m)| j != k && m.source() == Some(moves[k].dst)));
        if let Some(k) = ready {
            let m = moves.swap_remove(k);
            emit(move_inst(target, m.dst, &m.src)?);
            continue;
        }
        // Only cycles are left.
        let m = moves[0].clone();
        let from = m.source().expect("a cycle's moves read registers");
        if let Some(free) = scratch(m.dst.file).filter(|f| !moves.iter().any(|m| m.dst == *f)) {
            emit(move_inst(target, free, &Operand::reg(m.dst))?);
            rename_source(&mut moves, m.dst, free);
        } else {
            for d in swap(m.dst, from)? {
                emit(d);
            }
            // What was in one is now in the other.
            moves.swap_remove(0);
            for o in &mut moves {
                if o.source() == Some(m.dst) {
                    o.src = renamed(&o.src, from);
                }
            }
            moves.retain(|m| !m.is_idle());
        }
    }
    Ok(())
}

fn renamed(src: &Operand<Reg>, to: Reg) -> Operand<Reg> {
    match src {
        Operand::Reg(r) => Operand::Reg(RegOp { reg: to, ..*r }),
        other => *other,
    }
}

fn rename_source(moves: &mut [Move], from: Reg, to: Reg) {
    for m in moves {
        if m.source() == Some(from) {
            m.src = renamed(&m.src, to);
        }
    }
}

/// An instruction with default operands, `dst` in its first written slot of that file and `sources` in its
/// register and source slots in order.
fn simple(op: Opcode, mods: &[Mod], dst: Reg, sources: &[Operand<Reg>]) -> InstData<Reg> {
    let mut sources = sources.iter();
    let mut dst = Some(dst);
    let mut operands: Operands<Reg> = ThinVec::new();
    for (k, slot) in op.slots().iter().enumerate() {
        let fits = matches!((slot.kind, dst), (SlotKind::Reg(f), Some(d)) if f == d.file);
        operands.push(match slot.role {
            Role::Use if slot.kind != SlotKind::Imm => {
                sources.next().cloned().unwrap_or_else(|| default_operand(op, k))
            }
            Role::Def if fits => Operand::reg(dst.take().expect("fits")),
            _ => default_operand(op, k),
        });
    }
    InstData {
        guard: Guard::TRUE,
        op: Op::Sass(op),
        mods: Mods::of(mods),
        operands,
        kept: ThinVec::new(),
        loc: Loc::default(),
    }
}

/// Fills the immediate-only slots.
fn set_imms(mut d: InstData<Reg>, imms: &[u32]) -> InstData<Reg> {
    let Op::Sass(op) = d.op else { return d };
    let slots = d.operands.iter_mut().zip(op.slots()).filter(|(_, slot)| slot.kind == SlotKind::Imm);
    for ((o, _), n) in slots.zip(imms) {
        *o = Operand::Imm(*n);
    }
    d
}

/// `a` of PLOP3's and LOP3's lookup tables.
const LUT_A: u32 = 0xf0;
/// `a & b & c` of PLOP3's.
const LUT_ALL: u32 = 0x80;
/// `a ^ b`.
const LUT_XOR: u32 = 0x3c;

fn phys(r: Reg) -> Operand<Reg> {
    Operand::reg(r)
}

fn negated(o: &Operand<Reg>) -> Operand<Reg> {
    match o {
        Operand::Reg(r) => Operand::Reg(RegOp { not: !r.not, ..*r }),
        other => *other,
    }
}

/// The instruction that moves `src` to `dst`.
pub fn move_inst(target: Target, dst: Reg, src: &Operand<Reg>) -> Result<InstData<Reg>, Error> {
    let unsupported = || Error::Move(format!("{dst} <- {src:?}"));
    let source_file = match src {
        Operand::Reg(RegOp { reg, neg: false, abs: false, .. }) => Some(reg.file),
        Operand::Imm(_) => None,
        Operand::Const {
            bank: ConstBank::Index(_), index: None, neg: false, abs: false, not: false, ..
        } => None,
        _ => return Err(unsupported()),
    };
    let inverted = matches!(src, Operand::Reg(r) if r.not);
    let constant = matches!(src, Operand::Const { .. });
    let truth = |pt: Reg| match src {
        Operand::Imm(0) => Some(negated(&phys(pt))),
        Operand::Imm(_) => Some(phys(pt)),
        _ => None,
    };
    Ok(match (dst.file, source_file) {
        (RegFile::R | RegFile::UR, Some(RegFile::R | RegFile::UR)) if inverted => return Err(unsupported()),
        (RegFile::R, None) if constant && !target.info().alu_const => {
            simple(Opcode::LDC, &[], dst, std::slice::from_ref(src))
        }
        (RegFile::R, None | Some(RegFile::R | RegFile::UR)) => {
            set_imms(simple(Opcode::MOV, &[], dst, std::slice::from_ref(src)), &[0xf])
        }
        (RegFile::R, Some(RegFile::P)) => {
            simple(Opcode::SEL, &[], dst, &[phys(Reg::RZ), Operand::Imm(1), negated(src)])
        }
        (RegFile::R, Some(RegFile::B)) => simple(Opcode::BMOV, &[Mod::_32], dst, std::slice::from_ref(src)),
        (RegFile::UR, Some(RegFile::R)) if src == &phys(Reg::RZ) => {
            simple(Opcode::UMOV, &[], dst, &[phys(Reg::URZ)])
        }
        (RegFile::UR, Some(RegFile::R)) => simple(Opcode::R2UR, &[], dst, std::slice::from_ref(src)),
        (RegFile::UR, None) if constant => {
            simple(target.info().constant_load, &[], dst, std::slice::from_ref(src))
        }
        (RegFile::UR, None | Some(RegFile::UR)) => simple(Opcode::UMOV, &[], dst, std::slice::from_ref(src)),
        (RegFile::P, Some(RegFile::R)) => simple(
            Opcode::ISETP,
            &[Mod::NE, Mod::AND],
            dst,
            &[*src, phys(Reg::RZ), phys(Reg::PT), phys(Reg::PT)],
        ),
        (RegFile::P, Some(RegFile::P) | None) if !constant => {
            let a = truth(Reg::PT).unwrap_or(*src);
            set_imms(simple(Opcode::PLOP3, &[Mod::LUT], dst, &[a]), &[LUT_A, 0])
        }
        // The third source alone may be uniform.
        (RegFile::P, Some(RegFile::UP)) if !inverted => set_imms(
            simple(Opcode::PLOP3, &[Mod::LUT], dst, &[phys(Reg::PT), phys(Reg::PT), *src]),
            &[LUT_ALL, 0],
        ),
        // All lanes that are there hold the same.
        (RegFile::UP, Some(RegFile::P)) if !inverted => {
            simple(Opcode::VOTEU, &[Mod::ANY], dst, std::slice::from_ref(src))
        }
        (RegFile::UP, Some(RegFile::UP) | None) if !constant => {
            let a = truth(Reg::UPT).unwrap_or(*src);
            set_imms(simple(Opcode::UPLOP3, &[Mod::LUT], dst, &[a]), &[LUT_A, 0])
        }
        _ => return Err(unsupported()),
    })
}

/// Exchanges two registers of a file without a third.
fn swap(a: Reg, b: Reg) -> Result<[InstData<Reg>; 3], Error> {
    let xor = |dst: Reg| match a.file {
        RegFile::R => {
            let sources = [phys(a), phys(b), phys(Reg::RZ), negated(&phys(Reg::PT))];
            Ok(set_imms(simple(Opcode::LOP3, &[Mod::LUT], dst, &sources), &[LUT_XOR]))
        }
        RegFile::UR => {
            let sources = [phys(a), phys(b), phys(Reg::URZ), negated(&phys(Reg::UPT))];
            Ok(set_imms(simple(Opcode::ULOP3, &[Mod::LUT], dst, &sources), &[LUT_XOR]))
        }
        RegFile::P => {
            Ok(set_imms(simple(Opcode::PLOP3, &[Mod::LUT], dst, &[phys(a), phys(b)]), &[LUT_XOR, 0]))
        }
        RegFile::UP => {
            Ok(set_imms(simple(Opcode::UPLOP3, &[Mod::LUT], dst, &[phys(a), phys(b)]), &[LUT_XOR, 0]))
        }
        _ => Err(Error::Move(format!("{a} <-> {b}"))),
    };
    Ok([xor(a)?, xor(b)?, xor(a)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use sass::ops::Plop3;

    const N: usize = 4;

    fn p(index: usize) -> Reg {
        Reg { file: RegFile::P, index: index as u8 }
    }

    /// What registers hold after PLOP3s.
    fn run(insts: &[InstData<Reg>], state: &mut [u32; N]) {
        for d in insts {
            let read = |o: &Operand<Reg>| match o {
                Operand::Reg(RegOp { reg, .. }) if reg.is_zero() => 0,
                Operand::Reg(RegOp { reg, .. }) => state[usize::from(reg.index)],
                other => panic!("{other:?}"),
            };
            let s = Plop3::of(d).expect("a PLOP3");
            let Operand::Imm(lut) = *s.table else { panic!("no table") };
            let value = match lut {
                LUT_A => read(s.a),
                LUT_XOR => read(s.a) ^ read(s.b),
                other => panic!("table {other:#x}"),
            };
            let Operand::Reg(RegOp { reg: dst, .. }) = *s.p else { panic!("no register") };
            state[usize::from(dst.index)] = value;
        }
    }

    /// Every way to fill four predicates from four, some moves twice, without a free one.
    #[test]
    fn parallel_moves_in_sequence() {
        for code in 0..N.pow(N as u32) {
            let from: Vec<usize> = (0..N).map(|k| code / N.pow(k as u32) % N).collect();
            let moves = |from: &[usize]| -> Vec<Move> {
                let all = from.iter().enumerate();
                all.map(|(d, s)| Move { dst: p(d), src: phys(p(*s)) }).filter(|m| !m.is_idle()).collect()
            };
            let mut twice = moves(&from);
            twice.extend(moves(&from));
            for moves in [moves(&from), twice] {
                let target = Target::new(86).expect("a target");
                let mut out = Vec::new();
                let emit = |d| out.push(d);
                sequence(target, moves, Guard::TRUE, Loc::default(), |_| None, emit).expect("moves");
                let mut state = [1, 2, 4, 8];
                run(&out, &mut state);
                let want: Vec<u32> = from.iter().map(|s| 1 << s).collect();
                assert_eq!(state[..], want[..], "{from:?}");
            }
        }
    }
}
