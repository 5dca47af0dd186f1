//! Bulk copies into the shared memory of a cluster where the copy engine writes that of its own block only (sm_120 on): ptxas
//! asks whether the place is the own block's, copies if it is, and else calls a function of the driver's. With `.multicast` it is
//! if the block's own bit is all of the mask and the grid was launched without clusters.
//!
//! Parameters, by where ptxas 13.0.88 puts them: the place in shared memory, the source or tensor map, the size or five
//! coordinates, the mask of blocks if there is one, the barrier, offsets of pixels for `im2col`, and the cache policy or zero.

use super::{declaration, statement, variable};
use ptx::ast::{Addr, AddrBase, Body, Func, Inst, Label, Operand, Reg, Space, Stmt, VectorElem};
use ptx::isa::{Mod, Op, Type};
use ptx::{Module, RegId, SpecialReg, VarId};

const DIMENSIONS: [(Mod, &str); 5] =
    [(Mod::_1d, "1d"), (Mod::_2d, "2d"), (Mod::_3d, "3d"), (Mod::_4d, "4d"), (Mod::_5d, "5d")];
/// Coordinates that are passed for a tensor of any number of dimensions.
const COORDINATES: usize = 5;
/// Offsets of pixels that are passed for any number of dimensions.
const OFFSETS: usize = 3;
/// Bits of an address within a block's shared memory; those above say whose block it is.
const WINDOW_BITS: u64 = 24;

/// Which of the driver's functions.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    /// The number of dimensions, by its place in [`DIMENSIONS`], and whether in columns; `None` for contiguous bytes.
    tensor: Option<(usize, bool)>,
    multicast: bool,
}

impl Form {
    fn all() -> impl Iterator<Item = Form> {
        let tiles = (0..DIMENSIONS.len()).map(|d| Some((d, false)));
        let columns = (2..DIMENSIONS.len()).map(|d| Some((d, true)));
        let tensors = tiles.chain(columns).chain([None]);
        tensors.flat_map(|tensor| [false, true].map(|multicast| Form { tensor, multicast }))
    }

    fn name(self) -> String {
        let what = match self.tensor {
            None => String::new(),
            Some((d, false)) => format!("tensor_{}_tile_", DIMENSIONS[d].1),
            Some((d, true)) => format!("tensor_{}_im2col_", DIMENSIONS[d].1),
        };
        format!("__cuda_syscall_cp_async_bulk_{what}{}", if self.multicast { "multicast" } else { "unicast" })
    }

    /// The form of a statement that may have to go to the driver.
    fn of(inst: &Inst) -> Option<Form> {
        let first =
            inst.mods.iter().find(|m| matches!(m, Mod::global | Mod::shared_cta | Mod::shared_cluster));
        let from_global = inst.has(Mod::global);
        if inst.op != Op::cp || !inst.has(Mod::bulk) || first != Some(&Mod::shared_cluster) || !from_global {
            return None;
        }
        if inst.has(Mod::reduce) || inst.has(Mod::prefetch) {
            return None;
        }
        let multicast = inst.has(Mod::multicast_cluster);
        let rows =
            [Mod::tile_gather4, Mod::im2col_w, Mod::im2col_w_128, Mod::im2col_no_offs, Mod::cta_group_2];
        if rows.iter().any(|m| inst.has(*m)) {
            return None;
        }
        let tensor = match inst.has(Mod::tensor) {
            true => Some((DIMENSIONS.iter().position(|(m, _)| inst.has(*m))?, inst.has(Mod::im2col))),
            false => None,
        };
        Some(Form { tensor, multicast })
    }
}

/// Whether the driver brings a function of this name.
pub(super) fn is_of_the_driver(function: &str) -> bool {
    function.starts_with("__cuda_syscall_cp_async_bulk_") && Form::all().any(|f| f.name() == function)
}

/// Puts the question, the copy and the call in place of each of them.
pub(super) fn call_driver(module: &mut Module) {
    for caller in module.funcs.keys().collect::<Vec<_>>() {
        let found = |s: &Stmt| matches!(s, Stmt::Inst(i) if Form::of(i).is_some());
        let has_some = |f: &Func| f.body.as_ref().is_some_and(|b| b.stmts.iter().any(found));
        if !has_some(&module.funcs[caller]) {
            continue;
        }
        let Some(mut body) = module.funcs[caller].body.take() else { continue };
        for s in std::mem::take(&mut body.stmts) {
            match &s {
                Stmt::Inst(i) if let Some(form) = Form::of(i) => {
                    // One that is left as it is will be refused.
                    if Rewriter::new(module, &mut body, i).rewrite(form).is_none() {
                        body.stmts.push(s);
                    }
                }
                _ => body.stmts.push(s),
            }
        }
        module.funcs[caller].body = Some(body);
    }
}

/// A parameter, and what is passed: parts of so many bytes each, one behind the other.
struct Argument {
    name: &'static str,
    part: u8,
    values: Vec<Operand>,
}

impl Argument {
    fn one(name: &'static str, bytes: u8, value: Operand) -> Argument {
        Argument { name, part: bytes, values: vec![value] }
    }
}

struct Rewriter<'a> {
    module: &'a mut Module,
    body: &'a mut Body,
    inst: &'a Inst,
    /// Statements so far; nothing is changed before all of them are known.
    made: Vec<Stmt>,
}

impl<'a> Rewriter<'a> {
    fn new(module: &'a mut Module, body: &'a mut Body, inst: &'a Inst) -> Rewriter<'a> {
        Rewriter { module, body, inst, made: Vec::new() }
    }

    fn register(&mut self, ty: Type) -> RegId {
        self.body.regs.push(Reg { name: "%copy".into(), ty })
    }

    /// A statement that all threads execute.
    fn always(&mut self, op: Op, mods: &[Mod], operands: Vec<Operand>) {
        let free = Inst { guard: None, ..self.inst.clone() };
        self.made.push(statement(&free, op, mods, operands));
    }

    /// The number that a statement makes.
    fn compute(&mut self, ty: Type, op: Op, mods: &[Mod], sources: &[Operand]) -> Operand {
        let to = Operand::Reg(self.register(ty));
        self.always(op, mods, [std::slice::from_ref(&to), sources].concat());
        to
    }

    fn type_of(&self, r: RegId) -> Type {
        self.body.regs[r].ty
    }

    /// An address in shared memory, as 32 bits.
    fn shared(&mut self, o: &Operand) -> Option<Operand> {
        let Operand::Addr(Addr { base, offset }) = o else { return None };
        let base = match base {
            AddrBase::Absolute => return Some(Operand::Int(*offset as u64 & 0xffff_ffff)),
            AddrBase::Var(v) if self.module.vars[*v].space == Space::Shared => {
                return Some(self.compute(Type::b32, Op::mov, &[Mod::u32], &[Operand::Var(*v, *offset)]));
            }
            AddrBase::Var(_) => return None,
            AddrBase::Reg(r) => *r,
        };
        let base = match self.type_of(base).bits() {
            64 => self.compute(Type::b32, Op::cvt, &[Mod::u32, Mod::u64], &[Operand::Reg(base)]),
            32 => Operand::Reg(base),
            _ => return None,
        };
        match offset {
            0 => Some(base),
            n => Some(self.compute(Type::b32, Op::add, &[Mod::u32], &[base, Operand::Int(*n as u64)])),
        }
    }

    /// An address in global memory, or a generic one.
    fn global(&mut self, o: &Operand) -> Option<Operand> {
        let (base, offset) = match o {
            Operand::Reg(r) => (AddrBase::Reg(*r), 0),
            Operand::Addr(a) => (a.base, a.offset),
            _ => return None,
        };
        match base {
            AddrBase::Reg(r) if self.type_of(r).bits() != 64 => None,
            AddrBase::Reg(r) if offset == 0 => Some(Operand::Reg(r)),
            AddrBase::Reg(r) => {
                let sum = [Operand::Reg(r), Operand::Int(offset as u64)];
                Some(self.compute(Type::b64, Op::add, &[Mod::u64], &sum))
            }
            AddrBase::Var(v) if self.module.vars[v].space == Space::Global => {
                Some(self.compute(Type::b64, Op::mov, &[Mod::u64], &[Operand::Var(v, offset)]))
            }
            AddrBase::Var(_) | AddrBase::Absolute => None,
        }
    }

    fn extended(&mut self, word: Operand) -> Operand {
        match word {
            Operand::Int(n) => Operand::Int(n),
            word => self.compute(Type::b64, Op::cvt, &[Mod::u64, Mod::u32], &[word]),
        }
    }

    /// The elements of a list, or the one that stands without braces.
    fn elements(o: &Operand) -> Option<Vec<Operand>> {
        let Operand::Vector(v) = o else { return Some(vec![o.clone()]) };
        let element = |e: &VectorElem| match e {
            VectorElem::Reg(r) => Some(Operand::Reg(*r)),
            VectorElem::Int(n) => Some(Operand::Int(*n)),
            _ => None,
        };
        v.iter().map(element).collect()
    }

    fn rewrite(mut self, form: Form) -> Option<()> {
        let inst = self.inst;
        let mut rest = inst.operands.iter();
        let place = self.shared(rest.next()?)?;
        let mut arguments = Vec::new();
        arguments.push(Argument::one("place", 8, self.extended(place.clone())));
        let source = rest.next()?;
        match form.tensor {
            None => {
                arguments.push(Argument::one("source", 8, self.global(source)?));
                arguments.push(Argument::one("size", 4, rest.next()?.clone()));
            }
            Some(_) => {
                let Operand::Bracket(tensor) = source else { return None };
                let [map, coordinates] = &tensor[..] else { return None };
                arguments.push(Argument::one("map", 8, self.global(map)?));
                let mut coordinates = Self::elements(coordinates)?;
                coordinates.resize(COORDINATES, Operand::Int(0));
                arguments.extend(coordinates.into_iter().map(|c| Argument::one("coordinate", 4, c)));
            }
        }
        let barrier = self.shared(rest.next()?)?;
        let barrier = Argument::one("barrier", 8, self.extended(barrier));
        let offsets = match form.tensor {
            Some((_, true)) => {
                let mut values = Self::elements(rest.next()?)?;
                values.resize(OFFSETS, Operand::Int(0));
                Some(Argument { name: "offsets", part: 2, values })
            }
            _ => None,
        };
        let mask_at = inst.operands.len() - rest.len();
        let mask = if form.multicast { Some(rest.next()?.clone()) } else { None };
        let policy = if inst.has(Mod::L2_cache_hint) { rest.next()?.clone() } else { Operand::Int(0) };
        arguments.extend(mask.clone().map(|m| Argument::one("blocks", 2, m)));
        arguments.push(barrier);
        arguments.extend(offsets);
        arguments.push(Argument::one("policy", 8, policy));

        let remote = self.is_remote(place, mask.as_ref());
        let calls = self.guarded(remote);
        let [own, done] = ["own", "done"].map(|name| {
            let span = inst.span;
            self.body.labels.push(Label { name: name.into(), span })
        });
        let branch = |guard, to| {
            let jump = Inst { guard, ..inst.clone() };
            statement(&jump, Op::bra, &[], vec![Operand::Label(to)])
        };
        self.made.push(branch(Some((calls, true)), own));
        self.call(form, &arguments);
        self.made.push(branch(None, done));
        self.made.push(Stmt::Label(own));
        let in_block = |m: &Mod| match m {
            Mod::shared_cluster => Some(Mod::shared_cta),
            Mod::multicast_cluster => None,
            m => Some(*m),
        };
        let mut copy = Inst { mods: inst.mods.iter().filter_map(in_block).collect(), ..inst.clone() };
        if form.multicast {
            copy.operands.remove(mask_at);
        }
        self.made.extend([Stmt::Inst(copy), Stmt::Label(done)]);
        self.body.stmts.append(&mut self.made);
        Some(())
    }

    /// Whether the driver has to do it.
    fn is_remote(&mut self, place: Operand, mask: Option<&Operand>) -> RegId {
        let remote = self.register(Type::pred);
        if let Some(mask) = mask {
            let clusters = Operand::Special(SpecialReg::is_explicit_cluster, None);
            let clusters = self.compute(Type::pred, Op::mov, &[Mod::pred], &[clusters]);
            let mask = self.compute(Type::b32, Op::cvt, &[Mod::u32, Mod::u16], std::slice::from_ref(mask));
            let others = vec![Operand::Reg(remote), mask, Operand::Int(1), clusters];
            self.always(Op::setp, &[Mod::ne, Mod::or, Mod::u32], others);
        } else {
            let block = self.compute(Type::b32, Op::shr, &[Mod::u32], &[place, Operand::Int(WINDOW_BITS)]);
            let own = Operand::Special(SpecialReg::cluster_ctarank, None);
            let own = self.compute(Type::b32, Op::mov, &[Mod::u32], &[own]);
            self.always(Op::setp, &[Mod::ne, Mod::u32], vec![Operand::Reg(remote), block, own]);
        }
        remote
    }

    /// A predicate and the statement's guard.
    fn guarded(&mut self, p: RegId) -> RegId {
        let Some((guard, negated)) = self.inst.guard else { return p };
        let mut guard = Operand::Reg(guard);
        if negated {
            guard = self.compute(Type::pred, Op::not, &[Mod::pred], &[guard]);
        }
        let both = self.register(Type::pred);
        self.always(Op::and, &[Mod::pred], vec![Operand::Reg(both), Operand::Reg(p), guard]);
        both
    }

    fn call(&mut self, form: Form, arguments: &[Argument]) {
        let parameters = |module: &mut Module| -> Vec<VarId> {
            let bytes = |a: &Argument| u64::from(a.part) * a.values.len() as u64;
            arguments.iter().map(|a| variable(module, a.name, bytes(a), a.part.into())).collect()
        };
        let callee = declaration(self.module, &form.name(), |m| (parameters(m), Vec::new()));
        let passed = parameters(self.module);
        self.body.vars.extend(&passed);
        for (a, to) in arguments.iter().zip(&passed) {
            let bits = match a.part {
                2 => Mod::b16,
                4 => Mod::b32,
                _ => Mod::b64,
            };
            for (value, offset) in a.values.iter().zip((0..).step_by(a.part.into())) {
                let at = Operand::Addr(Addr { base: AddrBase::Var(*to), offset });
                self.always(Op::st, &[Mod::param, bits], vec![at, value.clone()]);
            }
        }
        let passed = passed.into_iter().map(|v| Operand::Var(v, 0)).collect();
        let operands = vec![Operand::List(Vec::new()), Operand::Func(callee), Operand::List(passed)];
        self.always(Op::call, &[], operands);
    }
}
