//! One thread's state, and how operands read and write it.

use super::Fault;
use super::decode::{Code, Place, Program, STACK_PARAMS, function_address, garbage, unwritten};
use super::int::{mask, value};
use crate::fp::{self, F64, Round};
use crate::launch::Launch;
use crate::memory::{GRID_WORKSPACE, Memory};
use ::ptx::ast::{FuncId, Operand, RegId, Space, VarId, VectorElem};
use ::ptx::{SpecialReg, Type};

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It can go on.
    Ready,
    /// At a barrier of the block.
    Barrier(u8),
    /// At a `.sync` instruction of the warp, for these lanes.
    Sync(u32),
    /// Done.
    Exited,
}

/// A caller to return to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub func: FuncId,
    /// The call.
    pub pc: u32,
    pub registers: usize,
    pub frame: u64,
}

/// A thread.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub state: State,
    pub pc: u32,
    pub func: FuncId,
    pub callers: Vec<Caller>,
    /// Registers of all active functions; those of the running one start at `registers`.
    pub regs: Vec<u64>,
    pub registers: usize,
    /// Local memory: a stack of frames; that of the running function starts at `frame`.
    pub local: Vec<u8>,
    pub frame: u64,
    /// The condition code of `.cc` instructions.
    pub carry: bool,
    pub tid: [u32; 3],
    /// Number in the block.
    pub index: u32,
    /// Number of the block in its cluster.
    pub rank: u32,
    /// Groups of copies that it left for later.
    pub groups: super::late::Groups,
}

/// What the threads of a block share.
pub(super) struct Env<'e, 'm> {
    pub program: &'e Program<'m>,
    pub launch: &'e Launch,
    pub params: &'e [u8],
    pub memory: &'e mut Memory,
    /// Shared memory of the blocks of the cluster.
    pub shared: Vec<Vec<u8>>,
    /// Their tensor memory.
    pub tmem: Vec<crate::tmem::Tmem>,
    /// Whether what is asynchronous is left for later, and what was.
    pub late: bool,
    pub pending: Vec<super::late::Pending>,
    pub ctaid: [u32; 3],
    /// What threads have printed.
    pub output: crate::output::Output,
    /// Warp instructions so far.
    pub clock: u64,
    /// Most of them.
    pub limit: u64,
    /// Places of global memory that are looked at.
    pub watch: &'e mut crate::watch::Watch<::ptx::Span>,
    /// Statements where threads are looked at.
    pub stops: Option<&'e mut crate::stops::Stops<u32, RegId>>,
}

/// The result of something that an instruction does; the caller adds the place to an error.
pub(super) type Res<T> = Result<T, Fault>;

impl Thread {
    pub fn new(program: &Program<'_>, kernel: FuncId, tid: [u32; 3], index: u32, rank: u32) -> Thread {
        let layout = &program.layouts[kernel];
        Thread {
            state: State::Ready,
            pc: layout.entry.unwrap_or(0),
            func: kernel,
            callers: Vec::new(),
            regs: layout.registers(program.fill, index),
            registers: 0,
            local: unwritten(program.fill, layout.frame as usize, index),
            frame: 0,
            carry: program.fill.seed() & 1 != 0,
            tid,
            index,
            rank,
            groups: Default::default(),
        }
    }

    /// Number in the warp.
    pub fn lane(&self) -> u32 {
        self.index % 32
    }

    pub fn reg(&self, program: &Program<'_>, r: RegId) -> u64 {
        self.regs[self.registers + program.slot(self.func, r)]
    }

    /// Writes a value of type `ty`, extended or cut to the register's width.
    pub fn set_reg(&mut self, program: &Program<'_>, r: RegId, component: u8, bits: u64, ty: Type) {
        let width = program.reg_type(self.func, r);
        let bits = if width.bytes() > ty.bytes() { value(bits, ty) as u64 } else { bits };
        let slot = self.registers + program.slot(self.func, r) + usize::from(component);
        self.regs[slot] = bits & mask(width);
    }

    /// Address of a variable in its space.
    pub fn var(&self, program: &Program<'_>, v: VarId) -> Res<u64> {
        let var = &program.module.vars[v];
        match program.places[v] {
            // The upper byte of an address of shared memory is the block's rank in its cluster.
            Place::Fixed(at) if var.space == Space::Shared => Ok(at | u64::from(self.rank) << 24),
            Place::Fixed(at) => Ok(at),
            Place::Frame(at) if var.space == Space::Param => Ok(STACK_PARAMS + self.frame + at),
            Place::Frame(at) => Ok(self.frame + at),
            Place::Missing => Err(format!("'{}' is not defined", var.name).into()),
        }
    }

    /// The bits of a source operand of type `ty`.
    pub fn read(&self, env: &Env<'_, '_>, o: &Operand, ty: Type) -> Res<u64> {
        let p = env.program;
        let bits = match o {
            Operand::Reg(r) => self.reg(p, *r),
            Operand::NotPred(r) => self.reg(p, *r) ^ 1,
            Operand::NegReg(r) if ty.is_float() => {
                self.reg(p, *r) ^ 1 << (super::float::format(ty).map_or(32, fp::Format::bits) - 1)
            }
            Operand::NegReg(r) => self.reg(p, *r).wrapping_neg(),
            Operand::Int(n) if ty == Type::pred => u64::from(*n != 0),
            Operand::Int(n) => *n,
            // Of a wider number these are the lower bits.
            Operand::F32(b) => (*b).into(),
            Operand::F64(b) => match super::float::format(ty) {
                Some(f) if f != F64 => fp::convert(*b, F64, f, Round::Nearest),
                _ => *b,
            },
            Operand::Special(s, c) => self.special(env, *s, *c)?,
            Operand::Var(v, 0) if p.module.vars[*v].opaque.is_some() => super::image::handle_of(env, *v)?,
            Operand::Var(v, offset) => self.var(p, *v)?.wrapping_add(*offset as u64),
            Operand::Func(f) => function_address(*f),
            Operand::Vector(elems) => {
                let width = ty.bits() / elems.len() as u32;
                let part = u64::MAX >> (64 - width.clamp(1, 64));
                let mut all = 0;
                for (i, e) in elems.iter().enumerate() {
                    all |= (self.elem(p, *e) & part) << (i as u32 * width);
                }
                all
            }
            _ => return Err("unsupported operand".into()),
        };
        Ok(bits & mask(ty))
    }

    /// An element of a source vector.
    pub fn elem(&self, program: &Program<'_>, e: VectorElem) -> u64 {
        match e {
            VectorElem::Reg(r) => self.reg(program, r),
            VectorElem::Int(n) | VectorElem::F64(n) => n,
            VectorElem::F32(n) => n.into(),
            VectorElem::Sink => 0,
        }
    }

    /// The same, of a number of type `ty`: what is written with a decimal point is rounded to it.
    pub fn elem_of(&self, program: &Program<'_>, e: VectorElem, ty: Type) -> u64 {
        match (e, super::float::format(ty)) {
            (VectorElem::F64(n), Some(f)) if f != F64 => fp::convert(n, F64, f, Round::Nearest),
            _ => self.elem(program, e),
        }
    }

    /// Writes a destination operand.
    pub fn write(&mut self, program: &Program<'_>, o: &Operand, bits: u64, ty: Type) -> Res<()> {
        match o {
            Operand::Reg(r) => self.set_reg(program, *r, 0, bits, ty),
            Operand::Pair(Some(r), _) => self.set_reg(program, *r, 0, bits, ty),
            Operand::Pair(None, _) | Operand::Sink => {}
            Operand::Vector(elems) => {
                let width = ty.bits() / elems.len() as u32;
                for (i, e) in elems.iter().enumerate() {
                    let part = bits >> (i as u32 * width) & (u64::MAX >> (64 - width.clamp(1, 64)));
                    if let VectorElem::Reg(r) = e {
                        let narrow = program.reg_type(self.func, *r);
                        self.set_reg(program, *r, 0, part, narrow);
                    }
                }
            }
            _ => return Err("unsupported destination".into()),
        }
        Ok(())
    }

    /// Writes the predicate of `d|p`, if there is one.
    pub fn write_second(&mut self, program: &Program<'_>, o: &Operand, p: bool) {
        if let Operand::Pair(_, Some(r)) = o {
            self.set_reg(program, *r, 0, p.into(), Type::pred);
        }
    }

    /// Whether the guard lets the instruction run.
    pub fn guarded(&self, program: &Program<'_>, code: &Code<'_>) -> bool {
        code.inst.guard.is_none_or(|(r, not)| (self.reg(program, r) != 0) != not)
    }

    fn special(&self, env: &Env<'_, '_>, s: SpecialReg, c: Option<u8>) -> Res<u64> {
        use SpecialReg as S;
        let (grid, block) = (env.launch.grid, env.launch.block);
        let cluster = env.launch.cluster.unwrap_or([1; 3]);
        let vector = |v: [u32; 3]| -> Res<u64> {
            match c {
                Some(c) => Ok(v.get(usize::from(c)).copied().unwrap_or(0).into()),
                None => Err(format!("'{}' needs a component", s.name()).into()),
            }
        };
        let lane = self.lane();
        let lanes = |bits: u64| Ok(bits & 0xffff_ffff);
        match s {
            S::tid => vector(self.tid),
            S::ntid => vector(block),
            S::ctaid => vector(env.ctaid),
            S::nctaid => vector(grid),
            S::clusterid => vector([0, 1, 2].map(|i| env.ctaid[i] / cluster[i])),
            S::nclusterid => vector([0, 1, 2].map(|i| grid[i] / cluster[i])),
            S::cluster_ctaid => vector([0, 1, 2].map(|i| env.ctaid[i] % cluster[i])),
            S::cluster_nctaid => vector(cluster),
            S::cluster_ctarank => Ok(u64::from(self.rank)),
            S::smid | S::gridid | S::clock_hi | S::globaltimer_hi => Ok(0),
            S::is_explicit_cluster => Ok(env.launch.cluster.is_some().into()),
            S::cluster_nctarank => Ok(cluster.iter().product::<u32>().into()),
            S::nsmid => Ok(1),
            S::laneid => Ok(lane.into()),
            S::warpid => Ok((self.index / 32).into()),
            S::nwarpid => Ok(block.iter().product::<u32>().div_ceil(32).into()),
            S::lanemask_eq => lanes(1 << lane),
            S::lanemask_lt => lanes((1 << lane) - 1),
            S::lanemask_le => lanes((2 << lane) - 1),
            S::lanemask_gt => lanes(!((2 << lane) - 1)),
            S::lanemask_ge => lanes(!((1 << lane) - 1)),
            // How fast it goes is not defined: another pace where other things that aren't differ, too.
            S::clock | S::clock64 | S::globaltimer | S::globaltimer_lo => {
                Ok(env.clock.wrapping_mul(1 + env.program.fill.seed()))
            }
            S::total_smem_size | S::aggr_smem_size => Ok(env.shared.first().map_or(0, Vec::len) as u64),
            S::dynamic_smem_size => Ok(env.launch.shared.into()),
            S::WARP_SZ => Ok(32),
            // Where the system keeps shared memory for itself is not defined: another place in other runs.
            S::reserved_smem_offset_begin
            | S::reserved_smem_offset_end
            | S::reserved_smem_offset_cap
            | S::reserved_smem_offset_0
            | S::reserved_smem_offset_1 => Ok(garbage(env.program.fill, s as usize) & 0xffff_ffff),
            _ if env.launch.cooperative && s.name() == "%envreg1" => Ok(GRID_WORKSPACE >> 32),
            _ if env.launch.cooperative && s.name() == "%envreg2" => Ok(GRID_WORKSPACE & 0xffff_ffff),
            // What else the driver puts there is its own affair; the simulators' drivers put nothing.
            // Counters that no tool has started.
            _ if s.name().starts_with("%envreg") || s.name().starts_with("%pm") => Ok(0),
            _ => Err(format!("special register '{}' is not supported", s.name()).into()),
        }
    }
}
