//! The checks of tensor memory accesses (`-g-tmem-access-check`, docs/matrix.md): in front of a statement, code looks at what it is about
//! to touch, and calls a function that traps where it may not. A debugger shows that function's name.
//!
//! [`RULES`] is what ptxas 13.0.88 checks, statement by statement (probes of every spelling of the table on sm_100a, 103a, 110a).

use crate::access;
use crate::call::{emit_call, internal_function};
use crate::emit::{Emit, as_imm, imm, ineg, rz};
use crate::func::{Lower, Result};
use crate::tensor_memory::{RELINQUISHED, TAKEN, shared};
use ori::{Builder, Callee, Function, Operand, Terminator, Value, abi, operand};
use ptx::{Mod as M, SpecialReg as S};
use sass::{Mod, Opcode, Target};

/// What a statement does to tensor memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// `alloc`
    Take,
    /// `dealloc`
    GiveBack,
    /// `ld` and `st`
    Move,
    /// `cp`
    Copy,
    /// `shift`
    Shift,
    /// `mma`
    Multiply,
}

/// An operand that is an address in tensor memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// Columns from the first on: nothing says yet where they will be.
    Start,
    /// The only one that there is.
    Address,
    /// The accumulator.
    D,
    /// The first factor, where it is in tensor memory.
    A,
    /// The factors of the blocks of A.
    ScalesOfA,
    /// Those of B.
    ScalesOfB,
    /// What says which elements of a sparse A there are.
    Metadata,
}

/// How many columns from there on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Columns {
    /// As many as the statement says, by an operand or its shape.
    Said,
    /// Always so many.
    Are(u32),
    /// As many as D has by the descriptor.
    OfD,
    /// Four; of a dense product of a pair of blocks with 128 rows, two.
    OfScalesOfA,
    /// Two for each 64 columns of D that are begun.
    OfScalesOfB,
}

/// What may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// Nothing may be taken any more.
    Phase,
    /// Columns beyond the last one.
    Bounds,
    /// The number of columns is no power of two.
    Granularity,
    /// Columns that the block has not taken.
    Taken,
    /// Lanes of another warp.
    Quarter,
    /// Lanes at which no such matrix may begin.
    Lanes,
    /// Instruction and descriptor disagree about whether A is sparse.
    Sparse,
    /// Columns to be given back that the block has not taken.
    GivenBack,
    /// Columns to be given back that were not taken by themselves.
    FirstGivenBack,
}

use Check::{Bounds, Granularity, Lanes, Phase, Quarter, Sparse, Taken};

/// What is checked of a statement: of which operand, of how many columns, and what, in this order; operands that a statement has not
/// got are left out. ([`Check::GivenBack`] and [`Check::FirstGivenBack`] are part of `dealloc` itself, whether checks are asked for or
/// not, and so is [`Check::Phase`] of `alloc`.)
///
/// Of `16x32bx2` the second half is not looked at. ptxas has one more check, for products of 4-bit numbers on targets `sm_…f`: that
/// the descriptor does not say that A is sparse. These have no `.sp` there, so that [`Sparse`] traps before it.
const RULES: &[(Deed, At, Columns, &[Check])] = &[
    (Deed::Take, At::Start, Columns::Said, &[Phase, Bounds, Granularity]),
    (Deed::GiveBack, At::Address, Columns::Said, &[Bounds]),
    (Deed::Move, At::Address, Columns::Said, &[Bounds, Taken, Quarter]),
    (Deed::Copy, At::Address, Columns::Said, &[Bounds, Taken]),
    (Deed::Shift, At::Address, Columns::Are(8), &[Bounds, Taken]),
    (Deed::Multiply, At::D, Columns::OfD, &[Bounds, Taken, Lanes, Sparse]),
    (Deed::Multiply, At::A, Columns::Are(8), &[Bounds, Taken, Lanes]),
    (Deed::Multiply, At::ScalesOfA, Columns::OfScalesOfA, &[Bounds, Taken, Lanes]),
    (Deed::Multiply, At::ScalesOfB, Columns::OfScalesOfB, &[Bounds, Taken, Lanes]),
    (Deed::Multiply, At::Metadata, Columns::Are(2), &[Bounds, Taken, Lanes]),
];

/// Columns of tensor memory.
const ALL: u32 = 512;

/// What the checks want to know of a statement.
pub(crate) struct Facts<'o> {
    /// Its addresses.
    pub at: &'o [(At, Operand)],
    /// How many columns it says that it is about.
    pub columns: Operand,
    /// The descriptor of a product.
    pub descriptor: Operand,
    /// Whether that is one of a pair of blocks, of a sparse A, with stationary weights.
    pub pair: bool,
    pub sparse: bool,
    pub stationary: bool,
}

impl<'o> Facts<'o> {
    /// Of a statement other than a product.
    pub(crate) fn of(at: &'o [(At, Operand)], columns: Operand) -> Facts<'o> {
        Facts { at, columns, descriptor: rz(), pair: false, sparse: false, stationary: false }
    }

    /// The rows with which matrices may begin in the middle of a quarter of the lanes, too, in 16 rows as the descriptor has them.
    fn rows_of_halves(&self) -> Option<u32> {
        match (self.stationary, self.pair, self.sparse) {
            (true, ..) | (false, true, false) => None,
            (false, false, _) => Some(64 >> 4),
            (false, true, true) => Some(128 >> 4),
        }
    }
}

impl Check {
    /// Those that have a function.
    const EACH: [Check; 9] =
        [Phase, Bounds, Granularity, Taken, Quarter, Lanes, Sparse, Check::GivenBack, Check::FirstGivenBack];

    /// The function that traps: its name ends as that of ptxas's, which people look for.
    fn function(self) -> String {
        let what = match self {
            Phase => "phase_invalid_during_alloc",
            Bounds => "access_out_of_physical_bounds",
            Granularity => "allocation_granularity_invalid",
            Taken => "unallocated_columns_access",
            Quarter => "current_warp_owner_invalid",
            Lanes => "invalid_datapath_alignment",
            Sparse => "sparse_mismatch_between_idesc_mod",
            Check::GivenBack => "unallocated_columns_being_dealloced",
            Check::FirstGivenBack => "col_being_dealloced_not_returned_by_alloc",
        };
        format!("{}tcgen05_guardrail_trap_{what}", abi::SHARED)
    }
}

/// The function of a name, if it is that of such a trap, within `max_regs` registers.
pub(crate) fn function(name: &str, target: Target, max_regs: u8) -> Option<Function> {
    Check::EACH.iter().find(|c| c.function() == name)?;
    Some(internal_function(name, target, max_regs, |b| {
        trap(b);
        Vec::new()
    }))
}

/// Whether the checks of a statement read which columns are taken.
pub fn reads_taken(inst: &ptx::Inst) -> bool {
    let deed = match inst.op {
        ptx::Op::tcgen05 if inst.has(M::ld) || inst.has(M::st) => Deed::Move,
        ptx::Op::tcgen05 if inst.has(M::cp) => Deed::Copy,
        ptx::Op::tcgen05 if inst.has(M::shift) => Deed::Shift,
        ptx::Op::tcgen05 if inst.has(M::mma) => Deed::Multiply,
        _ => return false,
    };
    RULES.iter().any(|r| r.0 == deed && r.3.contains(&Taken))
}

fn trap(b: &mut Builder<'_>) {
    b.inst(Opcode::BPT, &[Mod::TRAP], &[Operand::Imm(1)]);
}

impl Lower<'_, '_> {
    /// Reports misuse, where checks are asked for by a function that says what is wrong.
    pub(crate) fn misused(&mut self, check: Check) {
        match self.opts.extra.tensor_checks {
            true => emit_call(&mut self.b, Callee::Internal(check.function()), None, Vec::new()),
            false => trap(&mut self.b),
        }
    }

    /// What [`RULES`] say of a statement, if that is asked for.
    pub(crate) fn check_tensor_memory(&mut self, deed: Deed, facts: &Facts<'_>) -> Result<()> {
        if !self.opts.extra.tensor_checks {
            return Ok(());
        }
        for (_, which, columns, checks) in RULES.iter().filter(|r| r.0 == deed) {
            let at = match which {
                At::Start => rz(),
                _ => match facts.at.iter().find(|(w, _)| w == which) {
                    Some((_, at)) => *at,
                    None => continue,
                },
            };
            let at = operand(self.b.reg(&at));
            let columns = self.checked_columns(*columns, facts);
            for check in *checks {
                let wrong = match check {
                    Phase => self.may_take_no_more(),
                    Bounds => self.out_of_bounds(at, columns),
                    Granularity => {
                        let columns = operand(self.b.reg(&columns));
                        let bits = self.b.def(Opcode::POPC, &[], &[columns]);
                        self.b.isetp(Mod::NE, false, operand(bits), imm(1))
                    }
                    Taken => self.not_taken(at, columns),
                    Quarter => self.other_warps(at)?,
                    Lanes => self.between_lanes(at, facts),
                    Sparse => {
                        let says = self.field(facts.descriptor, 2, 1);
                        self.b.isetp(Mod::NE, false, operand(says), imm(facts.sparse.into()))
                    }
                    Check::GivenBack | Check::FirstGivenBack => continue,
                };
                self.stop_where(wrong, *check);
            }
        }
        Ok(())
    }

    fn stop_where(&mut self, wrong: Value, check: Check) {
        let [misuse, go_on] = [(); 2].map(|()| self.b.func.add_block());
        self.branch(wrong, misuse, go_on);
        self.b.block = misuse;
        self.misused(check);
        self.b.terminate(Terminator::Jump(Builder::call(go_on)));
        self.b.block = go_on;
    }

    /// Some bits of a word.
    fn field(&mut self, word: Operand, at: u32, mask: u32) -> Value {
        let word = operand(self.b.reg(&word));
        let up = self.b.shr(false, word, imm(at));
        self.b.and(operand(up), imm(mask))
    }

    /// The 16 rows of D that the descriptor says.
    fn rows(&mut self, facts: &Facts<'_>) -> Operand {
        operand(self.field(facts.descriptor, 24, 0x1f))
    }

    fn checked_columns(&mut self, columns: Columns, facts: &Facts<'_>) -> Operand {
        // The descriptor has the columns of D by eights.
        let eights = |l: &mut Self| operand(l.field(facts.descriptor, 17, 0x3f));
        match columns {
            Columns::Said => facts.columns,
            Columns::Are(n) => imm(n),
            Columns::OfD => {
                let eights = eights(self);
                operand(self.b.shl(eights, imm(3)))
            }
            Columns::OfScalesOfA if facts.pair && !facts.sparse => {
                let rows = self.rows(facts);
                let other = self.b.isetp(Mod::NE, false, rows, imm(128 >> 4));
                let four = operand(self.b.reg(&imm(4)));
                operand(self.b.sel(operand(other), four, imm(2)))
            }
            Columns::OfScalesOfA => imm(4),
            Columns::OfScalesOfB => {
                let eights = eights(self);
                let up = self.b.iadd(eights, imm(7));
                let sixty_fours = self.b.shr(false, operand(up), imm(3));
                operand(self.b.shl(operand(sixty_fours), imm(1)))
            }
        }
    }

    /// The last of so many columns from one on.
    fn last_column(&mut self, first: Value, columns: Operand) -> Value {
        match as_imm(&columns) {
            Some(n) => self.b.iadd(operand(first), imm(n.wrapping_sub(1))),
            None => self.b.iadd3(operand(first), columns, imm(!0)),
        }
    }

    fn may_take_no_more(&mut self) -> Value {
        let flag = self.reserved_word(RELINQUISHED);
        let flag = access::load(&mut self.b, &shared(1), flag, ori::ALWAYS, None);
        self.b.isetp(Mod::NE, false, operand(flag), rz())
    }

    fn out_of_bounds(&mut self, at: Operand, columns: Operand) -> Value {
        let first = self.b.and(at, imm(0xffff));
        let last = self.last_column(first, columns);
        let [first, last] =
            [first, last].map(|c| operand(self.b.isetp(Mod::GE, false, operand(c), imm(ALL))));
        self.b.plop(first, last, 0xfc)
    }

    /// Whether the block has not taken all the slots of 32 columns that these are in.
    fn not_taken(&mut self, at: Operand, columns: Operand) -> Value {
        let first = self.b.and(at, imm(ALL - 1));
        let last = self.last_column(first, columns);
        let slot = operand(self.b.shr(false, operand(first), imm(5)));
        let last_slot = operand(self.b.shr(true, operand(last), imm(5)));
        let slots = self.b.iadd3(last_slot, ineg(slot), imm(1));
        let all = operand(self.b.reg(&imm(!0)));
        let above = operand(self.b.shl(all, operand(slots)));
        let below = self.b.lop3(above, rz(), rz(), 0x0f);
        let wanted = operand(self.b.shl(operand(below), slot));
        let taken = self.reserved_word(TAKEN);
        let taken = operand(access::load(&mut self.b, &shared(4), taken, ori::ALWAYS, None));
        let lacking = self.b.lop3(wanted, taken, rz(), 0x30);
        self.b.isetp(Mod::NE, false, operand(lacking), rz())
    }

    /// Whether the lanes are another warp's: of four that follow each other each has a quarter.
    fn other_warps(&mut self, at: Operand) -> Result<Value> {
        let mut of = |s, c| self.special(s, Some(c)).map(|v| v.low());
        let [x, y, z, wide, high] =
            [of(S::tid, 0)?, of(S::tid, 1)?, of(S::tid, 2)?, of(S::ntid, 0)?, of(S::ntid, 1)?];
        let [x, y, z] = [x, y, z].map(|o| operand(self.b.reg(&o)));
        let row = operand(self.b.imad(z, high, y));
        let thread = operand(self.b.imad(row, wide, x));
        let own = self.field(thread, 5, 3);
        let asked = self.field(at, 21, 3);
        Ok(self.b.isetp(Mod::NE, false, operand(own), operand(asked)))
    }

    /// Whether no matrix of the product may begin at the lane.
    fn between_lanes(&mut self, at: Operand, facts: &Facts<'_>) -> Value {
        let lane = operand(self.field(at, 16, 0x1f));
        let inside = self.b.isetp(Mod::NE, false, lane, rz());
        let Some(halves) = facts.rows_of_halves() else { return inside };
        let middle = operand(self.b.isetp(Mod::NE, false, lane, imm(16)));
        let rows = self.rows(facts);
        let whole = operand(self.b.isetp(Mod::NE, false, rows, imm(halves)));
        let neither = operand(self.b.plop(middle, whole, 0xfc));
        self.b.plop(operand(inside), neither, 0xc0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_well_formed() {
        let target = Target::new(100).expect("a target");
        for c in Check::EACH {
            let f = function(&c.function(), target, 255).expect("a function");
            assert_eq!(ori::verify::verify(&f), Ok(()), "{f}");
        }
    }
}
