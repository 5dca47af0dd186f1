//! How many registers may be live where.

use crate::pool::Grants;
use fixedbitset::FixedBitSet;
use ori::Block;
use ori::registers::Set;
use sass::RegFile;

/// A warp that can name fewer registers than this holds few.
pub const FEW: u8 = 64;

/// How many registers of a file there are for values.
#[derive(Clone, Copy)]
pub struct Room<'g> {
    /// The most, anywhere.
    pub limit: u32,
    /// How many of those that may be named are not for values in blocks in which a warp holds few ([`FEW`]).
    pub kept: u32,
    /// How many of the general ones there are in each block, where a warp gives some back.
    pub grants: Option<&'g Grants>,
    /// The blocks in which all lanes of the warp are together, as far as that is known.
    pub whole: Option<&'g FixedBitSet>,
}

impl Room<'_> {
    /// Those in a block.
    pub fn at(&self, b: Block) -> u32 {
        self.grants.map_or(self.limit, |g| match u32::from(g.named(b)) {
            few if few < FEW.into() => few.saturating_sub(self.kept).max(1),
            _ => g.share(b, self.limit).min(self.limit),
        })
    }

    /// The same for values of a file.
    pub fn of(self, file: RegFile) -> Self {
        Room { grants: self.grants.filter(|_| file == RegFile::R), ..self }
    }
}

/// How many of some registers are below `limit`.
pub fn below(registers: &Set, limit: u32) -> u32 {
    registers.among(&Set::of(0..limit as usize)).count()
}
