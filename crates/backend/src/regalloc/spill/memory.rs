//! How values go to spill slots and come back.

use super::{Spiller, plain};
use cranelift_entity::EntityRef;
use ori::{Function, Inst, Loc, Macro, Name, Op, Operand, Value, operand};
use sass::{AddrWidth, Mod, Opcode, Reg, RegFile};
use smallvec::SmallVec;
use thin_vec::thin_vec;

impl Spiller {
    /// Loads from a slot.
    pub(in crate::regalloc) fn load(
        &mut self,
        func: &mut Function,
        out: &mut Vec<Inst>,
        v: Value,
        part: Option<u8>,
        at: u32,
        loc: Loc,
    ) -> Value {
        let width = if part.is_some() { 1 } else { func.values[v].width };
        let at = at + 4 * u32::from(part.unwrap_or(0));
        self.load_bytes += 4 * u32::from(width);
        let t = func.add_value(RegFile::R, width);
        self.pin(t);
        let parts: SmallVec<[(u8, Value); 16]> = match pieces(width) {
            pieces if pieces.len() == 1 => SmallVec::from_slice(&[(0, t)]),
            pieces => pieces.into_iter().map(|(k, width)| (k, self.pin_new(func, width))).collect(),
        };
        for (k, piece) in &parts {
            let mods = access(func.values[*piece].width);
            let operands = thin_vec![operand(*piece), slot_address(func, at + 4 * u32::from(*k))];
            out.push(func.insts.push(plain(Op::Sass(Opcode::LDL), mods, operands, loc)));
        }
        if parts.len() > 1 {
            let operands =
                std::iter::once(operand(t)).chain(parts.iter().map(|(_, p)| operand(*p))).collect();
            out.push(func.insts.push(plain(Op::Macro(Macro::Collect), &[], operands, loc)));
        }
        t
    }

    /// A new value of general registers that stays in them, a part of a wider one under another name.
    fn pin_new(&mut self, func: &mut Function, width: u8) -> Value {
        let v = func.add_value(RegFile::R, width);
        self.pieces.grow(v.index() + 1);
        self.pieces.insert(v.index());
        self.pin(v)
    }

    /// Stores to a slot.
    pub(in crate::regalloc) fn store(
        &mut self,
        func: &mut Function,
        out: &mut Vec<Inst>,
        v: Value,
        at: u32,
        loc: Loc,
    ) {
        let width = func.values[v].width;
        self.store_bytes += 4 * u32::from(width);
        let pieces = pieces(width);
        for &(k, width) in &pieces {
            // A part of a wider tuple has its name as a tuple of its own, in the same registers.
            let stored = match width {
                _ if pieces.len() == 1 => Name::Val(v),
                1 => Name::Part(v, k),
                _ => {
                    let piece = self.pin_new(func, width);
                    let words = (k..k + width).map(|k| operand(Name::Part(v, k)));
                    let operands = std::iter::once(operand(piece)).chain(words).collect();
                    out.push(func.insts.push(plain(Op::Macro(Macro::Collect), &[], operands, loc)));
                    Name::Val(piece)
                }
            };
            let operands = thin_vec![slot_address(func, at + 4 * u32::from(k)), operand(stored)];
            out.push(func.insts.push(plain(Op::Sass(Opcode::STL), access(width), operands, loc)));
        }
    }
}

/// What one instruction each stores of a value of so many registers: from which on, and how many.
fn pieces(width: u8) -> SmallVec<[(u8, u8); 16]> {
    let mut pieces = SmallVec::new();
    let mut k = 0;
    while k < width {
        let piece = (1 << (width - k).ilog2()).min(4);
        pieces.push((k, piece));
        k += piece;
    }
    pieces
}

/// Modifiers of LDL and STL for a width that they have.
fn access(width: u8) -> &'static [Mod] {
    match width {
        2 => &[Mod::_64],
        4 => &[Mod::_128],
        _ => &[],
    }
}

/// First byte of the spill slots in the frame.
pub fn slots_base<R>(func: &Function<R>) -> u32 {
    func.local_size.next_multiple_of(16)
}

fn slot_address(func: &Function, at: u32) -> Operand {
    Operand::Addr {
        desc: None,
        base: Some(Name::Phys(Reg::SP)),
        width: AddrWidth::R32,
        uniform: None,
        offset: (slots_base(func) + at) as i32,
    }
}
