//! Whether the register maps of `-g` are true: in front of every statement of a kernel, each register of the PTX that the map has
//! a place for has to hold there what the PTX interpreter says, in every thread. The SASS simulator runs the code.

use cubin::places::{Entry, Place, Sections};
use object::{Object, ObjectSection, ObjectSymbol};
use oxptxas::Settings;
use ptx::ast::{Addr, AddrBase};
use ptx::{FuncId, LineIndex, Module, Op, Operand, RegId, Stmt};
use sim::launch::Launch;
use sim::ptx::Fill;
use sim::schedule::Schedule;
use sim::stops::{Slot, Stop, Stops};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Warp instructions that the interpreter may spend on a launch, and the simulator.
const LIMITS: (u64, u64) = (200_000, 2_000_000);

/// Runs of the interpreter, with other contents of what nothing has written and in other orders of threads, that have to agree on what
/// a register holds before the code is asked: a predicate of undefined numbers agrees by chance in every second one.
const OTHERS: u32 = 8;

/// The source with a `.loc` in front of every statement, each with a line of its own.
fn with_places(source: &str) -> Result<String, Error> {
    let named = |l: &&str| !matches!(l.split_whitespace().next(), Some(".loc" | ".file"));
    let kept: Vec<&str> = source.lines().filter(named).collect();
    let source = kept.join("\n");
    let module = ptx::parse(&source).map_err(Error::Ptx)?;
    let stmts = module.funcs.values().flat_map(|f| &f.body).flat_map(|b| &b.stmts);
    let mut starts: Vec<usize> = stmts
        .filter_map(|s| if let Stmt::Inst(i) = s { Some(i.span.start as usize) } else { None })
        .collect();
    starts.sort_unstable();
    let (mut out, mut from) = (String::new(), 0);
    for (n, at) in starts.into_iter().enumerate() {
        out += &source[from..at];
        out += &format!("\n.loc 1 {} 0\n", n + 1);
        from = at;
    }
    Ok(out + &source[from..] + "\n.file 1 \"places.cu\"\n")
}

/// Why there is nothing to look at.
#[derive(Debug)]
pub enum Error {
    /// The PTX is wrong.
    Ptx(Vec<ptx::Diagnostic>),
    /// There is no code.
    Compile(oxptxas::Failure),
    /// What came of it is no ELF file.
    Elf(object::read::Error),
    /// It lacks this section.
    Missing(&'static str),
    /// Its map of registers is not as one is.
    Map,
    /// Its table of lines is not.
    Lines(cubin::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Ptx(errors) => f.write_str(errors.first().map_or("not accepted", |d| &d.message)),
            Error::Compile(failure) => failure.fmt(f),
            Error::Elf(e) => e.fmt(f),
            Error::Missing(section) => write!(f, "there is no {section}"),
            Error::Map => f.write_str("a map of registers that cannot be read"),
            Error::Lines(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// For who says errors as text.
impl From<Error> for String {
    fn from(e: Error) -> String {
        e.to_string()
    }
}

fn registers_of(o: &Operand) -> Vec<RegId> {
    match o {
        Operand::Reg(r) | Operand::NotPred(r) | Operand::NegReg(r) => vec![*r],
        Operand::Vector(v) => v
            .iter()
            .filter_map(|e| if let ptx::ast::VectorElem::Reg(r) = e { Some(*r) } else { None })
            .collect(),
        Operand::List(l) | Operand::Bracket(l) => l.iter().flat_map(registers_of).collect(),
        _ => Vec::new(),
    }
}

/// Registers whose value PTX does not fix: addresses of variables, approximations, clocks, what atomics find, and all that
/// comes of them, in each function.
fn free(module: &Module) -> BTreeMap<FuncId, BTreeSet<RegId>> {
    let all = |passed| -> BTreeMap<FuncId, (BTreeSet<RegId>, bool)> {
        module.funcs.keys().map(|f| (f, free_in(module, f, passed))).collect()
    };
    let mut found = all(false);
    if found.values().any(|f| f.1) {
        found = all(true);
    }
    found.into_iter().map(|(f, (registers, _))| (f, registers)).collect()
}

/// Those of one function, and whether it passes or returns any; `passed`: parameters of functions and what calls return may be so.
fn free_in(module: &Module, f: FuncId, passed: bool) -> (BTreeSet<RegId>, bool) {
    let func = &module.funcs[f];
    let mut out = BTreeSet::new();
    let Some(body) = &func.body else { return (out, false) };
    let insts: Vec<&ptx::Inst> =
        body.stmts.iter().filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None }).collect();
    let (mut stored, mut passes) = (false, false);
    loop {
        let before = (out.len(), stored);
        for i in &insts {
            let loads = matches!(i.op, Op::ld | Op::ldu);
            let param = i.has(ptx::Mod::param);
            let sources = i.operands.get(1..).unwrap_or(&[]);
            let address = |o: &Operand| matches!(o, Operand::Var(..) | Operand::Func(_));
            let of_kernel = |o: &Operand| match o {
                Operand::Var(v, _) | Operand::Addr(Addr { base: AddrBase::Var(v), .. }) => {
                    func.entry && func.params.contains(v)
                }
                _ => false,
            };
            let special = |o: &Operand| matches!(o, Operand::Special(s, _) if format!("{s:?}").contains("clock") || format!("{s:?}").contains("smid"));
            let odd = sim::ptx::is_inexact(i)
                || matches!(i.op, Op::atom | Op::activemask | Op::call | Op::alloca)
                || sources.iter().any(special)
                || !loads && sources.iter().any(address)
                || !loads && sources.iter().flat_map(registers_of).any(|r| out.contains(&r))
                || loads && param && passed && !sources.iter().any(of_kernel)
                || loads && !param && stored;
            if i.op == Op::st && i.operands.iter().flat_map(registers_of).any(|r| out.contains(&r)) {
                stored = true;
                passes |= param;
            }
            if odd && i.op != Op::st {
                let first = if i.op == Op::call { usize::MAX } else { 1 };
                out.extend(i.operands.iter().take(first).flat_map(registers_of));
            }
            stored |= i.op == Op::call;
        }
        if (out.len(), stored) == before {
            return (out, passes);
        }
    }
}

struct File {
    bytes: Vec<u8>,
    maps: BTreeMap<String, Vec<Entry>>,
    rows: cubin::read_lines::PtxLines,
}

impl File {
    fn new(bytes: Vec<u8>) -> Result<File, Error> {
        let elf = object::File::parse(&bytes[..]).map_err(Error::Elf)?;
        let data = |name| {
            let section = elf.section_by_name(name).and_then(|s| s.data().ok());
            section.map(<[u8]>::to_vec).ok_or(Error::Missing(name))
        };
        let sections =
            Sections { places: data(".nv_debug_info_reg_sass")?, types: data(".nv_debug_info_reg_type")? };
        let maps = cubin::places::read(&sections).ok_or(Error::Map)?;
        let rows = cubin::read_lines::ptx_lines(&bytes).map_err(Error::Lines)?;
        Ok(File { maps: maps.into_iter().collect(), rows, bytes })
    }

    /// The bytes of a function's code, in a section of its own.
    fn size(&self, function: &str) -> Option<u64> {
        let elf = object::File::parse(&self.bytes[..]).ok()?;
        let mut symbols = elf.symbols();
        symbols.find(|s| s.name() == Ok(function) && s.section_index().is_some()).map(|s| s.size())
    }
}

fn slot(place: Place) -> Slot {
    match place {
        Place::Register(n) => Slot::Register(n),
        Place::Predicate(n) => Slot::Predicate(n),
        Place::UniformRegister(n) => Slot::UniformRegister(n),
        Place::UniformPredicate(n) => Slot::UniformPredicate(n),
        Place::Stack(n) => Slot::Stack(n.into()),
    }
}

/// What was compared.
#[derive(Clone, Copy, Default, Debug)]
pub struct Compared {
    /// Values in registers, in front of statements.
    pub values: usize,
    /// Statements.
    pub stops: usize,
}

/// Why nothing was compared, or what differs.
#[derive(Debug)]
pub enum Failure {
    /// The launch has no result, or the PTX is not accepted.
    Nothing(String),
    /// The map, or the code, is wrong.
    Wrong(String),
}

type Wanted = (RegId, u32, u64);

fn compare(module: &Module, lines: &LineIndex, file: &File, launch: &Launch) -> Result<Compared, Failure> {
    let image = cubin::read::read(&file.bytes).map_err(|e| Failure::Wrong(e.to_string()))?;
    let starts: BTreeMap<&str, u64> = image.behind(&launch.kernel).into_iter().collect();
    let mut sass = Stops::<u32, Slot>::default();
    let mut ptx_stops = Stops::<u32, RegId>::default();
    // What is compared at each address: the statement there, its function, and registers.
    let mut meaning: BTreeMap<u32, (u32, FuncId, Vec<Wanted>)> = BTreeMap::new();
    // Whether what PTX does not fix decides which way threads go.
    let mut free_way = false;
    let free = free(module);
    for (id, func) in module.funcs.iter() {
        let Some(body) = &func.body else { continue };
        let symbol = &func.name;
        let start = if *symbol == launch.kernel { Some(&0) } else { starts.get(symbol.as_str()) };
        let (Some(start), Some(size)) = (start, file.size(symbol)) else { continue };
        let free = &free[&id];
        let by_name: BTreeMap<&str, RegId> = body.regs.iter().map(|(r, d)| (d.name.as_str(), r)).collect();
        for pair in body.stmts.windows(2) {
            let [Stmt::Loc(_), Stmt::Inst(inst)] = pair else { continue };
            free_way |= inst.guard.is_some_and(|(p, _)| free.contains(&p));
            let line = lines.line(inst.span.start);
            let Some(rows) = file.rows.get(&launch.kernel) else { continue };
            let within = |at: &u64| (*start..start + size).contains(at);
            let nop = |at: u64| {
                sim::sass::instruction(&file.bytes, &launch.kernel, at as u32)
                    .is_ok_and(|t| t.contains("NOP"))
            };
            let Some((at, _)) = rows.iter().find(|(at, l)| *l == line && within(at) && nop(*at)) else {
                continue;
            };
            let offset = (at - start) as u32;
            let entries = file.maps.get(&**symbol).map_or(&[][..], |m| m);
            let here = entries.iter().filter(|e| e.start <= offset && offset <= e.end);
            let (mut slots, mut wanted) = (Vec::new(), Vec::new());
            for e in here {
                let Some(r) = by_name.get(e.register.as_str()).copied() else {
                    let what = format!("the map of {symbol} has {}, which is no register of it", e.register);
                    return Err(Failure::Wrong(what));
                };
                if !free.contains(&r) {
                    slots.push(slot(e.place));
                    let bits = 8 * body.regs[r].ty.bytes();
                    let left = bits.saturating_sub(32 * e.word).clamp(1, 32);
                    let mask = match e.place {
                        Place::Predicate(_) | Place::UniformPredicate(_) => 1,
                        _ => u32::MAX >> (32 - left),
                    };
                    wanted.push((r, e.word, u64::from(mask)));
                }
            }
            sass.wanted.insert(*at as u32, slots);
            ptx_stops.wanted.insert(inst.span.start, wanted.iter().map(|w| w.0).collect());
            meaning.insert(*at as u32, (inst.span.start, id, wanted));
        }
    }
    let options = sim::ptx::Options { limit: LIMITS.0, ..sim::ptx::Options::default() };
    let prepared = sim::ptx::stopped(module, launch, options, &mut ptx_stops);
    let prepared = prepared.map_err(|e| Failure::Nothing(e.message))?;
    // What depends on the order of threads, or on what nothing has written, is another thing the next time.
    let expected = launch.collect(&prepared);
    let mut stable = true;
    let mut others = Vec::new();
    for seed in 0..OTHERS {
        let schedule = Schedule::Random(seed.into());
        let options = sim::ptx::Options { fill: Fill::Random(seed), schedule, ..options };
        let mut stops = Stops::at(ptx_stops.wanted.clone());
        let again = sim::ptx::stopped(module, launch, options, &mut stops);
        let again = again.map_err(|e| Failure::Nothing(e.message))?;
        stable &= launch.compare(&launch.collect(&again), &expected).is_ok();
        others.push(stops);
    }
    let mut probe = sim::sass::Probe::new(&[], None);
    probe.stops = sass;
    let options = sim::sass::Options { limit: LIMITS.1, ..sim::sass::Options::default() };
    let run = sim::sass::observe(&file.bytes, launch, options, &mut probe)
        .map_err(|e| Failure::Wrong(e.to_string()))?;
    if !free_way && stable {
        launch.compare(&run.buffers, &expected).map_err(|e| Failure::Wrong(e.to_string()))?;
    }
    // What is too much is of fewer threads.
    let stride =
        probe.stops.stride().max(ptx_stops.stride()).max(others.iter().map(Stops::stride).max().unwrap_or(1));
    let by_thread = |stops: &mut dyn Iterator<Item = Stop<u32>>| {
        let mut out: BTreeMap<([u32; 3], u32), Vec<Stop<u32>>> = BTreeMap::new();
        stops.for_each(|s| out.entry((s.block, s.thread)).or_default().push(s));
        out
    };
    let (code, text) = (by_thread(&mut probe.stops.seen(stride)), by_thread(&mut ptx_stops.seen(stride)));
    let others: Vec<_> = others.into_iter().map(|o| by_thread(&mut o.seen(stride))).collect();
    if !code.keys().eq(text.keys()) {
        return Err(Failure::Wrong("other threads get to statements than in the PTX".into()));
    }
    let mut done = Compared { stops: meaning.len(), ..Compared::default() };
    for (thread, code) in &code {
        let Some(others) = others.iter().map(|o| o.get(thread)).collect::<Option<Vec<_>>>() else { continue };
        // Threads that wait for others may go round more often in one than in the other.
        let shortest = others.iter().map(|o| o.len()).min().unwrap_or(0);
        for (n, (c, t)) in code.iter().zip(&text[thread]).take(shortest).enumerate() {
            let (start, func, wanted) = &meaning[&c.at];
            let line = lines.line(*start);
            if others.iter().any(|o| o[n].at != t.at) || free_way && *start != t.at {
                break;
            }
            if *start != t.at {
                return Err(Failure::Wrong(format!("thread {thread:?} goes another way, to line {line}")));
            }
            for (k, (register, word, mask)) in wanted.iter().enumerate() {
                let value = t.values[k] >> (32 * word) & mask;
                if others.iter().any(|o| o[n].values[k] >> (32 * word) & mask != value) {
                    continue;
                }
                if c.values[k] & mask != value {
                    let body = module.funcs[*func].body.as_ref();
                    let name = body.map_or("", |b| b.regs[*register].name.as_str());
                    return Err(Failure::Wrong(format!(
                        "line {line}, {name} word {word} at {:#x}, thread {thread:?}: {:#x} in the code, {value:#x} by the PTX",
                        c.at,
                        c.values[k] & mask
                    )));
                }
                done.values += 1;
            }
        }
    }
    Ok(done)
}

/// A module with a line for each statement, compiled for debuggers.
pub struct Debugged {
    module: Module,
    lines: LineIndex,
    file: File,
}

impl Debugged {
    /// Compiles the text of a PTX file, in which each statement gets a line of its own, for a target.
    ///
    /// # Errors
    /// What is wrong with the PTX, or with the file that comes of it.
    pub fn new(source: &str, target: sass::Target) -> Result<Debugged, Error> {
        let source = with_places(source)?;
        let settings = Settings { debug: true, ..Settings::new(target) };
        let output = oxptxas::compile(&source, "places.ptx", &settings).map_err(Error::Compile)?;
        let mut module = ptx::parse(&source).map_err(Error::Ptx)?;
        lower::layout::place_params(&mut module, target);
        Ok(Debugged { module, lines: LineIndex::new(&source), file: File::new(output.cubin)? })
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Runs a launch, and compares every register that has a place with what the PTX says.
    ///
    /// # Errors
    /// What differs, or why there is nothing to compare.
    pub fn check(&self, launch: &Launch) -> Result<Compared, Failure> {
        compare(&self.module, &self.lines, &self.file, launch)
    }
}
