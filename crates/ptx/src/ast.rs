//! The typed syntax tree of a PTX module.
//!
//! Scopes are resolved while parsing: operands refer to registers, variables, functions and labels by
//! number, never by name. Everything carries the [`Span`] of its text.

use crate::diag::Diagnostic;
use crate::isa::{Mod, Op, SpecialReg, Type};
use crate::span::Span;
use cranelift_entity::{PrimaryMap, entity_impl};
use smallvec::SmallVec;
use smol_str::SmolStr;

/// A variable: global, constant, shared, local or a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(u32);
entity_impl!(VarId, "var");

/// A function: kernel, device function or prototype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FuncId(u32);
entity_impl!(FuncId, "func");

/// A register of one function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegId(u32);
entity_impl!(RegId, "reg");

/// A label of one function: a place in the code, or a table (`.branchtargets` …) of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(u32);
entity_impl!(LabelId, "label");

/// `.file index "name", modified, size`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceFile {
    /// What `.loc` names it by.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// When it was last changed, or 0.
    pub modified: u64,
    /// Its size in bytes, or 0.
    pub size: u64,
}

/// A PTX module.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// `.version` major and minor.
    pub version: (u8, u8),
    /// `.target` words: the SM first, then options (`debug`, `texmode_independent` …).
    pub targets: Vec<String>,
    /// Where `.target` stands.
    pub target_span: Span,
    /// `.address_size`: 64, or 32 in old modules.
    pub address_size: u8,
    /// All variables: module scope, and those that functions declare.
    pub vars: PrimaryMap<VarId, Var>,
    /// All functions.
    pub funcs: PrimaryMap<FuncId, Func>,
    /// Variables and functions of module scope in the order of the text.
    pub items: Vec<Item>,
    /// `.file` directives.
    pub files: Vec<SourceFile>,
    /// `.alias` directives: the new name and what it stands for, and where.
    pub aliases: Vec<(FuncId, FuncId, Span)>,
    /// What named aliases before [`Module::resolve_aliases`]: the linker wants to know.
    pub by_alias: crate::alias::Uses,
    /// Strings of `.pragma` at module scope.
    pub pragmas: Vec<String>,
    /// `.section` (DWARF data).
    pub sections: Vec<Section>,
    /// What is to be said of it though it is not wrong.
    pub warnings: Vec<Diagnostic>,
    /// How far the first kernel parameter is from where their alignment counts from, on the target that the module is compiled
    /// for. The text does not say so; 0 until somebody knows.
    pub param_skew: u32,
    /// The same for kernels whose parameters take more than [`LARGE_PARAMS`] bytes, where it is different.
    pub large_param_skew: Option<u32>,
    /// Whether `.unified` stands anywhere, also where it has no effect.
    pub says_unified: bool,
}

/// Something declared at module scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A variable.
    Var(VarId),
    /// A function.
    Func(FuncId),
}

/// Linkage of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Linkage {
    /// None given: internal to the module.
    #[default]
    Internal,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// A state space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// `.reg`
    Reg,
    /// `.global`
    Global,
    /// `.const`
    Const,
    /// `.shared`
    Shared,
    /// `.local`
    Local,
    /// `.param`
    Param,
}

/// The two halves of a number that is the same for one variable or function in every program that has it.
pub type Uuid = [u64; 2];

/// A variable.
#[derive(Clone, Debug)]
pub struct Var {
    /// Name.
    pub name: String,
    /// State space.
    pub space: Space,
    /// Element type (of one vector component).
    pub ty: Type,
    /// What it is instead, if it is a texture, sampler or surface: then the type is that of a handle.
    pub opaque: Option<Opaque>,
    /// Vector components: 1, 2 or 4.
    pub vector: u8,
    /// `.attribute(.managed)`
    pub managed: bool,
    /// `.attribute(.unified(a, b))`
    pub unified: Option<Uuid>,
    /// Array dimensions; an unsized first one is 0.
    pub dims: SmallVec<[u64; 2]>,
    /// Alignment in bytes: `.align`, or the natural one.
    pub align: u32,
    /// Linkage.
    pub linkage: Linkage,
    /// Initial value; absent bytes are zero.
    pub init: Option<Init>,
    /// What a `.ptr` parameter points to, and its alignment.
    pub ptr: Option<(Option<Space>, u32)>,
    /// Where it is declared.
    pub span: Span,
}

/// The kinds of opaque variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opaque {
    /// `.texref`
    Texture,
    /// `.samplerref`
    Sampler,
    /// `.surfref`
    Surface,
}

impl Opaque {
    /// Its word, without the dot.
    pub fn name(self) -> &'static str {
        match self {
            Opaque::Texture => "texref",
            Opaque::Sampler => "samplerref",
            Opaque::Surface => "surfref",
        }
    }

    /// The kind of this name.
    pub fn parse(word: &str) -> Option<Opaque> {
        [Opaque::Texture, Opaque::Sampler, Opaque::Surface].into_iter().find(|o| o.name() == word)
    }
}

impl Var {
    /// Size in bytes; 0 for an unsized array.
    pub fn size(&self) -> u64 {
        let element = u64::from(self.ty.bytes()) * u64::from(self.vector);
        self.dims.iter().fold(element, |n, d| n.saturating_mul(*d))
    }
    /// Its alignment as an argument: no scalar has less than its size.
    pub fn passed_align(&self) -> u32 {
        let natural = self.ty.bytes() * u32::from(self.vector);
        if self.dims.is_empty() { self.align.max(natural) } else { self.align }
    }
    /// Whether it is an array without a size (`extern .shared x[]`).
    pub fn is_unsized(&self) -> bool {
        self.dims.contains(&0)
    }
}

/// An initializer: bytes, with addresses to be filled in.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Init {
    /// The leading bytes; the rest of the variable is zero.
    pub bytes: Vec<u8>,
    /// Addresses stored in it.
    pub relocs: Vec<Reloc>,
    /// Of textures, samplers and surfaces: the fields of each element, `{field = value, …}`.
    pub fields: Vec<Vec<(String, String)>>,
}

/// An address in an initializer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reloc {
    /// Byte offset in the variable.
    pub offset: u64,
    /// Size of the field in bytes.
    pub size: u8,
    /// Whose address.
    pub symbol: Symbol,
    /// Added to it.
    pub addend: i64,
    /// `generic(symbol)`.
    pub generic: bool,
    /// `0xFF00(symbol)`: only this byte of the address, counted from the lowest.
    pub byte: Option<u8>,
}

/// A symbol whose address can be taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Symbol {
    /// A variable.
    Var(VarId),
    /// A function.
    Func(FuncId),
}

/// A function, its prototype, or both.
#[derive(Clone, Debug)]
pub struct Func {
    /// Name.
    pub name: String,
    /// `.entry` rather than `.func`.
    pub entry: bool,
    /// Linkage.
    pub linkage: Linkage,
    /// Parameters, in order.
    pub params: Vec<VarId>,
    /// Return values, in order.
    pub returns: Vec<VarId>,
    /// Performance and ABI directives.
    pub attrs: FuncAttrs,
    /// The code; `None` for a declaration.
    pub body: Option<Body>,
    /// Where its name stands.
    pub span: Span,
}

impl Func {
    /// Where ptxas is when it looks at a definition as a whole: behind the body.
    pub fn close(&self) -> Span {
        self.body.as_ref().map_or(self.span, |b| b.close)
    }
}

/// Directives between a function's header and its body.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FuncAttrs {
    /// `.maxntid`
    pub maxntid: Option<[u32; 3]>,
    /// `.reqntid`
    pub reqntid: Option<[u32; 3]>,
    /// `.minnctapersm`
    pub minnctapersm: Option<u32>,
    /// `.maxnctapersm`
    pub maxnctapersm: Option<u32>,
    /// `.maxnreg`
    pub maxnreg: Option<u32>,
    /// `.noreturn`
    pub noreturn: bool,
    /// `.attribute(.unified(a, b))`
    pub unified: Option<Uuid>,
    /// `.explicitcluster`
    pub explicit_cluster: bool,
    /// `.reqnctapercluster`
    pub reqnctapercluster: Option<[u32; 3]>,
    /// `.maxclusterrank`
    pub maxclusterrank: Option<u32>,
    /// `.blocksareclusters`
    pub blocks_are_clusters: bool,
    /// `.abi_preserve`
    pub abi_preserve: Option<u32>,
    /// `.abi_preserve_control`
    pub abi_preserve_control: Option<u32>,
    /// `.pragma` strings.
    pub pragmas: Vec<String>,
}

impl FuncAttrs {
    /// `.reqnctapercluster`; where the first number is 0 it says nothing.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        self.reqnctapercluster.filter(|n| n[0] != 0)
    }

    /// `.maxclusterrank`; 0 says nothing.
    pub fn most_of_cluster(&self) -> Option<u32> {
        self.maxclusterrank.filter(|n| *n != 0)
    }
}

/// A function's code.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Registers.
    pub regs: PrimaryMap<RegId, Reg>,
    /// The first component of each vector register, which the others follow, and how many there are.
    pub vectors: Vec<(RegId, u8)>,
    /// Variables declared inside, of any space but `.reg`.
    pub vars: Vec<VarId>,
    /// Labels.
    pub labels: PrimaryMap<LabelId, Label>,
    /// Statements, scopes flattened.
    pub stmts: Vec<Stmt>,
    /// Its closing brace.
    pub close: Span,
}

/// A register.
#[derive(Clone, PartialEq, Debug)]
pub struct Reg {
    /// Name with its `%`.
    pub name: SmolStr,
    /// Type. A vector register is one of these for each component.
    pub ty: Type,
}

/// A label.
#[derive(Clone, PartialEq, Debug)]
pub struct Label {
    /// Name.
    pub name: SmolStr,
    /// Where it is defined.
    pub span: Span,
}

/// A statement. Most are instructions, so these are not boxed.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Stmt {
    /// A label's place.
    Label(LabelId),
    /// An instruction.
    Inst(Inst),
    /// `label: .branchtargets a, b, …;`
    BranchTargets(LabelId, Vec<LabelId>),
    /// `label: .calltargets f, g, …;`
    CallTargets(LabelId, Vec<FuncId>),
    /// `label: .callprototype …;`: the signature is that of this bodiless function.
    CallPrototype(LabelId, FuncId),
    /// `.loc file line column`.
    Loc(Loc),
    /// `.pragma "…";`
    Pragma(String),
}

/// A source position from `.loc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loc {
    /// `.file` index.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1 (0: none).
    pub column: u32,
    /// Where the code was inlined, if it was.
    pub inlined: Option<Box<InlinedAt>>,
}

/// `function_name NAME+offset, inlined_at file line column` of `.loc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InlinedAt {
    /// Label, in `.debug_str`, of the name of the inlined function.
    pub function: String,
    /// Added to that label.
    pub offset: i64,
    /// `.file` index of the call.
    pub file: u32,
    /// Line of the call.
    pub line: u32,
    /// Column of the call.
    pub column: u32,
}

/// An instruction.
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// Guard predicate, and whether it is negated.
    pub guard: Option<(RegId, bool)>,
    /// Mnemonic.
    pub op: Op,
    /// Every dotted word after it, in order, types included.
    pub mods: SmallVec<[Mod; 8]>,
    /// Operands.
    pub operands: SmallVec<[Operand; 4]>,
    /// Which of them were written as a list of one register, `{r}`: a bit each, the first the lowest.
    pub braced: u16,
    /// Which of them are addresses with an offset of zero that was written: a bit each. `ptxas -O0` adds it.
    pub zeros: u16,
    /// The whole statement.
    pub span: Span,
}

impl Inst {
    /// Whether operand `at` was written as a list of one register.
    pub fn is_braced(&self, at: usize) -> bool {
        at < 16 && self.braced >> at & 1 == 1
    }
    /// Whether the modifier is present.
    pub fn has(&self, m: Mod) -> bool {
        self.mods.contains(&m)
    }
    /// The types among the modifiers, in order.
    pub fn types(&self) -> impl Iterator<Item = Type> + '_ {
        self.mods.iter().filter_map(|m| m.as_type())
    }
    /// The `n`-th type.
    pub fn ty(&self, n: usize) -> Option<Type> {
        self.types().nth(n)
    }
    /// The first of `candidates` that is present.
    pub fn one_of(&self, candidates: &[Mod]) -> Option<Mod> {
        candidates.iter().copied().find(|m| self.has(*m))
    }
}

/// An operand.
#[derive(Clone, PartialEq, Debug)]
pub enum Operand {
    /// A register.
    Reg(RegId),
    /// `!p`
    NotPred(RegId),
    /// `-r` (accepted by `set`-like and old instructions).
    NegReg(RegId),
    /// An integer constant: its 64 bits, sign-extended if it was written negative.
    Int(u64),
    /// A floating-point constant, as binary64 bits unless written as `0f…`.
    F64(u64),
    /// A floating-point constant written as `0f…`: binary32 bits.
    F32(u32),
    /// A special register; the component (0 = x … 3 = w) of one that is a vector.
    Special(SpecialReg, Option<u8>),
    /// The address of a variable plus a byte offset.
    Var(VarId, i64),
    /// A function's address, or a call target.
    Func(FuncId),
    /// A label: branch target, or table.
    Label(LabelId),
    /// `{a, b, …}`
    Vector(Box<[VectorElem]>),
    /// `r.b0`, `r.h1`, `r.b3210`: the bytes or halves of a register that a video instruction takes.
    Part {
        /// The register.
        reg: RegId,
        /// Which part.
        part: Part,
    },
    /// `[base + offset]`
    Addr(Addr),
    /// `[a, {x, y}]`: a texture or tensor map with coordinates, perhaps with a sampler between.
    Bracket(Vec<Operand>),
    /// `p|q`; an absent one was written `_`.
    Pair(Option<RegId>, Option<RegId>),
    /// `{a, b, …}|p`: values of a texture, and whether they were in memory.
    Resident(Box<[VectorElem]>, RegId),
    /// `_`
    Sink,
    /// `(a, b, …)` of a call.
    List(Vec<Operand>),
}

/// Bytes or halves of a register, or of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// `.h…` rather than `.b…`.
    pub halves: bool,
    /// Their numbers, in the order of the text.
    pub lanes: [u8; 4],
    /// How many there are: 1 to 4.
    pub count: u8,
}

impl Part {
    /// Reads `b0`, `h10`, `b3210`.
    pub fn parse(word: &str) -> Option<Part> {
        let (halves, digits) = match word.split_at_checked(1)? {
            ("b", digits) => (false, digits),
            ("h", digits) => (true, digits),
            _ => return None,
        };
        let mut lanes = [0; 4];
        for (lane, d) in lanes.iter_mut().zip(digits.bytes()) {
            *lane = d.checked_sub(b'0').filter(|n| *n < 8)?;
        }
        let count = digits.len() as u8;
        matches!(count, 1..=4).then_some(Part { halves, lanes, count })
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.halves { "h" } else { "b" })?;
        self.lanes[..usize::from(self.count)].iter().try_for_each(|n| write!(f, "{n}"))
    }
}

/// An element of a vector operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum VectorElem {
    /// A register.
    Reg(RegId),
    /// An integer constant.
    Int(u64),
    /// A binary32 constant.
    F32(u32),
    /// A binary64 constant.
    F64(u64),
    /// `_`
    Sink,
}

/// A memory address.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Addr {
    /// What it starts from.
    pub base: AddrBase,
    /// Byte offset.
    pub offset: i64,
}

/// `.section name { … }`: DWARF data.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// `.debug_str`
    pub name: String,
    /// What stands between its braces.
    pub text: String,
    /// Its data; zeros where a label or another section is meant.
    pub bytes: Vec<u8>,
    /// Its labels and what they are before.
    pub labels: Vec<(String, u32)>,
    /// Where a label or another section is meant.
    pub places: Vec<Place>,
}

/// A place that a section names: a field of zeros in its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Byte offset of the field.
    pub offset: u32,
    /// Its bytes: 4 or 8.
    pub size: u8,
    /// What it names.
    pub of: PlaceOf,
    /// Added to it.
    pub plus: u64,
}

/// What a section names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlaceOf {
    /// A label, variable or function.
    Name(String),
    /// A section, with its dot.
    Section(String),
    /// How far the first label is behind the second.
    Distance(String, String),
}

/// What an address starts from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum AddrBase {
    /// A register.
    Reg(RegId),
    /// A variable.
    Var(VarId),
    /// Nothing: the offset is the address.
    Absolute,
}

/// Bytes of a kernel's parameters, packed from 0, up to which all is as it was before PTX 8.1 allowed more. ptxas 13.0.88 has more of them
/// from 0x1a80 on in constant bank 0, up to sm_89, and states each one's size in 16 bits, on all targets; what alignment adds where the bank
/// does not begin with them counts for neither.
pub const LARGE_PARAMS: u32 = 4352;

impl Module {
    /// How many of the first of these parameters are one in the text: the components of a vector register, else one.
    pub fn components(&self, params: &[VarId]) -> usize {
        let Some(first) = params.first().map(|v| &self.vars[*v]) else { return 0 };
        let same = |v: &&VarId| first.space == Space::Reg && self.vars[**v].span == first.span;
        1 + params[1..].iter().take_while(same).count()
    }

    /// Byte offset of each kernel parameter, and the size of all: in order, each at its alignment, which counts from
    /// [`Module::param_skew`] bytes before the first (ptxas 13.0.88, docs/cubin.md).
    pub fn param_layout(&self, func: &Func) -> (Vec<u32>, u32) {
        self.param_layout_from(func, self.param_skew_of(func))
    }

    /// How far a kernel's first parameter is from where their alignment counts from.
    pub fn param_skew_of(&self, func: &Func) -> u32 {
        let large = if self.has_large_params(func) { self.large_param_skew } else { None };
        large.unwrap_or(self.param_skew)
    }

    /// Whether a kernel's parameters take more than [`LARGE_PARAMS`] bytes.
    pub fn has_large_params(&self, func: &Func) -> bool {
        self.param_size(func) > LARGE_PARAMS
    }

    /// How many bytes the parameters of a kernel take, whatever the target: what the limit is about.
    pub fn param_size(&self, func: &Func) -> u32 {
        self.param_layout_from(func, 0).1
    }

    fn param_layout_from(&self, func: &Func, skew: u32) -> (Vec<u32>, u32) {
        let mut at = skew;
        // Nothing is moved further than to the end of the bank.
        let most = if skew == 0 { u32::MAX } else { 1 << 16 };
        let offsets = func
            .params
            .iter()
            .map(|p| {
                let v = &self.vars[*p];
                // Textures, samplers and surfaces are not among what a launch passes.
                if v.opaque.is_some() {
                    return at - skew;
                }
                at = at.checked_next_multiple_of(v.align.clamp(1, most)).unwrap_or(u32::MAX);
                let start = at;
                at = at.saturating_add(v.size().try_into().unwrap_or(u32::MAX));
                start - skew
            })
            .collect();
        (offsets, at - skew)
    }
}
