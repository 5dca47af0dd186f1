//! Numbers of 64 bits in constant memory: up to sm_89, where arithmetic reads constants itself, one that an instruction would need
//! in two registers is an operand in bank 2 instead, as in ptxas's code. It costs no instruction and no register.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Function, InstData, Macro, Name, Op, Operand, Value};
use rustc_hash::FxHashMap;
use sass::{Mod, Opcode, Reg, RegFile, RegOp, SlotKind, SourceKinds, SwapChange};

/// The most bytes of literals of a function; a bank has 64 KiB, for a kernel and all that it calls.
const MOST_BYTES: usize = 4096;

/// The bank that holds them.
const BANK: u8 = 2;

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    2,
    "literals",
    "ConvertToUniformReg",
    "before sm_90 numbers of 64 bits in constant bank 2",
    run,
);

/// The pass. Objects keep their numbers in registers: there each would be a symbol and a relocation. So do functions that several kernels
/// share, each of which has a bank of its own.
pub fn run(func: &mut Function) -> bool {
    if !func.target.info().alu_const || func.calls_absolutely() {
        return false;
    }
    let mut numbers: SecondaryMap<Value, Option<u64>> = SecondaryMap::new();
    let mut any = false;
    for d in func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]) {
        if let Some((v, n)) = number(d) {
            numbers[v] = Some(n);
            any = true;
        }
    }
    if !any {
        return false;
    }
    let mut places: FxHashMap<u64, i32> = FxHashMap::default();
    let mut changed = false;
    for b in func.layout.clone() {
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            // The last source before the others: a product of a constant and a sum with one keeps the factor in registers.
            let found = (0..func.insts[i].operands.len()).rev().find_map(|k| {
                let n = literal(func, &numbers, &func.insts[i], k)?;
                Some((k, n))
            });
            let Some((at, n)) = found else { continue };
            let Some(offset) = place(func, &mut places, n) else { continue };
            func.insts[i].operands[at] = Operand::constant(BANK, offset);
            changed = true;
        }
    }
    if changed {
        ori::dead::remove(func);
    }
    changed
}

/// The 64-bit number that an instruction puts into two registers.
fn number(d: &InstData) -> Option<(Value, u64)> {
    if d.op != Op::Macro(Macro::Collect) || !d.is_unguarded() {
        return None;
    }
    let word = |o: &Operand| match o {
        Operand::Imm(n) => Some(u64::from(*n)),
        Operand::Reg(r) if *r == RegOp::plain(Name::Phys(Reg::RZ)) => Some(0),
        _ => None,
    };
    match &d.operands[..] {
        [Operand::Reg(RegOp { reg: Name::Val(v), .. }), low, high] => {
            Some((*v, word(low)? | word(high)? << 32))
        }
        _ => None,
    }
}

/// The number that source `k` is, with what the instruction does to its sign, if it can come from memory.
fn literal(
    func: &Function,
    numbers: &SecondaryMap<Value, Option<u64>>,
    d: &InstData,
    k: usize,
) -> Option<u64> {
    let Op::Sass(op) = d.op else { return None };
    let Operand::Reg(RegOp { reg: Name::Val(v), neg, abs, not: false, .. }) = d.operands[k] else {
        return None;
    };
    let n = numbers[v]?;
    if d.is_def(k) || !takes(func, d, op, k) {
        return None;
    }
    const SIGN: u64 = 1 << 63;
    if matches!(op, Opcode::DADD | Opcode::DMUL | Opcode::DFMA | Opcode::DSETP) {
        let n = if abs { n & !SIGN } else { n };
        return Some(if neg { n ^ SIGN } else { n });
    }
    // The sum of a wide product.
    (op == Opcode::IMAD && d.mods.has(Mod::WIDE) && !neg && !abs).then_some(n)
}

/// Whether source `k` may be a constant of 64 bits, where it stands or where legalization moves it, next to sources that are general
/// registers.
fn takes(func: &Function, d: &InstData, op: Opcode, k: usize) -> bool {
    let info = op.info();
    let source = |i: usize| op.slots()[i].kind == SlotKind::Source;
    let general = |o: &Operand| match o {
        Operand::Reg(r) => func.shape(r.reg).file == RegFile::R,
        _ => false,
    };
    if info.uniform
        || !source(k)
        || op.width(k, &d.mods) != 2
        || info.source_kinds != SourceKinds::Any
        || !d.operands.iter().enumerate().all(|(i, o)| i == k || !source(i) || general(o))
    {
        return false;
    }
    let may = |i: usize| info.sources.contains(&(i as u8));
    let swaps = |i: usize| info.swap.contains(&(i as u8));
    let sided = d.mods.iter().any(|m| matches!(m, Mod::EX | Mod::MAX | Mod::MIN));
    let changes = match info.swap_changes {
        SwapChange::Nothing => true,
        SwapChange::Compare => !sided,
        SwapChange::Lut | SwapChange::Select => false,
    };
    let moves = changes && swaps(k) && (0..d.operands.len()).any(|to| source(to) && may(to) && swaps(to));
    may(k) || moves
}

/// Where a number is, put there if need be.
fn place(func: &mut Function, places: &mut FxHashMap<u64, i32>, n: u64) -> Option<i32> {
    if let Some(at) = places.get(&n) {
        return Some(*at);
    }
    let at = func.literals.len();
    if at + 8 > MOST_BYTES {
        return None;
    }
    func.literals.extend(n.to_le_bytes());
    places.insert(n, at as i32);
    Some(at as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(sm: u8, body: &str) -> Function {
        let text = format!(
            "function k sm_{sm} entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R2 = LDS.64 [0x0]\n    \
             v1:R2 = collect 0x667f3bcd, 0x3fe6a09e\n    v2:R2 = collect RZ, 0x7\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f
    }

    #[test]
    fn numbers_of_two_registers_come_from_memory() {
        let sum = "    v3:R2 = DADD v1, v0\n    STS.64 [0x0], v3\n";
        let f = after(80, sum);
        assert!(f.to_string().contains("DADD c[0x2][0x0], v0") && !f.to_string().contains("collect"), "{f}");
        assert_eq!(f.literals, 0x3fe6_a09e_667f_3bcd_u64.to_le_bytes());
        // From sm_90 on nothing but loads reads constants.
        assert!(after(90, sum).literals.is_empty());
        // The sign is in the number; the same number is there once.
        let signs = "    v3:R2 = DFMA v0, v0, -v1\n    v4:R2 = DMUL v3, -|v1|\n    STS.64 [0x0], v4\n";
        let f = after(75, signs);
        assert_eq!(f.literals, 0xbfe6_a09e_667f_3bcd_u64.to_le_bytes());
        // One of two; and a stored one stays.
        let two = "    v3:R2 = DFMA v0, v2, v1\n    STS.64 [0x0], v3\n    STS.64 [0x8], v1\n";
        let f = after(75, two);
        assert!(
            f.to_string().contains("DFMA v0, v2, c[0x2][0x0]") && f.to_string().contains("STS.64 [0x8], v1"),
            "{f}"
        );
        // The sum of a wide product, beside registers alone.
        let wide = "    v3:R2 = IMAD.WIDE.U32 PT, v0.0, v0.1, v2, !PT\n    STS.64 [0x0], v3\n";
        assert!(after(75, wide).to_string().contains("v0.1, c[0x2][0x0]"));
        // Which of two is the greater: it stays on its side.
        let greater =
            "    v3:P, v4:P = DSETP.MAX.AND v1, v0, PT\n    v5:R = SEL v0.0, v0.1, v3\n    STS [0x0], v5\n";
        assert!(after(75, greater).literals.is_empty());
        let beside = "    v3:R2 = IMAD.WIDE.U32 PT, v0.0, 0x3, v2, !PT\n    STS.64 [0x0], v3\n";
        assert!(after(75, beside).literals.is_empty());
    }
}
