//! Textures, samplers and surfaces in operands: by name, of the kind that an instruction takes, or as handles in registers
//! (what ptxas 13.0.88 takes).

use super::Checker;
use super::address::takes_images;
use super::inst::full_name;
use crate::ast::{AddrBase, Body, Inst, Opaque, Operand, Space};
use crate::isa::{Mod, Op, Type, TypeClass};

/// What a query is about that is a sampler's.
const OF_SAMPLERS: [Mod; 5] =
    [Mod::force_unnormalized_coords, Mod::filter_mode, Mod::addr_mode_0, Mod::addr_mode_1, Mod::addr_mode_2];

/// Why an operand of an instruction that takes textures, samplers or surfaces is none for it. Arguments count from 0.
pub(super) enum Misfit {
    /// Of another kind or type.
    Mismatch,
    /// This argument is to be of this kind, or a handle.
    Expected(usize, Opaque),
    /// The argument after a texture is to be a sampler.
    SamplerExpected(usize),
    /// There is a sampler, but textures have theirs with them.
    OwnSampler,
    /// An address where one has no meaning.
    Access,
    /// A handle in another type than `.u64`.
    Handle(Opaque),
    /// A generic address of one.
    GenericAddress(Opaque),
    /// No vector has so many elements.
    VectorSize(usize),
    /// A vector of fewer, or other, coordinates than the geometry has.
    Geometry,
    /// The index of an array is of another type.
    ArrayIndex,
    /// This argument is to be a vector.
    VectorExpected(usize),
    /// The geometry has no such access.
    Modifier(Mod),
}

/// What a texture, sampler or surface is called in messages.
fn noun(kind: Opaque) -> &'static str {
    match kind {
        Opaque::Texture => "texture",
        Opaque::Sampler => "sampler",
        Opaque::Surface => "surface",
    }
}

impl Misfit {
    /// ptxas's words for it, in an instruction of this name.
    pub(super) fn message(&self, name: &str) -> String {
        match self {
            Misfit::Mismatch => format!("Arguments mismatch for instruction '{name}'"),
            Misfit::Expected(n, kind) => {
                format!("Argument {n} of instruction '{name}': .{} or .u64 register expected", kind.name())
            }
            Misfit::SamplerExpected(n) => {
                format!("Argument {n} of instruction '{name}': .samplerref or .u64 register expected")
            }
            Misfit::OwnSampler => {
                format!("Instruction '{name}' with a sampler requires .target texmode_independent")
            }
            Misfit::Access => format!("Illegal operand type to instruction '{name}'"),
            Misfit::Handle(kind) => format!("Indirect access to {} requires .u64 type", noun(*kind)),
            Misfit::GenericAddress(kind) => {
                format!("Instruction '{name}' of the address of a {} is not supported yet", noun(*kind))
            }
            Misfit::VectorSize(n) => format!("Illegal vector size: {n}"),
            Misfit::Geometry => {
                format!("Operand vector size doesn't match geometry for instruction '{name}'")
            }
            Misfit::ArrayIndex => {
                format!("Array index in the '{name}' instruction has unexpected type. Expecting type .u32")
            }
            Misfit::VectorExpected(n) => format!("Vector expected for argument {n}"),
            Misfit::Modifier(m) => format!("Illegal modifier '.{}' for instruction '{name}'", m.name()),
        }
    }
}

impl Checker<'_> {
    /// All of an instruction's.
    pub(super) fn images(&mut self, body: &Body, inst: &Inst) {
        let found = match takes_images(inst.op) {
            true => self.image_operands(body, inst),
            false => self.images_elsewhere(inst),
        };
        if let Err(misfit) = found {
            self.error(inst.span, misfit.message(&full_name(inst)));
        }
    }

    fn independent(&self) -> bool {
        self.module.targets.iter().any(|t| t == "texmode_independent")
    }

    fn image_operands(&self, body: &Body, inst: &Inst) -> Result<(), Misfit> {
        let Some((at, list)) = inst.operands.iter().enumerate().find_map(|(at, o)| match o {
            Operand::Bracket(list) => Some((at, &list[..])),
            Operand::Addr(_) => Some((at, std::slice::from_ref(o))),
            _ => None,
        }) else {
            return Ok(());
        };
        let sampled = matches!(inst.op, Op::tex | Op::tld4);
        let kind = match inst.op {
            Op::tex | Op::tld4 => Opaque::Texture,
            Op::txq if self.independent() && inst.one_of(&OF_SAMPLERS).is_some() => Opaque::Sampler,
            Op::txq => Opaque::Texture,
            _ => Opaque::Surface,
        };
        self.image(body, &list[0], kind, at)?;
        match list {
            [_, _] if sampled && self.independent() => Err(Misfit::SamplerExpected(at + 1)),
            [_, sampler, _] if sampled && self.independent() => {
                self.image(body, sampler, Opaque::Sampler, at + 1)
            }
            // There ptxas takes the sampler for the coordinates.
            [_, _, _] if sampled => Err(Misfit::OwnSampler),
            _ => Ok(()),
        }
    }

    /// One of them, of this kind; as the argument of this number of an instruction.
    fn image(&self, body: &Body, o: &Operand, kind: Opaque, n: usize) -> Result<(), Misfit> {
        match o {
            Operand::Reg(r) | Operand::Addr(crate::ast::Addr { base: AddrBase::Reg(r), .. }) => {
                let ty = body.regs[*r].ty;
                let fits = ty.bytes() == 8 && ty.class() != TypeClass::Float;
                if fits { Ok(()) } else { Err(Misfit::Mismatch) }
            }
            Operand::Var(v, _) | Operand::Addr(crate::ast::Addr { base: AddrBase::Var(v), .. }) => {
                let var = &self.module.vars[*v];
                match var.opaque {
                    Some(k) if k == kind && var.dims.is_empty() => Ok(()),
                    _ if !var.dims.is_empty() => Err(Misfit::Mismatch),
                    None if var.space != Space::Param => Err(Misfit::Mismatch),
                    _ => Err(Misfit::Expected(n, kind)),
                }
            }
            _ => Err(Misfit::Mismatch),
        }
    }

    /// They are nothing else than textures, samplers and surfaces; `mov` makes handles of them.
    fn images_elsewhere(&self, inst: &Inst) -> Result<(), Misfit> {
        for o in &inst.operands {
            let (var, access) = match o {
                Operand::Var(v, _) => (v, false),
                Operand::Addr(crate::ast::Addr { base: AddrBase::Var(v), .. }) => (v, true),
                _ => continue,
            };
            let Some(kind) = self.module.vars[*var].opaque else { continue };
            if access {
                return Err(Misfit::Access);
            }
            match inst.op {
                Op::mov if inst.types().last() == Some(Type::u64) => {}
                Op::mov => return Err(Misfit::Handle(kind)),
                Op::cvta => return Err(Misfit::GenericAddress(kind)),
                _ => return Err(Misfit::Mismatch),
            }
        }
        Ok(())
    }
}
