//! Debug information: `.file` and `.section`. The grammar of a section's data is what ptxas 13.0.88 takes
//! (`crates/ptx/tests/dwarf.rs`): `.b8` and `.b16` have numbers behind them, `.b32` and `.b64` either numbers or one label.

use super::expr::parse_int;
use super::{Failed, Parsed, Parser};
use crate::ast::{Place, PlaceOf, Section, SourceFile};
use crate::isa::{Mod, Type};
use crate::lexer::Tok;
use crate::span::Span;

/// Words with a dot that are no modifiers of instructions and no names of sections either.
const DIRECTIVES: &[&str] = &[
    "abi_preserve",
    "abi_preserve_control",
    "address_size",
    "alias",
    "align",
    "attribute",
    "blocksareclusters",
    "branchtargets",
    "byte",
    "callprototype",
    "calltargets",
    "common",
    "entry",
    "explicitcluster",
    "extern",
    "file",
    "func",
    "loc",
    "managed",
    "maxclusterrank",
    "maxnctapersm",
    "maxnreg",
    "maxntid",
    "minnctapersm",
    "noreturn",
    "pragma",
    "ptr",
    "quad",
    "reg",
    "reqnctapercluster",
    "reqntid",
    "samplerref",
    "section",
    "surfref",
    "target",
    "texref",
    "unified",
    "visible",
    "weak",
];

impl<'s> Parser<'s> {
    /// `.file number "name", time, size`
    pub(super) fn file(&mut self) -> Parsed<()> {
        self.bump();
        let index = self.small()?;
        let span = self.expect(Tok::Str)?;
        let name = self.text_of(span).trim_matches('"').to_string();
        // The time of its last change and its size, or the former alone.
        let mut known = [0; 2];
        for n in &mut known {
            if !self.eat(Tok::Comma) {
                break;
            }
            *n = self.literal()?.0;
        }
        if self.peek() == Tok::Comma {
            return Err(self.unexpected());
        }
        if !self.file_numbers.insert(index) {
            let span = self.span();
            return Err(self.error(span, format!("Duplicate file index #{index}")));
        }
        let [modified, size] = known;
        self.module.files.push(SourceFile { index, name, modified, size });
        Ok(())
    }

    /// `.section name { … }`
    pub(super) fn section(&mut self) -> Parsed<()> {
        self.bump();
        let name = self.section_name()?.to_string();
        let open = self.expect(Tok::LBrace)?;
        let mut section = Section { name, ..Section::default() };
        while self.peek() != Tok::RBrace {
            self.datum(&mut section)?;
        }
        let close = self.expect(Tok::RBrace)?;
        section.text = self.source[open.end as usize..close.start as usize].to_string();
        self.module.sections.push(section);
        Ok(())
    }

    /// `.debug_str`: a word with a dot that means nothing else.
    pub(super) fn section_name(&mut self) -> Parsed<&'s str> {
        let word = self.text();
        let letter = word.as_bytes().get(1).is_some_and(u8::is_ascii_alphabetic);
        let known = || Mod::parse(&word[1..]).is_some() || DIRECTIVES.contains(&&word[1..]);
        if self.peek() != Tok::Dot || !letter || known() {
            return Err(self.unexpected());
        }
        self.bump();
        Ok(word)
    }

    /// A label, or a type and what is of it.
    fn datum(&mut self, section: &mut Section) -> Parsed<()> {
        let (tok, start) = self.tokens[self.at];
        if tok == Tok::Name {
            let name = self.dwarf_label()?;
            self.expect(Tok::Colon)?;
            if !self.dwarf_labels.insert(name) {
                self.error(start, format!("Duplicate definition of label '{name}'"));
            }
            section.labels.push((name.to_string(), section.bytes.len() as u32));
            return Ok(());
        }
        let ty = match tok {
            Tok::Dot => Type::parse(&self.text()[1..]),
            _ => None,
        };
        let Some(ty) = ty else { return Err(self.unexpected()) };
        self.bump();
        let size = match ty {
            Type::b8 => 1,
            Type::b16 => 2,
            Type::b32 => 4,
            Type::b64 => 8,
            _ => return Err(self.error(start, "Illegal type for dwarf data")),
        };
        if matches!(self.peek(), Tok::Name | Tok::Dot) {
            let (of, plus) = self.dwarf_place()?;
            if size < 4 {
                return Err(self.error(start, "Illegal type for dwarf data"));
            }
            section.places.push(Place { offset: section.bytes.len() as u32, size: size as u8, of, plus });
            section.bytes.extend(&[0; 8][..size]);
            return Ok(());
        }
        loop {
            let n = self.dwarf_number(size)?;
            section.bytes.extend(&n.to_le_bytes()[..size]);
            if !self.eat(Tok::Comma) {
                return Ok(());
            }
        }
    }

    /// `label`, `.section`, either with `+ n`, or the difference of two labels. Where that will be is not known here.
    fn dwarf_place(&mut self) -> Parsed<(PlaceOf, u64)> {
        let of = if self.peek() == Tok::Dot {
            PlaceOf::Section(self.section_name()?.to_string())
        } else {
            let name = self.dwarf_label()?.to_string();
            if self.eat(Tok::Minus) {
                let other = self.dwarf_label()?.to_string();
                return Ok((PlaceOf::Distance(name, other), 0));
            }
            PlaceOf::Name(name)
        };
        Ok((of, self.dwarf_offset()?))
    }

    /// `+ n` behind a label or the name of a section; 0 without it.
    pub(super) fn dwarf_offset(&mut self) -> Parsed<u64> {
        if !self.eat(Tok::Plus) {
            return Ok(0);
        }
        Ok(self.dwarf_literal()?.0)
    }

    fn dwarf_label(&mut self) -> Parsed<&'s str> {
        if matches!(self.text(), "WARP_SZ" | "_") {
            return Err(self.unexpected());
        }
        Ok(self.name()?.0)
    }

    /// An integer literal, and whether it is unsigned.
    fn dwarf_literal(&mut self) -> Parsed<(u64, bool, Span)> {
        let span = self.span();
        let text = self.text();
        self.expect(Tok::Int)?;
        match parse_int(text) {
            Some((n, unsigned)) => Ok((n, unsigned, span)),
            None => Err(self.bad_int(text, span)),
        }
    }

    /// A number of so many bytes. What is too large is cut to 32 bits and 64, but not to less.
    fn dwarf_number(&mut self, size: usize) -> Parsed<u64> {
        let minus = self.span();
        let negative = self.eat(Tok::Minus);
        let (n, unsigned, span) = self.dwarf_literal()?;
        let bits = 8 * size as u32;
        if !negative {
            if size <= 2 && (n as u32) >> bits != 0 {
                self.out_of_range(span, bits, &(n as u32).to_string());
            }
            return Ok(n);
        }
        if unsigned {
            self.at -= 1;
            return Err(self.unexpected());
        }
        // A zero has no sign.
        if size < 8 && !(1..=1 << (bits - 1)).contains(&n) {
            let minus_zero = if n == 0 { "0".to_string() } else { format!("-{n}") };
            self.out_of_range(minus.to(span), bits, &minus_zero);
        }
        Ok(n.wrapping_neg())
    }

    fn out_of_range(&mut self, span: Span, bits: u32, value: &str) -> Failed {
        self.error(span, format!("Value out of range for type .b{bits} {value}"))
    }
}
