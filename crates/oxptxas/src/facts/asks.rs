//! What `.nv.compat` states that a file asks for: by its instructions (`isa/asks.isa` of crates/sass), and by statements that
//! leave none which would say so (`statements.txt`). Both tables are ptxas's.

use ptx::{Mod, Op};
use sass::{Asks, Inst};
use std::sync::LazyLock;

/// A row: what statements with these modifiers ask for.
struct Row {
    op: Op,
    mods: Vec<Mod>,
    sms: Vec<u8>,
    asks: Asks,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let lines = include_str!("statements.txt").lines().filter(|l| !l.starts_with('#'));
    lines.map(|l| row(l).expect("a table in the repository is sound")).collect()
});

fn row(line: &str) -> Option<Row> {
    let mut words = line.split(' ');
    let (what, number) = (words.next()?, words.next()?.parse().ok()?);
    let asks = match what {
        "class" => Asks { class: number, ..Asks::NOTHING },
        "tensors" => Asks { tensor_maps: number, ..Asks::NOTHING },
        _ => return None,
    };
    let sms = words.next()?.split(',').map(|sm| sm.parse().ok()).collect::<Option<_>>()?;
    let op = Op::parse(words.next()?)?;
    Some(Row { op, mods: words.map(Mod::parse).collect::<Option<_>>()?, sms, asks })
}

/// What a statement asks for beyond what its instructions do.
pub(super) fn of_statement(sm: u8, inst: &ptx::Inst) -> Asks {
    let mut asks = Asks::NOTHING;
    let rows = ROWS.iter().filter(|r| r.op == inst.op && r.sms.contains(&sm));
    rows.filter(|r| r.mods.iter().all(|m| inst.has(*m))).for_each(|r| asks.join(r.asks));
    asks
}

/// What code asks for, and the statements that it is of.
pub(crate) fn asks(sm: u8, insts: &[Inst], said: &super::Said) -> Asks {
    let mut asks = said.asks;
    insts.iter().for_each(|inst| asks.join(sass::asks(sm, inst)));
    asks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_statements() {
        assert!(!ROWS.is_empty());
    }
}
