//! The register maps of `-g` are true: in front of every statement of a kernel, each register of the PTX that the map has a
//! place for holds there what the PTX interpreter says, in every thread. The SASS simulator runs the code.

use cubin::places::{Entry, Place, Sections};
use object::{Object, ObjectSection, ObjectSymbol};
use oxptxas::Settings;
use ptx::{FuncId, LineIndex, Module, Op, Operand, RegId, Stmt};
use sass::Target;
use sim::launch::{Launch, LaunchFile};
use sim::stops::{Slot, Stop, Stops};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The source with a `.loc` in front of every statement, each with a line of its own.
fn with_places(source: &str) -> String {
    let kept: Vec<&str> = source.lines().filter(|l| l.split_whitespace().next() != Some(".loc")).collect();
    let source = kept.join("\n");
    let module = ptx::parse(&source).unwrap();
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
    out + &source[from..] + "\n.file 1 \"places.cu\"\n"
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
/// comes of them.
fn free(module: &Module, f: FuncId) -> BTreeSet<RegId> {
    let Some(body) = &module.funcs[f].body else { return BTreeSet::new() };
    let insts: Vec<&ptx::Inst> =
        body.stmts.iter().filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None }).collect();
    let mut out = BTreeSet::new();
    let mut stored = false;
    loop {
        let before = (out.len(), stored);
        for i in &insts {
            let loads = matches!(i.op, Op::ld | Op::ldu);
            let param = i.has(ptx::Mod::param);
            let sources = i.operands.get(1..).unwrap_or(&[]);
            let address = |o: &Operand| matches!(o, Operand::Var(..) | Operand::Func(_));
            let special = |o: &Operand| matches!(o, Operand::Special(s, _) if format!("{s:?}").contains("clock") || format!("{s:?}").contains("smid"));
            let odd = sim::ptx::is_inexact(i)
                || matches!(i.op, Op::atom | Op::activemask | Op::call | Op::alloca)
                || sources.iter().any(special)
                || !loads && sources.iter().any(address)
                || !loads && sources.iter().flat_map(registers_of).any(|r| out.contains(&r))
                || loads && !param && stored;
            if i.op == Op::st && i.operands.iter().flat_map(registers_of).any(|r| out.contains(&r)) {
                stored = true;
            }
            if odd && i.op != Op::st {
                out.extend(
                    i.operands
                        .iter()
                        .take(if i.op == Op::call { usize::MAX } else { 1 })
                        .flat_map(registers_of),
                );
            }
            if i.op == Op::call {
                stored = true;
            }
        }
        if (out.len(), stored) == before {
            return out;
        }
    }
}

struct File {
    bytes: Vec<u8>,
    maps: BTreeMap<String, Vec<Entry>>,
    rows: cubin::read_lines::PtxLines,
}

impl File {
    fn new(bytes: Vec<u8>) -> File {
        let elf = object::File::parse(&bytes[..]).unwrap();
        let data = |name: &str| elf.section_by_name(name).unwrap().data().unwrap().to_vec();
        let sections =
            Sections { places: data(".nv_debug_info_reg_sass"), types: data(".nv_debug_info_reg_type") };
        let maps = cubin::places::read(&sections).unwrap().into_iter().collect();
        let rows = cubin::read_lines::ptx_lines(&bytes).unwrap();
        File { maps, rows, bytes }
    }

    /// The functions in the code of a kernel: symbol, offset, size.
    fn functions(&self, kernel: &str) -> Vec<(String, u64, u64)> {
        let elf = object::File::parse(&self.bytes[..]).unwrap();
        let own = elf.symbols().find(|s| s.name() == Ok(kernel)).unwrap();
        let prefix = format!("${kernel}$");
        let mut out = vec![(kernel.to_string(), 0, own.size())];
        for s in elf.symbols() {
            let name = s.name().unwrap();
            if name.starts_with(&prefix) {
                out.push((name.to_string(), s.address(), s.size()));
            }
        }
        out
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

/// What there is to compare of a launch: statements, and values that were compared in front of them.
#[derive(Default)]
struct Compared {
    values: usize,
    stops: usize,
}

type Wanted = (RegId, u32, u64);

fn compare(name: &str, module: &Module, lines: &LineIndex, file: &File, launch: &Launch) -> Compared {
    let functions = file.functions(&launch.kernel);
    let mut sass = Stops::<u32, Slot>::default();
    let mut ptx_stops = Stops::<u32, RegId>::default();
    // What is compared at each address: the statement there, its function, and registers.
    let mut meaning: BTreeMap<u32, (u32, FuncId, Vec<Wanted>)> = BTreeMap::new();
    // Whether what PTX does not fix decides which way threads go.
    let mut free_way = false;
    for (id, func) in module.funcs.iter().filter(|(_, f)| f.body.is_some()) {
        let body = func.body.as_ref().unwrap();
        let own = [launch.kernel.clone(), format!("${}${}", launch.kernel, func.name)];
        let symbol = if func.entry { &own[0] } else { &own[1] };
        if func.entry && func.name != launch.kernel {
            continue;
        }
        let Some((_, start, size)) = functions.iter().find(|f| f.0 == *symbol) else { continue };
        let free = free(module, id);
        let by_name: BTreeMap<&str, RegId> = body.regs.iter().map(|(r, d)| (d.name.as_str(), r)).collect();
        for pair in body.stmts.windows(2) {
            let [Stmt::Loc(_), Stmt::Inst(inst)] = pair else { continue };
            free_way |= inst.guard.is_some_and(|(p, _)| free.contains(&p));
            let line = lines.line(inst.span.start);
            let rows = &file.rows[&launch.kernel];
            let within = |at: &u64| (*start..start + size).contains(at);
            let nop = |at: u64| {
                sim::sass::instruction(&file.bytes, &launch.kernel, at as u32)
                    .is_ok_and(|t| t.contains("NOP"))
            };
            let Some((at, _)) = rows.iter().find(|(at, l)| *l == line && within(at) && nop(*at)) else {
                continue;
            };
            let offset = (at - start) as u32;
            let entries = file.maps.get(symbol).map_or(&[][..], |m| m);
            let here = entries.iter().filter(|e| e.start <= offset && offset <= e.end);
            let (mut slots, mut wanted) = (Vec::new(), Vec::new());
            for e in here {
                let r = by_name[e.register.as_str()];
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
    let mut probe = sim::sass::Probe::new(&[], None);
    probe.stops = sass;
    let run = sim::sass::observe(&file.bytes, launch, sim::sass::Options::default(), &mut probe).unwrap();
    let prepared = sim::ptx::stopped(module, launch, sim::ptx::Options::default(), &mut ptx_stops)
        .unwrap_or_else(|e| panic!("{name}: {}", e.message));
    if !free_way {
        let same = launch.compare(&run.buffers, &launch.collect(&prepared));
        assert_eq!(same, Ok(()), "{name}");
    }
    let by_thread = |stops: Vec<Stop<u32>>| {
        let mut out: BTreeMap<([u32; 3], u32), Vec<Stop<u32>>> = BTreeMap::new();
        stops.into_iter().for_each(|s| out.entry((s.block, s.thread)).or_default().push(s));
        out
    };
    let (code, text) = (by_thread(probe.stops.seen), by_thread(ptx_stops.seen));
    assert_eq!(code.keys().collect::<Vec<_>>(), text.keys().collect::<Vec<_>>(), "{name}");
    let mut done = Compared { stops: meaning.len(), ..Compared::default() };
    for (thread, code) in &code {
        let text = &text[thread];
        // Threads that wait for others may go round more often in one than in the other.
        for (c, t) in code.iter().zip(text) {
            let (start, func, wanted) = &meaning[&c.at];
            let line = lines.line(*start);
            if free_way && *start != t.at {
                break;
            }
            assert_eq!(*start, t.at, "{name}: thread {thread:?} goes another way, to line {line}");
            for (k, (register, word, mask)) in wanted.iter().enumerate() {
                let value = t.values[k] >> (32 * word) & mask;
                assert_eq!(
                    c.values[k] & mask,
                    value,
                    "{name}: line {line}, {} word {word} at {:#x}, thread {thread:?}",
                    module.funcs[*func].body.as_ref().unwrap().regs[*register].name,
                    c.at
                );
                done.values += 1;
            }
        }
    }
    done
}

fn check(name: &str, source: &str, launches: &[Launch], sm: u8) -> Compared {
    let source = with_places(source);
    let lines = LineIndex::new(&source);
    let mut settings = Settings::new(Target::new(sm).unwrap());
    settings.debug = true;
    let output = oxptxas::compile(&source, name, &settings).unwrap_or_else(|e| panic!("{}", e.render("t")));
    let mut module = ptx::parse(&source).unwrap();
    module.param_skew = settings.target.info().param_skew.into();
    let file = File::new(output.cubin);
    let mut all = Compared::default();
    for launch in launches.iter().take(1) {
        let done = compare(&format!("{name} for sm_{sm}"), &module, &lines, &file, launch);
        all.values += done.values;
        all.stops += done.stops;
    }
    all
}

#[test]
fn registers_are_where_the_map_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 23);
    let mut told = String::new();
    for path in &names {
        let name = path.file_stem().unwrap().to_string_lossy();
        let source = std::fs::read_to_string(path).unwrap();
        let mut launches =
            LaunchFile::parse(&std::fs::read_to_string(path.with_extension("toml")).unwrap()).unwrap().launch;
        // One block is enough.
        launches.truncate(1);
        launches.iter_mut().filter(|l| !l.cooperative && l.cluster.is_none()).for_each(|l| l.grid = [1; 3]);
        for sm in [75, 90, 120] {
            let done = check(&name, &source, &launches, sm);
            told += &format!("{name} sm_{sm}: {} statements, {} values\n", done.stops, done.values);
            assert!(done.stops > 5 && done.values > 100, "{told}");
        }
    }
    println!("{told}");
}
