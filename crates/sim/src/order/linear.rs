//! What the registers of PTX hold, as far as addresses need it: sums of numbered unknowns and a constant. Two values
//! with the same sum are the same.

use ::ptx::ast::{Addr, AddrBase, Body, Inst, Operand, RegId, Stmt, VarId, VectorElem};
use ::ptx::{Mod, Module, Op, Type};
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// `constant + Σ factor · unknown`, modulo 2³² or 2⁶⁴.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Linear {
    /// Unknowns in ascending order, with factors other than 0.
    pub terms: SmallVec<[(u32, i64); 2]>,
    /// The constant.
    pub constant: i64,
}

impl Linear {
    fn number(n: i64) -> Linear {
        Linear { terms: SmallVec::new(), constant: n }
    }

    fn unknown(n: u32) -> Linear {
        Linear { terms: SmallVec::from_slice(&[(n, 1)]), constant: 0 }
    }

    /// `self + factor · other`.
    #[must_use]
    pub fn plus(&self, other: &Linear, factor: i64) -> Linear {
        let mut terms = self.terms.clone();
        for (t, n) in &other.terms {
            let n = n.wrapping_mul(factor);
            match terms.iter_mut().find(|x| x.0 == *t) {
                Some(x) => x.1 = x.1.wrapping_add(n),
                None => terms.push((*t, n)),
            }
        }
        terms.retain(|t| t.1 != 0);
        terms.sort_unstable();
        Linear { terms, constant: self.constant.wrapping_add(other.constant.wrapping_mul(factor)) }
    }

    /// Its value in a register of 32 bits: factors and constant are not larger than that.
    fn narrowed(mut self) -> Linear {
        for t in &mut self.terms {
            t.1 = i64::from(t.1 as i32);
        }
        self.terms.retain(|t| t.1 != 0);
        self.constant = i64::from(self.constant as i32);
        self
    }

    fn as_number(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }
}

/// What makes two unknowns the same.
type Key = Vec<u64>;

/// Values while a function is read.
pub struct Values<'m> {
    module: &'m Module,
    numbers: FxHashMap<Key, u32>,
    /// Which unknowns are addresses of variables.
    variables: FxHashMap<u32, VarId>,
    next: u32,
    /// Registers with one definition keep their value everywhere.
    fixed: SecondaryMap<RegId, Option<Linear>>,
    definitions: SecondaryMap<RegId, u32>,
    /// What the others hold at this point of the block.
    here: FxHashMap<RegId, Linear>,
    /// The unknowns that they held where the block began.
    entered: FxHashMap<RegId, u32>,
    /// How often the block defines each, up to here.
    made: FxHashMap<RegId, u32>,
    /// What those hold that one block alone defines, once, behind it.
    kept: FxHashMap<RegId, Linear>,
}

/// What registers with several definitions hold where a block ends.
pub type Left = FxHashMap<RegId, Linear>;

/// Whether what an instruction gives depends on its operands only.
fn is_pure(inst: &Inst) -> bool {
    use Op::*;
    matches!(
        inst.op,
        mov | add
            | sub
            | mul
            | mad
            | mul24
            | mad24
            | shl
            | shr
            | and
            | or
            | xor
            | not
            | cvt
            | cvta
            | selp
            | setp
            | min
            | max
            | div
            | rem
            | neg
            | abs
            | prmt
            | lop3
            | shf
            | bfe
            | bfi
            | popc
            | clz
            | mapa
    )
}

impl<'m> Values<'m> {
    /// Before the first statement.
    pub fn new(module: &'m Module, body: &Body) -> Values<'m> {
        let mut definitions: SecondaryMap<RegId, u32> = SecondaryMap::new();
        for s in &body.stmts {
            if let Stmt::Inst(i) = s {
                written(i).for_each(|r| definitions[r] += 1);
            }
        }
        Values {
            module,
            numbers: FxHashMap::default(),
            variables: FxHashMap::default(),
            next: 0,
            fixed: SecondaryMap::new(),
            definitions,
            here: FxHashMap::default(),
            entered: FxHashMap::default(),
            made: FxHashMap::default(),
            kept: FxHashMap::default(),
        }
    }

    /// At the start of a block nothing is known of registers with several definitions but what is `known` otherwise.
    pub fn enter_block(&mut self, known: Left) {
        self.here = known;
        self.entered.clear();
        self.made.clear();
    }

    /// Whether the block defines some register as often as the whole function does.
    pub fn defines_all(&self) -> bool {
        self.made.iter().any(|(r, n)| self.definitions[*r] == *n)
    }

    /// At the end of a block that is executed once: registers that nothing else defines keep what it leaves in them.
    pub fn leave_for_good(&mut self) {
        let whole = self.made.iter().filter(|(r, n)| self.definitions[**r] == **n);
        let held = whole.filter_map(|(r, _)| Some((*r, self.here.get(r)?.clone())));
        self.kept.extend(held);
    }

    /// The registers with several definitions that a statement writes.
    pub fn redefined(&self, inst: &Inst) -> impl Iterator<Item = RegId> {
        written(inst).filter(|r| self.definitions[*r] > 1)
    }

    /// At the end of a block.
    pub fn left(&self) -> &Left {
        &self.here
    }

    /// By how much a block changes each unknown with which it began, if it adds a constant to it.
    pub fn steps(&self) -> impl Iterator<Item = (u32, Option<i64>)> + '_ {
        self.entered.iter().map(|(r, unknown)| {
            let before = Linear::unknown(*unknown);
            let difference = self.here.get(r).map_or_else(Linear::default, |after| after.plus(&before, -1));
            (*unknown, difference.as_number())
        })
    }

    fn fresh(&mut self) -> Linear {
        self.next += 1;
        Linear::unknown(self.next)
    }

    fn keyed(&mut self, key: Key) -> u32 {
        let next = &mut self.next;
        *self.numbers.entry(key).or_insert_with(|| {
            *next += 1;
            *next
        })
    }

    fn variable(&mut self, v: VarId) -> Linear {
        let n = self.keyed(vec![u64::MAX, u64::from(v.as_u32())]);
        self.variables.insert(n, v);
        Linear::unknown(n)
    }

    /// The value of a register.
    pub fn register(&mut self, r: RegId) -> Linear {
        if self.definitions[r] <= 1 {
            if let Some(v) = &self.fixed[r] {
                return v.clone();
            }
            let v = self.fresh();
            self.fixed[r] = Some(v.clone());
            return v;
        }
        if let Some(v) = self.here.get(&r).or_else(|| self.kept.get(&r)) {
            return v.clone();
        }
        let v = self.fresh();
        self.entered.insert(r, self.next);
        self.here.insert(r, v.clone());
        v
    }

    fn operand(&mut self, o: &Operand) -> Option<Linear> {
        Some(match o {
            Operand::Reg(r) => self.register(*r),
            Operand::Int(n) => Linear::number(*n as i64),
            Operand::Var(v, offset) => self.variable(*v).plus(&Linear::number(*offset), 1),
            Operand::Special(s, part) => {
                let name = s.name();
                if name.contains("clock") || name.contains("timer") || name.contains("pm") {
                    return None;
                }
                let part = part.map_or(9, u64::from);
                let key = vec![u64::MAX - 1, part].into_iter().chain(name.bytes().map(u64::from));
                Linear::unknown(self.keyed(key.collect()))
            }
            Operand::NotPred(r) => {
                let v = self.register(*r);
                self.plain_key(u64::MAX - 2, &[v])
            }
            Operand::Vector(elements) => {
                let parts: Option<SmallVec<[Linear; 4]>> = elements
                    .iter()
                    .map(|e| match e {
                        VectorElem::Reg(r) => Some(self.register(*r)),
                        VectorElem::Int(n) => Some(Linear::number(*n as i64)),
                        _ => None,
                    })
                    .collect();
                self.plain_key(u64::MAX - 10, &parts?)
            }
            _ => return None,
        })
    }

    fn plain_key(&mut self, what: u64, values: &[Linear]) -> Linear {
        let mut key = vec![what];
        flatten(&mut key, values);
        Linear::unknown(self.keyed(key))
    }

    /// The address that an operand names.
    pub fn address(&mut self, a: &Addr) -> Linear {
        let base = match a.base {
            AddrBase::Reg(r) => self.register(r),
            AddrBase::Var(v) => self.variable(v),
            AddrBase::Absolute => Linear::default(),
        };
        base.plus(&Linear::number(a.offset), 1)
    }

    /// Whether a difference of two addresses is that of two variables, which never overlap.
    pub fn of_two_variables(&self, difference: &Linear) -> bool {
        matches!(&difference.terms[..], [(a, m), (b, n)] if m + n == 0 && m.abs() == 1
            && self.variables.contains_key(a) && self.variables.contains_key(b))
    }

    /// Takes note of what a statement writes.
    pub fn step(&mut self, inst: &Inst) {
        let to: SmallVec<[RegId; 4]> = written(inst).collect();
        if to.is_empty() {
            return;
        }
        let value = match inst.guard {
            None => self.result(inst),
            Some(_) => None,
        };
        let many = to.len() > 1;
        for (k, r) in (0..).zip(to) {
            let v = match &value {
                Some(v) if many => self.plain_key(u64::MAX - 20 - k, std::slice::from_ref(v)),
                Some(v) => v.clone(),
                None => self.fresh(),
            };
            if self.definitions[r] <= 1 {
                self.fixed[r] = Some(v);
            } else {
                self.here.insert(r, v);
                *self.made.entry(r).or_default() += 1;
            }
        }
    }

    fn result(&mut self, inst: &Inst) -> Option<Linear> {
        if inst.op == Op::ld && inst.has(Mod::param) {
            let Operand::Addr(a) = &inst.operands[1] else { return None };
            let AddrBase::Var(v) = a.base else { return None };
            // Only kernels' parameters never change.
            let kernel = self.module.funcs.values().any(|f| f.entry && f.params.contains(&v));
            let ty = inst.ty(0).map_or(0, |t| u64::from(t.bytes()));
            let key = vec![u64::MAX - 3, u64::from(v.as_u32()), a.offset as u64, ty];
            return kernel.then(|| Linear::unknown(self.keyed(key)));
        }
        if !is_pure(inst) {
            return None;
        }
        let sources =
            inst.operands[1..].iter().map(|o| self.operand(o)).collect::<Option<SmallVec<[Linear; 4]>>>();
        let sources = sources?;
        let ty = inst.types().last();
        let bits = ty.map_or(0, |t| 8 * t.bytes());
        let integer = ty.is_some_and(is_integer);
        let fit = |v: Linear| if bits == 32 { v.narrowed() } else { v };
        let plain = integer && matches!(bits, 32 | 64) && !inst.has(Mod::sat);
        let exact = match (inst.op, &sources[..]) {
            (Op::mov, [a]) => Some(a.clone()),
            (Op::add, [a, b]) if plain && !inst.has(Mod::cc) => Some(a.plus(b, 1)),
            (Op::sub, [a, b]) if plain && !inst.has(Mod::cc) => Some(a.plus(b, -1)),
            (Op::mul, [a, b]) if plain && inst.has(Mod::lo) => match (a.as_number(), b.as_number()) {
                (_, Some(n)) => Some(Linear::default().plus(a, n)),
                (Some(n), _) => Some(Linear::default().plus(b, n)),
                _ => None,
            },
            (Op::mad, [a, b, c]) if plain && inst.has(Mod::lo) && !inst.has(Mod::cc) => {
                match (a.as_number(), b.as_number()) {
                    (_, Some(n)) => Some(c.plus(a, n)),
                    (Some(n), _) => Some(c.plus(b, n)),
                    _ => None,
                }
            }
            (Op::mad, [a, b, c]) if inst.has(Mod::wide) && integer => {
                let product = self.product(inst, a, b);
                Some(product.plus(c, 1))
            }
            (Op::mul, [a, b]) if inst.has(Mod::wide) && integer => Some(self.product(inst, a, b)),
            (Op::shl, [a, n]) if matches!(bits, 32 | 64) => n
                .as_number()
                .filter(|n| (0..i64::from(bits)).contains(n))
                .map(|n| Linear::default().plus(a, 1i64.wrapping_shl(n as u32))),
            // A global address is the same number.
            (Op::cvta, [a]) if inst.has(Mod::global) => Some(a.clone()),
            _ => None,
        };
        if let Some(v) = exact {
            let wide = inst.has(Mod::wide) || inst.op == Op::mov || inst.op == Op::cvta;
            return Some(if wide { v } else { fit(v) });
        }
        let mut key = vec![inst.op as u64, inst.mods.len() as u64];
        key.extend(inst.mods.iter().map(|m| *m as u64));
        flatten(&mut key, &sources);
        Some(Linear::unknown(self.keyed(key)))
    }

    /// A product of 64 bits.
    fn product(&mut self, inst: &Inst, a: &Linear, b: &Linear) -> Linear {
        let signed = inst.types().last().is_some_and(|t| t == Type::s32);
        if let (Some(a), Some(b)) = (a.as_number(), b.as_number()) {
            let wide = |n: i64| if signed { i64::from(n as i32) } else { i64::from(n as u32) };
            return Linear::number(wide(a).wrapping_mul(wide(b)));
        }
        // The factor stays outside, as the sums of products by one number may come apart.
        let (what, factor) = match (a.as_number(), b.as_number()) {
            (_, Some(n)) => (a.clone(), n),
            (Some(n), _) => (b.clone(), n),
            _ => return self.plain_key(u64::MAX - 5 - u64::from(signed), &[a.clone(), b.clone()]),
        };
        let factor = if signed { i64::from(factor as i32) } else { i64::from(factor as u32) };
        let wide = self.plain_key(u64::MAX - 7 - u64::from(signed), &[what]);
        Linear::default().plus(&wide, factor)
    }
}

fn is_integer(t: Type) -> bool {
    let name = t.name();
    name.starts_with(['u', 's', 'b']) && !name.contains('f')
}

fn flatten(key: &mut Key, values: &[Linear]) {
    for v in values {
        key.extend([v.terms.len() as u64, v.constant as u64]);
        key.extend(v.terms.iter().flat_map(|t| [u64::from(t.0), t.1 as u64]));
    }
}

/// Registers that an instruction writes; every register of operands that it may write.
fn written(inst: &Inst) -> impl Iterator<Item = RegId> + '_ {
    let none = matches!(inst.op, Op::st | Op::red | Op::bra | Op::brx | Op::ret | Op::nanosleep)
        || matches!(inst.op, Op::bar | Op::barrier) && !inst.has(Mod::red);
    let mut out: SmallVec<[RegId; 4]> = SmallVec::new();
    let mut add = |o: &Operand| match o {
        Operand::Reg(r) | Operand::Part { reg: r, .. } => out.push(*r),
        Operand::Vector(v) => out.extend(v.iter().filter_map(element)),
        Operand::Resident(v, p) => {
            out.extend(v.iter().filter_map(element));
            out.push(*p);
        }
        Operand::Pair(a, b) => out.extend([a, b].into_iter().copied().flatten()),
        Operand::List(l) => out.extend(l.iter().filter_map(|o| match o {
            Operand::Reg(r) => Some(*r),
            _ => None,
        })),
        _ => {}
    };
    if !none && let Some(first) = inst.operands.first() {
        add(first);
    }
    out.into_iter()
}

fn element(e: &VectorElem) -> Option<RegId> {
    match e {
        VectorElem::Reg(r) => Some(*r),
        _ => None,
    }
}
