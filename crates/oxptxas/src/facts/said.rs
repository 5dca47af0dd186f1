//! What statements of the PTX say of code that its instructions don't.

use super::offset_of;
use backend::Code;
use cubin::MbarrierKind;
use sass::{Inst, Mod, Opcode};
use std::collections::BTreeSet;

/// The `.sync` statements that ptxas lists what stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Sync {
    /// Also products of matrices that are made of shuffles.
    Shuffle,
    Vote,
    Match,
    Reduction,
    /// `bar.warp.sync`.
    Warp,
    /// `barrier.sync` and `.red` without `.aligned`.
    Barrier,
    /// What a NOP is left of: `barrier.cluster.arrive` in a kernel without clusters; the meetings of lanes before and after
    /// columns of tensor memory are taken or given back.
    Left,
}

impl Sync {
    fn of(inst: &ptx::Inst) -> Option<Sync> {
        use ptx::{Mod as M, Op as O};
        Some(match inst.op {
            O::shfl | O::mma => Sync::Shuffle,
            O::vote => Sync::Vote,
            O::_match => Sync::Match,
            O::redux => Sync::Reduction,
            O::bar if inst.has(M::warp) => Sync::Warp,
            O::tcgen05 if inst.has(M::alloc) || inst.has(M::dealloc) => Sync::Left,
            O::barrier if inst.has(M::cluster) && inst.has(M::arrive) => Sync::Left,
            O::barrier if !inst.has(M::aligned) && !inst.has(M::arrive) && !inst.has(M::cluster) => {
                Sync::Barrier
            }
            _ => return None,
        })
    }
    /// Whether the instruction is what the statement asks for.
    fn is(self, inst: &Inst) -> bool {
        match self {
            Sync::Shuffle => inst.op == Opcode::SHFL,
            Sync::Vote => inst.op == Opcode::VOTE,
            Sync::Match => inst.op == Opcode::MATCH,
            Sync::Reduction => matches!(inst.op, Opcode::REDUX | Opcode::CREDUX),
            Sync::Warp => matches!(inst.op, Opcode::WARPSYNC | Opcode::NOP),
            Sync::Barrier => inst.op == Opcode::BAR && !inst.mods.has(Mod::ARV),
            Sync::Left => inst.op == Opcode::NOP,
        }
    }
}

/// What statements say of code that its instructions don't.
#[derive(Clone, Default)]
pub(crate) struct Said {
    /// There is a `wmma`.
    pub(super) wmma: bool,
    /// Tensor memory is a block's own.
    pub(super) blocks: bool,
    /// It is that of a pair of blocks.
    pub(super) pairs: bool,
    /// Checks read which columns of it are taken.
    pub(super) reads_taken: bool,
    /// `.sync` statements and their lines.
    gathers: BTreeSet<(u32, Sync)>,
    /// Statements on mbarriers and their lines.
    mbarriers: BTreeSet<(u32, MbarrierKind)>,
    /// What statements ask for whose instructions don't say so.
    pub(super) asks: sass::Asks,
}

impl Said {
    /// By these functions, for a target, with what is asked for beside.
    pub(crate) fn by<'m>(
        sm: u8,
        extra: ori::Extra,
        funcs: impl IntoIterator<Item = &'m ptx::Func>,
        lines: Option<&ptx::LineIndex>,
    ) -> Said {
        let mut said = Said::default();
        for stmt in funcs.into_iter().flat_map(|f| &f.body).flat_map(|b| &b.stmts) {
            let ptx::Stmt::Inst(inst) = stmt else { continue };
            said.wmma |= inst.op == ptx::Op::wmma;
            said.blocks |= inst.op == ptx::Op::tcgen05 && inst.has(ptx::Mod::cta_group_1);
            said.pairs |= inst.op == ptx::Op::tcgen05 && inst.has(ptx::Mod::cta_group_2);
            said.reads_taken |= extra.tensor_checks && lower::reads_taken(inst);
            said.asks.join(super::asks::of_statement(sm, inst));
            let Some(lines) = lines else { continue };
            let line = lines.line(inst.span.start);
            said.gathers.extend(Sync::of(inst).map(|sync| (line, sync)));
            said.mbarriers.extend(super::mbarriers::kind(inst).map(|kind| (line, kind)));
        }
        said
    }

    /// Which instructions of the code stand for `.sync` statements.
    pub(super) fn stand_for(&self, code: &Code) -> Vec<bool> {
        let stands = |(k, inst): (usize, &Inst)| {
            let line = line_of(code, k);
            self.gathers.range((line, Sync::Shuffle)..=(line, Sync::Left)).any(|(_, sync)| sync.is(inst))
        };
        if self.gathers.is_empty() {
            return vec![false; code.insts.len()];
        }
        code.insts.iter().enumerate().map(stands).collect()
    }

    /// What the statements that instruction `k` is of do with mbarriers.
    pub(super) fn mbarriers(&self, code: &Code, k: usize) -> impl Iterator<Item = MbarrierKind> {
        let line = line_of(code, k);
        self.mbarriers.range((line, MbarrierKind::Init)..=(line, MbarrierKind::CompleteTx)).map(|m| m.1)
    }
}

/// The line of the PTX that instruction `k` is of.
fn line_of(code: &Code, k: usize) -> u32 {
    let after = code.lines.partition_point(|l| l.0 <= offset_of(k));
    after.checked_sub(1).map_or(0, |n| code.lines[n].1)
}
