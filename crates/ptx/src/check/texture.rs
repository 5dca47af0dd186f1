//! Textures and surfaces: as many coordinates as the geometry has, their types, offsets, and the depth to compare.

use super::Checker;
use super::image::Misfit;
use super::inst::full_name;
use super::operand::register_fits;
use crate::ast::{Body, Inst, Operand, VectorElem};
use crate::isa::{Mod, Op, Type, TypeClass};

/// How many coordinates a geometry has, in its vector, and how many differences of them.
const GEOMETRIES: &[(Mod, usize, usize)] = &[
    (Mod::_1d, 1, 1),
    (Mod::_2d, 2, 2),
    (Mod::_3d, 4, 4),
    (Mod::a1d, 2, 1),
    (Mod::a2d, 4, 2),
    (Mod::cube, 4, 4),
    (Mod::acube, 4, 4),
    (Mod::_2dms, 4, 2),
    (Mod::a2dms, 4, 2),
];

/// Whether a value of an operand can be of this type.
fn fits(body: &Body, e: &VectorElem, ty: Type) -> bool {
    match e {
        VectorElem::Reg(r) => register_fits(body.regs[*r].ty, ty, false),
        VectorElem::Int(_) => true,
        VectorElem::F32(_) | VectorElem::F64(_) => ty == Type::f32,
        VectorElem::Sink => false,
    }
}

/// The values of an operand that is a vector, or one value.
fn values(o: &Operand) -> Option<Vec<VectorElem>> {
    Some(match o {
        Operand::Vector(elems) => elems.to_vec(),
        Operand::Reg(r) => vec![VectorElem::Reg(*r)],
        Operand::Int(n) => vec![VectorElem::Int(*n)],
        Operand::F32(n) => vec![VectorElem::F32(*n)],
        Operand::F64(n) => vec![VectorElem::F64(*n)],
        _ => return None,
    })
}

impl Checker<'_> {
    pub(super) fn texture(&mut self, body: &Body, inst: &Inst) {
        self.residency(body, inst);
        if let Err(misfit) = texture_operands(body, inst) {
            self.error(inst.span, misfit.message(&full_name(inst)));
        }
    }

    /// The predicate after the result.
    fn residency(&mut self, body: &Body, inst: &Inst) {
        let Some(Operand::Resident(_, p)) = inst.operands.first() else { return };
        let feature = "Feature 'Texture instruction with optional predicate result'";
        if self.sm < 60 {
            self.error(inst.span, format!("{feature} requires .target sm_60 or higher"));
        }
        if self.module.version < (7, 1) {
            self.error(inst.span, format!("{feature} requires PTX ISA .version 7.1 or later"));
        }
        if body.regs[*p].ty != Type::pred {
            let message = format!("Predicate output expected for instruction '{}'", full_name(inst));
            self.error(inst.span, message);
        }
    }
}

fn texture_operands(body: &Body, inst: &Inst) -> Result<(), Misfit> {
    let Some(&(geometry, coordinates, differences)) = GEOMETRIES.iter().find(|g| inst.has(g.0)) else {
        return Ok(());
    };
    let sampled = matches!(inst.op, Op::tex | Op::tld4);
    let ty = if sampled { inst.types().last().unwrap_or(Type::s32) } else { Type::s32 };
    let Some(at) = inst.operands.iter().position(|o| matches!(o, Operand::Bracket(_))) else {
        return Ok(());
    };
    if let Operand::Bracket(list) = &inst.operands[at] {
        let elems = list.last().and_then(values).ok_or(Misfit::Mismatch)?;
        if !matches!(elems.len(), 1 | 2 | 4) {
            return Err(Misfit::VectorSize(elems.len()));
        }
        if elems.len() < coordinates {
            return Err(Misfit::Geometry);
        }
        let array = matches!(geometry, Mod::a1d | Mod::a2d | Mod::acube | Mod::a2dms) && sampled;
        if array && !fits(body, &elems[0], Type::u32) {
            return Err(Misfit::ArrayIndex);
        }
        if !elems[usize::from(array)..].iter().all(|e| fits(body, e, ty)) {
            return Err(Misfit::Mismatch);
        }
    }
    if !sampled {
        return Ok(());
    }
    let mut rest = inst.operands[at + 1..].iter().enumerate();
    if inst.has(Mod::level) {
        rest.next();
    }
    if inst.has(Mod::grad) {
        for (n, o) in rest.by_ref().take(2) {
            let braced = inst.is_braced(at + 1 + n) || matches!(o, Operand::Vector(_));
            let elems = values(o).filter(|_| braced);
            let elems = elems.ok_or(Misfit::VectorExpected(n + at + 2))?;
            if elems.len() != differences {
                return Err(Misfit::Geometry);
            }
            if !elems.iter().all(|e| fits(body, e, Type::f32)) {
                return Err(Misfit::Mismatch);
            }
        }
    }
    let mut depth = rest.next();
    if let Some((n, o)) = depth
        && (inst.is_braced(at + 1 + n) || matches!(o, Operand::Vector(_)))
    {
        // No face has texels beside it.
        if matches!(geometry, Mod::cube | Mod::acube) {
            return Err(Misfit::Modifier(geometry));
        }
        let elems = values(o).ok_or(Misfit::Mismatch)?;
        if elems.len() == 3 {
            return Err(Misfit::VectorSize(3));
        }
        if elems.len() < differences {
            return Err(Misfit::Geometry);
        }
        if !elems.iter().all(|e| fits(body, e, Type::s32)) {
            return Err(Misfit::Mismatch);
        }
        depth = rest.next();
        if let Some((_, o)) = depth {
            if geometry == Mod::_3d {
                return Err(Misfit::Modifier(geometry));
            }
            let depth = values(o).filter(|_| ty == Type::f32).ok_or(Misfit::Mismatch)?;
            let fit = depth.len() == 1 && fits(body, &depth[0], Type::f32);
            return if fit && !matches!(o, Operand::Int(_)) { Ok(()) } else { Err(Misfit::Mismatch) };
        }
        return Ok(());
    }
    // Alone, ptxas takes any 32 bits for the depth, but no floating-point ones beside integer coordinates.
    let Some((_, o)) = depth else { return Ok(()) };
    if geometry == Mod::_3d {
        return Err(Misfit::Modifier(geometry));
    }
    let one = values(o).filter(|v| v.len() == 1).ok_or(Misfit::Mismatch)?;
    let fit = match one[0] {
        VectorElem::Reg(r) => {
            let reg = body.regs[r].ty;
            reg.bytes() == 4 && reg != Type::pred && (ty == Type::f32 || reg.class() != TypeClass::Float)
        }
        ref e => fits(body, e, ty),
    };
    if fit && rest.next().is_none() { Ok(()) } else { Err(Misfit::Mismatch) }
}
