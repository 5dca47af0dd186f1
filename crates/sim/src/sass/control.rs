//! Control transfer and convergence: the model of `docs/simulator.md`.

use super::compile::{Unsupported, unsupported};
use super::operand::{Dst, Kind, Operands, Pred, Src, lanes};
use super::state::{Block, Group, Wait, Warp};
use super::{Cause, Fault};
use sass::{Operand, RegFile};

/// What a barrier instruction of the block does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduce {
    /// Arrive without waiting.
    Arrive,
    /// Arrive and wait.
    Sync,
    /// The same, and reduce a predicate: all, any, count.
    And,
    Or,
    Popc,
}

/// A control instruction.
pub(crate) enum Control {
    Branch {
        cond: Pred,
        target: u32,
    },
    /// Branch if all of the group do.
    BranchAll {
        cond: Pred,
        target: u32,
    },
    /// The whole group branches where the named lanes are not all among those of the group whose guard holds
    /// (`diverged`), or where they are.
    BranchDiverged {
        guard: Pred,
        lanes: Src,
        diverged: bool,
        target: u32,
    },
    /// Branch of the whole group where one of its lanes does.
    BranchAny {
        cond: Pred,
        target: u32,
    },
    /// Branch to a register's value plus a base.
    Indirect {
        cond: Pred,
        register: Src,
        base: i64,
        relative: bool,
    },
    Exit {
        cond: Pred,
    },
    Enter {
        barrier: u8,
    },
    Sync {
        cond: Pred,
        barrier: u8,
    },
    Break {
        cond: Pred,
        barrier: u8,
    },
    SaveBarrier {
        dst: Dst,
        barrier: u8,
        clear: bool,
    },
    MoveBarrier {
        barrier: u8,
        from: u8,
        clear: bool,
    },
    RestoreBarrier {
        barrier: u8,
        src: Src,
    },
    Warpsync {
        lanes: Src,
        exclusive: bool,
    },
    /// The named lanes, wherever each of them waits so, execute together what follows, up to `EndCollective`; then
    /// each goes on at its own `after`.
    Collective {
        lanes: Src,
        after: u32,
    },
    EndCollective,
    Yield,
    Barrier {
        kind: Reduce,
        id: Src,
        threads: Option<Src>,
        pred: Pred,
    },
    Trap,
}

fn barrier_register(o: &Operands<'_>, slot: usize) -> Result<u8, Unsupported> {
    match o.operand(slot)? {
        Operand::Reg(r) if r.reg.file == RegFile::B && r.reg.index < 16 => Ok(r.reg.index),
        other => unsupported(format!("{other:?} where a convergence barrier is expected")),
    }
}

fn address(o: &Operands<'_>, slot: usize) -> Result<u32, Unsupported> {
    let label = o.label(slot)?;
    u32::try_from(label).or_else(|_| unsupported(format!("a branch to {label:#x}")))
}

fn always(o: &Operands<'_>, slot: usize) -> Result<(), Unsupported> {
    match o.operand(slot)?.as_reg() {
        Some(r) if r.reg.is_zero() && !r.not => Ok(()),
        _ => unsupported("a predicate operand here"),
    }
}

/// Prepares a control instruction; `None` if it isn't one.
pub(crate) fn compile(name: &str, o: &Operands<'_>) -> Result<Option<Control>, Unsupported> {
    o.ignore(&["RECONVERGENT", "RELIABLE"]);
    Ok(Some(match name {
        "BRA" if o.take("DIV") => {
            always(o, 1)?;
            diverged(o, true)?
        }
        "BRA" if o.take("CONV") => {
            always(o, 1)?;
            diverged(o, false)?
        }
        // Where one lane branches, all of the group do.
        "BRA" if o.take("ANY") => {
            o.ignore(&["U"]);
            Control::BranchAny { cond: o.pred(1)?, target: address(o, 2)? }
        }
        "BRA" if o.take("U") => Control::BranchAll { cond: o.pred(1)?, target: address(o, 2)? },
        "BRA" => Control::Branch { cond: o.pred(1)?, target: address(o, 2)? },
        // The label counts from the next instruction.
        "BRXU" => {
            always(o, 0)?;
            let register = o.src(1, Kind::Long)?;
            Control::Indirect { cond: Pred::TRUE, register, base: o.label(2)?, relative: true }
        }
        "BRX" => {
            let register = o.src(0, Kind::Long)?;
            Control::Indirect { cond: Pred::TRUE, register, base: o.label(1)?, relative: true }
        }
        "CALL" => {
            o.ignore(&["NOINC"]);
            if !o.take("REL") {
                return unsupported("an absolute call");
            }
            match o.operand(0)?.as_reg() {
                Some(r) if r.reg.is_zero() => Control::Branch { cond: Pred::TRUE, target: address(o, 1)? },
                _ => {
                    let register = o.src(0, Kind::Long)?;
                    Control::Indirect { cond: Pred::TRUE, register, base: o.label(1)?, relative: false }
                }
            }
        }
        "RET" | "RET.P" => {
            let first = usize::from(name == "RET.P");
            let cond = if first == 1 { o.pred(0)? } else { Pred::TRUE };
            o.ignore(&["NODEC"]);
            if !o.take("REL") {
                return unsupported("an absolute return");
            }
            let register = o.src(first, Kind::Long)?;
            Control::Indirect { cond, register, base: o.label(first + 1)?, relative: false }
        }
        "EXIT" => Control::Exit { cond: o.pred(0)? },
        "BSSY" => Control::Enter { barrier: barrier_register(o, 0)? },
        "BSYNC" => Control::Sync { cond: o.pred(0)?, barrier: barrier_register(o, 1)? },
        "BREAK" => Control::Break { cond: o.pred(0)?, barrier: barrier_register(o, 1)? },
        "BMOV" => {
            o.ignore(&["32"]);
            let clear = o.take("CLEAR");
            Control::SaveBarrier { dst: o.dst(0, 1)?, barrier: barrier_register(o, 1)?, clear }
        }
        "BMOV.B" => {
            o.ignore(&["32"]);
            if let Ok(from) = barrier_register(o, 1) {
                let clear = o.take("CLEAR");
                return Ok(Some(Control::MoveBarrier { barrier: barrier_register(o, 0)?, from, clear }));
            }
            Control::RestoreBarrier { barrier: barrier_register(o, 0)?, src: o.src(1, Kind::Int)? }
        }
        "WARPSYNC" | "WARPSYNC.COLLECTIVE" => {
            always(o, 0)?;
            let exclusive = o.take("EXCLUSIVE");
            let lanes = if o.take("ALL") { Src::fixed(0xffff_ffff) } else { o.src(1, Kind::Int)? };
            match name {
                "WARPSYNC" => Control::Warpsync { lanes, exclusive },
                _ => Control::Collective { lanes, after: address(o, 2)? },
            }
        }
        "ENDCOLLECTIVE" => Control::EndCollective,
        "YIELD" | "NANOSLEEP" => {
            o.ignore(&["SYNCS", "WARP", "RAND"]);
            Control::Yield
        }
        // Arriving is waiting's business.
        "UCGABAR_WAIT" => {
            Control::Barrier { kind: Reduce::Sync, id: Src::fixed(16), threads: None, pred: Pred::TRUE }
        }
        "BAR" => barrier(o)?,
        "BPT" => {
            if !o.take("TRAP") {
                return unsupported("this break point");
            }
            Control::Trap
        }
        _ => return Ok(None),
    }))
}

fn diverged(o: &Operands<'_>, diverged: bool) -> Result<Control, Unsupported> {
    let guard = Pred::of(o.inst.guard.pred, o.inst.guard.not)?;
    // sm_75 has no operand there: all lanes.
    let lanes = match o.operand(0)? {
        Operand::Reg(r) if r.reg.is_zero() && !r.not => Src::fixed(0xffff_ffff),
        _ => o.src(0, Kind::Int)?,
    };
    Ok(Control::BranchDiverged { guard, lanes, diverged, target: address(o, 2)? })
}

fn barrier(o: &Operands<'_>) -> Result<Control, Unsupported> {
    o.ignore(&["DEFER_BLOCKING"]);
    let kinds = [
        ("ARV", Reduce::Arrive),
        ("SYNC", Reduce::Sync),
        ("RED", Reduce::Sync),
        ("AND", Reduce::And),
        ("OR", Reduce::Or),
        ("POPC", Reduce::Popc),
    ];
    let red = o.take("RED");
    let Some(kind) = o.choose(&kinds) else {
        return unsupported("a barrier of this kind");
    };
    if red != matches!(kind, Reduce::And | Reduce::Or | Reduce::Popc) {
        return unsupported("a barrier of this kind");
    }
    let (id, threads) = (o.src(0, Kind::Int)?, o.src(1, Kind::Int)?);
    if !id.is_fixed() && !threads.is_fixed() {
        // Both in one register: the number below, the count from bit 16 on.
        if o.operand(0)? != o.operand(1)? {
            return unsupported("a barrier number and thread count in two registers");
        }
        return Ok(Control::Barrier { kind, id, threads: None, pred: o.pred(2)? });
    }
    let none = match o.operand(1)? {
        Operand::Imm(0) => true,
        Operand::Reg(r) => r.reg.is_zero(),
        _ => false,
    };
    Ok(Control::Barrier { kind, id, threads: (!none).then_some(threads), pred: o.pred(2)? })
}

impl Warp {
    /// Makes the lanes of `mask` ready at their resume addresses: one group for each address.
    pub(crate) fn wake(&mut self, mask: u32) {
        let mut rest = mask;
        while rest != 0 {
            let pc = self.resume[rest.trailing_zeros() as usize];
            let same = lanes(rest).filter(|l| self.resume[*l] == pc).fold(0, |m, l| m | 1 << l);
            lanes(same).for_each(|l| self.wait[l] = Wait::No);
            self.groups.insert(0, Group::at(pc, same));
            rest &= !same;
        }
    }

    /// Makes the lanes of `mask`, which wait in front of the same code, ready as one group.
    fn wake_together(&mut self, mask: u32) {
        lanes(mask).for_each(|l| self.wait[l] = Wait::No);
        self.groups.insert(0, Group::at(self.resume[mask.trailing_zeros() as usize & 31], mask));
    }

    /// Takes lanes out of the running group and lets them wait.
    pub(super) fn park(&mut self, mask: u32, why: Wait, resume: u32) {
        for l in lanes(mask) {
            self.wait[l] = why;
            self.resume[l] = resume;
        }
        self.leave(mask);
    }
    fn leave(&mut self, mask: u32) {
        if let Some(g) = self.groups.last_mut() {
            g.mask &= !mask;
            if g.mask == 0 {
                self.groups.pop();
            }
        }
    }
    /// Sends lanes of the running group elsewhere.
    pub(crate) fn branch(&mut self, mask: u32, target: u32) {
        match self.groups.last_mut() {
            Some(g) if g.mask == mask => g.pc = target,
            Some(g) if mask != 0 => {
                g.mask &= !mask;
                let at = self.groups.len() - 1;
                self.groups.insert(at, Group::at(target, mask));
            }
            _ => {}
        }
    }

    /// Wakes every set of lanes whose convergence is complete. Lanes that WARPSYNC lets go at the same time and place run
    /// as one group, whatever their masks are; WARPSYNC.EXCLUSIVE keeps those of each mask apart.
    fn converge(&mut self) {
        let mut done = 0u32;
        let mut met = 0u32;
        for lane in 0..32 {
            if (self.live & !done) >> lane & 1 == 0 {
                continue;
            }
            let here = self.wait[lane];
            let needed = match here {
                Wait::Bsync(b) => self.b[usize::from(b)][lane] & self.live,
                Wait::Warpsync(m) | Wait::Exclusive(m) | Wait::Collective(m) => m & self.live,
                Wait::No | Wait::Block(_) => continue,
            };
            let complete = lanes(needed).all(|l| match (here, self.wait[l]) {
                (Wait::Bsync(b), Wait::Bsync(c)) => b == c && self.b[usize::from(b)][l] & self.live == needed,
                (x, y) => x == y,
            });
            if complete {
                let set = needed | 1 << lane;
                match here {
                    Wait::Collective(_) => self.wake_together(set),
                    Wait::Warpsync(_) => met |= set,
                    _ => self.wake(set),
                }
                done |= set;
            }
        }
        self.wake(met);
    }

    /// Executes a control instruction for `mask`, the lanes of the running group where its guard holds. The
    /// group's address is already that of the next instruction.
    pub(crate) fn control(&mut self, block: &mut Block, c: &Control, mask: u32) -> Result<(), Fault> {
        let Some(group) = self.groups.last().map(|g| Group::at(g.pc, g.mask)) else { return Ok(()) };
        match c {
            Control::Branch { cond, target } => self.branch(mask & cond.mask(self), *target),
            Control::BranchAll { cond, target } => {
                if mask & cond.mask(self) == group.mask {
                    self.branch(mask, *target);
                }
            }
            Control::BranchAny { cond, target } => {
                if mask & cond.mask(self) != 0 {
                    self.branch(group.mask, *target);
                }
            }
            Control::BranchDiverged { guard, lanes, diverged, target } => {
                let here = group.mask & guard.mask(self);
                let needed = lanes.uniform(self) as u32 & self.live;
                if (needed & !here != 0) == *diverged {
                    self.branch(group.mask, *target);
                }
            }
            Control::Indirect { cond, register, base, relative } => {
                let base = base + if *relative { i64::from(group.pc) } else { 0 };
                let mut values = [0; 32];
                register.fetch(self, &mut values);
                let mut rest = mask & cond.mask(self);
                while rest != 0 {
                    let value = values[rest.trailing_zeros() as usize];
                    let same = lanes(rest).filter(|l| values[*l] == value).fold(0, |m, l| m | 1 << l);
                    let target = base.wrapping_add(value as i64);
                    let target = u32::try_from(target).map_err(|_| {
                        Fault::at(rest.trailing_zeros() as usize, format!("branch to {target:#x}"))
                    })?;
                    self.branch(same, target);
                    rest &= !same;
                }
            }
            Control::Exit { cond } => {
                let gone = mask & cond.mask(self);
                self.leave(gone);
                self.live &= !gone;
                self.converge();
            }
            Control::Enter { barrier } => {
                for l in lanes(mask) {
                    self.b[usize::from(*barrier)][l] = mask;
                }
            }
            Control::Sync { cond, barrier } => {
                self.park(mask & cond.mask(self), Wait::Bsync(*barrier), group.pc);
                self.converge();
            }
            Control::Break { cond, barrier } => {
                let gone = mask & cond.mask(self);
                let row = &mut self.b[usize::from(*barrier)];
                let told = lanes(gone).fold(0, |m, l| m | row[l]);
                lanes(told).for_each(|l| row[l] &= !gone);
                self.converge();
            }
            Control::SaveBarrier { dst, barrier, clear } => {
                for l in lanes(mask) {
                    let row = &mut self.b[usize::from(*barrier)];
                    let v = row[l];
                    if *clear {
                        row[l] = 0;
                    }
                    dst.put(self, l, v.into());
                }
            }
            Control::MoveBarrier { barrier, from, clear } => {
                for l in lanes(mask) {
                    self.b[usize::from(*barrier)][l] = self.b[usize::from(*from)][l];
                    if *clear {
                        self.b[usize::from(*from)][l] = 0;
                    }
                }
            }
            Control::RestoreBarrier { barrier, src } => {
                let mut values = [0; 32];
                src.fetch(self, &mut values);
                for l in lanes(mask) {
                    self.b[usize::from(*barrier)][l] = values[l] as u32;
                }
            }
            Control::Warpsync { lanes: who, exclusive } => {
                let mut values = [0; 32];
                who.fetch(self, &mut values);
                let wait = if *exclusive { Wait::Exclusive } else { Wait::Warpsync };
                for l in lanes(mask) {
                    self.park(1 << l, wait(values[l] as u32), group.pc);
                }
                self.converge();
            }
            Control::Collective { lanes: who, after } => {
                let mut values = [0; 32];
                who.fetch(self, &mut values);
                for l in lanes(mask) {
                    self.after[l] = *after;
                    self.park(1 << l, Wait::Collective(values[l] as u32), group.pc);
                }
                self.converge();
            }
            Control::EndCollective => {
                let mut rest = mask;
                while rest != 0 {
                    let target = self.after[rest.trailing_zeros() as usize];
                    let same = lanes(rest).filter(|l| self.after[*l] == target).fold(0, |m, l| m | 1 << l);
                    self.branch(same, target);
                    rest &= !same;
                }
            }
            Control::Yield => self.groups.rotate_right(1),
            Control::Barrier { kind, id, threads, pred } => {
                self.arrive(block, (*kind, id, threads.as_ref(), *pred), mask, group.pc)?;
            }
            Control::Trap => return Err(Fault::warp("trap").because(Cause::Trap)),
        }
        Ok(())
    }

    fn arrive(
        &mut self,
        block: &mut Block,
        (kind, id, threads, pred): (Reduce, &Src, Option<&Src>, Pred),
        mask: u32,
        resume: u32,
    ) -> Result<(), Fault> {
        // A warp arrives as a whole: PTX has every thread wait for those of its warp that have not exited, and
        // ptxas puts WARPSYNC in front where they may have parted.
        if mask != self.live {
            let (here, all) = (mask.count_ones(), self.live.count_ones());
            let what = format!("{here} of the {all} threads of the warp arrive at a barrier");
            return Err(Fault::warp(what).because(Cause::Barrier));
        }
        let mut ids = [0; 32];
        id.fetch(self, &mut ids);
        let mut counts = [0; 32];
        if let Some(t) = threads {
            t.fetch(self, &mut counts);
        }
        let Some(first) = lanes(mask).next() else { return Ok(()) };
        let packed = ids[first] >> 16;
        ids.iter_mut().for_each(|id| *id &= 0xffff);
        let id = ids[first];
        let count = match packed {
            0 => threads.map(|_| counts[first] as u32),
            n => Some(n as u32),
        };
        if lanes(mask).any(|l| ids[l] != id) || id > 16 {
            let what = format!("barrier number {id}, or different ones in a warp");
            return Err(Fault::warp(what).because(Cause::Barrier));
        }
        if count.is_some_and(|n| n == 0 || n % 32 != 0) {
            let what = "a barrier's thread count must be a multiple of 32";
            return Err(Fault::warp(what).because(Cause::Barrier));
        }
        let b = &mut block.barriers[id as usize];
        if b.busy && (b.expected != count || b.reduce != kind && kind != Reduce::Arrive) {
            let what = format!("barrier {id} is used in two ways at once");
            return Err(Fault::warp(what).because(Cause::Barrier));
        }
        b.busy = true;
        b.expected = count;
        if kind == Reduce::Arrive {
            b.arrived += mask.count_ones();
            return Ok(());
        }
        b.reduce = kind;
        b.voters += mask.count_ones();
        b.count += (pred.mask(self) & mask).count_ones();
        self.park(mask, Wait::Block(id as u8), resume);
        Ok(())
    }
}
