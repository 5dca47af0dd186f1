//! Addresses in shared memory that are sums with a uniform register name it themselves: no instruction adds it, and one register serves all stages
//! of a buffer. The uniform register lives longer for that, but not past what lets lanes run that have parted: they share it.

use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::{ALWAYS, Block, Function, Inst, InstData, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{Iadd3, Iadd3Mods, Lea, LeaMods};
use sass::{AddrWidth, Mod, Mods, Opcode, Reg, RegFile, RegOp};
use thin_vec::ThinVec;

/// A register and a uniform one, shifted to the left, that are added; without the register a copy of the uniform one.
#[derive(Clone, Copy)]
struct Sum {
    base: Option<Name>,
    uniform: Name,
    shift: u32,
}

/// A sum of a block: its value, its place, and the places that may name its parts.
struct Candidate {
    value: Value,
    at: usize,
    sum: Sum,
    places: Vec<(Inst, usize)>,
}

/// Names them where that can be done in all places that read a sum, and these are in the sum's block.
pub fn run(func: &mut Function, cfg: &Cfg) {
    let mut reads: SecondaryMap<Value, u32> = SecondaryMap::new();
    for &b in &cfg.rpo {
        let mut count = |n: Name| n.value().into_iter().for_each(|v| reads[v] += 1);
        func.blocks[b].insts.iter().for_each(|i| func.insts[*i].for_each_use(&mut count));
        func.blocks[b].term.used_name().into_iter().for_each(&mut count);
        let passed = func.blocks[b].term.targets().into_iter().flat_map(|t| &t.args);
        passed.for_each(|a| count(Name::Val(*a)));
    }
    for &b in &cfg.rpo {
        block(func, b, &reads);
    }
}

fn block(func: &mut Function, b: Block, reads: &SecondaryMap<Value, u32>) {
    // The sums of the block with the places that may name their parts, and copies of uniform registers.
    let mut sums: Vec<Candidate> = Vec::new();
    let mut number: FxHashMap<Value, usize> = FxHashMap::default();
    let mut copies: FxHashMap<Value, Name> = FxHashMap::default();
    for (at, &i) in func.blocks[b].insts.iter().enumerate() {
        let d = &func.insts[i];
        if let Some((k, takes)) = place(d)
            && let Operand::Addr { base: Some(Name::Val(v)), .. } = d.operands[k]
            && let Some(c) = number.get(&v).and_then(|n| sums.get_mut(*n))
            && takes.takes(&c.sum)
        {
            c.places.push((i, k));
        }
        if crate::waits::lets_others_run(func, d) {
            number.clear();
            copies.clear();
        }
        if let Some((value, sum)) = sum(func, d, &copies) {
            number.insert(value, sums.len());
            sums.push(Candidate { value, at, sum, places: Vec::new() });
        }
        if d.is_unguarded()
            && let Some((Operand::Reg(to), Operand::Reg(from))) = d.copied()
            && let (Name::Val(v), true) =
                (to.reg, is(func, from.reg, RegFile::UR) && *from == RegOp::plain(from.reg))
        {
            copies.insert(v, from.reg);
            if is(func, to.reg, RegFile::R) {
                number.insert(v, sums.len());
                let sum = Sum { base: None, uniform: from.reg, shift: 0 };
                sums.push(Candidate { value: v, at, sum, places: Vec::new() });
            }
        }
    }
    sums.retain(|c| !c.places.is_empty() && c.places.len() == reads[c.value] as usize);
    // Shifts go where the sums were.
    let mut shifted: Vec<(usize, Inst)> = Vec::new();
    for Candidate { at, sum, places, .. } in sums {
        let mut by = sum.uniform;
        if sum.shift > 0 {
            let to = func.add_value(RegFile::UR, 1);
            let loc = func.insts[func.blocks[b].insts[at]].loc;
            let rz = operand(Name::Phys(Reg::URZ));
            let operands =
                [operand(to), operand(sum.uniform), Operand::Imm(sum.shift), rz].into_iter().collect();
            let mods = Mods::of(&[Mod::L, Mod::U32]);
            let data = InstData {
                guard: ALWAYS,
                op: Op::Sass(Opcode::USHF),
                mods,
                operands,
                kept: ThinVec::new(),
                loc,
            };
            shifted.push((at, func.insts.push(data)));
            by = Name::Val(to);
        }
        for (i, k) in places {
            if let Operand::Addr { base, uniform, .. } = &mut func.insts[i].operands[k] {
                (*base, *uniform) = (sum.base, Some(by));
            }
        }
    }
    for (at, i) in shifted.into_iter().rev() {
        func.blocks[b].insts.insert(at, i);
    }
}

fn is(func: &Function, n: Name, file: RegFile) -> bool {
    matches!(n, Name::Val(v) if func.values[v].file == file && func.values[v].width == 1)
}

/// Which addresses with uniform registers ptxas 13.0.88 has in an instruction (158 files of Triton's, sm_80 to 120).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A register and a uniform one: LDSM, STSM.
    Both,
    /// A uniform one alone: SYNCS.
    Alone,
    /// Either: LDS, STS.
    Any,
}

impl Takes {
    fn takes(self, sum: &Sum) -> bool {
        self == Takes::Any || (self == Takes::Alone) == sum.base.is_none()
    }
}

/// The operand of an access of shared memory that is an address in one register, and what it may be.
fn place(d: &InstData) -> Option<(usize, Takes)> {
    let Op::Sass(op) = d.op else { return None };
    let single = |o: &Operand| match o {
        Operand::Addr { desc: None, base: Some(_), uniform, width: AddrWidth::R32, .. } => {
            uniform.is_none_or(|n| n == Name::Phys(Reg::URZ))
        }
        _ => false,
    };
    let at = d.operands.iter().position(single)?;
    // Those that ptxas 13.0.88 has with a uniform register; STSM and LDSM.MT1616 never have one.
    let takes = match op {
        Opcode::LDS | Opcode::STS => Takes::Any,
        Opcode::SYNCS_ARRIVE | Opcode::SYNCS_PHASECHK => Takes::Alone,
        Opcode::LDSM => Takes::Both,
        _ => return None,
    };
    Some((at, takes))
}

/// A sum of two registers of which one is uniform.
fn sum(func: &Function, d: &InstData, copies: &FxHashMap<Value, Name>) -> Option<(Value, Sum)> {
    if !d.is_unguarded() {
        return None;
    }
    let plain = |o: &Operand| match o {
        Operand::Reg(r) if *r == RegOp::plain(r.reg) => Some(r.reg),
        _ => None,
    };
    let zero = |o: &Operand| plain(o) == Some(Name::Phys(Reg::RZ)) || *o == Operand::Imm(0);
    let none = |o: &Operand| plain(o) == Some(Name::Phys(Reg::PT));
    let general = |n: &Name| is(func, *n, RegFile::R);
    let uniform = |n: Name| match n {
        Name::Val(v) if copies.contains_key(&v) => copies.get(&v).copied(),
        n => is(func, n, RegFile::UR).then_some(n),
    };
    let (to, x, y, shift) = match d.op {
        Op::Sass(Opcode::IADD3) if Iadd3Mods::of(d)? == (Iadd3Mods { extended: false }) => {
            let s = Iadd3::of(d)?;
            let terms: Vec<&Operand> = s.terms().into_iter().filter(|o| !zero(o)).collect();
            let [a, b] = terms[..] else { return None };
            let (a, b) = (plain(a)?, plain(b)?);
            let (base, by) = if uniform(a).is_some() { (b, a) } else { (a, b) };
            (none(s.carry_out) && none(s.carry_out2)).then_some((plain(s.d)?, base, by, 0))?
        }
        Op::Sass(Opcode::LEA) if LeaMods::of(d)? == (LeaMods { hi: false, extended: false, sx32: false }) => {
            let s = Lea::of(d)?;
            let Operand::Imm(n @ 0..32) = *s.amount else { return None };
            none(s.carry_out).then_some((plain(s.d)?, plain(s.b)?, plain(s.a)?, n))?
        }
        _ => return None,
    };
    let (Name::Val(to), true) = (to, general(&x)) else { return None };
    Some((to, Sum { base: Some(x), uniform: uniform(y)?, shift }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    v1:UR = ULDC c[0x0][0x210]\n{body}    \
             exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let cfg = Cfg::new(&f);
        run(&mut f, &cfg);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}\n{f}"));
        f.to_string()
    }

    #[test]
    fn addresses_name_what_is_added() {
        let sum = "    v2:R = IADD3 PT, PT, v0, v1, RZ, !PT, !PT\n";
        let got = after(&format!("{sum}    v3:R = LDS [v2+0x10]\n    STS [v2+0x20], v3\n"));
        assert!(got.contains("LDS [v0+v1+0x10]") && got.contains("STS [v0+v1+0x20]"), "{got}");
        // Shifted: a shift of its own.
        let got = after(
            "    v2:R = copy v1\n    v3:R = LEA PT, v2, v0, RZ, 0x4, !PT\n    v4:R = LDS [v3]\n    STS [0x0], v4\n",
        );
        assert!(got.contains("USHF.L.U32 v1, 0x4, URZ") && got.contains("LDS [v0+v5]"), "{got}");
        // Other lanes may write the uniform register meanwhile.
        let got = after(&format!("{sum}    BAR.SYNC 0x0, 0x0, PT\n    v3:R = LDS [v2]\n    STS [0x4], v3\n"));
        assert!(got.contains("LDS [v2]"), "{got}");
        // Something else needs it.
        let got = after(&format!("{sum}    v3:R = LDS [v2]\n    STS [0x4], v3\n    STS [0x0], v2\n"));
        assert!(got.contains("LDS [v2]"), "{got}");
    }

    #[test]
    fn addresses_are_uniform_registers() {
        let copy = "    v2:R = copy v1\n";
        let got = after(&format!(
            "{copy}    v3:P = SYNCS.PHASECHK.PHASECHK.TRANS64.TRYWAIT [v2+URZ+0x8], v0\n    v4:R = LDS [v2]\n    STS [v2+0x4], v4\n"
        ));
        assert!(got.contains("TRYWAIT [v1+0x8], v0") && got.contains("LDS [v1]"), "{got}");
        assert!(got.contains("STS [v1+0x4]"), "{got}");
        // LDSM has none alone, SYNCS none beside a register.
        let got = after(&format!("{copy}    v4:R = LDSM.16.M88 [v2]\n    STS [0x0], v4\n"));
        assert!(got.contains("LDSM.16.M88 [v2]"), "{got}");
        let sum = "    v2:R = IADD3 PT, PT, v0, v1, RZ, !PT, !PT\n";
        let got = after(&format!("{sum}    SYNCS.ARRIVE.ARRIVE.TRANS64 RZ, [v2+URZ], v0\n"));
        assert!(got.contains("[v2+URZ]"), "{got}");
    }
}
