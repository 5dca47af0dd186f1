//! Control flow: conditionals, loops with several exits and several ways back, switches, arbitrary graphs, early returns.

use super::{Context, Gen, MOST_TIMES};

impl Gen {
    pub(super) fn flow(&mut self, ctx: &Context) {
        if self.walks && self.rng.percent(20) {
            return self.walk(ctx);
        }
        if self.returns && self.rng.percent(50) {
            return match self.rng.below(5) {
                0 | 1 => self.continues(ctx),
                2 => self.repeat_from_two_places(ctx),
                3 => self.chain(ctx),
                _ => self.early_return(ctx),
            };
        }
        match self.rng.below(12) {
            0..=3 => self.conditional(ctx),
            4 | 5 => self.repeat(ctx),
            10 | 11 => self.count(ctx),
            6 => self.switch(ctx),
            7 => self.graph(ctx),
            8 => self.leave(ctx),
            _ => self.conditional(ctx),
        }
    }

    fn length(&mut self, ctx: &Context) -> usize {
        self.rng.range(1, 3 + 2 * ctx.depth)
    }

    /// Whether control flow here shall keep the threads together, and the context inside.
    fn inside(&mut self, ctx: &Context, exit: &str) -> (bool, Context) {
        let uniform = ctx.uniform && self.rng.percent(50);
        if uniform {
            let mut c = ctx.inner();
            c.exits.push(exit.to_string());
            (true, c)
        } else {
            (false, ctx.divergent(exit))
        }
    }

    fn conditional(&mut self, ctx: &Context) {
        let (otherwise, end) = (self.label(), self.label());
        let (uniform, inner) = self.inside(ctx, &end);
        let c = self.any_condition(uniform);
        let two = self.rng.percent(50);
        self.line(format!("@{c} bra {};", if two { &otherwise } else { &end }));
        let n = self.length(ctx);
        self.statements(n, &inner);
        if two {
            let uni = if uniform { self.rng.pick(&["", ".uni"]) } else { "" };
            self.line(format!("bra{uni} {end};"));
            self.place(&otherwise);
            let n = self.length(ctx);
            self.statements(n, &inner);
        }
        self.place(&end);
    }

    /// A loop: its counter is a register that nothing else writes.
    fn repeat(&mut self, ctx: &Context) {
        let (head, next, end) = (self.label(), self.label(), self.label());
        let (uniform, mut inner) = self.inside(ctx, &end);
        inner.exits.push(next.clone());
        let most = self.rng.range(1, 6);
        if ctx.times * most > MOST_TIMES {
            return self.arithmetic(ctx);
        }
        inner.times *= most;
        let i = self.temp("b32");
        if self.rng.percent(50) {
            self.line(format!("mov.b32 {i}, {most};"));
        } else {
            let r = if uniform { self.uniform() } else { self.word() };
            self.line(format!("rem.u32 {i}, {r}, {most};"));
            self.line(format!("add.u32 {i}, {i}, 1;"));
        }
        let p = self.temp("pred");
        let n = self.length(ctx);
        if self.rng.percent(50) {
            // Tested at the end.
            self.place(&head);
            self.statements(n, &inner);
            self.place(&next);
            self.line(format!("sub.u32 {i}, {i}, 1;"));
            self.line(format!("setp.ne.u32 {p}, {i}, 0;"));
            self.line(format!("@{p} bra {head};"));
        } else {
            self.place(&head);
            self.line(format!("setp.eq.u32 {p}, {i}, 0;"));
            self.line(format!("@{p} bra {end};"));
            self.statements(n, &inner);
            self.place(&next);
            self.line(format!("add.u32 {i}, {i}, -1;"));
            self.line(format!("bra {head};"));
        }
        self.place(&end);
    }

    /// Out of, or to the next round of, any enclosing loop.
    fn leave(&mut self, ctx: &Context) {
        if ctx.exits.is_empty() {
            return self.arithmetic(ctx);
        }
        let to = ctx.exits[self.rng.below(ctx.exits.len())].clone();
        let c = self.any_condition(ctx.uniform);
        self.line(format!("@{c} bra {to};"));
    }

    /// How often a loop runs: a register that nothing else writes; `None` if it would run too often.
    fn counter(&mut self, ctx: &Context, inner: &mut Context, uniform: bool) -> Option<String> {
        let most = self.rng.range(1, 6);
        if ctx.times * most > MOST_TIMES {
            return None;
        }
        inner.times *= most;
        let i = self.temp("b32");
        if self.rng.percent(50) {
            self.line(format!("mov.b32 {i}, {most};"));
        } else {
            let r = if uniform { self.uniform() } else { self.word() };
            self.line(format!("rem.u32 {i}, {r}, {most};"));
            self.line(format!("add.u32 {i}, {i}, 1;"));
        }
        Some(i)
    }

    /// A loop with `continue`: several jumps back to its head, which counts.
    fn continues(&mut self, ctx: &Context) {
        let (head, end) = (self.label(), self.label());
        let (uniform, mut inner) = self.inside(ctx, &end);
        inner.exits.push(head.clone());
        let Some(i) = self.counter(ctx, &mut inner, uniform) else { return self.arithmetic(ctx) };
        let p = self.temp("pred");
        self.place(&head);
        self.line(format!("sub.u32 {i}, {i}, 1;"));
        self.line(format!("setp.lt.s32 {p}, {i}, 0;"));
        self.line(format!("@{p} bra {end};"));
        for _ in 0..self.rng.range(1, 3) {
            let n = self.rng.range(1, 2 + ctx.depth);
            self.statements(n, &inner);
            let c = self.any_condition(uniform);
            self.line(format!("@{c} bra {head};"));
        }
        let n = self.rng.range(0, 2);
        self.statements(n, &inner);
        if self.rng.percent(75) {
            self.line(format!("bra {head};"));
        }
        self.place(&end);
    }

    /// A loop that is tested behind its statements, in two places.
    fn repeat_from_two_places(&mut self, ctx: &Context) {
        let (head, other, end) = (self.label(), self.label(), self.label());
        let (uniform, mut inner) = self.inside(ctx, &end);
        let Some(i) = self.counter(ctx, &mut inner, uniform) else { return self.arithmetic(ctx) };
        let p = self.temp("pred");
        let again = |g: &mut Gen| {
            g.line(format!("sub.u32 {i}, {i}, 1;"));
            g.line(format!("setp.ne.u32 {p}, {i}, 0;"));
            g.line(format!("@{p} bra {head};"));
        };
        self.place(&head);
        let n = self.length(ctx);
        self.statements(n, &inner);
        let c = self.any_condition(uniform);
        self.line(format!("@{c} bra {other};"));
        let n = self.rng.range(0, 2);
        self.statements(n, &inner);
        again(self);
        self.line(format!("bra {end};"));
        self.place(&other);
        let n = self.rng.range(0, 2);
        self.statements(n, &inner);
        again(self);
        self.place(&end);
    }

    /// A switch as a chain of comparisons, whose cases mostly go on in the next one.
    fn chain(&mut self, ctx: &Context) {
        let end = self.label();
        let (uniform, inner) = self.inside(ctx, &end);
        let cases: Vec<String> = (0..self.rng.range(2, 5)).map(|_| self.label()).collect();
        let r = if uniform { self.uniform() } else { self.word() };
        let i = self.temp("b32");
        self.line(format!("rem.u32 {i}, {r}, {};", cases.len() + 1));
        for (k, c) in cases.iter().enumerate() {
            let p = self.temp("pred");
            self.line(format!("setp.eq.u32 {p}, {i}, {k};"));
            self.line(format!("@{p} bra {c};"));
        }
        let other =
            if self.rng.percent(50) { end.clone() } else { cases[self.rng.below(cases.len())].clone() };
        self.line(format!("bra {other};"));
        for c in &cases {
            self.place(c);
            let n = self.rng.range(1, 3);
            self.statements(n, &inner);
            if self.rng.percent(30) {
                self.line(format!("bra {end};"));
            }
        }
        self.place(&end);
    }

    /// Out of the function, wherever that leaves nobody waiting; out of the kernel, without a result.
    fn early_return(&mut self, ctx: &Context) {
        match self.end.clone() {
            Some((end, result)) if ctx.exits.contains(&end) => {
                let skip = self.label();
                let c = self.any_condition(ctx.uniform);
                self.line(format!("@{c} bra {skip};"));
                if let Some((class, ty)) = result {
                    let r = self.reg(class);
                    self.line(format!("st.param.{ty} [ret], {r};"));
                }
                self.line("ret;");
                self.place(&skip);
            }
            None if ctx.uniform && self.rng.percent(20)
                || !ctx.uniform && self.profile.warp == 0 && !self.profile.shared =>
            {
                let c = self.any_condition(ctx.uniform);
                let how = self.rng.pick(&["ret", "exit"]);
                self.line(format!("@{c} {how};"));
            }
            _ => self.leave(ctx),
        }
    }

    fn switch(&mut self, ctx: &Context) {
        let end = self.label();
        let (uniform, inner) = self.inside(ctx, &end);
        let cases: Vec<String> = (0..self.rng.range(2, 5)).map(|_| self.label()).collect();
        let r = if uniform { self.uniform() } else { self.word() };
        let i = self.temp("b32");
        let table = self.label();
        let mut targets: Vec<&str> = cases.iter().map(String::as_str).collect();
        for _ in 0..self.rng.below(4) {
            let k = self.rng.below(cases.len());
            targets.push(&cases[k]);
        }
        self.line(format!("rem.u32 {i}, {r}, {};", targets.len()));
        self.line(format!("{table}: .branchtargets {};", targets.join(", ")));
        self.line(format!("brx.idx {i}, {table};"));
        for c in &cases {
            self.place(c);
            let n = self.rng.range(1, 3);
            self.statements(n, &inner);
            if self.rng.percent(75) {
                self.line(format!("bra {end};"));
            }
        }
        self.place(&end);
    }

    /// Blocks that jump to each other at will, so many times in all.
    fn graph(&mut self, ctx: &Context) {
        let end = self.label();
        let (uniform, mut inner) = self.inside(ctx, &end);
        let fuel = self.rng.range(2, 10);
        if ctx.times * fuel > MOST_TIMES {
            return self.arithmetic(ctx);
        }
        inner.times *= fuel;
        inner.depth = inner.depth.min(1);
        let left = self.temp("b32");
        self.line(format!("mov.b32 {left}, {fuel};"));
        let blocks: Vec<String> = (0..self.rng.range(2, 5)).map(|_| self.label()).collect();
        let any = |g: &mut Gen| blocks[g.rng.below(blocks.len())].clone();
        // Several ways in.
        let c = self.any_condition(uniform);
        let to = any(self);
        self.line(format!("@{c} bra {to};"));
        for b in &blocks {
            self.place(b);
            let p = self.temp("pred");
            self.line(format!("sub.u32 {left}, {left}, 1;"));
            self.line(format!("setp.eq.u32 {p}, {left}, 0;"));
            self.line(format!("@{p} bra {end};"));
            let n = self.rng.range(1, 3);
            self.statements(n, &inner);
            for _ in 0..self.rng.range(0, 2) {
                let c = self.any_condition(uniform);
                let to = any(self);
                self.line(format!("@{c} bra {to};"));
            }
            if self.rng.percent(40) {
                let to = any(self);
                self.line(format!("bra {to};"));
            }
        }
        self.place(&end);
    }
}
