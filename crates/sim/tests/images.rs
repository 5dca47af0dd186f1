//! What reading and writing images means, against expectations computed by hand from the tables and formulas of the CUDA
//! programming guide ("Texture Fetching", "Cubemap Textures", "Texture Gather") and of the PTX manual.

use sim::image::format::{Element, Format};
use sim::image::sample::{Coords, Lod, Request};
use sim::image::surface::{Outside, Spot};
use sim::image::{Address, Geometry, Image, Sampler};

/// Where images start here.
const BASE: u64 = 0x1000;

/// An image, and its bytes.
struct Texture {
    image: Image,
    bytes: Vec<u8>,
}

impl Texture {
    fn new(geometry: Geometry, format: Format, size: [u32; 3], layers: u32, sampler: Sampler) -> Texture {
        let image =
            Image::new(BASE, geometry, format, (size, layers, 1), (1, 0), sampler).expect("is an image");
        let bytes = vec![0; image.bytes() as usize];
        Texture { image, bytes }
    }

    /// binary32 texels, row after row.
    fn of(geometry: Geometry, size: [u32; 3], layers: u32, sampler: Sampler, texels: &[f32]) -> Texture {
        let mut t = Texture::new(geometry, F32, size, layers, sampler);
        let pitch = t.image.levels[0].pitch as usize;
        for (i, x) in texels.iter().enumerate() {
            let at = i / size[0] as usize * pitch + i % size[0] as usize * 4;
            t.bytes[at..at + 4].copy_from_slice(&x.to_le_bytes());
        }
        t
    }

    fn read(&self) -> impl FnMut(u64, u32) -> Result<u64, String> + '_ {
        |at, size| {
            let at = at.checked_sub(BASE).ok_or("in front of the image")? as usize;
            let bytes =
                self.bytes.get(at..at + size as usize).ok_or(format!("{at:#x} is behind the image"))?;
            Ok(sim::memory::little_endian(bytes))
        }
    }

    fn ask(&self, r: Request) -> Option<[Option<u32>; 4]> {
        self.image.fetch(&r, &mut self.read()).expect("is in the image")
    }

    /// The first channel as a number.
    fn at(&self, coords: [f32; 3]) -> Option<f32> {
        self.ask(Request::at(Coords::Float(coords)))?[0].map(f32::from_bits)
    }

    fn x(&self, x: f32) -> Option<f32> {
        self.at([x, 0.0, 0.0])
    }
}

const F32: Format = Format { element: Element::F32, channels: 1, normalized: false };

fn row(sampler: Sampler) -> Texture {
    Texture::of(Geometry::D1, [4, 1, 1], 1, sampler, &[10.0, 20.0, 30.0, 40.0])
}

fn modes(address: Address) -> Sampler {
    Sampler { address: [address; 3], ..Sampler::default() }
}

/// T[floor(x)], with x in texels: outside, the guide's clamp takes the first or the last one, and border zero.
#[test]
fn nearest_texels_of_coordinates_in_texels() {
    let clamp = row(modes(Address::Clamp));
    for (x, want) in
        [(0.0, 10.0), (0.99, 10.0), (1.0, 20.0), (3.99, 40.0), (4.0, 40.0), (1e30, 40.0), (-0.1, 10.0)]
    {
        assert_eq!(clamp.x(x), Some(want), "{x}");
    }
    assert_eq!(clamp.x(f32::INFINITY), Some(40.0));
    assert_eq!(clamp.x(f32::NAN), None);
    let border = row(modes(Address::Border));
    for (x, want) in [(-0.01, 0.0), (0.0, 10.0), (3.99, 40.0), (4.0, 0.0)] {
        assert_eq!(border.x(x), Some(want), "{x}");
    }
    let coloured = row(Sampler { border: [7.5, 1.0, 1.0, 1.0], ..modes(Address::Border) });
    assert_eq!(coloured.x(-1.0), Some(7.5));
    // Wrap and mirror are for normalized coordinates alone.
    assert_eq!(row(modes(Address::Wrap)).x(5.0), Some(40.0));
    assert_eq!(row(modes(Address::Mirror)).x(-3.0), Some(10.0));
}

/// frac(x) for wrap; for mirror frac(x) where floor(x) is even, else 1 - frac(x).
#[test]
fn nearest_texels_of_normalized_coordinates() {
    let wrap = row(Sampler { normalized: true, ..modes(Address::Wrap) });
    for (x, want) in [(0.3, 20.0), (1.3, 20.0), (-0.1, 40.0), (-1.0, 10.0), (2.75, 40.0)] {
        assert_eq!(wrap.x(x), Some(want), "{x}");
    }
    let mirror = row(Sampler { normalized: true, ..modes(Address::Mirror) });
    // 1.3: 1 - 0.3 = 0.7, times 4 is 2.8. -0.1: floor is -1, 1 - 0.9 = 0.1, 0.4. -1.3: floor is -2: 0.7.
    for (x, want) in [(0.3, 20.0), (1.3, 30.0), (-0.1, 10.0), (-1.3, 30.0), (1.01, 40.0), (2.3, 20.0)] {
        assert_eq!(mirror.x(x), Some(want), "{x}");
    }
    // 1 - frac(1) = 1 is behind the last texel: the formula has no value there.
    assert_eq!(mirror.x(1.0), None);
    let clamp = row(Sampler { normalized: true, ..modes(Address::Clamp) });
    assert_eq!((clamp.x(1.7), clamp.x(-3.0), clamp.x(0.5)), (Some(40.0), Some(10.0), Some(30.0)));
}

/// (1 - a) T[i] + a T[i + 1] with i = floor(x - 0.5) and a in steps of 1/256.
#[test]
fn weights_of_a_linear_filter_have_eight_bits_of_fraction() {
    let linear = Sampler { linear: true, ..modes(Address::Clamp) };
    let t = Texture::of(Geometry::D1, [2, 1, 1], 1, linear, &[0.0, 256.0]);
    for k in 0..=256u16 {
        let x = 0.5 + f32::from(k) / 256.0;
        assert_eq!(t.x(x), Some(f32::from(k)), "{k}");
        if k < 256 {
            // Nearer to k, nearer to k + 1.
            assert_eq!(t.x(x + 0.4 / 256.0), Some(f32::from(k)));
            assert_eq!(t.x(x + 0.6 / 256.0), Some(f32::from(k) + 1.0));
        }
    }
    // Beside the middle of the outermost texels both neighbours are the same one.
    assert_eq!((t.x(0.1), t.x(-5.0), t.x(1.9)), (Some(0.0), Some(0.0), Some(256.0)));
    // The border counts with its weight: x = 0.25 is 3/4 of a texel to the right of the border's middle.
    let border = Texture::of(
        Geometry::D1,
        [2, 1, 1],
        1,
        Sampler { border: [64.0, 0.0, 0.0, 0.0], ..Sampler { linear: true, ..modes(Address::Border) } },
        &[0.0, 256.0],
    );
    assert_eq!(border.x(0.25), Some(16.0));
    // Over the seam of a texture that repeats: the middle between the last and the first.
    let wrap = Texture::of(
        Geometry::D1,
        [2, 1, 1],
        1,
        Sampler { normalized: true, linear: true, ..modes(Address::Wrap) },
        &[0.0, 256.0],
    );
    assert_eq!((wrap.x(1.0), wrap.x(0.0), wrap.x(0.875)), (Some(128.0), Some(128.0), Some(192.0)));
}

#[test]
fn two_and_three_dimensions_are_filtered_in_each() {
    let linear = Sampler { linear: true, ..modes(Address::Clamp) };
    let t = Texture::of(Geometry::D2, [2, 2, 1], 1, linear, &[0.0, 256.0, 512.0, 768.0]);
    for (a, b) in [(0u8, 0u8), (1, 0), (0, 1), (37, 200), (255, 255), (128, 3)] {
        let at = |k: u8| 0.5 + f32::from(k) / 256.0;
        let want = f32::from(a) + 2.0 * f32::from(b);
        assert_eq!(t.at([at(a), at(b), 0.0]), Some(want), "{a} {b}");
    }
    let texels: Vec<f32> = (0u8..8)
        .map(|i| f32::from(i & 1) + f32::from(i >> 1 & 1) * 16.0 + f32::from(i >> 2) * 256.0)
        .collect();
    let t = Texture::of(Geometry::D3, [2, 2, 2], 1, linear, &texels);
    assert_eq!(t.at([0.75, 1.0, 1.25]), Some(0.25 + 8.0 + 192.0));
    assert_eq!(t.at([9.0, 9.0, 9.0]), Some(1.0 + 16.0 + 256.0));
}

/// Unsigned from 0 to 1, signed from -1 to 1.
#[test]
fn integers_are_read_as_numbers_up_to_one() {
    let one =
        |element, bits: u64| f32::from_bits(Format { element, channels: 1, normalized: true }.widen(bits));
    assert_eq!([0, 51, 255].map(|b| one(Element::U8, b)), [0.0, 0.2, 1.0]);
    assert_eq!([0x80, 0x81, 0, 0x7f].map(|b| one(Element::S8, b)), [-1.0, -1.0, 0.0, 1.0]);
    assert_eq!([0, 13107, 65535].map(|b| one(Element::U16, b)), [0.0, 0.2, 1.0]);
    assert_eq!([0x8000, 0x8001, 0x7fff].map(|b| one(Element::S16, b)), [-1.0, -1.0, 1.0]);
    let plain = |element, bits: u64| Format { element, channels: 1, normalized: false }.widen(bits);
    assert_eq!(plain(Element::S8, 0xfe), 0xffff_fffe);
    assert_eq!(plain(Element::U8, 0xfe), 0xfe);
    assert_eq!(plain(Element::S16, 0x8000), 0xffff_8000);
    // 1.5 and the smallest subnormal, 2^-24.
    assert_eq!([0x3e00, 1].map(|b| f32::from_bits(plain(Element::F16, b))), [1.5, 5.960_464_5e-8]);
    assert!(Format::new(Element::U32, 1, true).is_err() && Format::new(Element::U8, 3, false).is_err());
}

/// The guide's table: which face, and which of the other two components is which coordinate in it.
#[test]
fn directions_choose_faces_of_cubes() {
    // Face f, row t, column s of 2 x 2 texels is 100 f + 10 t + s.
    let texels: Vec<f32> = (0u16..24).map(|i| f32::from(100 * (i / 4) + 10 * (i / 2 % 2) + i % 2)).collect();
    let cube = Texture::of(Geometry::Cube, [2, 2, 1], 1, modes(Address::Clamp), &texels);
    for (direction, want) in [
        // s = -z, t = -y
        ([4.0, 2.0, -1.0], 1.0),
        ([4.0, -2.0, 1.0], 10.0),
        // s = z, t = -y
        ([-4.0, 2.0, -1.0], 100.0),
        ([-4.0, -2.0, 1.0], 111.0),
        // s = x, t = z
        ([1.0, 4.0, -2.0], 201.0),
        ([-1.0, 4.0, 2.0], 210.0),
        // s = x, t = -z
        ([1.0, -4.0, -2.0], 311.0),
        ([-1.0, -4.0, 2.0], 300.0),
        // s = x, t = -y
        ([1.0, 2.0, 4.0], 401.0),
        ([-1.0, -2.0, 4.0], 410.0),
        // s = -x, t = -y
        ([1.0, 2.0, -4.0], 500.0),
        ([-1.0, -2.0, -4.0], 511.0),
    ] {
        assert_eq!(cube.at(direction), Some(want), "{direction:?}");
    }
    // Two are the largest: the table has no line for it.
    assert_eq!(cube.at([1.0, 1.0, 0.0]), None);
    // Linear: s = 0 is the middle of the face.
    let linear = Sampler { linear: true, ..modes(Address::Clamp) };
    let cube = Texture::of(Geometry::Cube, [2, 2, 1], 1, linear, &texels);
    assert_eq!(cube.at([0.0, 0.0, 3.0]), Some(405.5));
    // The second of two cubes.
    let texels: Vec<f32> = (0u8..12).map(f32::from).collect();
    let cubes = Texture::of(Geometry::ArrayCube, [1, 1, 1], 2, modes(Address::Clamp), &texels);
    let up = Request { layer: 1, ..Request::at(Coords::Float([0.0, -1.0, 0.0])) };
    assert_eq!(cubes.ask(up).and_then(|w| w[0]), Some(9f32.to_bits()));
}

#[test]
fn numbers_in_arrays_are_clamped() {
    let texels: Vec<f32> = (0u8..6).map(f32::from).collect();
    let t = Texture::of(Geometry::Array1, [2, 1, 1], 3, modes(Address::Clamp), &texels);
    for (layer, want) in [(0, 1.0f32), (2, 5.0), (3, 5.0), (u32::MAX, 5.0)] {
        let r = Request { layer, ..Request::at(Coords::Float([1.5, 0.0, 0.0])) };
        assert_eq!(t.ask(r).and_then(|w| w[0]), Some(want.to_bits()), "{layer}");
    }
}

#[test]
fn texels_by_number_and_offsets() {
    let t = row(modes(Address::Border));
    let texel = |n: i32, by: i32| {
        let r = Request { offsets: [by, 0, 0], ..Request::at(Coords::Texels([n, 0, 0])) };
        t.ask(r).and_then(|w| w[0]).map(f32::from_bits)
    };
    assert_eq!((texel(2, 0), texel(2, -2), texel(-1, 4)), (Some(30.0), Some(10.0), Some(40.0)));
    assert_eq!((texel(4, 0), texel(0, -1)), (Some(0.0), Some(0.0)));
    let r = Request { offsets: [2, 0, 0], ..Request::at(Coords::Float([1.5, 0.0, 0.0])) };
    assert_eq!(t.ask(r).and_then(|w| w[0]), Some(40f32.to_bits()));
    // What a number outside gives where the mode is clamp, the guide does not say of every dimension.
    let clamp = row(modes(Address::Clamp));
    assert_eq!(clamp.ask(Request::at(Coords::Texels([4, 0, 0]))), None);
    // Channels that a texel lacks.
    assert_eq!(
        clamp.ask(Request::at(Coords::Texels([0, 0, 0]))),
        Some([Some(10f32.to_bits()), None, None, None])
    );
}

/// Counter-clockwise from the lower left, v upwards: (0, 1), (1, 1), (1, 0), (0, 0).
#[test]
fn gathers_are_counter_clockwise() {
    let texels: Vec<f32> = (0u8..16).map(f32::from).collect();
    let t = Texture::of(Geometry::D2, [4, 4, 1], 1, modes(Address::Clamp), &texels);
    let gather = |x: f32, y: f32| {
        let r = Request::at(Coords::Float([x, y, 0.0]));
        let found = t.image.gather(&r, 0, &mut t.read()).expect("is in the image");
        found.map(|w| w.map(|w| w.map_or(f32::NAN, f32::from_bits)))
    };
    assert_eq!(gather(2.0, 2.0), Some([9.0, 10.0, 6.0, 5.0]));
    // The guide's example: 2.49805 - 0.5 is nearer to 2 than to 255/256 less, so the columns are 2 and 3.
    assert_eq!(gather(2.49805, 1.0), Some([6.0, 7.0, 3.0, 2.0]));
    assert_eq!(gather(0.2, 0.2), Some([0.0, 0.0, 0.0, 0.0]));
    let r = Request::at(Coords::Float([1.0, 1.0, 0.0]));
    assert_eq!(t.image.gather(&r, 1, &mut t.read()), Ok(None));
}

#[test]
fn depths_are_compared_before_they_are_filtered() {
    let linear = Sampler { linear: true, ..modes(Address::Clamp) };
    let t = Texture::of(Geometry::D1, [2, 1, 1], 1, linear, &[0.25, 0.75]);
    let r = Request { depth: Some(0.5), ..Request::at(Coords::Float([0.75, 0.0, 0.0])) };
    assert_eq!(t.ask(r).and_then(|w| w[0]), Some(0.25f32.to_bits()));
}

#[test]
fn levels_are_half_as_large() {
    let sampler = Sampler { normalized: true, ..modes(Address::Clamp) };
    let mut image =
        Image::new(BASE, Geometry::D2, F32, ([4, 2, 1], 1, 1), (3, 0), sampler).expect("is an image");
    assert_eq!(
        [0, 1, 2].map(|l| (image.extent(l, 0), image.extent(l, 1))),
        [(Some(4), Some(2)), (Some(2), Some(1)), (Some(1), Some(1))]
    );
    assert_eq!((image.extent(3, 0), image.extent(0, 2)), (None, None));
    // Two rows of 16 bytes, then one, then one: the level's number everywhere.
    let value = |at: u64| [0f32, 0.0, 1.0, 2.0][((at - BASE) / 16) as usize].to_bits();
    let mut read = |at: u64, _: u32| Ok::<u64, ()>(value(at).into());
    let mut at = |image: &Image, lod: Lod| {
        let r = Request { lod, ..Request::at(Coords::Float([0.3, 0.6, 0.0])) };
        image.fetch(&r, &mut read).expect("is read").and_then(|w| w[0]).map(f32::from_bits)
    };
    for (lod, want) in [(-3.0, 0.0), (0.4, 0.0), (0.6, 1.0), (1.4, 1.0), (7.0, 2.0)] {
        assert_eq!(at(&image, Lod::At(lod)), Some(want), "{lod}");
    }
    assert_eq!(at(&image, Lod::At(f32::NAN)), None);
    // A quarter of the width a step is one texel; half of it are two, the next level.
    let steps = |dx: f32, dy: f32| Lod::Gradients([[dx, 0.0, 0.0], [0.0, dy, 0.0]]);
    assert_eq!(
        (at(&image, steps(0.25, 0.0)), at(&image, steps(0.5, 0.0)), at(&image, steps(0.1, 2.0))),
        (Some(0.0), Some(1.0), Some(2.0))
    );
    image.sampler.linear = true;
    image.sampler.linear_levels = true;
    assert_eq!((at(&image, Lod::At(0.25)), at(&image, Lod::At(1.75))), (Some(0.25), Some(1.75)));
}

/// Bytes in x; what is outside traps, goes to the nearest place, or nowhere.
#[test]
fn surfaces_count_bytes() {
    let format = Format { element: Element::U16, channels: 2, normalized: false };
    let image = Image::new(BASE, Geometry::D2, format, ([5, 3, 1], 1, 1), (1, 64), Sampler::default());
    let image = image.expect("is an image");
    let spot = |x, y, bytes, outside| image.spot([x, y, 0], 0, bytes, outside);
    assert_eq!(spot(16, 2, Some(4), Outside::Trap), Spot::At(BASE + 2 * 64 + 16));
    assert_eq!(spot(20, 0, Some(4), Outside::Trap), Spot::Trap);
    assert_eq!(spot(-4, 0, Some(4), Outside::Zero), Spot::Nothing);
    assert_eq!(spot(0, 3, Some(4), Outside::Zero), Spot::Nothing);
    assert_eq!(spot(99, -7, Some(4), Outside::Clamp), Spot::At(BASE + 16));
    assert_eq!(spot(-1, 99, Some(1), Outside::Clamp), Spot::At(BASE + 128));
    assert_eq!(spot(2, 0, Some(4), Outside::Clamp), Spot::Misaligned);
    // Eight bytes of which the last four are outside.
    assert_eq!(spot(16, 0, Some(8), Outside::Zero), Spot::Nothing);
    // Samples.
    assert_eq!(spot(3, 1, None, Outside::Trap), Spot::At(BASE + 64 + 12));
    assert_eq!(spot(5, 1, None, Outside::Clamp), Spot::At(BASE + 64 + 16));
    let layers = Image::new(BASE, Geometry::Array1, format, ([4, 1, 1], 3, 1), (1, 0), Sampler::default());
    let layers = layers.expect("is an image");
    assert_eq!(layers.spot([4, 9, 9], 2, Some(4), Outside::Trap), Spot::At(BASE + 2 * 16 + 4));
    assert_eq!(layers.spot([0; 3], 3, Some(4), Outside::Clamp), Spot::At(BASE + 2 * 16));
    assert_eq!(layers.spot([0; 3], 3, Some(4), Outside::Zero), Spot::Nothing);
}

/// What a formatted store makes of words: nothing is said of numbers that the format lacks.
#[test]
fn stores_convert_to_the_format() {
    let narrow = |element, normalized, word| Format { element, channels: 1, normalized }.narrow(word);
    assert_eq!(narrow(Element::U8, false, 255), Some(255));
    assert_eq!(narrow(Element::U8, false, 256), None);
    assert_eq!(narrow(Element::S8, false, -128i32 as u32), Some(0x80));
    assert_eq!(narrow(Element::S16, false, 0x8000), None);
    assert_eq!(narrow(Element::F32, false, 0x1234_5678), Some(0x1234_5678));
    assert_eq!(narrow(Element::F16, false, 1.5f32.to_bits()), Some(0x3e00));
    assert_eq!(narrow(Element::F16, false, 1.0001f32.to_bits()), None);
    assert_eq!(narrow(Element::U8, true, 0.2f32.to_bits()), Some(51));
    assert_eq!(narrow(Element::S16, true, (-1f32).to_bits()), Some(0x8001));
    assert_eq!(narrow(Element::U8, true, 1.5f32.to_bits()), None);
}

/// Each level of a row of four texels, with nothing between them, holds its number.
#[test]
fn levels_are_moved_bounded_and_counted_from_another_one() {
    let whole = Image::packed(BASE, Geometry::Array1, F32, ([4, 1, 1], 2), 3).expect("is an image");
    let texels = [0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0, 6.0, 6.0, 2.0, 7.0f32];
    let bytes: Vec<u8> = texels.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(whole.bytes(), bytes.len() as u64);
    let ask = |image: &Image, sampler: Sampler, level: f32, layer: u32| {
        let t = Texture { image: Image { sampler, ..image.clone() }, bytes: bytes.clone() };
        let r = Request { lod: Lod::At(level), layer, ..Request::at(Coords::Float([0.5, 0.0, 0.0])) };
        t.ask(r).and_then(|w| w[0]).map(f32::from_bits)
    };
    let plain = Sampler { normalized: true, linear_levels: true, ..Sampler::default() };
    assert_eq!(ask(&whole, plain, 1.5, 0), Some(1.5));
    assert_eq!(ask(&whole, Sampler { bias: 0.25, ..plain }, 1.5, 1), Some(6.75));
    assert_eq!(ask(&whole, Sampler { clamp: Some([0.5, 1.25]), ..plain }, 9.0, 0), Some(1.25));
    assert_eq!(ask(&whole, Sampler { bias: -9.0, clamp: Some([0.5, 1.25]), ..plain }, 0.0, 0), Some(0.5));
    // The second layer from the second level on.
    let part = whole.part(1..3, 1..2).expect("is there");
    assert_eq!(ask(&part, plain, 0.0, 0), Some(6.0));
    assert_eq!(ask(&part, plain, 9.0, 9), Some(7.0));
    assert_eq!(part.spot([4, 0, 0], 0, Some(4), Outside::Trap), Spot::At(BASE + 4 * 11));
    assert_eq!((whole.part(3..4, 0..1), whole.part(0..1, 1..3)), (None, None));
}

/// A row of memory is longer than an image may be, and zero outside.
#[test]
fn linear_memory_is_read_by_numbers() {
    let image = Image::linear(BASE, F32, 3 << 20);
    let t = Texture { image, bytes: vec![0x3f; 16] };
    let at = |x: i32| t.ask(Request::at(Coords::Texels([x, 0, 0]))).and_then(|w| w[0]);
    assert_eq!((at(3), at(-1), at(3 << 20)), (Some(0x3f3f_3f3f), Some(0), Some(0)));
    assert_eq!(t.image.bytes(), 12 << 20);
}
