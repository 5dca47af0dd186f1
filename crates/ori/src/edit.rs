//! The edit layer: passes change a function through an [`Editor`], which knows who reads and who makes every value.
//!
//! Instructions are in linked lists while a function is edited, so that inserting and erasing take the same time
//! wherever they happen; [`Editor::finish`] writes the lists back.

use crate::analyses::Changed;
use crate::function::{
    Block, BlockCall, BlockData, Function, Inst, InstData, Name, Op, Operand, Terminator, Value,
};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Who reads a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum User {
    /// An instruction: as a source, a guard, or what it keeps.
    Inst(Inst),
    /// The terminator of a block: as a condition or an argument.
    Terminator(Block),
}

/// Who makes a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Def {
    /// Nobody (any more).
    #[default]
    None,
    /// An instruction.
    Inst(Inst),
    /// A block, as its parameter of this number.
    Param(Block, u32),
}

/// Neighbours of an instruction.
#[derive(Clone, Copy, Default)]
struct Links {
    before: PackedOption<Inst>,
    after: PackedOption<Inst>,
    block: PackedOption<Block>,
}

#[derive(Clone, Copy, Default)]
struct Ends {
    first: PackedOption<Inst>,
    last: PackedOption<Inst>,
}

/// Readers of a value. The list may name some that have ceased to be; the count is exact.
#[derive(Clone, Default)]
struct Readers {
    list: Vec<User>,
    count: u32,
}

/// Calls `f` for every value that a terminator reads, once for each place.
fn for_each_term_use(term: &Terminator, mut f: impl FnMut(Value)) {
    term.used_name().and_then(Name::value).into_iter().for_each(&mut f);
    term.targets().into_iter().flat_map(|t| t.args.iter()).for_each(|a| f(*a));
}

/// What follows a block in the layout, each with how often it had been moved when it came there.
#[derive(Default)]
struct Followers {
    /// Right behind it; the last one first.
    near: Vec<(Block, u32)>,
    /// Then these, in their order.
    far: Vec<(Block, u32)>,
}

/// A function that is being edited.
pub struct Editor<'f> {
    func: &'f mut Function,
    links: SecondaryMap<Inst, Links>,
    ends: SecondaryMap<Block, Ends>,
    readers: SecondaryMap<Value, Readers>,
    defs: SecondaryMap<Value, Def>,
    /// New and moved blocks, by the block that they follow in the layout.
    follow: FxHashMap<Block, Followers>,
    /// How often blocks were moved: where they were before, they are not any more.
    moves: FxHashMap<Block, u32>,
    changed: Changed,
}

impl<'f> Editor<'f> {
    /// Begins to edit a function in SSA.
    pub fn new(func: &'f mut Function) -> Editor<'f> {
        let mut e = Editor {
            links: SecondaryMap::with_capacity(func.insts.len()),
            ends: SecondaryMap::with_capacity(func.blocks.len()),
            readers: SecondaryMap::with_capacity(func.values.len()),
            defs: SecondaryMap::with_capacity(func.values.len()),
            follow: FxHashMap::default(),
            moves: FxHashMap::default(),
            changed: Changed::Nothing,
            func,
        };
        for b in e.func.layout.clone() {
            let insts = std::mem::take(&mut e.func.blocks[b].insts);
            insts.iter().for_each(|i| e.link_last(b, *i));
            insts.iter().for_each(|i| e.note(*i));
            e.func.blocks[b].insts = insts;
            e.number_params(b);
            e.note_term(b);
        }
        e.changed = Changed::Nothing;
        e
    }

    /// The function; the instruction lists of its blocks are those from before editing.
    pub fn func(&self) -> &Function {
        self.func
    }

    /// An instruction.
    pub fn data(&self, inst: Inst) -> &InstData {
        &self.func.insts[inst]
    }

    /// Who makes a value.
    pub fn def(&self, v: Value) -> Def {
        self.defs[v]
    }

    /// How many places read a value, whole or in part.
    pub fn use_count(&self, v: Value) -> u32 {
        self.readers[v].count
    }

    /// Who reads a value, each once, in the order in which they began to.
    pub fn users(&self, v: Value) -> Vec<User> {
        let mut seen = FxHashSet::default();
        let list = self.readers[v].list.iter().copied();
        list.filter(|u| self.reads(*u, v) && seen.insert(*u)).collect()
    }

    /// The block that an instruction is in; `None` if it is in none (any more).
    pub fn block_of(&self, inst: Inst) -> Option<Block> {
        self.links[inst].block.expand()
    }

    /// The first instruction of a block.
    pub fn first(&self, b: Block) -> Option<Inst> {
        self.ends[b].first.expand()
    }

    /// The last instruction of a block.
    pub fn last(&self, b: Block) -> Option<Inst> {
        self.ends[b].last.expand()
    }

    /// The instruction behind one.
    pub fn next(&self, inst: Inst) -> Option<Inst> {
        self.links[inst].after.expand()
    }

    /// The instruction in front of one.
    pub fn previous(&self, inst: Inst) -> Option<Inst> {
        self.links[inst].before.expand()
    }

    /// The instructions of a block, in order.
    pub fn insts(&self, b: Block) -> impl Iterator<Item = Inst> + '_ {
        std::iter::successors(self.first(b), |i| self.next(*i))
    }

    /// Makes a value.
    pub fn add_value(&mut self, file: sass::RegFile, width: u8) -> Value {
        self.func.add_value(file, width)
    }

    /// Gives a block another parameter, of the shape of a value. Ways to the block must get an argument for it.
    pub fn add_param(&mut self, b: Block, like: Value) -> Value {
        let shape = self.func.values[like];
        let p = self.func.add_value(shape.file, shape.width);
        self.func.blocks[b].params.push(p);
        self.number_params(b);
        self.mark(Changed::Graph);
        p
    }

    /// Puts a new instruction in front of another.
    pub fn insert_before(&mut self, at: Inst, data: InstData) -> Inst {
        debug_assert!(self.block_of(at).is_some(), "{at} is in no block");
        let inst = self.func.insts.push(data);
        let Links { before, block, .. } = self.links[at];
        self.links[inst] = Links { before, after: at.into(), block };
        self.links[at].before = inst.into();
        match (before.expand(), block.expand()) {
            (Some(p), _) => self.links[p].after = inst.into(),
            (None, Some(b)) => self.ends[b].first = inst.into(),
            (None, None) => {}
        }
        self.note(inst);
        inst
    }

    /// Puts a new instruction behind another.
    pub fn insert_after(&mut self, at: Inst, data: InstData) -> Inst {
        match (self.next(at), self.block_of(at)) {
            (Some(next), _) => self.insert_before(next, data),
            (None, Some(b)) => self.append(b, data),
            (None, None) => self.func.insts.push(data),
        }
    }

    /// Puts a new instruction at the end of a block.
    pub fn append(&mut self, b: Block, data: InstData) -> Inst {
        let inst = self.func.insts.push(data);
        self.link_last(b, inst);
        self.note(inst);
        inst
    }

    /// Changes an instruction in its place.
    pub fn change(&mut self, inst: Inst, f: impl FnOnce(&mut InstData)) {
        assert!(self.block_of(inst).is_some(), "{inst} is in no block (any more)");
        let mut released = self.forget(inst);
        f(&mut self.func.insts[inst]);
        self.note(inst);
        released.retain(|v| self.readers[*v].count == 0);
        self.collect_dead(released);
    }

    /// Has every reader of `old` read `new` instead, which has the same shape.
    pub fn replace_all_uses(&mut self, old: Value, new: Value) {
        debug_assert_eq!(self.func.values[old], self.func.values[new], "shapes of {old} and {new}");
        if old == new {
            return;
        }
        let swap = |n: Name| match n {
            Name::Val(v) if v == old => Name::Val(new),
            Name::Part(v, i) if v == old => Name::Part(new, i),
            other => other,
        };
        let users = self.users(old);
        for user in &users {
            match *user {
                User::Inst(i) => self.func.insts[i].map_uses(swap),
                User::Terminator(b) => {
                    let term = &mut self.func.blocks[b].term;
                    if let Some(n) = term.used_name_mut() {
                        *n = swap(*n);
                    }
                    for t in term.targets_mut() {
                        t.args.iter_mut().filter(|a| **a == old).for_each(|a| *a = new);
                    }
                }
            }
        }
        let count = std::mem::take(&mut self.readers[old]).count;
        self.readers[new].list.extend(users);
        self.readers[new].count += count;
        self.mark(if count == 0 { Changed::Nothing } else { Changed::Instructions });
    }

    /// Has every reader of the predicate `old` read the complement of `new` instead, if all of them can.
    pub fn replace_all_uses_with_complement(&mut self, old: Value, new: Value) -> bool {
        use sass::Opcode::*;
        let users = self.users(old);
        let complements = |user: &User| match *user {
            User::Inst(i) => {
                let d = &self.func.insts[i];
                let mut operands = 0;
                for o in &d.operands {
                    operands += usize::from(matches!(o, Operand::Reg(r) if r.reg == Name::Val(old)));
                }
                let guards = usize::from(d.guard.pred == Name::Val(old));
                let mut uses = 0;
                d.for_each_use(|n| uses += usize::from(n.value() == Some(old)));
                // Predicates that these read may be complemented; what is kept may not, nor what a comparison of upper words goes on
                // from, which ptxas was not seen to complement.
                let op = matches!(d.op, Op::Sass(SEL | FSEL | ISETP | FSETP | DSETP | PLOP3 | VOTE))
                    && !d.mods.has(sass::Mod::EX);
                uses == guards + operands && (operands == 0 || op)
            }
            User::Terminator(b) => {
                let term = &self.func.blocks[b].term;
                let passed = term.targets().iter().any(|t| t.args.contains(&old));
                !passed && matches!(term, Terminator::Branch { .. })
            }
        };
        if !users.iter().all(complements) {
            return false;
        }
        for user in &users {
            match *user {
                User::Inst(i) => {
                    let d = &mut self.func.insts[i];
                    if d.guard.pred == Name::Val(old) {
                        d.guard.not = !d.guard.not;
                    }
                    for k in 0..d.operands.len() {
                        if let (false, Operand::Reg(r)) = (d.is_def(k), &mut d.operands[k])
                            && r.reg == Name::Val(old)
                        {
                            r.not = !r.not;
                        }
                    }
                }
                User::Terminator(b) => {
                    if let Terminator::Branch { not, .. } = &mut self.func.blocks[b].term {
                        *not = !*not;
                    }
                }
            }
        }
        self.replace_all_uses(old, new);
        true
    }

    /// Moves an instruction to the end of a block.
    pub fn move_to_end(&mut self, inst: Inst, b: Block) {
        let links = std::mem::take(&mut self.links[inst]);
        self.take_out(links);
        self.link_last(b, inst);
        self.mark(Changed::Instructions);
    }

    /// Erases an instruction, and what is dead then: computations and loads whose results nobody reads any more.
    pub fn erase(&mut self, inst: Inst) {
        let released = self.unlink(inst);
        self.collect_dead(released);
    }

    /// Whether an instruction could go without being missed.
    pub fn is_dead(&self, inst: Inst) -> bool {
        let d = &self.func.insts[inst];
        let mut read = false;
        d.for_each_def(|n| match n {
            Name::Val(v) | Name::Part(v, _) => read |= self.readers[v].count != 0,
            Name::Phys(r) => read |= !r.is_zero(),
        });
        !read && (d.is_pure() || d.is_removable())
    }

    /// Gives a block another terminator.
    pub fn set_terminator(&mut self, b: Block, term: Terminator) {
        let mut released = self.forget_term(b);
        self.func.blocks[b].term = term;
        self.note_term(b);
        self.mark(Changed::Graph);
        released.retain(|v| self.readers[*v].count == 0);
        self.collect_dead(released);
    }

    /// Adds a block without instructions, which follows `after` in the layout.
    pub fn add_block_after(&mut self, after: Block) -> Block {
        let loc = self.func.blocks[after].term_loc;
        let b = self.func.blocks.push(BlockData {
            params: SmallVec::new(),
            insts: Vec::new(),
            term: Terminator::Unreachable,
            term_loc: loc,
            rolled: false,
        });
        self.follow.entry(after).or_default().far.push((b, 0));
        self.mark(Changed::Graph);
        b
    }

    /// Has a block follow another in the layout, right behind it.
    pub fn move_block_after(&mut self, b: Block, after: Block) {
        let moves = self.moves.entry(b).or_default();
        *moves += 1;
        self.follow.entry(after).or_default().near.push((b, *moves));
        self.mark(Changed::Graph);
    }

    /// Gives the parameters of a block to another, behind its own. Ways to both must be made to fit.
    pub fn move_params(&mut self, from: Block, to: Block) {
        let params = std::mem::take(&mut self.func.blocks[from].params);
        self.func.blocks[to].params.extend(params);
        self.number_params(to);
        self.mark(Changed::Graph);
    }

    /// Puts a block on the `nth` edge out of `b`; it hands on the arguments.
    pub fn split_edge(&mut self, b: Block, nth: usize) -> Block {
        let between = self.add_block_after(b);
        let mut term = self.func.blocks[b].term.clone();
        let mut targets = term.targets_mut();
        let edge = std::mem::replace(&mut *targets[nth], BlockCall { block: between, args: SmallVec::new() });
        drop(targets);
        // First the new reader, so that the arguments do not die.
        self.set_terminator(between, Terminator::Jump(edge));
        self.set_terminator(b, term);
        between
    }

    /// Splits a block: `inst` and all behind it, with the terminator, become a new block, to which the rest jumps.
    pub fn split_before(&mut self, inst: Inst) -> Option<Block> {
        let b = self.block_of(inst)?;
        let rest = self.add_block_after(b);
        let before = self.links[inst].before;
        self.ends[rest] = Ends { first: inst.into(), last: self.ends[b].last };
        self.ends[b].last = before;
        match before.expand() {
            Some(p) => self.links[p].after = None.into(),
            None => self.ends[b].first = None.into(),
        }
        self.links[inst].before = None.into();
        let moved: Vec<Inst> = self.insts(rest).collect();
        moved.iter().for_each(|i| self.links[*i].block = rest.into());
        let term = self.func.blocks[b].term.clone();
        self.set_terminator(rest, term);
        self.set_terminator(b, Terminator::Jump(BlockCall { block: rest, args: SmallVec::new() }));
        Some(rest)
    }

    /// Copies blocks with all that is in them, behind the last one. Edges within the region lead to the copies, edges out
    /// of it lead where they led. What the region makes must leave it as arguments of blocks alone.
    pub fn clone_region(&mut self, region: &[Block]) -> Clones {
        let mut clones = Clones::default();
        let Some(last) = region.last().copied() else { return clones };
        for &b in region {
            let copy = self.add_block_after(last);
            clones.blocks.insert(b, copy);
            for p in self.func.blocks[b].params.clone() {
                let shape = self.func.values[p];
                let v = self.func.add_value(shape.file, shape.width);
                clones.values.insert(p, v);
                self.func.blocks[copy].params.push(v);
            }
            self.number_params(copy);
            for i in self.insts(b).collect::<Vec<_>>() {
                let mut made: SmallVec<[Value; 2]> = SmallVec::new();
                self.func.insts[i].for_each_def(|n| made.extend(n.value()));
                for v in made {
                    let shape = self.func.values[v];
                    let new = self.func.add_value(shape.file, shape.width);
                    clones.values.insert(v, new);
                }
            }
        }
        for &b in region {
            let copy = clones.blocks[&b];
            for i in self.insts(b).collect::<Vec<_>>() {
                let mut data = self.func.insts[i].clone();
                data.map_names(|n| clones.name(n));
                for o in &mut data.operands {
                    if let sass::Operand::Label(l) = o {
                        *l = clones.blocks.get(l).copied().unwrap_or(*l);
                    }
                }
                self.append(copy, data);
            }
            let mut term = self.func.blocks[b].term.clone();
            if let Some(n) = term.used_name_mut() {
                *n = clones.name(*n);
            }
            for t in term.targets_mut() {
                t.block = clones.blocks.get(&t.block).copied().unwrap_or(t.block);
                t.args.iter_mut().for_each(|a| *a = clones.value(*a));
            }
            self.func.blocks[copy].term_loc = self.func.blocks[b].term_loc;
            self.set_terminator(copy, term);
        }
        clones
    }

    /// Ends editing; says what has changed.
    pub fn finish(self) -> Changed {
        let Editor { func, links, ends, mut follow, moves, changed, .. } = self;
        if changed == Changed::Nothing {
            return changed;
        }
        let mut layout = Vec::with_capacity(func.blocks.len());
        let mut open: Vec<(Block, u32)> = func.layout.iter().rev().map(|b| (*b, 0)).collect();
        while let Some((b, moved)) = open.pop() {
            if moves.get(&b).copied().unwrap_or_default() != moved {
                continue;
            }
            layout.push(b);
            if let Some(Followers { near, far }) = follow.remove(&b) {
                open.extend(far.into_iter().rev());
                open.extend(near);
            }
        }
        for &b in &layout {
            let list = std::iter::successors(ends[b].first.expand(), |i| links[*i].after.expand());
            func.blocks[b].insts = list.collect();
        }
        func.layout = layout;
        changed
    }

    fn mark(&mut self, changed: Changed) {
        self.changed = self.changed.max(changed);
    }

    fn link_last(&mut self, b: Block, inst: Inst) {
        let last = self.ends[b].last;
        self.links[inst] = Links { before: last, after: None.into(), block: b.into() };
        match last.expand() {
            Some(l) => self.links[l].after = inst.into(),
            None => self.ends[b].first = inst.into(),
        }
        self.ends[b].last = inst.into();
    }

    fn number_params(&mut self, b: Block) {
        for (n, p) in self.func.blocks[b].params.iter().enumerate() {
            self.defs[*p] = Def::Param(b, n as u32);
        }
    }

    /// Whether a user reads a value now.
    fn reads(&self, user: User, v: Value) -> bool {
        let mut found = false;
        match user {
            User::Inst(i) if self.links[i].block.is_some() => {
                self.func.insts[i].for_each_use(|n| found |= n.value() == Some(v));
            }
            User::Inst(_) => {}
            User::Terminator(b) => for_each_term_use(&self.func.blocks[b].term, |u| found |= u == v),
        }
        found
    }

    /// Notes what an instruction reads and makes.
    fn note(&mut self, inst: Inst) {
        let Editor { func, readers, defs, .. } = self;
        let mut add = |v: Value| {
            let r = &mut readers[v];
            r.count += 1;
            if r.list.last() != Some(&User::Inst(inst)) {
                r.list.push(User::Inst(inst));
            }
        };
        func.insts[inst].for_each_use(|n| n.value().into_iter().for_each(&mut add));
        func.insts[inst].for_each_def(|n| n.value().into_iter().for_each(|v| defs[v] = Def::Inst(inst)));
        self.mark(Changed::Instructions);
    }

    fn note_term(&mut self, b: Block) {
        let Editor { func, readers, .. } = self;
        for_each_term_use(&func.blocks[b].term, |v| {
            readers[v].count += 1;
            readers[v].list.push(User::Terminator(b));
        });
    }

    /// Takes back what an instruction reads and makes; the values that it read.
    fn forget(&mut self, inst: Inst) -> Vec<Value> {
        let Editor { func, readers, defs, .. } = self;
        let mut released = Vec::new();
        func.insts[inst].for_each_use(|n| {
            if let Some(v) = n.value() {
                readers[v].count -= 1;
                released.push(v);
            }
        });
        func.insts[inst].for_each_def(|n| n.value().into_iter().for_each(|v| defs[v] = Def::None));
        self.mark(Changed::Instructions);
        released
    }

    fn forget_term(&mut self, b: Block) -> Vec<Value> {
        let Editor { func, readers, .. } = self;
        let mut released = Vec::new();
        for_each_term_use(&func.blocks[b].term, |v| {
            readers[v].count -= 1;
            released.push(v);
        });
        released
    }

    /// Takes an instruction out of its block; the values that it read.
    fn unlink(&mut self, inst: Inst) -> Vec<Value> {
        let links = std::mem::take(&mut self.links[inst]);
        if !self.take_out(links) {
            return Vec::new();
        }
        self.forget(inst)
    }

    /// Joins what was before and behind an instruction; whether it was in a block.
    fn take_out(&mut self, links: Links) -> bool {
        let Links { before, after, block } = links;
        let Some(b) = block.expand() else { return false };
        match before.expand() {
            Some(p) => self.links[p].after = after,
            None => self.ends[b].first = after,
        }
        match after.expand() {
            Some(n) => self.links[n].before = before,
            None => self.ends[b].last = before,
        }
        true
    }

    /// Erases what made these values and is dead.
    fn collect_dead(&mut self, mut work: Vec<Value>) {
        while let Some(v) = work.pop() {
            if self.readers[v].count == 0
                && let Def::Inst(i) = self.defs[v]
                && self.is_dead(i)
            {
                work.extend(self.unlink(i));
            }
        }
    }
}

/// What became of the blocks and values of a region that was copied.
#[derive(Clone, Default, Debug)]
pub struct Clones {
    /// Copies of blocks.
    pub blocks: FxHashMap<Block, Block>,
    /// Copies of values.
    pub values: FxHashMap<Value, Value>,
}

impl Clones {
    /// The copy of a value, or itself where it comes from outside.
    pub fn value(&self, v: Value) -> Value {
        self.values.get(&v).copied().unwrap_or(v)
    }

    /// The copy of a name, or itself where it comes from outside.
    pub fn name(&self, n: Name) -> Name {
        match n {
            Name::Val(v) => Name::Val(self.value(v)),
            Name::Part(v, i) => Name::Part(self.value(v), i),
            Name::Phys(_) => n,
        }
    }
}

/// Numbers instructions and values anew, in the order that they have, without those that are in no block: what passes have taken out need
/// not be copied and counted by those that come. Blocks stay as they are, those in no layout empty.
pub fn compact(func: &mut Function) {
    let old = std::mem::take(&mut func.blocks);
    let mut laid_out: SecondaryMap<Block, bool> = SecondaryMap::new();
    func.layout.iter().for_each(|b| laid_out[*b] = true);
    let mut kept: SecondaryMap<Inst, PackedOption<Inst>> = SecondaryMap::with_capacity(func.insts.len());
    let mut named: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::with_capacity(func.values.len());
    for data in old.iter().filter(|(b, _)| laid_out[*b]).map(|(_, data)| data) {
        let mut name = |n: Name| n.value().into_iter().for_each(|v| named[v] = v.into());
        for &i in &data.insts {
            kept[i] = i.into();
            func.insts[i].for_each_def(&mut name);
            func.insts[i].for_each_use(&mut name);
        }
        data.term.used_name().into_iter().for_each(&mut name);
        let passed = data.term.targets().into_iter().flat_map(|t| t.args.iter());
        data.params.iter().chain(passed).for_each(|v| name((*v).into()));
    }
    for (v, data) in std::mem::take(&mut func.values) {
        if named[v].is_some() {
            named[v] = func.values.push(data).into();
        }
    }
    let value = |v: Value| named[v].expand().unwrap_or(v);
    let name = |n: Name| match n {
        Name::Val(v) => Name::Val(value(v)),
        Name::Part(v, k) => Name::Part(value(v), k),
        Name::Phys(_) => n,
    };
    for (i, mut data) in std::mem::take(&mut func.insts) {
        if kept[i].is_some() {
            data.map_names(name);
            kept[i] = func.insts.push(data).into();
        }
    }
    for (b, mut data) in old {
        if laid_out[b] {
            data.insts.iter_mut().for_each(|i| *i = kept[*i].expand().unwrap_or(*i));
            data.params.iter_mut().for_each(|p| *p = value(*p));
            data.term.used_name_mut().into_iter().for_each(|n| *n = name(*n));
            data.term.targets_mut().into_iter().flat_map(|t| &mut t.args).for_each(|a| *a = value(*a));
        } else {
            data = BlockData {
                term: Terminator::Unreachable,
                params: SmallVec::new(),
                insts: Vec::new(),
                ..data
            };
        }
        func.blocks.push(data);
    }
}

/// Numbers blocks, instructions and values anew, in the order of the layout, without those that are in no block.
pub fn renumber(func: &mut Function) {
    let mut blocks: SecondaryMap<Block, PackedOption<Block>> = SecondaryMap::new();
    func.layout.iter().enumerate().for_each(|(n, b)| blocks[*b] = Block::new(n).into());
    let block = |b: Block| blocks[b].expand().unwrap_or(b);
    let old = std::mem::take(&mut func.values);
    let mut insts: Vec<Option<InstData>> =
        std::mem::take(&mut func.insts).into_iter().map(|i| Some(i.1)).collect();
    let mut bodies: Vec<Option<BlockData>> =
        std::mem::take(&mut func.blocks).into_iter().map(|b| Some(b.1)).collect();
    let mut numbers: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
    let values = &mut func.values;
    let mut value = |v: Value| match numbers[v].expand() {
        Some(n) => n,
        None => {
            let n = values.push(old[v]);
            numbers[v] = n.into();
            n
        }
    };
    let mut name = |n: Name| match n {
        Name::Val(v) => Name::Val(value(v)),
        Name::Part(v, i) => Name::Part(value(v), i),
        Name::Phys(_) => n,
    };
    let whole = |n: Name, v: Value| n.value().unwrap_or(v);
    let layout = std::mem::take(&mut func.layout);
    for b in &layout {
        let Some(mut data) = bodies[b.index()].take() else { continue };
        data.params.iter_mut().for_each(|p| *p = whole(name(Name::Val(*p)), *p));
        for i in &mut data.insts {
            let Some(mut d) = insts[i.index()].take() else { continue };
            d.map_names(&mut name);
            for o in &mut d.operands {
                if let sass::Operand::Label(l) = o {
                    *l = block(*l);
                }
            }
            *i = func.insts.push(d);
        }
        if let Some(n) = data.term.used_name_mut() {
            *n = name(*n);
        }
        for t in data.term.targets_mut() {
            t.block = block(t.block);
            t.args.iter_mut().for_each(|a| *a = whole(name(Name::Val(*a)), *a));
        }
        func.blocks.push(data);
    }
    func.layout = (0..layout.len()).map(Block::new).collect();
}
