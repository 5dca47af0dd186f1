//! Parses the text form that [`crate::print`] writes. Value and block numbers are kept, so that a function
//! prints the same again. `//` starts a comment.

mod wrong;

pub use wrong::{Defined, Named, Numbered, Wrong};

use crate::abi::Convention;
use crate::builder::ALWAYS;
use crate::function::{
    Block, BlockCall, BlockData, Callee, Function, Guard, InstData, Keeps, Loc, Macro, Name, Op, Operand,
    Operands, Part, SymbolUse, Terminator, Value, ValueData,
};
use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use sass::{AddrWidth, ConstBank, Mod, Mods, Opcode, Reg, RegFile, RegOp, SlotKind, SpecialReg, Target};
use smallvec::SmallVec;
use std::fmt;
use std::sync::LazyLock;
use thin_vec::ThinVec;

/// What is wrong with a text, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Line number, from 1.
    pub line: u32,
    /// What is.
    pub wrong: Wrong,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.wrong)
    }
}

impl std::error::Error for ParseError {}

type Res<T> = Result<T, Wrong>;

static OPCODES: LazyLock<FxHashMap<&str, Opcode>> =
    LazyLock::new(|| Opcode::EVERY.iter().map(|o| (o.name(), *o)).collect());
static MODS: LazyLock<FxHashMap<&str, Mod>> =
    LazyLock::new(|| Mod::EVERY.iter().map(|m| (m.name(), *m)).collect());
static SPECIALS: LazyLock<FxHashMap<&str, SpecialReg>> =
    LazyLock::new(|| SpecialReg::EVERY.iter().map(|s| (s.name(), *s)).collect());

/// Parses one function.
///
/// # Errors
/// The first line that cannot be read.
pub fn parse(text: &str) -> Result<Function, ParseError> {
    let mut functions = parse_all(text)?;
    match (functions.pop(), functions.pop()) {
        (Some(f), None) => Ok(f),
        _ => Err(ParseError { line: 1, wrong: Wrong::NotOne }),
    }
}

/// Parses any number of functions.
///
/// # Errors
/// The first line that cannot be read.
pub fn parse_all(text: &str) -> Result<Vec<Function>, ParseError> {
    let mut out = Vec::new();
    let mut open: Option<State> = None;
    for (n, raw) in text.lines().enumerate() {
        let at = |wrong: Wrong| ParseError { line: n as u32 + 1, wrong };
        let line = raw.split("//").next().unwrap_or("").trim();
        match (&mut open, line) {
            (_, "") => {}
            (None, _) => open = Some(State::header(line).map_err(at)?),
            (Some(_), "}") => {
                let state = open.take().expect("matched");
                out.push(state.finish().map_err(at)?);
            }
            (Some(state), _) => state.line(line).map_err(at)?,
        }
    }
    if open.is_some() {
        return Err(ParseError { line: text.lines().count() as u32, wrong: Wrong::Open });
    }
    Ok(out)
}

/// A function under construction.
struct State {
    func: Function,
    block: Option<Block>,
    /// Values and blocks seen so far: defined, or only referred to.
    defined: Vec<bool>,
    placed: Vec<bool>,
}

impl State {
    fn header(line: &str) -> Res<State> {
        let mut words = line.strip_suffix('{').ok_or(Wrong::Expected("`function … {`"))?.split_whitespace();
        if words.next() != Some("function") {
            return Err(Wrong::Expected("`function NAME TARGET entry|func`"));
        }
        let name = words.next().ok_or(Wrong::NoName)?;
        let target = words.next().and_then(Target::parse).ok_or(Wrong::Target)?;
        let mut func = Function::new(name, target);
        func.entry = match words.next() {
            Some("entry") => true,
            Some("func") => false,
            _ => return Err(Wrong::Expected("`entry` or `func`")),
        };
        for word in words {
            let (key, n) = word.split_once('=').ok_or(Wrong::Expected("KEY=NUMBER"))?;
            if key == "callees" {
                for name in n.split(',') {
                    func.callees.insert(match (name, name.strip_prefix('*')) {
                        ("!", _) => Callee::External,
                        (_, Some("")) => Callee::Indirect(Convention::default()),
                        (_, Some(own)) => Callee::Indirect(own.parse()?),
                        (name, None) => Callee::Internal(name.into()),
                    });
                }
                continue;
            }
            if key == "convention" {
                func.convention = n.parse()?;
                continue;
            }
            if key == "conventions" {
                for word in n.split(',') {
                    let (name, own) = word.split_once(':').ok_or(Wrong::Expected("NAME:CONVENTION"))?;
                    func.conventions.insert(name.into(), own.parse()?);
                }
                continue;
            }
            if key == "tuning" {
                func.tuning = n.parse()?;
                continue;
            }
            if key == "quiet" {
                func.quiet.extend(n.split(',').map(String::from));
                continue;
            }
            if key == "literals" {
                for word in n.split(',') {
                    let word = u64::from_str_radix(word, 16)
                        .map_err(|why| Wrong::Literal { word: word.into(), why })?;
                    func.literals.extend(word.to_le_bytes());
                }
                continue;
            }
            if key == "changes" {
                for word in n.split(',') {
                    let (n, registers) = word.split_once(':').ok_or(Wrong::Expected("NUMBER:REGISTERS"))?;
                    let registers: Option<Vec<Reg>> = registers.split('+').map(physical).collect();
                    func.changes.insert(number(n)?, registers.ok_or(Wrong::Expected("registers"))?);
                }
                continue;
            }
            if key == "symbols" {
                for word in n.split(',') {
                    let (part, name) = word.split_once(':').ok_or(Wrong::Expected("PART:NAME"))?;
                    let part = Part::ALL.into_iter().find(|p| p.name() == part);
                    let part = part.ok_or(Wrong::Part)?;
                    func.symbols.push(SymbolUse { name: name.into(), part });
                }
                continue;
            }
            let n = number(n)?;
            match key {
                "private" => {
                    func.keeps = match n {
                        1 => Keeps::FramePointer,
                        2 => Keeps::Unchanged,
                        _ => return Err(Wrong::Expected("private=1 or private=2")),
                    };
                }
                "relocatable" => func.relocatable = n != 0,
                "apart" => func.apart = n != 0,
                "local" => func.local_size = n,
                "align" if n.is_power_of_two() => func.local_align = n,
                "shared" => func.shared_size = n,
                "barriers" => func.barriers = narrow(n)?,
                "regs" => func.max_regs = narrow(n)?,
                "aim" => func.aim_regs = narrow(n)?,
                "x" => func.threads[0] = n,
                "y" => func.threads[1] = n,
                "z" => func.threads[2] = n,
                _ => return Err(Wrong::Unknown(Named::Property, key.into())),
            }
        }
        func.blocks.clear();
        func.layout.clear();
        Ok(State { func, block: None, defined: Vec::new(), placed: Vec::new() })
    }

    fn finish(self) -> Res<Function> {
        let f = self.func;
        // A number that is skipped is only a gap; one that is used must be defined.
        let mut undefined = None;
        let mut check = |n: Name| {
            if let Some(v) = n.value().filter(|v| !self.defined[v.index()]) {
                undefined.get_or_insert(v);
            }
        };
        f.insts.values().for_each(|d| d.for_each_use(&mut check));
        for data in f.blocks.values() {
            data.term.used_name().into_iter().for_each(&mut check);
            for t in data.term.targets() {
                t.args.iter().for_each(|a| check(Name::Val(*a)));
                if !self.placed[t.block.index()] {
                    return Err(Wrong::Undefined(Defined::Block(t.block)));
                }
            }
        }
        match undefined {
            Some(v) => Err(Wrong::Undefined(Defined::Value(v))),
            None if f.layout.is_empty() => Err(Wrong::NoBlocks),
            None => Ok(f),
        }
    }

    fn value(&mut self, number: u32) -> Res<Value> {
        if number > 1 << 24 {
            return Err(Wrong::Most(Numbered::Value));
        }
        while self.func.values.len() <= number as usize {
            self.func.add_value(RegFile::R, 1);
            self.defined.push(false);
        }
        Ok(Value::from_u32(number))
    }

    fn define(&mut self, number: u32, data: ValueData) -> Res<Value> {
        let v = self.value(number)?;
        if std::mem::replace(&mut self.defined[v.index()], true) {
            return Err(Wrong::Again(Defined::Value(v)));
        }
        self.func.values[v] = data;
        Ok(v)
    }

    fn block(&mut self, number: u32) -> Res<Block> {
        if number > 1 << 24 {
            return Err(Wrong::Most(Numbered::Block));
        }
        while self.func.blocks.len() <= number as usize {
            self.func.blocks.push(BlockData {
                params: SmallVec::new(),
                insts: Vec::new(),
                term: Terminator::Unreachable,
                term_loc: Loc::default(),
                rolled: false,
            });
            self.placed.push(false);
        }
        Ok(Block::from_u32(number))
    }

    fn line(&mut self, line: &str) -> Res<()> {
        let (line, loc) = match line.split_once(';') {
            Some((l, n)) => (l.trim_end(), Loc(number(n.trim())?)),
            None => (line, Loc::default()),
        };
        let mut c = Cursor { rest: line };
        if let (true, Some(head)) = (line.starts_with("block"), line.strip_suffix(':')) {
            return self.label(&mut Cursor { rest: head });
        }
        let block = self.block.ok_or(Wrong::Outside)?;
        if let Some(term) = self.terminator(&mut c)? {
            c.end()?;
            self.func.blocks[block].term = term;
            self.func.blocks[block].term_loc = loc;
            self.block = None;
            return Ok(());
        }
        let mut data = self.inst(&mut c)?;
        c.end()?;
        data.loc = loc;
        let inst = self.func.insts.push(data);
        self.func.blocks[block].insts.push(inst);
        Ok(())
    }

    fn label(&mut self, c: &mut Cursor<'_>) -> Res<()> {
        let b = self.block_name(c)?;
        if std::mem::replace(&mut self.placed[b.index()], true) {
            return Err(Wrong::Again(Defined::Block(b)));
        }
        if c.eat("(") {
            loop {
                let v = self.typed_value(c)?;
                self.func.blocks[b].params.push(v);
                if !c.eat(",") {
                    break;
                }
            }
            c.expect(")")?;
        }
        self.func.blocks[b].rolled = c.eat("rolled");
        c.end()?;
        self.func.layout.push(b);
        self.block = Some(b);
        Ok(())
    }

    fn block_name(&mut self, c: &mut Cursor<'_>) -> Res<Block> {
        let word = c.word();
        let n = word.strip_prefix("block").ok_or(Wrong::Expected("a block"))?;
        self.block(n.parse().map_err(|_| Wrong::NumberOf(Numbered::Block, word.into()))?)
    }

    fn plain_value(&mut self, c: &mut Cursor<'_>) -> Res<Value> {
        let word = c.word();
        let n = word.strip_prefix('v').ok_or(Wrong::Expected("a value"))?;
        self.value(n.parse().map_err(|_| Wrong::NumberOf(Numbered::Value, word.into()))?)
    }

    fn typed_value(&mut self, c: &mut Cursor<'_>) -> Res<Value> {
        let v = self.plain_value(c)?;
        c.expect(":")?;
        self.define(v.as_u32(), shape(c.word())?)
    }

    fn block_call(&mut self, c: &mut Cursor<'_>) -> Res<BlockCall> {
        let block = self.block_name(c)?;
        let mut args = SmallVec::new();
        if c.eat("(") {
            loop {
                args.push(self.plain_value(c)?);
                if !c.eat(",") {
                    break;
                }
            }
            c.expect(")")?;
        }
        Ok(BlockCall { block, args })
    }

    fn terminator(&mut self, c: &mut Cursor<'_>) -> Res<Option<Terminator>> {
        Ok(Some(if c.eat_word("jump") {
            Terminator::Jump(self.block_call(c)?)
        } else if c.eat_word("branch") {
            let not = c.eat("!");
            let cond = self.name(c)?;
            c.expect(",")?;
            let taken = self.block_call(c)?;
            c.expect(",")?;
            Terminator::Branch { cond, not, taken, fall: self.block_call(c)? }
        } else if c.eat_word("switch") {
            let index = self.name(c)?;
            let mut table = Vec::new();
            while c.eat(",") {
                table.push(self.block_call(c)?);
            }
            Terminator::Switch { index, table }
        } else if c.eat_word("exit") {
            Terminator::Exit
        } else if c.eat_word("return") {
            Terminator::Return(self.name(c)?)
        } else if c.eat_word("unreachable") {
            Terminator::Unreachable
        } else {
            return Ok(None);
        }))
    }

    fn inst(&mut self, c: &mut Cursor<'_>) -> Res<InstData> {
        let mut guard = ALWAYS;
        if c.eat("@") {
            let not = c.eat("!");
            guard = Guard { pred: self.name(c)?, not };
        }
        // Written values; `None` for a fitting slot that holds a physical register.
        let mut defs: Vec<Option<Value>> = Vec::new();
        if c.rest.contains(" = ") {
            loop {
                if c.eat_word("_") {
                    defs.push(None);
                } else {
                    defs.push(Some(self.typed_value(c)?));
                }
                if !c.eat(",") {
                    break;
                }
            }
            c.expect("=")?;
        }
        let (op, mods) = operation(c.word_with_dots(), defs.len())?;
        let mut given = Vec::new();
        if !c.rest.is_empty() && !c.rest.starts_with("keep ") {
            loop {
                given.push(self.operand(c)?);
                if !c.eat(",") {
                    break;
                }
            }
        }
        let mut kept = ThinVec::new();
        if c.eat_word("keep") {
            while !c.rest.is_empty() {
                kept.push(self.name(c)?);
            }
        }
        let operands = self.place(op, defs, given)?;
        Ok(InstData { guard, op, mods, operands, kept, loc: Loc::default() })
    }

    /// Puts written values and other operands into their slots.
    fn place(&self, op: Op, defs: Vec<Option<Value>>, given: Vec<Operand>) -> Res<Operands> {
        let mut defs = defs.into_iter().peekable();
        let mut given = given.into_iter();
        let mut out = Operands::new();
        let whole = |v: Value| Operand::Reg(RegOp::plain(Name::Val(v)));
        match op {
            Op::Sass(opcode) => {
                for slot in opcode.slots() {
                    if let (true, SlotKind::Reg(file)) = (slot.role != sass::Role::Use, slot.kind) {
                        match defs.peek() {
                            Some(Some(v)) if self.func.values[*v].file == file => {
                                out.push(whole(*v));
                                defs.next();
                                continue;
                            }
                            Some(None) => {
                                defs.next();
                            }
                            _ => {}
                        }
                    }
                    out.push(given.next().ok_or(Wrong::Missing(opcode))?);
                }
            }
            Op::Macro(_) => {
                out.extend(defs.by_ref().flatten().map(whole));
                out.extend(given.by_ref());
            }
        }
        if defs.next().is_some() || given.next().is_some() {
            return Err(Wrong::TooMany);
        }
        Ok(out)
    }

    /// A value, a part of one, or a physical register.
    fn name(&mut self, c: &mut Cursor<'_>) -> Res<Name> {
        let word = c.word();
        if let Some(n) = word.strip_prefix('v').and_then(|n| n.parse::<u32>().ok()) {
            let v = self.value(n)?;
            let after = c.rest.strip_prefix('.').unwrap_or("");
            let digits = after.len() - after.trim_start_matches(|x: char| x.is_ascii_digit()).len();
            if digits > 0 && !after.starts_with("64") {
                let part = after[..digits].parse().map_err(|_| Wrong::PartNumber)?;
                c.rest = &after[digits..];
                return Ok(Name::Part(v, part));
            }
            return Ok(Name::Val(v));
        }
        physical(word).map(Name::Phys).ok_or_else(|| Wrong::Register(word.into()))
    }

    fn operand(&mut self, c: &mut Cursor<'_>) -> Res<Operand> {
        c.skip();
        if c.rest.starts_with(|x: char| x.is_ascii_digit()) {
            return Ok(Operand::Imm(number(c.word())?));
        }
        if c.rest.starts_with('[') || c.rest.starts_with("desc[") {
            return self.address(c);
        }
        if let Some(n) = c.rest.strip_prefix("sb0x") {
            c.rest = n;
            let bits = u8::from_str_radix(c.word(), 16).map_err(|_| Wrong::Scoreboards)?;
            return Ok(Operand::ScoreboardSet(bits));
        }
        if c.rest.starts_with("block") {
            return Ok(Operand::Label(self.block_name(c)?));
        }
        let special = c.rest.split([' ', ',']).next().unwrap_or("");
        if let Some(s) = SPECIALS.get(special) {
            c.rest = &c.rest[special.len()..];
            return Ok(Operand::Special(*s));
        }
        if let Some(n) = special.strip_prefix("SB").and_then(|n| n.parse().ok()) {
            c.rest = &c.rest[special.len()..];
            return Ok(Operand::Scoreboard(n));
        }
        let neg = c.eat("-");
        let not = c.eat("!") || c.eat("~");
        let abs = c.eat("|");
        let out = if c.rest.starts_with("c[") || c.rest.starts_with("cx[") {
            let bank = if c.eat("cx[") {
                ConstBank::Bindless(self.name(c)?)
            } else {
                c.expect("c[")?;
                ConstBank::Index(narrow(number(c.word())?)?)
            };
            c.expect("]")?;
            c.expect("[")?;
            let index = if c.rest.starts_with(|x: char| x.is_ascii_digit() || x == '-') {
                None
            } else {
                let r = self.name(c)?;
                c.expect("+")?;
                Some(r)
            };
            let offset = c.signed()?;
            c.expect("]")?;
            Operand::Const { bank, index, offset, neg, abs, not }
        } else {
            let reg = self.name(c)?;
            Operand::Reg(RegOp { reg, neg, abs, not, reuse: false })
        };
        if abs {
            c.expect("|")?;
        }
        let reuse = c.eat(".reuse");
        Ok(match out {
            Operand::Reg(r) => Operand::Reg(RegOp { reuse, ..r }),
            other => other,
        })
    }

    fn address(&mut self, c: &mut Cursor<'_>) -> Res<Operand> {
        let mut desc = None;
        if c.eat("desc[") {
            desc = Some(self.name(c)?);
            c.expect("]")?;
        }
        c.expect("[")?;
        let (mut base, mut width, mut uniform, mut offset) = (None, AddrWidth::R32, None, 0);
        loop {
            c.skip();
            if c.rest.starts_with(|x: char| x.is_ascii_digit() || x == '-') {
                offset = c.signed()?;
            } else {
                let r = self.name(c)?;
                let suffix = if c.eat(".") { Some(c.word()) } else { None };
                let file = match r {
                    Name::Phys(p) => p.file,
                    Name::Val(v) | Name::Part(v, _) => self.func.values[v].file,
                };
                if file == RegFile::UR && suffix.is_none() {
                    uniform = Some(r);
                } else {
                    base = Some(r);
                    width = match suffix {
                        None => AddrWidth::R32,
                        Some("64") => AddrWidth::R64,
                        Some("U32") => AddrWidth::U32,
                        Some("X4") => AddrWidth::X4,
                        Some("X8") => AddrWidth::X8,
                        Some("X16") => AddrWidth::X16,
                        Some(s) => return Err(Wrong::Unknown(Named::Suffix, format!(".{s}"))),
                    };
                }
            }
            if !c.eat("+") {
                break;
            }
        }
        c.expect("]")?;
        Ok(Operand::Addr { desc, base, width, uniform, offset })
    }
}

fn narrow(n: u32) -> Res<u8> {
    u8::try_from(n).map_err(|_| Wrong::Large(n))
}

fn number(text: &str) -> Res<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|_| Wrong::Number(text.into()))
}

fn shape(text: &str) -> Res<ValueData> {
    let (file, width) = text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()));
    let file = match file {
        "R" => RegFile::R,
        "P" => RegFile::P,
        "UR" => RegFile::UR,
        "UP" => RegFile::UP,
        "B" => RegFile::B,
        _ => return Err(Wrong::Unknown(Named::File, file.into())),
    };
    let width = if width.is_empty() { 1 } else { narrow(number(width)?)? };
    Ok(ValueData { file, width })
}

fn physical(word: &str) -> Option<Reg> {
    match word {
        "RZ" => return Some(Reg::RZ),
        "PT" => return Some(Reg::PT),
        "URZ" => return Some(Reg::URZ),
        "UPT" => return Some(Reg::UPT),
        _ => {}
    }
    let at = word.find(|c: char| c.is_ascii_digit())?;
    let file = shape(&word[..at]).ok()?.file;
    Some(Reg { file, index: word[at..].parse().ok()? })
}

/// The longest name at the front of a dotted list (a name may contain a dot), and what follows it.
fn longest<'t, T: Copy>(text: &'t str, names: &FxHashMap<&str, T>) -> Option<(T, &'t str)> {
    let ends = text.match_indices('.').map(|(i, _)| i).chain([text.len()]);
    let found = ends.filter_map(|e| names.get(&text[..e]).map(|n| (*n, e))).max_by_key(|(_, e)| *e);
    found.map(|(n, e)| (n, text[e..].strip_prefix('.').unwrap_or("")))
}

fn operation(text: &str, defs: usize) -> Res<(Op, Mods)> {
    let head = text.split('.').next().unwrap_or(text);
    let m = match head {
        "copy" => Some(Macro::Copy),
        "collect" => Some(Macro::Collect),
        "undef" => Some(Macro::Undef),
        "settle" => Some(Macro::Settle),
        "parcopy" => Some(Macro::ParCopy(defs as u16)),
        "fromreg" => Some(Macro::FromReg),
        "toreg" => Some(Macro::ToReg),
        "returnaddress" => Some(Macro::ReturnAddress),
        "call" => Some(Macro::Call),
        "frametop" => Some(Macro::FrameTop),
        "symbol" => Some(Macro::Symbol),
        "keepregs" => Some(Macro::Keep),
        "setstack" => Some(Macro::SetStack),
        "holds" => Some(Macro::Holds),
        _ => None,
    };
    if let Some(m) = m {
        return Ok((Op::Macro(m), Mods::none()));
    }
    let (opcode, mut rest) =
        longest(text, &OPCODES).ok_or_else(|| Wrong::Unknown(Named::Operation, head.into()))?;
    let mut mods = Mods::none();
    while !rest.is_empty() {
        let (m, after) =
            longest(rest, &MODS).ok_or_else(|| Wrong::Modifier { of: head.into(), rest: rest.into() })?;
        mods.push(m);
        rest = after;
    }
    Ok((Op::Sass(opcode), mods))
}

/// Reads tokens from the front of a line; blanks before a token are skipped.
struct Cursor<'t> {
    rest: &'t str,
}

impl<'t> Cursor<'t> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }
    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(r) => {
                self.rest = r;
                true
            }
            None => false,
        }
    }
    fn expect(&mut self, token: &str) -> Res<()> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(Wrong::Token { token: token.into(), before: self.rest.into() })
        }
    }
    fn eat_word(&mut self, word: &str) -> bool {
        self.skip();
        let mut ahead = Cursor { rest: self.rest };
        let found = ahead.word() == word;
        if found {
            self.rest = ahead.rest.trim_start();
        }
        found
    }
    fn split(&mut self, part: impl Fn(char) -> bool) -> &'t str {
        self.skip();
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
    fn word(&mut self) -> &'t str {
        self.split(|c| c.is_ascii_alphanumeric() || c == '_')
    }
    fn word_with_dots(&mut self) -> &'t str {
        let word = self.split(|c| !c.is_whitespace());
        self.skip();
        word
    }
    fn signed(&mut self) -> Res<i32> {
        let neg = self.eat("-");
        let n = number(self.word())? as i32;
        Ok(if neg { n.wrapping_neg() } else { n })
    }
    fn end(&mut self) -> Res<()> {
        self.skip();
        if self.rest.is_empty() { Ok(()) } else { Err(Wrong::Behind(self.rest.into())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
function k sm_90 entry local=16 shared=1024 barriers=1 regs=128 callees=f,*,! quiet=f {
block0:
    v0:R = S2R SR_TID.X ; 12
    v1:R2 = collect v0, 0x0
    v2:UR2 = undef
    v3:P = ISETP.GE.AND PT, v0, c[0x0][0x210], PT, PT
    _, v4:P = ISETP.GE.AND PT, -|v0|, c[0x0][-0x210], PT, !PT
    v5:R2 = IMAD.WIDE PT, v0, 0x4, v1, PT
    v6:R = LDG.E PT, desc[v2][v5.64+0x10], PT
    @!v3 v7:R = MOV v1.1, 0xf keep v6
    STG.E desc[v2][v5.64], v7
    STL [R1-0x8], v7 ; 9
    toreg R4, v7
    returnaddress R20, R21
    call 0x0, R4, R20, R21
    v10:R = fromreg R4
    branch !v3, block1(v7), block2(v6) ; 13
block2(v8:R):
    STS [0x8], RZ
    jump block1(v8)
block1(v9:R):
    STS [v9.X4+-0x4], v9
    exit
}
";

    #[test]
    fn round_trips() {
        let text = TEXT.replace("[R1-0x8]", "[R1+-0x8]");
        let f = parse(TEXT.replace("[R1-0x8]", "[R1+-0x8]").as_str()).unwrap();
        assert_eq!(f.to_string(), text);
        assert_eq!(f.layout.len(), 3);
        crate::verify::verify(&f).unwrap();
    }

    #[test]
    fn says_what_is_wrong() {
        let wrong = |from: &str, to: &str| {
            let e = parse(&TEXT.replace("[R1-0x8]", "[R1]").replace(from, to)).unwrap_err();
            e.to_string()
        };
        assert_eq!(wrong("S2R", "FOO"), "line 3: unknown operation `FOO`");
        assert_eq!(wrong("jump block1(v8)", "jump block7(v8)"), "line 24: block7 is used but never defined");
        assert_eq!(wrong(", PT, PT\n", ", PT\n"), "line 6: ISETP: operand missing");
        assert_eq!(wrong("v1:R2", "v0:R2"), "line 4: v0 is defined twice");
        assert_eq!(wrong("}\n", ""), "line 23: missing `}`");
    }
}
