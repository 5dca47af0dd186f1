//! Line information: from the PTX's `.loc` and `.file` directives, and from its own lines, to line tables.

use backend::Code;
use cubin::frames::Frame;
use cubin::lines::{Lines, Row, Sequence, SourceFile};
use ptx::{FuncId, LineIndex, Module, Stmt, Type};
use rustc_hash::FxHashMap;
use sass::RegFile;

/// The section of the names of inlined functions.
const DEBUG_STR: &str = ".debug_str";

/// A place in the source, perhaps in a function that was inlined at another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    file: u32,
    line: u32,
    /// The place of the call, and the offset of the function's name.
    inlined: Option<(usize, u32)>,
}

/// The places that a function's `.loc` directives name, and which of them holds for each line of PTX.
#[derive(Default)]
struct Places {
    all: Vec<Place>,
    /// By line number of an instruction.
    of_line: FxHashMap<u32, usize>,
}

impl Places {
    fn add(&mut self, p: Place) -> usize {
        match self.all.iter().rposition(|q| *q == p) {
            Some(i) => i,
            None => {
                self.all.push(p);
                self.all.len() - 1
            }
        }
    }

    /// `names` are the offsets of labels in `.debug_str`.
    fn new(module: &Module, f: FuncId, lines: &LineIndex, names: &FxHashMap<String, u32>) -> Places {
        let mut places = Places::default();
        let mut here = None;
        for stmt in module.funcs[f].body.iter().flat_map(|b| &b.stmts) {
            match stmt {
                Stmt::Loc(loc) => {
                    let inlined = loc.inlined.as_ref().map(|i| {
                        // The call's own `.loc` came before, with its own history of inlining.
                        let known = places.all.iter().rposition(|p| (p.file, p.line) == (i.file, i.line));
                        let call = known.unwrap_or_else(|| {
                            places.add(Place { file: i.file, line: i.line, inlined: None })
                        });
                        let name = names.get(&i.function).copied().unwrap_or(0);
                        (call, name.wrapping_add(i.offset as u32))
                    });
                    here = Some(places.add(Place { file: loc.file, line: loc.line, inlined }));
                }
                Stmt::Inst(inst) => {
                    // Line 0 is no line: the code belongs to what came before.
                    if let Some(p) = here.filter(|p| places.all[*p].line != 0) {
                        places.of_line.insert(lines.line(inst.span.start), p);
                    }
                }
                _ => {}
            }
        }
        places
    }
}

/// Rows under construction.
struct Rows<'p> {
    places: &'p Places,
    rows: Vec<Row>,
    /// The row (from 1) that last held each place.
    last: FxHashMap<usize, u32>,
}

impl Rows<'_> {
    fn push(&mut self, address: u32, place: usize) -> u32 {
        let Place { file, line, inlined } = self.places.all[place];
        let inlined = inlined.map(|(call, name)| {
            let row = match self.last.get(&call) {
                Some(row) => *row,
                None => self.push(address, call),
            };
            (row, name)
        });
        self.rows.push(Row { address, file, line, inlined });
        let row = self.rows.len() as u32;
        self.last.insert(place, row);
        row
    }
}

/// Whether line tables are made even if nobody asks for them: where the PTX says what its source is.
pub fn has_source(module: &Module) -> bool {
    let bodies = module.funcs.values().filter_map(|f| f.body.as_ref());
    bodies.flat_map(|b| &b.stmts).any(|s| matches!(s, Stmt::Loc(_)))
}

/// A function's code in that of a unit.
#[derive(Clone, Debug)]
pub struct Part {
    /// The function.
    pub func: FuncId,
    /// Byte offset of its code.
    pub start: u32,
    /// Byte offset behind it.
    pub end: u32,
    /// Its frame.
    pub frame: Frame,
    /// Where in it local variables are, from the stack pointer.
    pub locals: Vec<(String, u32)>,
    /// Its symbol.
    pub symbol: String,
    /// Where its registers are, by offsets from its start.
    pub places: Vec<backend::places::Entry>,
}

/// The number of a type in the section of types.
fn type_number(ty: Type) -> u8 {
    match ty {
        Type::b8 => 0,
        Type::b16 => 1,
        Type::b32 => 2,
        Type::b64 => 3,
        Type::u8 => 4,
        Type::u16 => 5,
        Type::u32 => 6,
        Type::u64 => 7,
        Type::s8 => 8,
        Type::s16 => 9,
        Type::s32 => 10,
        Type::s64 => 11,
        Type::f16 => 12,
        Type::f16x2 => 13,
        Type::f32 => 14,
        Type::f64 => 15,
        Type::pred => 16,
        Type::b128 => 17,
        other => match other.bytes() {
            0 | 1 => 0,
            2 => 1,
            3 | 4 => 2,
            _ => 3,
        },
    }
}

/// Where a part's registers are, as the file says it.
fn map(module: &Module, part: &Part) -> Vec<cubin::places::Entry> {
    let Some(body) = &module.funcs[part.func].body else { return Vec::new() };
    // Scopes may use a name again: then nobody knows whose it is.
    let mut named: FxHashMap<&str, u32> = FxHashMap::default();
    body.regs.values().for_each(|r| *named.entry(&r.name).or_default() += 1);
    let mut out = Vec::new();
    for e in &part.places {
        let Some(reg) = body.regs.values().nth(e.register as usize) else { continue };
        let place = match e.place {
            backend::places::Place::Stack(at) => u16::try_from(at).ok().map(cubin::places::Place::Stack),
            backend::places::Place::Unit(u) => backend::units::register(u).and_then(|r| match r.file {
                RegFile::R => Some(cubin::places::Place::Register(r.index)),
                RegFile::P => Some(cubin::places::Place::Predicate(r.index)),
                RegFile::UR => Some(cubin::places::Place::UniformRegister(r.index)),
                RegFile::UP => Some(cubin::places::Place::UniformPredicate(r.index)),
                RegFile::B => None,
            }),
        };
        let Some(place) = place.filter(|_| named[reg.name.as_str()] == 1) else { continue };
        out.push(cubin::places::Entry {
            register: reg.name.to_string(),
            ty: type_number(reg.ty),
            word: e.word.into(),
            place,
            start: e.start,
            // cuda-gdb takes the end for part of the range, others don't: so nothing begins there.
            end: e.end - 1,
        });
    }
    out
}

/// The sections that say where registers are.
pub(crate) fn registers(module: &Module, units: &[Unit<'_>]) -> cubin::places::Sections {
    let maps: Vec<(String, Vec<cubin::places::Entry>)> =
        units.iter().flat_map(|u| &u.parts).map(|p| (p.symbol.clone(), map(module, p))).collect();
    cubin::places::sections(&maps)
}

/// What has a symbol and a section of code: a kernel with the functions in it, or a function of an object.
pub struct Unit<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its code, with the lines of PTX that it comes from.
    pub code: &'a Code,
    /// The functions in it, its own first.
    pub parts: Vec<Part>,
}

impl Unit<'_> {
    /// The prologues of its functions: code before that of the first statement.
    fn prologues(&self) -> impl Iterator<Item = &Part> {
        let begun = |p: &&Part| self.code.lines.iter().any(|(at, _)| *at == p.start);
        self.parts.iter().filter(move |p| !begun(p))
    }
}

/// The `.loc` before a function's first statement.
fn first_loc(module: &Module, f: FuncId) -> Option<&ptx::ast::Loc> {
    let stmts = module.funcs[f].body.iter().flat_map(|b| &b.stmts);
    let before = stmts.take_while(|s| !matches!(s, Stmt::Inst(_)));
    before.filter_map(|s| if let Stmt::Loc(loc) = s { Some(loc) } else { None }).last()
}

/// The line tables of compiled code.
pub fn lines(module: &Module, source: &str, index: &LineIndex, units: &[Unit<'_>]) -> Lines {
    let (strings, names) = debug_strings(module);
    let mut files: Vec<SourceFile> = Vec::new();
    for file in &module.files {
        let n = file.index as usize;
        if n > 0 && n < 1 << 16 {
            files.resize(files.len().max(n), SourceFile::default());
            // ptxas keeps 32 bits of each number.
            files[n - 1] = SourceFile {
                name: file.name.clone(),
                modified: file.modified as u32,
                size: file.size as u32,
            };
        }
    }
    let mut out = Lines { files, strings, ptx_text: text(source), ..Lines::default() };
    for unit in units {
        let Unit { name, code, parts } = unit;
        let size = 16 * code.words.len() as u32;
        let prologues: Vec<&Part> = unit.prologues().collect();
        let mut rows: Vec<(u32, u32)> = code.lines.clone();
        rows.extend(prologues.iter().map(|p| (p.start, index.line(module.funcs[p.func].span.start))));
        rows.sort_unstable();
        let row = |(address, line): (u32, u32)| Row { address, file: 0, line, inlined: None };
        let rows = rows.into_iter().map(row).collect();
        out.ptx.push(Sequence { function: (*name).into(), size, rows });
        let mut places = Places::default();
        let mut starts: FxHashMap<u32, usize> = FxHashMap::default();
        for part in parts {
            let of = Places::new(module, part.func, index, &names);
            let base = places.all.len();
            let moved =
                |p: &Place| Place { inlined: p.inlined.map(|(call, name)| (call + base, name)), ..*p };
            places.all.extend(of.all.iter().map(moved));
            places.of_line.extend(of.of_line.iter().map(|(line, p)| (*line, p + base)));
        }
        for part in &prologues {
            if let Some(loc) = first_loc(module, part.func).filter(|l| l.line != 0) {
                let place = places.add(Place { file: loc.file, line: loc.line, inlined: None });
                starts.insert(part.start, place);
            }
        }
        let mut all: Vec<(u32, usize)> = starts.into_iter().collect();
        all.extend(code.lines.iter().filter_map(|(at, line)| Some((*at, *places.of_line.get(line)?))));
        all.sort_unstable();
        let mut rows = Rows { places: &places, rows: Vec::new(), last: FxHashMap::default() };
        let mut before = None;
        for (address, place) in all {
            if Some(place) != before {
                rows.push(address, place);
                before = Some(place);
            }
        }
        if !rows.rows.is_empty() {
            out.source.push(Sequence { function: (*name).into(), size, rows: rows.rows });
        }
    }
    out
}

/// The PTX as debuggers expect it: without indentation, a NUL after each line. Left empty are comments of whole lines,
/// `.loc` and `.file`, and what sections hold.
fn text(source: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(source.len());
    let mut in_section = false;
    for line in source.lines() {
        let line = line.trim_start();
        let data = in_section && !line.starts_with(['{', '}']);
        let word = line.split(|c: char| !c.is_alphanumeric() && c != '.').next();
        let left_out = line.starts_with("//") || matches!(word, Some(".loc" | ".file"));
        if !data && !left_out {
            out.extend(line.as_bytes());
        }
        in_section |= line.starts_with(".section");
        in_section &= !line.contains('}');
        out.push(0);
    }
    out
}

/// The bytes of `.section .debug_str`, and the offsets of its labels and of itself. Those of that name are one section.
fn debug_strings(module: &Module) -> (Vec<u8>, FxHashMap<String, u32>) {
    let mut bytes = Vec::new();
    let mut labels = FxHashMap::default();
    labels.insert(DEBUG_STR.to_owned(), 0);
    for section in module.sections.iter().filter(|s| s.name == DEBUG_STR) {
        let base = bytes.len() as u32;
        labels.extend(section.labels.iter().map(|(name, at)| (name.clone(), base + at)));
        bytes.extend(&section.bytes);
    }
    (bytes, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
.reg .b64 %rd<3>;
.loc 1 5 3
ld.param.b64 %rd1, [p]; // comment
.loc 2 9 1, function_name name1, inlined_at 1 5 3
st.global.b64 [%rd1], %rd1;
.loc 1 0 0
ret;
}
.file 1 \"a.cu\"
.file 2 \"b.h\"
.section .debug_str {
name0:
.b8 97,0
name1:
.b8 98,99,0
}
";

    #[test]
    fn rows_follow_the_directives() {
        let module = ptx::parse(PTX).unwrap();
        let index = LineIndex::new(PTX);
        let kernel = module.funcs.keys().next().unwrap();
        let code = Code {
            words: vec![0; 8],
            lines: vec![(0, 8), (0x10, 10), (0x30, 8), (0x40, 12)],
            ..Code::default()
        };
        let part = Part {
            func: kernel,
            start: 0,
            end: 128,
            frame: Frame::default(),
            locals: Vec::new(),
            symbol: "k".into(),
            places: Vec::new(),
        };
        let lines = lines(&module, PTX, &index, &[Unit { name: "k", code: &code, parts: vec![part] }]);
        let row = |address, file, line, inlined| Row { address, file, line, inlined };
        let want = [row(0, 1, 5, None), row(0x10, 2, 9, Some((1, 2))), row(0x30, 1, 5, None)];
        assert_eq!(lines.source[0].rows, want);
        assert_eq!(lines.ptx[0].rows.len(), 4);
        assert_eq!(lines.strings, b"a\0bc\0");
        assert!(lines.files.iter().map(|f| f.name.as_str()).eq(["a.cu", "b.h"]));
        let text = String::from_utf8(lines.ptx_text).unwrap();
        assert!(text.contains("\0ld.param.b64 %rd1, [p]; // comment\0\0st.global"), "{text}");
        assert!(text.ends_with("\0\0.section .debug_str {\0\0\0\0\0}\0"), "{text}");
    }
}
