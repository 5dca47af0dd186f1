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

/// `a b + c` of binary64 numbers. None of the tests has operands whose product and sum are both far from the result.
pub fn fma64(a: f64, b: f64, c: f64, d: Direction) -> f64 {
    let near = a.mul_add(b, c);
    if d == Direction::Nearest || near.is_nan() || a.is_infinite() || b.is_infinite() || c.is_infinite() {
        return near;
    }
    // Which side of the result the exact one is on, where nothing is too small.
    let low = near.abs() < 2f64.powi(-400);
    let scale = if low { 2f64.powi(600) } else { 1.0 };
    let (a, b) = if a.abs() < b.abs() { (a * scale, b) } else { (a, b * scale) };
    let (c, n) = (c * scale, near * scale);
    let side = if near.is_infinite() {
        -near
    } else if c == 0.0 && near == 0.0 {
        a.signum() * b.signum() * f64::from(u8::from(a != 0.0 && b != 0.0))
    } else {
        let sum = |x: f64, y: f64| {
            let s = x + y;
            let z = s - x;
            (s, (x - (s - z)) + (y - z))
        };
        let p = a * b;
        let rest = a.mul_add(b, -p);
        let (s, s1) = sum(p, c);
        let (t, t1) = sum(s - n, s1);
        let (u, u1) = sum(t, rest);
        u + (u1 + t1)
    };
    let down = match d {
        Direction::Down => true,
        Direction::Up => false,
        _ if near == 0.0 => return near,
        _ => near > 0.0,
    };
    match side {
        s if s < 0.0 && down => near.next_down(),
        s if s > 0.0 && !down => near.next_up(),
        _ => near,
    }
}

/// Against known results.
#[test]
fn directions_of_double() {
    use Direction::{Down, Up, Zero};
    let tiny = 2f64.powi(-1000);
    assert_eq!([Zero, Down, Up].map(|d| fma64(tiny, 1.0, 1.0, d)), [1.0, 1.0, 1f64.next_up()]);
    assert_eq!(
        [Zero, Down, Up].map(|d| fma64(tiny, -1.0, 1.0, d)),
        [1f64.next_down(), 1f64.next_down(), 1.0]
    );
    let least = f64::from_bits(1);
    assert_eq!(
        [Zero, Down, Up].map(|d| fma64(3.0 * 2f64.powi(-600), 2f64.powi(-475), 0.0, d)),
        [least, least, 2.0 * least]
    );
    assert_eq!([Zero, Down, Up].map(|d| fma64(f64::MAX, 2.0, 0.0, d)), [f64::MAX, f64::MAX, f64::INFINITY]);
    assert_eq!([Zero, Down, Up].map(|d| fma64(tiny, tiny, 0.0, d)), [0.0, 0.0, least]);
}
