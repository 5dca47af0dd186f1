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

impl Checker<'_> {
    /// All of an instruction's.
    pub(super) fn images(&mut self, body: &Body, inst: &Inst) {
        let found = match takes_images(inst.op) {
            true => self.image_operands(body, inst),
            false => self.images_elsewhere(inst),
        };
        if let Err(message) = found {
            self.error(inst.span, message);
        }
    }

    fn independent(&self) -> bool {
        self.module.targets.iter().any(|t| t == "texmode_independent")
    }

    fn image_operands(&self, body: &Body, inst: &Inst) -> Result<(), String> {
        let name = full_name(inst);
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
        self.image(body, &list[0], kind, (at, &name))?;
        let expected =
            format!("Argument {} of instruction '{name}': .samplerref or .u64 register expected", at + 1);
        match list {
            [_, _] if sampled && self.independent() => Err(expected),
            [_, sampler, _] if sampled && self.independent() => {
                self.image(body, sampler, Opaque::Sampler, (at + 1, &name))
            }
            // There ptxas takes the sampler for the coordinates.
            [_, _, _] if sampled => {
                Err(format!("Instruction '{name}' with a sampler requires .target texmode_independent"))
            }
            _ => Ok(()),
        }
    }

    /// One of them, of this kind; as the argument of this number of an instruction.
    fn image(&self, body: &Body, o: &Operand, kind: Opaque, (n, name): (usize, &str)) -> Result<(), String> {
        let mismatch = || Err(format!("Arguments mismatch for instruction '{name}'"));
        let expected = || {
            Err(format!("Argument {n} of instruction '{name}': .{} or .u64 register expected", kind.name()))
        };
        match o {
            Operand::Reg(r) | Operand::Addr(crate::ast::Addr { base: AddrBase::Reg(r), .. }) => {
                let ty = body.regs[*r].ty;
                let fits = ty.bytes() == 8 && ty.class() != TypeClass::Float;
                if fits { Ok(()) } else { mismatch() }
            }
            Operand::Var(v, _) | Operand::Addr(crate::ast::Addr { base: AddrBase::Var(v), .. }) => {
                let var = &self.module.vars[*v];
                match var.opaque {
                    Some(k) if k == kind && var.dims.is_empty() => Ok(()),
                    _ if !var.dims.is_empty() => mismatch(),
                    None if var.space != Space::Param => mismatch(),
                    _ => expected(),
                }
            }
            _ => mismatch(),
        }
    }

    /// They are nothing else than textures, samplers and surfaces; `mov` makes handles of them.
    fn images_elsewhere(&self, inst: &Inst) -> Result<(), String> {
        let name = full_name(inst);
        for o in &inst.operands {
            let (var, access) = match o {
                Operand::Var(v, _) => (v, false),
                Operand::Addr(crate::ast::Addr { base: AddrBase::Var(v), .. }) => (v, true),
                _ => continue,
            };
            let Some(kind) = self.module.vars[*var].opaque else { continue };
            if access {
                return Err(format!("Illegal operand type to instruction '{name}'"));
            }
            let what = match kind {
                Opaque::Texture => "texture",
                Opaque::Sampler => "sampler",
                Opaque::Surface => "surface",
            };
            match inst.op {
                Op::mov if inst.types().last() == Some(Type::u64) => {}
                Op::mov => return Err(format!("Indirect access to {what} requires .u64 type")),
                Op::cvta => {
                    return Err(format!(
                        "Instruction '{name}' of the address of a {what} is not supported yet"
                    ));
                }
                _ => return Err(format!("Arguments mismatch for instruction '{name}'")),
            }
        }
        Ok(())
    }
}
