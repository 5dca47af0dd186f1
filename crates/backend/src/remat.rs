//! Makes constants, parameters and addresses in the stack frame again where they are used, where keeping them would leave room
//! for fewer warps. Where arithmetic does not read constant memory itself, parameters are kept in uniform registers and moved
//! from there.
//!
//! Which ones, the allocator's choice of what to spill says, among constants alone; a block in which one is used has its
//! own copy, or several if it is long or has calls, and the scheduler finds the place.

use crate::liveness::Ranges;
use crate::regalloc::spill::Spiller;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::{ALWAYS, Block, Function, Inst, InstData, Loc, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::{ConstBank, Mod, Mods, Opcode, RegFile, SlotKind, SourceKinds};
use smallvec::SmallVec;

/// The most uniform registers that parameters take here, and those that must be left to addresses and descriptors.
const MOST: usize = 24;
const LEFT: usize = 16;

/// Instructions behind a copy for which it still serves.
const REACH: usize = 48;

/// Lowers the number of general registers that are needed to `limit`, as far as constants are to blame. Whether anything
/// changed.
pub fn run(func: &mut Function, cfg: &Cfg, limit: u32, ranges: &Ranges) -> bool {
    let chosen = Spiller::constants(func, cfg, limit, ranges);
    if chosen.is_clear() {
        return false;
    }
    // What makes each of them.
    let mut makers: SecondaryMap<Value, Option<Again>> = SecondaryMap::new();
    let mut room = uniform_room(func, cfg);
    for i in cfg.rpo.iter().flat_map(|b| func.blocks[*b].insts.clone()) {
        let d = &func.insts[i];
        let mut made: SmallVec<[Value; 1]> = SmallVec::new();
        d.for_each_def(|n| made.extend(n.value().filter(|v| chosen.contains(v.index()))));
        let &[v] = &made[..] else { continue };
        let width = usize::from(func.values[v].width);
        makers[v] = Some(if width <= room && is_load_of_constants(d) {
            room -= width;
            func.values[v].file = RegFile::UR;
            func.insts[i].op = Op::Sass(func.target.info().constant_load);
            Again::Moved
        } else {
            Again::Made(i)
        });
    }
    for &b in &cfg.rpo {
        block(func, b, &makers);
    }
    true
}

/// How a value comes again.
#[derive(Clone, Copy)]
enum Again {
    /// As this instruction makes it.
    Made(Inst),
    /// From the uniform register that it has now.
    Moved,
}

/// A word or two of a constant bank.
fn is_load_of_constants(d: &InstData) -> bool {
    d.op == Op::Sass(Opcode::LDC)
        && d.is_unguarded()
        && (d.mods == Mods::none() || d.mods.0[..] == [Mod::_64])
        && matches!(
            d.operands[..],
            [Operand::Reg(_), Operand::Const { bank: ConstBank::Index(_), index: None, .. }]
        )
}

/// Uniform registers that nothing needs, up to [`MOST`]; none where arithmetic reads constants itself, or a callee uses them.
fn uniform_room(func: &Function, cfg: &Cfg) -> usize {
    let destroys = |d: &InstData| {
        d.op == Op::Macro(Macro::Call) && ori::abi::clobbered_by(func, d).any(|r| r.file == RegFile::UR)
    };
    let mut insts = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
    if func.target.info().alu_const || !func.entry || insts.any(destroys) {
        return 0;
    }
    // Those that live from block to block have registers of their own.
    let mut across = FixedBitSet::with_capacity(func.values.len());
    for &b in &cfg.rpo {
        let mut own = FixedBitSet::with_capacity(func.values.len());
        for i in &func.blocks[b].insts {
            let d = &func.insts[*i];
            let uniform = |v: &Value| func.values[*v].file == RegFile::UR;
            d.for_each_use(|n| {
                let outside = n.value().filter(|v| uniform(v) && !own.contains(v.index()));
                outside.into_iter().for_each(|v| across.insert(v.index()));
            });
            d.for_each_def(|n| n.value().into_iter().for_each(|v| own.insert(v.index())));
        }
    }
    let taken: usize = func
        .values
        .iter()
        .filter(|(v, _)| across.contains(v.index()))
        .map(|(_, d)| usize::from(d.width))
        .sum();
    usize::from(func.target.info().uregs).saturating_sub(taken + LEFT).min(MOST)
}

fn block(func: &mut Function, b: Block, makers: &SecondaryMap<Value, Option<Again>>) {
    let old = std::mem::take(&mut func.blocks[b].insts);
    let mut out: Vec<Inst> = Vec::with_capacity(old.len() + 8);
    // The latest copy of each, and where it is.
    let mut copies: FxHashMap<Value, (Value, usize)> = FxHashMap::default();
    for i in old {
        let d = &func.insts[i];
        let mut made = false;
        d.for_each_def(|n| {
            made |= n.value().is_some_and(|v| matches!(makers[v], Some(Again::Made(m)) if m == i));
        });
        if made {
            continue;
        }
        let direct = read_directly(func, d);
        let mut uses: SmallVec<[Value; 4]> = SmallVec::new();
        d.for_each_use(|n| uses.extend(n.value().filter(|v| makers[*v].is_some() && direct != Some(*v))));
        for v in uses {
            copy(func, v, makers, &mut copies, &mut out);
        }
        func.insts[i].map_uses(|n| if n.value() == direct { n } else { renamed(n, &copies) });
        out.push(i);
        // Across it, a copy would need a register that the callee keeps.
        if func.insts[i].op == Op::Macro(Macro::Call) {
            copies.clear();
        }
    }
    let mut term = func.blocks[b].term.clone();
    if let Some(n) = term.used_name_mut()
        && let Some(v) = n.value().filter(|v| makers[*v].is_some())
    {
        copy(func, v, makers, &mut copies, &mut out);
        *n = renamed(*n, &copies);
    }
    for a in term.targets_mut().into_iter().flat_map(|t| &mut t.args) {
        if makers[*a].is_some() {
            *a = copy(func, *a, makers, &mut copies, &mut out);
        }
    }
    func.blocks[b].term = term;
    func.blocks[b].insts = out;
}

/// A value in a uniform register that an instruction reads once, where that may stand, beside general registers.
fn read_directly(func: &Function, d: &InstData) -> Option<Value> {
    let Op::Sass(op) = d.op else { return None };
    let info = op.info();
    if info.uniform || matches!(info.source_kinds, SourceKinds::Immediate | SourceKinds::Immediates) {
        return None;
    }
    let mut found = None;
    for (k, o) in d.operands.iter().enumerate().filter(|(k, _)| op.slots()[*k].kind == SlotKind::Source) {
        let Operand::Reg(reg) = o else { return None };
        let Some(v) = reg.reg.value().filter(|v| func.values[*v].file == RegFile::UR) else { continue };
        if !info.sources.contains(&(k as u8)) || found.replace(v).is_some() {
            return None;
        }
    }
    // Not as an address, too.
    let mut times = 0;
    d.for_each_use(|n| times += u32::from(n.value() == found));
    found.filter(|_| times == 1)
}

fn renamed(n: Name, copies: &FxHashMap<Value, (Value, usize)>) -> Name {
    let to = |v: Value| copies.get(&v).map_or(v, |c| c.0);
    match n {
        Name::Val(v) => Name::Val(to(v)),
        Name::Part(v, k) => Name::Part(to(v), k),
        Name::Phys(_) => n,
    }
}

/// The copy of a value to use next, made at the end of `out` if there is none near.
fn copy(
    func: &mut Function,
    v: Value,
    makers: &SecondaryMap<Value, Option<Again>>,
    copies: &mut FxHashMap<Value, (Value, usize)>,
    out: &mut Vec<Inst>,
) -> Value {
    if let Some((c, at)) = copies.get(&v)
        && out.len() - at <= REACH
    {
        return *c;
    }
    let Some(again) = makers[v] else { return v };
    let width = func.values[v].width;
    let new = func.add_value(RegFile::R, width);
    let d = match again {
        Again::Made(made) => {
            let mut d: InstData = func.insts[made].clone();
            for k in 0..d.operands.len() {
                if d.is_def(k) && matches!(&d.operands[k], Operand::Reg(r) if r.reg == Name::Val(v)) {
                    d.operands[k] = operand(new);
                }
            }
            d
        }
        Again::Moved => {
            let op = Op::Macro(if width == 1 { Macro::Copy } else { Macro::Collect });
            let parts = (0..width).map(|k| if width == 1 { operand(v) } else { operand(Name::Part(v, k)) });
            let operands = std::iter::once(operand(new)).chain(parts).collect();
            InstData {
                op,
                mods: Mods::none(),
                operands,
                guard: ALWAYS,
                kept: SmallVec::new(),
                loc: Loc::default(),
            }
        }
    };
    copies.insert(v, (new, out.len()));
    let new_inst = func.insts.push(d);
    out.push(new_inst);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made again where `limit` registers are to do.
    fn after(sm: u8, limit: u32) -> String {
        let mut text = format!("function k sm_{sm} entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n");
        text += "    v0:R = LDC c[0x0][0x210]\n    v1:R2 = LDC.64 c[0x0][0x218]\n    v2:R = S2R SR_TID.X\n";
        for k in 3..12 {
            text += &format!("    v{k}:R = LDS [v2+{k:#x}]\n");
        }
        for k in 3..12 {
            text += &format!("    STS [v2], v{k}\n");
        }
        text += "    v12:R = IADD3 PT, PT, v2, v0, RZ, !PT, !PT\n    STS.64 [v12], v1\n    exit\n}\n";
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let cfg = Cfg::new(&f);
        let ranges = Ranges::new(&f, &cfg);
        assert!(run(&mut f, &cfg, limit, &ranges));
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn parameters_stay_in_uniform_registers() {
        let got = after(90, 8);
        assert!(got.contains("v0:UR = ULDC c") && got.contains("v1:UR2 = ULDC.64 c"), "{got}");
        // As an operand, and moved to where none may be.
        assert!(
            got.contains("IADD3 PT, PT, v2, v0, RZ") && got.contains(":R2 = collect v1.0, v1.1"),
            "{got}"
        );
        assert!(after(120, 8).contains("v0:UR = LDCU c"));
        // There arithmetic reads constants itself.
        assert!(!after(80, 8).contains("ULDC"));
    }
}
