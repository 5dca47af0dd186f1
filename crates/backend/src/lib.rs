//! From optimized Ori to machine code: legalization, convergence barriers, register allocation, scheduling,
//! hazards and encoding. One file per pass; [`compile`] runs them in order, each as the phase that it is.

mod addends;
pub mod async_copies;
pub mod balance;
pub mod convergence;

mod early;
pub mod emit;
pub mod groups;
pub mod hazards;
mod lanes;
mod leaving;
pub mod legalize;
pub mod link;
pub mod liveness;
pub mod machine;
pub mod meet_once;
pub mod meetings;
pub mod order;
pub mod phases;
pub mod places;
pub mod pool;
pub mod prepass;
pub mod regalloc;
pub mod remat;
pub mod schedule;
pub mod timing;
pub mod together;
pub mod uniform;
pub mod units;
pub mod waits;
pub mod zero;

use ori::cfg::Cfg;
use ori::verify::lanes::{Kind, Watch};
use ori::{Allocated, Function, Manager, Name, Phase};
use prepass::Attempt;
use regalloc::Allocation;
use sass::RegFile;
use sass::target::{HARDWARE_REGISTERS, LEAST_REGISTERS};

/// Why a function could not be compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What is wrong.
    pub message: String,
    /// PTX line, 0 if none is to blame.
    pub line: u32,
    /// How products of warp groups are touched while they go on, so that the function has to be lowered with a wait behind
    /// each.
    pub groups_touched: Option<groups::Touched>,
    /// Whether it has to do with how many registers a warp holds where ([`pool`]).
    pub pool: bool,
}

impl Error {
    /// An error without a place.
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), line: 0, groups_touched: None, pool: false }
    }
    /// An error at a PTX line.
    pub fn at(line: u32, message: impl Into<String>) -> Error {
        Error { message: message.into(), line, groups_touched: None, pool: false }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line != 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A compiled function.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Code {
    /// Instruction words, tail padding included.
    pub words: Vec<u128>,
    /// The same instructions; branch targets are byte offsets in this function.
    pub insts: Vec<sass::Inst>,
    /// Instructions, by number, that need to know where functions are.
    pub links: Vec<(u32, machine::Link)>,
    /// What [`machine::Link::Callee`] numbers.
    pub callees: Vec<ori::Callee>,
    /// What [`machine::Link::Symbol`] numbers.
    pub symbols: Vec<ori::SymbolUse>,
    /// In an executable: byte offsets of instructions whose immediate is a number of the driver's.
    pub numbers: Vec<(u32, String)>,
    /// General registers named (the highest index + 1); [`Code::stated_registers`] says what a file states.
    pub regs: u32,
    /// Registers that its threads begin with, where the code changes how many a warp holds: that is what a file states then.
    pub granted: Option<u8>,
    /// Why `setmaxnreg` was ignored, if code that honours it could not be made.
    pub steady: Option<String>,
    /// The PTX lines of products of warp groups that an arrival was put in before.
    pub arrivals: Vec<u32>,
    /// Why products of warp groups are waited for one by one, if they are.
    pub one_by_one: Option<groups::Touched>,
    /// Uniform registers used.
    pub uregs: u32,
    /// Bytes of stack frame: local variables and spill slots.
    pub frame_bytes: u32,
    /// Where its frame holds the stack pointer that it was entered with, if it aligned its own.
    pub saved_stack: Option<u32>,
    /// Bytes of stack that the function and all that it calls take together, where there is a bound.
    pub stack_bytes: u32,
    /// Whether functions call themselves, so that there is none.
    pub recursive: bool,
    /// Bytes that spill code stores.
    pub spill_store_bytes: u32,
    /// Bytes that spill code loads.
    pub spill_load_bytes: u32,
    /// Where in the frame the spill slots are.
    pub spill_slots: std::ops::Range<u32>,
    /// Named barriers used.
    pub barriers: u32,
    /// Bytes of static shared memory.
    pub shared_size: u32,
    /// Byte offsets of the EXIT instructions.
    pub exit_offsets: Vec<u32>,
    /// Data of constant bank 2, words of 64 bits: in linked code behind the table of functions.
    pub literals: Vec<u8>,
    /// Local variables, and where they are from the stack pointer.
    pub locals: Vec<(String, u32)>,
    /// Where registers of the PTX are, if that was followed.
    pub places: Vec<places::Entry>,
    /// Where a function that is called holds what its caller had in registers ([`places::of_caller`]).
    pub of_caller: Vec<places::Entry>,
    /// Line table: byte offset and the PTX line that starts there, ascending.
    pub lines: Vec<(u32, u32)>,
    /// What passes decided, if anybody wants to know.
    pub remarks: Vec<ori::Remark>,
}

impl Code {
    /// The registers that a call of it changes, the return address included: ascending, without the stack pointer.
    pub fn changes(&self) -> Vec<sass::Reg> {
        let back = [0, 1].map(|k| sass::Reg::r(ori::abi::RETURN_ADDRESS + k));
        let mut units: Vec<units::Unit> = back.into_iter().filter_map(units::unit).collect();
        for inst in self.insts.iter().filter(|i| !i.op.info().leaves_function()) {
            units::for_each_write(inst, |u, _| units.push(u));
        }
        units.sort_unstable();
        units.dedup();
        units.into_iter().filter_map(units::register).filter(|r| *r != sass::Reg::SP).collect()
    }
    /// The registers to state for a thread that runs the code, `least` at least: those that it names and those that the
    /// hardware keeps.
    pub fn stated_registers(&self, least: u8) -> u32 {
        let named = (self.regs + u32::from(HARDWARE_REGISTERS)).max(least.max(LEAST_REGISTERS).into());
        self.granted.map_or(named, u32::from)
    }
}

/// Compiles a function in SSA. If `serial`, every instruction waits for everything before it: the first thing to
/// try on a miscompile.
///
/// # Errors
/// On what the target cannot do or the backend cannot do yet.
pub fn compile(mut func: Function, manager: &mut Manager<'_>, serial: bool) -> Result<Code, Error> {
    // The tables of all that follows have a place for each value, of which the optimizer has left few.
    ori::compact(&mut func);
    let mut lanes = Watch::new(&func, manager.verifies());
    if !serial && manager.admits(phases::TOGETHER) {
        manager.run(phases::TOGETHER, &mut func, together::run);
        verify(phases::TOGETHER, &func, manager, &mut lanes)?;
    }
    if !serial && manager.admits(phases::MEET_ONCE) {
        manager.run(phases::MEET_ONCE, &mut func, meet_once::run);
        verify(phases::MEET_ONCE, &func, manager, &mut lanes)?;
    }
    manager.run(phases::LEGALIZE, &mut func, legalize::run)?;
    pool::divide(&mut func);
    verify(phases::LEGALIZE, &func, manager, &mut lanes)?;
    let granted = pool::changes(&func).then_some(func.max_regs);
    let Allocation { mut func, stats } = allocate(func, manager, serial)?;
    let remarks = func.remarks.take().unwrap_or_default();
    let code = finish(&func, &stats, manager, serial)?;
    if let Some(start) = granted {
        pool::check::check(&code.insts, start.into()).map_err(|e| Error {
            // For who wants checks it is an error; for others the statements are ignored.
            pool: !manager.verifies(),
            ..Error::new(format!("internal error: {e}, in {}", func.name))
        })?;
    }
    Ok(Code {
        granted,
        regs: code.regs.max(stats.regs_used.into()),
        uregs: u32::from(stats.uregs_used),
        spill_store_bytes: stats.spill_store_bytes,
        spill_load_bytes: stats.spill_load_bytes,
        spill_slots: stats.spill_slots.0..stats.spill_slots.1,
        remarks,
        ..code
    })
}

/// Functions of more instructions are planned once.
const PLANNED_AGAIN: usize = 20_000;
/// The same for those of which values leave registers, and bytes that come back to some: where more do, it is no want of room for tuples.
const PLANNED_OTHERWISE: usize = 6_000;
const FEW_SPILLED: u32 = 128;
/// How much longer a kernel's plan may be for more warps to fit, as a share; and how much longer by the warps that fit. A plan's time is
/// that of one warp by itself: part of what it is longer for is hidden behind the other warps.
const LONGER: f64 = 1.5;
const LONGER_TOGETHER: f64 = 1.3;

/// A kernel with its registers given out, and how they were planned.
struct Planned {
    found: Allocation,
    plan: Option<(prepass::Planned, Option<prepass::Prepared>)>,
    /// Whether counters are in uniform registers.
    counts: bool,
}

impl Planned {
    /// Registers that its file is to state.
    fn stated(&self) -> u32 {
        u32::from(self.found.stats.regs_used) + u32::from(HARDWARE_REGISTERS)
    }
}

/// Plans and gives out registers. Where more are taken than were planned, so that fewer warps fit, once more with so many fewer to plan with:
/// the plan counts what lives, and not where it fits. Where values leave their registers, otherwise, if half of them or more stay there then. Then with so few that more warps fit, as long as nothing leaves its register for that
/// and it does not take much longer ([`LONGER`]).
fn allocate(func: Function, manager: &mut Manager<'_>, serial: bool) -> Result<Allocation, Error> {
    let again = func.entry && !serial && func.insts.len() <= PLANNED_AGAIN;
    let original = again.then(|| func.clone());
    let usual = Attempt { more: 0, counters: again, together: true };
    let mut best = match (allocate_once(func, manager, serial, usual), &original) {
        (Ok(found), _) => found,
        // There were too few uniform registers for counters, or lanes were not together.
        (Err(Failure::Registers(_)), Some(original)) => {
            let found =
                allocate_once(original.clone(), manager, serial, Attempt { counters: false, ..usual })?;
            return Ok(found.found);
        }
        (Err(e), _) => return Err(e.into()),
    };
    let Some(original) = original else { return Ok(best.found) };
    let others = [
        Attempt { together: false, ..usual },
        Attempt { more: SPARED, ..usual },
        Attempt { counters: false, ..usual },
    ];
    // Without counters there, two of them are no others.
    let counts = best.counts;
    let others = others.into_iter().filter(|a| counts || a.more > 0);
    for attempt in others.filter(|_| original.insts.len() <= PLANNED_OTHERWISE) {
        let spilled = best.found.stats.spill_load_bytes;
        if !(1..=FEW_SPILLED).contains(&spilled) {
            break;
        }
        let other = allocate_once(original.clone(), manager, serial, attempt);
        if let Some(other) = if_any(other, manager)?
            && 2 * other.found.stats.spill_load_bytes <= spilled
            && leaves_groups_alone(&other.found)
        {
            best = other;
        }
    }
    let Some((plan, _)) = &best.plan else { return Ok(best.found) };
    let warps = |stated: u32| prepass::warps_that_fit(&original, stated);
    let fit = warps(best.stated());
    if fit < warps(plan.stated) {
        let more = best.stated() as i32 - plan.stated as i32;
        let second = allocate_once(original.clone(), manager, serial, Attempt { more, ..usual });
        if let Some(second) = if_any(second, manager)?
            && warps(second.stated()) > fit
            && second.found.stats.spill_load_bytes <= best.found.stats.spill_load_bytes
            && leaves_groups_alone(&second.found)
        {
            best = second;
        }
    }
    if let Some((plan, _)) = &best.plan {
        let first = prepass::Planned { stated: best.stated(), ..*plan };
        while best.found.stats.spill_load_bytes == 0 && for_more_warps(&original, first, &mut best, manager)?
        {
        }
    }
    Ok(best.found)
}

/// Gives a kernel so few registers that more warps fit, if nothing leaves its register for that and it does not take much longer ([`LONGER`])
/// than `first`; whether it did. All registers are planned with first, as a plan that leaves some free is slower; then as usual, as not
/// everything fits into all of them.
fn for_more_warps(
    original: &Function,
    first: prepass::Planned,
    best: &mut Planned,
    manager: &mut Manager<'_>,
) -> Result<bool, Error> {
    let stated = best.stated();
    let (Some((plan, Some(prepared))), Some(fewer)) =
        (&mut best.plan, prepass::fewer_registers(original, stated))
    else {
        return Ok(false);
    };
    if registers_given(original) + u16::from(HARDWARE_REGISTERS) > fewer.into() {
        return Ok(false);
    }
    let share = |time: f64, stated: u32| time / f64::from(prepass::warps_that_fit(original, stated));
    for reserve in [0, prepass::RESERVE] {
        let Some((mut func, planned)) = prepared.within(fewer, reserve) else { continue };
        let together = share(planned.time, fewer.into()) / share(first.time, first.stated);
        // What leaves registers free takes longer still.
        if planned.time > LONGER * first.time || together > LONGER_TOGETHER {
            break;
        }
        func.max_regs = fewer;
        verify(phases::PREPASS, &func, manager, &mut Watch::default())?;
        if let Some(mut found) = if_any(place(func, manager, true, false), manager)?
            && leaves_groups_alone(&found)
        {
            found.func.max_regs = original.max_regs;
            (best.found, *plan) = (found, planned);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether nothing touches what products of warp groups have under way: to wait for each of them costs more than further warps bring.
fn leaves_groups_alone(found: &Allocation) -> bool {
    let Allocation { func, stats, .. } = found;
    let product = |i: &ori::Inst| func.insts[*i].opcode().is_some_and(sass::Opcode::is_group_product);
    if !func.layout.iter().any(|b| func.blocks[*b].insts.iter().any(product)) {
        return true;
    }
    let machine = machine::lower(func, stats.frame_bytes);
    machine.is_ok_and(|mut m| groups::run(&mut m, &(stats.spill_slots.0..stats.spill_slots.1)).is_ok())
}

/// General registers up to the highest that is given and not chosen: where a callee finds its arguments and its return address.
fn registers_given(func: &Function) -> u16 {
    let mut given = 0;
    let mut name = |n: Name| {
        if let Name::Phys(r) = n
            && r.file == RegFile::R
            && !r.is_zero()
        {
            given = given.max(u16::from(r.index) + 1);
        }
    };
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_def(&mut name);
            func.insts[i].for_each_use(&mut name);
        }
    }
    given
}

/// Why registers could not be planned and given out.
enum Failure {
    /// Something else is wrong.
    Other(Error),
    /// They do not reach, or may not be where they are.
    Registers(Error),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Other(e)
    }
}

impl From<Failure> for Error {
    fn from(f: Failure) -> Error {
        match f {
            Failure::Other(e) | Failure::Registers(e) => e,
        }
    }
}

/// Registers that are left free besides where tuples found no room.
const SPARED: i32 = 6;

/// Plans and gives out registers.
fn allocate_once(
    mut func: Function,
    manager: &mut Manager<'_>,
    serial: bool,
    attempt: Attempt,
) -> Result<Planned, Failure> {
    let mut outcome = prepass::Outcome::default();
    if !serial && manager.admits(phases::PREPASS) {
        let mut lanes = Watch::new(&func, manager.verifies());
        manager.run_outer(phases::PREPASS, &mut func, |f, m| outcome = prepass::run(f, m, attempt));
        if let Some((phase, errors)) = &outcome.wrong {
            return Err(Failure::Other(wrong(*phase, errors)));
        }
        verify(phases::PREPASS, &func, manager, &mut lanes)?;
    }
    let found = place(func, manager, attempt.counters, true)?;
    Ok(Planned { found, plan: outcome.planned, counts: outcome.counts })
}

/// Gives out registers to what was planned: `counters` may be in uniform ones, and values may leave theirs for memory if that `spills`.
fn place(
    mut func: Function,
    manager: &mut Manager<'_>,
    counters: bool,
    spills: bool,
) -> Result<Allocation, Failure> {
    let mut lanes = Watch::new(&func, manager.verifies());
    manager.run(phases::CONVERGENCE, &mut func, convergence::run)?;
    verify(phases::CONVERGENCE, &func, manager, &mut lanes)?;
    if counters && !regalloc::changes_together(&func, &Cfg::new(&func)) {
        return Err(Failure::Registers(Error::new("uniform registers change where lanes may be apart")));
    }
    let (check, pool) = (manager.verifies(), pool::changes(&func));
    let limits = regalloc::Limits { check, spills, ..regalloc::Limits::of(&func) };
    let found = manager.make(phases::ALLOCATE, || regalloc::allocate(func, &limits)).map_err(|e| {
        let error = Error::new(e.to_string());
        match e {
            regalloc::Error::Check(_) => Failure::Other(error),
            regalloc::Error::Pressure(_) | regalloc::Error::Move(_) => {
                Failure::Registers(Error { pool, ..error })
            }
        }
    })?;
    lanes.allocated(&found.func).map_err(|errors| wrong(phases::ALLOCATE, &errors))?;
    Ok(found)
}

/// What was found where there is something already if nothing was. What is wrong with the compiler is an error all the same, for who wants to
/// know.
fn if_any<T>(found: Result<T, Failure>, manager: &Manager<'_>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Other(e)) if manager.verifies() || cfg!(debug_assertions) => Err(e),
        Err(_) => Ok(None),
    }
}

/// Holds SSA to its rules where each phase is to be verified.
fn verify(after: Phase, func: &Function, manager: &Manager<'_>, lanes: &mut Watch) -> Result<(), Error> {
    let found = if manager.verifies() {
        ori::verify::verify(func).and_then(|()| {
            let meets = after == phases::CONVERGENCE;
            lanes.step(func, if meets { Kind::Meetings } else { Kind::Usual })
        })
    } else if after == phases::LEGALIZE {
        // Where the optimizer is done, on every compilation.
        ori::verify::outline(func)
    } else {
        return Ok(());
    };
    found.map_err(|errors| wrong(after, &errors))
}

/// What a phase broke.
fn wrong(after: Phase, errors: &[String]) -> Error {
    Error::new(format!("internal error: after {}: {}", after.name(), errors.join("; ")))
}

/// The phases after register allocation.
///
/// # Errors
/// On instructions without an encoding.
pub fn finish(
    func: &Allocated,
    stats: &regalloc::Stats,
    manager: &mut Manager<'_>,
    serial: bool,
) -> Result<Code, Error> {
    let watch = Watch::new(func, manager.verifies());
    let mut machine = manager.make(phases::EXPAND, || machine::lower(func, stats.frame_bytes))?;
    lanes::check(&watch, func, &machine).map_err(|errors| wrong(phases::EXPAND, &errors))?;
    let arrivals = groups::run(&mut machine, &(stats.spill_slots.0..stats.spill_slots.1))?;
    schedule_and_cover(&mut machine, func.entry, manager, serial);
    lanes::check(&watch, func, &machine).map_err(|errors| wrong(phases::HAZARDS, &errors))?;
    // For who wants checks that is an error; for others the products are waited for one by one.
    let otherwise = (!manager.verifies() && !cfg!(debug_assertions)).then_some(groups::Touched::Products);
    groups::check(&machine).map_err(|e| Error { groups_touched: otherwise, ..e })?;
    let mut code = manager.timed(phases::EMIT, || emit::run(&machine, func.entry))?;
    if manager.verifies() {
        hazards::check::check(func.target, &code.insts)
            .map_err(|found| Error::new(format!("internal error: {}: {}\n{machine}", func.name, found[0])))?;
    }
    code.arrivals = arrivals;
    code.frame_bytes = machine.frame_bytes;
    code.saved_stack = machine.saved_stack;
    code.stack_bytes = machine.frame_bytes;
    code.callees = func.callees.iter().cloned().collect();
    code.symbols.clone_from(&func.symbols);
    code.barriers = named_barriers(&code.insts).unwrap_or(u32::from(func.barriers));
    code.shared_size = func.shared_size;
    code.literals.clone_from(&func.literals);
    code.locals.clone_from(&func.locals);
    Ok(code)
}

/// How many named barriers code without calls uses, if all of them are constants.
fn named_barriers(insts: &[sass::Inst]) -> Option<u32> {
    let mut most = 0;
    for inst in insts {
        match (inst.op, sass::ops::Bar::of(inst).map(|s| s.barrier)) {
            (sass::Opcode::CALL, _) => return None,
            (_, Some(sass::Operand::Imm(n))) => most = most.max(*n + 1),
            (_, Some(_)) => return None,
            (_, None) => {}
        }
    }
    Some(most)
}

/// Orders the instructions of a kernel (`entry`) or function and covers their hazards.
fn schedule_and_cover(machine: &mut machine::Machine, entry: bool, manager: &mut Manager<'_>, serial: bool) {
    if !serial && manager.admits(phases::ZEROS) {
        manager.run(phases::ZEROS, machine, zero::run);
    }
    if !serial && manager.admits(phases::BALANCE) {
        manager.run(phases::BALANCE, machine, balance::run);
    }
    if !serial && manager.admits(phases::SCHEDULE) {
        manager.run(phases::SCHEDULE, machine, schedule::run);
    }
    manager.run(phases::ASYNC_COPIES, machine, |m| async_copies::run(m, entry));
    manager.run(phases::HAZARDS, machine, |m| hazards::run(m, serial));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_left_alone_unless_their_registers_are_touched() {
        let alone = |product: &str, meanwhile: &str| {
            let text = format!(
                "function k sm_90a entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    WARPGROUP.ARRIVE\n    {product}\n    {meanwhile}\n    \
                 WARPGROUP.DEPBAR.LE 0x0, 0x0\n    STG.E desc[UR4][R28.64], R24\n    exit\n}}\n"
            );
            let func = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}"));
            let func = Allocated::try_from(func).expect("registers");
            leaves_groups_alone(&Allocation { func, stats: regalloc::Stats::default() })
        };
        let product = "HGMMA.64x8x16.F32 R24, [UR0], R24, UPT, 0x0";
        assert!(alone(product, "FADD R30, R28, R28"));
        assert!(!alone(product, "FADD R30, R24, R28"), "reads the sum");
        assert!(!alone(product, "FADD R25, R28, R28"), "writes the sum");
        assert!(alone("FADD R24, R28, R28", "FADD R30, R24, R28"), "no product");
    }
}
