//! Variables, initializers and function headers.

use super::{Parsed, Parser};
use crate::ast::{Func, FuncAttrs, Init, Linkage, Reloc, Space, Symbol, Var, VarId};
use crate::isa::Type;
use crate::lexer::Tok;
use smallvec::SmallVec;

/// No variable is larger than this.
const MAX_SIZE: u64 = 1 << 40;

/// Nor are initialized bytes more.
const MAX_INIT: u64 = 1 << 31;

impl Parser<'_> {
    /// `.align n`, `.attribute(…)`, `.vN`, and the type.
    pub(super) fn variable_type(&mut self) -> Parsed<(Type, u8, Option<u32>)> {
        let (mut align, mut vector) = (None, 1);
        loop {
            let span = self.span();
            if self.peek() != Tok::Dot {
                return Err(self.unexpected());
            }
            match &self.text()[1..] {
                "align" => {
                    self.bump();
                    let (n, span) = self.int_const()?;
                    if !n.is_power_of_two() || n > 1 << 20 {
                        return Err(self.error(span, "Alignment must be a power of two"));
                    }
                    align = Some(n as u32);
                }
                "attribute" => {
                    self.bump();
                    self.expect(Tok::LParen)?;
                    let managed = self.eat_dot("managed");
                    if !managed {
                        return Err(self.error(span, "Variable attribute is not supported"));
                    }
                    self.expect(Tok::RParen)?;
                }
                "v2" => {
                    self.bump();
                    vector = 2;
                }
                "v4" => {
                    self.bump();
                    vector = 4;
                }
                word => {
                    let Some(ty) = Type::parse(word) else {
                        return Err(self.error(span, format!("Parsing error near '.{word}': syntax error")));
                    };
                    self.bump();
                    return Ok((ty, vector, align));
                }
            }
        }
    }

    /// The declarators after a space: `type a, b[4] = {…};`
    pub(super) fn variables(&mut self, space: Space, linkage: Linkage) -> Parsed<Vec<VarId>> {
        let (ty, vector, align) = self.variable_type()?;
        let mut out = Vec::new();
        loop {
            out.push(self.declarator(space, linkage, ty, vector, align)?);
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::Semi)?;
        Ok(out)
    }

    fn declarator(
        &mut self,
        space: Space,
        linkage: Linkage,
        ty: Type,
        vector: u8,
        align: Option<u32>,
    ) -> Parsed<VarId> {
        let (name, span) = self.name()?;
        let mut dims: SmallVec<[u64; 2]> = SmallVec::new();
        while self.eat(Tok::LBracket) {
            if self.eat(Tok::RBracket) {
                dims.push(0);
            } else {
                let (n, _) = self.int_const()?;
                self.expect(Tok::RBracket)?;
                dims.push(n);
            }
        }
        let natural = ty.bytes() * u32::from(vector);
        let mut var = Var {
            name: name.to_string(),
            space,
            ty,
            vector,
            dims,
            align: align.unwrap_or(natural).max(1),
            linkage,
            init: None,
            ptr: None,
            span,
        };
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
            self.initializer(&mut init, &mut at, ty, &dims)?;
            if var.is_unsized() {
                var.dims[0] = at.div_ceil(u64::from(natural));
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

    /// `dims` are the dimensions that are still to be filled; a list that is too short leaves zeros.
    fn initializer(&mut self, init: &mut Init, at: &mut u64, ty: Type, dims: &[u64]) -> Parsed<()> {
        if self.eat(Tok::LBrace) {
            let start = *at;
            let rest = dims.get(1..).unwrap_or(&[]);
            while !self.eat(Tok::RBrace) {
                // A flat list fills the rows one after another.
                let rest = if self.peek() == Tok::LBrace { rest } else { &[] };
                self.nested(|p| p.initializer(init, at, ty, rest))?;
                if !self.eat(Tok::Comma) {
                    self.expect(Tok::RBrace)?;
                    break;
                }
            }
            let size = dims.iter().try_fold(u64::from(ty.bytes()), |n, d| n.checked_mul(*d));
            match (size, dims.first()) {
                (Some(size), Some(1..)) if *at - start <= size => *at = start.saturating_add(size),
                (_, Some(1..)) => {
                    let span = self.previous_span();
                    return Err(self.error(span, "Greater number of elements in array initializer"));
                }
                _ => {}
            }
            return Ok(());
        }
        if *at > MAX_INIT {
            let span = self.span();
            return Err(self.error(span, "Initializer is too large"));
        }
        let size = ty.bytes() as u8;
        let value = match self.peek() {
            Tok::Name => {
                let generic = self.text() == "generic" && self.peek2() == Tok::LParen;
                if generic {
                    self.bump();
                    self.bump();
                }
                let (name, span) = self.name()?;
                let Some(symbol) = self.symbol(name) else {
                    return Err(self.error(span, format!("Invalid initial value symbol '{name}'")));
                };
                if generic {
                    self.expect(Tok::RParen)?;
                }
                let addend =
                    if matches!(self.peek(), Tok::Plus | Tok::Minus) { self.signed_offset()? } else { 0 };
                init.relocs.push(Reloc { offset: *at, size, symbol, addend, generic });
                0
            }
            _ => self.numeric_const(ty)?,
        };
        init.bytes.resize(*at as usize, 0);
        init.bytes.extend_from_slice(&value.to_le_bytes()[..usize::from(size).min(8)]);
        *at += u64::from(size);
        init.bytes.resize(*at as usize, 0);
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
    pub(super) fn params(&mut self) -> Parsed<Vec<VarId>> {
        let mut out = Vec::new();
        if !self.eat(Tok::LParen) {
            return Ok(out);
        }
        while self.peek() != Tok::RParen {
            let span = self.span();
            let Some(space @ (Space::Param | Space::Reg)) = self.space() else {
                return Err(self.unexpected());
            };
            let (ty, vector, align, ptr) = self.param_type()?;
            // Prototypes may leave the name out or write `_`.
            if self.peek() == Tok::Name {
                let var = self.declarator(space, Linkage::Internal, ty, vector, align)?;
                self.module.vars[var].ptr = ptr;
                out.push(var);
            } else {
                let natural = ty.bytes() * u32::from(vector);
                out.push(self.module.vars.push(Var {
                    name: String::new(),
                    space,
                    ty,
                    vector,
                    dims: SmallVec::new(),
                    align: align.unwrap_or(natural).max(1),
                    linkage: Linkage::Internal,
                    init: None,
                    ptr,
                    span,
                }));
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::RParen)?;
        Ok(out)
    }

    #[allow(clippy::type_complexity)]
    fn param_type(&mut self) -> Parsed<(Type, u8, Option<u32>, Option<(Option<Space>, u32)>)> {
        let (ty, vector, mut align) = self.variable_type()?;
        let mut ptr = None;
        if self.eat_dot("ptr") {
            let space = self.space();
            let mut pointee = 4;
            if self.eat_dot("align") {
                pointee = self.int_const()?.0 as u32;
            }
            ptr = Some((space, pointee));
        }
        if self.eat_dot("align") {
            align = Some(self.int_const()?.0 as u32);
        }
        Ok((ty, vector, align, ptr))
    }

    pub(super) fn function(&mut self, entry: bool, linkage: Linkage) -> Parsed<()> {
        let mut attrs = FuncAttrs::default();
        while self.peek() == Tok::Dot {
            // `.func .attribute(…)`, `.func .noreturn`
            self.attribute(&mut attrs)?;
        }
        let returns = if self.peek() == Tok::LParen { self.params()? } else { Vec::new() };
        let (name, span) = self.name()?;
        let params = self.params()?;
        while self.peek() == Tok::Dot {
            self.attribute(&mut attrs)?;
        }
        let name = name.to_string();
        let mut func = Func { name, entry, linkage, params, returns, attrs, body: None, span };
        if self.eat(Tok::Semi) {
            self.add_func(func)?;
            return Ok(());
        }
        if self.func.is_some() {
            return Err(self.error(span, "A function cannot be defined inside another"));
        }
        // Known before its body, which may refer to itself.
        let known = self.globals.contains_key(&func.name);
        if !known {
            self.add_func(func.clone())?;
        }
        func.body = Some(self.body(&func)?);
        self.add_func(func)?;
        Ok(())
    }

    fn three(&mut self) -> Parsed<[u32; 3]> {
        let mut out = [1; 3];
        for (i, slot) in out.iter_mut().enumerate() {
            if i > 0 && !self.eat(Tok::Comma) {
                break;
            }
            *slot = self.int_const()?.0 as u32;
        }
        Ok(out)
    }

    pub(super) fn attribute(&mut self, attrs: &mut FuncAttrs) -> Parsed<()> {
        let span = self.span();
        let word = self.text();
        self.bump();
        match &word[1..] {
            "maxntid" => attrs.maxntid = Some(self.three()?),
            "reqntid" => attrs.reqntid = Some(self.three()?),
            "reqnctapercluster" => attrs.reqnctapercluster = Some(self.three()?),
            "minnctapersm" => attrs.minnctapersm = Some(self.int_const()?.0 as u32),
            "maxnctapersm" => attrs.maxnctapersm = Some(self.int_const()?.0 as u32),
            "maxnreg" => attrs.maxnreg = Some(self.int_const()?.0 as u32),
            "maxclusterrank" => attrs.maxclusterrank = Some(self.int_const()?.0 as u32),
            "abi_preserve" => attrs.abi_preserve = Some(self.int_const()?.0 as u32),
            "abi_preserve_control" => attrs.abi_preserve_control = Some(self.int_const()?.0 as u32),
            "noreturn" => attrs.noreturn = true,
            "explicitcluster" => attrs.explicit_cluster = true,
            "blocksareclusters" => attrs.blocks_are_clusters = true,
            "pragma" => {
                self.strings(&mut attrs.pragmas)?;
                self.eat(Tok::Semi);
            }
            other => {
                return Err(self.error(span, format!("Parsing error near '.{other}': syntax error")));
            }
        }
        Ok(())
    }
}
