//! Analyses and the edit layer against naive definitions, on random functions.

use ori::cfg::{Cfg, DomTree, PostDom};
use ori::edit::{Def, User};
use ori::known::KnownBits;
use ori::live::Live;
use ori::loops::{LoopForest, Makers};
use ori::{Analyses, Block, BlockCall, Builder, Changed, Editor, Function, Inst, InstData, Macro, Name, Op};
use ori::{Operand, Terminator, Value, operand};
use sass::{Lanes, Mod, Mods, Opcode, Reg, RegFile, SpecialReg, Target};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.roll(list.len())].clone()
    }
}

fn zero() -> Operand {
    operand(Name::Phys(Reg::RZ))
}

fn target() -> Target {
    Target::new(90).expect("a target")
}

/// Appends a computation of `known` values.
fn compute(b: &mut Builder, dice: &mut Dice, known: &[Value]) -> Value {
    let imm = Operand::Imm(dice.of(&[1, 4, 12, 0xff, 0xffff_fff0]));
    let (x, y) = (operand(dice.of(known)), operand(dice.of(known)));
    match dice.roll(5) {
        0 => b.copy(imm),
        1 => b.def(Opcode::IADD3, &[], &[x, imm, zero()]),
        2 => b.def(Opcode::IADD3, &[], &[x, y, zero()]),
        3 => b.def(Opcode::IMAD, &[], &[x, imm, y]),
        _ => {
            let lut = dice.of(&[0xc0, 0xfc, 0x3c, 0x0c]);
            b.def(Opcode::LOP3, &[Mod::LUT], &[x, imm, y, Operand::Imm(lut)])
        }
    }
}

/// A function of random blocks, in SSA: each reads what the first one makes, its parameters, and what it makes itself.
fn random(seed: u64) -> Function {
    let mut dice = Dice(seed);
    let mut f = Function::new("k", target());
    let more = 1 + dice.roll(12);
    let blocks: Vec<Block> =
        std::iter::once(f.entry_block()).chain((0..more).map(|_| f.add_block())).collect();
    for &b in &blocks[1..] {
        for _ in 0..dice.roll(3) {
            let p = f.add_value(RegFile::R, 1);
            f.blocks[b].params.push(p);
        }
    }
    let params: Vec<Vec<Value>> = blocks.iter().map(|b| f.blocks[*b].params.to_vec()).collect();
    let mut b = Builder::new(&mut f, blocks[0]);
    let mut first = vec![b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)])];
    for (n, &block) in blocks.iter().enumerate() {
        b.block = block;
        let mut known = first.clone();
        known.extend(&params[n]);
        for _ in 0..dice.roll(5) {
            let v = compute(&mut b, &mut dice, &known);
            known.push(v);
        }
        if n == 0 {
            first = known.clone();
        }
        let address =
            Operand::Addr { desc: None, base: None, width: sass::AddrWidth::R32, uniform: None, offset: 0 };
        b.inst(Opcode::STS, &[], &[address, operand(dice.of(&known))]);
        let to = |dice: &mut Dice| {
            let t = 1 + dice.roll(blocks.len() - 1);
            BlockCall { block: blocks[t], args: params[t].iter().map(|_| dice.of(&known)).collect() }
        };
        let term = match dice.roll(4) {
            0 if n > 0 => Terminator::Exit,
            1 => Terminator::Jump(to(&mut dice)),
            _ => {
                let (taken, fall) = (to(&mut dice), to(&mut dice));
                let bound = Operand::Imm(dice.roll(600) as u32);
                let of = operand(dice.of(&known));
                let cond = b.def_pred(Opcode::ISETP, &[Mod::LT, Mod::U32, Mod::AND], &[of, bound]);
                Terminator::Branch { cond: cond.into(), not: dice.roll(2) == 0, taken, fall }
            }
        };
        b.terminate(term);
    }
    f
}

fn randoms() -> impl Iterator<Item = Function> {
    (0..300).map(random)
}

/// What a thread stores, and each value that it makes, in order.
fn execute(f: &Function, tid: u32) -> (Vec<u32>, Vec<(Value, u32)>) {
    let (mut stores, mut made) = (Vec::new(), Vec::new());
    let mut values: BTreeMap<Value, u32> = BTreeMap::new();
    let mut at = f.entry_block();
    for _ in 0..60 {
        for &i in &f.blocks[at].insts {
            let d = &f.insts[i];
            let get = |n: usize| match &d.operands[n] {
                Operand::Imm(n) => *n,
                Operand::Reg(r) => r.reg.value().map_or(0, |v| values[&v]),
                _ => tid,
            };
            let (to, x) = match d.op {
                Op::Macro(Macro::Copy) => (0, get(1)),
                Op::Sass(Opcode::S2R) => (0, get(1)),
                Op::Sass(Opcode::IADD3) => (0, get(3).wrapping_add(get(4)).wrapping_add(get(5))),
                Op::Sass(Opcode::IMAD) => (0, get(2).wrapping_mul(get(3)).wrapping_add(get(4))),
                Op::Sass(Opcode::LOP3) => {
                    let bit = |k: u32| {
                        let row = (get(2) >> k & 1) << 2 | (get(3) >> k & 1) << 1 | get(4) >> k & 1;
                        (get(5) >> row & 1) << k
                    };
                    (1, (0..32).map(bit).sum())
                }
                Op::Sass(Opcode::ISETP) if d.mods.has(Mod::U32) => (0, u32::from(get(2) < get(3))),
                Op::Sass(Opcode::STS) => {
                    stores.push(get(1));
                    continue;
                }
                op => panic!("{op:?}"),
            };
            if let Operand::Reg(r) = &d.operands[to]
                && let Some(v) = r.reg.value()
            {
                values.insert(v, x);
                made.push((v, x));
            }
        }
        let call = match &f.blocks[at].term {
            Terminator::Jump(c) => c,
            Terminator::Branch { cond, not, taken, fall } => {
                let holds = cond.value().is_some_and(|v| values[&v] != 0);
                if holds != *not { taken } else { fall }
            }
            _ => return (stores, made),
        };
        let args: Vec<u32> = call.args.iter().map(|a| values[a]).collect();
        for (p, x) in f.blocks[call.block].params.iter().zip(args) {
            values.insert(*p, x);
            made.push((*p, x));
        }
        at = call.block;
    }
    (stores, made)
}

/// Both store the same, as far as both were executed.
fn same_stores(a: &Function, b: &Function) {
    for tid in [0, 1, 77, 511] {
        let (x, y) = (execute(a, tid).0, execute(b, tid).0);
        let n = x.len().min(y.len());
        assert_eq!(x[..n], y[..n], "{a}\n{b}");
    }
}

fn reaches(cfg: &Cfg, from: Block, to: Block, without: Option<Block>, backwards: bool) -> bool {
    let mut seen = BTreeSet::new();
    let mut work = vec![from];
    while let Some(b) = work.pop() {
        if Some(b) != without && seen.insert(b) {
            work.extend(if backwards { cfg.preds[b].to_vec() } else { cfg.succs[b].to_vec() });
        }
    }
    seen.contains(&to)
}

#[test]
fn dominators_are_what_every_way_goes_through() {
    for f in randoms() {
        let cfg = Cfg::new(&f);
        let (dom, post) = (DomTree::dominators(&cfg), PostDom::new(&cfg));
        let exits: Vec<Block> = cfg.rpo.iter().copied().filter(|b| cfg.succs[*b].is_empty()).collect();
        for &a in &cfg.rpo {
            for &b in &cfg.rpo {
                let naive = a == b || !reaches(&cfg, f.entry_block(), b, Some(a), false);
                assert_eq!(dom.dominates(a, b), naive, "{a} {b}\n{f}");
                let ends = |without| exits.iter().any(|e| reaches(&cfg, b, *e, without, false));
                if ends(None) {
                    assert_eq!(post.dominates(a, b), a == b || !ends(Some(a)), "post {a} {b}\n{f}");
                }
            }
        }
    }
}

#[test]
fn loops_are_what_leads_to_their_latches() {
    let mut found = 0;
    for f in randoms() {
        let cfg = Cfg::new(&f);
        let dom = DomTree::dominators(&cfg);
        let forest = LoopForest::new(&cfg, &dom);
        let back = |h: Block| -> BTreeSet<Block> {
            cfg.preds[h].iter().copied().filter(|p| dom.dominates(h, *p)).collect()
        };
        let headers = cfg.rpo.iter().filter(|h| !back(**h).is_empty()).count();
        assert_eq!(forest.loops.len(), headers, "{f}");
        for (l, data) in forest.loops.iter() {
            found += 1;
            let h = data.header;
            assert_eq!(data.latches.iter().copied().collect::<BTreeSet<_>>(), back(h), "{f}");
            let inside = |b: Block| b == h || back(h).iter().any(|t| reaches(&cfg, *t, b, Some(h), true));
            let mut exits = BTreeSet::new();
            for &b in &cfg.rpo {
                assert_eq!(forest.contains(l, b), inside(b), "{h} {b}\n{f}");
                exits.extend(cfg.succs[b].iter().filter(|s| inside(b) && !inside(**s)).map(|s| (b, *s)));
            }
            assert_eq!(data.exits.iter().copied().collect::<BTreeSet<_>>(), exits, "{f}");
            if let Some(p) = data.preheader.expand() {
                assert!(cfg.succs[p].len() == 1 && !inside(p), "{f}");
            }
            if let Some(p) = data.parent.expand() {
                assert!(forest.contains(p, h) && forest.loops[p].depth + 1 == data.depth);
            }
        }
        for &b in &cfg.rpo {
            let depth = forest.loops.keys().filter(|l| forest.contains(*l, b)).count();
            assert_eq!(forest.depth(b) as usize, depth, "{b}\n{f}");
        }
    }
    assert!(found > 100, "{found} loops");
}

#[test]
fn liveness_solves_its_equations() {
    for f in randoms() {
        let cfg = Cfg::new(&f);
        let live = Live::new(&f, &cfg);
        let mut ins: BTreeMap<Block, BTreeSet<Value>> = BTreeMap::new();
        let out = |ins: &BTreeMap<Block, BTreeSet<Value>>, b: Block| -> BTreeSet<Value> {
            cfg.succs[b].iter().flat_map(|s| ins.get(s).into_iter().flatten().copied()).collect()
        };
        loop {
            let before = ins.clone();
            for &b in cfg.rpo.iter().rev() {
                let data = &f.blocks[b];
                let mut now = out(&ins, b);
                data.term.targets().iter().for_each(|t| now.extend(t.args.iter()));
                now.extend(data.term.used_name().and_then(Name::value));
                for i in data.insts.iter().rev() {
                    f.insts[*i].for_each_def(|n| _ = n.value().map(|v| now.remove(&v)));
                    f.insts[*i].for_each_use(|n| now.extend(n.value()));
                }
                data.params.iter().for_each(|p| _ = now.remove(p));
                ins.insert(b, now);
            }
            if ins == before {
                break;
            }
        }
        for &b in &cfg.rpo {
            assert_eq!(live.live_in(b), ins[&b].iter().copied().collect::<Vec<_>>(), "{b}\n{f}");
            assert_eq!(live.live_out(b), out(&ins, b).into_iter().collect::<Vec<_>>(), "{b}\n{f}");
        }
    }
}

#[test]
fn known_bits_hold_whatever_is_executed() {
    let mut known = 0;
    for f in randoms() {
        let bits = KnownBits::new(&f, &Cfg::new(&f));
        for tid in [0, 5, 63, 1023] {
            let made = execute(&f, tid).1.into_iter().filter(|(v, _)| f.values[*v].file == RegFile::R);
            for (v, x) in made {
                assert!(bits.of(v).admits(x), "{v} = {x:#x}: {:?}\n{f}", bits.of(v));
                assert_eq!(x % bits.alignment(v), 0, "{v} = {x:#x}\n{f}");
                known += bits.of(v).zeros.count_ones() + bits.of(v).ones.count_ones();
            }
        }
    }
    assert!(known > 10_000, "{known} bits");
}

/// A loop that counts, as [`counted`] makes it.
#[derive(Clone, Copy)]
struct Counted {
    start: u32,
    step: u32,
    cmp: Mod,
    bound: u32,
    signed: bool,
    /// The sum is compared, not what it is made of.
    next: bool,
    /// The comparison does not stand in the latch.
    early: bool,
}

/// `for (i = start; i cmp bound; i += step);`
fn counted(c: Counted) -> Function {
    let mut f = Function::new("k", target());
    let (head, tail, end) = (f.add_block(), f.add_block(), f.add_block());
    let i = f.add_value(RegFile::R, 1);
    f.blocks[head].params.push(i);
    let entry = f.entry_block();
    let mut b = Builder::new(&mut f, entry);
    let first = b.copy(Operand::Imm(c.start));
    b.terminate(Terminator::Jump(BlockCall { block: head, args: [first].into_iter().collect() }));
    b.block = head;
    let sum = b.def(Opcode::IADD3, &[], &[operand(i), Operand::Imm(c.step), zero()]);
    let mods: &[Mod] = if c.signed { &[c.cmp, Mod::AND] } else { &[c.cmp, Mod::U32, Mod::AND] };
    let tested = operand(if c.next { sum } else { i });
    let cond = b.def_pred(Opcode::ISETP, mods, &[tested, Operand::Imm(c.bound)]);
    let again = BlockCall { block: head, args: [sum].into_iter().collect() };
    let (stay, out) = (Builder::call(tail), Builder::call(end));
    if c.early {
        b.terminate(Terminator::Branch { cond: cond.into(), not: false, taken: stay, fall: out });
        b.block = tail;
        b.terminate(Terminator::Jump(again));
    } else {
        b.terminate(Terminator::Branch { cond: cond.into(), not: true, taken: out, fall: again });
    }
    b.block = end;
    b.terminate(Terminator::Exit);
    f
}

#[test]
fn trip_counts_are_what_counting_gives() {
    let mut dice = Dice(7);
    let mut found = 0;
    for _ in 0..4000 {
        let near = [0u32, 1, 2, 10, 37, 100, u32::MAX, u32::MAX - 5, 0x7fff_fffe, 0x8000_0000];
        let c = Counted {
            start: dice.of(&near),
            step: dice.of(&[1u32, 2, 3, 7, u32::MAX, u32::MAX - 2]),
            cmp: dice.of(&[Mod::LT, Mod::LE, Mod::GT, Mod::GE, Mod::EQ, Mod::NE]),
            bound: dice.of(&near),
            signed: dice.roll(2) == 0,
            next: dice.roll(2) == 0,
            early: dice.roll(2) == 0,
        };
        let f = counted(c);
        let cfg = Cfg::new(&f);
        let dom = DomTree::dominators(&cfg);
        let forest = LoopForest::new(&cfg, &dom);
        let makers = Makers::new(&f);
        let l = forest.loops.keys().next().expect("a loop");
        assert_eq!(forest.inductions(&f, &cfg, &makers, l).len(), 1);
        let Some(trips) = forest.trips(&f, &cfg, &dom, &makers, l).filter(|n| *n <= 5000) else { continue };
        found += 1;
        let holds = |x: u32| {
            let order = if c.signed { (x as i32).cmp(&(c.bound as i32)) } else { x.cmp(&c.bound) };
            match c.cmp {
                Mod::LT => order.is_lt(),
                Mod::LE => order.is_le(),
                Mod::GT => order.is_gt(),
                Mod::GE => order.is_ge(),
                Mod::EQ => order.is_eq(),
                _ => order.is_ne(),
            }
        };
        let (mut x, mut count) = (c.start, 0);
        while count <= trips && holds(if c.next { x.wrapping_add(c.step) } else { x }) {
            x = x.wrapping_add(c.step);
            count += 1;
        }
        assert_eq!(count, trips, "{f}");
    }
    assert!(found > 500, "{found} loops with counts");
}

/// Uses of each value, counted anew.
fn counts(f: &Function) -> BTreeMap<Value, (u32, BTreeSet<User>)> {
    let mut out: BTreeMap<Value, (u32, BTreeSet<User>)> = BTreeMap::new();
    let mut add = |v: Value, u: User| {
        let e = out.entry(v).or_default();
        e.0 += 1;
        e.1.insert(u);
    };
    for &b in &f.layout {
        for &i in &f.blocks[b].insts {
            f.insts[i].for_each_use(|n| n.value().into_iter().for_each(|v| add(v, User::Inst(i))));
        }
        let term = &f.blocks[b].term;
        term.used_name().and_then(Name::value).into_iter().for_each(|v| add(v, User::Terminator(b)));
        term.targets().iter().flat_map(|t| t.args.iter()).for_each(|v| add(*v, User::Terminator(b)));
    }
    out
}

fn copy(to: Value, from: Operand) -> InstData {
    InstData {
        guard: ori::ALWAYS,
        op: Op::Macro(Macro::Copy),
        mods: Mods::none(),
        operands: [operand(to), from].into_iter().collect(),
        kept: Default::default(),
        loc: ori::Loc::default(),
    }
}

/// One edit that changes nothing of what is stored.
fn edit(e: &mut Editor<'_>, dice: &mut Dice) {
    let blocks: Vec<Block> = e.func().blocks.keys().collect();
    let b = dice.of(&blocks);
    let insts: Vec<Inst> = e.insts(b).collect();
    match (dice.roll(5), insts.is_empty()) {
        // A copy of what an instruction makes, read in its place.
        (0, false) => {
            let i = dice.of(&insts);
            let mut made = Vec::new();
            e.data(i).for_each_def(|n| made.extend(n.value()));
            let word = made.into_iter().find(|v| e.func().values[*v].file == RegFile::R);
            if let Some(old) = word {
                let new = e.add_value(RegFile::R, 1);
                e.replace_all_uses(old, new);
                e.insert_after(i, copy(new, operand(old)));
                assert_eq!(e.use_count(old), 1);
            }
        }
        // Dead code in front of an instruction, erased again with its source.
        (1, false) => {
            let i = dice.of(&insts);
            let (x, y) = (e.add_value(RegFile::R, 1), e.add_value(RegFile::R, 1));
            let first = e.insert_before(i, copy(x, Operand::Imm(3)));
            let second = e.insert_before(i, copy(y, operand(x)));
            assert_eq!(e.def(x), Def::Inst(first));
            e.erase(second);
            assert!(e.block_of(first).is_none() && e.previous(i) != Some(first));
        }
        (2, false) => _ = e.split_before(dice.of(&insts)),
        (3, _) => {
            let edges = e.func().blocks[b].term.targets().len();
            if edges > 0 {
                e.split_edge(b, dice.roll(edges));
            }
        }
        _ => {
            for i in insts {
                if e.block_of(i).is_some() && e.is_dead(i) {
                    e.erase(i);
                }
            }
        }
    }
}

fn verified(f: &Function, from: &Function) {
    ori::verify::verify(f).unwrap_or_else(|e| panic!("{e:?}\n{from}\n{f}"));
    same_stores(from, f);
}

#[test]
fn edits_keep_meaning_and_use_lists() {
    for (seed, original) in randoms().enumerate() {
        let mut f = original.clone();
        let mut dice = Dice(seed as u64);
        let mut e = Editor::new(&mut f);
        (0..12).for_each(|_| edit(&mut e, &mut dice));
        let values: Vec<Value> = e.func().values.keys().collect();
        let lists: Vec<(u32, BTreeSet<User>)> =
            values.iter().map(|v| (e.use_count(*v), e.users(*v).into_iter().collect())).collect();
        let _ = e.finish();
        let naive = counts(&f);
        for (v, list) in values.iter().zip(lists) {
            assert_eq!(naive.get(v).cloned().unwrap_or_default(), list, "{v}\n{f}");
        }
        verified(&f, &original);
        let mut numbered = f.clone();
        ori::renumber(&mut numbered);
        verified(&numbered, &original);
        let kept: usize = numbered.blocks.values().map(|b| b.insts.len()).sum();
        assert_eq!(numbered.insts.len(), kept);
        let mut compact = f.clone();
        ori::compact(&mut compact);
        verified(&compact, &original);
        assert_eq!((compact.insts.len(), compact.values.len()), (kept, numbered.values.len()));
        let mut less = f.clone();
        ori::dead::remove(&mut less);
        verified(&less, &original);
    }
}

#[test]
fn copied_regions_do_what_they_were_copied_from() {
    for original in randoms() {
        let mut f = original.clone();
        let region: Vec<Block> = f.layout[1..].to_vec();
        let mut e = Editor::new(&mut f);
        let clones = e.clone_region(&region);
        let entry = e.func().entry_block();
        let mut term = e.func().blocks[entry].term.clone();
        term.targets_mut().into_iter().for_each(|t| t.block = clones.blocks[&t.block]);
        e.set_terminator(entry, term);
        assert_eq!(e.finish(), Changed::Graph);
        verified(&f, &original);
    }
}

#[test]
fn blocks_move_in_the_layout() {
    for (seed, mut f) in randoms().enumerate() {
        let mut dice = Dice(seed as u64);
        let mut naive = f.layout.clone();
        let mut followed = BTreeSet::new();
        let mut e = Editor::new(&mut f);
        for _ in 0..8 {
            let (b, after) = (dice.of(&naive[1..]), dice.of(&naive));
            // What follows a block goes with it.
            if b != after && !followed.contains(&b) {
                followed.insert(after);
                e.move_block_after(b, after);
                naive.retain(|x| *x != b);
                let at = naive.iter().position(|x| *x == after).expect("it is laid out");
                naive.insert(at + 1, b);
            }
        }
        let _ = e.finish();
        assert_eq!(f.layout, naive, "{f}");
    }
}

#[test]
fn analyses_are_forgotten_when_what_they_rest_on_changes() {
    let mut f = random(3);
    let mut analyses = Analyses::default();
    let blocks = analyses.cfg(&f).rpo.len();
    let _ = (analyses.loops(&f), analyses.live(&f), analyses.known_bits(&f), analyses.postdominators(&f));
    let mut e = Editor::new(&mut f);
    let entry = e.func().entry_block();
    e.split_edge(entry, 0);
    let changed = e.finish();
    assert!(!analyses.is_fresh(&f));
    analyses.invalidate(changed);
    assert_eq!(analyses.cfg(&f).rpo.len(), blocks + 1);
    assert!(analyses.is_fresh(&f));
}

#[test]
fn what_looks_at_other_lanes_is_divergent() {
    for op in Opcode::EVERY {
        let d = InstData {
            op: Op::Sass(*op),
            operands: (0..op.slots().len()).map(|n| ori::default_operand(*op, n)).collect(),
            ..copy(Value::from_u32(0), zero())
        };
        let lanes = op.info().lanes;
        if matches!(lanes, Lanes::Warp | Lanes::Active | Lanes::Agreed) {
            assert!(!d.follows_operands(), "{op}");
        }
        if !matches!(lanes, Lanes::Own | Lanes::Warp) {
            assert!(!d.is_pure(), "{op}");
        }
    }
}

/// A shuffle in which all lanes read that of one, the number of which they share.
#[test]
fn what_all_lanes_read_of_one_is_uniform() {
    let text = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R = S2R SR_CTAID.X
    v2:R = SHFL.IDX PT, v0, v1, 0x1f
    v3:R = SHFL.IDX PT, v1, v0, 0x1f
    v4:R = SHFL.IDX PT, v0, v1, 0x181f
    v5:R = SHFL.BFLY PT, v0, v1, 0x1f
    v6:P = ISETP.GT.U32.AND PT, v0, 0x3, PT, PT
    v7:R = undef
    @v6 v8:R = SHFL.IDX PT, v0, v1, 0x1f keep PT v7
    exit
}
";
    let f = ori::parse::parse(text).expect("parses");
    let analyses = Analyses::default();
    let uniformity = analyses.uniformity(&f);
    let divergent: Vec<usize> =
        (0..9).filter(|v| uniformity.is_divergent(ori::Value::from_u32(*v))).map(|v| v as usize).collect();
    assert_eq!(divergent, [0, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn movm_of_a_uniform_value_is_divergent() {
    let mut f = Function::new("k", target());
    let entry = f.entry_block();
    let mut b = Builder::new(&mut f, entry);
    let block = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_CTAID_X)]);
    let sum = b.def(Opcode::IADD3, &[], &[operand(block), Operand::Imm(1), zero()]);
    let moved = b.def(Opcode::MOVM, &[Mod::_16, Mod::MT88], &[operand(sum)]);
    b.terminate(Terminator::Exit);
    let analyses = Analyses::default();
    let uniformity = analyses.uniformity(&f);
    assert!(
        !uniformity.is_divergent(block) && !uniformity.is_divergent(sum) && uniformity.is_divergent(moved)
    );
}

/// Which parameters lanes may not agree on, in blocks behind one that makes `v0`, which they do not agree on, and `v3`, on which they do.
fn divergent_params(blocks: &str) -> Vec<bool> {
    let text = format!(
        "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v1:R = S2R SR_TID.X\n    \
         v0:P = ISETP.GT.AND PT, v1, 0x7, PT, PT\n    v2:R = LDC c[0x0][0x210]\n    v3:P = ISETP.GT.AND PT, v2, 0x7, PT, PT\n    \
         v4:R = copy 0x1\n    v5:R = copy 0x2\n{blocks}}}\n"
    );
    let f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let analyses = Analyses::default();
    let uniformity = analyses.uniformity(&f);
    let params = f.layout.iter().flat_map(|b| &f.blocks[*b].params);
    params.map(|p| uniformity.is_divergent(*p)).collect()
}

#[test]
fn lanes_come_together_where_ways_from_a_branch_meet() {
    // Behind a way on which threads end, a loop all of whose lanes count alike; where all end at last does not matter.
    let counts =
        "    v7:R = IADD3 PT, PT, v6, 0x1, RZ, !PT, !PT\n    v8:P = ISETP.LT.AND PT, v7, v2, PT, PT\n";
    for start in ["block1(v4)", "block3"] {
        let text = format!(
            "    branch v0, block2, {start}\nblock3:\n    jump block1(v5)\nblock1(v6:R):\n{counts}    branch v8, block1(v7), block2\n\
             block2:\n    exit\n"
        );
        assert_eq!(divergent_params(&text), [false], "{text}");
    }
    // Two ways, one of them through a branch of all lanes.
    let ways = "    branch v0, block1, block2\nblock1:\n    branch v3, block3(v4), block4\nblock4:\n    jump block3(v5)\n\
                block3(v6:R):\n    jump block5(v6)\nblock2:\n    jump block5(v4)\nblock5(v7:R):\n    exit\n";
    assert_eq!(divergent_params(ways), [false, true]);
    // Both sides to one block.
    assert_eq!(divergent_params("    branch v0, block1(v4), block1(v5)\nblock1(v6:R):\n    exit\n"), [true]);
    // Into a loop by two doors.
    let doors = "    branch v0, block1(v4), block2(v4)\nblock1(v6:R):\n    jump block2(v5)\nblock2(v7:R):\n    branch v3, block1(v7), block3\n\
                 block3:\n    exit\n";
    assert_eq!(divergent_params(doors), [true, true]);
    // What lanes take out of a loop that they leave at different times.
    let leaves = "    jump block1(v4)\nblock1(v6:R):\n    v7:R = IADD3 PT, PT, v6, 0x1, RZ, !PT, !PT\n    \
                  v8:P = ISETP.LT.AND PT, v7, v1, PT, PT\n    branch v8, block1(v7), block2(v6)\nblock2(v9:R):\n    exit\n";
    assert_eq!(divergent_params(leaves), [true, true]);
}
