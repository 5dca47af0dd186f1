//! Addresses that are made in steps: some of them guarded, some taken back, some through the upper half of a pointer;
//! and loops whose pointer goes through a place.

use super::memory::Place;
use super::{Context, Gen, MOST_TIMES};

/// Bytes of a round of a loop that goes through a place: what the widest access takes.
const ROUND: usize = 16;

impl Gen {
    /// The base of a place in a register of its own.
    fn copy_of(&mut self, p: &Place) -> String {
        let a = self.temp(&format!("b{}", p.bits));
        self.line(format!("mov.u{} {a}, {};", p.bits, p.base));
        a
    }

    /// An address in a place, of so many bytes, aligned: a few sums of which each leads no further than the place.
    pub(super) fn stepped(&mut self, p: &Place, bytes: usize) -> String {
        let n = (p.size / bytes) as i64;
        let a = self.copy_of(p);
        let ty = format!("{}{}", self.rng.pick(&["u", "s"]), p.bits);
        // Where it may be, in accesses from the base.
        let (mut low, mut high) = (0i64, 0i64);
        for _ in 0..self.rng.range(1, 4) {
            let room = n - 1 - (high - low);
            let most = room.max(0) as usize;
            match self.rng.below(6) {
                // By a number, always: it may leave the place, the displacement brings it back.
                0 => {
                    let k = self.rng.range(0, 2 * n as usize) as i64 - n;
                    self.line(format!("add.{ty} {a}, {a}, {};", k * bytes as i64));
                    (low, high) = (low + k, high + k);
                }
                // By a number, for some threads.
                1 | 2 => {
                    let k = self.rng.range(0, most) as i64;
                    let guard = self.condition(false);
                    if self.rng.percent(50) {
                        self.line(format!("@{guard} add.{ty} {a}, {a}, {};", k * bytes as i64));
                        high += k;
                    } else {
                        self.line(format!("@{guard} sub.{ty} {a}, {a}, {};", k * bytes as i64));
                        low -= k;
                    }
                }
                // One of two numbers.
                3 => {
                    let (x, y) = (self.rng.range(0, most) as i64, self.rng.range(0, most) as i64);
                    let c = self.condition(false);
                    let c = c.trim_start_matches('!');
                    let t = self.temp(&format!("b{}", p.bits));
                    let b = bytes as i64;
                    self.line(format!("selp.b{} {t}, {}, {}, {c};", p.bits, x * b, y * b));
                    self.line(format!("add.{ty} {a}, {a}, {t};"));
                    (low, high) = (low + x.min(y), high + x.max(y));
                }
                // By what a thread has, perhaps for some of them.
                4 => {
                    let k = (most as u64 + 1).next_power_of_two();
                    let k = if k > most as u64 + 1 { k / 2 } else { k };
                    let (r, i) = (self.word(), self.temp("b32"));
                    self.line(format!("and.b32 {i}, {r}, {};", k - 1));
                    let guard = if self.rng.percent(50) {
                        format!("@{} ", self.condition(false))
                    } else {
                        String::new()
                    };
                    let mad = if p.bits == 64 { "mad.wide.u32" } else { "mad.lo.u32" };
                    self.line(format!("{guard}{mad} {a}, {i}, {bytes}, {a};"));
                    high += k as i64 - 1;
                }
                // There and back, for the same threads.
                _ => {
                    let far = match p.bits {
                        64 => self.rng.pick(&[
                            "0x100000000",
                            "-0x100000000",
                            "0xfffffff0",
                            "0x80000000",
                            "-0x7ffffff0",
                        ]),
                        _ => self.rng.pick(&["0x40000000", "-16", "0x7ffffff0"]),
                    };
                    let guard = if self.rng.percent(60) {
                        format!("@{} ", self.condition(false))
                    } else {
                        String::new()
                    };
                    let (there, back) = if self.rng.percent(50) { ("add", "sub") } else { ("sub", "add") };
                    self.line(format!("{guard}{there}.s{} {a}, {a}, {far};", p.bits));
                    self.line(format!("{guard}{back}.s{} {a}, {a}, {far};", p.bits));
                }
            }
        }
        let d = -low + self.rng.below((n - (high - low)) as usize) as i64;
        format!("[{a}+{}]", d * bytes as i64)
    }

    /// A loop whose pointer goes through a place, upwards or downwards, for some threads perhaps not in every round.
    pub(super) fn walk(&mut self, ctx: &Context) {
        let p = self.walked_place();
        let rounds = self.rng.range(1, p.size / ROUND);
        if ctx.times * rounds > MOST_TIMES {
            return self.arithmetic(ctx);
        }
        let (head, end) = (self.label(), self.label());
        let mut inner = ctx.divergent(&end);
        (inner.depth, inner.times) = (0, ctx.times * rounds);
        inner.exits.clear();
        let up = self.rng.percent(60);
        let a = self.copy_of(&p);
        let ty = format!("u{}", p.bits);
        let step = ROUND as i64 * if up { 1 } else { -1 };
        // Before it is used, or after: then it begins one round further.
        let early = self.rng.percent(30);
        let start = if up { 0 } else { (rounds as i64 - 1) * ROUND as i64 } - if early { step } else { 0 };
        self.line(format!("add.{ty} {a}, {a}, {start};"));
        let last = self.temp(&format!("b{}", p.bits));
        self.line(format!("add.{ty} {last}, {a}, {};", step * rounds as i64));
        // A pointer that stops for some threads is no bound.
        let guard = if !early && self.rng.percent(30) {
            format!("@{} ", self.condition(false))
        } else {
            String::new()
        };
        let counted = !guard.is_empty() || self.rng.percent(40);
        let i = self.temp("b32");
        self.line(format!("mov.u32 {i}, 0;"));
        let q = self.temp("pred");
        self.place(&head);
        if early {
            self.line(format!("add.s{} {a}, {a}, {step};", p.bits));
        }
        let here = Place { base: a.clone(), size: ROUND, ..p.clone() };
        for _ in 0..self.rng.range(1, 3) {
            let g = if self.rng.percent(20) { format!("@{} ", self.condition(false)) } else { String::new() };
            self.access(&g, &here);
        }
        let n = self.rng.range(0, 2);
        self.statements(n, &inner);
        if !early {
            self.line(format!("{guard}add.s{} {a}, {a}, {step};", p.bits));
        }
        self.line(format!("add.u32 {i}, {i}, 1;"));
        if counted {
            self.line(format!("setp.lt.u32 {q}, {i}, {rounds};"));
        } else {
            // What lies below a place may be the end of the numbers: local memory begins at none.
            let cmp = if up { self.rng.pick(&["ne", "lt"]) } else { "ne" };
            self.line(format!("setp.{cmp}.{ty} {q}, {a}, {last};"));
        }
        self.line(format!("@{q} bra {head};"));
        self.place(&end);
    }
}
