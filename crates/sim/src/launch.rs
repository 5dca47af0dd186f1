//! Launch files: which kernel to run, on what grid, with what arguments and buffers, and what to compare
//! afterwards. The format is described in `docs/launch-files.md`.

use crate::generate::Generated;
use crate::image::spec::{ImageSpec, NameSpec};
use crate::image::{Bound, Images, Kind};
use crate::memory::Memory;
use crate::number::{self, Number};
use crate::output::Output;
use serde::Deserialize;
use std::collections::BTreeMap;

mod error;
mod tiles;
pub use error::{BufferError, CompareError, Difference, LaunchError, LaunchFileError, ShapeError};
pub use tiles::{Tiles, TilesError};

/// A launch file.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct LaunchFile {
    /// The launches, run one after another on fresh memory each.
    pub launch: Vec<Launch>,
}

/// One kernel launch.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Kernel name.
    pub kernel: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z, if it is launched with clusters.
    #[serde(default)]
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks run at once, so that they may wait for each other.
    #[serde(default)]
    pub cooperative: bool,
    /// Bytes of stack that the driver is asked for, if more than the kernel says that it needs.
    #[serde(default)]
    pub stack: u32,
    /// Bytes of dynamic shared memory.
    #[serde(default)]
    pub shared: u32,
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// Buffers by name.
    #[serde(default)]
    pub buffers: BTreeMap<String, Buffer>,
    /// Images in buffers, by name.
    #[serde(default)]
    pub images: BTreeMap<String, ImageSpec>,
    /// What the names of textures, samplers and surfaces in the PTX stand for.
    #[serde(default)]
    pub names: BTreeMap<String, NameSpec>,
    /// Parameters and memory that were made up for the kernel; `args` and `buffers` are empty then.
    #[serde(skip)]
    pub generated: Option<Generated>,
}

/// An argument: exactly one of the fields is set.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct Arg {
    /// A 32-bit integer, signed or not.
    pub i32: Option<i64>,
    /// A 64-bit integer.
    pub i64: Option<i64>,
    /// A binary32.
    pub f32: Option<f64>,
    /// A binary64.
    pub f64: Option<f64>,
    /// The address of a buffer.
    pub buffer: Option<String>,
    /// A struct: fields in order, each at its natural alignment.
    pub fields: Option<Vec<Field>>,
    /// A tensor map.
    pub tensormap: Option<Tiles>,
    /// The handle of an image that is read as a texture.
    pub texture: Option<String>,
    /// The handle of an image that is a surface.
    pub surface: Option<String>,
}

impl Arg {
    /// The image that it is a handle of, and as what.
    fn image(&self) -> Option<(&str, Kind)> {
        let texture = self.texture.as_deref().map(|name| (name, Kind::Texture));
        texture.or(self.surface.as_deref().map(|name| (name, Kind::Surface)))
    }

    /// What is wrong with it.
    fn check(&self) -> Result<(), LaunchError> {
        let integers = [self.i32.is_some(), self.i64.is_some()];
        let floats = [self.f32.is_some(), self.f64.is_some()];
        let others = [self.buffer.is_some(), self.fields.is_some(), self.tensormap.is_some()];
        let images = [self.texture.is_some(), self.surface.is_some()];
        if integers.iter().chain(&floats).chain(&others).chain(&images).filter(|k| **k).count() != 1 {
            return Err(LaunchError::Keys);
        }
        self.i32.map_or(Ok(()), |n| Number::Int(n).check(Elem::I32))?;
        let mut fields = self.fields.iter().flatten();
        Ok(fields.try_for_each(|f| f.values.iter().try_for_each(|n| n.check(f.ty)))?)
    }
}

/// A field of a struct argument: an array of one type.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Element type.
    #[serde(rename = "type")]
    pub ty: Elem,
    /// Values.
    pub values: Vec<Number>,
}

/// An element type.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Elem {
    /// Unsigned bytes.
    U8,
    /// 16-bit integers.
    I16,
    /// 32-bit integers.
    I32,
    /// Unsigned 32-bit integers.
    U32,
    /// 64-bit integers.
    I64,
    /// Unsigned 64-bit integers.
    U64,
    /// binary32
    F32,
    /// binary64
    F64,
}

impl Elem {
    /// Size in bytes.
    pub fn size(self) -> usize {
        match self {
            Elem::U8 => 1,
            Elem::I16 => 2,
            Elem::I32 | Elem::U32 | Elem::F32 => 4,
            Elem::I64 | Elem::U64 | Elem::F64 => 8,
        }
    }
    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Elem::F32 | Elem::F64)
    }
    /// NumPy's name.
    pub fn numpy(self) -> &'static str {
        match self {
            Elem::U8 => "|u1",
            Elem::I16 => "<i2",
            Elem::I32 => "<i4",
            Elem::U32 => "<u4",
            Elem::I64 => "<i8",
            Elem::U64 => "<u8",
            Elem::F32 => "<f4",
            Elem::F64 => "<f8",
        }
    }
    /// The bits of a value of this type.
    fn bits(self, x: f64) -> u64 {
        Number::Float(x).bits(self)
    }
}

/// A buffer in global memory. At most one of the initializers is given; without one it is zero.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Element type.
    #[serde(rename = "type")]
    pub ty: Elem,
    /// Number of elements.
    pub length: usize,
    /// Every element is this.
    pub fill: Option<Number>,
    /// `[start, step]`
    pub iota: Option<[Number; 2]>,
    /// These first elements; the rest is zero.
    pub list: Option<Vec<Number>>,
    /// Uniform in `[low, high]` (integers, also in floats if `integers`) or `[low, high)` (floats).
    pub random: Option<[Number; 2]>,
    /// Random floats are whole numbers.
    #[serde(default)]
    pub integers: bool,
    /// Floats of all kinds: zeros, subnormals, infinities, NaNs, neighbours of powers of two, random bits.
    #[serde(default)]
    pub special: bool,
    /// Seed of `random` and `special`.
    #[serde(default)]
    pub seed: u64,
    /// Nobody has written it: the check `init` reports who reads it. It holds zeros.
    #[serde(default)]
    pub undefined: bool,
    /// Compare it after the launch: `"exact"`, or `"ulp N"` for floats; absent: not an output.
    pub compare: Option<String>,
}

/// splitmix64: the generator of launch files, the same in `tools/gpu/run.py`.
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }
    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Bit patterns that `special` mixes in, sign clear.
const SPECIAL32: [u32; 14] = [
    0,
    1,
    0x007f_ffff,
    0x0080_0000,
    0x0080_0001,
    0x00ff_ffff,
    0x0100_0000,
    0x3f80_0000,
    0x3f7f_ffff,
    0x7e80_0000,
    0x7f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7fc0_0000,
];
/// See [`SPECIAL32`].
const SPECIAL64: [u64; 8] = [
    0,
    1,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x0010_0000_0000_0001,
    0x7fef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
];

/// Most bytes of the buffers of a launch.
const MOST_BYTES: usize = 1 << 30;

impl Buffer {
    /// Zeros that are no output.
    pub fn zeros(ty: Elem, length: usize) -> Buffer {
        let (fill, iota, list, random) = (None, None, None, None);
        let (integers, special, seed, undefined, compare) = (false, false, 0, false, None);
        Buffer { ty, length, fill, iota, list, random, integers, special, seed, undefined, compare }
    }

    /// What is wrong with it.
    fn check(&self) -> Result<(), BufferError> {
        let keys = [
            self.fill.is_some(),
            self.iota.is_some(),
            self.list.is_some(),
            self.random.is_some(),
            self.special,
            self.undefined,
        ];
        if keys.iter().filter(|k| **k).count() > 1 {
            return Err(BufferError::Keys);
        }
        if self.length.checked_mul(self.ty.size()).is_none_or(|n| n > MOST_BYTES) {
            return Err(BufferError::Elements(self.length));
        }
        if let Some([low, high]) = self.random {
            if self.ty.is_float() && !self.integers {
                let width = high.float() - low.float();
                return if width.is_finite() && width >= 0.0 { Ok(()) } else { Err(BufferError::Unbounded) };
            }
            number::span(low, high)?;
        }
        let list = self.list.iter().flatten();
        Ok(list.chain(&self.fill).chain(self.random.iter().flatten()).try_for_each(|n| n.check(self.ty))?)
    }

    /// The initial contents.
    pub fn generate(&self) -> Vec<u8> {
        let size = self.ty.size();
        let mut out = Vec::with_capacity(self.length * size);
        let mut rng = Rng::new(self.seed);
        for i in 0..self.length {
            let bits = if let Some(x) = self.fill {
                x.bits(self.ty)
            } else if let Some([start, step]) = self.iota {
                start.stepped(step, i).bits(self.ty)
            } else if let Some(list) = &self.list {
                list.get(i).map_or(0, |x| x.bits(self.ty))
            } else if let Some([low, high]) = self.random {
                let r = rng.next();
                if self.ty.is_float() && !self.integers {
                    let (low, high) = (low.float(), high.float());
                    self.ty.bits(low + (high - low) * ((r >> 11) as f64 / 9007199254740992.0))
                } else {
                    // `check` has seen to it that there is a range.
                    let span = number::span(low, high).unwrap_or(1);
                    let n = number::above(low, u128::from(r) % span);
                    if self.ty.is_float() { self.ty.bits(n as f64) } else { n as u64 }
                }
            } else if self.special {
                let (r, s) = (rng.next(), rng.next());
                let edge = r & 3 == 0;
                if self.ty == Elem::F64 {
                    let x = if edge { SPECIAL64[(r >> 8) as usize % SPECIAL64.len()] } else { s };
                    x ^ ((r >> 4 & 1) << 63)
                } else {
                    let x = if edge { SPECIAL32[(r >> 8) as usize % SPECIAL32.len()] } else { s as u32 };
                    u64::from(x ^ ((r >> 4 & 1) as u32) << 31)
                }
            } else {
                0
            };
            out.extend_from_slice(&bits.to_le_bytes()[..size]);
        }
        out
    }
}

/// Contents of the buffers by name.
pub type Buffers = BTreeMap<String, Vec<u8>>;

/// Memory and parameter bytes of a launch, ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Global memory with all buffers.
    pub memory: Memory,
    /// Address of each buffer.
    pub addresses: BTreeMap<String, u64>,
    /// The kernel's parameter block.
    pub params: Vec<u8>,
    /// What the threads printed, after a run.
    pub output: Output,
}

impl LaunchFile {
    /// Reads a launch file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<LaunchFile, LaunchFileError> {
        let file: LaunchFile = toml::from_str(text).map_err(LaunchFileError::Text)?;
        for l in &file.launch {
            let kernel = || l.kernel.clone();
            l.check().map_err(|wrong| LaunchFileError::Kernel { kernel: kernel(), wrong })?;
        }
        Ok(file)
    }
}

/// Most blocks of a grid here.
const MOST_BLOCKS: u64 = 1 << 22;
/// Most blocks of a cluster.
const MOST_IN_CLUSTER: u64 = 16;
/// Most bytes of shared memory of a block: above them, addresses have the block's rank.
pub(crate) const MOST_SHARED: u32 = 1 << 24;
/// Most bytes of the stack of a thread: more no driver gives.
pub(crate) const MOST_STACK: u32 = 512 << 10;

impl Launch {
    /// A kernel on one thread, without arguments.
    pub fn of(kernel: &str) -> Launch {
        Launch {
            kernel: kernel.to_string(),
            grid: [1; 3],
            block: [1; 3],
            cluster: None,
            cooperative: false,
            stack: 0,
            shared: 0,
            args: Vec::new(),
            buffers: BTreeMap::new(),
            images: BTreeMap::new(),
            names: BTreeMap::new(),
            generated: None,
        }
    }

    /// What is wrong with it as a file describes it.
    fn check(&self) -> Result<(), LaunchError> {
        self.shape()?;
        let mut bytes = 0;
        for (name, b) in &self.buffers {
            b.check().map_err(|e| LaunchError::Buffer(name.clone(), e))?;
            bytes += b.length * b.ty.size();
        }
        for (name, image) in &self.images {
            let buffer = self.buffers.get(&image.buffer);
            let buffer = buffer.ok_or_else(|| LaunchError::NoBuffer(image.buffer.clone()))?;
            let checked = image.check((buffer.length * buffer.ty.size()) as u64);
            checked.map_err(|e| LaunchError::Image(name.clone(), e))?;
        }
        if bytes > MOST_BYTES {
            return Err(LaunchError::Bytes);
        }
        let has = |image: &str| match self.images.contains_key(image) {
            true => Ok(()),
            false => Err(LaunchError::NoImage(image.into())),
        };
        for (name, n) in &self.names {
            n.check().map_err(|e| LaunchError::Name(name.clone(), e))?;
            n.image().map_or(Ok(()), |i| has(i.0))?;
        }
        for a in &self.args {
            a.check()?;
            a.tensormap.as_ref().map_or(Ok(()), Tiles::check)?;
            let named = a.buffer.as_ref().or(a.tensormap.as_ref().map(|t| &t.buffer));
            if let Some(b) = named.filter(|b| !self.buffers.contains_key(*b)) {
                return Err(LaunchError::NoBuffer(b.clone()));
            }
            a.image().map_or(Ok(()), |i| has(i.0))?;
        }
        Ok(())
    }

    /// What is wrong with its grid, blocks, clusters and memory.
    pub(crate) fn shape(&self) -> Result<(), ShapeError> {
        let product = |d: [u32; 3]| d.iter().map(|n| u64::from(*n)).try_fold(1, u64::checked_mul);
        let at_most = |d: [u32; 3], most: u64| product(d).is_some_and(|n| (1..=most).contains(&n));
        let (grid, block) = (self.grid, self.block);
        match () {
            () if !at_most(grid, MOST_BLOCKS) => Err(ShapeError::Grid(grid)),
            () if !at_most(block, 1024) => Err(ShapeError::Block(block)),
            () if !at_most(self.cluster.unwrap_or([1; 3]), MOST_IN_CLUSTER) => {
                Err(ShapeError::Cluster(self.cluster))
            }
            () if self.shared > MOST_SHARED => Err(ShapeError::Shared(self.shared)),
            () if self.stack > MOST_STACK => Err(ShapeError::Stack(self.stack)),
            () => Ok(()),
        }
    }

    /// Coordinates of the blocks of each cluster, in the order of their ranks; without clusters each block is one.
    ///
    /// # Errors
    /// When the grid is not made of whole clusters.
    pub fn clusters(&self) -> Result<Vec<Vec<[u32; 3]>>, ShapeError> {
        self.shape()?;
        let (size, grid) = (self.cluster.unwrap_or([1; 3]), self.grid);
        if (0..3).any(|i| size[i] == 0 || !grid[i].is_multiple_of(size[i])) {
            return Err(ShapeError::Parts { grid, cluster: size });
        }
        let places = |[nx, ny, nz]: [u32; 3]| {
            (0..nz).flat_map(move |z| (0..ny).flat_map(move |y| (0..nx).map(move |x| [x, y, z])))
        };
        let first = places([0, 1, 2].map(|i| grid[i] / size[i]));
        Ok(first.map(|c| places(size).map(|r| [0, 1, 2].map(|i| c[i] * size[i] + r[i])).collect()).collect())
    }

    /// Generates the buffers; the parameters are missing ([`Launch::params`]).
    pub fn prepare(&self) -> Prepared {
        if let Some(g) = &self.generated {
            let mut memory = Memory::around(g.memory.clone());
            for image in &g.images {
                memory.images.push(image.clone());
            }
            for sampler in &g.samplers {
                memory.images.push_sampler(*sampler);
            }
            for (name, bound) in &g.names {
                memory.images.bind(name, *bound);
            }
            let addresses = BTreeMap::new();
            return Prepared { memory, addresses, params: Vec::new(), output: Output::default() };
        }
        let mut memory = Memory::new();
        let addresses: BTreeMap<String, u64> =
            self.buffers.iter().map(|(name, b)| (name.clone(), memory.alloc(name, b.generate()))).collect();
        for (name, _) in self.buffers.iter().filter(|(_, b)| b.undefined) {
            memory.undefine(addresses[name]);
        }
        for image in self.images.values() {
            // `check` has seen that there is one.
            if let Ok(i) = image.place(addresses[&image.buffer]) {
                memory.images.push(i);
            }
        }
        for (name, spec) in &self.names {
            // What they name was looked at with the file.
            let bound = match (spec.image(), &spec.sampler) {
                (Some((image, kind)), _) => {
                    let n = self.images.keys().position(|k| k == image);
                    n.map(|n| Bound::Image(Images::handle(n, kind)))
                }
                (_, Some(s)) => s.sampler().ok().map(|s| Bound::Sampler(memory.images.push_sampler(s))),
                _ => None,
            };
            if let Some(bound) = bound {
                memory.images.bind(name, bound);
            }
        }
        Prepared { memory, addresses, params: Vec::new(), output: Output::default() }
    }

    /// Packs the arguments, each at its natural alignment, the first one `skew` bytes behind where that counts from.
    pub fn params(&self, addresses: &BTreeMap<String, u64>, skew: u32) -> Vec<u8> {
        if let Some(g) = &self.generated {
            return g.params.clone();
        }
        let mut params = Vec::new();
        let push = |bytes: &[u8], align: usize, params: &mut Vec<u8>| {
            let base = skew as usize;
            params.resize((base + params.len()).next_multiple_of(align) - base, 0);
            params.extend_from_slice(bytes);
        };
        for a in &self.args {
            if let Some(x) = a.i32 {
                push(&(x as u32).to_le_bytes(), 4, &mut params);
            } else if let Some(x) = a.i64 {
                push(&x.to_le_bytes(), 8, &mut params);
            } else if let Some(x) = a.f32 {
                push(&(x as f32).to_le_bytes(), 4, &mut params);
            } else if let Some(x) = a.f64 {
                push(&x.to_le_bytes(), 8, &mut params);
            } else if let Some(name) = &a.buffer {
                push(&addresses[name].to_le_bytes(), 8, &mut params);
            } else if let Some((name, kind)) = a.image() {
                let n = self.images.keys().position(|k| k == name).unwrap_or(usize::MAX - 1);
                push(&Images::handle(n, kind).to_le_bytes(), 8, &mut params);
            } else if let Some(tiles) = &a.tensormap {
                push(&tiles.encode(addresses[&tiles.buffer]), 64, &mut params);
            } else if let Some(fields) = &a.fields {
                let mut bytes = Vec::new();
                let mut align = 1;
                for f in fields {
                    let size = f.ty.size();
                    align = align.max(size);
                    bytes.resize(usize::next_multiple_of(bytes.len(), size), 0);
                    for x in &f.values {
                        bytes.extend_from_slice(&x.bits(f.ty).to_le_bytes()[..size]);
                    }
                }
                bytes.resize(usize::next_multiple_of(bytes.len(), align), 0);
                push(&bytes, align, &mut params);
            }
        }
        params
    }

    /// The contents of all buffers after a run.
    pub fn collect(&self, prepared: &Prepared) -> Buffers {
        prepared
            .addresses
            .iter()
            .filter_map(|(name, base)| {
                Some((name.clone(), prepared.memory.allocation(*base)?.bytes.to_vec()))
            })
            .collect()
    }

    /// Compares the outputs of two runs as the buffers' `compare` says.
    ///
    /// # Errors
    /// The first difference of each buffer that differs too much.
    pub fn compare(&self, got: &Buffers, want: &Buffers) -> Result<(), CompareError> {
        let mut errors = Vec::new();
        for (name, b) in &self.buffers {
            let Some(how) = &b.compare else { continue };
            let unknown = || CompareError::How { buffer: name.clone(), how: how.clone() };
            let tolerance = match how.strip_prefix("ulp ") {
                Some(n) => n.trim().parse::<u64>().map_err(|_| unknown())?,
                None if how == "exact" => 0,
                None => return Err(unknown()),
            };
            let (Some(g), Some(w)) = (got.get(name), want.get(name)) else {
                errors.push(Difference::Missing(name.clone()));
                continue;
            };
            let size = b.ty.size();
            let wrong: Vec<usize> = (0..b.length)
                .filter(|i| {
                    let at = |bytes: &[u8]| crate::memory::little_endian(&bytes[i * size..(i + 1) * size]);
                    !close(b.ty, at(g), at(w), tolerance)
                })
                .collect();
            if let Some(&i) = wrong.first() {
                let show = |bytes: &[u8]| {
                    format_elem(b.ty, crate::memory::little_endian(&bytes[i * size..(i + 1) * size]))
                };
                errors.push(Difference::Element {
                    kernel: self.kernel.clone(),
                    buffer: name.clone(),
                    index: i,
                    got: show(g),
                    want: show(w),
                    count: wrong.len(),
                    length: b.length,
                });
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(CompareError::Different(errors)) }
    }
}

/// Whether two values agree: the same bits, both NaN, or at most `ulps` apart.
fn close(ty: Elem, a: u64, b: u64, ulps: u64) -> bool {
    if a == b {
        return true;
    }
    let (is_nan, distance) = match ty {
        Elem::F32 => {
            let order = |x: u64| {
                let x = x as u32 as i32;
                i64::from(if x < 0 { i32::MIN.wrapping_sub(x) } else { x })
            };
            let nan = f32::from_bits(a as u32).is_nan() && f32::from_bits(b as u32).is_nan();
            (nan, order(a).abs_diff(order(b)))
        }
        Elem::F64 => {
            let order =
                |x: u64| i128::from(if (x as i64) < 0 { i64::MIN.wrapping_sub(x as i64) } else { x as i64 });
            let nan = f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan();
            (nan, order(a).abs_diff(order(b)) as u64)
        }
        _ => return false,
    };
    is_nan || ulps > 0 && distance <= ulps
}

/// An element as text.
pub fn format_elem(ty: Elem, bits: u64) -> String {
    match ty {
        Elem::U8 | Elem::U32 | Elem::U64 => bits.to_string(),
        Elem::I16 => (bits as i16).to_string(),
        Elem::I32 => (bits as i32).to_string(),
        Elem::I64 => (bits as i64).to_string(),
        Elem::F32 => format!("{:e} ({bits:#010x})", f32::from_bits(bits as u32)),
        Elem::F64 => format!("{:e} ({bits:#018x})", f64::from_bits(bits)),
    }
}

/// Name of the file that holds a buffer after the launch at `index` of its file.
pub fn output_name(index: usize, launch: &Launch, buffer: &str) -> String {
    format!("{index}.{}.{buffer}.npy", launch.kernel)
}

/// A buffer as a `.npy` file.
pub fn npy(ty: Elem, bytes: &[u8]) -> Vec<u8> {
    let mut header = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}",
        ty.numpy(),
        bytes.len() / ty.size()
    );
    let total = (10 + header.len() + 1).next_multiple_of(64);
    while header.len() + 11 < total {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&(header.len() as u16).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_packed_at_their_alignment() {
        let file = LaunchFile::parse(
            "[[launch]]\nkernel = 'k'\ngrid = [1, 1, 1]\nblock = [32, 1, 1]\n\
             args = [{ i32 = -1 }, { buffer = 'x' }, { f32 = 1.0 }]\n\
             [launch.buffers.x]\ntype = 'i32'\nlength = 3\niota = [5, 2]\ncompare = 'exact'\n",
        )
        .unwrap();
        let p = file.launch[0].prepare();
        let params = file.launch[0].params(&p.addresses, 0);
        assert_eq!(params.len(), 20);
        assert_eq!(params[..4], [0xff; 4]);
        let buffers = file.launch[0].collect(&p);
        assert_eq!(buffers["x"], [5, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
        let mut other = buffers.clone();
        other.get_mut("x").unwrap()[4] = 8;
        let error = file.launch[0].compare(&other, &buffers).unwrap_err();
        assert_eq!(error.to_string(), "kernel k: x[1] is 8, not 7 (1 of 3 differ)");
    }

    #[test]
    fn numbers_are_exact_and_nonsense_is_refused() {
        let parse = |launch: &str, buffer: &str| {
            let shape = if launch.contains("grid") { "" } else { "grid = [1, 1, 1]\nblock = [32, 1, 1]\n" };
            LaunchFile::parse(&format!(
                "[[launch]]\nkernel = 'k'\n{shape}{launch}\n[launch.buffers.x]\ntype = 'i64'\n{buffer}\n"
            ))
        };
        let bytes = |buffer: &str| {
            let file = parse("args = []", buffer).expect("is a launch file");
            file.launch[0].buffers["x"].generate()
        };
        let large = i64::MAX - 2;
        assert_eq!(bytes(&format!("length = 1\nfill = {large}")), large.to_le_bytes());
        assert_eq!(bytes(&format!("length = 2\niota = [{large}, 1]"))[8..], (large + 1).to_le_bytes());
        assert_eq!(bytes(&format!("length = 1\nlist = [{large}]")), large.to_le_bytes());
        assert_eq!(bytes(&format!("length = 1\nrandom = [{large}, {large}]")), large.to_le_bytes());
        for (launch, buffer, what) in [
            ("args = [{ i32 = 1, i64 = 1 }]", "length = 1", "exactly one key"),
            ("args = [{}]", "length = 1", "exactly one key"),
            ("args = [{ i32 = 4294967296 }]", "length = 1", "does not fit"),
            ("args = []", "length = 1\nfill = 1\nlist = [1]", "more than one"),
            ("args = []", "length = 1\nfill = 0.5", "no integer"),
            ("args = []", "length = 9223372036854775807", "at most"),
            ("args = []", "length = 1\nrandom = [0.0, inf]", "range"),
            ("args = []\nstack = 4294967295", "length = 1", "stack"),
            ("args = []\nshared = 4294967295", "length = 1", "shared"),
            ("args = []\ncluster = [65536, 65536, 1]", "length = 1", "cluster"),
            ("args = []\ngrid = [2147483648, 1, 1]\nblock = [1, 1, 1]", "length = 1", "grid"),
            ("args = []\ngrid = [1, 1, 1]\nblock = [65536, 65536, 1]", "length = 1", "block"),
        ] {
            let error = parse(launch, buffer).expect_err(launch);
            assert!(error.to_string().contains(what), "{launch} {buffer}: {error}");
        }
    }

    #[test]
    fn floats_are_compared_in_ulps() {
        let bits = |x: f32| u64::from(x.to_bits());
        assert!(close(Elem::F32, bits(1.0), bits(1.0f32.next_up()), 1));
        assert!(!close(Elem::F32, bits(1.0), bits(1.0f32.next_up()), 0));
        assert!(close(Elem::F32, bits(0.0), bits(-0.0), 1));
        assert!(close(Elem::F32, bits(f32::NAN), 0xffff_ffff, 0));
    }
}
