//! Surfaces: where an access reaches.

use super::Image;

/// What becomes of an access outside of a surface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// It stops the program.
    Trap,
    /// It goes to the nearest place.
    Clamp,
    /// It gives zeros, or does nothing.
    Zero,
}

/// Where an access of a surface reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot {
    /// This address.
    At(u64),
    /// Nowhere: zeros.
    Nothing,
    /// Nowhere: the program stops.
    Trap,
    /// An address that is no multiple of the size: the manual leaves open what happens.
    Misaligned,
}

impl Image {
    /// Where an access reaches that has these coordinates and this number of the layer. The first coordinate counts
    /// bytes, of which `bytes` are accessed, or samples, if that is `None`.
    pub fn spot(&self, [x, y, z]: [i32; 3], layer: u32, bytes: Option<u32>, outside: Outside) -> Spot {
        let Some(level) = self.levels.first() else { return Spot::Nothing };
        let texel = self.format.bytes();
        let (size, unit) = match bytes {
            Some(n) => (n, 1),
            None => (texel, texel),
        };
        // The first byte behind which the access still fits.
        let width = i64::from(level.size[0]) * i64::from(texel) - i64::from(size);
        let most =
            [width, i64::from(level.size[1]) - 1, i64::from(level.size[2]) - 1, i64::from(self.layers) - 1];
        let dims = self.geometry.dims();
        let at = [
            i64::from(x) * i64::from(unit),
            if dims > 1 { y.into() } else { 0 },
            if dims > 2 { z.into() } else { 0 },
            if self.geometry.is_array() { layer.into() } else { 0 },
        ];
        let inside = at.iter().zip(&most).all(|(n, most)| (0..=*most).contains(n));
        let at = match outside {
            _ if inside => at,
            Outside::Trap => return Spot::Trap,
            Outside::Zero => return Spot::Nothing,
            Outside::Clamp if width < 0 => return Spot::Misaligned,
            Outside::Clamp => [0, 1, 2, 3].map(|i| at[i].clamp(0, most[i])),
        };
        let [x, y, z, layer] = at.map(|n| n as u64);
        if !x.is_multiple_of(size.into()) {
            return Spot::Misaligned;
        }
        Spot::At(self.base + (layer + z) * level.slice + y * level.pitch + x)
    }
}
