//! `tex.grad` of volumes and cubes: from sm_90 on a function of the driver's, which ptxas calls as any other. Its
//! parameters are the handle, the coordinates and both derivatives, vectors of four words each; it gives whether the
//! texels were in memory, and four values (ptxas 13.0.88; `cuobjdump -elf` shows its name).

use super::{declaration, statement, variable};
use ptx::ast::{Addr, AddrBase, Body, Inst, Operand, Stmt, VectorElem};
use ptx::isa::{Mod, Op, Type};
use ptx::{FuncId, Module, RegId, VarId};

/// Shapes and formats that the driver has.
const SHAPES: [(Mod, &str); 3] = [(Mod::_3d, "3d"), (Mod::cube, "cube"), (Mod::acube, "acube")];
const FORMATS: [(Type, &str); 3] = [(Type::f32, "f32"), (Type::s32, "s32"), (Type::u32, "u32")];
/// Types of coordinates, those of integers for volumes alone.
const COORDINATES: [(Type, &str); 2] = [(Type::f32, "f32"), (Type::s32, "s32")];

/// Registers that what calls one of them states at least, whatever its limit is (ptxas 13.0.88, all of them on sm_90 … sm_121, -O0,
/// -O1 and -O3, also with `-maxrregcount 24`).
pub(super) const REGISTERS: u8 = 32;

fn name(shape: &str, format: &str, coordinates: &str, resident: bool) -> String {
    let pred = if resident { "pred_" } else { "" };
    format!("__cuda_syscall_tex_grad_{pred}{shape}_v4_{format}_{coordinates}")
}

/// Whether the driver brings a function of this name.
pub(super) fn is_of_the_driver(function: &str) -> bool {
    SHAPES.iter().any(|(_, shape)| {
        FORMATS.iter().any(|(_, format)| {
            let mut any = COORDINATES.iter().flat_map(|(_, c)| [false, true].map(|r| (c, r)));
            any.any(|(c, resident)| name(shape, format, c, resident) == function)
        })
    })
}

/// Puts a call in place of each of them.
pub(super) fn call_driver(module: &mut Module) {
    for caller in module.funcs.keys().collect::<Vec<_>>() {
        let found = |s: &Stmt| matches!(s, Stmt::Inst(i) if Access::of(i).is_some());
        if !module.funcs[caller].body.as_ref().is_some_and(|b| b.stmts.iter().any(found)) {
            continue;
        }
        let Some(mut body) = module.funcs[caller].body.take() else { continue };
        let mut places = None;
        for s in std::mem::take(&mut body.stmts) {
            match &s {
                Stmt::Inst(i) if let Some(access) = Access::of(i) => {
                    let places = places.get_or_insert_with(|| Places::new(module, &mut body));
                    let name =
                        name(access.shape, access.format, access.coordinates, access.resident.is_some());
                    let callee = declaration(module, &name, |module| {
                        let p = parameters(module);
                        ([p.handle].into_iter().chain(p.vectors).collect(), vec![p.result])
                    });
                    access.call(places, callee, &mut body);
                }
                _ => body.stmts.push(s),
            }
        }
        module.funcs[caller].body = Some(body);
    }
}

/// The variables that hold what is passed; a function needs each once.
struct Places {
    handle: VarId,
    /// Coordinates and derivatives.
    vectors: [VarId; 3],
    result: VarId,
}

/// Bytes of a vector, and of a result.
const VECTOR: u64 = 16;
const RESULT: u64 = 20;

fn parameters(module: &mut Module) -> Places {
    Places {
        handle: variable(module, "handle", 8, 8),
        vectors: ["coordinates", "dx", "dy"].map(|name| variable(module, name, VECTOR, 16)),
        result: variable(module, "texels", RESULT, 4),
    }
}

impl Places {
    fn new(module: &mut Module, body: &mut Body) -> Places {
        let p = parameters(module);
        body.vars.extend([p.handle, p.result].iter().chain(&p.vectors));
        p
    }
}

/// What such an instruction says.
struct Access<'i> {
    inst: &'i Inst,
    shape: &'static str,
    format: &'static str,
    coordinates: &'static str,
    handle: RegId,
    /// Coordinates and derivatives.
    vectors: [&'i [VectorElem]; 3],
    results: &'i [VectorElem],
    resident: Option<RegId>,
}

impl<'i> Access<'i> {
    fn of(inst: &'i Inst) -> Option<Access<'i>> {
        if inst.op != Op::tex || !inst.has(Mod::grad) || !inst.has(Mod::v4) {
            return None;
        }
        let (_, shape) = SHAPES.into_iter().find(|(m, _)| inst.has(*m))?;
        let (_, format) = FORMATS.into_iter().find(|(t, _)| inst.ty(0) == Some(*t))?;
        let (_, coordinates) = COORDINATES.into_iter().find(|(t, _)| inst.ty(1) == Some(*t))?;
        let (results, resident): (&[VectorElem], _) = match &inst.operands[0] {
            Operand::Vector(v) => (v, None),
            Operand::Resident(v, p) => (v, Some(*p)),
            _ => return None,
        };
        let [_, Operand::Bracket(place), Operand::Vector(dx), Operand::Vector(dy)] = &inst.operands[..]
        else {
            return None;
        };
        let [handle, Operand::Vector(at)] = &place[..] else { return None };
        let (Operand::Reg(handle) | Operand::Addr(Addr { base: AddrBase::Reg(handle), offset: 0 })) = handle
        else {
            return None;
        };
        let registers =
            |v: &[VectorElem]| v.iter().all(|e| !matches!(e, VectorElem::Sink | VectorElem::F64(_)));
        let vectors: [&[VectorElem]; 3] = [at, dx, dy];
        let fits = results.len() == 4 && vectors.iter().all(|v| v.len() <= 4 && registers(v));
        fits.then_some(Access {
            inst,
            shape,
            format,
            coordinates,
            handle: *handle,
            vectors,
            results,
            resident,
        })
    }

    fn emit(&self, body: &mut Body, op: Op, mods: &[Mod], operands: Vec<Operand>) {
        body.stmts.push(statement(self.inst, op, mods, operands));
    }

    fn call(&self, p: &Places, callee: FuncId, body: &mut Body) {
        let at =
            |v: VarId, word: usize| Operand::Addr(Addr { base: AddrBase::Var(v), offset: 4 * word as i64 });
        self.emit(body, Op::st, &[Mod::param, Mod::b64], vec![at(p.handle, 0), Operand::Reg(self.handle)]);
        for (elems, place) in self.vectors.iter().zip(p.vectors) {
            for (k, e) in elems.iter().enumerate() {
                let value = match e {
                    VectorElem::F32(n) => Operand::F32(*n),
                    VectorElem::Int(n) => Operand::Int(*n),
                    VectorElem::Reg(r) => Operand::Reg(*r),
                    _ => continue,
                };
                self.emit(body, Op::st, &[Mod::param, Mod::b32], vec![at(place, k), value]);
            }
        }
        let variable = |v: VarId| Operand::Var(v, 0);
        let arguments = [p.handle].into_iter().chain(p.vectors).map(variable).collect();
        let results = Operand::List(vec![variable(p.result)]);
        self.emit(body, Op::call, &[], vec![results, Operand::Func(callee), Operand::List(arguments)]);
        for (k, e) in self.results.iter().enumerate() {
            if let VectorElem::Reg(r) = e {
                self.emit(body, Op::ld, &[Mod::param, Mod::b32], vec![Operand::Reg(*r), at(p.result, 1 + k)]);
            }
        }
        if let Some(resident) = self.resident {
            let word = body.regs.push(ptx::ast::Reg { name: "%resident".into(), ty: Type::b32 });
            self.emit(body, Op::ld, &[Mod::param, Mod::b32], vec![Operand::Reg(word), at(p.result, 0)]);
            let compare = vec![Operand::Reg(resident), Operand::Reg(word), Operand::Int(0)];
            self.emit(body, Op::setp, &[Mod::ne, Mod::b32], compare);
        }
    }
}
