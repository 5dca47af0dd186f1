//! Evaluates the Ori of an expansion on one thread, for tests: only the instructions that expansions use,
//! with MUFU's result optionally off by some units in the last place.

use super::exact::{self, Direction};
use cranelift_entity::SecondaryMap;
use ori::{Function, Macro, Name, Op, Operand, Terminator, Value};
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
                let carry = u64::from(self.pred(&o[6])) + u64::from(self.pred(&o[7]));
                // `-x` is `~x + 1`, whose carry counts: -0 carries out.
                let term = |k: usize| match &o[k] {
                    Operand::Reg(r) if r.neg => u64::from(!(self.name(r.reg) as u32)) + 1,
                    other => self.int(other, 1),
                };
                let sum = term(3) + term(4) + term(5) + carry;
                let asked = matches!(&o[1], Operand::Reg(r) if r.reg.value().is_some());
                assert!(!asked || sum >> 33 == 0, "a second carry");
                self.set(&o[1], sum >> 32 & 1);
                sum
            }
            Opcode::IMAD if has(Mod::WIDE) || has(Mod::HI) => {
                let factor = |k: usize| {
                    let x = self.int(&o[k], 1);
                    if has(Mod::U32) { x } else { x as i32 as i64 as u64 }
                };
                let (x, carry) = factor(2).wrapping_mul(factor(3)).overflowing_add(self.int(&o[4], 2));
                self.set(&o[1], u64::from(carry));
                if has(Mod::HI) { x >> 32 } else { x }
            }
            Opcode::IMAD => {
                self.int(&o[2], 1).wrapping_mul(self.int(&o[3], 1)).wrapping_add(self.int(&o[4], 1))
            }
            Opcode::IABS => u64::from((self.int(&o[1], 1) as i32).unsigned_abs()),
            Opcode::LOP3 => {
                let [a, b, c] = [2, 3, 4].map(|k| self.int(&o[k], 1) as u32);
                let Operand::Imm(lut) = o[5] else { panic!() };
                let mut x = 0;
                for bit in 0..32 {
                    let index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
                    x |= (lut >> index & 1) << bit;
                }
                // LOP3's first slot is its predicate, the second its result.
                return self.set(&o[1], u64::from(x));
            }
            Opcode::SHF => {
                let (lo, n, hi) = (self.int(&o[1], 1), self.int(&o[2], 1), self.int(&o[3], 1));
                let limit = if has(Mod::U64) || has(Mod::S64) { 64 } else { 32 };
                let n = if has(Mod::W) { n % limit } else { n.min(limit) } as u32;
                // `.HI` of a right shift takes the upper word alone; of a left shift it is the upper result.
                if has(Mod::R) && has(Mod::HI) {
                    let x = if has(Mod::S32) { hi as i32 as i64 } else { hi as i64 };
                    (x >> n) as u64
                } else {
                    let pair = u128::from(hi << 32 | lo);
                    let wide = if has(Mod::S64) { (pair as i64 as i128) as u128 } else { pair };
                    if has(Mod::R) {
                        (wide as i128 >> n) as u64
                    } else if has(Mod::HI) {
                        (pair << n >> 32) as u64
                    } else {
                        (pair << n) as u64
                    }
                }
            }
            Opcode::SGXT => {
                let (x, n) = (self.int(&o[1], 1) as u32, self.int(&o[2], 1).min(32) as u32);
                let up = x.checked_shl(32 - n).unwrap_or(0);
                let down = if has(Mod::U32) {
                    up.checked_shr(32 - n).unwrap_or(0)
                } else {
                    (i64::from(up as i32) >> (32 - n)) as u32
                };
                u64::from(down)
            }
            Opcode::BMSK => {
                let (pos, n) = (self.int(&o[1], 1).min(32), self.int(&o[2], 1).min(32));
                ((1u64 << n) - 1) << pos
            }
            Opcode::POPC => u64::from(self.int(&o[1], 1).count_ones()),
            Opcode::BREV => u64::from((self.int(&o[1], 1) as u32).reverse_bits()),
            Opcode::FLO => {
                let x = self.int(&o[2], 1) as u32;
                let x = if !has(Mod::U32) && (x as i32) < 0 { !x } else { x };
                u64::from(31u32.wrapping_sub(x.leading_zeros()))
            }
            Opcode::PRMT => {
                let bytes = self.int(&o[3], 1) << 32 | self.int(&o[1], 1);
                let selector = self.int(&o[2], 1);
                (0..4)
                    .map(|i| {
                        let s = selector >> (4 * i) & 15;
                        let byte = bytes >> (8 * (s & 7)) & 0xff;
                        (if s & 8 != 0 { 0xff * (byte >> 7) } else { byte }) << (8 * i)
                    })
                    .sum()
            }
            Opcode::IMNMX | Opcode::VIMNMX => {
                let n = o.len();
                let (x, y) = (self.int(&o[n - 3], 1) as u32, self.int(&o[n - 2], 1) as u32);
                let less = if has(Mod::U32) { x < y } else { (x as i32) < y as i32 };
                u64::from(if less == self.pred(&o[n - 1]) { x } else { y })
            }
            Opcode::PLOP3 => {
                let index = (2..5).fold(0, |x, k| x << 1 | u32::from(self.pred(&o[k])));
                let Operand::Imm(lut) = o[5] else { panic!() };
                u64::from(lut >> index & 1)
            }
            Opcode::ISETP => {
                let wide = has(Mod::U64) || has(Mod::S64);
                let width = if wide { 2 } else { 1 };
                let (a, b) = (self.int(&o[2], width), self.int(&o[3], width));
                let order = if has(Mod::U32) || has(Mod::U64) {
                    a.cmp(&b)
                } else if wide {
                    (a as i64).cmp(&(b as i64))
                } else {
                    (a as i32).cmp(&(b as i32))
                };
                // `.EX` on equal upper halves: the lower comparison decides.
                let decided = !(has(Mod::EX) && order.is_eq());
                let holds = match d.mods.iter().next() {
                    _ if !decided => self.pred(&o[5]),
                    Some(Mod::GE) => order.is_ge(),
                    Some(Mod::GT) => order.is_gt(),
                    Some(Mod::LE) => order.is_le(),
                    Some(Mod::LT) => order.is_lt(),
                    Some(Mod::EQ) => order.is_eq(),
                    Some(Mod::NE) => order.is_ne(),
                    _ => panic!("{:?}", d.mods),
                };
                let with = self.pred(&o[4]);
                u64::from(if has(Mod::OR) {
                    holds | with
                } else if has(Mod::XOR) {
                    holds ^ with
                } else {
                    holds & with
                })
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
                let (a, b) = (self.f32(&o[2], ftz), self.f32(&o[3], ftz));
                let holds = if has(Mod::GEU) {
                    a >= b || a.is_nan() || b.is_nan()
                } else if has(Mod::GE) {
                    a >= b
                } else if has(Mod::EQ) {
                    a == b
                } else if has(Mod::GT) {
                    a > b
                } else if has(Mod::LT) {
                    a < b
                } else {
                    panic!("{:?}", d.mods)
                };
                let with = self.pred(&o[4]);
                u64::from(if has(Mod::OR) { holds | with } else { holds & with })
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
                let (a, b) = (self.f64(&o[2]), self.f64(&o[3]));
                let holds = if has(Mod::NEU) {
                    a != b
                } else if has(Mod::EQ) {
                    a == b
                } else if has(Mod::GT) {
                    a > b
                } else if has(Mod::LT) {
                    a < b
                } else if has(Mod::GEU) {
                    a >= b || a.is_nan() || b.is_nan()
                } else if has(Mod::NAN) {
                    a.is_nan() || b.is_nan()
                } else {
                    panic!("{:?}", d.mods)
                };
                u64::from(holds && self.pred(&o[4]))
            }
            other => panic!("{other}"),
        };
        self.set(&o[0], result);
    }
}
