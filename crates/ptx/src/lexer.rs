//! Tokens.

use crate::span::Span;
use logos::Logos;

/// A token; its text is the span of the source.
#[derive(Logos, Clone, Copy, PartialEq, Eq, Debug)]
#[logos(skip r"[ \t\r\n\f\x1a]+")]
#[logos(skip r"/\*([^*]|\*+[^*/])*\*+/")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
// What preprocessors leave, and nothing else with a `#`: `#line 7 "a.cu"`, `# 7 "a.cu" 2`.
#[logos(skip r##"#[ \t\r\f]*(line[ \t\r\f]*)?[0-9]+[ \t\r\f]+"[^"\n]*"([ \t\r\f]+[0-9]+)*[ \t\r\f]*\n"##)]
pub enum Tok {
    /// `.word`, with `::` parts: `.shared::cta`, `.L2::128B`, `.2d`.
    #[regex(r"\.[a-zA-Z0-9_$]+(::[a-zA-Z0-9_]+)*")]
    Dot,
    /// A name: `add`, `%r1`, `$L__BB0_2`, `_`.
    #[regex(r"[a-zA-Z][a-zA-Z0-9_$]*")]
    #[regex(r"[_$][a-zA-Z0-9_$]*")]
    #[regex(r"%[a-zA-Z0-9_$]+")]
    Name,
    /// `0f3F800000`
    #[regex(r"0[fF][0-9a-fA-F]{8}", priority = 10)]
    HexF32,
    /// `0d3FF0000000000000`
    #[regex(r"0[dD][0-9a-fA-F]{16}", priority = 10)]
    HexF64,
    /// `1.5`, `1e-3`, `.5`
    #[regex(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")]
    #[regex(r"[0-9]+[eE][+-]?[0-9]+")]
    #[regex(r"\.[0-9]+([eE][+-]?[0-9]+)?", priority = 10)]
    Float,
    /// An integer: decimal, `0x`, `0b`, octal, perhaps with `U`.
    #[regex(r"0[xX][0-9a-fA-F]+U?")]
    #[regex(r"0[bB][01]+U?")]
    #[regex(r"[0-9]+U?")]
    Int,
    /// `"…"`, in which backslashes and ends of lines are characters like others.
    #[regex(r#""[^"]*""#)]
    Str,
    /// `@@` before DWARF directives of old PTX.
    #[token("@@")]
    AtAt,
    /// `@`
    #[token("@")]
    At,
    /// `!`
    #[token("!")]
    Bang,
    /// `,`
    #[token(",")]
    Comma,
    /// `;`
    #[token(";")]
    Semi,
    /// `:`
    #[token(":")]
    Colon,
    /// `(`
    #[token("(")]
    LParen,
    /// `)`
    #[token(")")]
    RParen,
    /// `[`
    #[token("[")]
    LBracket,
    /// `]`
    #[token("]")]
    RBracket,
    /// `{`
    #[token("{")]
    LBrace,
    /// `}`
    #[token("}")]
    RBrace,
    /// `<`
    #[token("<")]
    Lt,
    /// `>`
    #[token(">")]
    Gt,
    /// `<<`
    #[token("<<")]
    Shl,
    /// `>>`
    #[token(">>")]
    Shr,
    /// `=`
    #[token("=")]
    Eq,
    /// `==`
    #[token("==")]
    EqEq,
    /// `!=`
    #[token("!=")]
    NotEq,
    /// `<=`
    #[token("<=")]
    Le,
    /// `>=`
    #[token(">=")]
    Ge,
    /// `&&`
    #[token("&&")]
    AndAnd,
    /// `||`
    #[token("||")]
    OrOr,
    /// `?`
    #[token("?")]
    Question,
    /// `+`
    #[token("+")]
    Plus,
    /// `-`
    #[token("-")]
    Minus,
    /// `*`
    #[token("*")]
    Star,
    /// `/`
    #[token("/")]
    Slash,
    /// `%` followed by no name.
    #[token("%")]
    Percent,
    /// `|`
    #[token("|")]
    Pipe,
    /// `&`
    #[token("&")]
    Amp,
    /// `^`
    #[token("^")]
    Caret,
    /// `~`
    #[token("~")]
    Tilde,
    /// End of the text.
    Eof,
    /// Something that is no token.
    Bad,
}

/// All tokens of `source`, closed by [`Tok::Eof`].
pub fn lex(source: &str) -> Vec<(Tok, Span)> {
    lex_with_blocks(source).0
}

/// All tokens of `source`, and which of them are braces or colons, for finding labels without reading all.
pub(crate) fn lex_with_blocks(source: &str) -> (Vec<(Tok, Span)>, Vec<u32>) {
    // Enough for all files that were seen: what a compiler writes has three to six bytes for each. A list that grows is there twice for a moment, at
    // the time when most memory is in use; what is not written to takes none.
    let mut tokens = Vec::with_capacity(source.len() / 3);
    let mut blocks = Vec::new();
    let mut lexer = Tok::lexer(source);
    while let Some(token) = lexer.next() {
        let token = token.unwrap_or(Tok::Bad);
        if matches!(token, Tok::LBrace | Tok::RBrace | Tok::Colon) {
            blocks.push(tokens.len() as u32);
        }
        let range = lexer.span();
        tokens.push((token, Span::new(range.start, range.end)));
    }
    tokens.push((Tok::Eof, Span::new(source.len(), source.len())));
    (tokens, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_an_instruction() {
        let kinds: Vec<Tok> = lex("@!%p1 ld.shared::cta.f32 %f1, [%rd2+4]; // x\n 0f3F800000 1.5 0x1FU")
            .into_iter()
            .map(|t| t.0)
            .collect();
        use Tok::*;
        assert_eq!(
            kinds,
            [
                At, Bang, Name, Name, Dot, Dot, Name, Comma, LBracket, Name, Plus, Int, RBracket, Semi,
                HexF32, Float, Int, Eof
            ]
        );
    }
}
