//! What the threads of a warp or a block do together.

use super::{Context, Gen};
use crate::ptxfuzz::class::Class;

impl Gen {
    /// Something for which all threads of the block are here.
    pub(super) fn collective(&mut self, ctx: &Context) {
        match self.rng.below(12) {
            0..=3 => self.shuffle("-1"),
            4 | 5 => self.vote("-1"),
            6 => self.matching("-1"),
            7 if self.sm >= 80 => self.redux("-1"),
            8 => self.part_of_warp(ctx),
            9 => self.block_vote(),
            10 => self.exchange(ctx),
            _ => match self.rng.below(3) {
                0 => self.line("bar.warp.sync -1;"),
                1 => self.line("bar.sync 0;"),
                _ => self.line("barrier.sync 0;"),
            },
        }
    }

    fn shuffle(&mut self, mask: &str) {
        let c = if self.pool(Class::F) > 0 && self.rng.percent(30) { Class::F } else { Class::R };
        let (d, a) = (self.reg(c), self.reg(c));
        let mode = self.rng.pick(&["idx", "up", "down", "bfly"]);
        let lane = if self.rng.percent(50) { format!("{}", self.rng.below(32)) } else { self.word() };
        let clamp = match (mode, self.rng.below(3)) {
            ("up", 0) => "0x1800",
            ("up", _) => "0",
            (_, 0) => "0x181f",
            (_, 1) => "0x1c1f",
            _ => "0x1f",
        };
        let d = if self.rng.percent(50) { format!("{d}|{}", self.reg(Class::P)) } else { d };
        self.line(format!("shfl.sync.{mode}.b32 {d}, {a}, {lane}, {clamp}, {mask};"));
    }

    fn vote(&mut self, mask: &str) {
        let p = self.condition(false);
        if self.rng.percent(50) {
            let d = self.reg(Class::R);
            self.line(format!("vote.sync.ballot.b32 {d}, {p}, {mask};"));
        } else {
            let mode = self.rng.pick(&["all", "any", "uni"]);
            let d = self.reg(Class::P);
            self.line(format!("vote.sync.{mode}.pred {d}, {p}, {mask};"));
        }
    }

    fn matching(&mut self, mask: &str) {
        let (ty, a) = match self.rng.below(3) {
            0 if self.pool(Class::D) > 0 => ("b64", self.reg(Class::D)),
            _ => ("b32", self.word()),
        };
        let d = self.reg(Class::R);
        if self.rng.percent(50) {
            self.line(format!("match.any.sync.{ty} {d}, {a}, {mask};"));
        } else {
            let d = if self.rng.percent(50) { format!("{d}|{}", self.reg(Class::P)) } else { d };
            self.line(format!("match.all.sync.{ty} {d}, {a}, {mask};"));
        }
    }

    fn redux(&mut self, mask: &str) {
        let op = self.rng.pick(&[
            "add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32",
        ]);
        let (d, a) = (self.reg(Class::R), self.word());
        self.line(format!("redux.sync.{op} {d}, {a}, {mask};"));
    }

    /// Some lanes go aside and do something together.
    fn part_of_warp(&mut self, ctx: &Context) {
        let (p, mask, end) = (self.temp("pred"), self.temp("b32"), self.label());
        let a = self.word();
        let limit = self.rng.integer() as u32 as i32;
        self.line(format!("setp.lt.s32 {p}, {a}, {limit};"));
        self.line(format!("vote.sync.ballot.b32 {mask}, {p}, -1;"));
        self.line(format!("@!{p} bra {end};"));
        let mut inner = ctx.divergent(&end);
        // Nobody may leave before the others have what they wait for.
        inner.exits.clear();
        let n = self.rng.range(0, 2);
        self.statements(n, &inner);
        for _ in 0..self.rng.range(1, 3) {
            match self.rng.below(4) {
                0 => self.vote(&mask),
                1 => self.matching(&mask),
                2 => self.line(format!("bar.warp.sync {mask};")),
                _ => {
                    // From the last of the lanes.
                    let last = self.temp("b32");
                    let (d, a) = (self.reg(Class::R), self.word());
                    self.line(format!("bfind.u32 {last}, {mask};"));
                    self.line(format!("shfl.sync.idx.b32 {d}, {a}, {last}, 0x1f, {mask};"));
                }
            }
        }
        self.place(&end);
    }

    /// A barrier that counts; its result is the same for all.
    fn block_vote(&mut self) {
        let p = self.condition(false);
        if self.rng.percent(50) {
            let d = self.uniform();
            self.line(format!("bar.red.popc.u32 {d}, 0, {p};"));
        } else {
            let q = self.rng.below(super::UNIFORM);
            let op = self.rng.pick(&["and", "or"]);
            self.line(format!("bar.red.{op}.pred %q{q}, 0, {p};"));
        }
    }

    /// Everyone writes, everyone reads what another wrote.
    fn exchange(&mut self, ctx: &Context) {
        if !self.profile.shared {
            return;
        }
        let wide = self.pool(Class::D) > 0 && self.rng.percent(30);
        let (class, ty) = if wide { (Class::D, "b64") } else { (Class::R, "b32") };
        let x = self.reg(class);
        self.line(format!("st.shared.{ty} [%sex], {x};"));
        self.line("bar.sync 0;");
        let threads = self.profile.threads;
        for _ in 0..self.rng.range(1, 2) {
            let (i, a) = (self.temp("b32"), self.temp("b32"));
            let r = self.word();
            self.line(format!("rem.u32 {i}, {r}, {threads};"));
            self.line(format!("mov.u32 {a}, exchange;"));
            self.line(format!("mad.lo.u32 {a}, {i}, 8, {a};"));
            let d = self.reg(class);
            self.line(format!("ld.shared.{ty} {d}, [{a}];"));
        }
        let n = self.rng.range(0, 1);
        self.statements(n, &Context { uniform: false, exits: Vec::new(), ..ctx.inner() });
        self.line("bar.sync 0;");
    }
}
