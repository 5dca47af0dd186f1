//! Headers of functions: directives, and where a header ends.

use super::pragma::Place;
use super::{Parsed, Parser};
use crate::ast::{Func, FuncAttrs, Linkage};
use crate::lexer::Tok;

/// Directives of function headers: whether they are those of kernels, the first PTX version and the first SM.
const DIRECTIVES: &[(&str, bool, (u8, u8), u16)] = &[
    ("maxntid", true, (1, 3), 0),
    ("reqntid", true, (2, 1), 0),
    ("minnctapersm", true, (2, 0), 0),
    ("maxnctapersm", true, (1, 3), 0),
    ("maxnreg", true, (1, 3), 0),
    ("reqnctapercluster", true, (7, 8), 90),
    ("maxclusterrank", true, (7, 8), 90),
    ("explicitcluster", true, (7, 8), 90),
    ("blocksareclusters", true, (9, 0), 90),
    ("noreturn", false, (6, 4), 0),
    ("abi_preserve", false, (9, 0), 80),
    ("abi_preserve_control", false, (9, 0), 80),
];

/// What begins at the top of a module.
const OF_MODULES: &[&str] = &[
    ".visible", ".extern", ".weak", ".common", ".func", ".entry", ".global", ".const", ".shared", ".alias",
    ".file", ".section", ".pragma",
];

/// As many registers, and as many convergence barriers, a function says at most that it keeps.
const MOST_PRESERVED: u32 = 255;
const MOST_PRESERVED_CONTROL: u32 = 11;

impl Parser<'_> {
    pub(super) fn function(&mut self, entry: bool, linkage: Linkage) -> Parsed<()> {
        let mut attrs = FuncAttrs::default();
        if !entry && self.eat_dot("attribute") {
            self.expect(Tok::LParen)?;
            attrs.unified = Some(self.unified()?);
            self.expect(Tok::RParen)?;
        }
        let returns = if !entry && self.peek() == Tok::LParen { self.params(false)? } else { Vec::new() };
        let (name, span) = self.new_name()?;
        self.new_symbol(name, span)?;
        let params = self.params(entry)?;
        let directives = self.peek() == Tok::Dot;
        let before = self.tokens[self.at - 1].1;
        // ptxas takes declarations of functions that end where the next one begins, too; a `.pragma` behind one is the module's.
        let mut ends = false;
        while self.peek() == Tok::Dot && !ends {
            ends = !entry && self.func.is_none() && OF_MODULES.contains(&self.text());
            if !ends {
                self.attribute(&mut attrs, Some(entry))?;
            }
        }
        ends |= !entry && self.func.is_none() && self.peek() == Tok::Eof;
        let illegal = params.iter().chain(&returns).find(|p| !entry && self.module.vars[**p].name == "_");
        if let Some(p) = illegal {
            self.error(self.module.vars[*p].span, "Illegal parameter name '_'");
        }
        if attrs.noreturn && !returns.is_empty() {
            self.error(self.span(), format!("Invalid directive '.noreturn' for function '{name}'"));
        }
        // ptxas looks at the headers of functions when it has read on, at those of kernels before their directives.
        let at = if entry { before } else { self.span() };
        // Only what is defined has directives of kernels.
        if entry && directives && self.peek() == Tok::Semi {
            return Err(self.unexpected());
        }
        let name = name.to_string();
        let mut func = Func { name, entry, linkage, params, returns, attrs, body: None, span };
        if ends || self.eat(Tok::Semi) {
            self.add_func(func, at)?;
            return Ok(());
        }
        if self.func.is_some() {
            return Err(self.error(span, "A function cannot be defined inside another"));
        }
        // Known before its body, which may refer to itself.
        let known = self.globals.contains_key(&func.name);
        if !known {
            self.add_func(func.clone(), at)?;
        }
        func.body = Some(self.body(&func)?);
        if linkage == Linkage::Extern {
            let message = format!(
                "Function definition conflicts with '.extern' declaration for function '{}'",
                func.name
            );
            self.error(func.close(), message);
        }
        self.add_func(func, at)?;
        Ok(())
    }

    fn three(&mut self) -> Parsed<[u32; 3]> {
        let mut out = [1; 3];
        for (i, slot) in out.iter_mut().enumerate() {
            if i > 0 && !self.eat(Tok::Comma) {
                break;
            }
            *slot = self.small()?;
        }
        Ok(out)
    }

    /// Two directives say how large clusters are, and a kernel has one of them at most, be it 0; `at`: the token where the last ends.
    fn one_of_clusters(&mut self, attrs: &FuncAttrs, at: usize) {
        if attrs.reqnctapercluster.is_some() && attrs.maxclusterrank.is_some() {
            let both = ".reqnctapercluster and .maxclusterrank";
            let message = format!("Conflicting directives: {both} cannot both be specified");
            self.error(self.tokens[at].1, message);
        }
    }

    /// A directive of a function's header; `entry` says of what, if not of a prototype for calls.
    pub(super) fn attribute(&mut self, attrs: &mut FuncAttrs, entry: Option<bool>) -> Parsed<()> {
        let span = self.span();
        let word = self.text();
        let directive = DIRECTIVES.iter().find(|d| d.0 == &word[1..]);
        // A prototype has those of functions, and no pragmas.
        let of_kernel = entry == Some(true);
        let elsewhere = if entry.is_none() {
            directive.is_none_or(|d| d.1)
        } else {
            directive.is_some_and(|d| d.1 != of_kernel)
        };
        if elsewhere {
            return Err(self.unexpected());
        }
        self.bump();
        if let Some((name, _, version @ (major, minor), sm)) = directive {
            let have = match crate::check::target_sm(&self.module) {
                0 => u16::MAX,
                sm => sm,
            };
            let directive = if matches!(*name, "reqntid" | "minnctapersm") { " directive" } else { "" };
            let feature = format!("Feature '.{name}{directive}'");
            if *version > self.module.version {
                self.error(span, format!("{feature} requires PTX ISA .version {major}.{minor} or later"));
            }
            if *sm > have {
                self.error(span, format!("{feature} requires .target sm_{sm} or higher"));
            }
        }
        match &word[1..] {
            name @ ("maxntid" | "reqntid") => {
                let three = self.three()?;
                if three.contains(&0) {
                    let span = self.span();
                    self.error(span, format!("Positive non-zero value expected for {name}"));
                }
                if name == "maxntid" { attrs.maxntid = Some(three) } else { attrs.reqntid = Some(three) }
            }
            "reqnctapercluster" => {
                let first = self.at;
                attrs.reqnctapercluster = Some(self.three()?);
                // Behind fewer numbers than three ptxas looks for a comma.
                let whole = self.at == first + 5;
                self.one_of_clusters(attrs, if whole { self.at - 1 } else { self.at });
            }
            name @ ("minnctapersm" | "maxnctapersm" | "maxnreg") => {
                let span = self.span();
                let n = self.small()?;
                if n == 0 {
                    self.error(span, format!("Positive non-zero value expected for {name}"));
                }
                match name {
                    "minnctapersm" => attrs.minnctapersm = Some(n),
                    "maxnreg" => attrs.maxnreg = Some(n),
                    _ => {
                        if self.module.version >= (2, 1) {
                            let message = "Deprecated feature: '.maxnctapersm directive' not supported as of PTX \
                                version 2.1";
                            self.error(span, message);
                        }
                        attrs.maxnctapersm = Some(n);
                    }
                }
            }
            "maxclusterrank" => {
                attrs.maxclusterrank = Some(self.small()?);
                self.one_of_clusters(attrs, self.at - 1);
            }
            name @ ("abi_preserve" | "abi_preserve_control") => {
                let n = self.small()?;
                let (of, most) = match name {
                    "abi_preserve" => (&mut attrs.abi_preserve, MOST_PRESERVED),
                    _ => (&mut attrs.abi_preserve_control, MOST_PRESERVED_CONTROL),
                };
                if of.replace(n).is_some() {
                    self.error(span, format!("Attribute '.{name}' specified multiple times in function"));
                }
                if n > most {
                    let target = self.module.targets.last().cloned().unwrap_or_default();
                    self.error(span, format!(".{name} {n} is invalid for {target}"));
                }
            }
            // The first of them, if at all.
            "noreturn"
                if attrs.noreturn || attrs.abi_preserve.is_some() || attrs.abi_preserve_control.is_some() =>
            {
                return Err(self.syntax_error(span, "Parsing error near '.noreturn': syntax error"));
            }
            "noreturn" => attrs.noreturn = true,
            "explicitcluster" => attrs.explicit_cluster = true,
            "blocksareclusters" => attrs.blocks_are_clusters = true,
            "pragma" => {
                let first = attrs.pragmas.len();
                self.strings(&mut attrs.pragmas)?;
                self.expect(Tok::Semi)?;
                for text in &attrs.pragmas[first..] {
                    self.pragma(text, span, Place::Header);
                }
            }
            other => {
                return Err(self.error(span, format!("Parsing error near '.{other}': syntax error")));
            }
        }
        Ok(())
    }
}
