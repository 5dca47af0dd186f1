//! Images in launch files (`docs/launch-files.md`).

use super::format::{ELEMENTS, Format};
use super::{ADDRESSES, COMPARISONS, GEOMETRIES, Image, Sampler};
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

fn one() -> u32 {
    1
}

/// What a word stands for.
fn named<T: Copy>(what: &str, word: &str, table: &[(&str, T)]) -> Result<T, String> {
    let names = || table.iter().map(|t| t.0).collect::<Vec<_>>().join(", ");
    let found = table.iter().find(|t| t.0 == word).map(|t| t.1);
    found.ok_or_else(|| format!("{what} '{word}'; there are {}", names()))
}

impl ImageSpec {
    /// The image where its buffer starts.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn place(&self, base: u64) -> Result<Image, String> {
        let geometry = named("geometry", &self.geometry, &GEOMETRIES)?;
        let format = Format::new(named("type", &self.ty, &ELEMENTS)?, self.channels, self.normalized)?;
        if self.size.len() != geometry.dims() {
            return Err(format!(
                "a size of {} dimensions; the geometry has {}",
                self.size.len(),
                geometry.dims()
            ));
        }
        if self.address.len() > 3 || self.border.len() > 4 {
            return Err("at most three address modes and four channels of a border".into());
        }
        let mut size = [1; 3];
        size.iter_mut().zip(&self.size).for_each(|(to, n)| *to = *n);
        let word = |w: &Option<String>, what: &str, names: [&'static str; 2]| match w {
            None => Ok(false),
            Some(w) => named(what, w, &[(names[0], false), (names[1], true)]),
        };
        let mut sampler = Sampler {
            normalized: word(&self.coordinates, "coordinates", ["texels", "normalized"])?,
            linear: word(&self.filter, "filter", ["point", "linear"])?,
            linear_levels: word(&self.level_filter, "filter of levels", ["point", "linear"])?,
            ..Sampler::default()
        };
        for (to, mode) in sampler.address.iter_mut().zip(&self.address) {
            *to = named("address mode", mode, &ADDRESSES)?;
        }
        sampler.border.iter_mut().zip(&self.border).for_each(|(to, x)| *to = *x);
        if let Some(c) = &self.compare {
            sampler.compare = named("comparison", c, &COMPARISONS)?;
        }
        let counts = (size, self.layers, self.samples);
        Image::new(base, geometry, format, counts, (self.levels, self.pitch), sampler)
    }

    /// Whether it fits its buffer of so many bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, buffer: u64) -> Result<(), String> {
        let needs = self.place(0)?.bytes();
        if needs > buffer { Err(format!("it has {needs} bytes, its buffer {buffer}")) } else { Ok(()) }
    }
}
