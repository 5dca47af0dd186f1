//! Relocatable objects: what `-c` makes and nvlink links. Each function has a section of its own, all addresses are
//! relocations, and the call graph says who calls whom. What is known of the format is in `docs/linking.md`.

use crate::common::{PARTITION, WAR_VARIABLE, compat, cuinfo, has_war_variable, partition, tkinfo};
use crate::elf::{Section, Strings, relocatable, symbol_table};
use crate::frames::{self, Entry, Returns};
use crate::images::ImageSymbol;
use crate::lines::{Lines, SourceFile, for_debuggers, program};
use crate::write::zeros;
use crate::{Error, Kernel};
use object::elf;
use std::collections::BTreeMap;

mod lists;
mod symbols;

/// The section of shared memory that the system keeps.
const RESERVED: &str = ".nv.shared.reserved.0";

/// Section types of CUDA's own (observed, ptxas 13.0.88 -c).
mod kind {
    pub(super) const INFO: u32 = 0x7000_0000;
    pub(super) const CALLGRAPH: u32 = 0x7000_0001;
    pub(super) const PROTOTYPE: u32 = 0x7000_0002;
    pub(super) const GLOBAL: u32 = 0x7000_0007;
    pub(super) const GLOBAL_INIT: u32 = 0x7000_0008;
    pub(super) const SHARED: u32 = 0x7000_000a;
    /// Code of an entry of the table of unified functions.
    pub(super) const UNIFIED_CODE: u32 = 0x7000_000e;
    /// Who has an entry in it.
    pub(super) const UNIFIED_FUNCTIONS: u32 = 0x7000_0011;
    /// Unified variables.
    pub(super) const UNIFIED_DATA: u32 = 0x7000_0012;
    /// Which they are.
    pub(super) const UNIFIED_VARIABLES: u32 = 0x7000_0014;
    /// Shared memory that the system keeps.
    pub(super) const RESERVED_SHARED: u32 = 0x7000_0015;
    /// Of bank 0; that of bank n is n more.
    pub(super) const CONSTANT: u32 = 0x7000_0064;
    pub(super) const COMPAT: u32 = 0x7000_0086;
}

const ALLOC: u64 = elf::SHF_ALLOC as u64;
const WRITE: u64 = elf::SHF_WRITE as u64;
const EXEC: u64 = elf::SHF_EXECINSTR as u64;
const INFO_LINK: u64 = elf::SHF_INFO_LINK as u64;

/// Symbol type of a variable.
const CUDA_OBJECT: u8 = 13;
/// st_other of a kernel.
const STO_ENTRY: u8 = 0x10;
/// st_other of a variable in managed memory, beside that of its space.
pub(crate) const STO_MANAGED: u8 = 4;
/// st_other of a unified variable, beside that of its space.
const STO_UNIFIED: u8 = 0x10;
/// The symbol that function pointers count from, from sm_90 on.
const FUNCTION_BASE: &str = "__UFT_OFFSET";
/// All that the linker says of the tables of unified functions and variables.
const UNIFIED_TABLES: [&str; 8] = [
    "__UDT_OFFSET",
    FUNCTION_BASE,
    "__UFT_CANONICAL",
    "__UDT_CANONICAL",
    "__UFT",
    "__UDT",
    "__UFT_END",
    "__UDT_END",
];
/// The section of unified variables.
const UNIFIED_DATA: &str = ".nv.udt";
/// What the section of an entry of the table of unified functions begins with, before the function's name.
const UNIFIED_CODE: &str = ".nv.uft.rel.";
/// Bytes of such an entry.
const UNIFIED_CODE_BYTES: u64 = 128;

/// Who sees a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Binding {
    /// This object.
    Local,
    /// All objects; one of them defines it.
    #[default]
    Global,
    /// All objects; the first definition holds.
    Weak,
}

impl Binding {
    /// As a symbol has it.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Binding::Local => elf::STB_LOCAL,
            Binding::Global => elf::STB_GLOBAL,
            Binding::Weak => elf::STB_WEAK,
        }
    }
}

/// What a relocation fills in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// The 32-bit immediate of an instruction: the lower half of an address.
    Low,
    /// The upper half.
    High,
    /// The lower half of the address of a function.
    FunctionLow,
    /// The upper half.
    FunctionHigh,
    /// The lower half of the address that a kernel is launched by: of its descriptor.
    KernelLow,
    /// The upper half.
    KernelHigh,
    /// The offset of a shared variable, 32 bits.
    Shared,
    /// The 32-bit immediate of an instruction: a number of the driver's.
    Number,
    /// The offset of a constant in its bank, 16 bits.
    Constant,
    /// The label of a call.
    Call,
    /// The label of a call through a pointer.
    FunctionBase,
    /// 8 bytes of data: a generic address.
    Generic,
    /// 8 bytes of data: an offset in a state space, or the address of code.
    Offset,
    /// 4 bytes of data: an offset in a section of debug information.
    InSection,
    /// 8 bytes of data: the address of a function.
    Function,
    /// 8 bytes of data: the address of a kernel.
    Kernel,
    /// This byte of a generic address.
    Byte(u8),
    /// This byte of an offset in a state space, or of the address of code.
    OffsetByte(u8),
    /// This byte of the address of a function.
    FunctionByte(u8),
    /// This byte of the address of a kernel.
    KernelByte(u8),
    /// The lower half of the address that a unified variable has in every program.
    UnifiedLow,
    /// The upper half.
    UnifiedHigh,
    /// 8 bytes of unified data: an address.
    Unified,
    /// This byte of it.
    UnifiedByte(u8),
    /// The place in constant bank 0 of the word of a texture or surface by name, in an instruction that takes its handle from there.
    ImagePlace,
    /// The same in an operand of any other instruction.
    ImageOperand,
    /// The same in a load of constants.
    ImageLoad,
    /// The same in a load of constants of the uniform datapath from sm_100 on.
    ImageUniformLoad,
}

impl Fill {
    /// Whether it says where something is in shared memory or a bank of constants, or a number: the same wherever code is.
    pub fn is_of_a_bank(self) -> bool {
        use Fill::{Constant, ImageLoad, ImageOperand, ImagePlace, ImageUniformLoad, Number, Shared};
        matches!(self, Shared | Number | Constant | ImagePlace | ImageOperand | ImageLoad | ImageUniformLoad)
    }

    /// Whether it is the address of a function in data, or a byte of one.
    pub fn is_of_a_function(self) -> bool {
        matches!(self, Fill::Function | Fill::FunctionByte(_))
    }

    /// Whether it is the address of a kernel in data, or a byte of one.
    pub fn is_of_a_kernel(self) -> bool {
        matches!(self, Fill::Kernel | Fill::KernelByte(_))
    }

    /// The type of relocation; `None` where nothing is to be filled in.
    pub(crate) fn number(self, sm: u8) -> Option<u32> {
        let modern = sm >= 90;
        Some(match self {
            Fill::FunctionLow if modern => 0x70,
            Fill::FunctionHigh if modern => 0x71,
            Fill::Low | Fill::FunctionLow => 0x38,
            Fill::High | Fill::FunctionHigh => 0x39,
            Fill::KernelLow => 0x3e,
            Fill::KernelHigh => 0x3f,
            Fill::Shared | Fill::Number => 0x37,
            Fill::Constant => 0x3b,
            Fill::Call if modern => 0x4b,
            Fill::Call => 0x3a,
            Fill::FunctionBase if modern => 0x72,
            Fill::FunctionBase => return None,
            Fill::Function if modern => 0x66,
            Fill::Offset | Fill::Function => 2,
            Fill::Generic => 4,
            Fill::InSection => 1,
            Fill::Kernel => 0x23,
            Fill::FunctionByte(n) if modern => 0x68 + u32::from(n),
            Fill::OffsetByte(n) | Fill::FunctionByte(n) => 0x4c + u32::from(n),
            Fill::Byte(n) => 0x54 + u32::from(n),
            Fill::KernelByte(n) => 0x5c + u32::from(n),
            Fill::UnifiedLow => 0x70,
            Fill::UnifiedHigh => 0x71,
            Fill::Unified => 0x66,
            Fill::UnifiedByte(n) => 0x68 + u32::from(n),
            Fill::ImagePlace => 0x41,
            Fill::ImageOperand => 0x40,
            Fill::ImageLoad => 0x42,
            Fill::ImageUniformLoad => 0x73,
        })
    }
}

impl Fill {
    /// The type that executables have: functions are where they are, with no table between, as in those that a linker makes.
    pub(crate) fn in_executable(self, sm: u8) -> Option<u32> {
        let plain = match self {
            Fill::FunctionLow => Fill::Low,
            Fill::FunctionHigh => Fill::High,
            Fill::Function => Fill::Offset,
            Fill::FunctionByte(n) => Fill::OffsetByte(n),
            Fill::FunctionBase => return None,
            other => other,
        };
        plain.number(sm)
    }
}

/// A relocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// Byte offset in the function or variable.
    pub offset: u64,
    /// What is filled in.
    pub fill: Fill,
    /// Whose address; of no meaning for [`Fill::FunctionBase`].
    pub symbol: String,
    /// Added to it.
    pub addend: i64,
}

/// A kernel or device function with code.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// What the section and the attributes say; of a device function, only what applies.
    pub code: Kernel,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Relocations of its code.
    pub relocs: Vec<Reloc>,
    /// The functions that it calls by name.
    pub calls: Vec<String>,
    /// The functions whose address it takes.
    pub takes: Vec<String>,
    /// The prototypes of its calls through pointers.
    pub indirect: Vec<String>,
    /// By what number all programs know it.
    pub unified: Option<[u64; 2]>,
    /// The unified function that it is the entry of in the table.
    pub entry_of: Option<String>,
}

impl Function {
    /// The section of its code.
    fn section(&self) -> String {
        match &self.entry_of {
            Some(f) => format!("{UNIFIED_CODE}{f}"),
            None => format!(".text.{}", self.code.name),
        }
    }
}

/// Where a variable is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Global memory.
    Global,
    /// Constant bank 3.
    Constant,
    /// Shared memory, of this kernel only if one is named.
    Shared(Option<String>),
}

/// A variable.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Who sees it.
    pub binding: Binding,
    /// Whether this object has storage for it.
    pub defined: bool,
    /// Whether all objects share the storage, which the linker makes (`.common`).
    pub common: bool,
    /// In managed memory.
    pub managed: bool,
    /// By what number all programs know it.
    pub unified: Option<[u64; 2]>,
    /// Bytes; 0 of an array of unknown size.
    pub size: u64,
    /// Alignment.
    pub align: u64,
    /// Initial contents; `None` for zeros.
    pub init: Option<Vec<u8>>,
    /// Addresses in the initial contents.
    pub relocs: Vec<Reloc>,
}

/// Another name of a function of an object.
#[derive(Clone, Debug)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// The function.
    pub function: String,
    /// Functions that call it by this name. Code names the function itself; the linker drops a name that nobody calls, and then
    /// does not find it in the calls (nvlink 13.0.88: "reference to deleted symbol").
    pub callers: Vec<String>,
    /// Whether code or data takes the address of it by this name.
    pub taken: bool,
}

/// Everything that goes into a relocatable object.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// SM number, 75 … 121.
    pub sm: u8,
    /// Whether it is for this SM alone (`sm_90a`).
    pub accelerated: bool,
    /// EICOMPAT_ATTR_ISA_CLASS; 1 if nothing asks for more.
    pub isa_class: u8,
    /// EICOMPAT_ATTR_INST_TENSORMAP_V1.
    pub tensor_maps: u8,
    /// SM of the PTX's `.target`.
    pub ptx_sm: u8,
    /// Command line, for the tool note.
    pub options: String,
    /// The name of the tool that the note gives, in place of ours.
    pub tool: Option<String>,
    /// Functions with code.
    pub functions: Vec<Function>,
    /// Names of functions that are elsewhere.
    pub externs: Vec<String>,
    /// The function whose attributes name the kernels and functions elsewhere whose addresses variables hold.
    pub holder: Option<String>,
    /// Those of them that are unified.
    pub unified_elsewhere: Vec<String>,
    /// What each device function takes and gives (see `docs/linking.md`), for those that other objects see; nothing, for kernels
    /// whose address is taken.
    pub prototypes: Vec<(String, String)>,
    /// Variables.
    pub variables: Vec<Variable>,
    /// Textures, samplers and surfaces by name; the functions whose parameters they are count as kernels.
    pub images: Vec<ImageSymbol>,
    /// Whether textures and samplers are apart (`.target texmode_independent`).
    pub independent: bool,
    /// Whether code asks handles what they are of (`istypep`).
    pub asks_types: bool,
    /// Other names of functions with code.
    pub aliases: Vec<Alias>,
    /// Whether it is a whole program that can be extended (`-ewp`).
    pub extensible: bool,
    /// Line tables.
    pub lines: Option<Lines>,
}

/// A variable of the shared memory that the system keeps.
struct Reserved {
    name: &'static str,
    align: u64,
    size: u64,
}

impl Object {
    /// Whether the beginning of that memory has a name: of programs that can be extended, unless they are debugged (ptxas 13.0.88).
    fn names_reserved(&self) -> bool {
        self.extensible && self.sm >= 90 && !for_debuggers(self.lines.as_ref())
    }

    /// Those that the object has a place for: the linker gives them out.
    fn reserved(&self) -> Vec<Reserved> {
        let (name, size) = WAR_VARIABLE;
        let war = has_war_variable(self.sm).then_some(Reserved { name, align: 16, size });
        let used = self.functions.iter().flat_map(|f| &f.relocs).any(|r| r.symbol == PARTITION);
        let words = used.then(|| Reserved { name: PARTITION, align: 1, size: partition(self.sm).1 });
        war.into_iter().chain(words).collect()
    }
}

/// Sections of line tables, in order, and where addresses of functions go: the section, the offset, the function.
#[derive(Default)]
struct LineSections {
    contents: Vec<(String, Vec<u8>)>,
    places: Vec<(String, u64, String)>,
    /// The same for sections that the PTX brings.
    relocs: Vec<(String, Reloc)>,
}

/// The sections that `lines` fill. In an object that is linked the text of the PTX has a name that others don't have,
/// and the table of its lines names it as its file.
fn line_sections(lines: &Lines, linked: bool) -> LineSections {
    let text_name = if linked {
        let hash =
            lines.ptx_text.iter().fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
        format!(".nv_debug_ptx_txt.{hash}")
    } else {
        ".nv_debug_ptx_txt".to_string()
    };
    let mut ptx = lines.ptx.clone();
    let mut files = Vec::new();
    if linked {
        files.push(SourceFile { name: text_name.clone(), ..SourceFile::default() });
        ptx.iter_mut().flat_map(|s| &mut s.rows).for_each(|r| r.file = 1);
    }
    let mut out = LineSections::default();
    let (source, source_places) = program(&lines.files, &lines.source);
    let (sass, sass_places) = program(&files, &ptx);
    for (name, places) in [(".debug_line", source_places), (".nv_debug_line_sass", sass_places)] {
        out.places.extend(places.into_iter().map(|(at, function)| (name.to_string(), at, function)));
    }
    out.contents.push((".debug_line".into(), source));
    if !lines.strings.is_empty() {
        out.contents.push((".debug_str".into(), lines.strings.clone()));
    }
    out.contents.push((".nv_debug_line_sass".into(), sass));
    out.contents.push((text_name, lines.ptx_text.clone()));
    out.contents.extend(lines.of_debuggers());
    for c in &lines.copied {
        out.relocs.extend(c.relocs.iter().map(|r| (c.name.clone(), r.clone())));
    }
    out
}

/// The bytes of an object.
///
/// # Errors
/// On an address of something that it neither has nor declares.
pub fn write(object: &Object) -> Result<Vec<u8>, Error> {
    let mut w = Writer { object, sections: Vec::new(), index: BTreeMap::new(), symbols: BTreeMap::new() };
    w.fill()
}

/// A section of variables: bytes, alignment, and what it holds unless it is all zeros.
#[derive(Clone, Default)]
struct Content {
    size: u64,
    align: u64,
    data: Vec<u8>,
}

/// The sections of variables, by name.
type Contents = BTreeMap<String, Content>;

/// Relocations by the section that they are for: offset, type, symbol, addend.
type Tables = BTreeMap<String, Vec<(u64, u32, String, i64)>>;

struct Writer<'o> {
    object: &'o Object,
    /// In file order; number 1 first.
    sections: Vec<Section>,
    /// Section numbers by name.
    index: BTreeMap<String, u32>,
    /// Symbol numbers by name.
    symbols: BTreeMap<String, u32>,
}

/// Where the relocations for a section stand among the tables.
fn table_rank(place: &str) -> usize {
    const ORDER: &[&str] = &[
        ".text.",
        UNIFIED_CODE,
        ".debug_line",
        ".nv_debug_line_sass",
        ".debug_loc",
        ".debug_info",
        ".nv.constant",
        ".nv.global.init",
    ];
    ORDER.iter().position(|p| place.starts_with(p)).unwrap_or(ORDER.len())
}

/// What is known of a variable once it has a place.
struct Placed<'o> {
    var: &'o Variable,
    section: String,
    offset: u64,
}

impl<'o> Writer<'o> {
    fn modern(&self) -> bool {
        self.object.sm >= 90
    }

    fn add(&mut self, s: Section) {
        self.index.insert(s.name.clone(), self.sections.len() as u32 + 1);
        self.sections.push(s);
    }

    fn plain(&mut self, name: &str, ty: u32, flags: u64, align: u64) {
        self.add(Section::new(name, ty, flags, align, Vec::new()));
    }

    fn number(&self, name: &str) -> u32 {
        self.index.get(name).copied().unwrap_or(0)
    }

    fn section(&mut self, name: &str) -> &mut Section {
        let n = self.index[name];
        &mut self.sections[n as usize - 1]
    }

    /// Gives every defined variable a section and an offset; returns also those sections.
    fn place(&self) -> Result<(Vec<Placed<'o>>, Contents), Error> {
        let mut placed = Vec::new();
        let mut contents = Contents::new();
        for var in self.object.variables.iter().filter(|v| v.defined && !v.common) {
            let section = match &var.place {
                _ if var.unified.is_some() => UNIFIED_DATA.to_string(),
                Place::Constant => ".nv.constant3".into(),
                Place::Global if var.init.is_some() => ".nv.global.init".into(),
                Place::Global => ".nv.global".into(),
                Place::Shared(None) => ".nv_debug.shared".into(),
                Place::Shared(Some(k)) => format!(".nv.shared.{k}"),
            };
            let content = contents.entry(section.clone()).or_default();
            let too_much = || Error::Places { global: false, name: var.name.clone() };
            content.align = content.align.max(var.align.max(1));
            // nvlink gives shared variables their places, by their alignments: here only their sizes add up (as in ptxas 13.0.88's).
            let offset = match var.place {
                Place::Shared(_) => Some(content.size),
                Place::Constant | Place::Global => content.size.checked_next_multiple_of(var.align.max(1)),
            };
            let offset = offset.ok_or_else(too_much)?;
            content.size = offset.checked_add(var.size).ok_or_else(too_much)?;
            placed.push(Placed { var, section, offset });
        }
        for p in &placed {
            let content = contents.entry(p.section.clone()).or_default();
            if content.data.is_empty()
                && matches!(p.section.as_str(), ".nv.constant3" | ".nv.global.init" | UNIFIED_DATA)
            {
                content.data = zeros(content.size)?;
            }
            if let Some(init) = &p.var.init {
                content.data[p.offset as usize..p.offset as usize + init.len()].copy_from_slice(init);
            }
        }
        Ok((placed, contents))
    }

    /// The sections in ptxas's order.
    fn layout(&mut self, contents: &Contents, tables: &Tables, frames: Vec<u8>, lines: LineSections) {
        let o = self.object;
        let modern = self.modern();
        self.plain(".shstrtab", elf::SHT_STRTAB, 0, 1);
        self.plain(".strtab", elf::SHT_STRTAB, 0, 1);
        self.plain(".symtab", elf::SHT_SYMTAB, 0, 8);
        self.add(Section::new(".debug_frame", elf::SHT_PROGBITS, 0, 1, frames));
        for (name, data) in lines.contents {
            self.add(Section::new(&name, elf::SHT_PROGBITS, 0, 1, data));
        }
        self.add(Section::new(
            ".note.nv.tkinfo",
            elf::SHT_NOTE,
            0x200_0000,
            4,
            tkinfo(o.tool.as_deref(), &o.options),
        ));
        let flags = 0x100_0000 | if modern { INFO_LINK } else { 0 };
        self.add(Section::new(".note.nv.cuinfo", elf::SHT_NOTE, flags, 4, cuinfo(o.ptx_sm)));
        self.plain(".nv.info", kind::INFO, 0, 4);
        if modern {
            self.add(Section::new(
                ".nv.compat",
                kind::COMPAT,
                0,
                4,
                compat(o.sm, o.accelerated, o.isa_class, o.tensor_maps),
            ));
        }
        if contents.contains_key(UNIFIED_DATA) {
            self.plain(".nv.udt.entry", kind::UNIFIED_VARIABLES, 0, 8);
        }
        if o.functions.iter().any(|f| f.unified.is_some()) {
            self.plain(".nv.uft.entry", kind::UNIFIED_FUNCTIONS, 0, 8);
        }
        for f in &o.functions {
            self.plain(&format!(".nv.info.{}", f.code.name), kind::INFO, INFO_LINK, 4);
        }
        self.plain(".nv.callgraph", kind::CALLGRAPH, 0, 4);
        self.plain(".nv.prototype", kind::PROTOTYPE, 0, 4);
        let mut ordered: Vec<(&String, &Vec<_>)> = tables.iter().collect();
        ordered.sort_by_key(|(place, _)| table_rank(place));
        for (place, entries) in ordered {
            // Before sm_90, of code and frames those without addends come first, of variables the others.
            let variables = place.starts_with(".nv.");
            for with_addends in [variables, !variables] {
                let (name, ty) = if with_addends { (".rela", elf::SHT_RELA) } else { (".rel", elf::SHT_REL) };
                if entries.iter().any(|e| self.has_addend(e.3) == with_addends) {
                    self.plain(&format!("{name}{place}"), ty, INFO_LINK, 8);
                }
            }
        }
        let take = |name: &str| contents.get(name).cloned();
        if let Some(Content { align, data, .. }) = take(".nv.constant3") {
            self.add(Section::new(".nv.constant3", kind::CONSTANT + 3, ALLOC, align, data));
        }
        let bank0 = |w: &mut Self| {
            for k in o.functions.iter().filter(|f| f.entry).map(|f| &f.code) {
                let bytes = if o.extensible { k.bank0_bytes() } else { k.param_end() };
                let data = vec![0; bytes];
                let name = format!(".nv.constant0.{}", k.name);
                w.add(Section::new(&name, kind::CONSTANT, ALLOC | INFO_LINK, 4, data));
            }
        };
        if !modern {
            bank0(self);
        }
        for f in &o.functions {
            let code = f.code.code.iter().flat_map(|w| w.to_le_bytes()).collect();
            let mut s = Section::new(&f.section(), elf::SHT_PROGBITS, ALLOC | EXEC, 128, code);
            if f.entry_of.is_some() {
                (s.ty, s.entsize) = (kind::UNIFIED_CODE, UNIFIED_CODE_BYTES);
            }
            self.add(s);
        }
        if let Some(Content { align, data, .. }) = take(UNIFIED_DATA) {
            self.add(Section::new(UNIFIED_DATA, kind::UNIFIED_DATA, ALLOC | WRITE, align, data));
        }
        if let Some(Content { align, data, .. }) = take(".nv.global.init") {
            self.add(Section::new(".nv.global.init", kind::GLOBAL_INIT, ALLOC | WRITE, align, data));
        }
        for (name, Content { align, size, .. }) in contents {
            let (ty, flags) = match name.as_str() {
                ".nv.constant3" | ".nv.global.init" | UNIFIED_DATA => continue,
                ".nv.global" => (kind::GLOBAL, ALLOC | WRITE),
                ".nv_debug.shared" => (kind::SHARED, ALLOC | WRITE),
                _ => (kind::SHARED, ALLOC | WRITE | INFO_LINK),
            };
            let mut s = Section::new(name, ty, flags, *align, Vec::new());
            s.nobits = *size;
            s.no_bits = true;
            self.add(s);
        }
        let reserved = o.reserved();
        let align = reserved.iter().map(|v| v.align).chain(o.names_reserved().then_some(1)).max();
        if let Some(align) = align {
            let mut s = Section::new(RESERVED, kind::RESERVED_SHARED, ALLOC | WRITE, align, Vec::new());
            s.nobits = reserved.iter().map(|v| v.size).sum();
            s.no_bits = true;
            self.add(s);
        }
        if modern {
            bank0(self);
        }
    }

    /// Up to sm_89 relocations without an addend are in a table without addends.
    fn has_addend(&self, addend: i64) -> bool {
        addend != 0 || self.modern()
    }

    /// Every relocation, by the name of the section that it is for: offset, type, symbol, addend.
    fn relocations(&self, placed: &[Placed<'_>], frames: &[frames::Places], lines: &LineSections) -> Tables {
        let sm = self.object.sm;
        let mut tables = Tables::new();
        let entry = |at: u64, r: &Reloc| {
            let symbol =
                if r.fill == Fill::FunctionBase { FUNCTION_BASE.to_string() } else { r.symbol.clone() };
            Some((at + r.offset, r.fill.number(sm)?, symbol, r.addend))
        };
        for f in self.object.functions.iter().filter(|f| !f.relocs.is_empty()) {
            let table = tables.entry(f.section()).or_default();
            table.extend(f.relocs.iter().filter_map(|r| entry(0, r)));
        }
        // What can be extended has words for names as executables have.
        for k in self.object.functions.iter().filter(|f| f.entry && self.object.extensible).map(|f| &f.code) {
            let table = tables.entry(format!(".nv.constant0.{}", k.name)).or_default();
            for w in k.images.iter().rev() {
                for n in w.sampler.into_iter().chain([w.image]) {
                    let Some(image) = self.object.images.get(n) else { continue };
                    table.push((w.offset.into(), image.kind.reloc(sm), ImageSymbol::key(n), 0));
                }
            }
        }
        for p in placed.iter().filter(|p| !p.var.relocs.is_empty()) {
            let table = tables.entry(p.section.clone()).or_default();
            table.extend(p.var.relocs.iter().filter_map(|r| entry(p.offset, r)));
        }
        /// R_CUDA_64 and R_CUDA_UNUSED_CLEAR64.
        const ADDRESS: (u32, u32) = (2, 0x49);
        let table = tables.entry(".debug_frame".into()).or_default();
        for (f, at) in self.object.functions.iter().zip(frames) {
            let name = &f.code.name;
            table.push((at.common_pointer, ADDRESS.0, ".debug_frame".into(), at.common as i64));
            table.push((at.code, ADDRESS.0, name.clone(), 0));
            table.push((at.size, ADDRESS.1, name.clone(), 0));
        }
        for (section, at, function) in &lines.places {
            let table = tables.entry(section.clone()).or_default();
            table.push((*at, ADDRESS.0, function.clone(), 0));
        }
        for (section, r) in &lines.relocs {
            tables.entry(section.clone()).or_default().extend(entry(0, r));
        }
        tables.retain(|_, t| !t.is_empty());
        tables
    }

    fn symbol(&self, name: &str) -> Result<u32, Error> {
        self.symbols.get(name).copied().ok_or_else(|| Error::NotInObject(name.into()))
    }

    fn fill(&mut self) -> Result<Vec<u8>, Error> {
        let o = self.object;
        let (placed, contents) = self.place()?;
        let described = |f: &'o Function| Entry {
            frame: &f.code.frame,
            returns: if f.entry { Returns::Never } else { Returns::Absolute(f.code.frame.return_address) },
            start: 0,
            size: 16 * f.code.code.len() as u64,
        };
        let (frame_data, frames) = frames::section(o.functions.iter().map(described));
        let lines = o.lines.as_ref().map_or_else(LineSections::default, |l| line_sections(l, !o.extensible));
        let tables = self.relocations(&placed, &frames, &lines);
        self.layout(&contents, &tables, frame_data, lines);
        let used: Vec<&str> = tables.values().flatten().map(|e| e.2.as_str()).collect();
        let symbols = self.symbol_list(&placed, &used);

        let mut strings = Strings::default();
        let mut prototypes = BTreeMap::new();
        let indirect = o.functions.iter().flat_map(|f| &f.indirect);
        for p in o.prototypes.iter().map(|p| &p.1).chain(indirect) {
            if !prototypes.contains_key(p.as_str()) {
                prototypes.insert(p.as_str(), strings.add(p));
            }
        }
        let (graph, rest) = self.graph(&prototypes)?;
        for (name, data) in [(".nv.callgraph", graph), (".nv.prototype", rest)] {
            let s = self.section(name);
            (s.data, s.link, s.entsize) = (data, 3, 8);
        }
        self.unified(&placed)?;
        self.attributes()?;
        for (place, entries) in &tables {
            let (mut rel, mut rela) = (Vec::new(), Vec::new());
            for (at, ty, name, addend) in entries {
                let table = if self.has_addend(*addend) { &mut rela } else { &mut rel };
                table.extend(at.to_le_bytes());
                table.extend((u64::from(self.symbol(name)?) << 32 | u64::from(*ty)).to_le_bytes());
                if self.has_addend(*addend) {
                    table.extend(addend.to_le_bytes());
                }
            }
            let info = self.number(place);
            for (name, data, size) in [(format!(".rel{place}"), rel, 16), (format!(".rela{place}"), rela, 24)]
            {
                if self.number(&name) != 0 {
                    let s = self.section(&name);
                    (s.data, s.link, s.info, s.entsize) = (data, 3, info, size);
                }
            }
        }
        let table = symbol_table(&symbols, &mut strings);
        let strtab = self.number(".strtab");
        let s = self.section(".symtab");
        (s.data, s.link, s.entsize) = (table, strtab, 24);
        self.section(".strtab").data = strings.bytes;
        let (tkinfo, compat) = (self.number(".note.nv.tkinfo"), self.number(".nv.compat"));
        let s = self.section(".note.nv.cuinfo");
        (s.link, s.info) = (tkinfo, compat);
        // The low byte says that the file holds code of this SM only: with 2, as ptxas has from sm_100 on, nvlink looks
        // for capsules.
        let flags = self.number(".note.nv.cuinfo") << 24 | u32::from(o.sm) << 8 | 4;
        /// ptxas -ewp's type of file.
        const ET_EWP: u16 = 0xff00;
        let file_type = if o.extensible { ET_EWP } else { elf::ET_REL };
        relocatable(std::mem::take(&mut self.sections), flags, file_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Row, Sequence};

    /// As ptxas 13.0.88 -c -lineinfo lays it out: the text of the PTX under a name of its own, which is the first file of
    /// the table of its lines; the address of each function is left to the linker.
    #[test]
    fn line_tables_of_an_object() {
        let sequence = |function: &str, file| Sequence {
            function: function.into(),
            size: 32,
            rows: vec![Row { address: 0, file, line: 3, inlined: None }],
        };
        let lines = Lines {
            files: vec![SourceFile { name: "a.cu".into(), ..SourceFile::default() }],
            source: vec![sequence("f", 1), sequence("k", 1)],
            ptx: vec![sequence("f", 0), sequence("k", 0)],
            strings: Vec::new(),
            ptx_text: b".version 8.7\0".to_vec(),
            ..Lines::default()
        };
        let linked = line_sections(&lines, true);
        let names: Vec<&str> = linked.contents.iter().map(|c| c.0.as_str()).collect();
        let [".debug_line", ".nv_debug_line_sass", text] = names[..] else { panic!("{names:?}") };
        assert!(text.starts_with(".nv_debug_ptx_txt.") && text.len() > 18, "{text}");
        let sass = &linked.contents[1].1;
        assert!(sass.windows(text.len()).any(|w| w == text.as_bytes()), "the text is a file of the table");
        // The first row names file 1: 4 is the operation.
        let at = linked.places[2].1 as usize;
        assert_eq!(sass[at + 8..at + 10], [4, 1]);
        let functions: Vec<&str> = linked.places.iter().map(|p| p.2.as_str()).collect();
        assert_eq!(functions, ["f", "k", "f", "k"]);
        // Extensible programs are as executables are.
        let whole = line_sections(&lines, false);
        assert_eq!(whole.contents[2].0, ".nv_debug_ptx_txt");
        let at = whole.places[2].1 as usize;
        assert_eq!(whole.contents[1].1[at + 8..at + 10], [4, 0]);
    }
}
