//! Images: what a texture or a surface is bound to, and what reading and writing it means. The PTX interpreter and the
//! SASS simulator share this; which image, which texel and what becomes of the result, each takes from its own
//! instruction. `docs/simulator.md` says what is taken from the manuals and what they leave open.

mod error;
pub mod format;
pub mod sample;
pub mod spec;
pub mod surface;

pub use error::{ImageError, NoImage};

use format::Format;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Width, height and depth; 1 where there is none.
pub type Size = [u32; 3];

/// How the texels of an image are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Geometry {
    /// A row.
    D1,
    /// A rectangle.
    D2,
    /// A box.
    D3,
    /// Several rows.
    Array1,
    /// Several rectangles.
    Array2,
    /// Six squares, the faces of a cube.
    Cube,
    /// Several cubes.
    ArrayCube,
    /// A rectangle with several samples of each texel.
    Samples2,
    /// Several of those.
    ArraySamples2,
}

/// The geometries by their names in PTX.
pub const GEOMETRIES: [(&str, Geometry); 9] = [
    ("1d", Geometry::D1),
    ("2d", Geometry::D2),
    ("3d", Geometry::D3),
    ("a1d", Geometry::Array1),
    ("a2d", Geometry::Array2),
    ("cube", Geometry::Cube),
    ("acube", Geometry::ArrayCube),
    ("2dms", Geometry::Samples2),
    ("a2dms", Geometry::ArraySamples2),
];

impl Geometry {
    /// Dimensions of a layer, a face or the whole.
    pub fn dims(self) -> usize {
        match self {
            Geometry::D1 | Geometry::Array1 => 1,
            Geometry::D3 => 3,
            _ => 2,
        }
    }
    /// Whether it has faces.
    pub fn is_cube(self) -> bool {
        matches!(self, Geometry::Cube | Geometry::ArrayCube)
    }
    /// Whether it has layers.
    pub fn is_array(self) -> bool {
        matches!(self, Geometry::Array1 | Geometry::Array2 | Geometry::ArrayCube | Geometry::ArraySamples2)
    }
    /// Whether its texels have several samples.
    pub fn has_samples(self) -> bool {
        matches!(self, Geometry::Samples2 | Geometry::ArraySamples2)
    }
}

/// What a coordinate outside of an image stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Address {
    /// The image repeats.
    Wrap,
    /// The nearest texel.
    #[default]
    Clamp,
    /// The image repeats, every second time mirrored.
    Mirror,
    /// The colour of the border.
    Border,
}

/// The address modes by name, in the order of the driver's numbers.
pub const ADDRESSES: [(&str, Address); 4] = [
    ("wrap", Address::Wrap),
    ("clamp", Address::Clamp),
    ("mirror", Address::Mirror),
    ("border", Address::Border),
];

/// How a depth is compared with a texel, `depth OP texel`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Compare {
    /// `<`
    Less,
    /// `<=`
    #[default]
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

/// The comparisons by name.
pub const COMPARISONS: [(&str, Compare); 4] = [
    ("lt", Compare::Less),
    ("le", Compare::LessEqual),
    ("gt", Compare::Greater),
    ("ge", Compare::GreaterEqual),
];

/// How a texture is sampled.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sampler {
    /// Floating-point coordinates go from 0 to 1 over the image, not over its texels.
    pub normalized: bool,
    /// For each dimension.
    pub address: [Address; 3],
    /// The weighted mean of the nearest texels, not the nearest one.
    pub linear: bool,
    /// The weighted mean of two levels, not the nearest one.
    pub linear_levels: bool,
    /// What is behind [`Address::Border`].
    pub border: [f32; 4],
    /// For depths.
    pub compare: Compare,
    /// Added to levels that are computed or given.
    pub bias: f32,
    /// The least and the greatest of such levels, if they are bounded by more than what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp: Option<[f32; 2]>,
}

/// A level of an image: half as many texels in each dimension as the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Level {
    /// Distance of its first texel from the image's.
    pub offset: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Bytes from one slice of a volume, layer or face to the next.
    pub slice: u64,
    /// Texels.
    pub size: Size,
}

/// An image in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Image {
    /// Where it starts.
    pub base: u64,
    /// How texels are arranged.
    pub geometry: Geometry,
    /// What a texel is.
    pub format: Format,
    /// Layers, or cubes of an array of cubes; 1 if it is no array.
    pub layers: u32,
    /// Samples of a texel.
    pub samples: u32,
    /// The largest first.
    pub levels: Vec<Level>,
    /// How it is sampled.
    pub sampler: Sampler,
}

/// What a handle is one of: the bit of it that says so (docs/simulator.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bit 61.
    Texture,
    /// Bit 63.
    Surface,
}

/// The bit of the handle of a sampler of its own.
pub const SAMPLER_BIT: u32 = 62;

impl Image {
    /// An image at an address, its rows `pitch` bytes apart (0: without gaps), with so many levels.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(
        base: u64,
        geometry: Geometry,
        format: Format,
        (size, layers, samples): (Size, u32, u32),
        (levels, pitch): (u32, u64),
        sampler: Sampler,
    ) -> Result<Image, ImageError> {
        let most = *size.iter().max().unwrap_or(&0);
        match () {
            () if size.contains(&0) || layers == 0 || samples == 0 || levels == 0 => {
                return Err(ImageError::Nothing);
            }
            () if most > 1 << 17 || layers > 1 << 11 || samples > 16 => {
                return Err(ImageError::Large);
            }
            () if size[geometry.dims()..].iter().any(|n| *n != 1) => {
                return Err(ImageError::Dimensions);
            }
            () if !geometry.is_array() && layers != 1 => return Err(ImageError::Layers),
            () if !geometry.has_samples() && samples != 1 => {
                return Err(ImageError::Samples);
            }
            () if geometry.is_cube() && size[0] != size[1] => {
                return Err(ImageError::Faces);
            }
            () if levels > most.ilog2() + 1 => return Err(ImageError::Levels { levels, texels: most }),
            () if levels > 1 && geometry.has_samples() => return Err(ImageError::LevelsOfSamples),
            () if levels > 1 && pitch != 0 => return Err(ImageError::LevelsApart),
            () if !pitch.is_multiple_of(16) => return Err(ImageError::Pitch),
            () => {}
        }
        let texel = u64::from(format.bytes()) * u64::from(samples);
        if pitch != 0 && pitch < u64::from(size[0]) * texel {
            let row = u64::from(size[0]) * texel;
            return Err(ImageError::Rows { row, pitch });
        }
        let mut image = Image { base, geometry, format, layers, samples, levels: Vec::new(), sampler };
        // Every row starts where any texel may.
        let apart = |row: u64| if pitch == 0 { row.next_multiple_of(16) } else { pitch };
        image.lay_out(size, levels, apart);
        Ok(image)
    }

    /// The same with nothing between rows, as the driver's arrays are laid out here.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn packed(
        base: u64,
        geometry: Geometry,
        format: Format,
        (size, layers): (Size, u32),
        levels: u32,
    ) -> Result<Image, ImageError> {
        let counts = (size, layers, 1);
        let mut image = Image::new(base, geometry, format, counts, (levels, 0), Sampler::default())?;
        image.lay_out(size, levels, |row| row);
        Ok(image)
    }

    /// A row of texels in memory that is no array: it may be longer, and is read by numbers of texels, of which those that are
    /// not there are zeros.
    pub fn linear(base: u64, format: Format, width: u32) -> Image {
        let sampler = Sampler { address: [Address::Border; 3], ..Sampler::default() };
        let (geometry, levels) = (Geometry::D1, Vec::new());
        let mut image = Image { base, geometry, format, layers: 1, samples: 1, levels, sampler };
        image.lay_out([width, 1, 1], 1, |row| row);
        image
    }

    /// Levels one behind the other, with rows as far apart as is said of their bytes.
    fn lay_out(&mut self, size: Size, levels: u32, apart: impl Fn(u64) -> u64) {
        let texel = u64::from(self.format.bytes()) * u64::from(self.samples);
        let slices = u64::from(self.layers) * if self.geometry.is_cube() { 6 } else { 1 };
        let mut offset = 0u64;
        self.levels.clear();
        for n in 0..levels {
            let size = size.map(|s| (s >> n).max(1));
            let pitch = apart(u64::from(size[0]) * texel);
            let slice = pitch * u64::from(size[1]);
            self.levels.push(Level { offset, pitch, slice, size });
            offset += slice * u64::from(size[2]) * slices;
        }
    }

    /// Some of its levels, and of its layers, as an image of its own; `None` if they are not there.
    pub fn part(&self, levels: std::ops::Range<usize>, layers: std::ops::Range<u32>) -> Option<Image> {
        let (count, faces) =
            (layers.end.checked_sub(layers.start)?, if self.geometry.is_cube() { 6 } else { 1 });
        if count == 0 || layers.end > self.layers || levels.is_empty() {
            return None;
        }
        let before = u64::from(layers.start) * faces;
        let mut part = Image { layers: count, levels: self.levels.get(levels)?.to_vec(), ..self.clone() };
        part.levels.iter_mut().for_each(|l| l.offset += before * l.slice);
        // Surfaces start where the first level does.
        let first = part.levels.first()?.offset;
        part.base += first;
        part.levels.iter_mut().for_each(|l| l.offset -= first);
        Some(part)
    }

    /// Bytes of memory that it takes, to the last texel.
    pub fn bytes(&self) -> u64 {
        let Some(last) = self.levels.last() else { return 0 };
        let faces = if self.geometry.is_cube() { 6 } else { 1 };
        let slices = u64::from(last.size[2]) * u64::from(self.layers) * faces;
        let row = u64::from(last.size[0]) * u64::from(self.samples) * u64::from(self.format.bytes());
        last.offset + last.slice * slices - last.pitch + row
    }

    /// Texels of its largest level.
    pub fn size(&self) -> Size {
        self.levels.first().map_or([1; 3], |l| l.size)
    }

    /// Address of a texel's sample, which is there; the slice counts layers and faces.
    fn texel(&self, level: &Level, [x, y, z]: Size, slice: u64, sample: u32) -> u64 {
        let texel = u64::from(self.format.bytes());
        let column = (u64::from(x) * u64::from(self.samples) + u64::from(sample)) * texel;
        self.base + level.offset + (slice + u64::from(z)) * level.slice + u64::from(y) * level.pitch + column
    }

    /// The size of a level as queries tell it; `None` of dimensions that the geometry lacks, and of levels that are not
    /// there.
    pub fn extent(&self, level: u32, dimension: usize) -> Option<u32> {
        let level = self.levels.get(level as usize)?;
        (dimension < self.geometry.dims()).then(|| level.size[dimension])
    }
}

/// What can be asked of an image beside its size: the attributes of PTX's `txq` and `suq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute {
    /// OpenCL's number of the type of a channel.
    ChannelType,
    /// OpenCL's number of the order of channels.
    ChannelOrder,
    /// 1 if coordinates are normalized.
    Normalized,
    /// 1 if they are not, whatever the texture says.
    ForceUnnormalized,
    /// The driver's number of the filter.
    Filter,
    /// The driver's numbers of the address modes.
    Address(u8),
    /// Layers; 0 if it is no array.
    ArraySize,
    /// Levels; 0 if there is one.
    Levels,
    /// Samples; 0 without.
    Samples,
    /// Whether it is linear memory.
    Linear,
}

impl Sampler {
    /// The value of an attribute; `None` of what is the image's.
    pub fn attribute(&self, a: Attribute) -> Option<u32> {
        Some(match a {
            Attribute::Filter => self.linear.into(),
            Attribute::ForceUnnormalized => (!self.normalized).into(),
            Attribute::Address(n) => {
                let mode = self.address[usize::from(n).min(2)];
                ADDRESSES.iter().position(|a| a.1 == mode).map_or(0, |n| n as u32)
            }
            _ => return None,
        })
    }
}

impl Image {
    /// The value of an attribute.
    pub fn attribute(&self, a: Attribute) -> u32 {
        match a {
            Attribute::ChannelType => self.format.opencl_type(),
            Attribute::ChannelOrder => self.format.opencl_order(),
            Attribute::Normalized => self.sampler.normalized.into(),
            Attribute::ForceUnnormalized | Attribute::Linear => 0,
            Attribute::Filter | Attribute::Address(_) => self.sampler.attribute(a).unwrap_or(0),
            Attribute::ArraySize => {
                if self.geometry.is_array() {
                    self.layers
                } else {
                    0
                }
            }
            Attribute::Levels => match self.levels.len() {
                1 => 0,
                n => n as u32,
            },
            Attribute::Samples => {
                if self.geometry.has_samples() {
                    self.samples
                } else {
                    0
                }
            }
        }
    }
}

/// The images of a memory; their numbers are in the lower words of handles. Samplers of their own have numbers, too.
#[derive(Clone, Debug, Default)]
pub struct Images {
    images: BTreeMap<u32, Arc<Image>>,
    /// From number 1 on, as an image has it.
    samplers: Vec<Sampler>,
    /// What the names of a module's variables and parameters stand for.
    names: BTreeMap<String, Bound>,
}

/// What a name of a texture, sampler or surface stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The handle of a texture or surface.
    Image(u64),
    /// The number of a sampler.
    Sampler(u32),
}

/// The bits of a word before sm_90 that are the number of an image; those above are that of a sampler, but for the highest.
const NUMBER_BITS: u32 = 20;
const SAMPLER_MASK: u32 = 0x7ff;

/// Most numbers before those are given again whose images are gone: the driver's tables have a row for each.
const NUMBERS: u32 = 1 << 16;

impl Images {
    /// The handle of the `n`-th image.
    pub fn handle(n: usize, kind: Kind) -> u64 {
        let bit = match kind {
            Kind::Texture => 61,
            Kind::Surface => 63,
        };
        1 << bit | (n as u64 + 1)
    }
    /// Adds an image behind the others; its place, from which handles are made.
    pub fn push(&mut self, image: Image) -> usize {
        let next = self.images.last_key_value().map_or(1, |l| l.0 + 1);
        let free = || (1..next).find(|n| !self.images.contains_key(n));
        let number = if next > NUMBERS { free().unwrap_or(next) } else { next };
        self.images.insert(number, Arc::new(image));
        number as usize - 1
    }
    /// Puts an image in the place of a number.
    pub fn put(&mut self, number: u32, image: Image) {
        self.images.insert(number, Arc::new(image));
    }
    /// Takes away the image of a handle.
    ///
    /// # Errors
    /// When it is no handle of this kind.
    pub fn remove(&mut self, handle: u64, kind: Kind) -> Result<(), NoImage> {
        self.by_handle(handle, kind)?;
        self.images.remove(&(handle as u32));
        Ok(())
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }
    /// All of them, with the lower words of their handles.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Image)> {
        self.images.iter().map(|(n, image)| (*n, &**image))
    }
    /// The image of the lower word of a handle.
    ///
    /// # Errors
    /// When there is none.
    pub fn by_number(&self, number: u32) -> Result<Arc<Image>, NoImage> {
        let number = number & ((1 << NUMBER_BITS) - 1);
        self.images.get(&number).cloned().ok_or(NoImage::Number(number))
    }
    /// The image of the lower word of a handle, as a sampler of this number has it; with number 0 its own.
    ///
    /// # Errors
    /// When there is none.
    pub fn sampled(&self, number: u32, sampler: u32) -> Result<Arc<Image>, NoImage> {
        let image = self.by_number(number)?;
        let Some(n) = sampler.checked_sub(1) else { return Ok(image) };
        let own = self.samplers.get(n as usize);
        let own = own.ok_or(NoImage::Sampler(sampler))?;
        // That coordinates are normalized is said of the texture, unless the sampler takes them for texels.
        let normalized = image.sampler.normalized && own.normalized;
        Ok(Arc::new(Image { sampler: Sampler { normalized, ..*own }, ..(*image).clone() }))
    }
    /// The number of the sampler in a word that has one above that of an image.
    pub fn upper_sampler(word: u32) -> u32 {
        word >> NUMBER_BITS & SAMPLER_MASK
    }
    /// The bits of a word for the number of a sampler.
    pub fn sampler_bits(number: u32) -> u32 {
        number << NUMBER_BITS
    }
    /// Adds a sampler; its number.
    pub fn push_sampler(&mut self, sampler: Sampler) -> u32 {
        self.samplers.push(sampler);
        self.samplers.len() as u32
    }
    /// All samplers with their numbers.
    pub fn all_samplers(&self) -> impl Iterator<Item = (u32, &Sampler)> {
        (1..).zip(&self.samplers)
    }
    /// Lets a name stand for something.
    pub fn bind(&mut self, name: &str, bound: Bound) {
        self.names.insert(name.to_string(), bound);
    }
    /// What a name stands for.
    ///
    /// # Errors
    /// When nothing is bound to it.
    pub fn named(&self, name: &str) -> Result<Bound, NoImage> {
        let bound = self.names.get(name).copied();
        bound.ok_or_else(|| NoImage::Unbound(name.into()))
    }
    /// The image of a handle.
    ///
    /// # Errors
    /// When it is no handle of this kind.
    pub fn by_handle(&self, handle: u64, kind: Kind) -> Result<Arc<Image>, NoImage> {
        let wrong = NoImage::Handle(handle, kind);
        let found = match (handle as u32 as usize).checked_sub(1) {
            Some(n) if Images::handle(n, kind) == handle => self.images.get(&(handle as u32)),
            _ => None,
        };
        found.cloned().ok_or(wrong)
    }
}

/// What reads so many bytes (1, 2, 4 or 8) at an address.
pub type Read<'r, E> = &'r mut dyn FnMut(u64, u32) -> Result<u64, E>;
