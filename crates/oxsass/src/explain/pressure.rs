//! How many general registers live at each instruction of machine code, and which values they hold.

use backend::units;
use sass::{Guard, Inst, Reg, RegFile};

/// A set of general registers.
type Set = [u64; 4];

fn has(set: &Set, r: u8) -> bool {
    set[usize::from(r) / 64] >> (r % 64) & 1 != 0
}

fn put(set: &mut Set, r: u8, there: bool) {
    let bit = 1 << (r % 64);
    let word = &mut set[usize::from(r) / 64];
    *word = if there { *word | bit } else { *word & !bit };
}

/// Which general registers hold something that is needed, around each instruction.
pub struct Pressure {
    before: Vec<Set>,
    after: Vec<Set>,
}

impl Pressure {
    /// Of decoded code, the words of which stand one behind the other; R1, the stack pointer, does not count.
    pub fn of(code: &[Option<Inst>]) -> Pressure {
        let mut p = Pressure { before: vec![[0; 4]; code.len()], after: vec![[0; 4]; code.len()] };
        let succs = crate::flow::successors(code);
        let mut again = true;
        while again {
            again = false;
            for k in (0..code.len()).rev() {
                let mut live = [0; 4];
                for s in &succs[k] {
                    live.iter_mut().zip(p.before[*s]).for_each(|(a, b)| *a |= b);
                }
                p.after[k] = live;
                if let Some(inst) = code[k].as_ref().filter(|i| !i.op.info().leaves_function()) {
                    if inst.guard == Guard::TRUE {
                        for_each_general(
                            |f| units::for_each_write(inst, |u, _| f(u)),
                            |r| put(&mut live, r, false),
                        );
                    }
                    for_each_general(
                        |f| units::for_each_read(inst, |u, _| f(u)),
                        |r| put(&mut live, r, true),
                    );
                }
                again |= live != p.before[k];
                p.before[k] = live;
            }
        }
        p
    }

    /// How many registers an instruction needs at once: those that it reads or that live on, or its results and those.
    pub fn at(&self, k: usize, inst: Option<&Inst>) -> u32 {
        let count = |s: &Set| s.iter().map(|w| w.count_ones()).sum::<u32>();
        let mut behind = self.after[k];
        if let Some(i) = inst.filter(|i| !i.op.info().leaves_function()) {
            for_each_general(|f| units::for_each_write(i, |u, _| f(u)), |r| put(&mut behind, r, true));
        }
        count(&self.before[k]).max(count(&behind))
    }

    /// Runs of registers that live before an instruction and were made by one instruction above it: the first, how many, who made
    /// them, and who below reads one of them next.
    pub fn holders(&self, code: &[Option<Inst>], at: usize) -> Vec<Holder> {
        let mut found: Vec<Holder> = Vec::new();
        for r in (0..=254).filter(|r| has(&self.before[at], *r)) {
            let writes = |k: &usize| touches(code[*k].as_ref(), r, true);
            let reads = |k: &usize| touches(code[*k].as_ref(), r, false);
            let (made, read) = ((0..at).rev().find(writes), (at..code.len()).find(reads));
            match found.last_mut() {
                Some(h) if h.made == made && made.is_some() && h.first + h.count == r => {
                    h.count += 1;
                    h.read = [h.read, read].into_iter().flatten().min();
                }
                _ => found.push(Holder { first: r, count: 1, made, read }),
            }
        }
        found
    }
}

/// Registers one behind the other with what one instruction made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The first one, and how many.
    pub first: u8,
    /// How many.
    pub count: u8,
    /// The instruction that made it; none above: it comes around a loop.
    pub made: Option<usize>,
    /// The next one that reads it; none below: around a loop.
    pub read: Option<usize>,
}

fn touches(inst: Option<&Inst>, register: u8, written: bool) -> bool {
    let mut found = false;
    let Some(inst) = inst.filter(|i| !i.op.info().leaves_function()) else { return false };
    match written {
        true => for_each_general(|f| units::for_each_write(inst, |u, _| f(u)), |r| found |= r == register),
        false => for_each_general(|f| units::for_each_read(inst, |u, _| f(u)), |r| found |= r == register),
    }
    found
}

/// Calls `f` for the general registers among units, but for the stack pointer.
fn for_each_general(all: impl FnOnce(&mut dyn FnMut(units::Unit)), mut f: impl FnMut(u8)) {
    all(&mut |u| {
        if let Some(r) = units::register(u).filter(|r| r.file == RegFile::R && *r != Reg::SP) {
            f(r.index);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxptxas::{Settings, Target};

    #[test]
    fn a_chain_of_sums_needs_what_it_reads() {
        let body: String = (0..8).map(|n| format!("ld.global.u32 %r{n}, [%d0+{}];\n", 4 * n)).collect();
        let sums: String = (1..8).map(|n| format!("add.u32 %r0, %r0, %r{n};\n")).collect();
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {{\n.reg .b32 %r<9>;\n.reg .b64 %d<2>;\n\
             ld.param.u64 %d0, [p];\n{body}{sums}st.global.u32 [%d0], %r0;\nret;\n}}\n"
        );
        let target = Target::parse("sm_90").unwrap();
        let cubin = oxptxas::compile(&source, "k.ptx", &Settings::new(target)).unwrap().cubin;
        let (_, words) = sim::sass::code(&cubin, "k").unwrap();
        let code: Vec<Option<Inst>> =
            (0..).zip(&words).map(|(n, w)| sass::decode(*w, target, 16 * n).ok()).collect();
        let p = Pressure::of(&code);
        let most = (0..code.len()).map(|k| p.at(k, code[k].as_ref())).max();
        // Eight words and the pointer.
        assert!(matches!(most, Some(8..=12)), "{most:?}");
        let peak = (0..code.len()).max_by_key(|k| p.at(*k, code[*k].as_ref())).unwrap();
        let held: u32 = p.holders(&code, peak).iter().map(|h| u32::from(h.count)).sum();
        assert!((7..=12).contains(&held), "{held}");
        assert_eq!(p.before[0], [0; 4], "nothing lives at the start");
    }
}
