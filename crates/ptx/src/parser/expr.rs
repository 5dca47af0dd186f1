//! Constant expressions.

use super::{Failed, Parsed, Parser};
use crate::isa::{Type, TypeClass};
use crate::lexer::Tok;
use crate::span::Span;

/// Binary operators by falling precedence.
const LEVELS: &[&[Tok]] = &[
    &[Tok::Star, Tok::Slash, Tok::Percent],
    &[Tok::Plus, Tok::Minus],
    &[Tok::Shl, Tok::Shr],
    &[Tok::Lt, Tok::Le, Tok::Gt, Tok::Ge],
    &[Tok::EqEq, Tok::NotEq],
    &[Tok::Amp],
    &[Tok::Caret],
    &[Tok::Pipe],
    &[Tok::AndAnd],
    &[Tok::OrOr],
];

/// The value of a constant expression.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Const {
    /// An integer's 64 bits, and whether they are an unsigned number.
    Int(u64, bool),
    /// A floating-point number: binary64 bits.
    F64(u64),
    /// `0f…`, which takes part in no expression: binary32 bits.
    F32(u32),
}

impl Parser<'_> {
    /// A constant expression. Integers are signed unless they have a `U` or are too large for that; `~` makes an unsigned one,
    /// and so does everything of two operands one of which is unsigned.
    pub(super) fn constant(&mut self) -> Parsed<Const> {
        // Most are but a literal.
        let ends = matches!(self.peek2(), Tok::Comma | Tok::Semi | Tok::RBracket | Tok::RBrace | Tok::RParen);
        match self.peek() {
            Tok::Int if ends => self.unary(),
            Tok::HexF32 => {
                let text = self.text();
                self.bump();
                Ok(Const::F32(u32::from_str_radix(&text[2..], 16).unwrap_or(0)))
            }
            _ => self.ternary(),
        }
    }

    /// An integer constant expression: its 64 bits.
    pub(super) fn int_const(&mut self) -> Parsed<u64> {
        let start = self.span();
        let value = self.constant()?;
        Ok(self.integer(value, start.to(self.previous_span()))?.0)
    }

    fn integer(&mut self, value: Const, span: Span) -> Parsed<(u64, bool)> {
        match value {
            Const::Int(n, unsigned) => Ok((n, unsigned)),
            _ => Err(self.error(span, "Integer constant expression expected")),
        }
    }

    /// An integer literal, or `WARP_SZ`: what directives take.
    pub(super) fn literal(&mut self) -> Parsed<(u64, Span)> {
        let span = self.span();
        match self.peek() {
            Tok::Int => {}
            Tok::Name if self.text() == "WARP_SZ" => {}
            _ => return Err(self.unexpected()),
        }
        match self.unary()? {
            Const::Int(n, _) => Ok((n, span)),
            _ => Err(self.unexpected()),
        }
    }

    /// Such a literal that fits 32 bits; what is cut off is an error.
    pub(super) fn small(&mut self) -> Parsed<u32> {
        let (n, span) = self.literal()?;
        if u32::try_from(n).is_err() {
            self.error(span, "Constant overflow");
        }
        Ok(n as u32)
    }

    /// `a ? b : c`, or what binds tighter.
    fn ternary(&mut self) -> Parsed<Const> {
        let start = self.span();
        let condition = self.binary(LEVELS.len())?;
        if self.peek() != Tok::Question {
            return Ok(condition);
        }
        let (condition, _) = self.integer(condition, start)?;
        self.bump();
        let yes = self.choice()?;
        self.expect(Tok::Colon)?;
        let no = self.choice()?;
        Ok(if condition != 0 { yes } else { no })
    }

    fn choice(&mut self) -> Parsed<Const> {
        let start = self.span();
        let value = self.nested(Self::ternary)?;
        self.integer(value, start).map(|(n, unsigned)| Const::Int(n, unsigned))
    }

    /// Why `text` is no integer.
    pub(super) fn bad_int(&mut self, text: &str, span: Span) -> Failed {
        let octal = text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        match text.bytes().position(|b| matches!(b, b'8' | b'9')).filter(|_| octal) {
            // `09` is a zero and something behind it.
            Some(at) => {
                self.syntax_error(span, format!("Parsing error near '{}': syntax error", &text[at..]))
            }
            None => self.error(span, "Constant overflow"),
        }
    }

    fn binary(&mut self, level: usize) -> Parsed<Const> {
        let Some(lower) = level.checked_sub(1) else { return self.unary() };
        let start = self.span();
        let mut a = self.binary(lower)?;
        while LEVELS[lower].contains(&self.peek()) {
            let (op, span) = self.bump();
            let right = self.span();
            let b = self.binary(lower)?;
            a = match (a, b) {
                (Const::F64(a), Const::F64(b)) => {
                    self.floats(op, f64::from_bits(a), f64::from_bits(b), span)?
                }
                (Const::Int(a, x), Const::Int(b, y)) => self.integers(op, (a, x), (b, y), span)?,
                _ if matches!(op, Tok::Plus | Tok::Minus | Tok::Star | Tok::Slash) => {
                    return Err(self.error(start.to(right), "Constant expression type mismatch"));
                }
                _ => return Err(self.error(span, "Integer constant expression expected")),
            };
        }
        Ok(a)
    }

    fn integers(&mut self, op: Tok, (a, x): (u64, bool), (b, y): (u64, bool), span: Span) -> Parsed<Const> {
        let unsigned = x || y;
        let (i, j) = (a as i64, b as i64);
        let number = |n: u64| Const::Int(n, unsigned);
        let truth = |t: bool| Const::Int(u64::from(t), false);
        Ok(match op {
            Tok::Star => number(a.wrapping_mul(b)),
            Tok::Slash | Tok::Percent if b == 0 => {
                return Err(self.fatal(span, "Constant expression has division by zero"));
            }
            Tok::Slash if unsigned => number(a / b),
            Tok::Slash => number(i.wrapping_div(j) as u64),
            // ptxas takes remainders of unsigned numbers only.
            Tok::Percent => number(a % b),
            Tok::Plus => number(a.wrapping_add(b)),
            Tok::Minus => number(a.wrapping_sub(b)),
            // Of a shift count, six bits are taken.
            Tok::Shl => Const::Int(a.wrapping_shl(b as u32), x),
            Tok::Shr if x => Const::Int(a.wrapping_shr(b as u32), x),
            Tok::Shr => Const::Int(i.wrapping_shr(b as u32) as u64, x),
            Tok::Lt => truth(if unsigned { a < b } else { i < j }),
            Tok::Le => truth(if unsigned { a <= b } else { i <= j }),
            Tok::Gt => truth(if unsigned { a > b } else { i > j }),
            Tok::Ge => truth(if unsigned { a >= b } else { i >= j }),
            Tok::EqEq => truth(a == b),
            Tok::NotEq => truth(a != b),
            Tok::AndAnd => truth(a != 0 && b != 0),
            Tok::OrOr => truth(a != 0 || b != 0),
            Tok::Amp => number(a & b),
            Tok::Caret => number(a ^ b),
            Tok::Pipe => number(a | b),
            _ => return Err(self.unexpected()),
        })
    }

    fn floats(&mut self, op: Tok, a: f64, b: f64, span: Span) -> Parsed<Const> {
        let number = |x: f64| Const::F64(x.to_bits());
        let truth = |t: bool| Const::Int(u64::from(t), false);
        Ok(match op {
            Tok::Star => number(a * b),
            Tok::Slash if b == 0.0 => {
                return Err(self.fatal(span, "Constant expression has division by zero"));
            }
            Tok::Slash => number(a / b),
            Tok::Plus => number(a + b),
            Tok::Minus => number(a - b),
            Tok::Lt => truth(a < b),
            Tok::Le => truth(a <= b),
            Tok::Gt => truth(a > b),
            Tok::Ge => truth(a >= b),
            Tok::EqEq => truth(a == b),
            Tok::NotEq => truth(a != b),
            _ => return Err(self.error(span, "Integer constant expression expected")),
        })
    }

    fn unary(&mut self) -> Parsed<Const> {
        let span = self.span();
        match self.peek() {
            Tok::Minus => {
                self.bump();
                match self.nested(Self::unary)? {
                    Const::Int(n, unsigned) => Ok(Const::Int(n.wrapping_neg(), unsigned)),
                    Const::F64(bits) => Ok(Const::F64(bits ^ 1 << 63)),
                    Const::F32(_) => Err(self.error(span, "Constant expression type mismatch")),
                }
            }
            Tok::Plus => {
                self.bump();
                self.nested(Self::unary)
            }
            Tok::Tilde => {
                self.bump();
                let value = self.nested(Self::unary)?;
                Ok(Const::Int(!self.integer(value, span)?.0, true))
            }
            Tok::Bang => {
                self.bump();
                let value = self.nested(Self::unary)?;
                Ok(Const::Int(u64::from(self.integer(value, span)?.0 == 0), false))
            }
            Tok::LParen => {
                self.bump();
                if self.peek() == Tok::Dot {
                    let cast = self.text();
                    let span = self.bump().1;
                    self.expect(Tok::RParen)?;
                    let value = self.nested(Self::unary)?;
                    return match (cast, value) {
                        (".s64" | ".u64", Const::Int(n, _)) => Ok(Const::Int(n, cast == ".u64")),
                        _ => Err(self.error(span, "Unsupported cast operation")),
                    };
                }
                let v = self.nested(Self::constant)?;
                self.expect(Tok::RParen)?;
                Ok(v)
            }
            Tok::Int => {
                let text = self.text();
                self.bump();
                match parse_int(text) {
                    Some((n, unsigned)) => Ok(Const::Int(n, unsigned)),
                    None => Err(self.bad_int(text, span)),
                }
            }
            Tok::Float => {
                let text = self.text();
                self.bump();
                match parse_float(text) {
                    Some(x) => Ok(Const::F64(x.to_bits())),
                    None => Err(self.error(span, "Constant overflow")),
                }
            }
            Tok::HexF64 => {
                let text = self.text();
                self.bump();
                Ok(Const::F64(u64::from_str_radix(&text[2..], 16).unwrap_or(0)))
            }
            Tok::Name if self.text() == "WARP_SZ" => {
                self.bump();
                Ok(Const::Int(32, false))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// `+ n`, the constant that an address has added; 0 without it.
    pub(super) fn offset(&mut self) -> Parsed<i64> {
        if self.eat(Tok::Plus) { Ok(self.int_const()? as i64) } else { Ok(0) }
    }

    /// A constant of type `ty` as its bits, for an initializer.
    pub(super) fn numeric_const(&mut self, ty: Type) -> Parsed<u64> {
        let span = self.span();
        let value = self.constant()?;
        let bits = ty.class() == TypeClass::Bits && ty.bytes() <= 8;
        Ok(match value {
            Const::Int(n, _) if !matches!(ty.class(), TypeClass::Float | TypeClass::Predicate) => n,
            // A number of 64 bits that goes into 32 is rounded; one of 32 bits is never widened, but its bits are taken.
            Const::F64(x) if matches!(ty, Type::f32 | Type::b32) => {
                u64::from((f64::from_bits(x) as f32).to_bits())
            }
            Const::F64(x) if ty == Type::f64 || bits => x,
            Const::F32(x) if matches!(ty, Type::f32 | Type::f64) || bits => x.into(),
            _ if ty == Type::f16 => return Err(self.error(span, "No initial value is allowed for .f16 type")),
            _ => return Err(self.error(span, "Initial value type mismatch")),
        })
    }
}

/// The value of an integer literal, and whether it is unsigned. As ptxas does, only what was there before the last digit is
/// looked at for overflow: a digit behind a set upper bit is an error, what a digit pushes out is lost.
pub(super) fn parse_int(text: &str) -> Option<(u64, bool)> {
    let digits = text.trim_end_matches('U');
    let (number, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    let mut value = 0u64;
    for c in number.chars() {
        let digit = c.to_digit(radix)?;
        if value >> 63 != 0 {
            return None;
        }
        value = value.wrapping_mul(radix.into()).wrapping_add(digit.into());
    }
    Some((value, digits.len() != text.len() || value >> 63 != 0))
}

/// The value of a decimal floating-point literal that a normal number can hold.
fn parse_float(text: &str) -> Option<f64> {
    let x: f64 = text.parse().ok()?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let zero = mantissa.bytes().all(|b| matches!(b, b'0' | b'.'));
    (x.is_normal() || zero).then_some(x)
}
