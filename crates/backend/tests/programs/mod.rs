//! Random SSA programs.

use backend::regalloc::Limits;
use cranelift_entity::EntityRef;
use ori::cfg::{Cfg, DomTree};
use ori::{
    Block, BlockCall, Builder, Function, Guard, Inst, InstData, Macro, Name, Op, Operand, Terminator, Value,
    default_operand, operand,
};
use sass::{AddrWidth, Mod, Mods, Opcode, Reg, RegFile, Role, SlotKind, Target};
use thin_vec::ThinVec;

/// A small generator of choices (xorshift64*), so that a program is a function of its seed.
pub struct Rng(u64);

impl Rng {
    /// Of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// A number below another.
    pub fn below(&mut self, n: usize) -> usize {
        (self.number() >> 33) as usize % n.max(1)
    }
    /// Whether it happens, in so many of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

struct Generator {
    rng: Rng,
    func: Function,
    /// Values that can be read at the end of each block.
    available: Vec<Vec<Value>>,
    /// Prefer values defined long ago: makes long live ranges.
    far: usize,
    /// Of a hundred parameters and copies, so many are predicates.
    predicates: usize,
    /// Of a hundred predicates, so many are uniform.
    uniform: usize,
}

const SHAPES: [(RegFile, u8); 7] = [
    (RegFile::R, 1),
    (RegFile::R, 1),
    (RegFile::R, 2),
    (RegFile::R, 3),
    (RegFile::R, 4),
    (RegFile::P, 1),
    (RegFile::UR, 2),
];

impl Generator {
    fn shape(&mut self) -> (RegFile, u8) {
        if self.predicates > 0 && self.rng.chance(self.predicates) {
            (self.predicate(), 1)
        } else {
            SHAPES[self.rng.below(SHAPES.len())]
        }
    }

    fn predicate(&mut self) -> RegFile {
        if self.uniform > 0 && self.rng.chance(self.uniform) { RegFile::UP } else { RegFile::P }
    }

    fn pick(&mut self, b: Block, file: RegFile, width: u8) -> Option<Value> {
        let fits = |v: &&Value| {
            let d = self.func.values[**v];
            d.file == file && d.width == width
        };
        let found: Vec<Value> = self.available[b.index()].iter().filter(fits).copied().collect();
        if found.is_empty() {
            return None;
        }
        let n = found.len();
        let k = if self.rng.chance(self.far) { self.rng.below(n) } else { n - 1 - self.rng.below(n.min(4)) };
        Some(found[k])
    }

    /// A value of this shape, made on the spot if there is none.
    fn value(&mut self, b: Block, file: RegFile, width: u8) -> Value {
        if let Some(v) = self.pick(b, file, width) {
            return v;
        }
        let mut c = Builder::new(&mut self.func, b);
        let v = if self.rng.chance(30) {
            c.def_macro(Macro::Undef, file, width, &[])
        } else if width == 1 {
            c.def_macro(Macro::Copy, file, 1, &[Operand::Imm(1)])
        } else {
            let words: Vec<Operand> = (0..u32::from(width)).map(Operand::Imm).collect();
            c.def_macro(Macro::Collect, file, width, &words)
        };
        self.available[b.index()].push(v);
        v
    }

    /// One register of some value.
    fn word(&mut self, b: Block) -> Operand {
        match self.rng.below(8) {
            0 => Operand::Imm(self.rng.below(100) as u32),
            1 => Operand::constant(0, 0x210 + 4 * self.rng.below(8) as i32),
            n @ 2..=4 => {
                let width = n as u8;
                match self.pick(b, RegFile::R, width) {
                    Some(v) => operand(Name::Part(v, self.rng.below(n) as u8)),
                    None => operand(self.value(b, RegFile::R, 1)),
                }
            }
            _ => operand(self.value(b, RegFile::R, 1)),
        }
    }

    fn register_word(&mut self, b: Block) -> Operand {
        loop {
            let o = self.word(b);
            if o.as_reg().is_some() {
                return o;
            }
        }
    }

    /// Appends an instruction whose results are new values; sources are given in slot order.
    fn inst(&mut self, b: Block, op: Opcode, mods: &[Mod], sources: &[Operand]) -> Inst {
        let mods = Mods::of(mods);
        let guarded = self.rng.chance(25);
        let guard = if guarded {
            Guard { pred: self.value(b, RegFile::P, 1).into(), not: self.rng.chance(50) }
        } else {
            ori::ALWAYS
        };
        let mut sources = sources.iter().cloned();
        let (mut operands, mut kept, mut made) = (ThinVec::new(), ThinVec::new(), Vec::new());
        for (k, slot) in op.slots().iter().enumerate() {
            let SlotKind::Reg(file) = slot.kind else {
                operands.push(sources.next().unwrap_or_else(|| default_operand(op, k)));
                continue;
            };
            if slot.role != Role::Def {
                operands.push(sources.next().unwrap_or_else(|| default_operand(op, k)));
            } else if matches!(file, RegFile::P | RegFile::UP) && op != Opcode::ISETP && self.rng.chance(80) {
                operands.push(default_operand(op, k));
                kept.push(Name::Phys(Reg::PT));
            } else {
                let width = op.width(k, &mods);
                kept.push(Name::Val(self.value(b, file, width)));
                let v = self.func.add_value(file, width);
                made.push(v);
                operands.push(operand(v));
            }
        }
        if !guarded {
            kept.clear();
        }
        let loc = ori::Loc::default();
        let inst = self.func.insts.push(InstData { guard, op: Op::Sass(op), mods, operands, kept, loc });
        self.func.blocks[b].insts.push(inst);
        self.available[b.index()].extend(made);
        inst
    }

    fn address(&mut self, b: Block) -> Operand {
        let base = Some(self.value(b, RegFile::R, 2).into());
        let desc = Some(self.value(b, RegFile::UR, 2).into());
        Operand::Addr { desc, base, width: AddrWidth::R64, uniform: None, offset: 0 }
    }

    fn step(&mut self, b: Block) {
        match self.rng.below(14) {
            0..=2 => {
                let sources = [self.register_word(b), self.word(b), self.register_word(b)];
                self.inst(b, Opcode::IADD3, &[], &sources);
            }
            3 => {
                let sources = [self.register_word(b), self.word(b), operand(self.value(b, RegFile::R, 2))];
                self.inst(b, Opcode::IMAD, &[Mod::WIDE], &sources);
            }
            4 => {
                let width = [None, Some(Mod::_64), Some(Mod::_128)][self.rng.below(3)];
                let address = self.address(b);
                let mods: Vec<Mod> = [Mod::E].into_iter().chain(width).collect();
                self.inst(b, Opcode::LDG, &mods, &[address]);
            }
            5 => {
                let sources = [self.register_word(b), self.word(b)];
                self.inst(b, Opcode::ISETP, &[Mod::GE, Mod::AND], &sources);
            }
            6 => {
                let sources = [self.register_word(b), self.word(b), operand(self.value(b, RegFile::P, 1))];
                self.inst(b, Opcode::SEL, &[], &sources);
            }
            7 => {
                let n = 2 + self.rng.below(3) as u8;
                let mut words = Vec::new();
                let mut left = n;
                while left > 0 {
                    if left >= 2 && self.rng.chance(30) {
                        words.push(operand(self.value(b, RegFile::R, 2)));
                        left -= 2;
                    } else {
                        words.push(self.word(b));
                        left -= 1;
                    }
                }
                self.define(b, Macro::Collect, RegFile::R, n, &words);
            }
            8 => {
                let (file, width) = self.shape();
                let source = operand(self.value(b, file, width));
                self.define(b, Macro::Copy, file, width, &[source]);
            }
            9 => {
                let file = self.predicate();
                let p = operand(self.value(b, file, 1));
                let to = if file == RegFile::UP { RegFile::P } else { RegFile::R };
                self.define(b, Macro::Copy, to, 1, &[p]);
            }
            10 => match self.predicate() {
                RegFile::UP => {
                    let p = operand(self.value(b, RegFile::P, 1));
                    self.define(b, Macro::Copy, RegFile::UP, 1, &[p]);
                }
                file => {
                    let r = self.register_word(b);
                    self.define(b, Macro::Copy, file, 1, &[r]);
                }
            },
            11 => {
                let c = Operand::constant(0, 8 * self.rng.below(9) as i32);
                self.inst(b, Opcode::ULDC, &[Mod::_64], &[c]);
            }
            12 => {
                let (source, address) = (operand(self.value(b, RegFile::R, 4)), self.address(b));
                self.inst(b, Opcode::STG, &[Mod::E, Mod::_128], &[address, source]);
            }
            _ => {
                let word = self.register_word(b);
                let file = if self.rng.chance(20) { RegFile::UR } else { RegFile::R };
                self.define(b, Macro::Copy, file, 1, &[word]);
            }
        }
    }

    fn define(&mut self, b: Block, m: Macro, file: RegFile, width: u8, sources: &[Operand]) {
        let guarded = self.rng.chance(15) && file == RegFile::R;
        let guard = guarded.then(|| Guard { pred: self.value(b, RegFile::P, 1).into(), not: false });
        let kept = self.value(b, file, width);
        let v = Builder::new(&mut self.func, b).def_macro(m, file, width, sources);
        if let Some(guard) = guard {
            let i = *self.func.blocks[b].insts.last().unwrap();
            self.func.insts[i].guard = guard;
            self.func.insts[i].kept.push(kept.into());
        }
        self.available[b.index()].push(v);
    }
}

/// A random program of about `blocks` blocks and `steps` instructions in each.
pub fn program(seed: u64, blocks: usize, steps: usize, far: usize) -> Function {
    program_with(seed, blocks, steps, far, 0, 0)
}

/// The same with so many predicates, of a hundred parameters and copies, of a hundred of which so many are uniform.
pub fn program_with(
    seed: u64,
    blocks: usize,
    steps: usize,
    far: usize,
    predicates: usize,
    uniform: usize,
) -> Function {
    let func = Function::new("random", Target::new(90).unwrap());
    let rng = Rng::new(seed);
    let mut g = Generator { rng, func, available: Vec::new(), far, predicates, uniform };
    let all: Vec<Block> =
        (0..blocks).map(|k| if k == 0 { g.func.entry_block() } else { g.func.add_block() }).collect();
    for (k, &b) in all.iter().enumerate() {
        let any = |g: &mut Generator| {
            // Mostly forward; never to the entry, whose values nothing else defines.
            let near = if g.rng.chance(70) { k + 1 + g.rng.below(3) } else { 1 + g.rng.below(blocks) };
            BlockCall { block: all[near.clamp(1, blocks - 1)], args: Default::default() }
        };
        g.func.blocks[b].term = if k + 1 == blocks {
            Terminator::Exit
        } else if g.rng.chance(60) {
            let pt = Name::Phys(Reg::PT);
            let (taken, fall) = (any(&mut g), any(&mut g));
            Terminator::Branch { cond: pt, not: g.rng.chance(50), taken, fall }
        } else {
            let next = BlockCall { block: all[k + 1], args: Default::default() };
            Terminator::Jump(next)
        };
    }
    let cfg = Cfg::new(&g.func);
    g.func.layout.retain(|b| cfg.is_reachable(*b));
    let dom = DomTree::dominators(&cfg);
    g.available = vec![Vec::new(); blocks];
    for &b in &cfg.rpo {
        if let Some(d) = dom.idom(b) {
            g.available[b.index()] = g.available[d.index()].clone();
            let most = if predicates > 0 { 24 } else { 6 };
            for _ in 0..g.rng.below(most) {
                let (file, width) = g.shape();
                let v = g.func.add_value(file, width);
                g.func.blocks[b].params.push(v);
                g.available[b.index()].push(v);
            }
        }
        for _ in 0..g.rng.below(steps + 1) {
            g.step(b);
        }
    }
    for &b in &cfg.rpo {
        let mut term = g.func.blocks[b].term.clone();
        for t in term.targets_mut() {
            for p in g.func.blocks[t.block].params.clone() {
                let d = g.func.values[p];
                let a = g.value(b, d.file, d.width);
                t.args.push(a);
            }
        }
        if let Terminator::Branch { cond, .. } = &mut term {
            *cond = g.value(b, RegFile::P, 1).into();
        }
        if matches!(term, Terminator::Exit) {
            for v in g.available[b.index()].clone() {
                if g.func.values[v].file == RegFile::R && g.func.values[v].width == 1 && g.rng.chance(50) {
                    let address = g.address(b);
                    g.inst(b, Opcode::STG, &[Mod::E], &[address, operand(v)]);
                }
            }
        }
        g.func.blocks[b].term = term;
    }
    g.func
}

/// Limits that make allocations spill.
pub fn tight() -> Limits {
    Limits {
        regs_r: 24,
        uregs: 10,
        preds: 7,
        upreds: 7,
        barriers: 16,
        frame_pointer: false,
        barriers_ready: false,
        convention: ori::abi::Convention::default(),
        spills: true,
        check: true,
    }
}
