//! What lanes do together beside places where they part or end: results that few lanes read, made before the others go.

use super::{Context, Gen};
use crate::ptxfuzz::class::Class;
use std::fmt::Write as _;

/// The lanes that are there.
#[derive(Clone, Debug)]
enum Here {
    /// All of the warp.
    All,
    /// Those of a mask, a register or a number.
    Some(String),
}

impl Here {
    fn mask(&self) -> &str {
        match self {
            Here::All => "-1",
            Here::Some(m) => m,
        }
    }
}

/// Bytes of shared memory in which a warp exchanges tiles.
const TILES: usize = 512;

impl Gen {
    /// Variables of such programs.
    pub(super) fn tiles(&mut self) {
        let bytes = TILES * self.profile.threads / 32;
        let _ = writeln!(self.module, ".shared .align 16 .b8 tiles[{bytes}];");
    }

    /// Such things, one after the other; where all threads of the block are together, at the top of the kernel. Says whether they still are.
    pub(super) fn partings(&mut self, ctx: &Context) -> bool {
        let mut here = Here::All;
        let mut left = false;
        self.apart = true;
        for _ in 0..self.rng.range(1, 4) {
            let results = self.together(&here);
            // Computation beside it, by which registers become short.
            let n = self.rng.range(0, 4);
            let apart = Context { uniform: false, exits: Vec::new(), ..ctx.inner() };
            self.apart |= n > 0;
            self.statements(n, &apart);
            match self.rng.below(8) {
                // Barriers of the block count those that have ended in ways of their own.
                0..=2 if !self.profile.shared => {
                    here = self.ending(&here, &results);
                    left = true;
                }
                3 => self.loop_of_lanes(&here, &results),
                4 => self.loop_that_lanes_leave(&here, &results),
                5 => self.all_or_none(&here, &results),
                _ => self.arms(&here, &results, &apart),
            }
            if self.rng.percent(40) {
                let results = self.together(&here);
                self.read(&results);
            }
        }
        !left
    }

    /// A few things that the lanes of a mask do together; the registers with their results.
    fn together(&mut self, here: &Here) -> Vec<String> {
        let mut results = Vec::new();
        if matches!(here, Here::All) && std::mem::take(&mut self.apart) {
            // Graphs of any kind: nothing else says where lanes come together again.
            self.line("bar.warp.sync -1;");
        }
        for _ in 0..self.rng.range(1, 3) {
            self.one_together(here, &mut results);
        }
        results
    }

    fn one_together(&mut self, here: &Here, results: &mut Vec<String>) {
        let mask = here.mask().to_string();
        let whole = matches!(here, Here::All);
        let d = self.temp("b32");
        // What is known of constants alone goes where it is needed, as one might think.
        let a = if self.rng.percent(25) { self.constant_word() } else { self.word() };
        match self.rng.below(if whole { 12 } else { 6 }) {
            0 | 1 => {
                let from = self.a_lane(&mask);
                match (whole, self.rng.below(3)) {
                    (true, 0) => {
                        let n = self.rng.pick(&["1", "2", "4", "8", "16"]);
                        self.line(format!("shfl.sync.bfly.b32 {d}, {a}, {n}, 0x1f, {mask};"));
                    }
                    (true, 1) => {
                        let n = self.rng.range(1, 31);
                        self.line(format!("shfl.sync.down.b32 {d}, {a}, {n}, 0x1f, {mask};"));
                    }
                    _ => self.line(format!("shfl.sync.idx.b32 {d}, {a}, {from}, 0x1f, {mask};")),
                }
            }
            2 => {
                let p = self.any_condition(false);
                self.line(format!("vote.sync.ballot.b32 {d}, {p}, {mask};"));
            }
            3 => {
                let (p, c) = (self.temp("pred"), self.any_condition(false));
                let mode = self.rng.pick(&["all", "any", "uni"]);
                self.line(format!("vote.sync.{mode}.pred {p}, {c}, {mask};"));
                self.line(format!("selp.b32 {d}, {a}, 3, {p};"));
            }
            4 => {
                let mode = self.rng.pick(&["any", "all"]);
                self.line(format!("match.{mode}.sync.b32 {d}, {a}, {mask};"));
            }
            5 if self.sm >= 80 => {
                let op = self.rng.pick(&["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"]);
                self.line(format!("redux.sync.{op} {d}, {a}, {mask};"));
            }
            5 => {
                self.line(format!("bar.warp.sync {mask};"));
                self.line(format!("mov.b32 {d}, {a};"));
            }
            6 | 7 => self.line(format!("movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a};")),
            8..=10 => return self.product(results),
            _ => return self.tile(results),
        }
        results.push(d);
    }

    /// A number that the compiler can work out for every lane alike.
    fn constant_word(&mut self) -> String {
        let t = self.temp("b32");
        match self.rng.below(3) {
            0 => {
                let n = self.rng.integer() as u32;
                self.line(format!("mov.b32 {t}, {n:#x};"));
            }
            1 => {
                let n = self.rng.below(2);
                self.line(format!("ld.param.u32 {t}, [n{n}];"));
            }
            _ => {
                let at = 4 * self.rng.below(16);
                self.line(format!("ld.const.b32 {t}, [ctab+{at}];"));
            }
        }
        t
    }

    /// A lane of a mask.
    fn a_lane(&mut self, mask: &str) -> String {
        let t = self.temp("b32");
        if mask == "-1" {
            return format!("{}", self.rng.below(32));
        }
        if self.rng.percent(50) {
            self.line(format!("bfind.u32 {t}, {mask};"));
        } else {
            self.line(format!("brev.b32 {t}, {mask};"));
            self.line(format!("clz.b32 {t}, {t};"));
        }
        t
    }

    /// A product of matrices, exact whatever the order of its sums is.
    fn product(&mut self, results: &mut Vec<String>) {
        // Shape and types, registers of a, b and the accumulator.
        let forms: &[(&str, usize, usize, usize, u8)] = &[
            ("m8n8k16.row.col.s32.s8.s8.s32", 1, 1, 2, 75),
            ("m8n8k16.row.col.s32.u8.s8.s32", 1, 1, 2, 75),
            ("m16n8k8.row.col.f32.f16.f16.f32", 2, 1, 4, 75),
            ("m16n8k16.row.col.s32.s8.s8.s32", 2, 1, 4, 80),
            ("m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4, 80),
            ("m16n8k32.row.col.s32.s8.u8.s32", 4, 2, 4, 80),
        ];
        let fits: Vec<_> = forms.iter().filter(|f| f.4 <= self.sm).collect();
        let (name, a, b, c, _) = *fits[self.rng.below(fits.len())];
        let float = name.contains("f16");
        let same = self.rng.percent(30).then(|| self.constant_word());
        let operand = |g: &mut Gen| {
            let w = same.clone().unwrap_or_else(|| g.word());
            if !float {
                return w;
            }
            // Zero, one, two and small numbers: sums of their products are exact.
            let t = g.temp("b32");
            g.line(format!("and.b32 {t}, {w}, 0x40003c00;"));
            t
        };
        let a: Vec<String> = (0..a).map(|_| operand(self)).collect();
        let b: Vec<String> = (0..b).map(|_| operand(self)).collect();
        let zero = self.temp("b32");
        self.line(format!("mov.b32 {zero}, 0;"));
        let add: Vec<String> =
            (0..c).map(|_| if float || self.rng.percent(50) { zero.clone() } else { self.word() }).collect();
        let d: Vec<String> = (0..c).map(|_| self.temp("b32")).collect();
        let list = |v: &[String]| v.join(", ");
        self.line(format!(
            "mma.sync.aligned.{name} {{{}}}, {{{}}}, {{{}}}, {{{}}};",
            list(&d),
            list(&a),
            list(&b),
            list(&add)
        ));
        results.extend(d);
    }

    /// Tiles through shared memory.
    fn tile(&mut self, results: &mut Vec<String>) {
        let (at, r) = (self.temp("b32"), self.temp("b32"));
        self.line(format!("mov.u32 {at}, tiles;"));
        self.line(format!("mad.lo.u32 {at}, %id, 16, {at};"));
        let w: Vec<String> = (0..4).map(|_| self.word()).collect();
        let d: Vec<String> = (0..4).map(|_| self.temp("b32")).collect();
        let (from, to) = (w.join(", "), d.join(", "));
        let trans = self.rng.pick(&["", ".trans"]);
        if self.sm >= 90 && self.rng.percent(50) {
            self.line(format!("stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [{at}], {{{from}}};"));
            self.line("bar.warp.sync -1;");
            self.line(format!("ld.shared.v4.b32 {{{to}}}, [{at}];"));
        } else {
            self.line(format!("st.shared.v4.b32 [{at}], {{{from}}};"));
            self.line("bar.warp.sync -1;");
            self.line(format!("ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{to}}}, [{at}];"));
        }
        // Before others are written.
        self.line("bar.warp.sync -1;");
        self.line(format!("mov.b32 {r}, {};", d[0]));
        results.push(r);
        results.extend(d);
    }

    /// Reads results: some in the registers of the pool, some in memory of the thread's own.
    fn read(&mut self, results: &[String]) {
        for r in results {
            if self.rng.percent(20) {
                continue;
            }
            if self.rng.percent(40) {
                let at = 4 * self.rng.below(super::memory::OWN_INTEGERS / 4);
                self.line(format!("st.global.b32 [%own+{at}], {r};"));
            } else {
                let d = self.reg(Class::R);
                let op = self.rng.pick(&["add.u32", "xor.b32", "sub.u32", "min.u32"]);
                self.line(format!("{op} {d}, {d}, {r};"));
            }
        }
    }

    /// A condition on which lanes differ, and the lanes of `here` for which it holds and for which it does not.
    fn sides(&mut self, here: &Here) -> (String, String, String) {
        let mask = here.mask().to_string();
        let p = self.temp("pred");
        let (yes, no) = (self.temp("b32"), self.temp("b32"));
        if matches!(here, Here::All) && self.rng.percent(40) {
            // Masks that are constants.
            let n = self.rng.range(1, 31);
            let low = (1u32 << n) - 1;
            self.line(format!("setp.lt.u32 {p}, %lane, {n};"));
            return (p, format!("{low:#x}"), format!("{:#x}", !low));
        }
        match self.rng.below(3) {
            0 => {
                let a = self.word();
                let n = self.rng.integer() as u32 as i32;
                self.line(format!("setp.lt.s32 {p}, {a}, {n};"));
            }
            1 => {
                let (t, n) = (self.temp("b32"), 1 << self.rng.below(5));
                self.line(format!("and.b32 {t}, %lane, {n};"));
                self.line(format!("setp.eq.u32 {p}, {t}, 0;"));
            }
            _ => {
                let u = self.uniform();
                self.line(format!("setp.gt.u32 {p}, %id, {u};"));
            }
        }
        self.line(format!("vote.sync.ballot.b32 {yes}, {p}, {mask};"));
        self.line(format!("not.b32 {no}, {yes};"));
        self.line(format!("and.b32 {no}, {no}, {mask};"));
        (p, yes, no)
    }

    /// Some lanes end; the others read what was made before. Who is left.
    fn ending(&mut self, here: &Here, results: &[String]) -> Here {
        let (p, _, stay) = self.sides(here);
        match self.rng.below(3) {
            0 => self.line(format!("@{p} ret;")),
            1 => {
                let on = self.label();
                self.line(format!("@!{p} bra {on};"));
                if self.rng.percent(50) {
                    // Some of it is read by those that end.
                    let n = self.rng.below(results.len() + 1);
                    self.read(&results[..n]);
                }
                self.line("ret;");
                self.place(&on);
            }
            _ => {
                let (end, on) = (self.label(), self.label());
                self.line(format!("@{p} bra {end};"));
                self.line(format!("bra {on};"));
                self.place(&end);
                self.line("exit;");
                self.place(&on);
            }
        }
        self.read(results);
        // A number is a mask that is known.
        Here::Some(stay)
    }

    /// One side reads what was made before, or each some of it; each may do something together.
    fn arms(&mut self, here: &Here, results: &[String], apart: &Context) {
        let (p, yes, no) = self.sides(here);
        let (otherwise, end) = (self.label(), self.label());
        let two = self.rng.percent(50);
        self.line(format!("@!{p} bra {};", if two { &otherwise } else { &end }));
        self.side(&Here::Some(yes), results, apart);
        if two {
            self.line(format!("bra {end};"));
            self.place(&otherwise);
            self.side(&Here::Some(no), results, apart);
        }
        self.place(&end);
        if self.rng.percent(50) {
            self.line(format!("bar.warp.sync {};", here.mask()));
        }
    }

    fn side(&mut self, here: &Here, results: &[String], apart: &Context) {
        self.read(results);
        if self.rng.percent(40) {
            let n = self.rng.range(0, 2);
            self.apart |= n > 0;
            self.statements(n, apart);
        }
        if self.rng.percent(40) {
            let results = self.together(here);
            self.read(&results);
        }
    }

    /// All lanes, or none, read what was made before; and do something together there.
    fn all_or_none(&mut self, here: &Here, results: &[String]) {
        let end = self.label();
        let c = self.any_condition(true);
        self.line(format!("@{c} bra {end};"));
        self.read(results);
        if self.rng.percent(60) {
            let results = self.together(here);
            self.read(&results);
        }
        self.place(&end);
    }

    /// A loop that lanes go around differently often; what was made before is read in it.
    fn loop_of_lanes(&mut self, here: &Here, results: &[String]) {
        let (head, i, p) = (self.label(), self.temp("b32"), self.temp("pred"));
        let w = self.word();
        let most = self.rng.pick(&["1", "3", "7"]);
        self.line(format!("and.b32 {i}, {w}, {most};"));
        self.place(&head);
        self.read(results);
        self.line(format!("sub.u32 {i}, {i}, 1;"));
        self.line(format!("setp.ge.s32 {p}, {i}, 0;"));
        self.line(format!("@{p} bra {head};"));
        if self.rng.percent(70) {
            let more = self.together(here);
            self.read(&more);
        }
    }

    /// A loop in which those that are left do something together.
    fn loop_that_lanes_leave(&mut self, here: &Here, results: &[String]) {
        let (head, i, p) = (self.label(), self.temp("b32"), self.temp("pred"));
        let (mask, w) = (self.temp("b32"), self.word());
        self.line(format!("and.b32 {i}, {w}, 3;"));
        self.line(format!("mov.b32 {mask}, {};", here.mask()));
        self.place(&head);
        let more = self.together(&Here::Some(mask.clone()));
        self.read(&more);
        self.read(results);
        self.line(format!("sub.u32 {i}, {i}, 1;"));
        self.line(format!("setp.ge.s32 {p}, {i}, 0;"));
        self.line(format!("vote.sync.ballot.b32 {mask}, {p}, {mask};"));
        self.line(format!("@{p} bra {head};"));
    }
}
