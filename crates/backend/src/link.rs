//! Kernels with the functions that they call: one stretch of code, the kernel first; or each function for itself, in objects and where
//! code is debugged.
//!
//! In one stretch every kernel gets its own copy of each function that it can reach, as with ptxas, so all calls within it are
//! relative, and function pointers are numbers: 8 times the position in a table in constant bank 2, whose entries
//! are the functions' distances from the start of the kernel. Entry 0 stays free, so no function is 0.

use crate::emit::{self, INST_BYTES};
use crate::machine::Link;
use crate::{Code, Error, pool};
use ori::{Callee, Part};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{ConstBank, Inst, Opcode, Operand, Target};

/// A function in the code of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Name.
    pub name: String,
    /// Byte offset from the start of the kernel.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// The functions of a module.
pub struct Functions<'c> {
    /// Code by name.
    pub code: FxHashMap<&'c str, &'c Code>,
    /// Those whose address is taken, in the order of their numbers.
    pub table: Vec<&'c str>,
}

impl<'c> Functions<'c> {
    /// The functions that `kernel` can reach, in the order of first mention, and whether it calls any through a
    /// pointer.
    pub fn reachable(&self, kernel: &'c Code) -> (Vec<&'c str>, bool) {
        let mut found: Vec<&'c str> = Vec::new();
        let mut seen: FxHashSet<&'c str> = FxHashSet::default();
        let mut indirect = false;
        let mut next = 0;
        let mut code = kernel;
        loop {
            // All that pointers may hold is found the first time.
            let known = indirect;
            let by_pointer = |c: &Callee| matches!(c, Callee::Indirect(_));
            let through = |c: &&Callee| !(known && by_pointer(c));
            indirect |= code.callees.iter().any(by_pointer);
            for callee in code.callees.iter().filter(through) {
                found.extend(self.names(callee).filter(|n| seen.insert(n)));
            }
            match found.get(next) {
                Some(name) => code = self.code[name],
                None => return (found, indirect),
            }
            next += 1;
        }
    }

    /// The functions with code that a call may go to.
    fn names(&self, callee: &Callee) -> impl Iterator<Item = &'c str> + '_ {
        let (one, all): (Option<&'c str>, &[&'c str]) = match callee {
            Callee::Internal(name) => (self.code.get_key_value(name.as_str()).map(|k| *k.0), &[]),
            Callee::Indirect(_) => (None, &self.table),
            Callee::External => (None, &[]),
        };
        one.into_iter().chain(all.iter().copied())
    }

    /// The most bytes of stack that `kernel` and what it calls take, and whether there is recursion, so that there
    /// is no bound.
    fn stack(&self, kernel: &'c Code) -> (u32, bool) {
        /// A function whose callees are being looked at.
        struct Open<'c> {
            name: Option<&'c str>,
            frame: u32,
            callees: Vec<&'c str>,
            /// Of those callees that are known.
            most: u32,
        }
        let open = |name: Option<&'c str>, code: &'c Code| Open {
            name,
            frame: code.frame_bytes,
            callees: code.callees.iter().flat_map(|c| self.names(c)).collect(),
            most: 0,
        };
        let mut recursive = false;
        // `None` while a function is open.
        let mut known: FxHashMap<&'c str, Option<u32>> = FxHashMap::default();
        let mut walk = vec![open(None, kernel)];
        loop {
            let Some(top) = walk.last_mut() else { return (0, recursive) };
            if let Some(name) = top.callees.pop() {
                match known.get(name) {
                    Some(None) => recursive = true,
                    Some(Some(n)) => top.most = top.most.max(*n),
                    None => {
                        known.insert(name, None);
                        walk.push(open(Some(name), self.code[name]));
                    }
                }
                continue;
            }
            let total = top.frame + top.most;
            let name = top.name;
            walk.pop();
            match (name, walk.last_mut()) {
                (Some(name), Some(caller)) => {
                    known.insert(name, Some(total));
                    caller.most = caller.most.max(total);
                }
                _ => return (total, recursive),
            }
        }
    }

    /// Puts `kernel` and its functions together: words, what each needs, where functions are. `None` of the
    /// functions are changed.
    ///
    /// # Errors
    /// On a call of what has no code, and on an instruction without an encoding.
    pub fn link(&self, target: Target, kernel: &'c Code) -> Result<(Code, Vec<Placed>), Error> {
        let (reached, indirect) = self.reachable(kernel);
        let mut out = kernel.clone();
        let mut placed: Vec<Placed> = Vec::new();
        let mut at = kernel.insts.len() as u32 * INST_BYTES;
        for name in &reached {
            let size = self.code[name].insts.len() as u32 * INST_BYTES;
            placed.push(Placed { name: (*name).into(), offset: at, size });
            at += size;
        }
        let offsets: FxHashMap<&str, u32> = placed.iter().map(|p| (p.name.as_str(), p.offset)).collect();
        out.insts.clear();
        out.lines.clear();
        out.exit_offsets.clear();
        out.literals.clear();
        if indirect {
            out.literals.extend(1u64.to_le_bytes());
            for name in &self.table {
                out.literals.extend(u64::from(offsets.get(name).copied().unwrap_or(0)).to_le_bytes());
            }
        }
        let mut literals = Literals::default();
        for (code, start) in
            std::iter::once((kernel, 0)).chain(placed.iter().map(|p| (self.code[p.name.as_str()], p.offset)))
        {
            let first = out.insts.len();
            place(code, start, &offsets, &mut out)?;
            literals.gather(code, &mut out, first)?;
            need(&mut out, code);
            out.exit_offsets.extend(code.exit_offsets.iter().map(|e| e + start));
            out.lines.extend(code.lines.iter().map(|(offset, line)| (offset + start, *line)));
        }
        if let (Some(start), false) = (kernel.granted, reached.is_empty()) {
            pool::check::check_linked(&out.insts, start.into())
                .map_err(|e| Error::new(format!("internal error: {e}, with the functions that it calls")))?;
        }
        let (stack, recursive) = self.stack(kernel);
        out.stack_bytes = stack;
        out.recursive = recursive;
        emit::pad(target, &mut out.insts);
        out.words = emit::encode(target, &out.insts, &out.lines)?;
        Ok((out, placed))
    }

    /// Makes a kernel or function ready that has a section of its own ([`ori::Function::apart`]), as [`object`] does; and has it need
    /// the registers, barriers and shared memory that what it reaches needs.
    ///
    /// # Errors
    /// On an instruction without an encoding.
    pub fn apart(&self, target: Target, code: &'c Code) -> Result<(Code, Vec<Reloc>), Error> {
        let (mut out, relocs) = object(target, code)?;
        let reached = self.reachable(code).0;
        for name in &reached {
            need(&mut out, self.code[name]);
        }
        if code.granted.is_some() && !reached.is_empty() {
            return Err(Error::new("internal error: functions of their own where registers are given away"));
        }
        (out.stack_bytes, out.recursive) = self.stack(code);
        Ok((out, relocs))
    }
}

/// Has `out` need what `code` needs, too.
fn need(out: &mut Code, code: &Code) {
    out.regs = out.regs.max(code.regs);
    out.uregs = out.uregs.max(code.uregs);
    out.barriers = out.barriers.max(code.barriers);
    out.shared_size = out.shared_size.max(code.shared_size);
}

/// Where numbers are in constant bank 2 of a kernel.
#[derive(Default)]
struct Literals(FxHashMap<u64, u32>);

impl Literals {
    /// Puts the numbers of `code`, whose instructions are those of `out` from the `first` on, behind the ones that are there, each
    /// once, and has the instructions read them there.
    fn gather(&mut self, code: &Code, out: &mut Code, first: usize) -> Result<(), Error> {
        if code.literals.is_empty() {
            return Ok(());
        }
        let moved: Vec<u32> = code
            .literals
            .chunks(8)
            .map(|word| {
                let n = word.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
                *self.0.entry(n).or_insert_with(|| {
                    let at = out.literals.len() as u32;
                    out.literals.extend(n.to_le_bytes());
                    at
                })
            })
            .collect();
        for o in out.insts[first..].iter_mut().flat_map(|i| &mut i.operands) {
            // Function pointers index the table, which stays where it is.
            if let Operand::Const { bank: ConstBank::Index(2), index: None, offset, .. } = o {
                let to = usize::try_from(*offset).ok().and_then(|at| moved.get(at / 8));
                let to = to.ok_or_else(|| Error::new("internal error: constant without a number"))?;
                *offset = *to as i32 + *offset % 8;
            }
        }
        if out.literals.len() > 1 << 16 {
            return Err(Error::new("constants of a kernel and its functions take more than 64 KiB"));
        }
        Ok(())
    }
}

/// Whose address a relocation fills in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Of the function that holds it.
    Own,
    /// Of the symbol of this name.
    Symbol(String),
    /// What function pointers count from.
    FunctionBase,
}

/// What a relocation fills in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// The immediate, with this part of an address.
    Part(Part),
    /// The label of a call.
    Call,
}

/// A relocation of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// Byte offset of the instruction.
    pub offset: u32,
    /// What is filled in.
    pub fill: Fill,
    /// With whose address.
    pub whose: Whose,
    /// Added to it.
    pub addend: u32,
}

/// Makes a function ready for a relocatable object: words, padding included, and relocations in ascending order.
///
/// # Errors
/// On an instruction without an encoding.
pub fn object(target: Target, code: &Code) -> Result<(Code, Vec<Reloc>), Error> {
    let mut out = code.clone();
    let mut relocs = Vec::new();
    for (k, link) in &code.links {
        let offset = k * INST_BYTES;
        let mut add = |fill, whose, addend| relocs.push(Reloc { offset, fill, whose, addend });
        let next_call = || {
            let after = code.insts[*k as usize..].iter().position(|i| i.op == Opcode::CALL);
            let missing = || Error::new("internal error: return address without a call");
            after.map(|n| (k + n as u32 + 1) * INST_BYTES).ok_or_else(missing)
        };
        match link {
            Link::None | Link::Base => {}
            Link::FrameSize => return Err(Error::new("internal error: the size of a frame is not known")),
            Link::FunctionBase => add(Fill::Call, Whose::FunctionBase, 0),
            Link::ReturnLow => add(Fill::Part(Part::Low), Whose::Own, next_call()?),
            Link::ReturnHigh => add(Fill::Part(Part::High), Whose::Own, next_call()?),
            Link::Callee(n) => match code.callees.get(*n as usize) {
                Some(Callee::Internal(name)) => add(Fill::Call, Whose::Symbol(name.clone()), 0),
                _ => return Err(Error::new("internal error: call of nothing")),
            },
            Link::Symbol(n) => match code.symbols.get(*n as usize) {
                Some(s) => add(Fill::Part(s.part), Whose::Symbol(s.name.clone()), 0),
                None => return Err(Error::new("internal error: address of nothing")),
            },
            Link::ReturnOffset | Link::ReturnLabel | Link::ReturnDistance => {
                return Err(Error::new("internal error: code of an executable in an object"));
            }
        }
    }
    if out.words.is_empty() {
        emit::pad(target, &mut out.insts);
        out.words = emit::encode(target, &out.insts, &out.lines)?;
    }
    Ok((out, relocs))
}

/// Appends a function's instructions at byte offset `start`.
fn place(code: &Code, start: u32, offsets: &FxHashMap<&str, u32>, out: &mut Code) -> Result<(), Error> {
    let first = out.insts.len();
    for inst in &code.insts {
        let mut inst: Inst = inst.clone();
        if !matches!(inst.op, Opcode::CALL | Opcode::RET) {
            for o in &mut inst.operands {
                if let Operand::Label(at) = o {
                    *at += i64::from(start);
                }
            }
        }
        out.insts.push(inst);
    }
    for (k, link) in &code.links {
        let k = *k as usize;
        let next_call = || {
            let after = code.insts[k..].iter().position(|i| i.op == Opcode::CALL);
            after.map(|n| start + (k + n + 1) as u32 * INST_BYTES)
        };
        let missing = || Error::new("internal error: return address without a call");
        let label = |inst: &mut Inst, to: i64| {
            for o in &mut inst.operands {
                if let Operand::Label(at) = o {
                    *at = to;
                }
            }
        };
        let immediate = |inst: &mut Inst, n: u32| {
            if let Some(o) = inst.operands.iter_mut().find(|o| matches!(o, Operand::Imm(_))) {
                *o = Operand::Imm(n);
            }
        };
        let inst = &mut out.insts[first + k];
        match link {
            Link::None => {}
            Link::FrameSize => return Err(Error::new("internal error: the size of a frame is not known")),
            Link::Symbol(n) if code.symbols.get(*n as usize).is_some_and(|s| s.part == Part::Number) => {
                let at = start + k as u32 * INST_BYTES;
                out.numbers.push((at, code.symbols[*n as usize].name.clone()));
            }
            Link::ReturnLow | Link::ReturnHigh | Link::FunctionBase | Link::Symbol(_) => {
                return Err(Error::new("internal error: relocatable code in an executable"));
            }
            Link::Base => label(inst, 0),
            Link::Callee(n) => match code.callees.get(*n as usize) {
                Some(Callee::Internal(name)) => match offsets.get(name.as_str()) {
                    Some(at) => label(inst, i64::from(*at)),
                    None => return Err(Error::new(format!("call of '{name}', which has no body"))),
                },
                _ => return Err(Error::new("internal error: call of nothing")),
            },
            Link::ReturnOffset => immediate(inst, next_call().ok_or_else(missing)?),
            Link::ReturnLabel => label(inst, next_call().ok_or_else(missing)?.into()),
            Link::ReturnDistance => {
                let lepc = code.insts[..k].iter().rposition(|i| i.op == Opcode::LEPC).ok_or_else(missing)?;
                let here = start + lepc as u32 * INST_BYTES;
                immediate(inst, next_call().ok_or_else(missing)? - here);
            }
        }
    }
    Ok(())
}
