//! Pairs of registers of which one word is never needed: addresses of local arrays, counters of 64 bits whose upper word only
//! counts itself. Block parameters keep the other word alone, and pairs are made without what they don't need, so that
//! what computes it goes as dead code.

use crate::Pass;
use cranelift_entity::{EntitySet, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::{
    ALWAYS, Analyses, Block, Changed, Function, Inst, InstData, Loc, Macro, Name, Op, Operand, Value, operand,
};
use sass::{Mods, Reg, RegFile, RegOp};
use smallvec::{SmallVec, smallvec};
use thin_vec::ThinVec;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "dead-words",
    "OriSimpleLiveDead",
    "block parameters of two words of which one is needed have that alone, and pairs are made without what they do not need",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let is_pair = |func: &Function, v: Value| func.values[v].width == 2 && func.values[v].file == RegFile::R;
    let params = |func: &Function, b: Block| func.blocks[b].params.clone();
    if !func.layout.iter().any(|b| params(func, *b).into_iter().any(|p| is_pair(func, p))) {
        return Changed::Nothing;
    }
    let needed = Needed::new(func);
    // Parameters of which one word is needed: which, and what has that alone.
    let mut halves: SecondaryMap<Value, Option<(u8, Value)>> = SecondaryMap::new();
    let mut any = false;
    for b in func.layout.clone() {
        for p in params(func, b) {
            if let (true, [word]) = (is_pair(func, p), &needed.words(p)[..]) {
                halves[p] = Some((*word, func.add_value(RegFile::R, 1)));
                any = true;
            }
        }
    }
    let mut changed = false;
    for b in func.layout.clone() {
        changed |= without_unneeded(func, b, &needed);
        if any {
            pass_halves(func, b, &halves);
        }
    }
    if any {
        func.layout.clone().into_iter().for_each(|b| take_halves(func, b, &halves));
        // Who reads that word of the pair reads the half.
        let _ = crate::copy_prop::run(func, analyses);
    }
    Changed::instructions(any || changed)
}

/// Which words of values something needs.
struct Needed {
    /// Where the words of each value begin.
    base: SecondaryMap<Value, u32>,
    widths: SecondaryMap<Value, u8>,
    words: FixedBitSet,
}

/// What gives a value its words.
#[derive(Clone, Default)]
enum Maker {
    #[default]
    None,
    Inst(Inst),
    /// What is passed for a parameter.
    Passed(SmallVec<[Value; 4]>),
}

impl Needed {
    fn new(func: &Function) -> Needed {
        let mut found =
            Needed { base: func.per_value(), widths: func.per_value(), words: FixedBitSet::new() };
        let mut count = 0;
        for (v, d) in func.values.iter() {
            found.base[v] = count;
            found.widths[v] = d.width;
            count += u32::from(d.width);
        }
        found.words.grow(count as usize);
        let mut makers: SecondaryMap<Value, Maker> = SecondaryMap::new();
        let mut work: Vec<(Value, u8)> = Vec::new();
        for &b in &func.layout {
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                d.for_each_def(|n| n.value().into_iter().for_each(|v| makers[v] = Maker::Inst(i)));
                if !d.is_pure() && !d.is_removable() {
                    d.for_each_use(|n| found.need(n, &mut work));
                }
            }
            let term = &func.blocks[b].term;
            term.used_name().into_iter().for_each(|n| found.need(n, &mut work));
            for t in term.targets() {
                for (p, a) in func.blocks[t.block].params.iter().zip(&t.args) {
                    match &mut makers[*p] {
                        Maker::Passed(from) => from.push(*a),
                        other => *other = Maker::Passed(smallvec![*a]),
                    }
                }
            }
        }
        let mut done: EntitySet<Inst> = EntitySet::new();
        while let Some((v, word)) = work.pop() {
            match &makers[v] {
                Maker::None => {}
                Maker::Passed(from) => from.iter().for_each(|a| found.need_word(*a, word, &mut work)),
                Maker::Inst(i) => {
                    let d = &func.insts[*i];
                    match word_of(func, d, word) {
                        Some(n) => found.need(n, &mut work),
                        None if done.insert(*i) => d.for_each_use(|n| found.need(n, &mut work)),
                        None => {}
                    }
                }
            }
        }
        found
    }

    fn need_word(&mut self, v: Value, word: u8, work: &mut Vec<(Value, u8)>) {
        if !self.words.put((self.base[v] + u32::from(word)) as usize) {
            work.push((v, word));
        }
    }

    fn need(&mut self, n: Name, work: &mut Vec<(Value, u8)>) {
        match n {
            Name::Val(v) => (0..self.widths[v]).for_each(|k| self.need_word(v, k, work)),
            Name::Part(v, k) => self.need_word(v, k, work),
            Name::Phys(_) => {}
        }
    }

    /// The words of a value that are needed.
    fn words(&self, v: Value) -> SmallVec<[u8; 2]> {
        (0..self.widths[v]).filter(|k| self.words.contains((self.base[v] + u32::from(*k)) as usize)).collect()
    }
}

/// What a word of the result only repeats; `None` if it takes all that the instruction reads.
fn word_of(func: &Function, d: &InstData, word: u8) -> Option<Name> {
    if !d.is_unguarded() {
        return None;
    }
    let register = |o: &Operand| match o {
        Operand::Reg(r) => Some(r.reg),
        _ => None,
    };
    if let Some((_, parts)) = d.collected() {
        return parts.get(usize::from(word)).and_then(register);
    }
    match register(d.copied()?.1)? {
        Name::Val(v) if func.values[v].width > 1 => Some(Name::Part(v, word)),
        n => Some(n),
    }
}

/// Makes collections without the words that nothing needs; whether there were any.
fn without_unneeded(func: &mut Function, b: Block, needed: &Needed) -> bool {
    let mut changed = false;
    for i in func.blocks[b].insts.clone() {
        let d = &func.insts[i];
        let Some((Operand::Reg(RegOp { reg: Name::Val(v), .. }), _)) = d.collected() else { continue };
        if !d.is_unguarded() {
            continue;
        }
        let v = *v;
        let words = needed.words(v);
        // What is wholly dead goes as it is.
        if words.is_empty() || func.values[v].file != RegFile::R {
            continue;
        }
        for k in (0..func.values[v].width).filter(|k| !words.contains(k)) {
            let zero = operand(Name::Phys(Reg::RZ));
            let part = func.insts[i].collected_mut().and_then(|parts| parts.get_mut(usize::from(k)));
            if let Some(o) = part.filter(|o| **o != zero) {
                *o = zero;
                changed = true;
            }
        }
    }
    changed
}

/// Passes one word for two where a block leads to.
fn pass_halves(func: &mut Function, b: Block, halves: &SecondaryMap<Value, Option<(u8, Value)>>) {
    let mut term = func.blocks[b].term.clone();
    for t in term.targets_mut() {
        for (k, a) in t.args.iter_mut().enumerate() {
            let Some((word, _)) = halves[func.blocks[t.block].params[k]] else { continue };
            *a = match halves[*a] {
                Some((same, half)) if same == word => half,
                _ => {
                    let half = func.add_value(RegFile::R, 1);
                    let copy = func.insts.push(macro_of(Macro::Copy, half, &[Name::Part(*a, word)]));
                    func.blocks[b].insts.push(copy);
                    half
                }
            };
        }
    }
    func.blocks[b].term = term;
}

/// Gives a block's parameters one word for two; the pair is made of it for those that name the pair and need this word alone.
fn take_halves(func: &mut Function, b: Block, halves: &SecondaryMap<Value, Option<(u8, Value)>>) {
    let mut first: Vec<Inst> = Vec::new();
    for k in 0..func.blocks[b].params.len() {
        let p = func.blocks[b].params[k];
        let Some((word, half)) = halves[p] else { continue };
        func.blocks[b].params[k] = half;
        let mut words = [Name::Phys(Reg::RZ); 2];
        words[usize::from(word)] = Name::Val(half);
        first.push(func.insts.push(macro_of(Macro::Collect, p, &words)));
    }
    func.blocks[b].insts.splice(0..0, first);
}

fn macro_of(m: Macro, to: Value, from: &[Name]) -> InstData {
    InstData {
        op: Op::Macro(m),
        mods: Mods::none(),
        operands: std::iter::once(operand(to)).chain(from.iter().map(|n| operand(*n))).collect(),
        guard: ALWAYS,
        kept: ThinVec::new(),
        loc: Loc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function behind the pass and what cleans up after it.
    fn after(step: &str, end: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=64 shared=0 barriers=0 regs=255 {{
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = collect v0, v0
    jump block1(v1)
block1(v2:R2):
    v3:R, v4:P = IADD3 PT, v2.0, 0x4, RZ, !PT, !PT
    {step}
    v6:R2 = collect v3, v5
    STS [v2.0], v0
    v7:P = ISETP.LT.AND PT, v3, 0x40, PT, PT
    branch v7, block1(v6), block2
block2:
    {end}
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e:?}: {text}"));
        _ = run(&mut f, &Analyses::default());
        ori::dead::remove(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    const UPPER: &str = "v5:R = IADD3.X PT, PT, v2.1, RZ, RZ, v4, !PT";

    #[test]
    fn words_that_only_feed_themselves_go() {
        let got = after(UPPER, "STS [v0], v3");
        assert!(!got.contains("IADD3.X") && !got.contains(":R2):"), "{got}");
    }

    #[test]
    fn words_that_are_needed_stay() {
        assert!(after(UPPER, "STS [v0], v5").contains("IADD3.X"));
        assert!(after(UPPER, "STS.64 [v0], v6").contains("v2:R2):"));
        let got = after("v5:R = IADD3 PT, PT, v2.1, v2.0, RZ, !PT, !PT", "STS [v0], v2.1");
        assert!(got.contains("v2:R2):"), "{got}");
    }
}
