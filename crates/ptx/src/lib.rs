//! The PTX front end: text to a typed, scope-resolved syntax tree, checked against the instruction table.

pub mod alias;
pub mod ast;
pub mod check;
pub mod diag;
pub mod isa;
pub mod lexer;
pub mod parser;
mod print;
pub mod span;

pub use ast::*;
pub use check::check;
pub use diag::{Diagnostic, Severity, Style};
pub use isa::{Mod, Op, SpecialReg, Type, TypeClass};
pub use parser::pragma::SHARED_SPILLS;
pub use parser::{parse, parse_all, text};
pub use span::{LineIndex, Span};
