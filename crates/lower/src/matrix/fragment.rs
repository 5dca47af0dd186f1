//! `wmma.load` and `wmma.store`: fragments, which stand in registers as `mma` wants them.
//!
//! A register of a factor holds part of a block: of eight rows of A (or columns of B), its outer direction, and of as many
//! columns of A (rows of B), its inner one, as fit four lanes. Where the inner direction is the one that is contiguous in
//! memory, a lane's part is one word. Where it is not, blocks of 16-bit elements are read turned around and turned by
//! MOVM or by LDSM itself; others are put together from elements.

use super::{Elem, Words};
use crate::access::{self, Access, Address, Order};
use crate::emit::{Emit, Pair, imm, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Name, Operand, Value, operand};
use ptx::{Mod as M, Space};
use sass::{Mod, Opcode};

/// Where the blocks of a fragment begin: outer and inner direction, in elements.
type Blocks = Vec<(u32, u32)>;

/// A fragment.
struct Fragment {
    elem: Elem,
    /// Its blocks, one in each register (of sums in words: in each two).
    blocks: Blocks,
    /// The inner direction is the contiguous one.
    along: bool,
    /// Elements in the contiguous direction, of the whole matrix.
    width: u32,
    /// It is C or D.
    sum: bool,
}

/// Distance of elements in bytes, as far as it is known.
#[derive(Clone)]
enum Stride {
    Known(u32),
    Word(Operand),
}

/// Where a lane's elements are.
struct Lanes {
    space: access::Space,
    at: Address,
    /// Bytes from one line, of those that are contiguous, to the next.
    stride: Stride,
    desc: Option<Value>,
}

/// Of eight outer places after another: `count` blocks.
fn column(count: u32) -> Blocks {
    (0..count).map(|i| (8 * i, 0)).collect()
}

/// Of sixteen outer places after another: two blocks of the first inner places, two of those `step` on.
fn squares(count: u32, step: u32) -> Blocks {
    let square = |i: u32| [(16 * i, 0), (16 * i + 8, 0), (16 * i, step), (16 * i + 8, step)];
    (0..count).flat_map(square).collect()
}

/// Of eight outer places after another: two blocks, `step` apart inside.
fn pairs(count: u32, step: u32) -> Blocks {
    (0..count).flat_map(|i| [(8 * i, 0), (8 * i, step)]).collect()
}

impl Fragment {
    /// The fragment that a statement loads or stores.
    fn of(inst: &Statement<'_>) -> Option<Fragment> {
        let elem = inst.find(Elem::of)?;
        let (m, n, k) = inst.find(|w| super::size(w.name()))?;
        let by_rows = inst.has(M::row);
        inst.moot(&[M::col]);
        let which = inst.one_of(&[M::a, M::b, M::c, M::d]);
        if let Some(M::a | M::b) = which {
            let is_a = which == Some(M::a);
            // `mma`'s A, or its B: m8n32 is turned around.
            let (outer, as_a) = if is_a { (m, n != 32) } else { (n, n == 32) };
            let blocks = match elem.bits() {
                16 if as_a => squares(outer / 16, 8),
                16 => pairs(outer / 8, 8),
                32 if as_a => squares(outer / 16, 4),
                32 => pairs(outer / 8, 4),
                _ => column(outer / 8),
            };
            let along = by_rows == is_a;
            return Some(Fragment { elem, blocks, along, width: if along { k } else { outer }, sum: false });
        }
        let turned = n == 32;
        let along = by_rows != turned;
        let (outer, inner) = if turned { (n, m) } else { (m, n) };
        let blocks = match inner {
            8 => column(outer / 8),
            _ => squares(1, 8),
        };
        Some(Fragment { elem, blocks, along, width: if along { inner } else { outer }, sum: true })
    }

    /// Bytes of so many elements.
    fn bytes(&self, elements: u32) -> u32 {
        elements * self.elem.bits() / 8
    }

    /// Elements of a block that a lane has next to each other in the inner direction.
    fn per_lane(&self) -> u32 {
        match self.elem.bits() {
            32 | 64 => 1 + u32::from(self.sum),
            bits => 32 / bits,
        }
    }
}

impl Lower<'_, '_> {
    /// `wmma.load`.
    pub(super) fn wmma_load(&mut self, inst: &Statement<'_>) -> Result<()> {
        let Some(f) = Fragment::of(inst) else { return self.unsupported(inst) };
        let Some(lanes) = self.lanes_of(inst, &f, &inst.operands[1], inst.operands.get(2))? else {
            return self.unsupported(inst);
        };
        let words = match f.elem.bits() {
            16 if lanes.space == access::Space::Shared => self.load_rows(&f, &lanes),
            16 => self.load_pairs(&f, &lanes),
            _ if f.along => self.load_words(&f, &lanes),
            _ => self.load_elements(&f, &lanes),
        };
        // Further registers hold the same once more.
        let per = if f.elem == Elem::F64 { 2 } else { 1 };
        let ptx::Operand::Vector(d) = &inst.operands[0] else {
            return self.write_matrix(&inst.operands[0], f.elem, &words);
        };
        let all: Words = (0..d.len() * per).map(|i| words[i % words.len()]).collect();
        self.write_matrix(&inst.operands[0], f.elem, &all)
    }

    /// `wmma.store`.
    pub(super) fn wmma_store(&mut self, inst: &Statement<'_>) -> Result<()> {
        let Some(f) = Fragment::of(inst) else { return self.unsupported(inst) };
        let words = self.matrix_words(&inst.operands[1], f.elem)?;
        let Some(lanes) = self.lanes_of(inst, &f, &inst.operands[0], inst.operands.get(2))? else {
            return self.unsupported(inst);
        };
        if f.elem == Elem::F16 {
            for (block, word) in f.blocks.iter().zip(&words) {
                let mut word = operand(self.b.reg(word));
                if !f.along {
                    word = operand(self.b.def(Opcode::MOVM, &[Mod::_16, Mod::MT88], &[word]));
                }
                let at = self.block_at(&f, &lanes, *block);
                self.store_at(&lanes, &at, 4, &[word]);
            }
            return Ok(());
        }
        let size = f.bytes(1);
        let per = size as usize / 4;
        for (i, block) in f.blocks.iter().enumerate() {
            let own = &words[2 * per * i..][..2 * per];
            if f.along && size == 4 {
                let at = self.block_at(&f, &lanes, *block);
                self.store_at(&lanes, &at, 8, own);
                continue;
            }
            for (e, word) in own.chunks(per).enumerate() {
                let at = self.element_at(&f, &lanes, *block, e as u32);
                self.store_at(&lanes, &at, size as u8, word);
            }
        }
        Ok(())
    }

    /// Where the lanes' parts of the first block are.
    fn lanes_of(
        &mut self,
        inst: &Statement<'_>,
        f: &Fragment,
        address: &ptx::Operand,
        stride: Option<&ptx::Operand>,
    ) -> Result<Option<Lanes>> {
        let a = self.addr_operand(address)?;
        let Some(space) = self.access_space(inst, a) else { return Ok(None) };
        let at = match space {
            access::Space::Shared => self.address32(a, Space::Shared)?,
            access::Space::Local => return Ok(None),
            access::Space::Global | access::Space::Generic => self.address64(a)?,
        };
        let desc = if at.wide { self.desc() } else { None };
        let bits = f.elem.bits();
        let stride = match stride {
            None => Stride::Known(f.bytes(f.width)),
            Some(o) => match self.src(o, Ty::U32)?.low() {
                w if crate::emit::as_imm(&w).is_some() => {
                    let n = crate::emit::as_imm(&w).unwrap_or(0);
                    Stride::Known((u64::from(n) * u64::from(bits) / 8) as u32)
                }
                w if bits >= 8 => Stride::Word(operand(self.b.shl(w, imm((bits / 8).ilog2())))),
                w => Stride::Word(operand(self.b.shr(false, w, imm((8 / bits).ilog2())))),
            },
        };
        let mut lanes = Lanes { space, at, stride, desc };
        if bits == 16 && space == access::Space::Shared && inst.has(M::load) {
            return Ok(Some(lanes));
        }
        let lane = self.lane();
        let line = operand(self.b.shr(false, lane, imm(2)));
        let place = operand(self.b.and(lane, imm(3)));
        // Turned blocks of 16-bit elements have pairs along what is contiguous, too.
        let (lines, places) = match f.along || bits == 16 {
            true => (line, place),
            false => (place, line),
        };
        let per = f.per_lane();
        // Where the inner direction is not contiguous, a lane's elements are on lines after each other.
        let (each_line, each_place) = match f.along || bits == 16 {
            true => (1, f.bytes(per).max(if bits < 8 { 4 } else { 0 })),
            false => (per, f.bytes(1)),
        };
        lanes.at = self.moved(&lanes, &lanes.at.clone(), &lines, each_line);
        let offset = operand(self.b.imad(places, imm(each_place), rz()));
        lanes.at = self.plus(&lanes.at.clone(), &offset);
        Ok(Some(lanes))
    }

    /// An address `count · times` lines on.
    fn moved(&mut self, lanes: &Lanes, at: &Address, count: &Operand, times: u32) -> Address {
        let base = at.base.map_or_else(rz, operand);
        match (&lanes.stride, at.wide) {
            (Stride::Known(bytes), _) => {
                let offset = operand(self.b.imad(*count, imm(bytes * times), rz()));
                self.plus(at, &offset)
            }
            (Stride::Word(stride), true) => {
                let count = match times {
                    1 => *count,
                    n => operand(self.b.imad(*count, imm(n), rz())),
                };
                let sum = self.b.imad_wide(false, *stride, count, base);
                Address { base: Some(Name::Val(sum)), ..*at }
            }
            (Stride::Word(stride), false) => {
                let count = match times {
                    1 => *count,
                    n => operand(self.b.imad(*count, imm(n), rz())),
                };
                let sum = self.b.imad(*stride, count, base);
                Address { base: Some(Name::Val(sum)), ..*at }
            }
        }
    }

    /// An address so many bytes on.
    fn plus(&mut self, at: &Address, bytes: &Operand) -> Address {
        let base = at.base.map_or_else(rz, operand);
        let sum = match (at.wide, at.base) {
            (true, Some(Name::Val(base))) => self.b.add64(&Pair::of(base), &Pair::parts(*bytes, rz())),
            _ => self.b.iadd(*bytes, base),
        };
        Address { base: Some(Name::Val(sum)), ..*at }
    }

    /// An address `lines` lines and `bytes` bytes on.
    fn further(&mut self, lanes: &Lanes, at: &Address, lines: u32, bytes: u32) -> Address {
        let mut at = at.clone();
        let mut offset = u64::from(bytes);
        match (&lanes.stride, lines) {
            (_, 0) => {}
            (Stride::Known(stride), n) => offset += u64::from(*stride) * u64::from(n),
            (Stride::Word(_), n) => {
                let count = operand(self.b.copy(Operand::Imm(n)));
                at = self.moved(lanes, &at, &count, 1);
            }
        }
        match i64::from(at.offset) + offset as i64 {
            sum if (-(1 << 23)..1 << 23).contains(&sum) => at.offset = sum as i32,
            _ => {
                let more = operand(self.b.copy(Operand::Imm(offset as u32)));
                at = self.plus(&at, &more);
            }
        }
        at
    }

    /// The address of a lane's part of a block, the word that is contiguous.
    fn block_at(&mut self, f: &Fragment, lanes: &Lanes, (outer, inner): (u32, u32)) -> Address {
        let (lines, along) = if f.along { (outer, inner) } else { (inner, outer) };
        self.further(lanes, &lanes.at, lines, f.bytes(along))
    }

    /// The address of element `e` of a lane's part of a block.
    fn element_at(&mut self, f: &Fragment, lanes: &Lanes, (outer, inner): (u32, u32), e: u32) -> Address {
        self.block_at(f, lanes, (outer, inner + e))
    }

    fn load_at(&mut self, lanes: &Lanes, at: &Address, size: u8) -> Words {
        let access = part(lanes.space, size);
        let v = access::load(&mut self.b, &access, at.operand(lanes.desc), ALWAYS, None);
        super::words_of(v, size.div_ceil(4))
    }

    fn store_at(&mut self, lanes: &Lanes, at: &Address, size: u8, words: &[Operand]) {
        let access = part(lanes.space, size);
        let data = self.tuple(words);
        access::store(&mut self.b, &access, at.operand(lanes.desc), data, ALWAYS);
    }

    /// Pairs of 16-bit elements, turned where they are not along the inner direction.
    fn load_pairs(&mut self, f: &Fragment, lanes: &Lanes) -> Words {
        let mut words = Vec::new();
        for block in &f.blocks {
            let at = self.block_at(f, lanes, *block);
            let mut word = self.load_at(lanes, &at, 4)[0];
            if !f.along {
                word = operand(self.b.def(Opcode::MOVM, &[Mod::_16, Mod::MT88], &[word]));
            }
            words.push(word);
        }
        words
    }

    /// Blocks of 16-bit elements in shared memory, up to four at once: lane 8i + j has the address of line j of block i.
    fn load_rows(&mut self, f: &Fragment, lanes: &Lanes) -> Words {
        let lane = self.lane();
        let mut words = Vec::new();
        let line_of = |(outer, inner): (u32, u32)| if f.along { (outer, inner) } else { (inner, outer) };
        for blocks in f.blocks.chunks(4) {
            let (lines, along) = line_of(blocks[0]);
            let first = self.further(lanes, &lanes.at, lines, f.bytes(along));
            // What each bit of the number of the block adds.
            let mut line = operand(self.b.and(lane, imm(7)));
            let mut offset: Option<Operand> = None;
            for (bit, at) in [(8, 1), (16, 2)] {
                let Some(block) = blocks.get(at) else { continue };
                let (l, a) = line_of(*block);
                let (l, a) = (l - lines, a - along);
                let set = operand(self.b.and(lane, imm(bit)));
                if l != 0 {
                    // As far as the bit says: 8 or 16 lines.
                    let set = match l.cmp(&bit) {
                        std::cmp::Ordering::Equal => set,
                        std::cmp::Ordering::Less => operand(self.b.shr(false, set, imm((bit / l).ilog2()))),
                        std::cmp::Ordering::Greater => operand(self.b.shl(set, imm((l / bit).ilog2()))),
                    };
                    line = operand(self.b.iadd(line, set));
                }
                if a != 0 {
                    let more = operand(self.b.imad(set, imm(f.bytes(a) / bit), rz()));
                    offset = Some(match offset {
                        None => more,
                        Some(o) => operand(self.b.iadd(o, more)),
                    });
                }
            }
            let mut at = self.moved(lanes, &first, &line, 1);
            if let Some(offset) = offset {
                at = self.plus(&at, &offset);
            }
            let count = match blocks.len() {
                4 => Some(Mod::_4),
                2 => Some(Mod::_2),
                _ => None,
            };
            let turn = if f.along { Mod::M88 } else { Mod::MT88 };
            let mods: Vec<Mod> = [Mod::_16, turn].into_iter().chain(count).collect();
            let v = self.b.def(Opcode::LDSM, &mods, &[at.operand(None)]);
            words.extend(super::words_of(v, blocks.len() as u8));
        }
        words
    }

    /// Words that hold a lane's part of a block.
    fn load_words(&mut self, f: &Fragment, lanes: &Lanes) -> Words {
        let mut words = Vec::new();
        for block in &f.blocks {
            // Two binary64 numbers need not be aligned to sixteen bytes.
            if f.elem == Elem::F64 {
                for e in 0..f.per_lane() {
                    let at = self.element_at(f, lanes, *block, e);
                    words.extend(self.load_at(lanes, &at, 8));
                }
                continue;
            }
            let at = self.block_at(f, lanes, *block);
            let size = f.bytes(f.per_lane()).max(4);
            words.extend(self.load_at(lanes, &at, size as u8));
        }
        words
    }

    /// Element by element; bytes are put together.
    fn load_elements(&mut self, f: &Fragment, lanes: &Lanes) -> Words {
        let size = f.bytes(1) as u8;
        let mut words = Vec::new();
        for block in &f.blocks {
            let mut own = Vec::new();
            for e in 0..f.per_lane() {
                let at = self.element_at(f, lanes, *block, e);
                own.extend(self.load_at(lanes, &at, size));
            }
            match &own[..] {
                [x, y, z, w] if size == 1 => {
                    let low = operand(self.b.prmt(*x, imm(0x3340), *y));
                    let high = operand(self.b.prmt(*z, imm(0x3340), *w));
                    words.push(operand(self.b.prmt(low, imm(0x5410), high)));
                }
                _ => words.extend(own),
            }
        }
        words
    }
}

/// A lane's part of an access to a matrix, without order.
fn part(space: access::Space, size: u8) -> Access {
    let (order, mmio) = (Order::Weak, false);
    let (evict, prefetch) = (None, None);
    Access { space, size, signed: false, order, mmio, evict, prefetch, constant: false, collective: true }
}
