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

/// As many of them bind tighter than comparisons: what the `<…>` of a register range may hold.
const ARITHMETIC: usize = 3;

impl Parser<'_> {
    /// An integer constant expression: its 64 bits.
    pub(super) fn int_const(&mut self) -> Parsed<(u64, Span)> {
        let start = self.span();
        // Most are but a literal.
        let ends = matches!(self.peek2(), Tok::Comma | Tok::Semi | Tok::RBracket | Tok::RBrace | Tok::RParen);
        if ends && self.peek() == Tok::Int {
            return Ok((self.unary()?, start));
        }
        let value = self.ternary()?;
        Ok((value, start.to(self.previous_span())))
    }

    /// An integer constant expression without comparisons, for `%r<100>`.
    pub(super) fn count_const(&mut self) -> Parsed<(u64, Span)> {
        let start = self.span();
        let value = self.binary(ARITHMETIC)?;
        Ok((value, start.to(self.previous_span())))
    }

    /// `a ? b : c`, or what binds tighter.
    fn ternary(&mut self) -> Parsed<u64> {
        let condition = self.binary(LEVELS.len())?;
        if !self.eat(Tok::Question) {
            return Ok(condition);
        }
        let yes = self.nested(Self::ternary)?;
        self.expect(Tok::Colon)?;
        let no = self.nested(Self::ternary)?;
        Ok(if condition != 0 { yes } else { no })
    }

    /// One integer literal that fits 32 bits.
    pub(super) fn small(&mut self) -> Parsed<u32> {
        let span = self.expect(Tok::Int)?;
        let text = self.text_of(span);
        match parse_int(text).and_then(|v| u32::try_from(v).ok()) {
            Some(v) => Ok(v),
            None => Err(self.error(span, format!("Integer constant '{text}' is too large"))),
        }
    }

    /// Why `text` is no integer.
    fn bad_int(&mut self, text: &str, span: Span) -> Failed {
        let octal = text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        match text.bytes().position(|b| matches!(b, b'8' | b'9')).filter(|_| octal) {
            // `09` is a zero and something behind it.
            Some(at) => {
                self.syntax_error(span, format!("Parsing error near '{}': syntax error", &text[at..]))
            }
            None => self.error(span, "Constant overflow"),
        }
    }

    fn binary(&mut self, level: usize) -> Parsed<u64> {
        let Some(lower) = level.checked_sub(1) else { return self.unary() };
        let mut a = self.binary(lower)?;
        while LEVELS[lower].contains(&self.peek()) {
            let (op, span) = self.bump();
            let b = self.binary(lower)?;
            a = match op {
                Tok::Star => a.wrapping_mul(b),
                Tok::Slash | Tok::Percent if b == 0 => return Err(self.error(span, "Division by zero")),
                Tok::Slash => (a as i64).wrapping_div(b as i64) as u64,
                Tok::Percent => (a as i64).wrapping_rem(b as i64) as u64,
                Tok::Plus => a.wrapping_add(b),
                Tok::Minus => a.wrapping_sub(b),
                Tok::Shl => a.checked_shl(b as u32).unwrap_or(0),
                Tok::Shr => ((a as i64) >> b.min(63)) as u64,
                Tok::Lt => u64::from((a as i64) < b as i64),
                Tok::Le => u64::from(a as i64 <= b as i64),
                Tok::Gt => u64::from(a as i64 > b as i64),
                Tok::Ge => u64::from(a as i64 >= b as i64),
                Tok::EqEq => u64::from(a == b),
                Tok::NotEq => u64::from(a != b),
                Tok::AndAnd => u64::from(a != 0 && b != 0),
                Tok::OrOr => u64::from(a != 0 || b != 0),
                Tok::Amp => a & b,
                Tok::Caret => a ^ b,
                _ => a | b,
            };
        }
        Ok(a)
    }

    fn unary(&mut self) -> Parsed<u64> {
        match self.peek() {
            Tok::Minus => {
                self.bump();
                Ok(self.nested(Self::unary)?.wrapping_neg())
            }
            Tok::Plus => {
                self.bump();
                self.nested(Self::unary)
            }
            Tok::Tilde => {
                self.bump();
                Ok(!self.nested(Self::unary)?)
            }
            Tok::Bang => {
                self.bump();
                Ok(u64::from(self.nested(Self::unary)? == 0))
            }
            Tok::LParen => {
                self.bump();
                // A cast says nothing that 64 bits don't: `(.s64)` and `(.u64)`.
                if self.peek() == Tok::Dot {
                    self.bump();
                    self.expect(Tok::RParen)?;
                    return self.nested(Self::unary);
                }
                let v = self.nested(Self::ternary)?;
                self.expect(Tok::RParen)?;
                Ok(v)
            }
            Tok::Int => {
                let (text, span) = (self.text(), self.span());
                self.bump();
                parse_int(text).ok_or(()).map_err(|()| self.bad_int(text, span))
            }
            Tok::Name if self.text() == "WARP_SZ" => {
                self.bump();
                Ok(32)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// `+ n` or `- n`, one after another.
    pub(super) fn signed_offset(&mut self) -> Parsed<i64> {
        let mut total = 0i64;
        while matches!(self.peek(), Tok::Plus | Tok::Minus) {
            let minus = self.bump().0 == Tok::Minus;
            let n = self.unary()? as i64;
            total = if minus { total.wrapping_sub(n) } else { total.wrapping_add(n) };
        }
        Ok(total)
    }

    /// A constant of type `ty` as its bits.
    pub(super) fn numeric_const(&mut self, ty: Type) -> Parsed<u64> {
        let negative = matches!(self.peek(), Tok::Minus)
            && matches!(self.peek2(), Tok::Float | Tok::HexF32 | Tok::HexF64);
        if negative {
            self.bump();
        }
        let span = self.span();
        let text = self.text();
        let wide = match self.peek() {
            Tok::HexF32 => f64::from(f32::from_bits(u32::from_str_radix(&text[2..], 16).unwrap_or(0))),
            Tok::HexF64 => f64::from_bits(u64::from_str_radix(&text[2..], 16).unwrap_or(0)),
            Tok::Float => match text.parse() {
                Ok(x) => x,
                Err(_) => return Err(self.error(span, format!("Bad floating-point constant '{text}'"))),
            },
            _ => {
                let v = self.int_const()?.0;
                return Ok(match (ty.class(), ty.bytes()) {
                    (TypeClass::Float, 8) => (v as i64 as f64).to_bits(),
                    (TypeClass::Float, 4) => u64::from((v as i64 as f32).to_bits()),
                    _ => v,
                });
            }
        };
        let hex32 = (self.peek() == Tok::HexF32).then(|| u32::from_str_radix(&text[2..], 16).unwrap_or(0));
        self.bump();
        let wide = if negative { -wide } else { wide };
        Ok(match (ty.bytes(), hex32) {
            (8, _) => wide.to_bits(),
            (4, Some(bits)) if !negative => u64::from(bits),
            (4, _) => u64::from((wide as f32).to_bits()),
            _ => return Err(self.error(span, "Floating-point constant of the wrong size")),
        })
    }
}

/// The value of an integer literal.
pub(super) fn parse_int(text: &str) -> Option<u64> {
    let text = text.trim_end_matches('U');
    let radix = |digits: &str, r| u64::from_str_radix(digits, r).ok();
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => radix(&text[2..], 16),
        [b'0', b'b' | b'B', ..] => radix(&text[2..], 2),
        [b'0', _, ..] => radix(&text[1..], 8),
        _ => text.parse().ok(),
    }
}
