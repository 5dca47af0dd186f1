//! Sampling of textures, as the appendix "Texture Fetching" of the CUDA programming guide and the PTX manual have it.
//! What both leave open has no value: `None`.

use super::format::Words;
use super::{Address, Compare, Geometry, Image, Level, Read};

/// Coordinates as bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Coords {
    /// binary32, normalized if the texture says so.
    Float([f32; 3]),
    /// Numbers of texels: nothing is filtered.
    Texels([i32; 3]),
}

/// Which level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Lod {
    /// The largest.
    Base,
    /// This one, or between two.
    At(f32),
    /// This one.
    Number(i32),
    /// By how much coordinates change from a place to its two neighbours.
    Gradients([[f32; 3]; 2]),
}

/// What a texture is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Request {
    /// Where.
    pub coords: Coords,
    /// The layer; the last one if there are fewer.
    pub layer: u32,
    /// The sample.
    pub sample: u32,
    /// The level.
    pub lod: Lod,
    /// Added to the numbers of texels.
    pub offsets: [i32; 3],
    /// The depth that texels are compared with.
    pub depth: Option<f32>,
    /// If it isn't 0, what is rounded to 1/256 of a texel is rounded another way: up by 1, down by 2, either way by
    /// others; directions of cubes lead a little beside.
    pub nudge: u64,
}

impl Request {
    /// The largest level of the first layer, without offsets.
    pub fn at(coords: Coords) -> Request {
        Request { coords, layer: 0, sample: 0, lod: Lod::Base, offsets: [0; 3], depth: None, nudge: 0 }
    }

    /// Rounds a number of texels, or a level, to 1/256: to nearest (the guide's example of `tex2Dgather`).
    fn fixed(&self, x: f64) -> f64 {
        let scaled = x * 256.0;
        match self.nudge {
            0 => (scaled + 0.5).floor(),
            1 => scaled.ceil(),
            2 => scaled.floor(),
            n if (x.to_bits() ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 => scaled.ceil(),
            _ => scaled.floor(),
        }
    }

    /// By how many texels the coordinates of a face are moved where divisions may be inexact.
    fn slack(&self) -> f64 {
        let size = 2f64.powi(-10);
        match self.nudge {
            0 => 0.0,
            1 => size,
            2 => -size,
            n if n.is_multiple_of(2) => size / 2.0,
            _ => -size / 2.0,
        }
    }
}

/// A texel that a coordinate leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    In(u32),
    Border,
    /// The manual's formulas lead to two of them.
    Open,
}

/// The texel of a number, which is a whole one.
fn place(mode: Address, i: f64, size: u32) -> Place {
    let n = f64::from(size);
    match mode {
        _ if (0.0..n).contains(&i) => Place::In(i as u32),
        Address::Border => Place::Border,
        Address::Clamp => Place::In(i.clamp(0.0, n - 1.0) as u32),
        Address::Wrap => Place::In(i.rem_euclid(n) as u32),
        Address::Mirror => {
            let i = i.rem_euclid(2.0 * n);
            Place::In(if i < n { i } else { 2.0 * n - 1.0 - i } as u32)
        }
    }
}

/// The face of a cube that a direction leads to, and the coordinates in it, from 0 to 1. Where two components are the
/// largest, the guide does not say which one counts.
fn face([x, y, z]: [f32; 3]) -> Option<(u32, [f64; 2])> {
    let [x, y, z] = [x, y, z].map(f64::from);
    let (a, b, c) = (x.abs(), y.abs(), z.abs());
    let (face, m, s, t) = match () {
        () if a > b && a > c && x >= 0.0 => (0, a, -z, -y),
        () if a > b && a > c => (1, a, z, -y),
        () if b > a && b > c && y >= 0.0 => (2, b, x, z),
        () if b > a && b > c => (3, b, x, -z),
        () if c > a && c > b && z >= 0.0 => (4, c, x, -y),
        () if c > a && c > b => (5, c, -x, -y),
        () => return None,
    };
    m.is_finite().then(|| (face, [(s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0]))
}

/// The texel of a coordinate. In a mirrored period, where texels meet, the guide's formula gives the one behind, or none.
fn nearest(mode: Address, x: f64, size: u32) -> Place {
    let inside = (0.0..f64::from(size)).contains(&x);
    if mode == Address::Mirror
        && !inside
        && (x / f64::from(size)).floor().rem_euclid(2.0) == 1.0
        && x.fract() == 0.0
    {
        return Place::Open;
    }
    place(mode, x.floor(), size)
}

/// A texel's words, or why there are none.
type Fetched<E> = Result<Option<Words>, E>;

/// Where in a level, in texels.
struct Point {
    at: [f64; 3],
    modes: [Address; 3],
    /// Layers and faces before it.
    slice: u64,
}

impl Image {
    /// What `tex` gives: floating-point numbers, or integers of 32 bits.
    ///
    /// # Errors
    /// What reading memory says.
    pub fn fetch<E>(&self, r: &Request, read: Read<'_, E>) -> Fetched<E> {
        let coords = match r.coords {
            Coords::Float(c) => c,
            Coords::Texels(c) => return self.fetch_texel(r, c, read),
        };
        // Integers are not filtered, and are no depths.
        let float = self.sampler.linear || r.depth.is_some();
        if float && !self.format.reads_float() || self.geometry.has_samples() {
            return Ok(None);
        }
        let Some((levels, weight)) = self.levels_of(r) else { return Ok(None) };
        let Some(first) = self.filtered(r, coords, &self.levels[levels[0]], read)? else { return Ok(None) };
        if weight == 0.0 {
            return Ok(Some(first));
        }
        let Some(second) = self.filtered(r, coords, &self.levels[levels[1]], read)? else { return Ok(None) };
        let mean = |a: Option<u32>, b: Option<u32>| {
            let (a, b) = (f32::from_bits(a?), f32::from_bits(b?));
            mean(&[(1.0 - weight, a), (weight, b)])
        };
        Ok(Some([0, 1, 2, 3].map(|i| mean(first[i], second[i]))))
    }

    /// What `tld4` gives: a channel of the four texels that a linear filter takes, counter-clockwise from the lower left.
    ///
    /// # Errors
    /// What reading memory says.
    pub fn gather<E>(&self, r: &Request, channel: usize, read: Read<'_, E>) -> Fetched<E> {
        let Coords::Float(coords) = r.coords else { return Ok(None) };
        let Some(level) = self.levels.first().filter(|_| !self.geometry.has_samples()) else {
            return Ok(None);
        };
        if self.geometry.dims() != 2 || channel >= self.format.channels as usize {
            return Ok(None);
        }
        let Some(point) = self.point(r, coords, level) else { return Ok(None) };
        let [i, j] = [0, 1].map(|d| (r.fixed(point.at[d] - 0.5) / 256.0).floor());
        let mut out = [None; 4];
        for (to, (di, dj)) in out.iter_mut().zip([(0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)]) {
            *to = self.words(r, level, &point, [i + di, j + dj, 0.0], read)?[channel];
        }
        Ok(Some(out))
    }

    /// A texel by its number.
    fn fetch_texel<E>(&self, r: &Request, c: [i32; 3], read: Read<'_, E>) -> Fetched<E> {
        let number = match r.lod {
            Lod::Base => 0,
            Lod::Number(n) => n,
            Lod::At(_) | Lod::Gradients(_) => return Ok(None),
        };
        let level = usize::try_from(number).ok().and_then(|n| self.levels.get(n));
        let (Some(level), false) = (level, self.geometry.is_cube()) else { return Ok(None) };
        if r.sample >= self.samples {
            return Ok(None);
        }
        let dims = self.geometry.dims();
        // An image with the default border has zeros outside; what else there might be, no manual says.
        let mut places = [0; 3];
        for d in 0..dims {
            let i = i64::from(c[d]) + i64::from(r.offsets[d]);
            match u32::try_from(i).ok().filter(|i| *i < level.size[d]) {
                Some(i) => places[d] = i,
                None if self.sampler.address[d] == Address::Border && self.sampler.border == [0.0; 4] => {
                    return Ok(Some(self.compared(r, self.border())));
                }
                None => return Ok(None),
            }
        }
        let slice = u64::from(r.layer.min(self.layers - 1));
        Ok(Some(self.compared(r, self.stored(level, places, slice, r.sample, read)?)))
    }

    /// Which levels, and the weight of the second.
    fn levels_of(&self, r: &Request) -> Option<([usize; 2], f64)> {
        let most = self.levels.len() - 1;
        let level = match r.lod {
            Lod::Base => 0.0,
            Lod::At(x) => f64::from(x),
            Lod::Number(n) => n.into(),
            Lod::Gradients(d) => self.level_of(d, r)?,
        };
        if level.is_nan() {
            return None;
        }
        let [least, greatest] = self.sampler.clamp.map_or([0.0, most as f64], |c| c.map(f64::from));
        // Where the bounds are the wrong way round, the lower one holds.
        let level = (level + f64::from(self.sampler.bias)).min(greatest).max(least).clamp(0.0, most as f64);
        if !self.sampler.linear_levels {
            // Which one is nearest in the middle, no manual says.
            let half =
                if r.nudge.is_multiple_of(2) { (level + 0.5).ceil() - 1.0 } else { (level + 0.5).floor() };
            return Some(([(half as usize).min(most); 2], 0.0));
        }
        let fixed = r.fixed(level);
        let first = ((fixed / 256.0).floor() as usize).min(most);
        Some(([first, (first + 1).min(most)], fixed / 256.0 - first as f64))
    }

    /// The level of derivatives: the logarithm of the longer one in texels, as OpenGL has it.
    fn level_of(&self, d: [[f32; 3]; 2], r: &Request) -> Option<f64> {
        let size = self.size();
        let length = |d: [f32; 3]| {
            let d = d.map(f64::from);
            let (count, in_texels) = if self.geometry.is_cube() {
                (3, self.in_face(d, r)?)
            } else {
                let unit = |i: usize| if self.sampler.normalized { f64::from(size[i]) } else { 1.0 };
                (self.geometry.dims(), [0, 1, 2].map(|i| d[i] * unit(i)))
            };
            Some((0..count).map(|i| in_texels[i].powi(2)).sum::<f64>().sqrt())
        };
        let (a, b) = (length(d[0])?, length(d[1])?);
        // Neither manual says how exact it is.
        (!a.is_nan() && !b.is_nan()).then(|| a.max(b).log2() + 16.0 * r.slack())
    }

    /// The derivative of a direction's quotients by its largest component, in texels of a face.
    fn in_face(&self, d: [f64; 3], r: &Request) -> Option<[f64; 3]> {
        let Coords::Float(at) = r.coords else { return None };
        let at = at.map(f64::from);
        let i = (0..3).max_by(|a, b| at[*a].abs().total_cmp(&at[*b].abs()))?;
        let (m, dm) = (at[i].abs(), d[i] * at[i].signum());
        let half = f64::from(self.size()[0]) / 2.0;
        Some([0, 1, 2].map(|k| (d[k] - at[k] / m * dm) / m * half))
    }

    /// Where coordinates lead in a level; nowhere if they are no numbers.
    fn point(&self, r: &Request, coords: [f32; 3], level: &Level) -> Option<Point> {
        let layer = u64::from(r.layer.min(self.layers - 1));
        if self.geometry.is_cube() {
            let (face, at) = face(coords)?;
            let size = f64::from(level.size[0]);
            let [s, t] = at.map(|c| c * size + r.slack());
            // How faces meet, no manual says: they end.
            return Some(Point {
                at: [s, t, 0.0],
                modes: [Address::Clamp; 3],
                slice: 6 * layer + u64::from(face),
            });
        }
        let mut point = Point { at: [0.0; 3], modes: self.sampler.address, slice: layer };
        for (d, x) in coords.into_iter().enumerate().take(self.geometry.dims()) {
            let x = f64::from(x);
            let (x, mode) = match (self.sampler.normalized, self.sampler.address[d]) {
                (true, mode) => (x * f64::from(level.size[d]), mode),
                // There is no period in texels.
                (false, Address::Wrap | Address::Mirror) => (x, Address::Clamp),
                (false, mode) => (x, mode),
            };
            if x.is_nan() || x.is_infinite() && matches!(mode, Address::Wrap | Address::Mirror) {
                return None;
            }
            (point.at[d], point.modes[d]) = (x + f64::from(r.offsets[d]), mode);
        }
        Some(point)
    }

    /// The nearest texel of a level, or the mean of several.
    fn filtered<E>(&self, r: &Request, coords: [f32; 3], level: &Level, read: Read<'_, E>) -> Fetched<E> {
        let Some(point) = self.point(r, coords, level) else { return Ok(None) };
        if !self.sampler.linear {
            let dims = self.geometry.dims();
            let nearest = |d: usize| nearest(point.modes[d], point.at[d], level.size[d]);
            if (0..dims).any(|d| nearest(d) == Place::Open) {
                return Ok(None);
            }
            return self.words(r, level, &point, point.at.map(f64::floor), read).map(Some);
        }
        let dims = self.geometry.dims();
        let mut first = [0.0; 3];
        let mut weights = [0.0; 3];
        for d in 0..dims {
            let fixed = r.fixed(point.at[d] - 0.5);
            first[d] = (fixed / 256.0).floor();
            // Infinite coordinates have no fraction.
            weights[d] = if fixed.is_finite() { fixed / 256.0 - first[d] } else { 0.0 };
        }
        let mut terms: [Option<Vec<(f64, f32)>>; 4] = [const { Some(Vec::new()) }; 4];
        for corner in 0..1usize << dims {
            let (mut at, mut weight) = (first, 1.0);
            for d in 0..dims {
                let far = corner >> d & 1 != 0;
                at[d] += f64::from(u8::from(far));
                weight *= if far { weights[d] } else { 1.0 - weights[d] };
            }
            let words = self.words(r, level, &point, at, read)?;
            for (list, word) in terms.iter_mut().zip(words) {
                match (&mut *list, word) {
                    (Some(list), Some(w)) => list.push((weight, f32::from_bits(w))),
                    _ => *list = None,
                }
            }
        }
        Ok(Some(terms.map(|t| mean(&t?))))
    }

    /// The texel of whole numbers, as words.
    fn words<E>(
        &self,
        r: &Request,
        level: &Level,
        point: &Point,
        at: [f64; 3],
        read: Read<'_, E>,
    ) -> Result<Words, E> {
        let mut texel = [0; 3];
        for d in 0..self.geometry.dims() {
            match place(point.modes[d], at[d], level.size[d]) {
                Place::In(i) => texel[d] = i,
                Place::Border | Place::Open => return Ok(self.compared(r, self.border())),
            }
        }
        Ok(self.compared(r, self.stored(level, texel, point.slice, 0, read)?))
    }

    /// What is in memory; channels that a texel lacks have no defined value.
    fn stored<E>(
        &self,
        level: &Level,
        at: [u32; 3],
        slice: u64,
        sample: u32,
        read: Read<'_, E>,
    ) -> Result<Words, E> {
        let address = self.texel(level, at, slice, sample);
        let bytes = self.format.element.bytes();
        let mut out = [None; 4];
        for (n, word) in out.iter_mut().enumerate().take(self.format.channels as usize) {
            *word = Some(self.format.widen(read(address + n as u64 * u64::from(bytes), bytes)?));
        }
        Ok(out)
    }

    /// The colour of the border.
    fn border(&self) -> Words {
        let channel = |n: usize| {
            let x = self.sampler.border[n];
            let bits = if self.format.reads_float() { x.to_bits() } else { x as i64 as u32 };
            (n < self.format.channels as usize).then_some(bits)
        };
        [0, 1, 2, 3].map(channel)
    }

    /// 1 or 0 for each texel that a depth is compared with.
    fn compared(&self, r: &Request, words: Words) -> Words {
        let Some(depth) = r.depth else { return words };
        words.map(|w| {
            let texel = f32::from_bits(w?);
            let passes = match self.sampler.compare {
                Compare::Less => depth < texel,
                Compare::LessEqual => depth <= texel,
                Compare::Greater => depth > texel,
                Compare::GreaterEqual => depth >= texel,
            };
            Some(if passes { 1f32 } else { 0.0 }.to_bits())
        })
    }
}

/// The sum of products with weights, rounded once. What a weight of zero makes of an infinity is open.
fn mean(terms: &[(f64, f32)]) -> Option<u32> {
    if terms.iter().any(|(w, x)| *w == 0.0 && !x.is_finite()) {
        return None;
    }
    let sum = terms.iter().filter(|t| t.0 != 0.0).map(|(w, x)| w * f64::from(*x)).sum::<f64>();
    Some(if sum.is_nan() { 0x7fff_ffff } else { (sum as f32).to_bits() })
}

impl Geometry {
    /// Coordinates, the number in an array and of a sample left out.
    pub fn coordinates(self) -> usize {
        if self.is_cube() { 3 } else { self.dims() }
    }
}
