//! What instructions ask of those who run a file: lines `asks`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A row: what it asks for, of which SMs, which opcode and modifiers.
struct Row {
    asks: String,
    sms: String,
    op: String,
    mods: Vec<String>,
    place: String,
}

/// All rows.
#[derive(Default)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// A line `asks class|tensors NUMBER SM,SM OPCODE [MODIFIER…]`.
    pub fn line(&mut self, rest: &str, place: &str, mods: &mut BTreeSet<String>) {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [what, number, sms, op, of @ ..] = &words[..] else {
            panic!("{place}: asks WHAT NUMBER SMS OPCODE MOD…")
        };
        let field = match *what {
            "class" => "class",
            "tensors" => "tensor_maps",
            _ => panic!("{place}: nothing asks for `{what}`"),
        };
        mods.extend(of.iter().map(|m| (*m).to_string()));
        self.0.push(Row {
            asks: format!("Asks {{ {field}: {number}, ..Asks::NOTHING }}"),
            sms: (*sms).to_string(),
            op: (*op).to_string(),
            mods: of.iter().map(|m| (*m).to_string()).collect(),
            place: place.to_string(),
        });
    }

    /// The rows in the order of their opcodes.
    pub fn write(mut self, ops: &[String], out: &mut String) {
        let number = |row: &Row| {
            let found = ops.iter().position(|o| *o == row.op);
            found.unwrap_or_else(|| panic!("{}: there is no opcode `{}`", row.place, row.op))
        };
        self.0.sort_by_key(number);
        let _ = writeln!(out, "pub(crate) static ASKS: &[AskRow] = &[");
        for row in &self.0 {
            let mods: Vec<String> = row.mods.iter().map(|m| format!("Mod::{}", crate::ident(m))).collect();
            let (op, mods) = (crate::ident(&row.op), mods.join(", "));
            let (sms, asks) = (&row.sms, &row.asks);
            let _ = writeln!(
                out,
                "    AskRow {{ op: Opcode::{op}, mods: &[{mods}], sms: &[{sms}], asks: {asks} }},"
            );
        }
        let _ = writeln!(out, "];");
    }
}
