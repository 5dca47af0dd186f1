//! Textures, samplers and surfaces by name: words of constant bank 0 behind the parameters of a kernel, one for each name that
//! its code mentions (before sm_90 for each texture with its sampler), which the driver fills in (docs/lowering.md).

use crate::CallGraph;
use crate::layout::param_base;
use ptx::ast::Opaque;
use ptx::{AddrBase, Func, FuncId, Module, Operand, Stmt, VarId};
use rustc_hash::FxHashMap;
use sass::Target;

/// What a word of constant bank 0 is of: a texture, a sampler, a surface, or before sm_90 a texture with a sampler of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Named {
    /// The variable.
    pub image: VarId,
    /// The sampler in the upper bits.
    pub sampler: Option<VarId>,
}

/// The words of all kernels, and where each function finds them.
#[derive(Clone, Debug, Default)]
pub struct ImageSlots {
    /// Of each kernel that has any (in an object each function), by their offsets in the bank.
    kernels: FxHashMap<FuncId, Vec<(u32, Named)>>,
    places: FxHashMap<(FuncId, Named), u32>,
}

/// What words of what are sorted by: textures with the samplers that they are read with come first, surfaces last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Textures,
    Samplers,
    Surfaces,
}

/// Calls `f` for everything that an operand of the function's names of textures, samplers and surfaces; `joined`: a texture and the
/// sampler that it is read with are one.
fn mentions(module: &Module, joined: bool, func: &Func, mut f: impl FnMut(Named, Class)) {
    let class = |v: VarId| match module.vars[v].opaque {
        Some(Opaque::Surface) => Class::Surfaces,
        Some(Opaque::Sampler) => Class::Samplers,
        _ => Class::Textures,
    };
    let opaque = |v: &VarId| module.vars[*v].opaque.is_some().then_some(*v);
    let name = |o: &Operand| match o {
        Operand::Var(v, 0) => opaque(v),
        Operand::Addr(a) => match a.base {
            AddrBase::Var(v) => opaque(&v),
            _ => None,
        },
        _ => None,
    };
    for stmt in func.body.iter().flat_map(|b| &b.stmts) {
        let Stmt::Inst(inst) = stmt else { continue };
        for o in &inst.operands {
            let list = match o {
                Operand::Bracket(list) => &list[..],
                o => std::slice::from_ref(o),
            };
            let [image, sampler] = [list.first(), list.get(1)].map(|o| o.and_then(name));
            match (image, sampler) {
                (Some(image), Some(_)) if joined => f(Named { image, sampler }, Class::Textures),
                (Some(image), Some(sampler)) => {
                    f(Named { image, sampler: None }, Class::Textures);
                    f(Named { image: sampler, sampler: None }, Class::Textures);
                }
                (image, sampler) => {
                    let one = image.into_iter().chain(sampler);
                    one.for_each(|image| f(Named { image, sampler: None }, class(image)));
                }
            }
        }
    }
}

/// How far words are apart that the linker places, so that no load takes two of them.
const APART: u32 = 16;

impl ImageSlots {
    /// Whether the function finds all that it names: no kernel has words for what none reaches.
    pub fn finds_all(&self, module: &Module, target: Target, id: FuncId) -> bool {
        let mut all = true;
        mentions(module, target.sm < 90, &module.funcs[id], |n, _| all &= self.places.contains_key(&(id, n)));
        all
    }

    /// Of an object: each function has places of its own, which stand for the names until the linker knows better. No two names
    /// share a word.
    pub fn of_object(module: &Module, target: Target) -> ImageSlots {
        let mut slots = ImageSlots::default();
        for (id, func) in module.funcs.iter() {
            let mut names: Vec<(u32, Named)> = Vec::new();
            let params = if func.entry { module.param_layout(func).1 } else { 0 };
            let mut at = (u32::from(param_base(module, func, target)) + params).next_multiple_of(APART);
            mentions(module, false, func, |n, _| {
                if !names.iter().any(|(_, m)| *m == n) {
                    names.push((at, n));
                    at += APART;
                }
            });
            slots.places.extend(names.iter().map(|(at, n)| ((id, *n), *at)));
            if !names.is_empty() {
                slots.kernels.insert(id, names);
            }
        }
        slots
    }

    /// Places the words behind the parameters. Those that functions mention come first (ptxas 13.0.88 has them in the order of
    /// what calls nothing to what calls it, too), in one place for all kernels that reach any of these: a function's code is the
    /// same in each.
    pub fn new(module: &Module, target: Target, calls: &CallGraph, pointed: &[FuncId]) -> ImageSlots {
        let mut slots = ImageSlots::default();
        if !module.vars.values().any(|v| v.opaque.is_some()) {
            return slots;
        }
        let own: FxHashMap<FuncId, Vec<Named>> = (module.funcs.iter())
            .map(|(id, func)| {
                let mut names: Vec<(Named, Class)> = Vec::new();
                mentions(module, target.sm < 90, func, |n, class| {
                    match names.iter_mut().find(|m| m.0 == n) {
                        Some(found) => found.1 = found.1.min(class),
                        None => names.push((n, class)),
                    }
                });
                names.sort_by_key(|n| n.1);
                (id, names.into_iter().map(|n| n.0).collect::<Vec<_>>())
            })
            .filter(|(_, names)| !names.is_empty())
            .collect();
        let kernels: Vec<(FuncId, Vec<FuncId>)> = (module.funcs.iter())
            .filter(|(_, f)| f.entry && f.body.is_some())
            .map(|(id, _)| (id, calls.reachable(module, id, pointed)))
            .collect();
        let end = |k: &FuncId| {
            let func = &module.funcs[*k];
            let end = u32::from(param_base(module, func, target)) + module.param_layout(func).1;
            end.next_multiple_of(if target.sm < 100 { 4 } else { APART })
        };
        let concerned = |used: &[FuncId]| used.iter().any(|f| own.contains_key(f));
        let common = kernels.iter().filter(|(_, used)| concerned(used)).map(|(k, _)| end(k)).max();
        let mut shared: Vec<Named> = Vec::new();
        let reached = |id: &FuncId| kernels.iter().any(|(_, used)| used.contains(id));
        for id in module.funcs.keys().filter(|id| own.contains_key(id) && reached(id)) {
            let new: Vec<Named> = own[&id].iter().filter(|n| !shared.contains(n)).copied().collect();
            shared.extend(new);
        }
        for (k, used) in &kernels {
            let mut names: Vec<(u32, Named)> = Vec::new();
            let mut at = end(k);
            if let Some(common) = common.filter(|_| concerned(used)) {
                for (place, n) in (common..).step_by(4).zip(&shared) {
                    let users = used.iter().filter(|f| own.get(f).is_some_and(|names| names.contains(n)));
                    for f in users {
                        slots.places.insert((*f, *n), place);
                        at = place + 4;
                        if names.last().is_none_or(|(_, last)| last != n) {
                            names.push((place, *n));
                        }
                    }
                }
            }
            for n in own.get(k).into_iter().flatten() {
                if !names.iter().any(|(_, m)| m == n) {
                    names.push((at, *n));
                    at += 4;
                }
            }
            slots.places.extend(names.iter().map(|(at, n)| ((*k, *n), *at)));
            if !names.is_empty() {
                slots.kernels.insert(*k, names);
            }
        }
        slots
    }

    /// The words of a kernel (in an object of a function), by their offsets in constant bank 0.
    pub fn of(&self, kernel: FuncId) -> &[(u32, Named)] {
        self.kernels.get(&kernel).map_or(&[], |names| names)
    }

    /// The offset in constant bank 0 at which the code of a function finds a word.
    pub fn place(&self, func: FuncId, named: Named) -> Option<u32> {
        self.places.get(&(func, named)).copied()
    }

    /// How many textures, surfaces and samplers a kernel's words are of, as `-v` counts them (ptxas 13.0.88): each once on sm_75,
    /// later as often as it is in a word.
    pub fn counts(&self, module: &Module, kernel: FuncId, target: Target) -> [usize; 3] {
        let mut all: Vec<VarId> =
            self.of(kernel).iter().flat_map(|(_, n)| [Some(n.image), n.sampler]).flatten().collect();
        if target.sm == 75 {
            all.sort_unstable();
            all.dedup();
        }
        [Opaque::Texture, Opaque::Surface, Opaque::Sampler]
            .map(|kind| all.iter().filter(|v| module.vars[**v].opaque == Some(kind)).count())
    }
}
