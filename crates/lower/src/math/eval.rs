//! Evaluates the Ori of an expansion on one thread, for tests: only the instructions that expansions use,
//! with MUFU's result optionally off by some units in the last place.

use super::exact::{self, Direction};
use cranelift_entity::SecondaryMap;
use ori::{Function, Macro, Name, Op, Operand, Terminator, Value};
use sass::compute::{self, Term};
use sass::ops::{
    Dsetp, DsetpMods, Fsetp, FsetpMods, Iadd, Iadd3, Imad, Int64, Isetp, IsetpMods, Lop3, Plop3, Prmt, Shf,
    ShfMods,
};
use sass::{Mod, Opcode, Reg, RegFile};
use smallvec::SmallVec;

/// Runs `func` from its entry; `inputs` are predefined values; returns the registers of `result` when the
/// thread exits. `mufu_error` is added to the significand of every MUFU result.
pub fn run(func: &Function, inputs: &[(Value, u64)], result: Value, mufu_error: i32) -> u64 {
    let mut m = Machine { func, values: SecondaryMap::with_capacity(func.values.len()), mufu_error };
    for (v, x) in inputs {
        m.values[*v] = *x;
    }
    let mut block = func.entry_block();
    loop {
        for i in &func.blocks[block].insts {
            m.step(*i);
        }
        let call = match &func.blocks[block].term {
            Terminator::Exit => return m.values[result],
            Terminator::Jump(t) => t,
            Terminator::Branch { cond, not, taken, fall } => {
                if (m.name(*cond) != 0) != *not {
                    taken
                } else {
                    fall
                }
            }
            other => panic!("{other}"),
        };
        let args: SmallVec<[u64; 2]> = call.args.iter().map(|a| m.values[*a]).collect();
        for (p, a) in func.blocks[call.block].params.iter().zip(args) {
            m.values[*p] = a;
        }
        block = call.block;
    }
}

struct Machine<'f> {
    func: &'f Function,
    values: SecondaryMap<Value, u64>,
    mufu_error: i32,
}

fn f32_of(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn f64_of(x: u64) -> f64 {
    f64::from_bits(x)
}

/// The direction that the modifiers name.
fn direction(mods: &sass::Mods) -> Direction {
    if mods.has(Mod::RZ) {
        Direction::Zero
    } else if mods.has(Mod::RM) {
        Direction::Down
    } else if mods.has(Mod::RP) {
        Direction::Up
    } else {
        Direction::Nearest
    }
}

/// The bits of a result of arithmetic.
fn single(x: f32, ftz: bool) -> u64 {
    u64::from(if x.is_nan() { 0x7fff_ffff } else { flush(x, ftz).to_bits() })
}

fn flush(x: f32, ftz: bool) -> f32 {
    if ftz && x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// What an instruction of an expansion has for certain.
fn slots<T>(of: Option<T>) -> T {
    of.expect("operands and modifiers as the table names them")
}

impl Machine<'_> {
    fn name(&self, n: Name) -> u64 {
        match n {
            Name::Val(v) => self.values[v],
            Name::Part(v, i) => self.values[v] >> (32 * i) & 0xffff_ffff,
            Name::Phys(Reg { file: RegFile::P, .. }) => 1,
            Name::Phys(_) => 0,
        }
    }

    /// A source as an integer of `width` registers.
    fn int(&self, o: &Operand, width: u8) -> u64 {
        let mask = if width == 1 { 0xffff_ffff } else { u64::MAX };
        match o {
            Operand::Imm(n) => u64::from(*n),
            Operand::Reg(r) => {
                let mut x = self.name(r.reg);
                assert!(!r.abs);
                if r.not {
                    x = !x;
                }
                if r.neg {
                    x = x.wrapping_neg();
                }
                x & mask
            }
            other => panic!("{other:?}"),
        }
    }

    /// A source of 64 bits; numbers are extended by their sign.
    fn wide(&self, o: &Operand) -> u64 {
        match o {
            Operand::Imm(n) => *n as i32 as u64,
            other => self.int(other, 2),
        }
    }

    fn word(&self, o: &Operand) -> u32 {
        self.int(o, 1) as u32
    }

    fn pred(&self, o: &Operand) -> bool {
        let Operand::Reg(r) = o else { panic!() };
        (self.name(r.reg) & 1 != 0) != r.not
    }

    fn f32(&self, o: &Operand, ftz: bool) -> f32 {
        match o {
            Operand::Imm(n) => f32::from_bits(*n),
            Operand::Reg(r) => {
                let mut x = flush(f32_of(self.name(r.reg)), ftz);
                if r.abs {
                    x = x.abs();
                }
                if r.neg { -x } else { x }
            }
            other => panic!("{other:?}"),
        }
    }

    fn f64(&self, o: &Operand) -> f64 {
        match o {
            Operand::Imm(n) => f64::from_bits(u64::from(*n) << 32),
            Operand::Reg(r) => {
                let mut x = f64_of(self.name(r.reg));
                if r.abs {
                    x = x.abs();
                }
                if r.neg { -x } else { x }
            }
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self, o: &Operand, x: u64) {
        if let Operand::Reg(r) = o
            && let Name::Val(v) = r.reg
        {
            let mask = match self.func.values[v] {
                ori::ValueData { file: RegFile::P, .. } => 1,
                ori::ValueData { width: 1, .. } => 0xffff_ffff,
                _ => u64::MAX,
            };
            self.values[v] = x & mask;
        }
    }

    fn mufu(&self, x: f32) -> u64 {
        let nudge = if x.is_normal() { self.mufu_error } else { 0 };
        single(x, true).wrapping_add_signed(nudge.into())
    }

    fn step(&mut self, i: ori::Inst) {
        let d = &self.func.insts[i];
        let o = &d.operands;
        let has = |m| d.mods.has(m);
        if !d.is_unguarded() && (self.name(d.guard.pred) != 0) == d.guard.not {
            let kept = self.name(d.kept[0]);
            return self.set(&o[0].clone(), kept);
        }
        let ftz = has(Mod::FTZ);
        let op = match d.op {
            Op::Macro(Macro::Collect) => {
                let x = self.int(&o[1], 1) | self.int(&o[2], 1) << 32;
                return self.set(&o[0].clone(), x);
            }
            Op::Macro(_) => {
                let x = self.int(&o[1], 1);
                return self.set(&o[0].clone(), x);
            }
            Op::Sass(op) => op,
        };
        let round64 = |x: f64| x.to_bits();
        let result = match op {
            Opcode::IADD3 => {
                let s = slots(Iadd3::of(d));
                let carries = u32::from(self.pred(s.carry)) + u32::from(self.pred(s.carry2));
                let term = |o: &Operand| match o {
                    Operand::Reg(r) if r.neg => Term { word: self.name(r.reg) as u32, minus: true },
                    other => Term { word: self.word(other), minus: false },
                };
                let (sum, carry) = compute::iadd3(s.terms().map(term), carries);
                let asked = matches!(s.carry_out, Operand::Reg(r) if r.reg.value().is_some());
                assert!(!asked || carry < 2, "a second carry");
                self.set(s.carry_out, u64::from(carry & 1));
                u64::from(sum)
            }
            Opcode::IADD if has(Mod::_64) => {
                let s = slots(Iadd::of(d));
                self.wide(s.a).wrapping_add(self.wide(s.b))
            }
            Opcode::IMAD if has(Mod::WIDE) || has(Mod::HI) => {
                let s = slots(Imad::of(d));
                let factor = |o: &Operand| {
                    let x = self.int(o, 1);
                    if has(Mod::U32) { x } else { x as i32 as i64 as u64 }
                };
                let (x, carry) = factor(s.a).wrapping_mul(factor(s.b)).overflowing_add(self.int(s.c, 2));
                self.set(s.carry_out, u64::from(carry));
                if has(Mod::HI) { x >> 32 } else { x }
            }
            Opcode::IMAD => {
                let s = slots(Imad::of(d));
                self.int(s.a, 1).wrapping_mul(self.int(s.b, 1)).wrapping_add(self.int(s.c, 1))
            }
            Opcode::IABS => u64::from((self.int(&o[1], 1) as i32).unsigned_abs()),
            Opcode::LOP3 => {
                let s = slots(Lop3::of(d));
                let Operand::Imm(table) = *s.table else { panic!() };
                return self.set(s.d, compute::lop3(table, s.inputs().map(|o| self.word(o))).into());
            }
            Opcode::SHF => {
                let (s, mods) = (slots(Shf::of(d)), slots(ShfMods::of(d)));
                compute::shf(mods, self.word(s.low), self.word(s.amount), self.word(s.high)).into()
            }
            Opcode::SGXT => compute::sgxt(has(Mod::U32), self.word(&o[1]), self.word(&o[2])).into(),
            Opcode::BMSK => compute::bmsk(self.word(&o[1]), self.word(&o[2])).into(),
            Opcode::POPC => u64::from(self.int(&o[1], 1).count_ones()),
            Opcode::BREV => u64::from((self.int(&o[1], 1) as u32).reverse_bits()),
            Opcode::FLO => compute::flo(has(Mod::U32), has(Mod::SH), self.word(&o[2])).into(),
            Opcode::PRMT => {
                let s = slots(Prmt::of(d));
                compute::prmt(self.word(s.a), self.word(s.selector), self.word(s.b)).into()
            }
            Opcode::IMNMX | Opcode::VIMNMX => {
                let [.., a, b, least] = &o[..] else { panic!("{o:?}") };
                compute::extremum(has(Mod::U32), self.word(a), self.word(b), self.pred(least)).into()
            }
            Opcode::PLOP3 => {
                let s = slots(Plop3::of(d));
                let Operand::Imm(table) = *s.table else { panic!() };
                compute::plop3(table, [s.a, s.b, s.c].map(|o| self.pred(o))).into()
            }
            Opcode::ISETP => {
                let (s, mods) = (slots(Isetp::of(d)), slots(IsetpMods::of(d)));
                let order = match mods.kind {
                    None => compute::order(false, self.word(s.a), self.word(s.b)),
                    Some(Int64::U32) => compute::order(true, self.word(s.a), self.word(s.b)),
                    Some(Int64::U64) => self.wide(s.a).cmp(&self.wide(s.b)),
                    Some(Int64::S64) => (self.wide(s.a) as i64).cmp(&(self.wide(s.b) as i64)),
                };
                // `.EX` on equal upper halves: the lower comparison decides.
                let holds = match mods.extended && order.is_eq() {
                    true => self.pred(s.lower),
                    false => compute::icmp(mods.cmp, order),
                };
                compute::join(mods.join, holds, self.pred(s.join)).into()
            }
            Opcode::SEL => self.int(&o[if self.pred(&o[3]) { 1 } else { 2 }], 1),
            Opcode::I2F => {
                let x = self.int(&o[1], if has(Mod::U64) { 2 } else { 1 });
                let mut f = x as f32;
                if (f as u128) < u128::from(x) {
                    f = f.next_up();
                }
                u64::from(f.to_bits())
            }
            Opcode::F2I if has(Mod::U64) => self.f32(&o[1], ftz) as u64,
            Opcode::F2I => u64::from(self.f32(&o[1], ftz) as u32),
            Opcode::F2F if d.mods.iter().next() == Some(Mod::F64) => {
                round64(f64::from(self.f32(&o[1], false)))
            }
            Opcode::F2F => u64::from((self.f64(&o[1]) as f32).to_bits()),
            Opcode::MUFU => {
                let x = self.f32(&o[1], false);
                let nudge = |x: f64| {
                    let high = (x.to_bits() >> 32) as u32;
                    let error = if x.is_normal() { self.mufu_error } else { 0 };
                    u64::from(high.wrapping_add_signed(error))
                };
                let wide = f64::from_bits(u64::from(x.to_bits()) << 32);
                if has(Mod::RCP64H) {
                    nudge(wide.recip())
                } else if has(Mod::RSQ64H) {
                    nudge(wide.sqrt().recip())
                } else if has(Mod::RCP) {
                    self.mufu(flush(x, true).recip())
                } else if has(Mod::SQRT) {
                    self.mufu(flush(x, true).sqrt())
                } else {
                    self.mufu((1.0 / f64::from(flush(x, true)).sqrt()) as f32)
                }
            }
            Opcode::FADD => single(self.f32(&o[1], ftz) + self.f32(&o[2], ftz), ftz),
            Opcode::FMUL => {
                let [a, b] = [1, 2].map(|k| self.f32(&o[k], ftz));
                single(exact::mul(a, b, direction(&d.mods)), ftz)
            }
            Opcode::FFMA => {
                let [a, b, c] = [1, 2, 3].map(|k| self.f32(&o[k], ftz));
                single(exact::fma(a, b, c, direction(&d.mods)), ftz)
            }
            Opcode::FCHK => {
                let e = |k: usize| i64::from(self.f32(&o[k], false).to_bits() >> 23 & 0xff);
                let (x, y) = (e(1), e(2));
                // Exponents for which neither the operands nor any intermediate leave the normal range.
                u64::from(
                    !(24..=254 - 1).contains(&x)
                        || !(2..=252).contains(&y)
                        || !(-125..=126).contains(&(x - y)),
                )
            }
            Opcode::FSETP => {
                let (s, mods) = (slots(Fsetp::of(d)), slots(FsetpMods::of(d)));
                let order = self.f32(s.a, ftz).partial_cmp(&self.f32(s.b, ftz));
                let holds = slots(compute::fcmp(mods.cmp.modifier(), order));
                compute::join(mods.join, holds, self.pred(s.join)).into()
            }
            Opcode::DADD => round64(self.f64(&o[1]) + self.f64(&o[2])),
            Opcode::DMUL if direction(&d.mods) == Direction::Nearest => {
                round64(self.f64(&o[1]) * self.f64(&o[2]))
            }
            Opcode::DMUL => round64(exact::fma64(self.f64(&o[1]), self.f64(&o[2]), 0.0, direction(&d.mods))),
            Opcode::DFMA => {
                let [a, b, c] = [1, 2, 3].map(|k| self.f64(&o[k]));
                round64(exact::fma64(a, b, c, direction(&d.mods)))
            }
            Opcode::DSETP => {
                let (s, mods) = (slots(Dsetp::of(d)), slots(DsetpMods::of(d)));
                let order = self.f64(s.a).partial_cmp(&self.f64(s.b));
                let holds = slots(compute::fcmp(mods.cmp.modifier(), order));
                compute::join(mods.join, holds, self.pred(s.join)).into()
            }
            other => panic!("{other}"),
        };
        self.set(&o[0], result);
    }
}
