//! Comparisons take part in logic: `p ∧ q`, `p ∨ q` and `p ⊕ q`, where `p` is a comparison that nothing else needs, are the
//! comparison itself with `q` as its third source. A complemented comparison becomes the opposite one. Logic on logic is one instruction, where it
//! is on three predicates at most.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Inst, InstData, Name, Op, Operand, Operands, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{Bool, Dcmp, Dsetp, DsetpMods, Fcmp, Fsetp, FsetpMods, Icmp, Isetp, IsetpMods, Plop3};
use sass::{Mods, Opcode, Reg};
use smallvec::SmallVec;

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    1,
    "join-comparisons",
    "GeneralOptimizeMid",
    "logic on two comparisons as part of the second, on three predicates as one instruction",
    run,
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let mut defs: SecondaryMap<Value, Option<(Inst, Block)>> = SecondaryMap::new();
    let uses = crate::uses::count(func);
    let mut logic: Vec<(Inst, Block)> = Vec::new();
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            match d.op {
                Op::Sass(Opcode::ISETP | Opcode::FSETP) => {
                    if let Some(Name::Val(v)) = Comparison::of(d).and_then(|c| register(c.p)).map(|(n, _)| n)
                    {
                        defs[v] = Some((i, b));
                    }
                }
                Op::Sass(Opcode::PLOP3) => logic.push((i, b)),
                _ => {}
            }
        }
    }
    let mut changed = false;
    // A comparison that takes in one result may itself be taken in by the next.
    for (i, b) in logic {
        let Some(new) = combined(func, &defs, &uses, i, b) else { continue };
        let result = Comparison::of(&new).and_then(|c| register(c.p)).map(|(n, _)| n);
        func.insts[i] = new;
        if let Some(Name::Val(v)) = result {
            defs[v] = Some((i, b));
        }
        changed = true;
    }
    fuse(func, &uses) || changed
}

/// Makes logic on what other logic of the block makes for it alone one instruction.
fn fuse(func: &mut Function, uses: &SecondaryMap<Value, u32>) -> bool {
    let mut changed = false;
    for b in func.layout.clone() {
        let mut made: FxHashMap<Value, Table> = FxHashMap::default();
        for &i in &func.blocks[b].insts {
            let Some((result, mut table)) = Table::of(&func.insts[i]) else { continue };
            while let Some(whole) = table.names.iter().find_map(|n| table.with(*n, &made, uses)) {
                func.insts[i].operands = whole.operands(result);
                (table, changed) = (whole, true);
            }
            made.insert(result, table);
        }
    }
    changed
}

/// What PLOP3 makes of up to three predicates: bit `n` for the `n`th row, the first of them being the highest bit of `n`.
struct Table {
    names: SmallVec<[Value; 3]>,
    rows: u32,
}

impl Table {
    fn of(d: &InstData) -> Option<(Value, Table)> {
        let s = Plop3::of(d).filter(|_| d.is_unguarded())?;
        let Operand::Imm(rows) = *s.table else { return None };
        let sources = [register(s.a)?, register(s.b)?, register(s.c)?];
        let (Name::Val(result), true) = (register(s.p)?.0, register(s.q)?.0 == PT) else { return None };
        let known = |n: &Name| n.value().is_some() || *n == PT;
        if !sources.iter().all(|s| known(&s.0)) {
            return None;
        }
        let mut names: SmallVec<[Value; 3]> = SmallVec::new();
        for v in sources.iter().filter_map(|s| s.0.value()) {
            if !names.contains(&v) {
                names.push(v);
            }
        }
        let row = |values: &dyn Fn(Value) -> bool| {
            let of = |(n, not): (Name, bool)| n.value().is_none_or(values) != not;
            let at = sources.iter().fold(0, |at, s| at << 1 | u32::from(of(*s)));
            rows >> at & 1 != 0
        };
        let rows = Table::rows(&names, row);
        Some((result, Table { names, rows }))
    }

    /// The rows of what `result` says for values of the names; a place without a name makes no difference.
    fn rows(names: &[Value], result: impl Fn(&dyn Fn(Value) -> bool) -> bool) -> u32 {
        let holds = |row: u32, v: Value| {
            let at = names.iter().position(|n| *n == v).unwrap_or(0);
            row >> (2 - at) & 1 != 0
        };
        (0..8).filter(|row| result(&|v| holds(*row, v))).fold(0, |rows, row| rows | 1 << row)
    }

    /// Whether it holds for such values.
    fn holds(&self, values: &dyn Fn(Value) -> bool) -> bool {
        let at = (0..3).fold(0, |at, k| at << 1 | u32::from(self.names.get(k).is_some_and(|v| values(*v))));
        self.rows >> at & 1 != 0
    }

    /// The same with what makes `inner`, that nothing else reads, in its place.
    fn with(
        &self,
        inner: Value,
        made: &FxHashMap<Value, Table>,
        uses: &SecondaryMap<Value, u32>,
    ) -> Option<Table> {
        let maker = made.get(&inner).filter(|_| uses[inner] == 1)?;
        let mut names: SmallVec<[Value; 3]> = self.names.iter().copied().filter(|n| *n != inner).collect();
        for n in &maker.names {
            if !names.contains(n) {
                names.push(*n);
            }
        }
        if names.len() > 3 {
            return None;
        }
        let rows = Table::rows(&names, |values| {
            self.holds(&|v| if v == inner { maker.holds(values) } else { values(v) })
        });
        Some(Table { names, rows })
    }

    fn operands(&self, result: Value) -> Operands<Name> {
        let mut operands: Operands<Name> = [operand(result), Operand::reg(PT)].into_iter().collect();
        operands.extend((0..3).map(|k| self.names.get(k).map_or(Operand::reg(PT), |v| operand(*v))));
        operands.extend([Operand::Imm(self.rows), Operand::Imm(0)]);
        operands
    }
}

/// What comparisons of integers and of floating-point numbers have alike.
struct Comparison<'a> {
    /// The results.
    p: &'a Operand,
    q: &'a Operand,
    /// What the comparison is combined with, and how.
    other: &'a Operand,
    join: Bool,
}

impl Comparison<'_> {
    fn of(d: &InstData) -> Option<Comparison<'_>> {
        if let (Some(s), Some(m)) = (Isetp::of(d), IsetpMods::of(d)) {
            return Some(Comparison { p: s.p, q: s.q, other: s.join, join: m.join });
        }
        if let (Some(s), Some(m)) = (Dsetp::of(d), DsetpMods::of(d)) {
            return Some(Comparison { p: s.p, q: s.q, other: s.join, join: m.join });
        }
        let (s, m) = (Fsetp::of(d)?, FsetpMods::of(d)?);
        Some(Comparison { p: s.p, q: s.q, other: s.join, join: m.join })
    }
}

/// A predicate operand: its register and whether it is complemented.
fn register(o: &Operand) -> Option<(Name, bool)> {
    match o {
        Operand::Reg(r) => Some((r.reg, r.not)),
        _ => None,
    }
}

const PT: Name = Name::Phys(Reg::PT);

/// The comparison that takes the place of a PLOP3 of two predicates.
fn combined(
    func: &Function,
    defs: &SecondaryMap<Value, Option<(Inst, Block)>>,
    uses: &SecondaryMap<Value, u32>,
    i: Inst,
    block: Block,
) -> Option<InstData> {
    let d = &func.insts[i];
    let logic = Plop3::of(d)?;
    let Operand::Imm(table) = *logic.table else { return None };
    if d.guard != ori::ALWAYS || register(logic.q)?.0 != PT || register(logic.c)? != (PT, false) {
        return None;
    }
    let (a, b) = (register(logic.a)?, register(logic.b)?);
    // The result for each pair of registers, the third source being true.
    let result = |x: bool, y: bool| {
        let index = u32::from(x != a.1) << 2 | u32::from(y != b.1) << 1 | 1;
        table >> index & 1 != 0
    };
    let candidate = |name: Name| {
        let Name::Val(v) = name else { return None };
        let (def, at) = defs[v]?;
        (at == block && uses[v] == 1 && takes_part(&func.insts[def])).then_some(def)
    };
    let (compare, other, result): (Inst, Name, [[bool; 2]; 2]) = match (candidate(a.0), candidate(b.0)) {
        (Some(x), _) => (x, b.0, [false, true].map(|x| [false, true].map(|y| result(x, y)))),
        (None, Some(x)) => (x, a.0, [false, true].map(|x| [false, true].map(|y| result(y, x)))),
        (None, None) => return None,
    };
    // Which of `x ∘ y` with either complemented it is; where `y` is PT only its column counts.
    let same = |join: Bool, not_x: bool, not_y: bool| {
        let value = |x: bool, y: bool| {
            let (x, y) = (x != not_x, y != not_y);
            match join {
                Bool::AND => x && y,
                Bool::OR => x || y,
                Bool::XOR => x != y,
            }
        };
        let columns: &[bool] = if other == PT { &[true] } else { &[false, true] };
        columns.iter().all(|&y| [false, true].iter().all(|&x| result[x as usize][y as usize] == value(x, y)))
    };
    let joins = [Bool::AND, Bool::OR, Bool::XOR];
    let choices = joins.into_iter().flat_map(|join| [0, 2, 1, 3].map(|n| (join, n & 1 != 0, n & 2 != 0)));
    let (join, not_x, not_y) = choices.into_iter().find(|(join, x, y)| same(*join, *x, *y))?;
    let mut new = func.insts[compare].clone();
    new.mods = rejoined(new.opcode()?, &new.mods, not_x, join)?;
    let other = Operand::Reg(sass::RegOp { not: not_y, ..sass::RegOp::plain(other) });
    if let Some(s) = Isetp::of_mut(&mut new) {
        (*s.p, *s.join) = (*logic.p, other);
    } else if let Some(s) = Fsetp::of_mut(&mut new) {
        (*s.p, *s.join) = (*logic.p, other);
    }
    Some(new)
}

/// The modifiers of a comparison with `op`, or of the opposite one, that is joined so.
fn rejoined(op: Opcode, mods: &Mods, not: bool, join: Bool) -> Option<Mods> {
    let mods = if not { opposite(op, mods)? } else { mods.clone() };
    match op {
        Opcode::ISETP => Some(IsetpMods { join, ..IsetpMods::read(&mods)? }.mods()),
        Opcode::FSETP => Some(FsetpMods { join, ..FsetpMods::read(&mods)? }.mods()),
        _ => None,
    }
}

/// The modifiers of the comparison that is true where this one is false.
pub(crate) fn opposite(op: Opcode, mods: &Mods) -> Option<Mods> {
    match op {
        Opcode::ISETP => {
            // The comparison of upper words goes on from that of the lower ones, which would have to change too.
            let m = IsetpMods::read(mods).filter(|m| !m.extended)?;
            Some(IsetpMods { cmp: opposite_of_integers(m.cmp)?, ..m }.mods())
        }
        Opcode::FSETP => {
            let m = FsetpMods::read(mods)?;
            Some(FsetpMods { cmp: opposite_of_floats(m.cmp)?, ..m }.mods())
        }
        Opcode::DSETP => {
            let m = DsetpMods::read(mods)?;
            let cmp = opposite_of_floats(Fcmp::of(m.cmp.modifier())?)?;
            Some(DsetpMods { cmp: Dcmp::of(cmp.modifier())?, ..m }.mods())
        }
        _ => None,
    }
}

/// Whether a comparison has room for another predicate: it has one result and is combined with PT.
pub(crate) fn takes_part(d: &InstData) -> bool {
    d.guard == ori::ALWAYS
        && Comparison::of(d).is_some_and(|c| {
            c.join == Bool::AND
                && register(c.q).is_some_and(|r| r.0 == PT)
                && register(c.other) == Some((PT, false))
        })
}

fn opposite_of_integers(cmp: Icmp) -> Option<Icmp> {
    Some(match cmp {
        Icmp::EQ => Icmp::NE,
        Icmp::NE => Icmp::EQ,
        Icmp::LT => Icmp::GE,
        Icmp::LE => Icmp::GT,
        Icmp::GT => Icmp::LE,
        Icmp::GE => Icmp::LT,
        Icmp::F | Icmp::T => return None,
    })
}

/// Either number may be NaN.
fn opposite_of_floats(cmp: Fcmp) -> Option<Fcmp> {
    Some(match cmp {
        Fcmp::EQ => Fcmp::NEU,
        Fcmp::NE => Fcmp::EQU,
        Fcmp::LT => Fcmp::GEU,
        Fcmp::LE => Fcmp::GTU,
        Fcmp::GT => Fcmp::LEU,
        Fcmp::GE => Fcmp::LTU,
        Fcmp::EQU => Fcmp::NE,
        Fcmp::NEU => Fcmp::EQ,
        Fcmp::LTU => Fcmp::GE,
        Fcmp::LEU => Fcmp::GT,
        Fcmp::GTU => Fcmp::LE,
        Fcmp::GEU => Fcmp::LT,
        Fcmp::NUM => Fcmp::NAN,
        Fcmp::NAN => Fcmp::NUM,
        Fcmp::F | Fcmp::T => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, Terminator, operand};
    use sass::Mod;
    use sass::{RegFile, SpecialReg, Target};

    /// `FSETP.LT x < y` and a table with another predicate.
    fn logic(table: u32, complemented: bool) -> String {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let exit = f.add_block();
        let mut b = Builder::new(&mut f, entry);
        let x = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
        let pt = || Operand::reg(PT);
        let q = b.def_pred(Opcode::ISETP, &[Mod::GT, Mod::AND], &[operand(x), Operand::Imm(7), pt(), pt()]);
        let _both =
            b.def_pred(Opcode::ISETP, &[Mod::LT, Mod::AND], &[operand(x), operand(x), operand(q), pt()]);
        let p = b.def_pred(Opcode::FSETP, &[Mod::LT, Mod::AND], &[operand(x), Operand::Imm(0), pt()]);
        let q = Operand::Reg(sass::RegOp { not: complemented, ..sass::RegOp::plain(Name::Val(q)) });
        let tables = [Operand::Imm(table & 0xaa), Operand::Imm(0)];
        let [lut, zero] = tables;
        let r = b.def_pred(Opcode::PLOP3, &[Mod::LUT], &[operand(p), q, pt(), lut, zero]);
        b.terminate(Terminator::Branch {
            cond: r.into(),
            not: false,
            taken: Builder::call(exit),
            fall: Builder::call(exit),
        });
        b.block = exit;
        b.terminate(Terminator::Exit);
        assert_eq!(f.values[r].file, RegFile::P);
        run(&mut f);
        ori::verify::verify(&f).unwrap();
        let text = f.to_string();
        text.lines().filter(|l| l.contains("v4:P =")).map(|l| l.trim().to_string()).collect()
    }

    #[test]
    fn and_or_and_complements() {
        assert_eq!(logic(0xc0, false), "v4:P = FSETP.LT.AND PT, v0, 0x0, v1");
        assert_eq!(logic(0xfc, false), "v4:P = FSETP.LT.OR PT, v0, 0x0, v1");
        assert_eq!(logic(0xc0, true), "v4:P = FSETP.LT.AND PT, v0, 0x0, ~v1");
        assert_eq!(logic(0x0c, false), "v4:P = FSETP.GEU.AND PT, v0, 0x0, v1");
        assert_eq!(logic(0x3f, true), "v4:P = FSETP.GEU.OR PT, v0, 0x0, v1");
        assert_eq!(logic(0x3c, false), "v4:P = FSETP.LT.XOR PT, v0, 0x0, v1");
        assert_eq!(logic(0x3c, true), "v4:P = FSETP.LT.XOR PT, v0, 0x0, ~v1");
        assert_eq!(logic(0xc3, false), "v4:P = FSETP.LT.XOR PT, v0, 0x0, ~v1");
    }

    #[test]
    fn logic_on_logic_is_one_instruction() {
        // For every way to negate sources of two tables: the fused one gives what both did.
        for n in 0..1 << 9 {
            let tables = [[0x80, 0x6a, 0xe2, 0x17][n & 3], [0x80, 0xfe, 0x96, 0x35][n >> 2 & 3]];
            let not = |k: usize| if n >> (4 + k) & 1 != 0 { "~" } else { "" };
            let text = format!(
                "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    v1:P = ISETP.GT.AND PT, v0, 0x1, PT, PT\n    \
                 v2:P = ISETP.GT.AND PT, v0, 0x2, PT, PT\n    v3:P = ISETP.GT.AND PT, v0, 0x3, PT, PT\n    STS [v0], v0\n    \
                 v4:P = PLOP3.LUT PT, {}v1, {}v2, PT, 0x{:x}, 0x0\n    v5:P = PLOP3.LUT PT, {}v3, {}v4, {}v1, 0x{:x}, 0x0\n    \
                 branch v5, block1, block2\nblock1:\n    exit\nblock2:\n    STS [v0+0x4], v0\n    exit\n}}\n",
                not(0),
                not(1),
                tables[0],
                not(2),
                not(3),
                not(4),
                tables[1]
            );
            let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let logic = |f: &Function| -> Vec<InstData> {
                let all = f.blocks[f.entry_block()].insts.iter().map(|i| f.insts[*i].clone());
                all.filter(|d| d.op == Op::Sass(Opcode::PLOP3)).collect()
            };
            // What a sequence of them makes of values of v1, v2 and v3.
            let value = |insts: &[InstData], row: u32| {
                let mut known: FxHashMap<Name, bool> = FxHashMap::default();
                known.insert(PT, true);
                (1..4).for_each(|v| _ = known.insert(Name::Val(Value::from_u32(v)), row >> (v - 1) & 1 != 0));
                let mut last = false;
                for d in insts {
                    let s = Plop3::of(d).unwrap();
                    let at = [s.a, s.b, s.c].into_iter().fold(0, |at, o| {
                        let (name, not) = register(o).unwrap();
                        at << 1 | u32::from(known[&name] != not)
                    });
                    let Operand::Imm(rows) = *s.table else { panic!("{d:?}") };
                    last = rows >> at & 1 != 0;
                    known.insert(register(s.p).unwrap().0, last);
                }
                last
            };
            let before = logic(&f);
            let uses = crate::uses::count(&f);
            assert!(fuse(&mut f, &uses));
            ori::dead::remove(&mut f);
            ori::verify::verify(&f).unwrap();
            let after = logic(&f);
            assert_eq!(after.len(), 1, "{f}");
            (0..8).for_each(|row| assert_eq!(value(&before, row), value(&after, row), "{text}{f}"));
        }
    }

    #[test]
    fn every_opposite_is_mutual() {
        for op in [Opcode::ISETP, Opcode::FSETP, Opcode::DSETP] {
            for m in [Mod::EQ, Mod::NE, Mod::LT, Mod::LE, Mod::GT, Mod::GE, Mod::NUM, Mod::LTU, Mod::EQU] {
                let mods = Mods::of(&[m, Mod::AND]);
                if let Some(o) = opposite(op, &mods) {
                    assert_eq!(opposite(op, &o), Some(mods));
                }
            }
        }
        assert_eq!(opposite(Opcode::ISETP, &Mods::of(&[Mod::EQ, Mod::AND, Mod::EX])), None);
    }
}
