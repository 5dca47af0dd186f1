//! Variables, initializers and function headers.

use super::body::{COMPONENTS, component_name};
use super::{Parsed, Parser};
use crate::ast::{Init, Linkage, Opaque, Reloc, Space, Symbol, Uuid, Var, VarId};
use crate::isa::{Type, TypeClass};
use crate::lexer::Tok;
use crate::span::Span;
use smallvec::SmallVec;

/// No variable is larger than this.
const MAX_SIZE: u64 = 1 << 40;

/// Nor aligned more: of memory in files, which are as large as that, and of local memory, where ptxas crashes on more.
const MAX_ALIGN: u32 = 1 << 28;
const MAX_LOCAL_ALIGN: u32 = 1 << 23;

/// So many variables are declared at once at most, by their number.
const MOST_NUMBERED: u32 = 1 << 16;

/// Nor are initialized bytes more.
const MAX_INIT: u64 = 1 << 28;

/// Fields of textures, samplers and surfaces.
const FIELDS: &[(&str, &[Opaque])] = {
    use Opaque::{Sampler, Surface, Texture};
    &[
        ("width", &[Texture, Surface]),
        ("height", &[Texture, Surface]),
        ("depth", &[Texture, Surface]),
        ("array_size", &[Texture, Surface]),
        ("num_samples", &[Texture]),
        ("channel_data_type", &[Texture, Surface]),
        ("channel_order", &[Texture, Surface]),
        ("normalized_coords", &[Texture]),
        ("addr_mode_0", &[Texture, Sampler]),
        ("addr_mode_1", &[Texture, Sampler]),
        ("addr_mode_2", &[Texture, Sampler]),
        ("filter_mode", &[Texture, Sampler]),
        ("force_unnormalized_coords", &[Sampler]),
    ]
};

/// What may stand as the value of such a field, beside numbers.
const FIELD_VALUES: &[&str] =
    &["wrap", "mirror", "clamp_ogl", "clamp_to_edge", "clamp_to_border", "nearest", "linear"];

/// Whether registers and variables have this type.
fn declarable(ty: Type) -> bool {
    let plain = ty.class() != TypeClass::Float
        && !ty.name().contains('x')
        && !matches!(ty, Type::u4 | Type::s4 | Type::u2 | Type::s2);
    plain || matches!(ty, Type::f16 | Type::f16x2 | Type::f32 | Type::f64)
}

/// Whether ptxas knows it as a type that declarations don't have.
fn instruction_only(ty: Type) -> bool {
    matches!(ty, Type::f32x2 | Type::u16x2 | Type::s16x2 | Type::e4m3x2 | Type::e5m2x2)
}

/// What comes before a name in a declaration.
#[derive(Clone, Copy)]
pub(super) struct VarType {
    pub(super) ty: Type,
    pub(super) vector: u8,
    align: Option<u32>,
    pub(super) managed: bool,
    pub(super) unified: Option<Uuid>,
    pub(super) opaque: Option<Opaque>,
    ptr: Option<(Option<Space>, u32)>,
}

/// What may stand before the space of a declaration.
#[derive(Clone, Copy, Default)]
pub(super) struct Placement {
    align: Option<u32>,
    managed: bool,
    unified: Option<Uuid>,
}

impl Parser<'_> {
    /// What of a declaration may stand before its space as well as after it: `.align n`, `.attribute(…)`.
    pub(super) fn placement(&mut self) -> Parsed<Placement> {
        let mut place = Placement::default();
        while self.peek() == Tok::Dot && matches!(self.text(), ".align" | ".attribute") {
            self.placed(&mut place)?;
        }
        Ok(place)
    }

    /// One of the directives of [`Parser::placement`]; of several alignments the greatest counts.
    fn placed(&mut self, place: &mut Placement) -> Parsed<()> {
        if self.eat_dot("align") {
            place.align = Some(self.alignment()?).max(place.align);
            return Ok(());
        }
        self.bump();
        self.expect(Tok::LParen)?;
        loop {
            if self.eat_dot("managed") {
                place.managed = true;
            } else {
                place.unified = Some(self.unified()?);
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::RParen)?;
        Ok(())
    }

    /// `.unified(a, b)`; of numbers that are too large the lower 64 bits count.
    pub(super) fn unified(&mut self) -> Parsed<Uuid> {
        let span = self.span();
        if !self.eat_dot("unified") {
            return Err(self.unexpected());
        }
        self.module.says_unified = true;
        if self.module.version < (8, 0) {
            self.error(span, "Feature '.unified' requires PTX ISA .version 8.0 or later");
        }
        if matches!(crate::check::target_sm(&self.module), 1..90) {
            self.error(span, "Feature '.unified' requires .target sm_90 or higher");
        }
        self.expect(Tok::LParen)?;
        let (a, _) = self.literal()?;
        self.expect(Tok::Comma)?;
        let (b, _) = self.literal()?;
        self.expect(Tok::RParen)?;
        Ok([a, b])
    }

    /// Says of the attributes of a variable that only those in global memory have.
    pub(super) fn attributes_apply(&mut self, of: &VarType, name: &str) {
        for (has, word) in [(of.managed, "managed"), (of.unified.is_some(), "unified")] {
            if has {
                self.error(self.span(), format!("Illegal attribute '.{word}' for symbol '{name}'"));
            }
        }
    }

    /// `.align n`, `.attribute(…)`, `.vN`, and the type, after what stood before the space.
    pub(super) fn variable_type(&mut self, mut place: Placement) -> Parsed<VarType> {
        let mut vector = 1;
        loop {
            if self.peek() != Tok::Dot {
                return Err(self.unexpected());
            }
            let span = self.span();
            match &self.text()[1..] {
                // A vector's type follows at once.
                "align" | "attribute" | "v2" | "v4" if vector > 1 => return Err(self.unexpected()),
                "align" | "attribute" => self.placed(&mut place)?,
                "v2" => {
                    self.bump();
                    vector = 2;
                }
                "v4" => {
                    self.bump();
                    vector = 4;
                }
                word => {
                    let opaque = Opaque::parse(word);
                    let ty = if opaque.is_some() { Some(Type::b64) } else { Type::parse(word) };
                    let Some(ty) = ty.filter(|t| declarable(*t) || instruction_only(*t)) else {
                        return Err(self.error(span, format!("Parsing error near '.{word}': syntax error")));
                    };
                    if !declarable(ty) {
                        self.error(span, format!("Type .{word} may only be used as an instruction type"));
                    }
                    self.type_exists(ty, span);
                    if opaque.is_some() && vector > 1 {
                        self.error(span, "Vector type only allowed over basic types");
                    } else if vector > 1 && ty == Type::pred {
                        let message = "Predicate type can only be used to define scalar register variables";
                        self.error(span, message);
                    } else if ty.bytes() * u32::from(vector) > 16 {
                        self.error(span, "Vector type too large, exceeds 128 bit limit");
                    }
                    self.bump();
                    let Placement { align, managed, unified } = place;
                    return Ok(VarType { ty, vector, align, managed, unified, opaque, ptr: None });
                }
            }
        }
    }

    /// Says what a type needs that the module's version or target has not.
    fn type_exists(&mut self, ty: Type, span: Span) {
        let ((major, minor), sm) = ty.needs();
        let feature = match ty {
            Type::f16x2 => format!("Feature '{ty} packed data-type'"),
            _ => format!("Feature 'Type {ty}'"),
        };
        if self.module.version < (major, minor) {
            self.error(span, format!("{feature} requires PTX ISA .version {major}.{minor} or later"));
        }
        if crate::check::target_sm(&self.module) < sm {
            self.error(span, format!("{feature} requires .target sm_{sm} or higher"));
        }
    }

    /// A power of two.
    fn alignment(&mut self) -> Parsed<u32> {
        let span = self.span();
        let n = self.small()?;
        if !n.is_power_of_two() {
            return Err(self.error(span, "Alignment must be a power of two"));
        }
        Ok(n)
    }

    /// The declarators after a space: `type a, b[4] = {…};`
    pub(super) fn variables(
        &mut self,
        place: Placement,
        space: Space,
        linkage: Linkage,
    ) -> Parsed<Vec<VarId>> {
        let ty = self.variable_type(place)?;
        if ty.opaque.is_some() {
            let span = self.previous_span();
            if self.func.is_some() {
                self.error(span, "Texture/surface variable must be at module or entry parameter scope");
            } else if space != Space::Global {
                self.error(span, "Texture and surface variables must be declared in .global space");
            }
        }
        if space != Space::Global {
            self.attributes_apply(&ty, self.text());
        }
        if ty.opaque == Some(Opaque::Sampler)
            && !self.module.targets.iter().any(|t| t == "texmode_independent")
        {
            let message = "Instruction or declaration violates .target texmode_unified setting";
            self.error(self.previous_span(), message);
        }
        if linkage == Linkage::Common && space != Space::Global {
            self.error(self.span(), ".common variables must be declared in .global space");
        } else if linkage == Linkage::Common && ty.opaque.is_some() {
            self.error(self.span(), "Illegal type for .common symbol");
        }
        let mut out = Vec::new();
        // Nothing may be declared, too.
        while self.peek() != Tok::Semi {
            if self.func.is_none() && self.peek2() == Tok::Lt {
                self.numbered(&mut out, space, linkage, ty)?;
            } else {
                let v = self.declarator(space, linkage, ty)?;
                let var = &self.module.vars[v];
                if var.is_unsized() && linkage != Linkage::Extern {
                    let (span, message) =
                        (var.span, format!("Non-external variable '{}' has incomplete type", var.name));
                    self.error(span, message);
                }
                out.push(v);
            }
            if !self.eat(Tok::Comma) {
                break;
            }
            if self.peek() == Tok::Semi {
                return Err(self.unexpected());
            }
        }
        self.expect(Tok::Semi)?;
        Ok(out)
    }

    /// `v<4>`: `v0` to `v3`, as of registers.
    fn numbered(&mut self, out: &mut Vec<VarId>, space: Space, linkage: Linkage, of: VarType) -> Parsed<()> {
        let (name, span) = self.new_name()?;
        self.expect(Tok::Lt)?;
        let number = self.span();
        let count = self.small()?;
        self.expect(Tok::Gt)?;
        if count > MOST_NUMBERED {
            return Err(
                self.error(number, format!("Too many variables in a range ({MOST_NUMBERED} at most)"))
            );
        }
        self.placeable(name, span, space, of, false);
        let natural = of.ty.bytes() * u32::from(of.vector);
        for n in 0..count {
            out.push(self.module.vars.push(Var {
                name: format!("{name}{n}"),
                space,
                ty: of.ty,
                opaque: of.opaque,
                managed: of.managed,
                unified: of.unified,
                vector: of.vector,
                dims: SmallVec::new(),
                align: of.align.unwrap_or(natural).clamp(1, MAX_ALIGN),
                linkage,
                init: None,
                ptr: of.ptr,
                span,
            }));
        }
        Ok(())
    }

    fn declarator(&mut self, space: Space, linkage: Linkage, of: VarType) -> Parsed<VarId> {
        let VarType { ty, vector, align, managed, unified, opaque, ptr } = of;
        let nameless = self.params && self.text() == "_";
        let (name, span) = if nameless { self.name()? } else { self.new_name()? };
        let mut dims: SmallVec<[u64; 2]> = SmallVec::new();
        while self.peek() == Tok::LBracket {
            if self.params && !dims.is_empty() {
                return Err(self.unexpected());
            }
            self.bump();
            if self.eat(Tok::RBracket) {
                if !dims.is_empty() {
                    let span = self.previous_span();
                    return Err(self.syntax_error(span, "Parsing error near ']': syntax error"));
                }
                dims.push(0);
            } else {
                let (n, _) = self.literal()?;
                self.expect(Tok::RBracket)?;
                if n == 0 && !dims.is_empty() {
                    self.error(span, "Array of incomplete type");
                }
                dims.push(n);
            }
        }
        self.placeable(name, span, space, of, !dims.is_empty());
        let natural = ty.bytes() * u32::from(vector);
        let mut var = Var {
            name: name.to_string(),
            space,
            ty,
            opaque,
            managed,
            unified,
            vector,
            dims,
            align: align.unwrap_or(natural).max(1),
            linkage,
            init: None,
            ptr,
            span,
        };
        let most = match space {
            Space::Param | Space::Reg => u32::MAX,
            Space::Local => MAX_LOCAL_ALIGN,
            _ => MAX_ALIGN,
        };
        if var.align > most {
            return Err(self.error(span, format!("Alignment of '{name}' is too large ({most} at most)")));
        }
        if var.size() > MAX_SIZE {
            return Err(self.error(span, format!("Size of '{name}' is too large")));
        }
        if self.eat(Tok::Eq) {
            let mut init = Init::default();
            let mut at = 0;
            let mut dims = var.dims.clone();
            if vector > 1 {
                dims.push(u64::from(vector));
            }
            let elements = match opaque {
                Some(kind) => self.opaque_initializer(&mut init, kind, !dims.is_empty()).map(|()| 0)?,
                None => self.initializer(&mut init, &mut at, (ty, vector), &dims)?,
            };
            if var.is_unsized() {
                var.dims[0] = elements;
            }
            if at > var.size() {
                return Err(self.error(span, "Greater number of elements in array initializer"));
            }
            if !matches!(space, Space::Global | Space::Const) {
                let message = format!("No initial value is allowed for '{name}' in this state space");
                return Err(self.error(span, message));
            }
            if linkage == Linkage::Extern {
                let message = format!("No initial value is allowed for external symbol '{name}'");
                return Err(self.error(span, message));
            }
            var.init = Some(init);
        }
        Ok(self.module.vars.push(var))
    }

    /// Whether a state space holds variables of a type.
    fn placeable(&mut self, name: &str, span: Span, space: Space, of: VarType, array: bool) {
        let message = match (space, of.ty) {
            (Space::Reg, _) if array => format!("Variable '{name}' cannot be allocated into a register"),
            (Space::Reg, _) => return,
            (_, Type::pred) if of.vector == 1 => {
                format!("Predicate variable '{name}' must be in register state space")
            }
            (Space::Param, ty) if !array && (ty == Type::f16x2 || of.vector > 1) => {
                format!("Variable '{name}' cannot be allocated in .param state space")
            }
            _ => return,
        };
        self.error(span, message);
    }

    /// `dims` are the dimensions that are still to be filled. Returns how many elements the list has.
    ///
    /// ptxas puts the values one after another: a list that is too short leaves its zeros at the end of the
    /// variable, not at the end of its row as in C.
    fn initializer(&mut self, init: &mut Init, at: &mut u64, of: (Type, u8), dims: &[u64]) -> Parsed<u64> {
        let (ty, vector) = of;
        if dims.is_empty() == (self.peek() == Tok::LBrace) {
            let span = self.span();
            return Err(self.fatal(span, "Initial value type mismatch"));
        }
        if self.eat(Tok::LBrace) {
            let rest = dims.get(1..).unwrap_or(&[]);
            // Components of a vector are all given.
            let components = rest.is_empty() && vector > 1;
            let mut elements = 0;
            let mut empty = !components && self.eat(Tok::RBrace);
            while !empty {
                self.nested(|p| p.initializer(init, at, (ty, vector), rest))?;
                elements += 1;
                if self.peek() == Tok::RBrace && components && elements != u64::from(vector) {
                    let span = self.span();
                    return Err(self.error(span, "Incorrect number of elements in vector initializer"));
                }
                empty = !self.eat(Tok::Comma);
                if empty {
                    self.expect(Tok::RBrace)?;
                }
            }
            // The first dimension may be open.
            if dims.first().is_some_and(|most| *most > 0 && elements > *most) {
                let span = self.previous_span();
                return Err(self.error(span, "Greater number of elements in array initializer"));
            }
            return Ok(elements);
        }
        if *at > MAX_INIT {
            let span = self.span();
            return Err(self.error(span, "Initializer is too large"));
        }
        let size = ty.bytes() as u8;
        let masked = self.peek() == Tok::Int && self.peek2() == Tok::LParen;
        let value = match self.peek() {
            Tok::Name if self.text() != "WARP_SZ" => {
                let span = self.span();
                let reloc = self.address_constant(*at, size)?;
                if !matches!(ty, Type::u32 | Type::u64) {
                    return Err(self.fatal(span, "Initial value type mismatch"));
                }
                init.relocs.push(reloc);
                0
            }
            Tok::Int if masked => {
                let (text, span) = (self.text(), self.span());
                self.bump();
                self.bump();
                let mask = super::expr::parse_int(text).map_or(0, |(n, _)| n);
                let byte = mask.trailing_zeros() / 8;
                if byte == 8 || mask != 0xff << (8 * byte) {
                    let message = format!("Invalid mask value '{text}' used in initializer");
                    return Err(self.error(span, message));
                }
                let reloc = self.address_constant(*at, size)?;
                self.expect(Tok::RParen)?;
                if !matches!(ty, Type::u8 | Type::u32 | Type::u64) {
                    return Err(self.fatal(span, "Initial value type mismatch"));
                }
                init.relocs.push(Reloc { byte: Some(byte as u8), ..reloc });
                0
            }
            _ => self.numeric_const(ty)?,
        };
        init.bytes.resize(*at as usize, 0);
        init.bytes.extend_from_slice(&value.to_le_bytes()[..usize::from(size).min(8)]);
        *at += u64::from(size);
        init.bytes.resize(*at as usize, 0);
        Ok(1)
    }

    /// `symbol+offset` or `generic(symbol)+offset`.
    fn address_constant(&mut self, offset: u64, size: u8) -> Parsed<Reloc> {
        let generic = self.text() == "generic" && self.peek2() == Tok::LParen;
        if generic {
            self.bump();
            self.bump();
        }
        let (name, span) = self.name()?;
        let Some(symbol) = self.symbol(name) else {
            return Err(self.error(span, format!("Invalid initial value symbol '{name}'")));
        };
        if let Symbol::Var(v) = symbol
            && !matches!(self.module.vars[v].space, Space::Global | Space::Const)
        {
            let message = "Variable used as initial value not in .global or .const state space";
            return Err(self.fatal(span, message.to_string()));
        }
        if generic {
            self.expect(Tok::RParen)?;
        }
        if generic && matches!(symbol, Symbol::Func(_)) {
            return Err(self.error(span, "Invalid initial value expression"));
        }
        if self.peek() == Tok::Plus && matches!(symbol, Symbol::Func(_)) {
            return Err(self.fatal(span, "Initial value type mismatch"));
        }
        let addend = if self.eat(Tok::Plus) { self.int_const()? as i64 } else { 0 };
        Ok(Reloc { offset, size, symbol, addend, generic, byte: None })
    }

    /// `{field = value, …}`; of an array, braces around those of each element.
    fn opaque_initializer(&mut self, init: &mut Init, kind: Opaque, array: bool) -> Parsed<()> {
        if self.peek() != Tok::LBrace {
            let span = self.span();
            return Err(self.fatal(span, "Initial value type mismatch"));
        }
        self.bump();
        let mut fields = Vec::new();
        while self.peek() != Tok::RBrace {
            if array {
                self.opaque_initializer(init, kind, false)?;
            } else {
                let (field, span) = self.name()?;
                if !FIELDS.iter().any(|(name, kinds)| *name == field && kinds.contains(&kind)) {
                    let message = format!("Unrecognized field name '{field}' in opaque struct initializer");
                    return Err(self.fatal(span, message));
                }
                self.expect(Tok::Eq)?;
                let value = if self.peek() == Tok::Name {
                    let (value, span) = self.name()?;
                    if !FIELD_VALUES.contains(&value) {
                        self.error(span, format!("Unrecognized initial value symbol '{value}'"));
                    }
                    value.to_string()
                } else {
                    self.int_const()?.to_string()
                };
                fields.push((field.to_string(), value));
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::RBrace)?;
        if !array {
            init.fields.push(fields);
        }
        Ok(())
    }

    /// A global variable or function of this name.
    pub(super) fn symbol(&self, name: &str) -> Option<Symbol> {
        match self.globals.get(name)? {
            crate::ast::Item::Var(v) => Some(Symbol::Var(*v)),
            crate::ast::Item::Func(f) => Some(Symbol::Func(*f)),
        }
    }

    /// `(.param .b32 a, …)` with the parenthesis next, or nothing.
    /// `late` says whether the alignment may follow the type, too: not in functions.
    pub(super) fn params(&mut self, late: bool) -> Parsed<Vec<VarId>> {
        let mut out = Vec::new();
        if !self.eat(Tok::LParen) || self.eat(Tok::RParen) {
            return Ok(out);
        }
        self.params = true;
        let result = self.param_list(&mut out, late);
        self.params = false;
        result.map(|()| out)
    }

    fn param_list(&mut self, out: &mut Vec<VarId>, late: bool) -> Parsed<()> {
        loop {
            let span = self.span();
            let place = self.placement()?;
            let Some(space @ (Space::Param | Space::Reg)) = self.space() else {
                return Err(self.unexpected());
            };
            let of = self.param_type(place, late)?;
            if self.peek() == Tok::Name {
                self.attributes_apply(&of, self.text());
            }
            // Prototypes may leave the name out or write `_`.
            if self.peek() == Tok::Name {
                let var = self.declarator(space, Linkage::Internal, of)?;
                out.push(var);
                if space == Space::Reg && of.vector > 1 {
                    self.split_vector(var, out);
                }
            } else {
                let VarType { ty, vector, align, managed, unified, opaque, ptr } = of;
                let natural = ty.bytes() * u32::from(vector);
                out.push(self.module.vars.push(Var {
                    name: String::new(),
                    space,
                    ty,
                    opaque,
                    managed,
                    unified,
                    vector,
                    dims: SmallVec::new(),
                    align: align.unwrap_or(natural).max(1),
                    linkage: Linkage::Internal,
                    init: None,
                    ptr,
                    span,
                }));
                if let (Space::Reg, 2.., Some(var)) = (space, vector, out.last()) {
                    self.split_vector(*var, out);
                }
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::RParen)?;
        Ok(())
    }

    /// Makes a vector register, the last of the parameters, one for each component.
    fn split_vector(&mut self, var: VarId, out: &mut Vec<VarId>) {
        let whole = self.module.vars[var].clone();
        let natural = whole.ty.bytes().max(1);
        let component = |c: &str| {
            let name = if whole.name.is_empty() { String::new() } else { component_name(&whole.name, c) };
            Var { name, vector: 1, align: natural, ..whole.clone() }
        };
        self.module.vars[var] = component(COMPONENTS[0]);
        for c in &COMPONENTS[1..usize::from(whole.vector)] {
            out.push(self.module.vars.push(component(c)));
        }
    }

    fn param_type(&mut self, place: Placement, late: bool) -> Parsed<VarType> {
        let mut of = self.variable_type(place)?;
        if self.eat_dot("ptr") {
            let spaces = [".global", ".const", ".shared", ".shared::cta", ".local"];
            let space = if spaces.contains(&self.text()) { self.space() } else { None };
            let mut pointee = 4;
            if self.eat_dot("align") {
                pointee = self.alignment()?;
            }
            of.ptr = Some((space, pointee));
        } else if self.eat_dot("align") {
            let span = self.previous_span();
            of.align = Some(self.alignment()?).max(of.align);
            if !late {
                self.error(span, "Illegal placement of kernel parameter attribute");
            }
        }
        Ok(of)
    }
}
