//! Vector registers as parameters and results of functions in objects. ptxas 13.0.88 passes them as `.param` variables of the
//! same vector type (places in registers, prototypes: docs/linking.md), and so they become such variables here.

use ptx::{
    AddrBase, Body, FuncId, Inst, Mod, Module, Op, Operand, RegId, Space, Stmt, Type, Var, VarId, VectorElem,
};
use rustc_hash::FxHashMap;

/// How many components each parameter and each result of a function has.
struct Shape {
    params: Vec<usize>,
    returns: Vec<usize>,
}

fn components(module: &Module, mut list: &[VarId]) -> Vec<usize> {
    let mut found = Vec::new();
    while !list.is_empty() {
        let n = module.components(list);
        found.push(n);
        list = &list[n..];
    }
    found
}

/// Passes vector registers through variables.
pub(crate) fn through_variables(module: &mut Module) {
    let shape = |f: &ptx::Func| Shape {
        params: components(module, &f.params),
        returns: components(module, &f.returns),
    };
    let shapes: FxHashMap<FuncId, Shape> = module.funcs.iter().map(|(id, f)| (id, shape(f))).collect();
    if shapes.values().all(|s| s.params.iter().chain(&s.returns).all(|n| *n == 1)) {
        return;
    }
    let ids: Vec<FuncId> = module.funcs.keys().collect();
    for id in ids {
        let (params, returns) = (module.funcs[id].params.clone(), module.funcs[id].returns.clone());
        let (params, read) = whole(module, &params, &shapes[&id].params);
        let (returns, written) = whole(module, &returns, &shapes[&id].returns);
        module.funcs[id].params = params;
        module.funcs[id].returns = returns;
        let Some(mut body) = module.funcs[id].body.take() else { continue };
        calls(module, &mut body, &shapes);
        enter_and_leave(module, &mut body, &read, &written);
        module.funcs[id].body = Some(body);
    }
}

/// The variables with vectors as one each, and the registers that they were.
fn whole(module: &mut Module, list: &[VarId], counts: &[usize]) -> (Vec<VarId>, Vec<(VarId, Vec<String>)>) {
    let (mut out, mut vectors, mut at) = (Vec::new(), Vec::new(), 0);
    for n in counts {
        let parts = &list[at..at + n];
        at += n;
        if *n == 1 {
            out.push(parts[0]);
            continue;
        }
        let names = parts.iter().map(|v| module.vars[*v].name.clone()).collect();
        let first = module.vars[parts[0]].clone();
        let v = variable(module, &first, *n);
        vectors.push((v, names));
        out.push(v);
    }
    (out, vectors)
}

/// A variable for a vector of `n` components like `first`.
fn variable(module: &mut Module, first: &Var, n: usize) -> VarId {
    let vector = n as u8;
    let align = first.ty.bytes().max(1) * u32::from(vector);
    module.vars.push(Var { space: Space::Param, vector, align, ..first.clone() })
}

/// A load or store of all components of a variable.
fn access(module: &Module, v: VarId, store: bool, regs: &[RegId], like: &Inst) -> Stmt {
    let var = &module.vars[v];
    let count = if var.vector == 2 { Mod::v2 } else { Mod::v4 };
    let ty = match var.ty.bytes() {
        1 => Mod::b8,
        2 => Mod::b16,
        4 => Mod::b32,
        _ => Mod::b64,
    };
    let addr = Operand::Addr(ptx::Addr { base: AddrBase::Var(v), offset: 0 });
    let vector = Operand::Vector(regs.iter().map(|r| VectorElem::Reg(*r)).collect());
    let (op, operands) = if store { (Op::st, [addr, vector]) } else { (Op::ld, [vector, addr]) };
    Stmt::Inst(Inst {
        guard: like.guard,
        op,
        mods: [Mod::param, count, ty].into_iter().collect(),
        operands: operands.into_iter().collect(),
        braced: 0,
        zeros: 0,
        span: like.span,
    })
}

/// An instruction that nothing guards, at a place.
fn plain(span: ptx::Span) -> Inst {
    let (mods, operands) = Default::default();
    Inst { guard: None, op: Op::ret, mods, operands, braced: 0, zeros: 0, span }
}

type Vectors = [(VarId, Vec<String>)];

/// Registers that were parameters are read at the start, those that were results written before each return.
fn enter_and_leave(module: &Module, body: &mut Body, read: &Vectors, written: &Vectors) {
    if read.is_empty() && written.is_empty() {
        return;
    }
    let named: FxHashMap<String, RegId> = body.regs.iter().map(|(id, r)| (r.name.to_string(), id)).collect();
    let all = |list: &Vectors, store: bool, span: ptx::Span| -> Vec<Stmt> {
        let one = |(v, names): &(VarId, Vec<String>)| {
            let regs: Vec<RegId> = names.iter().filter_map(|n| named.get(n).copied()).collect();
            access(module, *v, store, &regs, &plain(span))
        };
        list.iter().map(one).collect()
    };
    let span = |list: &Vectors| list.first().map(|(v, _)| module.vars[*v].span).unwrap_or_default();
    let mut out = all(read, false, span(read));
    for stmt in std::mem::take(&mut body.stmts) {
        if let Stmt::Inst(inst) = &stmt
            && inst.op == Op::ret
        {
            out.extend(all(written, true, inst.span));
        }
        out.push(stmt);
    }
    // The end of a function returns.
    out.extend(all(written, true, span(written)));
    body.stmts = out;
}

/// What calls pass and get as vectors goes through variables of the caller.
fn calls(module: &mut Module, body: &mut Body, shapes: &FxHashMap<FuncId, Shape>) {
    let mut headers: FxHashMap<ptx::LabelId, FuncId> = FxHashMap::default();
    for stmt in &body.stmts {
        match stmt {
            Stmt::CallTargets(l, funcs) => drop(funcs.first().map(|f| headers.insert(*l, *f))),
            Stmt::CallPrototype(l, f) => drop(headers.insert(*l, *f)),
            _ => {}
        }
    }
    let mut out = Vec::new();
    for stmt in std::mem::take(&mut body.stmts) {
        let Stmt::Inst(mut inst) = stmt else {
            out.push(stmt);
            continue;
        };
        let header = inst.operands.iter().find_map(|o| match o {
            Operand::Func(f) => Some(*f),
            Operand::Label(l) => headers.get(l).copied(),
            _ => None,
        });
        let shape = header.filter(|_| inst.op == Op::call).and_then(|f| shapes.get(&f));
        let mut after = Vec::new();
        if let Some(shape) = shape {
            let results =
                matches!(inst.operands.first(), Some(Operand::List(_))) && !shape.returns.is_empty();
            let like = plain(inst.span);
            let like = Inst { guard: inst.guard, ..like };
            for (i, operand) in inst.operands.iter_mut().enumerate() {
                let Operand::List(list) = operand else { continue };
                let result = results && i == 0;
                let counts = if result { &shape.returns } else { &shape.params };
                let (mut new, mut at) = (Vec::new(), 0);
                for n in counts {
                    let parts = &list[at.min(list.len())..(at + n).min(list.len())];
                    at += n;
                    if *n == 1 {
                        new.extend_from_slice(parts);
                        continue;
                    }
                    let register = |o: &Operand| if let Operand::Reg(r) = o { Some(*r) } else { None };
                    let regs: Vec<RegId> = parts.iter().filter_map(register).collect();
                    let ty = regs.first().map_or(Type::b32, |r| body.regs[*r].ty);
                    let first = vector_of(ty, inst.span);
                    let v = variable(module, &first, *n);
                    body.vars.push(v);
                    match result {
                        true => after.push(access(module, v, false, &regs, &like)),
                        false => out.push(access(module, v, true, &regs, &like)),
                    }
                    new.push(Operand::Var(v, 0));
                }
                *list = new;
            }
        }
        out.push(Stmt::Inst(inst));
        out.append(&mut after);
    }
    body.stmts = out;
}

/// What a variable of a caller begins with.
fn vector_of(ty: Type, span: ptx::Span) -> Var {
    Var {
        name: "vector".into(),
        space: Space::Param,
        ty,
        opaque: None,
        vector: 1,
        managed: false,
        unified: None,
        dims: Default::default(),
        align: ty.bytes(),
        linkage: ptx::Linkage::default(),
        init: None,
        ptr: None,
        span,
    }
}
