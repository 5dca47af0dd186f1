//! Binary32 division, reciprocal and square root against exact arithmetic: every significand class, all exponents, all special numbers, all
//! roundings, and estimates that are off by a unit in the last place either way.

use super::eval;
use super::exact::{self, Direction};
use super::f32::{Mode, div_f32, div_f32_any, rcp_f32, sqrt_f32};
use crate::convert::Round;
use ori::{Builder, Function, Terminator, Value};
use sass::{RegFile, Target};

/// The expansion of a function of two numbers as something that can be called.
struct Compiled {
    func: Function,
    x: Value,
    y: Value,
    result: Value,
}

impl Compiled {
    fn new(build: impl Fn(&mut Builder, Value, Value) -> Value) -> Compiled {
        let mut func = Function::new("k", Target::new(90).unwrap());
        let (x, y) = (func.add_value(RegFile::R, 1), func.add_value(RegFile::R, 1));
        let entry = func.entry_block();
        let mut b = Builder::new(&mut func, entry);
        let result = build(&mut b, x, y);
        b.terminate(Terminator::Exit);
        Compiled { func, x, y, result }
    }

    fn call(&self, x: f32, y: f32, error: i32) -> u32 {
        let inputs = [(self.x, x.to_bits().into()), (self.y, y.to_bits().into())];
        eval::run(&self.func, &inputs, self.result, error) as u32
    }

    #[track_caller]
    fn check(&self, x: f32, y: f32, error: i32, want: f32, mode: Mode) {
        let got = self.call(x, y, error);
        let want = if want.is_nan() { 0x7fff_ffff } else { want.to_bits() };
        assert_eq!(
            got,
            want,
            "{got:08x}, not {want:08x}: {mode:?} of {:08x}, {:08x}, MUFU off by {error}",
            x.to_bits(),
            y.to_bits()
        );
    }
}

fn direction(m: Mode) -> Direction {
    match m.round {
        Round::Nearest => Direction::Nearest,
        Round::Zero => Direction::Zero,
        Round::Minus => Direction::Down,
        Round::Plus => Direction::Up,
    }
}

/// splitmix64
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Numbers at which something changes.
const EDGES: [u32; 22] = [
    0,
    1,
    2,
    3,
    0x0020_0000,
    0x0020_0001,
    0x003f_ffff,
    0x0040_0000,
    0x007f_ffff,
    0x0080_0000,
    0x0080_0001,
    0x00ff_ffff,
    0x0100_0000,
    0x3f80_0000,
    0x3f7f_ffff,
    0x3fff_ffff,
    0x7e80_0000,
    0x7e80_0001,
    0x7f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7fc0_0000,
];

/// An edge, a number around one, a number of few significant bits, or any.
fn number(state: &mut u64) -> f32 {
    let r = random(state);
    let edge = EDGES[(r >> 8) as usize % EDGES.len()];
    let x = match r & 7 {
        0 => edge,
        1 => edge.wrapping_add((r >> 32) as u32 % 17).wrapping_sub(8),
        2 => (r >> 32) as u32 & 0xfff0_0000,
        3 => (r >> 32) as u32 & 0xff80_0fff,
        _ => (r >> 32) as u32,
    };
    f32::from_bits(x ^ ((r >> 4) as u32 & 1) << 31)
}

/// The sequences to nearest that ptxas emits need MUFU.RCP right to the last bit where the divisor is just below a power of two.
fn needs_exact(d: f32, m: Mode) -> bool {
    m.round == Round::Nearest && d.to_bits() & 0x007f_ffff > 0x007f_fff0
}

/// And within three units of it, this one can't do without: of 2 less a unit in the last place, 1/2 is what a Newton step keeps. ptxas's
/// slow path has the same step.
fn just_below_two(d: f32, m: Mode) -> bool {
    m.round == Round::Nearest && d.to_bits() & 0x007f_ffff > 0x007f_fffc
}

#[test]
fn divisions() {
    for m in Mode::ALL {
        let fast = Compiled::new(|b, x, y| div_f32(b, x, y, m));
        let slow = Compiled::new(|b, x, y| div_f32_any(b, x, y, m));
        let mut state = 2;
        for k in 0..40_000 {
            let error = k % 3 - 1;
            let (x, mut y) = (number(&mut state), number(&mut state));
            if k % 5 == 0 {
                // A result at the lower end of the range, or the upper one.
                let e =
                    [2f32.powi(-126), 2f32.powi(-149), 2f32.powi(127), 2f32.powi(-140)][k as usize / 5 % 4];
                y = x / e * (1.0 + (random(&mut state) % 5) as f32 * f32::EPSILON);
            }
            let want = exact::div(x, y, direction(m), m.ftz);
            if error == 0 || !needs_exact(y, m) {
                fast.check(x, y, error, want, m);
            }
            if error == 0 || !just_below_two(y, m) {
                slow.check(x, y, error, want, m);
            }
        }
    }
}

/// Exact quotients, ties of subnormal results and what is next to them.
#[test]
fn divisions_at_ties() {
    for m in Mode::ALL {
        let fast = Compiled::new(|b, x, y| div_f32(b, x, y, m));
        let mut state = 3;
        for k in 0..40_000 {
            let error = k % 3 - 1;
            let bits = 1 + random(&mut state) % 12;
            let y = (random(&mut state) % (1 << bits) + 1) as f32;
            let q = (random(&mut state) % (1 << (24 - bits)) + 1) as f32;
            let x = f32::from_bits(
                (q * y).to_bits().wrapping_add((random(&mut state) % 3) as u32).wrapping_sub(1),
            );
            // The quotient has its last bits around 2⁻¹⁴⁹.
            let (up, down) = (
                2f32.powi(-(random(&mut state) as i32 & 63)),
                2f32.powi(80 + (random(&mut state) as i32 & 15)),
            );
            let (x, y) = (x * up, y * down);
            let sign = if random(&mut state) & 1 == 0 { 1.0 } else { -1.0 };
            fast.check(x * sign, y, error, exact::div(x * sign, y, direction(m), m.ftz), m);
        }
    }
}

/// Divisors just below a power of two, for which the estimate matters most.
#[test]
fn divisions_by_nearly_two() {
    for m in Mode::ALL {
        let slow = Compiled::new(|b, x, y| div_f32_any(b, x, y, m));
        for k in 0..3 {
            let y = f32::from_bits(0x3fff_ffff - k);
            for x in (0x3f80_0000..0x4000_0000u32).step_by(2003) {
                let x = f32::from_bits(x);
                for error in -1..=1 {
                    if error == 0 || !just_below_two(y, m) {
                        slow.check(x, y, error, exact::div(x, y, direction(m), m.ftz), m);
                    }
                }
            }
        }
    }
}

#[test]
fn reciprocals() {
    for m in Mode::ALL {
        let f = Compiled::new(|b, x, _| rcp_f32(b, x, m));
        let mut state = 4;
        // All exponents that the slow path has, two of the others.
        let dense =
            [0, 1, 127, 252, 253, 254].into_iter().flat_map(|e: u32| (e << 23..(e + 1) << 23).step_by(3511));
        let random = (0..30_000).map(|_| number(&mut state).to_bits()).collect::<Vec<_>>();
        for (k, x) in dense.chain(random).enumerate() {
            let (x, error) = (f32::from_bits(x), k as i32 % 3 - 1);
            if error == 0 || !needs_exact(x, m) {
                f.check(x, x, error, exact::div(1.0, x, direction(m), m.ftz), m);
            }
        }
    }
}

#[test]
fn roots() {
    for m in Mode::ALL {
        let f = Compiled::new(|b, x, _| sqrt_f32(b, x, m));
        let mut state = 5;
        let dense = [0, 1, 25, 26, 127, 128, 254]
            .into_iter()
            .flat_map(|e: u32| (e << 23..(e + 1) << 23).step_by(3511));
        let random = (0..30_000).map(|_| number(&mut state).to_bits()).collect::<Vec<_>>();
        let squares = (1..4096u32).map(|k| (k as f32 * k as f32).to_bits());
        let near = squares.flat_map(|x| [x - 1, x, x + 1]);
        for (k, x) in dense.chain(random).chain(near).enumerate() {
            let (x, error) = (f32::from_bits(x), k as i32 % 3 - 1);
            f.check(x, x, error, exact::sqrt(x, direction(m), m.ftz), m);
        }
    }
}
