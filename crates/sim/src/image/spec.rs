//! Images in launch files (`docs/launch-files.md`).

use super::format::{ELEMENTS, Format};
use super::{ADDRESSES, COMPARISONS, GEOMETRIES, Image, ImageError, Kind, Sampler};
use serde::Deserialize;

/// An image in a buffer, as a launch file describes it.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct ImageSpec {
    /// The buffer.
    pub buffer: String,
    /// `1d`, `2d`, `3d`, `a1d`, `a2d`, `cube`, `acube`, `2dms`, `a2dms`.
    pub geometry: String,
    /// The type of a channel: `u8` … `f32`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Channels of a texel.
    #[serde(default = "one")]
    pub channels: u32,
    /// Integers of 8 or 16 bits are read as numbers up to 1.
    #[serde(default)]
    pub normalized: bool,
    /// Texels in each dimension of the geometry.
    pub size: Vec<u32>,
    /// Layers of an array, or its cubes.
    #[serde(default = "one")]
    pub layers: u32,
    /// Samples of a texel.
    #[serde(default = "one")]
    pub samples: u32,
    /// Levels, one after another in the buffer.
    #[serde(default = "one")]
    pub levels: u32,
    /// Bytes from one row to the next; the next multiple of 16 if absent.
    #[serde(default)]
    pub pitch: u64,
    /// `texels` or `normalized`.
    pub coordinates: Option<String>,
    /// `point` or `linear`.
    pub filter: Option<String>,
    /// `point` or `linear`.
    pub level_filter: Option<String>,
    /// For each dimension `wrap`, `clamp`, `mirror` or `border`; `clamp` if absent.
    #[serde(default)]
    pub address: Vec<String>,
    /// The colour of the border.
    #[serde(default)]
    pub border: Vec<f32>,
    /// How depths are compared with texels: `lt`, `le`, `gt`, `ge`.
    pub compare: Option<String>,
}

/// A sampler of its own, as a launch file describes it: as that of an image, but that coordinates are taken as the texture says
/// unless they are said to be texels.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct SamplerSpec {
    /// `texels`, whatever the texture says.
    pub coordinates: Option<String>,
    /// `point` or `linear`.
    pub filter: Option<String>,
    /// `point` or `linear`.
    pub level_filter: Option<String>,
    /// For each dimension `wrap`, `clamp`, `mirror` or `border`; `clamp` if absent.
    #[serde(default)]
    pub address: Vec<String>,
    /// The colour of the border.
    #[serde(default)]
    pub border: Vec<f32>,
    /// How depths are compared with texels: `lt`, `le`, `gt`, `ge`.
    pub compare: Option<String>,
}

/// What a name in the PTX stands for: exactly one of these.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct NameSpec {
    /// An image that is read as a texture.
    pub texture: Option<String>,
    /// An image that is a surface.
    pub surface: Option<String>,
    /// A sampler.
    pub sampler: Option<SamplerSpec>,
}

impl NameSpec {
    /// The image that it stands for, and as what.
    pub fn image(&self) -> Option<(&str, Kind)> {
        let texture = self.texture.as_deref().map(|name| (name, Kind::Texture));
        texture.or(self.surface.as_deref().map(|name| (name, Kind::Surface)))
    }

    /// What is wrong with it.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<(), ImageError> {
        let keys = [self.texture.is_some(), self.surface.is_some(), self.sampler.is_some()];
        if keys.iter().filter(|k| **k).count() != 1 {
            return Err(ImageError::Kinds);
        }
        self.sampler.as_ref().map_or(Ok(()), |s| s.sampler().map(|_| ()))
    }
}

impl SamplerSpec {
    /// The sampler.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn sampler(&self) -> Result<Sampler, ImageError> {
        sampler(
            (self.coordinates.as_deref().unwrap_or("normalized"), &self.filter, &self.level_filter),
            (&self.address, &self.border, &self.compare),
        )
    }
}

/// A sampler of what is said of coordinates, filters, address modes, the border and comparisons.
fn sampler(
    (coordinates, filter, levels): (&str, &Option<String>, &Option<String>),
    (address, border, compare): (&[String], &[f32], &Option<String>),
) -> Result<Sampler, ImageError> {
    if address.len() > 3 || border.len() > 4 {
        return Err(ImageError::Modes);
    }
    let linear = |w: &Option<String>, what| match w {
        None => Ok(false),
        Some(w) => named(what, w, &[("point", false), ("linear", true)]),
    };
    let mut sampler = Sampler {
        normalized: named("coordinates", coordinates, &[("texels", false), ("normalized", true)])?,
        linear: linear(filter, "filter")?,
        linear_levels: linear(levels, "filter of levels")?,
        ..Sampler::default()
    };
    for (to, mode) in sampler.address.iter_mut().zip(address) {
        *to = named("address mode", mode, &ADDRESSES)?;
    }
    sampler.border.iter_mut().zip(border).for_each(|(to, x)| *to = *x);
    if let Some(c) = compare {
        sampler.compare = named("comparison", c, &COMPARISONS)?;
    }
    Ok(sampler)
}

fn one() -> u32 {
    1
}

/// What a word stands for.
fn named<T: Copy>(what: &'static str, word: &str, table: &[(&'static str, T)]) -> Result<T, ImageError> {
    let found = table.iter().find(|t| t.0 == word).map(|t| t.1);
    found.ok_or_else(|| ImageError::Word {
        what,
        word: word.into(),
        known: table.iter().map(|t| t.0).collect(),
    })
}

impl ImageSpec {
    /// The image where its buffer starts.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn place(&self, base: u64) -> Result<Image, ImageError> {
        let geometry = named("geometry", &self.geometry, &GEOMETRIES)?;
        let format = Format::new(named("type", &self.ty, &ELEMENTS)?, self.channels, self.normalized)?;
        if self.size.len() != geometry.dims() {
            return Err(ImageError::Size { size: self.size.len(), geometry: geometry.dims() });
        }
        let mut size = [1; 3];
        size.iter_mut().zip(&self.size).for_each(|(to, n)| *to = *n);
        let sampler = sampler(
            (self.coordinates.as_deref().unwrap_or("texels"), &self.filter, &self.level_filter),
            (&self.address, &self.border, &self.compare),
        )?;
        let counts = (size, self.layers, self.samples);
        Image::new(base, geometry, format, counts, (self.levels, self.pitch), sampler)
    }

    /// Whether it fits its buffer of so many bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, buffer: u64) -> Result<(), ImageError> {
        let needs = self.place(0)?.bytes();
        if needs > buffer { Err(ImageError::Buffer { needs, has: buffer }) } else { Ok(()) }
    }
}
