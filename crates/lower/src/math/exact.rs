//! Binary32 arithmetic on the host, rounded once in any direction, for tests. Everything goes through binary64 numbers rounded to odd: with
//! 29 bits more than the result they tell exact, below the middle, the middle and above it.

/// How to round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To nearest even.
    Nearest,
    /// Toward zero.
    Zero,
    /// Down.
    Down,
    /// Up.
    Up,
}

/// `x`, rounded to odd before if it isn't exact, as a binary32 number.
fn round(x: f64, d: Direction) -> f32 {
    let near = x as f32;
    let down = match d {
        Direction::Nearest => return near,
        Direction::Zero => x > 0.0,
        Direction::Down => true,
        Direction::Up => false,
    };
    if down && f64::from(near) > x {
        near.next_down()
    } else if !down && f64::from(near) < x {
        near.next_up()
    } else {
        near
    }
}

/// The same, with zeros for subnormal results: what is below 2⁻¹²⁶ once it is rounded as if there were smaller exponents.
fn round_flushed(x: f64, d: Direction) -> f32 {
    const UP: f64 = 18_446_744_073_709_551_616.0;
    if x.abs() < 2.0 * f64::from(f32::MIN_POSITIVE) && x.abs() > f64::from(f32::MIN_POSITIVE) / 4.0 {
        let wide = round(x * UP, d);
        if f64::from(wide.abs()) < f64::from(f32::MIN_POSITIVE) * UP {
            0f32.copysign(wide)
        } else {
            round(x, d)
        }
    } else if x.abs() < f64::from(f32::MIN_POSITIVE) {
        0f32.copysign(x as f32)
    } else {
        round(x, d)
    }
}

/// The number rounded to odd that is `error` away from `near`, less than a unit in its last place.
fn odd(near: f64, error: f64) -> f64 {
    if error == 0.0 || error.is_nan() || near.to_bits() & 1 == 1 {
        near
    } else if (error > 0.0) == (near > 0.0) {
        f64::from_bits(near.to_bits() | 1)
    } else {
        f64::from_bits(near.to_bits() - 1)
    }
}

/// `a b`
pub fn mul(a: f32, b: f32, d: Direction) -> f32 {
    round(f64::from(a) * f64::from(b), d)
}

/// `a b + c`
pub fn fma(a: f32, b: f32, c: f32, d: Direction) -> f32 {
    if d == Direction::Nearest {
        return a.mul_add(b, c);
    }
    let (p, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = p + c;
    let other = sum - p;
    let error = (p - (sum - other)) + (c - other);
    if sum == 0.0 && d == Direction::Down && p != 0.0 {
        return -0.0;
    }
    round(odd(sum, error), d)
}

fn flush(x: f32) -> f64 {
    f64::from(if x.is_subnormal() { 0f32.copysign(x) } else { x })
}

fn finish(x: f64, d: Direction, ftz: bool) -> f32 {
    if x.is_nan() || x.is_infinite() || x == 0.0 {
        x as f32
    } else if ftz {
        round_flushed(x, d)
    } else {
        round(x, d)
    }
}

/// `x / y`
pub fn div(x: f32, y: f32, d: Direction, ftz: bool) -> f32 {
    let (x, y) = if ftz { (flush(x), flush(y)) } else { (f64::from(x), f64::from(y)) };
    let q = x / y;
    let error = (-q).mul_add(y, x) * y.signum();
    finish(odd(q, error), d, ftz)
}

/// `√x`
pub fn sqrt(x: f32, d: Direction, ftz: bool) -> f32 {
    let x = if ftz { flush(x) } else { f64::from(x) };
    let s = x.sqrt();
    finish(odd(s, (-s).mul_add(s, x)), d, ftz)
}

/// Against integers.
#[test]
fn directions() {
    use Direction::{Down, Nearest, Up, Zero};
    let third = [Nearest, Zero, Down, Up].map(|d| div(1.0, 3.0, d, false).to_bits());
    assert_eq!(third, [0x3eaa_aaab, 0x3eaa_aaaa, 0x3eaa_aaaa, 0x3eaa_aaab]);
    let minus = [Nearest, Zero, Down, Up].map(|d| div(-1.0, 3.0, d, false).to_bits());
    assert_eq!(minus, [0xbeaa_aaab, 0xbeaa_aaaa, 0xbeaa_aaab, 0xbeaa_aaaa]);
    let over = [Nearest, Zero, Down, Up].map(|d| div(f32::MAX, 0.5, d, false));
    assert_eq!(over, [f32::INFINITY, f32::MAX, f32::MAX, f32::INFINITY]);
    let least = f32::from_bits(1);
    let under = [Nearest, Zero, Down, Up].map(|d| div(least, -2.0, d, false).to_bits());
    assert_eq!(under, [0x8000_0000, 0x8000_0000, 0x8000_0001, 0x8000_0000]);
    let tiny = [Nearest, Zero, Down, Up].map(|d| fma(least, least, 1.0, d));
    assert_eq!(tiny, [1.0, 1.0, 1.0, 1f32.next_up()]);
    let tiny = [Nearest, Zero, Down, Up].map(|d| fma(-least, least, 1.0, d));
    assert_eq!(tiny, [1.0, 1f32.next_down(), 1f32.next_down(), 1.0]);
    // What ptxas 13.0.88's code gives.
    for (a, b, want) in [
        (0x3f80_0000, 0x7e80_0001, 0),
        (0xbf80_0000, 0x7e80_0001, 0x8000_0000),
        (0x3f80_0000, 0x7e80_0000, 0x0080_0000),
        (0x3f7f_ffff, 0x7e80_0000, 0),
        (0x3f7f_ffff, 0xfe80_0000, 0x8000_0000),
    ] {
        for d in [Zero, Down, Up] {
            assert_eq!(div(f32::from_bits(a), f32::from_bits(b), d, true).to_bits(), want);
        }
    }
    assert_eq!([Zero, Up].map(|d| sqrt(2.0, d, false).to_bits()), [0x3fb5_04f3, 0x3fb5_04f4]);
    assert_eq!([Down, Up].map(|d| sqrt(9.0, d, false)), [3.0, 3.0]);
}
