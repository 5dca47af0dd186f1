//! The control field: bits 105..126 of every instruction word (positions: nvdisasm 13.2 and public
//! sources agree; `docs/sass-control.md`).

/// What an instruction tells the issue logic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    /// Cycles from this instruction's issue until the warp's next one, 0 … 15 (0 drains the pipeline).
    pub stall: u8,
    /// Bit 109: keep issuing this warp (printed as `-`); clear = the scheduler may switch (`Y`).
    pub no_yield: bool,
    /// Scoreboard 0 … 5 released when the results are written (RAW, WAW); `None` = 7.
    pub write_sb: Option<u8>,
    /// Scoreboard 0 … 5 released when the sources have been read (WAR); `None` = 7.
    pub read_sb: Option<u8>,
    /// Scoreboards to wait for before issue, one bit each.
    pub wait: u8,
    /// Operand-reuse flags of the source slots A, B, C (bits 0, 1, 2).
    pub reuse: u8,
}

impl Default for Control {
    /// One cycle, nothing to wait for.
    fn default() -> Self {
        Control { stall: 1, no_yield: true, write_sb: None, read_sb: None, wait: 0, reuse: 0 }
    }
}

impl Control {
    /// The control field as placed in a 128-bit word.
    pub fn to_bits(self) -> u128 {
        let sb = |s: Option<u8>| u128::from(s.unwrap_or(7) & 7);
        u128::from(self.stall & 15) << 105
            | u128::from(self.no_yield) << 109
            | sb(self.write_sb) << 110
            | sb(self.read_sb) << 113
            | u128::from(self.wait & 63) << 116
            | u128::from(self.reuse & 7) << 122
    }

    /// Reads the control field of a word.
    pub fn from_bits(word: u128) -> Control {
        let field = |lo: u32, len: u32| ((word >> lo) & ((1 << len) - 1)) as u8;
        let sb = |v: u8| (v != 7).then_some(v);
        Control {
            stall: field(105, 4),
            no_yield: field(109, 1) != 0,
            write_sb: sb(field(110, 3)),
            read_sb: sb(field(113, 3)),
            wait: field(116, 6),
            reuse: field(122, 3),
        }
    }
}

impl std::fmt::Display for Control {
    /// `[B0-----:R-:W0:Y:S04]`: wait mask, read scoreboard, write scoreboard, yield, stall.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[B")?;
        for i in 0..6 {
            if self.wait >> i & 1 != 0 { write!(f, "{i}")? } else { f.write_str("-")? }
        }
        let sb = |s: Option<u8>| s.map_or('-', |n| char::from(b'0' + n));
        let y = if self.no_yield { '-' } else { 'Y' };
        write!(f, ":R{}:W{}:{y}:S{:02}]", sb(self.read_sb), sb(self.write_sb), self.stall)
    }
}

impl std::str::FromStr for Control {
    type Err = &'static str;

    /// Reads what [`Display`](std::fmt::Display) writes; the reuse flags, which it leaves to the operands,
    /// are clear.
    fn from_str(text: &str) -> Result<Control, Self::Err> {
        const WRONG: &str = "not a control field like [B------:R-:W0:Y:S04]";
        let body = text.strip_prefix("[B").and_then(|t| t.strip_suffix(']')).ok_or(WRONG)?;
        let parts: Vec<&str> = body.split(':').collect();
        let &[wait, read, write, switch, stall] = &parts[..] else { return Err(WRONG) };
        if wait.len() != 6 {
            return Err(WRONG);
        }
        let mut mask = 0;
        for (i, c) in wait.chars().enumerate() {
            match c {
                '-' => {}
                c if c.to_digit(10) == Some(i as u32) => mask |= 1 << i,
                _ => return Err(WRONG),
            }
        }
        let scoreboard = |part: &str, letter: char| match part.strip_prefix(letter) {
            Some("-") => Ok(None),
            Some(n) => n.parse().ok().filter(|n| *n < 7).map(Some).ok_or(WRONG),
            None => Err(WRONG),
        };
        let stall = stall.strip_prefix('S').and_then(|n| n.parse().ok()).filter(|n| *n < 16);
        Ok(Control {
            stall: stall.ok_or(WRONG)?,
            no_yield: match switch {
                "-" => true,
                "Y" => false,
                _ => return Err(WRONG),
            },
            write_sb: scoreboard(write, 'W')?,
            read_sb: scoreboard(read, 'R')?,
            wait: mask,
            reuse: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip() {
        let c =
            Control { stall: 5, no_yield: false, write_sb: Some(2), read_sb: None, wait: 0b101, reuse: 3 };
        assert_eq!(Control::from_bits(c.to_bits()), c);
        assert_eq!(c.to_string(), "[B0-2---:R-:W2:Y:S05]");
        assert_eq!(c.to_string().parse(), Ok(Control { reuse: 0, ..c }));
        for wrong in ["", "[B------:R-:W-:-:S16]", "[B1-----:R-:W-:-:S01]", "[B------:R8:W-:-:S01]", "[é]"] {
            assert!(wrong.parse::<Control>().is_err(), "{wrong}");
        }
    }
}
