//! Surfaces: `suld`, `sust`, `sured`.

use crate::emit::{Emit, imm, pt};
use crate::func::{Lower, Result, ty};
use crate::statement::Statement;
use crate::texture::{Handle, one};
use crate::types::{Kind, Src, Ty};
use ori::{Name, Operand, operand};
use ptx::{Mod as M, Op};
use sass::{AddrWidth, Mod, Opcode, RegFile};
use smallvec::SmallVec;

/// Spelling of the dimensions; how many coordinates; whether an array.
fn shape(inst: &Statement<'_>) -> Option<(Mod, usize, bool)> {
    Some(match inst.one_of(&[M::_1d, M::_2d, M::_3d, M::a1d, M::a2d])? {
        M::_1d => (Mod::_1D, 1, false),
        M::_2d => (Mod::_2D, 2, false),
        M::_3d => (Mod::_3D, 3, false),
        M::a1d => (Mod::_1D_ARRAY, 1, true),
        _ => (Mod::_2D_ARRAY, 2, true),
    })
}

impl Lower<'_, '_> {
    /// Handle and coordinates; the number in an array comes last.
    fn surface_place(&mut self, inst: &Statement<'_>, n: usize) -> Result<(Handle, Operand)> {
        let (_, count, array) = shape(inst).ok_or("surface access without a geometry")?;
        let ptx::Operand::Bracket(place) = &inst.operands[n] else { return self.unsupported(inst) };
        let [handle, coords] = &place[..] else { return self.unsupported(inst) };
        let handle = self.handle(handle)?;
        let elems: Vec<ptx::VectorElem> = match coords {
            ptx::Operand::Vector(v) => v.to_vec(),
            o => match one(o) {
                Some(e) => vec![e],
                None => return self.unsupported(inst),
            },
        };
        let skip = usize::from(array);
        if elems.len() < skip + count {
            return Err("too few coordinates".into());
        }
        let mut words: SmallVec<[Operand; 4]> = SmallVec::new();
        for e in elems[skip..skip + count].iter().chain(elems.iter().take(skip)) {
            words.push(self.elem(e, Ty::B32)?.low());
        }
        let Operand::Reg(base) = self.vector(&words) else { return self.unsupported(inst) };
        let at = Operand::Addr {
            desc: None,
            base: Some(base.reg),
            width: AddrWidth::R32,
            uniform: None,
            offset: 0,
        };
        Ok((handle, at))
    }

    /// The words in one value of as many registers, four for three.
    fn vector(&mut self, words: &[Operand]) -> Operand {
        match words {
            [one] => operand(self.b.reg(one)),
            [_, _] => operand(self.b.collect(words)),
            _ => self.vector4(words),
        }
    }

    /// Eviction priority, then size (or whatever comes there), then order and clamping.
    fn surface_mods(
        &self,
        inst: &Statement<'_>,
        before: &[Mod],
        middle: &[Mod],
        mask: Option<Mod>,
    ) -> Vec<Mod> {
        let mut mods = before.to_vec();
        mods.extend(inst.has(M::cs).then_some(Mod::EF));
        mods.extend_from_slice(middle);
        let system = inst.op == Op::sured || inst.one_of(&[M::cv, M::wt, M::cg]).is_some();
        mods.push(Mod::STRONG);
        mods.push(match (system, self.sm()) {
            (true, _) => Mod::SYS,
            (_, 75) => Mod::CTA,
            _ => Mod::SM,
        });
        mods.extend(mask);
        mods.extend(match inst.one_of(&[M::trap, M::clamp, M::zero]) {
            Some(M::trap) => Some(Mod::TRAP),
            Some(M::zero) => Some(Mod::IGN),
            _ => None,
        });
        mods
    }

    /// `suld.b`.
    pub fn surface_load(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(|l| {
            let t = ty(inst.ty(0).ok_or("surface access without a type")?);
            let dsts = crate::memory::destinations(inst)?;
            let (dim, ..) = shape(inst).ok_or("surface access without a geometry")?;
            let (handle, at) = l.surface_place(inst, 1)?;
            let bits = u32::from(t.bits) * dsts.len() as u32;
            let size = size(bits).ok_or("surface access of this size")?;
            let mods = l.surface_mods(inst, &[Mod::D, Mod::BA, dim], size, None);
            let v = l.b.func.add_value(RegFile::R, bits.div_ceil(32) as u8);
            let operands = vec![pt(), operand(v), at];
            l.with_handle(&handle, [Opcode::SULD, Opcode::SULD_U, Opcode::SULD_B], &mods, operands, 3)?;
            let mut words: Vec<Operand> = match bits {
                ..=32 => vec![operand(v)],
                _ => (0..(bits / 32) as u8).map(|i| operand(Name::Part(v, i))).collect(),
            };
            if bits < 32 {
                words[0] = operand(l.b.and(words[0], imm((1 << bits) - 1)));
            }
            l.scatter(&dsts, t, &words);
            Ok(())
        })
    }

    /// `sust.b`, `sust.p`.
    pub fn surface_store(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(|l| {
            let t = ty(inst.ty(0).ok_or("surface access without a type")?);
            let bits = Ty { kind: if t.is_int() { Kind::Bits } else { t.kind }, ..t };
            let (dim, ..) = shape(inst).ok_or("surface access without a geometry")?;
            let (handle, at) = l.surface_place(inst, 0)?;
            let mut sources: Vec<Src> = Vec::new();
            match &inst.operands[1] {
                ptx::Operand::Vector(elems) => {
                    for e in elems {
                        sources.push(l.elem(e, bits)?);
                    }
                }
                o => sources.push(l.src(o, bits)?),
            }
            let mods = if inst.has(M::p) {
                let mask = match sources.len() {
                    1 => Some(Mod::R),
                    2 => Some(Mod::RG),
                    _ => None,
                };
                l.surface_mods(inst, &[Mod::P, dim], &[], mask)
            } else {
                let size =
                    size(u32::from(t.bits) * sources.len() as u32).ok_or("surface access of this size")?;
                l.surface_mods(inst, &[Mod::D, Mod::BA, dim], size, None)
            };
            let words: Vec<Operand> = match (&sources[..], t.bits) {
                ([one], 8 | 16 | 32) => vec![one.low()],
                (many, 32) => many.iter().map(Src::low).collect(),
                (many, 64) => many.iter().flat_map(|s| [s.pair().lo, s.pair().hi]).collect(),
                (many, n) => {
                    let v = l.pack_words(n, many)?;
                    match l.b.func.values[v].width {
                        1 => vec![operand(v)],
                        w => (0..w).map(|i| operand(Name::Part(v, i))).collect(),
                    }
                }
            };
            let data = l.vector(&words);
            let operands = vec![at, data];
            l.with_handle(&handle, [Opcode::SUST, Opcode::SUST_U, Opcode::SUST_B], &mods, operands, 2)?;
            Ok(())
        })
    }

    /// `sured.b`, `sured.p`.
    pub fn surface_reduce(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(|l| {
            let t = ty(inst.ty(0).ok_or("surface access without a type")?);
            let (dim, ..) = shape(inst).ok_or("surface access without a geometry")?;
            let (handle, at) = l.surface_place(inst, 0)?;
            let action = match inst.one_of(&[M::add, M::min, M::max, M::and, M::or]) {
                Some(M::add) => Mod::ADD,
                Some(M::min) => Mod::MIN,
                Some(M::max) => Mod::MAX,
                Some(M::and) => Mod::AND,
                Some(M::or) => Mod::OR,
                _ => return l.unsupported(inst),
            };
            let formatted = inst.has(M::p);
            // What the format says of signs matters to minima and maxima alone.
            let compares = matches!(action, Mod::MIN | Mod::MAX);
            let kind = match (formatted, t.bits, t.is_signed()) {
                (true, 32, _) => compares.then_some(Mod::SD32),
                (true, ..) => Some(Mod::SD64),
                (_, 32, true) => Some(Mod::S32),
                (_, 32, _) => None,
                (_, _, true) => Some(Mod::S64),
                _ => Some(Mod::U64),
            };
            let mut before = vec![Mod::D];
            before.extend((!formatted).then_some(Mod::BA));
            before.extend([dim, action]);
            let middle: Vec<Mod> = kind.into_iter().collect();
            let mods = l.surface_mods(inst, &before, &middle, None);
            let s = l.src(&inst.operands[1], t)?;
            let data = match t.bits {
                64 => l.b.pair(&s.pair()),
                _ => l.b.reg(&s.low()),
            };
            let operands = vec![at, operand(data)];
            l.with_handle(&handle, [Opcode::SURED, Opcode::SURED_U, Opcode::SURED_B], &mods, operands, 2)?;
            Ok(())
        })
    }
}

/// Spelling of a size in bits.
fn size(bits: u32) -> Option<&'static [Mod]> {
    Some(match bits {
        8 => &[Mod::U8],
        16 => &[Mod::U16],
        32 => &[],
        64 => &[Mod::_64],
        128 => &[Mod::_128],
        _ => return None,
    })
}
