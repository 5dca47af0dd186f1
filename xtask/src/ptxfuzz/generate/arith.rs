//! Arithmetic: operations of the table, carry chains, moves between classes.

use super::{Context, Gen};
use crate::ptxfuzz::class::Class;
use crate::ptxfuzz::forms::{FREQUENT, Operation, Slot};
use ptx::{Op, Type};

/// Attempts to find an operation whose classes the program has.
const ATTEMPTS: usize = 20;

impl Gen {
    pub(super) fn arithmetic(&mut self, ctx: &Context) {
        match self.rng.below(24) {
            0 => self.carry_chain(),
            1 => self.cast(),
            2 => self.pack(),
            3 => self.predicates(),
            4 | 5 if ctx.uniform => self.uniform_operation(),
            _ => {
                let guard =
                    if self.rng.percent(15) { format!("@{} ", self.condition(false)) } else { String::new() };
                self.operation(&guard);
            }
        }
    }

    /// One operation of the table on the pools.
    fn operation(&mut self, guard: &str) {
        for _ in 0..ATTEMPTS {
            let table = self.table;
            let n = if self.rng.percent(80) { FREQUENT.min(table.len()) } else { table.len() };
            let list = &table[self.rng.below(n)];
            let o = &list[self.rng.below(list.len())];
            let there = o.slots.iter().all(|s| match s {
                Slot::Dst(c) | Slot::DstPred(c) | Slot::Src(c, _) => self.pool(*c) > 0,
                _ => true,
            });
            if there {
                let guard = if self.vendor && !o.may_be_guarded() { "" } else { guard };
                self.emit(o, guard, None);
                return;
            }
        }
    }

    /// An operation on uniform registers.
    fn uniform_operation(&mut self) {
        if self.rng.percent(25) {
            let q = self.rng.below(super::UNIFORM);
            let c = self.fresh_condition(true);
            self.line(format!(
                "and.pred %q{q}, {}, {};",
                c.trim_start_matches('!'),
                c.trim_start_matches('!')
            ));
            return;
        }
        for _ in 0..ATTEMPTS {
            let list = &self.table[self.rng.below(FREQUENT.min(self.table.len()))];
            let o = &list[self.rng.below(list.len())];
            let words = o.slots.iter().enumerate().all(|(i, s)| match s {
                Slot::Dst(c) => i == 0 && *c == Class::R,
                Slot::Src(c, _) => *c == Class::R,
                Slot::Imm => true,
                _ => false,
            });
            if words {
                let d = self.uniform();
                self.emit(o, "", Some(d));
                return;
            }
        }
    }

    /// Writes an operation; `uniform` is its destination if it shall use uniform registers only.
    fn emit(&mut self, o: &Operation, guard: &str, uniform: Option<String>) {
        let mut args = Vec::new();
        let sources = o.slots.iter().filter(|s| matches!(s, Slot::Src(..))).count();
        for (i, s) in o.slots.iter().enumerate() {
            args.push(match s {
                Slot::Dst(c) => match &uniform {
                    Some(u) => u.clone(),
                    None => self.reg(*c),
                },
                Slot::DstPred(c) => format!("{}|{}", self.reg(*c), self.reg(Class::P)),
                Slot::PredPair if o.op == Op::testp || o.halves() => self.reg(Class::P),
                Slot::PredPair => {
                    let (p, q) = (self.reg(Class::P), self.reg(Class::P));
                    if p != q && self.rng.percent(40) { format!("{p}|{q}") } else { p }
                }
                Slot::PredSrc => {
                    let not = if matches!(o.op, Op::setp | Op::set) { self.rng.pick(&["", "!"]) } else { "" };
                    format!("{not}{}", self.reg(Class::P))
                }
                Slot::Imm => format!("{:#x}", self.rng.bits() & 0xff),
                Slot::Src(c, t) => self.source(o, i, *c, *t, uniform.is_some(), sources),
            });
        }
        // ptxas merges it wrongly with what follows if two of its sources are one (docs/verification.md).
        if self.vendor && o.op == Op::lop3 && (1..4).any(|i| args[1..i].contains(&args[i])) {
            return;
        }
        self.line(format!("{guard}{} {};", o.text, args.join(", ")));
    }

    fn source(
        &mut self,
        o: &Operation,
        i: usize,
        c: Class,
        t: Type,
        uniform: bool,
        sources: usize,
    ) -> String {
        let constants = !matches!(o.op, Op::cvt) && !o.op.name().starts_with('v') && sources > 1;
        let shift = matches!(o.op, Op::shl | Op::shr) && i == 2 || o.op == Op::shf && i == 3;
        let field = o.op == Op::bfe && i >= 2 || o.op == Op::bfi && i >= 3;
        let word =
            o.slots.iter().map(|s| if let Slot::Dst(c) = s { 8 * c.bytes() } else { 0 }).max().unwrap_or(32);
        let divisor = matches!(o.op, Op::div | Op::rem) && i == 2 && !c.is_float();
        if constants
            && self.rng.percent(if shift || field || divisor { 50 } else { 15 })
            && let Some(text) = match field {
                // ptxas folds others in its own ways (docs/verification.md).
                true => Some(self.rng.below(word).to_string()),
                // ptxas drops a shift of 64 bits or more of some products.
                false if shift && word == 64 && self.vendor => Some(self.rng.below(word).to_string()),
                false => self.constant(t, shift, divisor),
            }
        {
            return text;
        }
        let r = match (uniform, c) {
            (true, _) => self.uniform(),
            (_, Class::R) => self.word(),
            _ => self.reg(c),
        };
        let bits = 8 * c.bytes();
        let masked = |g: &mut Gen, op: &str, n: u32| {
            let d = g.temp(c.register());
            g.line(format!("{op}.b{bits} {d}, {r}, {n};"));
            d
        };
        match () {
            // Division by zero is not defined.
            () if divisor => masked(self, "or", 1),
            // ptxas folds positions beyond the word in its own ways, wherever it knows the number.
            () if field && self.vendor => masked(self, "and", word as u32 - 1),
            // Nor is a position outside of the word.
            () if o.op == Op::fns && i == 2 => masked(self, "and", 31),
            () if (shift || field) && self.rng.percent(60) => masked(self, "and", 63),
            // Positions and lengths go to 255.
            () if field => masked(self, "and", 255),
            () => r,
        }
    }

    /// A constant operand of a type.
    pub(super) fn constant(&mut self, t: Type, small: bool, nonzero: bool) -> Option<String> {
        let x = self.rng.integer();
        Some(match t {
            Type::f32 => format!("0f{:08X}", self.float32()),
            Type::f64 => format!("0d{:016X}", self.float64()),
            _ if t.is_float() => return None,
            _ if small => format!("{}", self.rng.below(70)),
            _ => {
                let x = if nonzero && x as u16 == 0 { 7 } else { x };
                match (t.bits(), t.is_signed()) {
                    (16, true) => format!("{}", x as i16),
                    (16, false) => format!("{}", x as u16),
                    (32, true) => format!("{}", x as i32),
                    (32, false) => format!("{:#x}", x as u32),
                    (64, true) if x as i64 != i64::MIN => format!("{}", x as i64),
                    (64, _) => format!("{:#x}", x >> 1),
                    _ => return None,
                }
            }
        })
    }

    /// A number, not NaN.
    pub(super) fn float32(&mut self) -> u32 {
        let x = match self.rng.below(3) {
            0 => (self.rng.below(64) as f32 - 20.0).to_bits(),
            1 => (self.rng.integer() as i32 as f32).to_bits(),
            _ => self.rng.bits() as u32,
        };
        if f32::from_bits(x).is_nan() { 0x7f80_0000 } else { x }
    }

    /// A number, not NaN.
    pub(super) fn float64(&mut self) -> u64 {
        let x = match self.rng.below(3) {
            0 => (self.rng.below(64) as f64 - 20.0).to_bits(),
            1 => (self.rng.integer() as i64 as f64).to_bits(),
            _ => self.rng.bits(),
        };
        if f64::from_bits(x).is_nan() { 0x7ff0 << 48 } else { x }
    }

    /// Sums and products that pass carries on.
    fn carry_chain(&mut self) {
        let class = if self.pool(Class::D) > 0 && self.rng.percent(30) { Class::D } else { Class::R };
        let ty =
            if class == Class::D { self.rng.pick(&["u64", "s64"]) } else { self.rng.pick(&["u32", "s32"]) };
        let subtract = self.rng.percent(30);
        let steps = self.rng.range(2, 5);
        for i in 0..steps {
            let cc = if i + 1 < steps { ".cc" } else { "" };
            let c = if i > 0 { "c" } else { "" };
            let (d, a, b) = (self.reg(class), self.reg(class), self.reg(class));
            if subtract {
                self.line(format!("sub{c}{cc}.{ty} {d}, {a}, {b};"));
            } else if self.rng.percent(50) {
                let half = self.rng.pick(&["lo", "hi"]);
                let x = self.reg(class);
                self.line(format!("mad{c}.{half}{cc}.{ty} {d}, {a}, {b}, {x};"));
            } else {
                self.line(format!("add{c}{cc}.{ty} {d}, {a}, {b};"));
            }
        }
    }

    /// An integer register with the bits of a value, a NaN's replaced.
    pub(super) fn bits_of(&mut self, c: Class, r: &str) -> String {
        let half = c.half();
        let bits = 8 * c.bytes();
        if half != c {
            let parts: Vec<String> = (0..2).map(|_| self.temp(half.register())).collect();
            self.line(format!("mov.b{bits} {{{}, {}}}, {r};", parts[0], parts[1]));
            let (low, high) = (self.bits_of(half, &parts[0]), self.bits_of(half, &parts[1]));
            let d = self.temp(&format!("b{bits}"));
            self.line(format!("mov.b{bits} {d}, {{{low}, {high}}};"));
            return d;
        }
        let d = self.temp(&format!("b{bits}"));
        if c == Class::B && self.sm < 90 {
            // No comparison of bfloat16 yet.
            let (w, p) = (self.temp("f32"), self.temp("pred"));
            self.line(format!("cvt.f32.bf16 {w}, {r};"));
            self.line(format!("setp.nan.f32 {p}, {w}, {w};"));
            let nan = self.temp("b16");
            self.line(format!("mov.b16 {nan}, 0x7fc0;"));
            self.line(format!("selp.b16 {d}, {nan}, {r}, {p};"));
            return d;
        }
        let (ty, nan) = match c {
            Class::E => ("f16", "0x7e00"),
            Class::B => ("bf16", "0x7fc0"),
            Class::F => ("f32", "0x7fc00000"),
            Class::G => ("f64", "0x7ff8000000000000"),
            _ => return r.to_string(),
        };
        let p = self.temp("pred");
        self.line(format!("setp.nan.{ty} {p}, {r}, {r};"));
        let own = self.temp(&format!("b{bits}"));
        self.line(format!("mov.b{bits} {own}, {r};"));
        self.line(format!("selp.b{bits} {d}, {nan}, {own}, {p};"));
        d
    }

    /// The bits of a value of one class as a value of another of the same size.
    fn cast(&mut self) {
        let classes: Vec<Class> = self.profile.pools.keys().copied().filter(|c| *c != Class::P).collect();
        let from = classes[self.rng.below(classes.len())];
        let to: Vec<Class> =
            classes.iter().copied().filter(|c| *c != from && c.bytes() == from.bytes()).collect();
        if to.is_empty() {
            return;
        }
        let to = to[self.rng.below(to.len())];
        let r = self.reg(from);
        let bits = self.bits_of(from, &r);
        let d = self.reg(to);
        self.line(format!("mov.b{} {d}, {bits};", 8 * from.bytes()));
    }

    /// Packs halves into a word, or takes them out.
    fn pack(&mut self) {
        let pairs = [
            (Class::D, Class::R),
            (Class::R, Class::H),
            (Class::E2, Class::E),
            (Class::B2, Class::B),
            (Class::F2, Class::F),
        ];
        let (whole, part) = pairs[self.rng.below(pairs.len())];
        if self.pool(whole) == 0 || self.pool(part) == 0 {
            return;
        }
        let w = self.reg(whole);
        let (a, b) = (self.reg(part), self.reg(part));
        let bits = 8 * whole.bytes();
        match self.rng.below(3) {
            0 if a != b => self.line(format!("mov.b{bits} {{{a}, {b}}}, {w};")),
            1 => self.line(format!("mov.b{bits} {{_, {b}}}, {w};")),
            _ => self.line(format!("mov.b{bits} {w}, {{{a}, {b}}};")),
        }
    }

    fn predicates(&mut self) {
        let d = self.reg(Class::P);
        let (a, b) = (self.reg(Class::P), self.reg(Class::P));
        let op = self.rng.pick(&["and", "or", "xor"]);
        match self.rng.below(4) {
            0 => self.line(format!("not.pred {d}, {a};")),
            1 => self.line(format!("mov.pred {d}, {a};")),
            _ => self.line(format!("{op}.pred {d}, {a}, {b};")),
        }
    }
}
