//! Bulk copies and reductions, and copies of tiles of tensors: the copy engine executes them once for a warp, PTX once for every
//! thread. Those that count on a barrier or change what they find have a turn for each thread; of the others one for each
//! combination of operands is enough.

use crate::emit::{Emit, as_imm, imm, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{Macro, Name, Operand, Value, operand};
use ptx::{Mod as M, Type};
use sass::{Mod, Opcode, Reg, RegFile};

/// Words that stand in consecutive uniform registers as one operand: so many of the list that a copy has.
type Span = std::ops::Range<usize>;

/// No address where one may stand.
const NOWHERE: Operand =
    Operand::Addr { desc: None, base: None, width: sass::AddrWidth::R32, uniform: None, offset: 0 };

/// What a copy takes from uniform registers.
#[derive(Default)]
struct Words {
    list: Vec<Operand>,
}

impl Words {
    fn push(&mut self, words: impl IntoIterator<Item = Operand>) -> Span {
        let first = self.list.len();
        self.list.extend(words);
        first..self.list.len()
    }
}

/// The space that is written: the one that is named first.
fn written(inst: &Statement<'_>) -> Option<M> {
    inst.find(|m| matches!(m, M::global | M::shared_cta | M::shared_cluster).then_some(m))
}

/// What a reduction does, and to what.
fn reduction(inst: &Statement<'_>) -> Option<Mod> {
    const ACTIONS: [(M, Mod); 8] = [
        (M::add, Mod::ADD),
        (M::min, Mod::MIN),
        (M::max, Mod::MAX),
        (M::inc, Mod::INC),
        (M::dec, Mod::DEC),
        (M::and, Mod::AND),
        (M::or, Mod::OR),
        (M::xor, Mod::XOR),
    ];
    ACTIONS.iter().find(|(m, _)| inst.has(*m)).map(|(_, action)| *action)
}

/// UBLKRED's spelling of the elements.
fn elements(t: Type) -> Option<&'static [Mod]> {
    Some(match t {
        Type::b32 | Type::u32 => &[],
        Type::s32 => &[Mod::S32],
        Type::b64 | Type::u64 => &[Mod::U64],
        Type::s64 => &[Mod::S64],
        Type::f16 => &[Mod::F16, Mod::RN],
        Type::bf16 => &[Mod::BF16, Mod::RN],
        Type::f32 => &[Mod::F32, Mod::RN],
        Type::f64 => &[Mod::F64, Mod::RN],
        _ => return None,
    })
}

impl Lower<'_, '_> {
    /// An operand of several uniform registers, as an address.
    fn uniform_tuple(&mut self, u: &[Value], span: &Span) -> Operand {
        let at: Name = match &u[span.clone()] {
            [] => return NOWHERE,
            [one] => (*one).into(),
            many => {
                let words: Vec<Operand> = many.iter().map(|v| operand(*v)).collect();
                self.b.def_macro(Macro::Collect, RegFile::UR, words.len() as u8, &words).into()
            }
        };
        Self::uniform_address(at)
    }

    /// A single uniform register, or none.
    fn uniform_word(u: &[Value], span: &Span) -> Operand {
        u.get(span.clone()).and_then(|v| v.first()).map_or(operand(Name::Phys(Reg::URZ)), |v| operand(*v))
    }

    /// Executes `op` with these words: for each thread, or for each combination.
    fn copy_engine(
        &mut self,
        for_each: bool,
        (op, mods): (Opcode, &[Mod]),
        words: &Words,
        operands: impl FnOnce(&mut Self, &[Value]) -> Vec<Operand>,
    ) -> Result<()> {
        let run = |l: &mut Self, u: &[Value], _: ori::Guard| {
            let operands = operands(l, u);
            l.b.inst(op, mods, &operands);
            Ok(())
        };
        if for_each { self.one_by_one(&words.list, run) } else { self.in_turns(&words.list, run) }
    }

    /// Bytes in units of 16 in the lower half, a mask of blocks or bytes in the upper.
    fn bulk_size(&mut self, size: &ptx::Operand, mask: Option<&ptx::Operand>) -> Result<Operand> {
        let bytes = self.src(size, Ty::U32)?.low();
        let mask = match mask {
            Some(o) => self.src(o, Ty { bits: 16, ..Ty::U32 })?.low(),
            None => rz(),
        };
        let units = match as_imm(&bytes) {
            Some(n) => imm(n >> 4),
            None => operand(self.b.shr(false, bytes, imm(4))),
        };
        Ok(self.halves(units, mask))
    }

    /// The lower halves of two words as one.
    fn halves(&mut self, low: Operand, high: Operand) -> Operand {
        match (as_imm(&low), as_imm(&high)) {
            (Some(low), Some(high)) => imm(low & 0xffff | high << 16),
            _ => operand(self.b.prmt(low, imm(0x5410), high)),
        }
    }

    /// The words of the policy that stands at `at`.
    fn policy(&mut self, inst: &Statement<'_>, at: usize) -> Result<Vec<Operand>> {
        if !inst.has(M::L2_cache_hint) {
            return Ok(Vec::new());
        }
        let policy = self.src(&inst.operands[at], Ty { bits: 64, ..Ty::B32 })?.pair();
        Ok(vec![policy.lo, policy.hi])
    }

    /// `cp.async.bulk`, `cp.reduce.async.bulk`, `cp.async.bulk.prefetch` of contiguous bytes.
    pub(crate) fn bulk_copy(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::prefetch) {
            return self.bulk_prefetch(inst);
        }
        inst.moot(&[M::_async, M::bulk_group, M::mbarrier_complete_tx_bytes]);
        let reduces = inst.has(M::reduce);
        let to_shared = written(inst) != Some(M::global);
        let from_shared = !to_shared || !inst.has(M::global);
        let masked = inst.has(M::cp_mask);
        let multicast = inst.has(M::multicast_cluster);
        let to_cluster = written(inst) == Some(M::shared_cluster) && inst.has(M::global);
        // Those that may go to another block are calls of the driver's already.
        if to_cluster && self.opts.target.info().own_copies {
            return self.unsupported(inst);
        }
        let (to, from) = (self.addr_operand(&inst.operands[0])?, self.addr_operand(&inst.operands[1])?);
        // Operands after the size: the barrier, its mask of blocks, the policy, the mask of bytes.
        let (policy, mask) = match (to_shared, multicast, masked) {
            (true, true, _) => (5, Some(4)),
            (true, false, _) => (4, None),
            (false, _, true) => (inst.operands.len() - 2, Some(inst.operands.len() - 1)),
            (false, _, false) => (3, None),
        };
        let mut words = Words::default();
        let to = match to_shared {
            true => {
                let barrier = self.addr_operand(&inst.operands[3])?;
                let parts = [self.shared_word(to)?, self.shared_word(barrier)?];
                words.push(parts)
            }
            false => words.push(self.address_words(to)?),
        };
        let from = match from_shared {
            true => words.push([self.shared_word(from)?]),
            false => words.push(self.address_words(from)?),
        };
        let size = self.bulk_size(&inst.operands[2], mask.map(|at| &inst.operands[at]))?;
        let size = words.push([size]);
        let policy = self.policy(inst, policy)?;
        let policy = words.push(policy);
        let mut mods =
            vec![if to_shared { Mod::S } else { Mod::G }, if from_shared { Mod::S } else { Mod::G }];
        let op = if reduces { Opcode::UBLKRED } else { Opcode::UBLKCP };
        if reduces {
            inst.moot(&[M::noftz]);
            let (Some(action), Some(elements)) = (reduction(inst), inst.ty(0).and_then(elements)) else {
                return self.unsupported(inst);
            };
            mods.push(action);
            mods.extend(elements);
        }
        if multicast {
            mods.push(Mod::MULTICAST);
        }
        if masked {
            mods.push(Mod::DST_G_BYTE_MASK);
        }
        self.copy_engine(reduces || to_shared, (op, &mods), &words, |l, u| {
            vec![
                l.uniform_tuple(u, &to),
                l.uniform_tuple(u, &from),
                Self::uniform_word(u, &size),
                l.uniform_tuple(u, &policy),
            ]
        })
    }

    /// `cp.async.bulk.prefetch`.
    fn bulk_prefetch(&mut self, inst: &Statement<'_>) -> Result<()> {
        inst.moot(&[M::_async, M::L2, M::global]);
        let from = self.addr_operand(&inst.operands[0])?;
        let mut words = Words::default();
        let from = words.push(self.address_words(from)?);
        let size = self.bulk_size(&inst.operands[1], None)?;
        let size = words.push([size]);
        let policy = self.policy(inst, 2)?;
        let policy = words.push(policy);
        self.copy_engine(false, (Opcode::UBLKPF, &[Mod::L2]), &words, |l, u| {
            vec![l.uniform_tuple(u, &from), Self::uniform_word(u, &size), l.uniform_tuple(u, &policy)]
        })
    }

    /// Offsets of pixels in one half of a word: one of 16 bits, two of 8, three of 5; where only the width is gone through
    /// (`along_w`) the halo and an offset behind it.
    fn column_offsets(&mut self, o: &ptx::Operand, along_w: bool) -> Result<Operand> {
        let elems = match o {
            ptx::Operand::Vector(v) => v.to_vec(),
            ptx::Operand::Reg(r) => vec![ptx::VectorElem::Reg(*r)],
            _ => return Err("offsets of pixels are in registers".into()),
        };
        let bits = match (along_w, elems.len()) {
            (true, _) => 11,
            (false, 2) => 8,
            (false, 3) => 5,
            _ => 0,
        };
        let mut sum: Option<Operand> = None;
        for (i, e) in elems.iter().enumerate() {
            let offset = self.elem(e, Ty { bits: 16, ..Ty::U32 })?.low();
            // The first of two bytes has no more than that.
            let offset = match bits {
                8 if i == 0 => operand(self.b.and(offset, imm(0xff))),
                _ => offset,
            };
            sum = Some(match sum {
                None => offset,
                Some(sum) => {
                    let shifted = self.b.shl(offset, imm(bits * i as u32));
                    operand(self.b.iadd(sum, operand(shifted)))
                }
            });
        }
        Ok(sum.unwrap_or_else(rz))
    }

    /// `cp.async.bulk.tensor`, its reductions and prefetches: tiles, or rows that are named one by one.
    pub(crate) fn tensor_copy(&mut self, inst: &Statement<'_>) -> Result<()> {
        let dims = match inst.one_of(&[M::_1d, M::_2d, M::_3d, M::_4d, M::_5d]) {
            Some(M::_1d) => Mod::_1D,
            Some(M::_2d) => Mod::_2D,
            Some(M::_3d) => Mod::_3D,
            Some(M::_4d) => Mod::_4D,
            Some(M::_5d) => Mod::_5D,
            _ => return self.unsupported(inst),
        };
        inst.moot(&[M::_async, M::tile, M::bulk_group, M::mbarrier_complete_tx_bytes, M::cta_group_1]);
        let (prefetches, reduces) = (inst.has(M::prefetch), inst.has(M::reduce));
        let loads = written(inst) != Some(M::global) && !prefetches;
        let multicast = inst.has(M::multicast_cluster);
        let to_cluster = written(inst) == Some(M::shared_cluster) && inst.has(M::global) && !prefetches;
        // Those that may go to another block are calls of the driver's already.
        if to_cluster && self.opts.target.info().own_copies {
            return self.unsupported(inst);
        }
        let mut mods = vec![dims];
        if prefetches {
            inst.moot(&[M::L2]);
            mods.insert(0, Mod::L2);
        }
        match inst.one_of(&[M::tile_gather4, M::tile_scatter4]) {
            Some(M::tile_gather4) => mods.push(Mod::GATHER4),
            Some(_) => mods.push(Mod::SCATTER4),
            None => {}
        }
        let by_columns = inst.one_of(&[M::im2col, M::im2col_no_offs, M::im2col_w, M::im2col_w_128]);
        mods.extend(by_columns.map(|m| match m {
            M::im2col_w => Mod::W,
            M::im2col_w_128 => Mod::W128,
            _ => Mod::IM2COL,
        }));
        // Offsets stand where the coordinates' operand, and the barrier's if there is one, end.
        let offsets = by_columns.filter(|m| *m != M::im2col_no_offs).map(|_| if prefetches { 1 } else { 3 });
        if multicast {
            mods.push(Mod::MULTICAST);
        }
        if inst.has(M::cta_group_2) {
            mods.push(Mod::_2CTA);
        }
        if reduces {
            let Some(action) = reduction(inst) else { return self.unsupported(inst) };
            mods.push(action);
        }
        let at = usize::from(loads);
        let ptx::Operand::Bracket(tensor) = &inst.operands[at] else { return self.unsupported(inst) };
        let [map, coordinates] = &tensor[..] else { return self.unsupported(inst) };
        let map = match map {
            ptx::Operand::Addr(a) => self.address_words(a)?,
            o => {
                let map = self.src(o, Ty { bits: 64, ..Ty::B32 })?.pair();
                [map.lo, map.hi]
            }
        };
        let mut tile = Vec::new();
        if !prefetches {
            let shared = self.addr_operand(&inst.operands[1 - at])?;
            tile.push(self.shared_word(shared)?);
        }
        if loads {
            let barrier = self.addr_operand(&inst.operands[2])?;
            tile.push(self.shared_word(barrier)?);
        }
        match coordinates {
            ptx::Operand::Vector(v) => {
                for e in v {
                    tile.push(self.elem(e, Ty::U32)?.low());
                }
            }
            o => tile.push(self.src(o, Ty::U32)?.low()),
        }
        let mut words = Words::default();
        let tile = words.push(tile);
        let map = words.push(map);
        let shift = usize::from(offsets.is_some());
        let offsets = match offsets {
            Some(at) => Some(self.column_offsets(&inst.operands[at], by_columns != Some(M::im2col))?),
            None => None,
        };
        // Where no mask of blocks is, zeros are, as ptxas 13.0.88 always has it: neither the upper half of a register that holds two offsets nor what
        // sums carry over.
        let blocks = match multicast {
            true => Some(self.src(&inst.operands[3 + shift], Ty { bits: 16, ..Ty::U32 })?.low()),
            false => offsets.is_some().then(rz),
        };
        let mask = blocks.map(|blocks| self.halves(offsets.unwrap_or_else(rz), blocks));
        let mask = words.push(mask);
        let policy = match (prefetches, loads, multicast) {
            (true, ..) => 1 + shift,
            (_, false, _) => 2,
            (_, _, multicast) => 3 + shift + usize::from(multicast),
        };
        let policy = self.policy(inst, policy)?;
        let policy = words.push(policy);
        let op = match (prefetches, loads, reduces) {
            (true, ..) => Opcode::UTMAPF,
            (_, true, _) => Opcode::UTMALDG,
            (_, _, true) => Opcode::UTMAREDG,
            _ => Opcode::UTMASTG,
        };
        self.copy_engine(loads || reduces, (op, &mods), &words, |l, u| {
            let mut operands = vec![l.uniform_tuple(u, &tile), l.uniform_tuple(u, &map)];
            if loads || prefetches {
                operands.push(Self::uniform_word(u, &mask));
            }
            operands.push(l.uniform_tuple(u, &policy));
            operands
        })
    }
}
