//! Arrays, and textures and surfaces, which the simulator knows as images (`sim::image`). An array is memory of the device
//! that no pointer leads to; its rows, layers, faces and levels lie one behind the other.

use crate::attributes;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::memory::Kind;
use crate::work::{End, Side};
use sim::image::format::{Element, Format};
use sim::image::{Geometry, Image, Kind as Bound, Sampler, Size};

/// What an array is made as: `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Texels; 0 in dimensions that there are not, layers or faces in the last one.
    pub size: [usize; 3],
    /// Number of the format of a channel.
    pub format: u32,
    /// Channels.
    pub channels: u32,
    /// See [`flag`].
    pub flags: u32,
}

/// Flags of arrays.
pub mod flag {
    /// The last dimension counts layers.
    pub const LAYERED: u32 = 1;
    /// Surfaces may be bound to it.
    pub const SURFACE: u32 = 2;
    /// It has the faces of cubes.
    pub const CUBE: u32 = 4;
    /// Four texels of it may be gathered.
    pub const GATHER: u32 = 8;
    /// Those that are built: all of these.
    pub const BUILT: u32 = 15;
    /// Those that there are.
    pub const ALL: u32 = 0x1ff;
}

/// Formats of channels by number: what a channel is, whether integers stand for numbers up to 1, and how many channels go
/// with it, if that is fixed.
const FORMATS: [(u32, Element, bool, Option<u32>); 20] = [
    (0x01, Element::U8, false, None),
    (0x02, Element::U16, false, None),
    (0x03, Element::U32, false, None),
    (0x08, Element::S8, false, None),
    (0x09, Element::S16, false, None),
    (0x0a, Element::S32, false, None),
    (0x10, Element::F16, false, None),
    (0x20, Element::F32, false, None),
    (0xc0, Element::U8, true, Some(1)),
    (0xc1, Element::U8, true, Some(2)),
    (0xc2, Element::U8, true, Some(4)),
    (0xc3, Element::U16, true, Some(1)),
    (0xc4, Element::U16, true, Some(2)),
    (0xc5, Element::U16, true, Some(4)),
    (0xc6, Element::S8, true, Some(1)),
    (0xc7, Element::S8, true, Some(2)),
    (0xc8, Element::S8, true, Some(4)),
    (0xc9, Element::S16, true, Some(1)),
    (0xca, Element::S16, true, Some(2)),
    (0xcb, Element::S16, true, Some(4)),
];

/// Formats that the header has and that are not built: packed in blocks or planes.
const OTHER_FORMATS: [std::ops::RangeInclusive<u32>; 4] =
    [0x50..=0x50, 0x91..=0x9f, 0xa1..=0xa9, 0xb0..=0xb5];

/// Formats of views in the header's order from 1 on: what a channel is, and how many.
const VIEWS: [(Element, u32); 24] = {
    use Element::{F16, F32, S8, S16, S32, U8, U16, U32};
    let kinds = [U8, S8, U16, S16, U32, S32, F16, F32];
    let mut all = [(U8, 1); 24];
    let mut n = 0;
    while n < 24 {
        all[n] = (kinds[n / 3], [1, 2, 4][n % 3]);
        n += 1;
    }
    all
};

/// Says that something is not built.
pub fn missing(what: &str) -> Error {
    say!("oxcuda: {what} are not built");
    Error::NOT_SUPPORTED
}

/// A format by its number and channels.
pub fn format(number: u32, channels: u32) -> Result<Format> {
    let Some((_, element, normalized, fixed)) = FORMATS.into_iter().find(|f| f.0 == number) else {
        let known = OTHER_FORMATS.iter().any(|r| r.contains(&number));
        return Err(if known {
            missing("block-compressed, planar and packed formats")
        } else {
            Error::INVALID_VALUE
        });
    };
    if fixed.is_some_and(|n| n != channels) {
        return Err(Error::INVALID_VALUE);
    }
    Format::new(element, channels, normalized).map_err(|_| Error::INVALID_VALUE)
}

/// Attributes of the device that bound arrays of a geometry: width, height, depth or layers. For textures one list or the other, and
/// for surfaces.
fn bounds(geometry: Geometry, gather: bool, levels: bool) -> (&'static [[u32; 3]], [u32; 3]) {
    match geometry {
        Geometry::D1 if levels => (&[[77, 0, 0]], [55, 0, 0]),
        Geometry::D1 => (&[[21, 0, 0]], [55, 0, 0]),
        Geometry::D2 if gather => (&[[45, 46, 0]], [56, 57, 0]),
        Geometry::D3 => (&[[24, 25, 26], [47, 48, 49]], [58, 59, 60]),
        Geometry::Array1 => (&[[42, 0, 43]], [61, 0, 62]),
        Geometry::Array2 => (&[[27, 28, 29]], [63, 64, 65]),
        Geometry::Cube => (&[[52, 52, 0]], [66, 66, 0]),
        Geometry::ArrayCube => (&[[53, 53, 54]], [67, 67, 68]),
        _ if levels => (&[[73, 74, 0]], [56, 57, 0]),
        _ => (&[[22, 23, 0]], [56, 57, 0]),
    }
}

impl Shape {
    /// Geometry, texels of a layer or the whole, layers or cubes.
    fn layout(&self, levels: bool) -> Result<(Geometry, Size, u32)> {
        let has = |f: u32| self.flags & f != 0;
        let [w, h, d] = self.size;
        let geometry = match (has(flag::LAYERED), has(flag::CUBE), h, d) {
            (false, false, 0, 0) => Geometry::D1,
            (false, false, _, 0) => Geometry::D2,
            (false, false, 1.., _) => Geometry::D3,
            (true, false, 0, 1..) => Geometry::Array1,
            (true, false, _, 1..) => Geometry::Array2,
            (false, true, _, 6) if w == h => Geometry::Cube,
            (true, true, _, 6..) if w == h && d.is_multiple_of(6) => Geometry::ArrayCube,
            _ => return Err(Error::INVALID_VALUE),
        };
        // Four texels are gathered in two dimensions.
        if has(flag::GATHER) && matches!(geometry, Geometry::D1 | Geometry::D3 | Geometry::Array1) {
            return Err(Error::INVALID_VALUE);
        }
        let (texture, surface) = bounds(geometry, has(flag::GATHER), levels);
        let fits = |list: &[u32; 3]| {
            let most = |number: u32| attributes::attribute(number).unwrap_or(0) as usize;
            self.size.iter().zip(list).all(|(n, number)| *number == 0 || *n <= most(*number))
        };
        if !texture.iter().any(fits) || has(flag::SURFACE) && !fits(&surface) {
            return Err(Error::INVALID_VALUE);
        }
        let layers = match geometry {
            Geometry::Array1 | Geometry::Array2 => d,
            Geometry::ArrayCube => d / 6,
            _ => 1,
        };
        let depth = if geometry == Geometry::D3 { d } else { 1 };
        Ok((geometry, [w, h.max(1), depth].map(|n| n as u32), layers as u32))
    }

    /// What it is in memory from an address on, in so many levels, if it is made with levels.
    fn image(&self, base: u64, levels: Option<u32>) -> Result<Image> {
        if self.flags & !flag::ALL != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if self.flags & !flag::BUILT != 0 {
            return Err(missing("arrays for depths, graphics, video, and sparse ones or without memory"));
        }
        let (geometry, size, layers) = self.layout(levels.is_some())?;
        let format = format(self.format, self.channels)?;
        Image::packed(base, geometry, format, (size, layers), levels.unwrap_or(1))
            .map_err(|_| Error::INVALID_VALUE)
    }

    /// The shape of a level.
    fn level(&self, n: u32) -> Shape {
        let less = |i: usize| match self.size[i] {
            0 => 0,
            size => (size >> n).max(1),
        };
        let volume = self.flags & (flag::LAYERED | flag::CUBE) == 0;
        Shape { size: [less(0), less(1), if volume { less(2) } else { self.size[2] }], ..*self }
    }
}

/// An array, with one level or several.
#[derive(Debug)]
pub struct Array {
    /// As asked for; of a level, what that would be by itself.
    pub shape: Shape,
    /// Where it is, and how it lies there.
    pub image: Image,
    /// The context that it belongs to.
    pub context: u64,
    /// Whether it is a level of another one.
    pub is_level: bool,
    /// The arrays that are its levels, if it has several.
    levels: Vec<u64>,
}

/// What C says a texture or surface is bound to: `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    kind: u32,
    fields: [u64; 16],
    flags: u32,
}

impl Resource {
    fn new(kind: u32, first: [u64; 5]) -> Resource {
        let mut fields = [0; 16];
        fields[..5].copy_from_slice(&first);
        Resource { kind, fields, flags: 0 }
    }
    /// An array.
    pub fn array(handle: u64) -> Resource {
        Resource::new(resource::ARRAY, [handle, 0, 0, 0, 0])
    }
    /// Memory of a format (its number, and channels), and how many bytes of it.
    pub fn linear(address: u64, [format, channels]: [u32; 2], bytes: u64) -> Resource {
        let format = u64::from(format) | u64::from(channels) << 32;
        Resource::new(resource::LINEAR, [address, format, bytes, 0, 0])
    }
    /// The same as rows that are so many bytes apart.
    pub fn pitched(
        address: u64,
        [format, channels]: [u32; 2],
        [width, height]: [usize; 2],
        pitch: usize,
    ) -> Resource {
        let format = u64::from(format) | u64::from(channels) << 32;
        Resource::new(resource::PITCHED, [address, format, width as u64, height as u64, pitch as u64])
    }
    /// The array that it is.
    pub fn of_array(&self) -> Option<u64> {
        (self.kind == resource::ARRAY).then_some(self.fields[0])
    }
    /// The address of the memory that it is.
    pub fn of_memory(&self) -> Option<u64> {
        matches!(self.kind, resource::LINEAR | resource::PITCHED).then_some(self.fields[0])
    }
}

/// `CUDA_TEXTURE_DESC`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampling {
    /// What lies beyond the edge in each dimension.
    pub address: [u32; 3],
    /// Whether texels are averaged.
    pub filter: u32,
    /// How they are read.
    pub flags: u32,
    anisotropy: u32,
    level_filter: u32,
    bias: f32,
    clamp: [f32; 2],
    /// What lies beyond the edge.
    pub border: [f32; 4],
    reserved: [u32; 12],
}

/// `CUDA_RESOURCE_VIEW_DESC`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct View {
    format: u32,
    size: [usize; 3],
    levels: [u32; 2],
    layers: [u32; 2],
    reserved: [u32; 16],
}

/// What a texture or a surface was made of.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its handle.
    pub handle: u64,
    /// What it is bound to.
    pub resource: Resource,
    /// How it is sampled, of a texture.
    pub sampling: Option<Sampling>,
    /// Which part of it, and as what.
    pub view: Option<View>,
    context: u64,
}

/// Kinds of resources.
mod resource {
    pub const ARRAY: u32 = 0;
    pub const LEVELS: u32 = 1;
    pub const LINEAR: u32 = 2;
    pub const PITCHED: u32 = 3;
}

/// Flags of textures.
mod read {
    pub const AS_INTEGER: u32 = 1;
    pub const NORMALIZED: u32 = 2;
    pub const SRGB: u32 = 0x10;
    pub const SEAMLESS: u32 = 0x40;
    pub const ALL: u32 = 0x73;
}

impl Sampling {
    fn sampler(&self, geometry: Geometry) -> Result<Sampler> {
        let mode = |n: u32| sim::image::ADDRESSES.get(n as usize).map(|a| a.1).ok_or(Error::INVALID_VALUE);
        let linear = |n: u32| if n < 2 { Ok(n == 1) } else { Err(Error::INVALID_VALUE) };
        if self.flags & !read::ALL != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if self.flags & read::SRGB != 0 {
            return Err(missing("textures that convert from sRGB"));
        }
        if self.flags & read::SEAMLESS != 0 {
            match (geometry.is_cube(), linear(self.filter)?) {
                (false, _) => return Err(Error::INVALID_VALUE),
                (_, true) => return Err(missing("filters across the edges of cubes")),
                _ => {}
            }
        }
        if self.anisotropy > 1 {
            return Err(missing("anisotropic filters"));
        }
        let [x, y, z] = self.address;
        Ok(Sampler {
            normalized: self.flags & read::NORMALIZED != 0,
            address: [mode(x)?, mode(y)?, mode(z)?],
            linear: linear(self.filter)?,
            linear_levels: linear(self.level_filter)?,
            border: self.border,
            bias: self.bias,
            clamp: None,
            ..Sampler::default()
        })
    }
}

impl Driver {
    /// Makes an array with one level, or with several, which are bounded by its size.
    pub fn make_array(&mut self, shape: Shape, levels: Option<u32>) -> Result<u64> {
        let context = self.context()?;
        self.unsafe_call()?;
        let most = shape.size;
        let depth = if shape.flags & (flag::LAYERED | flag::CUBE) == 0 { most[2] } else { 0 };
        let most = most[0].max(most[1]).max(depth).max(1).ilog2() + 1;
        let levels = levels.map(|n| n.clamp(1, most));
        let count = levels.unwrap_or(1);
        let bytes = shape.image(0, levels)?.bytes();
        let size = usize::try_from(bytes).map_err(|_| Error::OUT_OF_MEMORY)?;
        let base = self.space.array(size, context)?;
        let image = shape.image(base, levels)?;
        let mut parts = Vec::new();
        for n in (0..count).filter(|_| levels.is_some()) {
            let part = image.part(n as usize..n as usize + 1, 0..image.layers).ok_or(Error::UNKNOWN)?;
            let (shape, levels) = (shape.level(n), Vec::new());
            parts.push(self.arrays.add(Array { shape, image: part, context, is_level: true, levels }));
        }
        let array = Array { shape, image, context, is_level: false, levels: parts };
        Ok(if levels.is_some() { self.mipmaps.add(array) } else { self.arrays.add(array) })
    }

    /// The array that is a level of one with several.
    pub fn level_of(&self, handle: u64, level: u32) -> Result<u64> {
        self.mipmaps.get(handle)?.levels.get(level as usize).copied().ok_or(Error::INVALID_VALUE)
    }

    /// Takes an array back.
    pub fn free_array(&mut self, handle: u64, levels: bool) -> Result<()> {
        self.unsafe_call()?;
        let table = if levels { &mut self.mipmaps } else { &mut self.arrays };
        if table.get(handle)?.is_level {
            return Err(Error::INVALID_VALUE);
        }
        let gone = table.remove(handle)?;
        for part in gone.levels {
            self.arrays.remove(part)?;
        }
        self.space.free(gone.image.base, &[Kind::Array]).map(|_| ())
    }

    /// Takes back what belongs to a context; its memory goes by itself.
    pub fn free_images_of(&mut self, context: u64) -> Result<()> {
        for table in [&mut self.arrays, &mut self.mipmaps] {
            let own: Vec<u64> = table.iter().filter(|(_, a)| a.context == context).map(|a| a.0).collect();
            own.into_iter().try_for_each(|a| table.remove(a).map(|_| ()))?;
        }
        for kind in [Bound::Texture, Bound::Surface] {
            let own = self.bound(kind).iter().filter(|o| o.context == context).map(|o| o.handle);
            own.collect::<Vec<_>>().into_iter().try_for_each(|h| self.unbind(h, kind))?;
        }
        Ok(())
    }

    /// The place of a box in an array, as an end of a copy: bytes, row and slice of its first byte, and its bytes of a row, rows,
    /// slices.
    pub fn in_array(&self, handle: u64, at: [u64; 3], size: [u64; 3]) -> Result<End> {
        let image = &self.arrays.get(handle)?.image;
        let level = image.levels.first().ok_or(Error::UNKNOWN)?;
        let texel = u64::from(image.format.bytes());
        let faces = if image.geometry.is_cube() { 6 } else { 1 };
        let slices = u64::from(level.size[2]) * u64::from(image.layers) * faces;
        let all = [u64::from(level.size[0]) * texel, level.size[1].into(), slices];
        let fits = (0..3).all(|i| at[i].checked_add(size[i]).is_some_and(|end| end <= all[i]));
        if !fits || !at[0].is_multiple_of(texel) || !size[0].is_multiple_of(texel) {
            return Err(Error::INVALID_VALUE);
        }
        let offset = level.offset + at[2] * level.slice + at[1] * level.pitch + at[0];
        Ok(End {
            side: Side::Device,
            address: image.base + offset,
            pitch: level.pitch,
            slice: level.slice,
            array: Some((handle, at)),
        })
    }

    /// Whether so many bytes are whole elements of an array; their size.
    pub fn elements(&self, handle: u64, size: usize) -> Result<u32> {
        let bytes = self.arrays.get(handle)?.image.format.bytes();
        if size.is_multiple_of(bytes as usize) { Ok(bytes) } else { Err(Error::INVALID_VALUE) }
    }

    /// Bytes of an array that follow one another from an offset on, as an end of a copy.
    pub fn along_array(&self, handle: u64, offset: usize, size: usize) -> Result<End> {
        let image = &self.arrays.get(handle)?.image;
        let level = image.levels.first().ok_or(Error::UNKNOWN)?;
        // Of a level of several layers or faces, which lie between other levels, it is the first one.
        let whole = match self.arrays.get(handle)?.is_level {
            true => level.slice * u64::from(level.size[2]),
            false => image.bytes(),
        };
        let end = (offset as u64).checked_add(size as u64);
        if end.is_none_or(|e| e > whole) {
            return Err(Error::INVALID_VALUE);
        }
        Ok(End::flat(Side::Device, image.base + level.offset + offset as u64))
    }

    /// What a texture is bound to, and its image before it is sampled somehow.
    fn source(&self, r: &Resource) -> Result<Image> {
        let [first, format_and_channels, a, b, c, ..] = r.fields;
        let format = || format(format_and_channels as u32, (format_and_channels >> 32) as u32);
        let most = |n: u32| attributes::attribute(n).unwrap_or(0) as u64;
        let aligned =
            |n: u32, x: u64| if x.is_multiple_of(most(n)) { Ok(()) } else { Err(Error::INVALID_VALUE) };
        let within =
            |x: u64, n: u32| if (1..=most(n)).contains(&x) { Ok(()) } else { Err(Error::INVALID_VALUE) };
        if r.flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        match r.kind {
            resource::ARRAY => Ok(self.arrays.get(first)?.image.clone()),
            resource::LEVELS => Ok(self.mipmaps.get(first)?.image.clone()),
            resource::LINEAR => {
                aligned(14, first)?;
                let format = format()?;
                let width = a / u64::from(format.bytes());
                within(width, 69)?;
                self.space.check(first, a)?;
                Ok(Image::linear(first, format, width as u32))
            }
            resource::PITCHED => {
                aligned(14, first)?;
                aligned(51, c)?;
                within(a, 70)?;
                within(b, 71)?;
                within(c, 72)?;
                let counts = ([a as u32, b as u32, 1], 1, 1);
                let image = Image::new(first, Geometry::D2, format()?, counts, (1, c), Sampler::default());
                let image = image.map_err(|_| Error::INVALID_VALUE)?;
                self.space.check(first, image.bytes())?;
                Ok(image)
            }
            _ => Err(Error::INVALID_VALUE),
        }
    }

    /// The part that a view is of, and as what it is seen.
    fn seen(&self, r: &Resource, image: &Image, view: &View) -> Result<Image> {
        let shape = match r.kind {
            resource::ARRAY => self.arrays.get(r.fields[0])?.shape,
            resource::LEVELS => self.mipmaps.get(r.fields[0])?.shape,
            _ => return Err(Error::INVALID_VALUE),
        };
        if view.size != shape.size {
            return Err(Error::INVALID_VALUE);
        }
        // Layers count faces.
        let faces = if image.geometry.is_cube() { 6 } else { 1 };
        let [first, last] = view.layers;
        let end = last.checked_add(1).ok_or(Error::INVALID_VALUE)?;
        let layers = match image.geometry.is_array() {
            true if first.is_multiple_of(faces) && end.is_multiple_of(faces) => first / faces..end / faces,
            false if (first, last) == (0, 0) => 0..1,
            _ => return Err(Error::INVALID_VALUE),
        };
        let levels = view.levels[0] as usize..view.levels[1] as usize + 1;
        let mut part = image.part(levels, layers).ok_or(Error::INVALID_VALUE)?;
        if let Some(n) = view.format.checked_sub(1) {
            let Some((element, channels)) = VIEWS.get(n as usize).copied() else {
                let known = (0x19..=0x22).contains(&view.format);
                return Err(if known { missing("views of compressed blocks") } else { Error::INVALID_VALUE });
            };
            let format = Format::new(element, channels, false).map_err(|_| Error::INVALID_VALUE)?;
            if format.bytes() != part.format.bytes() {
                return Err(Error::INVALID_VALUE);
            }
            part.format = format;
        }
        Ok(part)
    }

    /// Makes a texture.
    pub fn make_texture(
        &mut self,
        resource: Resource,
        sampling: Sampling,
        view: Option<View>,
    ) -> Result<u64> {
        let whole = self.source(&resource)?;
        let mut image = match &view {
            Some(v) => self.seen(&resource, &whole, v)?,
            None => whole,
        };
        let mut sampler = sampling.sampler(image.geometry)?;
        let promoted = sampling.flags & read::AS_INTEGER == 0;
        let (float, bytes) = (image.format.element.is_float(), image.format.element.bytes());
        image.format.normalized |= promoted && !float && bytes < 4;
        match resource.kind {
            // Such textures are not sampled.
            resource::LINEAR => sampler = Sampler { normalized: sampler.normalized, ..image.sampler },
            resource::LEVELS if !sampler.normalized => return Err(Error::INVALID_VALUE),
            resource::LEVELS => sampler.clamp = Some(sampling.clamp),
            _ => sampler.bias = 0.0,
        }
        if sampler.linear && !image.format.reads_float() {
            say!("oxcuda: cuTexObjectCreate: integers are not filtered");
            return Err(Error::INVALID_VALUE);
        }
        image.sampler = sampler;
        self.bind(image, Bound::Texture, (resource, Some(sampling), view))
    }

    /// Makes a surface.
    pub fn make_surface(&mut self, resource: Resource) -> Result<u64> {
        if resource.kind != resource::ARRAY {
            return Err(Error::INVALID_VALUE);
        }
        let mut image = self.source(&resource)?;
        let array = self.arrays.get(resource.fields[0])?;
        if array.shape.flags & flag::SURFACE == 0 {
            return Err(Error::INVALID_VALUE);
        }
        // To surfaces faces are layers.
        if image.geometry.is_cube() {
            (image.geometry, image.layers) = (Geometry::Array2, 6 * image.layers);
        }
        self.bind(image, Bound::Surface, (resource, None, None))
    }

    fn bind(
        &mut self,
        image: Image,
        kind: Bound,
        (resource, sampling, view): (Resource, Option<Sampling>, Option<View>),
    ) -> Result<u64> {
        let context = self.context()?;
        let handle = sim::image::Images::handle(self.space.memory.images.push(image), kind);
        self.bound_mut(kind).push(Object { handle, resource, sampling, view, context });
        Ok(handle)
    }

    fn bound(&self, kind: Bound) -> &Vec<Object> {
        if kind == Bound::Texture { &self.textures } else { &self.surfaces }
    }

    fn bound_mut(&mut self, kind: Bound) -> &mut Vec<Object> {
        if kind == Bound::Texture { &mut self.textures } else { &mut self.surfaces }
    }

    /// The texture or surface of a handle.
    pub fn object(&self, handle: u64, kind: Bound) -> Result<Object> {
        self.bound(kind).iter().find(|o| o.handle == handle).copied().ok_or(Error::INVALID_VALUE)
    }

    /// Takes one away.
    pub fn unbind(&mut self, handle: u64, kind: Bound) -> Result<()> {
        self.object(handle, kind)?;
        self.bound_mut(kind).retain(|o| o.handle != handle);
        self.space.memory.images.remove(handle, kind).map_err(|_| Error::INVALID_VALUE)
    }
}
