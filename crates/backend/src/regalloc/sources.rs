//! What values only repeat that is at hand elsewhere: another register, a slot, a constant. Spilling what they are passed to then reads
//! that, and need not keep them.

use super::slots;
use super::spill::{home_file, is_constant};
use ori::cfg::Cfg;
use ori::{Block, Function, Inst, Macro, Name, Op, Operand, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{RegFile, RegOp};
use smallvec::SmallVec;

/// What a value only repeats.
pub(super) enum Source {
    /// A register of the file in which values of its own file have their homes.
    Home(Value),
    /// Nothing, in a file other than R.
    Undefined,
    /// What this instruction makes, which reads no registers.
    Again(Inst),
    /// A slot in local memory, at this offset from the first, which the block that loads it does not change behind that.
    Slot(u32, Block),
}

/// The values that only repeat what is at hand elsewhere.
pub(super) fn sources(func: &Function, cfg: &Cfg) -> FxHashMap<Value, Source> {
    let mut sources = FxHashMap::default();
    for &b in &cfg.rpo {
        // Backward, with the words of slots that are stored behind, and tuples of several loads.
        let mut stored: FxHashSet<usize> = FxHashSet::default();
        let mut tuples: Vec<Inst> = Vec::new();
        for &i in func.blocks[b].insts.iter().rev() {
            let d = &func.insts[i];
            let slot = slots::access(func, d);
            if let Some(store) = slot.as_ref().filter(|a| a.store) {
                stored.extend(store.words());
                continue;
            }
            let [Operand::Reg(to), from @ ..] = d.operands.as_slice() else { continue };
            let Name::Val(to) = to.reg else { continue };
            if !d.is_unguarded() {
                continue;
            }
            let file = func.values[to].file;
            if d.op == Op::Macro(Macro::Undef) && file != RegFile::R {
                sources.insert(to, Source::Undefined);
            } else if is_constant(d) {
                sources.insert(to, Source::Again(i));
            } else if d.op == Op::Macro(Macro::Collect) {
                tuples.push(i);
            } else if file == RegFile::R {
                let same = slot.filter(|l| l.words().all(|w| !stored.contains(&w)));
                sources.extend(same.map(|l| (to, Source::Slot(l.at(), b))));
            } else if let (Op::Macro(Macro::Copy), [Operand::Reg(from)]) = (d.op, from)
                && *from == RegOp::plain(from.reg)
                && let Name::Val(v) = from.reg
                && func.values[v].file == home_file(file)
            {
                sources.insert(to, Source::Home(v));
            }
        }
        for d in tuples.into_iter().map(|i| &func.insts[i]) {
            let word = |o: &Operand| match o.as_reg().map(|r| sources.get(&r.reg.value()?))?? {
                Source::Slot(at, _) => Some(*at),
                _ => None,
            };
            let Some((to, parts)) = d.collected() else { continue };
            let words: Option<SmallVec<[u32; 4]>> = parts.iter().map(word).collect();
            let Some(words) = words else { continue };
            let (to, first) = (to.as_reg().and_then(|r| r.reg.value()), words[0]);
            if let Some(to) = to
                && words.iter().zip(0..).all(|(at, k)| *at == first + 4 * k)
                && words.len() == usize::from(func.values[to].width)
            {
                sources.insert(to, Source::Slot(first, b));
            }
        }
    }
    sources
}
