//! Textures: `tex`, `tld4`, `txq`, `istypep`.
//!
//! TEX and its like take two vectors of up to four registers: coordinates, behind the number in an array; and what
//! else there is, in the order handle, sample, level, offsets, reference value of a comparison. The handle is a word
//! of constant memory or such a register up to sm_89, a pair of uniform registers from sm_90 on.

use crate::access::{self, Access, Address, Order, Space as AccessSpace};
use crate::convert_half::{self, Narrowing};
use crate::descriptors;
use crate::emit::{Emit, Pair, as_imm, constant, fabs, fimm, imm, pt, rz};
use crate::func::{Known, Lower, Result};
use crate::image_slots::Named;
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{ALWAYS, Builder, Macro, Name, Operand, Value, operand};
use ptx::ast::Opaque;
use ptx::{AddrBase, Mod as M, Op, RegId, Type, VarId, VectorElem};
use sass::{Mod, Opcode, Reg, RegFile, Role, SlotKind};
use smallvec::SmallVec;

/// The level that stands for "the base level" (ptxas has it wherever no other is given).
const BASE_LEVEL: f32 = -32.0;
const F32: Ty = Ty { kind: Kind::Float, bits: 32 };

/// Where the handle of a texture or surface is.
#[derive(Clone, Debug)]
pub(crate) enum Handle {
    /// At this offset in constant bank 0.
    Const(u32),
    /// In the lower half of a pair of registers.
    Word(Value),
    /// In uniform registers.
    Uniform(Value),
    /// In a register, and has to get into uniform ones; likewise a sampler of its own.
    Varying(Value, Option<Value>),
}

/// A texture, sampler or surface in an operand.
#[derive(Clone, Copy)]
enum Place {
    /// Its name.
    Named(VarId),
    /// A register, a pair.
    Register(RegId),
}

/// The opcodes of an instruction with its handle in constant memory, in uniform registers, in a register.
pub(crate) type Ops = [Opcode; 3];

const TEX: Ops = [Opcode::TEX, Opcode::TEX_U, Opcode::TEX_B];
const TLD: Ops = [Opcode::TLD, Opcode::TLD_U, Opcode::TLD_B];
const TLD4: Ops = [Opcode::TLD4, Opcode::TLD4_U, Opcode::TLD4_B];
const TXD: Ops = [Opcode::TXD, Opcode::TXD_U, Opcode::TXD_B];
const TXQ: Ops = [Opcode::TXQ, Opcode::TXQ_U, Opcode::TXQ_B];

/// Numbers of the dimensions as the instructions name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dim {
    D1 = 0,
    D2 = 1,
    D3 = 2,
    Cube = 3,
    Array1 = 4,
    Array2 = 5,
    ArrayCube = 7,
}

/// The shape of a texture access.
struct Geometry {
    dim: Dim,
    /// Number of coordinates, array and sample numbers left out.
    coords: usize,
    array: bool,
    multisample: bool,
}

fn geometry(inst: &Statement<'_>) -> Option<Geometry> {
    let one = |dim, coords, array, multisample| Some(Geometry { dim, coords, array, multisample });
    match inst.one_of(&[M::_1d, M::_2d, M::_3d, M::a1d, M::a2d, M::cube, M::acube, M::_2dms, M::a2dms])? {
        M::_1d => one(Dim::D1, 1, false, false),
        M::_2d => one(Dim::D2, 2, false, false),
        M::_3d => one(Dim::D3, 3, false, false),
        M::a1d => one(Dim::Array1, 1, true, false),
        M::a2d => one(Dim::Array2, 2, true, false),
        M::cube => one(Dim::Cube, 3, false, false),
        M::acube => one(Dim::ArrayCube, 3, true, false),
        M::_2dms => one(Dim::D2, 2, false, true),
        _ => one(Dim::Array2, 2, true, true),
    }
}

/// The words of a handle that threads may not agree about.
fn words_of(word: Value, sampler: Option<Value>) -> SmallVec<[Operand; 2]> {
    [Some(word), sampler].into_iter().flatten().map(operand).collect()
}

/// The one value of a list.
pub(crate) fn one(o: &ptx::Operand) -> Option<VectorElem> {
    Some(match o {
        ptx::Operand::Reg(r) => VectorElem::Reg(*r),
        ptx::Operand::Int(n) => VectorElem::Int(*n),
        ptx::Operand::F32(n) => VectorElem::F32(*n),
        ptx::Operand::F64(n) => VectorElem::F64(*n),
        _ => return None,
    })
}

impl Lower<'_, '_> {
    /// The value of a handle in a register, a pair of them.
    fn handle_value(&mut self, r: RegId) -> Result<Value> {
        let v = self.handles.get(r).unwrap_or_else(|| self.read(r));
        match self.b.func.values[v].width {
            2 => Ok(v),
            _ => Err("a handle has 64 bits".into()),
        }
    }

    /// The offset in constant bank 0 of the word of what is named.
    fn image_place(&self, image: VarId, sampler: Option<VarId>) -> Result<u32> {
        let place = self.layout.images.place(self.id, Named { image, sampler });
        place.ok_or(crate::Refusal::NotBuilt("a texture or surface by name is not supported here yet"))
    }

    /// The handle of a texture, sampler or surface by name as a number: its word, and a bit that says what it is; before sm_90
    /// one more in the word, and of a sampler's word the upper bits (ptxas 13.0.88).
    pub(crate) fn handle_of(&mut self, var: VarId, kind: Opaque) -> Result<Src> {
        let bit = match kind {
            Opaque::Texture => 29,
            Opaque::Sampler => 30,
            Opaque::Surface => 31,
        };
        let at = self.image_place(var, None)?;
        let mut word = operand(self.load_const32(0, at));
        let old = self.sm() < 90;
        if old && kind == Opaque::Sampler {
            word = operand(self.b.shr(false, word, imm(20)));
        }
        if old {
            word = operand(self.b.lop3(word, imm(1 << 31), rz(), 0xfc));
        }
        let v = self.b.collect(&[word, imm(1 << bit)]);
        if !old || kind != Opaque::Sampler {
            self.known[v] = Known::Image(at);
        }
        Ok(self.value_src(v))
    }

    /// What an operand names, or where its handle is.
    fn image_operand(o: &ptx::Operand) -> Result<Place> {
        Ok(match o {
            ptx::Operand::Reg(r) | ptx::Operand::Addr(ptx::Addr { base: AddrBase::Reg(r), offset: 0 }) => {
                Place::Register(*r)
            }
            ptx::Operand::Var(v, 0) | ptx::Operand::Addr(ptx::Addr { base: AddrBase::Var(v), offset: 0 }) => {
                Place::Named(*v)
            }
            _ => return Err("a texture or surface that is neither named nor in a register".into()),
        })
    }

    /// A word of constant bank 0 in a uniform register, from sm_90 on.
    fn bank_word(&mut self, at: u32) -> Value {
        let load = self.opts.target.info().constant_load;
        self.in_prologue(|b| b.def(load, &[], &[constant(0, at)]))
    }

    /// The offset in constant bank 0 of the word of a handle, if it is there.
    fn word_place(&mut self, place: Place) -> Result<Option<u32>> {
        Ok(match place {
            Place::Named(v) => Some(self.image_place(v, None)?),
            Place::Register(r) => {
                let v = self.handle_value(r)?;
                match self.known[v] {
                    Known::Image(at) => Some(at),
                    Known::Const(0, at) if at % 4 == 0 => Some(at),
                    _ => None,
                }
            }
        })
    }

    /// The lower word of a handle.
    fn handle_word(&mut self, place: Place) -> Result<Operand> {
        Ok(match place {
            Place::Named(v) => {
                let at = self.image_place(v, None)?;
                operand(self.load_const32(0, at))
            }
            Place::Register(r) => operand(Name::Part(self.handle_value(r)?, 0)),
        })
    }

    /// The handle in an operand.
    pub(crate) fn handle(&mut self, o: &ptx::Operand) -> Result<Handle> {
        self.sampled_handle(o, None)
    }

    /// The handle in an operand, and that of a sampler of its own.
    fn sampled_handle(&mut self, o: &ptx::Operand, sampler: Option<&ptx::Operand>) -> Result<Handle> {
        let place = Self::image_operand(o)?;
        let sampler = sampler.map(Self::image_operand).transpose()?;
        let at = match sampler {
            Some(_) if self.sm() < 90 => None,
            _ => self.word_place(place)?,
        };
        if self.sm() < 90 {
            return Ok(match (place, sampler, at) {
                (_, None, Some(at)) => Handle::Const(at),
                // In objects each has a word of its own.
                (Place::Named(image), Some(Place::Named(sampler)), _)
                    if !self.opts.relocatable || self.opts.extensible =>
                {
                    Handle::Const(self.image_place(image, Some(sampler))?)
                }
                (Place::Register(r), None, None) => Handle::Word(self.handle_value(r)?),
                (_, Some(sampler), _) => Handle::Word(self.joined(place, sampler)?),
                (Place::Named(_), None, None) => return Err("a texture without a place".into()),
            });
        }
        let second = match sampler {
            Some(s) => self.word_place(s)?,
            None => None,
        };
        if let Some(at) = at
            && sampler.is_some() == second.is_some()
        {
            let zero = operand(Name::Phys(Reg::URZ));
            let word = operand(self.bank_word(at));
            let second = second.map_or(zero, |at| operand(self.bank_word(at)));
            let pair = self.in_prologue(|b| b.def_macro(Macro::Collect, RegFile::UR, 2, &[word, second]));
            return Ok(Handle::Uniform(pair));
        }
        let word = self.handle_word(place)?;
        let word = self.b.copy(word);
        let second = match sampler {
            Some(s) => {
                let s = self.handle_word(s)?;
                Some(self.b.copy(s))
            }
            None => None,
        };
        Ok(Handle::Varying(word, second))
    }

    /// Before sm_90: the number of a texture, and above its 20 bits that of a sampler. The word of a sampler by name has it
    /// there already.
    fn joined(&mut self, texture: Place, sampler: Place) -> Result<Value> {
        let texture = self.handle_word(texture)?;
        let texture = self.b.and(texture, imm(0xf_ffff));
        let upper = match sampler {
            Place::Named(_) => self.handle_word(sampler)?,
            Place::Register(_) => {
                let word = self.handle_word(sampler)?;
                operand(self.b.shl(word, imm(20)))
            }
        };
        let word = self.b.lop3(operand(texture), upper, rz(), 0xfc);
        Ok(self.b.collect(&[operand(word), rz()]))
    }

    /// The words in one value of four registers; none at all is RZ.
    pub(crate) fn vector4(&mut self, words: &[Operand]) -> Operand {
        if words.is_empty() {
            return rz();
        }
        let mut parts: SmallVec<[Operand; 4]> = words.iter().cloned().collect();
        while parts.len() < 4 {
            let none = self.undefined(ori::ValueData { file: RegFile::R, width: 1 });
            parts.push(operand(none));
        }
        operand(self.b.collect(&parts))
    }

    /// What stands behind a uniform handle: a uniform register from sm_120 on, a number before.
    fn no_sampler(&self, op: Opcode, at: usize) -> Operand {
        match op.slots()[at].kind {
            SlotKind::Source if self.sm() >= 120 => operand(Name::Phys(Reg::URZ)),
            _ => Operand::Imm(0),
        }
    }

    /// Appends an instruction with its handle as the `at`th operand (and the one behind it, if it takes two); a
    /// handle that threads may not agree about is taken one value after the other.
    pub(crate) fn with_handle(
        &mut self,
        handle: &Handle,
        ops: Ops,
        mods: &[Mod],
        mut operands: Vec<Operand>,
        at: usize,
    ) -> Result<()> {
        match handle {
            Handle::Const(offset) => {
                operands.insert(at, Operand::Imm(0));
                operands.insert(at + 1, Operand::Imm(offset / 4));
                self.b.inst(ops[0], mods, &operands);
            }
            Handle::Word(v) => {
                if matches!(ops[2], Opcode::SULD_B | Opcode::SUST_B | Opcode::SURED_B) {
                    operands.insert(at, operand(Name::Part(*v, 0)));
                }
                self.b.inst(ops[2], mods, &operands);
            }
            Handle::Uniform(pair) => {
                operands.insert(at, operand(*pair));
                operands.insert(at + 1, self.no_sampler(ops[1], at + 1));
                self.b.inst(ops[1], mods, &operands);
            }
            Handle::Varying(word, sampler) => self.in_turns(&words_of(*word, *sampler), |l, u, guard| {
                let second = u.get(1).map_or(Name::Phys(Reg::URZ), |v| Name::Val(*v));
                let pair = l.b.def_macro(Macro::Collect, RegFile::UR, 2, &[operand(u[0]), operand(second)]);
                operands.insert(at, operand(pair));
                operands.insert(at + 1, l.no_sampler(ops[1], at + 1));
                let defs = ops[1].slots().iter().zip(&operands).filter(|(s, _)| s.role == Role::Def);
                let defs: Vec<Operand> = defs.map(|(_, o)| *o).collect();
                let kept: Vec<Name> = defs
                    .iter()
                    .map(|o| match o.as_reg().map(|r| r.reg) {
                        Some(Name::Val(v)) => Name::Val(l.undefined(l.b.func.values[v])),
                        Some(n) => n,
                        None => Name::Phys(Reg::PT),
                    })
                    .collect();
                l.b.guarded(guard, ops[1], mods, &operands, &kept);
                Ok(())
            })?,
        }
        Ok(())
    }

    /// A number in an array: at most 65535.
    fn array_index(&mut self, o: Operand) -> Operand {
        match as_imm(&o) {
            Some(n) => imm(n.min(0xffff)),
            None => operand(crate::convert::minmax(&mut self.b, false, false, o, imm(0xffff))),
        }
    }

    /// Offsets in texels as TEX and TLD (4 bits each) or TLD4 (8 bits each) take them.
    fn texel_offsets(&mut self, elems: &[VectorElem], bits: u32) -> Result<Operand> {
        let mut sum = rz();
        for (i, e) in elems.iter().take(3).enumerate() {
            let at = bits * i as u32;
            let mask = if bits == 8 { 0x3f } else { 0xf };
            let x = self.elem(e, Ty { kind: Kind::Signed, bits: 32 })?.low();
            sum = match (as_imm(&x), as_imm(&sum)) {
                (Some(n), Some(s)) => imm(s | (n & mask) << at),
                _ => {
                    let x = self.b.and(x, imm(mask));
                    let x = self.b.shl(operand(x), imm(at));
                    operand(self.b.lop3(operand(x), sum, rz(), 0xfc))
                }
            };
        }
        Ok(sum)
    }

    /// `tex`, `tld4`.
    pub fn texture(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(|l| l.texture_here(inst))
    }

    fn texture_here(&mut self, inst: &Statement<'_>) -> Result<()> {
        let g = geometry(inst).ok_or("texture access without a geometry")?;
        let ptx::Operand::Bracket(place) = &inst.operands[1] else { return self.unsupported(inst) };
        let (handle, coords) = match &place[..] {
            [handle, coords] => (self.handle(handle)?, coords),
            [handle, sampler, coords] => (self.sampled_handle(handle, Some(sampler))?, coords),
            _ => return self.unsupported(inst),
        };
        let gather = inst.op == Op::tld4;
        let from = if gather { Some(Type::f32) } else { inst.types().last() };
        let grad = inst.has(M::grad);
        let flat = !matches!(g.dim, Dim::D3 | Dim::Cube | Dim::ArrayCube);
        // Beside derivatives the bits of integers are taken as those of floating-point numbers, as TXD takes them (ptxas
        // 13.0.88 on every target).
        let (integers, as_they_are) = match from {
            Some(Type::s32) if grad => (false, true),
            Some(Type::s32) if !grad => (true, true),
            Some(Type::f32) => (false, false),
            _ => return self.unsupported(inst),
        };
        // Sample, number in the array, coordinates.
        let mut numbers: SmallVec<[Operand; 4]> = SmallVec::new();
        let skip = usize::from(g.array) + usize::from(g.multisample);
        let elems: Vec<VectorElem> = match coords {
            ptx::Operand::Vector(v) => v.to_vec(),
            o => match one(o) {
                Some(e) => vec![e],
                None => return self.unsupported(inst),
            },
        };
        if elems.len() < skip + g.coords {
            return Err("too few coordinates".into());
        }
        let mut extra: SmallVec<[Operand; 4]> = SmallVec::new();
        if g.multisample {
            extra.push(self.elem(&elems[0], Ty::B32)?.low());
        }
        let array = match g.array {
            true => {
                let n = self.elem(&elems[skip - 1], Ty::U32)?.low();
                Some(self.array_index(n))
            }
            false => None,
        };
        for e in &elems[skip..skip + g.coords] {
            numbers.push(self.elem(e, if as_they_are { Ty::B32 } else { F32 })?.low());
        }
        let scale = match g.dim {
            Dim::Cube | Dim::ArrayCube => self.onto_cube(&mut numbers),
            _ => rz(),
        };
        let mut dim = g.dim;
        let independent = self.module.targets.iter().any(|t| t == "texmode_independent");
        if dim == Dim::D1 && !as_they_are && !independent {
            // One coordinate is the first of two, unless textures and samplers are apart.
            dim = Dim::D2;
            numbers.push(rz());
        }
        let mut rest = inst.operands.from(2).iter().enumerate();
        let level = match inst.has(M::level) {
            true => Some(rest.next().ok_or("access without a level")?.1),
            false => None,
        };
        let derivatives = match grad {
            true => Some((rest.next().ok_or("no derivatives")?.1, rest.next().ok_or("no derivatives")?.1)),
            false => None,
        };
        let (mut offsets, mut reference) = (None, None);
        for (n, o) in rest {
            // A list of one is an offset, a value alone a depth.
            let list = match o {
                ptx::Operand::Vector(v) => Some(v.to_vec()),
                o if inst.plain.is_braced(2 + n) => Some(vec![one(o).ok_or("an offset that is no value")?]),
                _ => None,
            };
            match list {
                Some(v) if offsets.is_none() && reference.is_none() => {
                    offsets = Some(self.texel_offsets(&v, if gather { 8 } else { 4 })?);
                }
                // Nothing is compared with samples (ptxas 13.0.88).
                None if reference.is_none() && g.multisample => {}
                None if reference.is_none() => reference = Some(self.src(o, F32)?.low()),
                _ => return self.unsupported(inst),
            }
        }
        let word = match &handle {
            Handle::Word(v) => Some(operand(Name::Part(*v, 0))),
            _ => None,
        };
        let mut derived = None;
        if let Some((dx, dy)) = derivatives {
            // TXD compares nothing.
            if flat && reference.is_none() {
                return self.by_derivatives(inst, &handle, dim, word, &numbers, array, offsets, dx, dy);
            }
            let numbers = &numbers[..g.coords];
            let cube = matches!(dim, Dim::Cube | Dim::ArrayCube);
            derived = Some(self.level_of_derivatives(&handle, numbers, cube, scale, [dx, dy])?);
        }
        numbers.insert_many(0, array);
        extra.insert_many(0, word);
        let op = match (gather, integers) {
            (true, _) => TLD4,
            (_, true) => TLD,
            _ => TEX,
        };
        let mut mods: Vec<Mod> = Vec::new();
        match (op, level) {
            (TEX, None) => extra.push(derived.unwrap_or_else(|| fimm(BASE_LEVEL))),
            (TEX, Some(l)) => extra.push(self.src(l, F32)?.low()),
            (_, Some(l)) => extra.push(self.src(l, Ty::B32)?.low()),
            _ => {}
        }
        extra.extend(offsets);
        extra.extend(reference);
        let old = self.sm() < 90;
        let close = old && numbers.len() + extra.len() <= 4;
        mods.extend(close.then_some(Mod::SCR));
        if gather {
            mods.push(match inst.one_of(&[M::r, M::g, M::b, M::a]) {
                Some(M::r) => Mod::R,
                Some(M::g) => Mod::G,
                Some(M::b) => Mod::B,
                _ => Mod::A,
            });
        }
        mods.extend(word.is_some().then_some(Mod::B));
        match (op, level) {
            (TLD4, _) => {}
            (TLD, None) => mods.push(Mod::LZ),
            _ => mods.push(Mod::LL),
        }
        mods.extend(offsets.is_some().then_some(Mod::AOFFI));
        mods.extend((op == TLD && level.is_some()).then_some(Mod::CL));
        mods.extend(g.multisample.then_some(Mod::MS));
        mods.extend(reference.is_some().then_some(Mod::DC));
        if close {
            // Few enough are dealt to both vectors.
            let mut all = numbers;
            all.append(&mut extra);
            extra = all.drain(all.len().div_ceil(2)..).collect();
            numbers = all;
        }
        let sources = [self.vector4(&numbers), self.vector4(&extra)];
        self.fetch(inst, &handle, op, &mods, dim, sources)
    }

    /// Divides a direction by its largest component; by what it is multiplied for that.
    fn onto_cube(&mut self, v: &mut [Operand]) -> Operand {
        let max = |b: &mut Builder<'_>, x: Operand, y: Operand| {
            b.def(Opcode::FMNMX, &[], &[fabs(x), fabs(y), crate::emit::never()])
        };
        let largest = max(&mut self.b, v[0], v[1]);
        let largest = max(&mut self.b, v[2], operand(largest));
        let scale = self.b.def(Opcode::MUFU, &[Mod::RCP], &[operand(largest)]);
        for x in v {
            *x = operand(self.b.def(Opcode::FMUL, &[], &[*x, operand(scale)]));
        }
        operand(scale)
    }

    /// `tex.grad`: TXD, which has the derivatives by turns, and the number in the array behind the coordinates, with
    /// the offsets in its upper half.
    #[allow(clippy::too_many_arguments)]
    fn by_derivatives(
        &mut self,
        inst: &Statement<'_>,
        handle: &Handle,
        dim: Dim,
        word: Option<Operand>,
        coords: &[Operand],
        array: Option<Operand>,
        offsets: Option<Operand>,
        dx: &ptx::Operand,
        dy: &ptx::Operand,
    ) -> Result<()> {
        if !matches!(dim, Dim::D1 | Dim::D2 | Dim::Array1 | Dim::Array2) {
            return self.unsupported(inst);
        }
        let mut by: SmallVec<[Operand; 4]> = SmallVec::new();
        let elems = |o: &ptx::Operand| match o {
            ptx::Operand::Vector(v) => Some(v.to_vec()),
            o => one(o).map(|e| vec![e]),
        };
        let (Some(dx), Some(dy)) = (elems(dx), elems(dy)) else { return self.unsupported(inst) };
        for i in 0..coords.len() {
            for d in [&dx, &dy] {
                by.push(match d.get(i) {
                    Some(e) => self.elem(e, F32)?.low(),
                    None => rz(),
                });
            }
        }
        let mut first: SmallVec<[Operand; 4]> = SmallVec::new();
        first.extend(word);
        first.extend(coords.iter().cloned());
        let high = match &offsets {
            Some(o) => Some(match as_imm(o) {
                Some(n) => imm(n << 16),
                None => operand(self.b.shl(*o, imm(16))),
            }),
            None => None,
        };
        match (array, high) {
            (Some(a), Some(h)) => first.push(operand(self.b.lop3(a, h, rz(), 0xfc))),
            (a, h) => first.extend(a.or(h)),
        }
        let mut mods: Vec<Mod> = Vec::new();
        mods.extend(word.is_some().then_some(Mod::B));
        mods.extend(offsets.is_some().then_some(Mod::AOFFI));
        let sources = [self.vector4(&first), self.vector4(&by)];
        self.fetch(inst, handle, TXD, &mods, dim, sources)
    }

    /// The instruction itself, and its four results.
    fn fetch(
        &mut self,
        inst: &Statement<'_>,
        handle: &Handle,
        op: Ops,
        mods: &[Mod],
        dim: Dim,
        [first, second]: [Operand; 2],
    ) -> Result<()> {
        let dsts = crate::memory::destinations(inst)?;
        let [low, high] = [(); 2].map(|()| self.b.func.add_value(RegFile::R, 2));
        let resident = match &inst.operands[0] {
            ptx::Operand::Resident(_, p) => Some((*p, self.b.func.add_value(RegFile::P, 1))),
            _ => None,
        };
        let operands = vec![
            resident.map_or_else(pt, |(_, missing)| operand(missing)),
            operand(high),
            operand(low),
            first,
            second,
            Operand::Imm(dim as u32),
            Operand::Imm(15),
        ];
        self.with_handle(handle, op, mods, operands, 5)?;
        if let Some((p, missing)) = resident {
            let mark = self.mark();
            let v = self.b.plop(operand(missing), pt(), 0x0f);
            self.assign(p, v, mark);
        }
        let words: Vec<Operand> =
            [low, high].iter().flat_map(|v| [0, 1].map(|i| operand(Name::Part(*v, i)))).collect();
        let to = inst.ty(0).ok_or("texture access without a type")?;
        match to {
            Type::f16 | Type::f16x2 => {
                let none = Narrowing::default();
                let near = crate::convert::Round::Nearest;
                let halves: Vec<Operand> = words
                    .iter()
                    .map(|w| match self.sm() {
                        75 => {
                            let v = self.b.def(Opcode::F2F, &[Mod::F16, Mod::F32], std::slice::from_ref(w));
                            operand(v)
                        }
                        _ => operand(convert_half::pack_halves(&mut self.b, false, none, near, rz(), *w)),
                    })
                    .collect();
                for (i, d) in dsts.iter().enumerate() {
                    let Some(d) = *d else { continue };
                    let mark = self.mark();
                    let v = match to {
                        Type::f16 => self.b.copy(halves[i]),
                        _ => self.b.prmt(halves[2 * i], imm(0x5410), halves[2 * i + 1]),
                    };
                    self.assign(d, v, mark);
                }
            }
            _ => {
                for (d, w) in dsts.iter().zip(words) {
                    let Some(d) = *d else { continue };
                    let mark = self.mark();
                    let v = self.b.copy(w);
                    self.assign(d, v, mark);
                }
            }
        }
        Ok(())
    }

    /// `txq`, `suq`: what TXQ tells; the rest is in tables of the driver.
    pub fn texture_query(&mut self, inst: &Statement<'_>) -> Result<()> {
        debug_assert!(self.guard == ALWAYS || inst.plain.guard.is_some());
        let mask = match inst.one_of(&[M::width, M::height, M::depth]) {
            Some(M::width) => 1,
            Some(M::height) => 2,
            Some(_) => 4,
            None => return self.descriptor_query(inst),
        };
        self.branch_around(|l| {
            let d = l.dst(&inst.operands[0])?;
            let handle = l.handle(&inst.operands[1])?;
            let level = match inst.operands.get(2) {
                Some(o) => l.src(o, Ty::U32)?.low(),
                None => rz(),
            };
            let [v, _] = l.dimensions(&handle, level, mask)?;
            let v = l.b.copy(operand(Name::Part(v, 0)));
            l.write(d, v);
            Ok(())
        })
    }

    /// What TXQ tells of a level, two pairs of registers: width, height, depth and the number of levels, of those that a
    /// mask names one after another.
    pub(crate) fn dimensions(&mut self, handle: &Handle, level: Operand, mask: u32) -> Result<[Value; 2]> {
        let mut words: SmallVec<[Operand; 2]> = SmallVec::new();
        let mut mods: SmallVec<[Mod; 1]> = SmallVec::new();
        if let Handle::Word(v) = handle {
            words.push(operand(Name::Part(*v, 0)));
            mods.push(Mod::B);
        }
        words.push(operand(self.b.copy(level)));
        if words.len() == 1 {
            let none = self.undefined(ori::ValueData { file: RegFile::R, width: 1 });
            words.push(operand(none));
        }
        let source = self.b.collect(&words);
        let [low, high] = [(); 2].map(|()| self.b.func.add_value(RegFile::R, 2));
        let upper = if mask.count_ones() > 2 { operand(high) } else { rz() };
        let dimension = Operand::Imm(0);
        let operands = vec![upper, operand(low), operand(source), dimension, Operand::Imm(mask)];
        self.with_handle(handle, TXQ, &mods, operands, 4)?;
        Ok([low, high])
    }

    /// The other queries: words of descriptors that the driver keeps in tables (`descriptors`). It says where they are in
    /// constant bank 0, and how long a descriptor is by the value of a symbol.
    fn descriptor_query(&mut self, inst: &Statement<'_>) -> Result<()> {
        let independent = self.module.targets.iter().any(|t| t == "texmode_independent");
        let tables = descriptors::tables(inst.op == Op::suq, independent);
        let found = tables.iter().find_map(|t| Some((t, t.words.iter().find(|(m, _)| inst.has(*m))?.1)));
        let Some((table, word)) = found else { return self.unsupported(inst) };
        let at = descriptors::bank_place(self.sm()) + table.place;
        self.branch_around(|l| {
            let d = l.dst(&inst.operands[0])?;
            let place = Self::image_operand(&inst.operands[1])?;
            let handle = l.handle_word(place)?;
            let number = match (l.sm(), table.samplers, place) {
                // Of a word with both, the sampler's is the upper part.
                (..90, true, Place::Named(_)) => operand(l.b.shr(false, handle, imm(20))),
                (..90, true, _) => operand(l.b.and(handle, imm(0xfff))),
                (..90, ..) => operand(l.b.and(handle, imm(0xf_ffff))),
                _ => handle,
            };
            let size = l.named_part(ori::Part::Number, table.size.into());
            let distance = l.b.imad(number, operand(size), imm(word));
            let base = l.driver_pair(at).pair();
            let address = l.b.add64(&base, &Pair::parts(operand(distance), rz()));
            let access = Access {
                space: AccessSpace::Global,
                size: 4,
                signed: false,
                order: Order::Weak,
                mmio: false,
                evict: None,
                prefetch: None,
                constant: true,
                collective: false,
            };
            let at = Address { base: Some(Name::Val(address)), wide: true, offset: 0 };
            let at = at.operand(l.desc());
            let v = access::load(&mut l.b, &access, at, ALWAYS, None);
            l.write(d, v);
            Ok(())
        })
    }

    /// `istypep`: a bit of the handle.
    pub fn handle_type(&mut self, inst: &Statement<'_>) -> Result<()> {
        let bit = match inst.one_of(&[M::texref, M::samplerref, M::surfref]) {
            Some(M::texref) => 29,
            Some(M::samplerref) => 30,
            Some(M::surfref) => 31,
            _ => return self.unsupported(inst),
        };
        let d = self.dst(&inst.operands[0])?;
        let handle = self.src(&inst.operands[1], Ty { bits: 64, ..Ty::B32 })?.pair();
        let mark = self.mark();
        let set = self.b.and(handle.hi, Operand::Imm(1 << bit));
        let p = self.b.isetp(Mod::NE, false, operand(set), rz());
        self.assign(d, p, mark);
        Ok(())
    }
}
