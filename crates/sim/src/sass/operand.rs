//! Operands, resolved once per static instruction: where a source comes from, what is done to it on the way,
//! and where results go.

use super::compile::{Unsupported, unsupported};
use super::state::{Machine, PT, Warp};
use crate::sass::image::Banks;
use sass::{ConstBank, Inst, Operand, Reg, RegFile};

/// How a source's bits are understood, which says what `-`, `|…|` and `~` do and how an immediate widens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// 32-bit integer.
    Int,
    /// 64-bit integer; a 32-bit immediate is sign-extended.
    Long,
    /// binary32.
    Single,
    /// binary64; a 32-bit immediate holds the high half.
    Double,
    /// Two binary16 (or bfloat16) halves.
    Halves,
}

/// Where a source's bits come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// Rows of the general file.
    Reg(u8),
    /// Uniform registers.
    Uniform(u8),
    /// A value known when the program was prepared: immediates and constant memory.
    Fixed(u64),
}

/// A data source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Src {
    /// Where it comes from.
    pub(crate) from: From,
    pub(crate) kind: Kind,
    /// A pair of registers.
    wide: bool,
    /// `-x`
    pub(crate) neg: bool,
    /// `|x|`
    pub(crate) abs: bool,
    /// `~x`
    pub(crate) not: bool,
}

impl Src {
    /// What the source modifiers make of its bits.
    pub(crate) fn apply(&self, x: u64) -> u64 {
        let (neg, abs, not) = (self.neg, self.abs, self.not);
        let low = x as u32;
        match self.kind {
            Kind::Int => {
                let low = if abs { (low as i32).unsigned_abs() } else { low };
                let low = if neg { low.wrapping_neg() } else { low };
                u64::from(if not { !low } else { low })
            }
            Kind::Long => {
                let x = if abs { (x as i64).unsigned_abs() } else { x };
                let x = if neg { x.wrapping_neg() } else { x };
                if not { !x } else { x }
            }
            Kind::Single => sign(x, abs, neg, 1 << 31),
            Kind::Double => sign(x, abs, neg, 1 << 63),
            Kind::Halves => sign(x, abs, neg, 0x8000_8000),
        }
    }

    /// The value in every lane of `out`.
    pub(crate) fn fetch(&self, w: &Warp, out: &mut [u64; 32]) {
        match self.from {
            From::Reg(r) => {
                if self.wide {
                    let (lo, hi) = (&w.r[r as usize], &w.r[Warp::pair(r)]);
                    for (o, (l, h)) in out.iter_mut().zip(lo.iter().zip(hi)) {
                        *o = u64::from(*l) | u64::from(*h) << 32;
                    }
                } else {
                    for (o, l) in out.iter_mut().zip(&w.r[r as usize]) {
                        *o = u64::from(*l);
                    }
                }
            }
            _ => return out.fill(self.uniform(w)),
        }
        if self.neg || self.abs || self.not {
            out.iter_mut().for_each(|x| *x = self.apply(*x));
        }
    }

    /// The value for a warp; lane 0's where it comes from a general register.
    pub(crate) fn uniform(&self, w: &Warp) -> u64 {
        let lane = 0;
        self.apply(match self.from {
            From::Fixed(x) => x,
            From::Uniform(r) if self.wide => {
                u64::from(w.ur[r as usize]) | u64::from(w.ur[Warp::pair(r)]) << 32
            }
            From::Uniform(r) => w.ur[r as usize].into(),
            From::Reg(r) if self.wide => {
                u64::from(w.r[r as usize][lane]) | u64::from(w.r[Warp::pair(r)][lane]) << 32
            }
            From::Reg(r) => w.r[r as usize][lane].into(),
        })
    }

    /// A value known beforehand.
    pub(crate) fn fixed(value: u64) -> Src {
        Src { from: From::Fixed(value), kind: Kind::Int, wide: false, neg: false, abs: false, not: false }
    }
    /// Whether the value was known beforehand.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.from, From::Fixed(_) | From::Reg(255) | From::Uniform(255))
    }

    /// The value without its source modifiers.
    pub(crate) fn plain(self) -> Src {
        Src { neg: false, abs: false, not: false, ..self }
    }
    /// A word from there, as it is.
    pub(crate) fn word(from: From) -> Src {
        Src { from, ..Src::fixed(0) }
    }
}

fn sign(x: u64, abs: bool, neg: bool, bit: u64) -> u64 {
    let x = if abs { x & !bit } else { x };
    if neg { x ^ bit } else { x }
}

/// A predicate source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pred {
    uniform: bool,
    index: u8,
    not: bool,
}

impl Pred {
    /// PT.
    pub(crate) const TRUE: Pred = Pred { uniform: false, index: PT, not: false };

    pub(crate) fn of(reg: Reg, not: bool) -> Result<Pred, Unsupported> {
        let index = if reg.is_zero() { PT } else { reg.index };
        match reg.file {
            RegFile::P => Ok(Pred { uniform: false, index, not }),
            RegFile::UP => Ok(Pred { uniform: true, index, not }),
            _ => unsupported("a predicate source of this register file"),
        }
    }
    /// Lanes in which it holds.
    pub(crate) fn mask(self, w: &Warp) -> u32 {
        let m = if self.uniform {
            if w.up[self.index as usize] { u32::MAX } else { 0 }
        } else {
            w.p[self.index as usize]
        };
        if self.not { !m } else { m }
    }
}

/// Where a data result goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dst {
    uniform: bool,
    index: u8,
    /// 32-bit registers written.
    width: u8,
}

impl Dst {
    /// Writes `value` in one lane (or for the warp).
    pub(crate) fn put(self, w: &mut Warp, lane: usize, value: u64) {
        self.word(w, lane, 0, value as u32);
        if self.width > 1 {
            self.word(w, lane, 1, (value >> 32) as u32);
        }
    }
    /// Writes the lanes of `mask`.
    fn put_row(self, w: &mut Warp, mask: u32, values: &[u64; 32]) {
        for n in 0..self.width.min(2) {
            let i = usize::from(self.index) + usize::from(n);
            if i >= usize::from(Reg::ZERO) {
                return;
            }
            let row = &mut w.r[i];
            let shift = 32 * u32::from(n);
            if mask == u32::MAX {
                row.iter_mut().zip(values).for_each(|(r, v)| *r = (v >> shift) as u32);
            } else {
                for (lane, (r, v)) in row.iter_mut().zip(values).enumerate() {
                    let keep = (mask >> lane & 1).wrapping_sub(1);
                    *r = *r & keep | (v >> shift) as u32 & !keep;
                }
            }
        }
    }
    /// Writes the `n`-th register of the tuple.
    pub(crate) fn word(self, w: &mut Warp, lane: usize, n: u8, value: u32) {
        if self.index == Reg::ZERO {
            return;
        }
        let i = usize::from(self.index) + usize::from(n);
        if i >= usize::from(Reg::ZERO) {
            return;
        }
        if self.uniform { w.ur[i] = value } else { w.r[i][lane] = value }
    }
    /// Whether it is a uniform register.
    pub(crate) fn is_uniform(self) -> bool {
        self.uniform
    }
    /// The first register.
    pub(crate) fn index(self) -> u8 {
        self.index
    }
}

/// Where a predicate result goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredDst {
    uniform: bool,
    index: u8,
}

impl PredDst {
    /// PT: dropped.
    pub(crate) const NONE: PredDst = PredDst { uniform: false, index: PT };

    /// Whether nothing is written.
    pub(crate) fn is_none(self) -> bool {
        self.index == PT
    }
    /// Whether it is a uniform predicate.
    pub(crate) fn is_uniform(self) -> bool {
        self.uniform
    }
    /// Its number.
    pub(crate) fn index(self) -> u8 {
        self.index
    }

    /// Writes the lanes of `mask` of a predicate that is not uniform.
    pub(crate) fn put_mask(self, w: &mut Warp, mask: u32, bits: u32) {
        if self.index != PT {
            let p = &mut w.p[self.index as usize];
            *p = *p & !mask | bits & mask;
        }
    }
    /// Writes one lane (or the warp's predicate).
    pub(crate) fn put(self, w: &mut Warp, lane: usize, value: bool) {
        if self.index == PT {
        } else if self.uniform {
            w.up[self.index as usize] = value;
        } else {
            let bit = 1 << lane;
            let p = &mut w.p[self.index as usize];
            *p = if value { *p | bit } else { *p & !bit };
        }
    }
}

/// The operands of an instruction, by slot.
pub(crate) struct Operands<'a> {
    pub(crate) inst: &'a Inst,
    pub(crate) banks: &'a Banks,
    /// Modifiers not looked at yet.
    mods: std::cell::RefCell<Vec<&'static str>>,
}

impl<'a> Operands<'a> {
    pub(crate) fn new(inst: &'a Inst, banks: &'a Banks) -> Self {
        let mods = inst.mods.iter().map(|m| m.name()).collect();
        Operands { inst, banks, mods: std::cell::RefCell::new(mods) }
    }

    /// Whether the modifier is there; it then counts as understood (its first occurrence only).
    pub(crate) fn take(&self, name: &str) -> bool {
        let mut mods = self.mods.borrow_mut();
        let at = mods.iter().position(|m| *m == name);
        at.map(|i| mods.remove(i)).is_some()
    }
    /// The first of `names` that is there.
    pub(crate) fn choose<T: Copy>(&self, table: &[(&str, T)]) -> Option<T> {
        table.iter().find(|(name, _)| self.take(name)).map(|(_, value)| *value)
    }
    /// The next modifier not looked at, in spelling order.
    pub(crate) fn next(&self) -> Option<&'static str> {
        let mut mods = self.mods.borrow_mut();
        if mods.is_empty() { None } else { Some(mods.remove(0)) }
    }
    /// Takes modifiers that change nothing here (hints, caching, spelling of a pseudo-form).
    pub(crate) fn ignore(&self, names: &[&str]) {
        self.mods.borrow_mut().retain(|m| !names.contains(m));
    }
    /// Fails if a modifier is left that nobody looked at.
    pub(crate) fn finish(&self) -> Result<(), Unsupported> {
        match self.mods.borrow().first() {
            None => Ok(()),
            Some(m) => unsupported(format!("modifier .{m}")),
        }
    }

    pub(crate) fn operand(&self, slot: usize) -> Result<&'a Operand, Unsupported> {
        match self.inst.operands.get(slot) {
            Some(o) => Ok(o),
            None => unsupported(format!("missing operand {slot}")),
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.inst.operands.len()
    }

    fn fixed(kind: Kind, imm: u32) -> u64 {
        match kind {
            Kind::Long => imm as i32 as i64 as u64,
            Kind::Double => u64::from(imm) << 32,
            _ => imm.into(),
        }
    }

    /// A data source.
    pub(crate) fn src(&self, slot: usize, kind: Kind) -> Result<Src, Unsupported> {
        let wide = matches!(kind, Kind::Long | Kind::Double);
        Ok(match self.operand(slot)? {
            Operand::Reg(r) => {
                let from = match r.reg.file {
                    RegFile::R => From::Reg(r.reg.index),
                    RegFile::UR => From::Uniform(r.reg.index),
                    _ => return unsupported("a data source of this register file"),
                };
                Src { from, kind, wide, neg: r.neg, abs: r.abs, not: r.not }
            }
            Operand::Imm(x) => {
                let from = From::Fixed(Self::fixed(kind, *x));
                Src { from, kind, wide, neg: false, abs: false, not: false }
            }
            Operand::Const { bank: ConstBank::Index(bank), index: None, offset, neg, abs, not } => {
                let value = self.banks.read(*bank, *offset as u32, if wide { 8 } else { 4 });
                let Some(value) = value else {
                    return unsupported(format!("c[{bank:#x}][{offset:#x}], which lies outside the bank"));
                };
                Src { from: From::Fixed(value), kind, wide, neg: *neg, abs: *abs, not: *not }
            }
            other => return unsupported(format!("source operand {other:?}")),
        })
    }
    /// A source without modifiers.
    pub(crate) fn raw(&self, slot: usize) -> Result<Src, Unsupported> {
        let s = self.src(slot, Kind::Int)?;
        if s.neg || s.abs || s.not { unsupported("a source modifier here") } else { Ok(s) }
    }
    /// An immediate.
    pub(crate) fn imm(&self, slot: usize) -> Result<u32, Unsupported> {
        match self.operand(slot)? {
            Operand::Imm(x) => Ok(*x),
            other => unsupported(format!("{other:?} where an immediate is expected")),
        }
    }
    /// A predicate source.
    pub(crate) fn pred(&self, slot: usize) -> Result<Pred, Unsupported> {
        match self.operand(slot)? {
            Operand::Reg(r) => Pred::of(r.reg, r.not),
            other => unsupported(format!("{other:?} where a predicate is expected")),
        }
    }
    /// A data result of `width` registers.
    pub(crate) fn dst(&self, slot: usize, width: u8) -> Result<Dst, Unsupported> {
        match self.operand(slot)? {
            Operand::Reg(r) if matches!(r.reg.file, RegFile::R | RegFile::UR) => {
                Ok(Dst { uniform: r.reg.file == RegFile::UR, index: r.reg.index, width })
            }
            other => unsupported(format!("{other:?} where a result register is expected")),
        }
    }
    /// A predicate result.
    pub(crate) fn pred_dst(&self, slot: usize) -> Result<PredDst, Unsupported> {
        match self.operand(slot)? {
            Operand::Reg(r) if matches!(r.reg.file, RegFile::P | RegFile::UP) => {
                let index = if r.reg.is_zero() { PT } else { r.reg.index };
                Ok(PredDst { uniform: r.reg.file == RegFile::UP, index })
            }
            other => unsupported(format!("{other:?} where a predicate result is expected")),
        }
    }
    /// A branch target: byte address in the section.
    pub(crate) fn label(&self, slot: usize) -> Result<i64, Unsupported> {
        match self.operand(slot)? {
            Operand::Label(t) => Ok(*t),
            other => unsupported(format!("{other:?} where a label is expected")),
        }
    }
}

/// The lanes of a mask, ascending.
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}

/// What an instruction does to the warp when it issues for the lanes of a mask.
pub(crate) type Exec = Box<dyn Fn(&mut Machine<'_>, u32) -> Result<(), super::Fault> + Send + Sync>;

/// A lane-wise operation: `f` maps the sources and the predicate sources of a lane to a result and two
/// predicate results. It must have a result for whatever bits there are: lanes that are not active may be
/// computed and dropped.
pub(crate) fn lanewise<const N: usize, const P: usize>(
    (dst, pdst): (Option<Dst>, [PredDst; 2]),
    srcs: [Src; N],
    preds: [Pred; P],
    f: impl Fn([u64; N], [bool; P]) -> (u64, bool, bool) + Send + Sync + 'static,
) -> Exec {
    let uniform = dst.is_some_and(Dst::is_uniform) || pdst.iter().any(|p| p.uniform);
    if uniform {
        return Box::new(move |m, _| {
            let w = &mut *m.warp;
            let pm = preds.map(|p| p.mask(w));
            let (v, p, q) = f(srcs.map(|s| s.uniform(w)), pm.map(|m| m & 1 != 0));
            if let Some(d) = dst {
                d.put(w, 0, v);
            }
            pdst[0].put(w, 0, p);
            pdst[1].put(w, 0, q);
            Ok(())
        });
    }
    let dst = dst.filter(|d| d.index != Reg::ZERO);
    Box::new(move |m, mask| {
        let w = &mut *m.warp;
        let pm = preds.map(|p| p.mask(w));
        let mut values = [[0u64; 32]; N];
        for (s, v) in srcs.iter().zip(&mut values) {
            s.fetch(w, v);
        }
        let mut results = [0u64; 32];
        let (mut ps, mut qs) = (0, 0);
        let mut one = |lane: usize| {
            let (v, p, q) = f(std::array::from_fn(|i| values[i][lane]), pm.map(|m| m >> lane & 1 != 0));
            results[lane] = v;
            ps |= u32::from(p) << lane;
            qs |= u32::from(q) << lane;
        };
        if mask.count_ones() >= 24 {
            (0..32).for_each(&mut one)
        } else {
            lanes(mask).for_each(&mut one)
        }
        if let Some(d) = dst {
            d.put_row(w, mask, &results);
        }
        pdst[0].put_mask(w, mask, ps);
        pdst[1].put_mask(w, mask, qs);
        Ok(())
    })
}

/// A lane-wise operation with a data result only.
pub(crate) fn value<const N: usize>(
    dst: Dst,
    srcs: [Src; N],
    f: impl Fn([u64; N]) -> u64 + Send + Sync + 'static,
) -> Exec {
    if dst.is_uniform() {
        return lanewise((Some(dst), [PredDst::NONE; 2]), srcs, [], move |x, []| (f(x), false, false));
    }
    Box::new(move |m, mask| {
        let w = &mut *m.warp;
        let mut values = [[0u64; 32]; N];
        for (s, v) in srcs.iter().zip(&mut values) {
            s.fetch(w, v);
        }
        let mut results = [0u64; 32];
        let mut one = |lane: usize| results[lane] = f(std::array::from_fn(|i| values[i][lane]));
        if mask.count_ones() >= 24 {
            (0..32).for_each(&mut one)
        } else {
            lanes(mask).for_each(&mut one)
        }
        dst.put_row(w, mask, &results);
        Ok(())
    })
}

/// A lane-wise operation on numbers of 64 bits, where `f` says of which lanes it can't tell the result; these get that of
/// `slow`.
pub(crate) fn pairs<const N: usize>(
    dst: Dst,
    srcs: [Src; N],
    f: impl Fn([u64; N]) -> (u64, bool) + Send + Sync + 'static,
    slow: impl Fn([u64; N]) -> u64 + Send + Sync + 'static,
) -> Exec {
    if dst.is_uniform() {
        return value(dst, srcs, slow);
    }
    super::rows::vector(Pairs { dst, srcs, f, slow })
}

/// See [`pairs`].
struct Pairs<F, S, const N: usize> {
    dst: Dst,
    srcs: [Src; N],
    f: F,
    slow: S,
}

impl<F, S, const N: usize> super::rows::Loop for Pairs<F, S, N>
where
    F: Fn([u64; N]) -> (u64, bool) + Send + Sync + 'static,
    S: Fn([u64; N]) -> u64 + Send + Sync + 'static,
{
    #[inline(always)]
    fn run(&self, m: &mut Machine<'_>, mask: u32) -> Result<(), super::Fault> {
        let w = &mut *m.warp;
        let mut values = [[0u64; 32]; N];
        for (s, v) in self.srcs.iter().zip(&mut values) {
            s.fetch(w, v);
        }
        let mut results = [0u64; 32];
        let mut open = 0;
        for lane in 0..32 {
            let (r, unknown) = (self.f)(std::array::from_fn(|i| values[i][lane]));
            results[lane] = r;
            open |= u32::from(unknown) << lane;
        }
        for lane in lanes(open & mask) {
            results[lane] = (self.slow)(std::array::from_fn(|i| values[i][lane]));
        }
        self.dst.put_row(w, mask, &results);
        Ok(())
    }
}
