//! What passes decide, in words, for who asks why code is as it is (`oxsass explain`).

use crate::{Block, Function, Loc, Phase};
use std::borrow::Cow;

/// A decision about a place of the program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Remark {
    /// Where it is.
    pub loc: Loc,
    /// Who decided.
    pub phase: Phase,
    /// Whether the pass did what it is there for.
    pub done: bool,
    /// What it did, or why it did not.
    pub text: Cow<'static, str>,
}

/// Why a pass leaves something as it is.
pub type Refusal = Cow<'static, str>;

impl Remark {
    /// What a pass says of a place: what it did, or why not.
    pub fn of(phase: Phase, loc: Loc, decided: Result<impl Into<Cow<'static, str>>, Refusal>) -> Remark {
        match decided {
            Ok(text) => Remark { loc, phase, done: true, text: text.into() },
            Err(text) => Remark { loc, phase, done: false, text },
        }
    }
}

impl Function {
    /// Keeps remarks, if anybody wants to know.
    pub fn remark(&mut self, remarks: impl IntoIterator<Item = Remark>) {
        if let Some(kept) = &mut self.remarks {
            kept.extend(remarks);
        }
    }

    /// The first line of a block, for remarks about it.
    pub fn loc_of(&self, block: Block) -> Loc {
        let data = &self.blocks[block];
        let lines = data.insts.iter().map(|i| self.insts[*i].loc).chain([data.term_loc]);
        lines.filter(|l| *l != Loc::default()).min().unwrap_or_default()
    }
}
