//! The PTX front end: text to a typed, scope-resolved syntax tree, checked against the instruction table.

pub mod ast;
pub mod isa;
pub mod span;

pub use ast::*;
pub use isa::{Mod, Op, SpecialReg, Type, TypeClass};
pub use span::{LineIndex, Span};
