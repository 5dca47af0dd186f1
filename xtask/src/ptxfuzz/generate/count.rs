//! Loops whose number of iterations is known only when they are executed: none, few, or more than a round of an unrolled loop has; they count
//! up and down, to the ends of the numbers and, where they ask for inequality, past them.

use super::{Context, Gen, MOST_TIMES};

/// Most iterations.
const MOST: usize = 19;

impl Gen {
    pub(super) fn count(&mut self, ctx: &Context) {
        if ctx.times * MOST > MOST_TIMES {
            return self.arithmetic(ctx);
        }
        let uniform = ctx.uniform && self.rng.percent(60);
        let (head, end) = (self.label(), self.label());
        let mut inner = if uniform { ctx.inner() } else { ctx.divergent(&end) };
        // Nothing that goes elsewhere, or around.
        (inner.depth, inner.times) = (0, ctx.times * MOST);
        inner.exits.clear();
        let bits = self.rng.pick(&["32", "32", "64"]);
        let signed = self.rng.percent(50);
        let ty = format!("{}{bits}", if signed { "s" } else { "u" });
        let [i, last, step_times, times] = [bits, bits, bits, "32"].map(|b| self.temp(&format!("b{b}")));
        let step = self.rng.range(1, 5) as i128;
        let up = self.rng.percent(50);
        let differs = self.rng.percent(40);
        // How far it may go without passing the end of the numbers, with what a loop goes beyond its bound.
        let way = step * (MOST as i128 + 2);
        let width: u32 = if bits == "64" { 64 } else { 32 };
        let (least, most) = if signed {
            (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
        } else {
            (0, (1i128 << width) - 1)
        };
        let edge = self.rng.below(3) as i128;
        let start = match (self.rng.below(4), up, differs) {
            (0, true, _) => least + edge,
            (0, false, _) => most - edge,
            (1, true, false) => most - way - edge,
            (1, false, false) => least + way + edge,
            (1, true, true) => most - edge,
            (1, false, true) => least + edge,
            _ if up || signed => edge,
            _ => way + edge,
        };
        let most_times = if self.rng.percent(30) { 5 } else { MOST };
        let r = if uniform { self.uniform() } else { self.word() };
        self.line(format!("rem.u32 {times}, {r}, {most_times};"));
        // Sometimes the compiler knows where it begins.
        self.line(format!("mov.b{bits} {i}, {start};"));
        if self.rng.percent(50) {
            let other = self.uniform();
            let zero = self.temp("b32");
            self.line(format!("xor.b32 {zero}, {other}, {other};"));
            self.line(format!("mad.lo.u32 {zero}, {zero}, {other}, {zero};"));
            if bits == "64" {
                let wide = self.temp("b64");
                self.line(format!("cvt.u64.u32 {wide}, {zero};"));
                self.line(format!("add.u64 {i}, {i}, {wide};"));
            } else {
                self.line(format!("add.u32 {i}, {i}, {zero};"));
            }
        }
        let below = self.rng.percent(60);
        if below && differs {
            self.line(format!("add.u32 {times}, {times}, 1;"));
        }
        if bits == "64" {
            self.line(format!("mul.wide.u32 {step_times}, {times}, {step};"));
        } else {
            self.line(format!("mul.lo.u32 {step_times}, {times}, {step};"));
        }
        let (plus, back) = if up { ("add", "sub") } else { ("sub", "add") };
        self.line(format!("{plus}.u{bits} {last}, {i}, {step_times};"));
        if !differs && signed && start.unsigned_abs() < 1000 && self.rng.percent(30) {
            // A bound that is passed at once.
            self.line(format!("{back}.u{bits} {last}, {last}, 2;"));
        }
        let (goes, ends) = match (differs, up, self.rng.percent(50)) {
            (true, _, _) => ("ne", "eq"),
            (false, true, true) => ("lt", "ge"),
            (false, true, false) => ("le", "gt"),
            (false, false, true) => ("gt", "le"),
            (false, false, false) => ("ge", "lt"),
        };
        let p = self.temp("pred");
        let n = self.rng.range(0, 3);
        self.place(&head);
        if !below {
            self.line(format!("setp.{ends}.{ty} {p}, {i}, {last};"));
            self.line(format!("@{p} bra {end};"));
        }
        self.statements(n, &inner);
        self.line(format!("{plus}.{ty} {i}, {i}, {step};"));
        if below {
            self.line(format!("setp.{goes}.{ty} {p}, {i}, {last};"));
            self.line(format!("@{p} bra {head};"));
        } else {
            self.line(format!("bra {head};"));
        }
        self.place(&end);
    }
}
