//! `mine-classes`: which instructions and statements ask for which ISA_CLASS and INST_TENSORMAP_V1 of `.nv.compat`.
//!
//! Both are the file's: the class is the largest that one of its instructions asks for, the other a set of bits. So a module of
//! class 1 shows that nothing in it asks for more, and of the others one kernel of each kind is compiled alone.

use crate::code::ptx_files;
use crate::statements::{Verdict, compile_parts, error_lines};
use contract::File;
use contract::elf::{Elf, NV_COMPAT, split};
use rayon::prelude::*;
use sass::{Mod, Opcode, Target};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What to mine from.
#[derive(clap::Args)]
pub struct Options {
    /// Modules of statements (example `statements` of crates/ptx).
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Options of ptxas, each a compilation.
    #[arg(long, value_delimiter = ',', default_value = "-O3", allow_hyphen_values = true)]
    levels: Vec<String>,
    /// So many statements of each operation, evenly chosen.
    #[arg(long, default_value_t = 100)]
    most: usize,
    /// Print the tables and write nothing.
    #[arg(long)]
    print: bool,
}

/// Opcode and modifiers of an instruction, in their order.
type Form = (Opcode, Vec<Mod>);
/// The words of a statement's instruction, the operation first.
type Words = Vec<String>;

/// What kernels that are compiled alone differ in: the SM, the operation, the forms that may ask, and words.
type Kind = (u8, String, BTreeSet<Form>, Words);
/// A kernel to compile alone: the text, the kernel, the target and the level.
type Job<'a> = (String, &'a Kernel, String, String);

/// What a file states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stated {
    class: u8,
    tensors: u8,
}

/// A kernel: its statement and the forms of its code.
#[derive(Clone)]
struct Kernel {
    statement: String,
    words: Words,
    forms: BTreeSet<Form>,
}

/// A compiled text.
struct Made {
    sm: u8,
    head: String,
    /// Each kernel with its text.
    kernels: Vec<(Kernel, String)>,
    stated: Stated,
}

fn stated(bytes: &[u8]) -> Option<Stated> {
    let elf = Elf::new(bytes).ok()?;
    let section = elf.sections.iter().find(|s| s.ty == NV_COMPAT)?;
    let records = split(elf.bytes(section));
    let value = |code: u8| Some(*records.iter().find(|r| r.1 == code)?.2.first()?);
    Some(Stated { class: value(2)?, tensors: value(3)? })
}

fn words(statement: &str) -> Words {
    let name = statement.split([' ', ';']).next().unwrap_or_default();
    name.split('.').map(str::to_string).collect()
}

/// The kernels of a module of statements: head, and each kernel's statement and text.
fn kernels(text: &str) -> Option<(String, Vec<(String, String)>)> {
    let (head, kernels) = crate::statements::split(text)?;
    let each = |k: &&str| Some((k.lines().next()?.strip_prefix("// ")?.to_string(), (*k).to_string()));
    Some((head.to_string(), kernels.iter().map(each).collect::<Option<_>>()?))
}

/// Modules of one operation and target each, of the targets that state what they ask for; texts that are no modules of statements as they are.
fn modules(paths: &[PathBuf], most: usize) -> Vec<(Target, String)> {
    type Texts = Vec<(Words, String)>;
    let mut others = vec![];
    let mut of: BTreeMap<(Target, String), (String, Texts)> = BTreeMap::new();
    for path in paths.iter().flat_map(|p| ptx_files(p)) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let target = crate::code::own_target(&text).and_then(|t| Target::parse(&format!("sm_{t}")));
        let Some(own) = target else { continue };
        let targets = crate::compile::targets_of(own).into_iter().filter(|t| t.sm >= 90);
        let Some((head, list)) = kernels(&text) else {
            others.extend(targets.map(|target| (target, text.clone())));
            continue;
        };
        for target in targets {
            for (statement, text) in &list {
                let operation = words(statement).swap_remove(0);
                let entry = of.entry((target, operation)).or_insert_with(|| (head.clone(), vec![]));
                entry.1.push((words(statement), text.clone()));
            }
        }
    }
    for ((target, _), (head, texts)) in of {
        // Each word of the operation, each two that stand together, and others.
        let mut seen: BTreeSet<&[String]> = BTreeSet::new();
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        for (i, (words, _)) in texts.iter().enumerate() {
            let pairs = words.windows(2).filter(|p| p.iter().all(|w| !is_size(w)));
            for part in words.chunks(1).chain(pairs) {
                if seen.insert(part) {
                    chosen.insert(i);
                }
            }
        }
        let number = texts.len().min(most);
        chosen.extend((0..number).map(|i| i * texts.len() / number));
        let chosen: Vec<String> = chosen.iter().enumerate().map(|(n, i)| renamed(&texts[*i].1, n)).collect();
        others.extend(chosen.chunks(BATCH).map(|c| (target, format!("{head}{}", c.concat()))));
    }
    others
}

/// Whether the word is a type or a shape, of which there are many alike.
fn is_size(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit()) && !word.contains(':')
}

/// Instructions that among what is compiled only statements have that ask, and that ask for nothing: `atom.global.sys.exch.b32` alone is of
/// class 1, and USGXT extends the sign of a number that `tensormap.replace` writes.
const COINCIDENCES: &[(Opcode, &[Mod])] = &[(Opcode::ATOMG, &[Mod::EXCH]), (Opcode::USGXT, &[])];

/// Kernels in a module.
const BATCH: usize = 25;

/// The kernel under another number.
fn renamed(text: &str, number: usize) -> String {
    let Some((before, rest)) = text.split_once(".visible .entry statement") else { return text.into() };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}.visible .entry statement{number}{rest}")
}

struct Miner<'a> {
    bin: &'a Path,
    dir: PathBuf,
    number: AtomicUsize,
}

impl Miner<'_> {
    /// What ptxas makes of a text.
    fn compile(&self, text: &str, target: &str, level: &str) -> Result<Vec<u8>, Vec<usize>> {
        let name = self.dir.join(self.number.fetch_add(1, Ordering::Relaxed).to_string());
        let (ptx, out) = (name.with_extension("ptx"), name.with_extension("cubin"));
        std::fs::write(&ptx, text).map_err(|_| vec![])?;
        let mut ptxas = Command::new(self.bin.join("ptxas"));
        ptxas.args(["-arch", target, level]).arg(&ptx).arg("-o").arg(&out);
        let done = ptxas.output().map_err(|_| vec![])?;
        let bytes = std::fs::read(&out);
        for file in [&ptx, &out] {
            let _ = std::fs::remove_file(file);
        }
        match bytes {
            Ok(bytes) if done.status.success() => Ok(bytes),
            _ => {
                let said = String::from_utf8_lossy(&done.stderr) + String::from_utf8_lossy(&done.stdout);
                Err(error_lines(&said))
            }
        }
    }

    fn made(&self, text: &str, bytes: &[u8]) -> Option<Made> {
        let file = File::open(bytes).ok()?;
        let Some((head, list)) = kernels(text) else {
            let forms = |k: &contract::Kernel| -> Vec<Form> {
                let insts = k.items.iter().filter_map(|i| i.inst());
                insts.map(|i| (i.op, i.mods.iter().collect())).collect()
            };
            let whole = Kernel {
                statement: text.lines().next().unwrap_or_default().into(),
                words: vec![String::new()],
                forms: file.kernels.iter().flat_map(forms).collect::<BTreeSet<Form>>(),
            };
            let kernels = vec![(whole, String::new())];
            return Some(Made { sm: file.target.sm, head: String::new(), kernels, stated: stated(bytes)? });
        };
        let name = |text: &str| {
            let (_, rest) = text.split_once(".visible .entry ")?;
            Some(rest.split('(').next()?.to_string())
        };
        let kernels = list.into_iter().filter_map(|(statement, text)| {
            let name = name(&text)?;
            let code = file.kernels.iter().find(|k| k.name == name)?;
            let insts = code.items.iter().filter_map(|i| i.inst());
            let forms = insts.map(|i| (i.op, i.mods.iter().collect())).collect();
            Some((Kernel { words: words(&statement), statement, forms }, text))
        });
        Some(Made { sm: file.target.sm, head, kernels: kernels.collect(), stated: stated(bytes)? })
    }
}

/// What one target's files showed.
#[derive(Default)]
struct Shown {
    /// The least class of the files with such a form, and the bits that all of them have.
    forms: HashMap<Form, Stated>,
    /// The same of statements.
    words: HashMap<Words, Stated>,
    /// Kernels alone.
    alone: Vec<(Kernel, Stated)>,
}

impl Stated {
    fn meet(&mut self, other: Stated) {
        self.class = self.class.min(other.class);
        self.tensors &= other.tensors;
    }
}

impl Shown {
    fn see(&mut self, kernel: &Kernel, stated: Stated) {
        for form in &kernel.forms {
            self.forms.entry(form.clone()).or_insert(stated).meet(stated);
        }
        self.words.entry(kernel.words.clone()).or_insert(stated).meet(stated);
    }
}

/// Something that is asked for: at least a class, or a bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Asked {
    Tensors(u8),
    Class(u8),
}

impl Asked {
    fn by(self, stated: Stated) -> bool {
        match self {
            Asked::Class(n) => stated.class >= n,
            Asked::Tensors(bits) => stated.tensors & bits == bits,
        }
    }
}

/// A row: who asks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Who {
    Code(Opcode, Vec<Mod>),
    Statement(Vec<String>),
}

impl Who {
    fn is(&self, kernel: &Kernel) -> bool {
        match self {
            Who::Code(op, mods) => kernel.forms.iter().any(|f| f.0 == *op && in_order(mods, &f.1)),
            Who::Statement(words) => is_statement(words, &kernel.words),
        }
    }
    /// Whether a target shows such, and all of them ask for so much.
    fn holds(&self, shown: &Shown, asked: Asked) -> bool {
        let such: Vec<Stated> = match self {
            Who::Code(op, mods) => {
                let such = shown.forms.iter().filter(|(f, _)| f.0 == *op && in_order(mods, &f.1));
                such.map(|(_, s)| *s).collect()
            }
            Who::Statement(words) => {
                shown.words.iter().filter(|(w, _)| is_statement(words, w)).map(|(_, s)| *s).collect()
            }
        };
        !such.is_empty() && such.iter().all(|s| asked.by(*s))
    }
    /// Whether it is one of [`COINCIDENCES`].
    fn is_coincidence(&self) -> bool {
        let Who::Code(op, mods) = self else { return false };
        COINCIDENCES.iter().any(|(o, m)| o == op && m.iter().all(|m| mods.contains(m)))
    }
    fn length(&self) -> usize {
        match self {
            Who::Code(_, mods) => mods.len(),
            Who::Statement(words) => words.len(),
        }
    }
    /// Those that a kernel gives rise to: with no modifier, one or two.
    fn of(kernel: &Kernel, code: bool) -> Vec<Who> {
        if !code {
            let (op, mods) = kernel.words.split_first().expect("a statement has an operation");
            if op.is_empty() {
                return vec![];
            }
            let of = |mods: Vec<&String>| Who::Statement(std::iter::once(op).chain(mods).cloned().collect());
            return subsets(&mods.iter().collect::<Vec<_>>()).into_iter().map(of).collect();
        }
        let each = kernel
            .forms
            .iter()
            .flat_map(|(op, mods)| subsets(mods).into_iter().map(|m| Who::Code(*op, m)).collect::<Vec<_>>());
        each.collect()
    }
}

/// Whether some stand among all, one behind the other.
fn in_order(some: &[Mod], all: &[Mod]) -> bool {
    let mut all = all.iter();
    some.iter().all(|m| all.any(|a| a == m))
}

fn is_statement(some: &[String], all: &[String]) -> bool {
    some.first() == all.first() && some.iter().all(|w| all.contains(w))
}

/// Subsets of at most two.
fn subsets<T: Copy>(of: &[T]) -> Vec<Vec<T>> {
    let mut out = vec![vec![]];
    for (i, a) in of.iter().enumerate() {
        out.push(vec![*a]);
        out.extend(of[i + 1..].iter().map(|b| vec![*a, *b]));
    }
    out
}

type Rows = BTreeMap<(Asked, Who), BTreeSet<u8>>;

/// The fewest rows that say why kernels alone ask for so much, most general first.
fn explain(shown: &BTreeMap<u8, Shown>, asked: Asked, rows: &mut Rows) {
    for code in [true, false] {
        let mut open: Vec<(u8, &Kernel)> = shown
            .iter()
            .flat_map(|(sm, s)| s.alone.iter().map(move |(k, stated)| (*sm, k, *stated)))
            .filter(|(_, _, stated)| asked.by(*stated))
            .map(|(sm, k, _)| (sm, k))
            .collect();
        let explained = |rows: &Rows, sm: u8, k: &Kernel| {
            rows.iter().any(|((a, who), sms)| {
                let enough = match (a, asked) {
                    (Asked::Class(a), Asked::Class(n)) => *a >= n,
                    (a, asked) => *a == asked,
                };
                enough && sms.contains(&sm) && who.is(k)
            })
        };
        open.retain(|(sm, k)| !explained(rows, *sm, k));
        let mut holds: HashMap<(u8, Who), bool> = HashMap::new();
        while !open.is_empty() {
            let mut covers: BTreeMap<Who, BTreeMap<u8, usize>> = BTreeMap::new();
            for (sm, kernel) in &open {
                // Each once, however often the kernel has it.
                for who in Who::of(kernel, code).into_iter().collect::<BTreeSet<_>>() {
                    if who.is_coincidence() {
                        continue;
                    }
                    let fits =
                        *holds.entry((*sm, who.clone())).or_insert_with(|| who.holds(&shown[sm], asked));
                    if fits {
                        *covers.entry(who).or_default().entry(*sm).or_default() += 1;
                    }
                }
            }
            let best = covers
                .into_iter()
                .max_by_key(|(who, n)| (n.values().sum::<usize>(), std::cmp::Reverse(who.length())));
            let Some((who, sms)) = best else { break };
            open.retain(|(sm, k)| !(sms.contains_key(sm) && who.is(k)));
            // It holds, too, where other rows would explain all kernels.
            let sms = shown.iter().filter(|(_, s)| who.holds(s, asked)).map(|(sm, _)| *sm).collect();
            rows.insert((asked, who), sms);
        }
    }
}

fn predicted(rows: &Rows, sm: u8, kernels: &[(Kernel, String)]) -> Stated {
    let mut out = Stated { class: 1, tensors: 0 };
    for ((asked, who), sms) in rows {
        if sms.contains(&sm) && kernels.iter().any(|(k, _)| who.is(k)) {
            match asked {
                Asked::Class(n) => out.class = out.class.max(*n),
                Asked::Tensors(bits) => out.tensors |= bits,
            }
        }
    }
    out
}

/// `cargo xtask mine-classes`
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let dir = root.join("target/mine-classes");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let miner = Miner { bin, dir, number: AtomicUsize::new(0) };
    let texts = modules(&options.paths, options.most);
    let jobs: Vec<(&(Target, String), &String)> =
        texts.iter().flat_map(|t| options.levels.iter().map(move |l| (t, l))).collect();
    // Modules as a whole.
    let all: Mutex<Vec<(Made, String, String)>> = Mutex::new(vec![]);
    jobs.par_iter().for_each(|((target, text), level)| {
        let target = target.to_string();
        compile_parts(text, &mut |part, _| match miner.compile(part, &target, level) {
            Ok(bytes) => {
                let made = miner.made(part, &bytes).map(|m| (m, target.clone(), level.to_string()));
                all.lock().expect("no panic").extend(made);
                Verdict::Taken
            }
            Err(lines) => Verdict::Refused(lines),
        });
    });
    let all = all.into_inner().expect("no panic");
    let mut shown: BTreeMap<u8, Shown> = BTreeMap::new();
    for (made, ..) in &all {
        let shown = shown.entry(made.sm).or_default();
        made.kernels.iter().for_each(|(k, _)| shown.see(k, made.stated));
    }
    // Of modules that ask for something, one kernel of each kind alone: of those with forms that may ask, by these; else by
    // their words without the types.
    let plain = Stated { class: 1, tensors: 0 };
    let mut whole: Vec<(u8, Kernel, Stated)> = vec![];
    let mut kinds: BTreeMap<Kind, Job<'_>> = BTreeMap::new();
    for (made, target, level) in all.iter().filter(|m| m.0.stated != plain) {
        let shown = &shown[&made.sm];
        for (kernel, text) in &made.kernels {
            if text.is_empty() {
                whole.push((made.sm, kernel.clone(), made.stated));
                continue;
            }
            // Of opcodes that never are plain, the modifiers count for little.
            let mixed = |op: Opcode| shown.forms.iter().any(|(f, s)| f.0 == op && *s == plain);
            let asking = kernel.forms.iter().filter(|f| shown.forms[*f] != plain);
            let asking: BTreeSet<Form> =
                asking
                    .map(|f| {
                        if mixed(f.0) { f.clone() } else { (f.0, f.1.first().copied().into_iter().collect()) }
                    })
                    .collect();
            let words = if asking.is_empty() {
                &kernel.words[..]
            } else {
                &kernel.words[..kernel.words.len().min(2)]
            };
            let key = (made.sm, kernel.words[0].clone(), asking, words.to_vec());
            let job = || (format!("{}{text}", made.head), kernel, target.clone(), level.clone());
            kinds.entry(key).or_insert_with(job);
        }
    }
    let kinds: Vec<_> = kinds.into_iter().map(|(key, job)| (key.0, job)).collect();
    println!("{} texts, {} kernels alone", all.len(), kinds.len());
    let alone: Vec<(u8, Kernel, Stated)> = kinds
        .par_iter()
        .filter_map(|(sm, (text, kernel, target, level))| {
            let stated = miner.compile(text, target, level).ok().and_then(|b| stated(&b))?;
            Some((*sm, (*kernel).clone(), stated))
        })
        .collect();
    for (sm, kernel, stated) in alone.into_iter().chain(whole) {
        let shown = shown.entry(sm).or_default();
        shown.see(&kernel, stated);
        shown.alone.push((kernel, stated));
    }
    let mut rows = Rows::new();
    for asked in [4, 3, 2].map(Asked::Class).into_iter().chain([1, 2].map(Asked::Tensors)) {
        explain(&shown, asked, &mut rows);
    }
    // What the rows say of everything that was compiled.
    let mut wrong = 0;
    for (made, target, level) in &all {
        let by_rows = predicted(&rows, made.sm, &made.kernels);
        if by_rows != made.stated {
            wrong += 1;
            let first = &made.kernels[0].0.statement;
            eprintln!(
                "{target} {level} module of {first}: states {:?}, the rows say {by_rows:?}",
                made.stated
            );
        }
    }
    for (sm, shown) in &shown {
        for (kernel, stated) in &shown.alone {
            let by_rows = predicted(&rows, *sm, &[(kernel.clone(), String::new())]);
            if by_rows != *stated {
                wrong += 1;
                eprintln!("sm_{sm} {}: states {stated:?}, the rows say {by_rows:?}", kernel.statement);
            }
        }
    }
    let mut tables = [String::new(), String::new()];
    for ((asked, who), sms) in &rows {
        let asked = match asked {
            Asked::Class(n) => format!("class {n}"),
            Asked::Tensors(n) => format!("tensors {n}"),
        };
        let sms: Vec<String> = sms.iter().map(u8::to_string).collect();
        let sms = sms.join(",");
        match who {
            Who::Code(op, mods) => {
                let mods: String = mods.iter().map(|m| format!(" {}", m.name())).collect();
                tables[0] += &format!("asks {asked} {sms} {}{mods}\n", op_name(*op));
            }
            Who::Statement(words) => tables[1] += &format!("{asked} {sms} {}\n", words.join(" ")),
        }
    }
    println!("{}-- statements\n{}{wrong} files are not as the rows say", tables[0], tables[1]);
    if options.print {
        return Ok(());
    }
    for (path, head, table) in [
        ("crates/sass/isa/asks.isa", CODE, &tables[0]),
        ("crates/oxptxas/src/facts/statements.txt", STATEMENTS, &tables[1]),
    ] {
        std::fs::write(root.join(path), format!("{head}{table}")).map_err(|e| format!("{path}: {e}"))?;
    }
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} files are not as the rows say")) }
}

const CODE: &str = "\
# What instructions ask of those who run a file, as ptxas 13.0.88 states it in .nv.compat: class, ISA_CLASS (1 of what
# has no row); tensors, bits of INST_TENSORMAP_V1. Then SMs, the opcode, and modifiers that the instruction has. Written by
# `cargo xtask mine-classes ST`, with ST from the example `statements` of crates/ptx (docs/hardware-contract.md).
";
const STATEMENTS: &str = "\
# What statements ask for whose instructions don't say so, as isa/asks.isa of crates/sass. Written with it.
";

/// What the table calls an opcode: several may share a mnemonic.
fn op_name(op: Opcode) -> &'static str {
    op.name()
}
