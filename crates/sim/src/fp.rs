//! Exact binary floating point: every rounding mode on binary16, bfloat16, binary32 and binary64, from one
//! definition: unpack, compute exactly (with a sticky bit), round once.
//!
//! NaN results: binary16 and binary32 arithmetic gives the canonical NaN (`0x7fff`, `0x7fffffff`), as the PTX
//! ISA says; binary64 passes on the first NaN operand, quieted, and makes `0xfff8000000000000` of an invalid
//! operation.

/// Rounding direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Round {
    /// To nearest, ties to even.
    #[default]
    Nearest,
    /// Toward zero.
    Zero,
    /// Toward minus infinity.
    Down,
    /// Toward plus infinity.
    Up,
}

/// A binary interchange format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Fraction bits stored.
    pub frac: u32,
    /// Exponent bits.
    pub exp: u32,
    /// Results below the least normal number are zero of their sign ([`Format::flushing`]).
    flushes: bool,
}

/// binary16
pub const F16: Format = Format { frac: 10, exp: 5, flushes: false };
/// bfloat16
pub const BF16: Format = Format { frac: 7, exp: 8, flushes: false };
/// binary32
pub const F32: Format = Format { frac: 23, exp: 8, flushes: false };
/// binary64
pub const F64: Format = Format { frac: 52, exp: 11, flushes: false };

impl Format {
    /// Bits in all.
    pub const fn bits(self) -> u32 {
        self.frac + self.exp + 1
    }
    const fn bias(self) -> i32 {
        (1 << (self.exp - 1)) - 1
    }
    const fn exp_mask(self) -> u64 {
        (1 << self.exp) - 1
    }
    const fn frac_mask(self) -> u64 {
        (1 << self.frac) - 1
    }
    const fn sign_bit(self) -> u64 {
        1 << (self.bits() - 1)
    }
    /// Positive infinity.
    pub const fn infinity(self) -> u64 {
        self.exp_mask() << self.frac
    }
    /// Whether `bits` is a NaN.
    pub const fn is_nan(self, bits: u64) -> bool {
        bits & !self.sign_bit() > self.infinity()
    }
    /// Whether `bits` is a subnormal number.
    pub const fn is_subnormal(self, bits: u64) -> bool {
        let magnitude = bits & !self.sign_bit();
        magnitude != 0 && magnitude <= self.frac_mask()
    }
    /// A subnormal number as zero of its sign; anything else unchanged.
    pub const fn flush(self, bits: u64) -> u64 {
        if self.is_subnormal(bits) { bits & self.sign_bit() } else { bits }
    }
    /// The format for results of instructions with `.ftz`, if `ftz`. What is below the least normal number once it
    /// is rounded to all fraction bits, as if there were smaller exponents, becomes zero: ptxas 13.0.88 folds
    /// `mul.rn.ftz.f32 0f3f7fffff, 0f00800000` to zero (without `.ftz` to `0f00800000`), but
    /// `mul.rn.ftz.f32 0f3f7ff800, 0f00800400` to `0f00800000`.
    pub const fn flushing(self, ftz: bool) -> Format {
        Format { flushes: ftz, ..self }
    }
    /// The NaN that an invalid operation gives.
    pub const fn invalid_nan(self) -> u64 {
        match self.frac {
            52 => 0xfff8_0000_0000_0000,
            _ => self.sign_bit() - 1,
        }
    }
    /// The NaN that an operation on these operands gives: `None` if none of them is a NaN.
    fn nan_of(self, operands: &[u64]) -> Option<u64> {
        let nan = *operands.iter().find(|x| self.is_nan(**x))?;
        Some(if self.frac == 52 { nan | 1 << 51 } else { self.invalid_nan() })
    }
    /// `bits` clamped to [0, 1]; NaN becomes +0.
    pub fn saturate(self, bits: u64) -> u64 {
        let one = (self.bias() as u64) << self.frac;
        match () {
            () if self.is_nan(bits) || bits & self.sign_bit() != 0 => 0,
            () if bits > one => one,
            () => bits,
        }
    }
}

/// A number taken apart: `(-1)^sign · mant · 2^exp`, or not a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parts {
    Nan,
    Inf(bool),
    Num { sign: bool, exp: i32, mant: u128 },
}

pub(crate) fn unpack(bits: u64, f: Format) -> Parts {
    let sign = bits & f.sign_bit() != 0;
    let (e, m) = ((bits >> f.frac & f.exp_mask()) as i32, bits & f.frac_mask());
    match (e as u64 == f.exp_mask(), e) {
        (true, _) if m != 0 => Parts::Nan,
        (true, _) => Parts::Inf(sign),
        (_, 0) => Parts::Num { sign, exp: 1 - f.bias() - f.frac as i32, mant: m.into() },
        _ => Parts::Num { sign, exp: e - f.bias() - f.frac as i32, mant: (m | 1 << f.frac).into() },
    }
}

/// Whether a magnitude with `rest` below the last kept bit (`half` = half a unit) is rounded away from zero.
fn rounds_up(sign: bool, odd: bool, rest: u128, half: u128, rm: Round) -> bool {
    match rm {
        Round::Nearest => rest > half || rest == half && odd,
        Round::Zero => false,
        Round::Down => sign && rest != 0,
        Round::Up => !sign && rest != 0,
    }
}

/// The multiple of `2^unit` that `(-1)^sign · mant · 2^exp` is rounded to.
fn kept(sign: bool, exp: i32, mant: u128, unit: i32, rm: Round) -> u64 {
    let rounded = match unit - exp {
        d if d <= 0 => mant << -d,
        d if d > 127 => u128::from(rounds_up(sign, false, 1, 2, rm)),
        d => {
            let (kept, rest) = (mant >> d, mant & ((1 << d) - 1));
            kept + u128::from(rounds_up(sign, kept & 1 != 0, rest, 1 << (d - 1), rm))
        }
    };
    rounded as u64
}

/// Rounds `(-1)^sign · mant · 2^exp` (mant below 2^127, its lowest bit may be sticky) to the format.
pub(crate) fn pack(sign: bool, exp: i32, mant: u128, f: Format, rm: Round) -> u64 {
    let s = if sign { f.sign_bit() } else { 0 };
    if mant == 0 {
        return s;
    }
    let msb = 127 - mant.leading_zeros() as i32;
    let min_exp = 1 - f.bias() - f.frac as i32;
    // Exponent of the last kept bit.
    let full = exp + msb - f.frac as i32;
    if f.flushes && full < min_exp {
        let next = full == min_exp - 1 && kept(sign, exp, mant, full, rm) > 2 * f.frac_mask() + 1;
        return s | if next { f.frac_mask() + 1 } else { 0 };
    }
    let unit = full.max(min_exp);
    let kept = kept(sign, exp, mant, unit, rm);
    // A carry out of the significand runs into the exponent field, which is just right.
    let biased = if kept > f.frac_mask() { (unit + f.frac as i32 + f.bias()) as u64 - 1 } else { 0 };
    let magnitude = (biased << f.frac) + kept;
    if biased >= f.exp_mask() || magnitude >= f.infinity() {
        let away = match rm {
            Round::Nearest => true,
            Round::Zero => false,
            Round::Down => sign,
            Round::Up => !sign,
        };
        return s | if away { f.infinity() } else { f.infinity() - 1 };
    }
    s | magnitude
}

/// `a · b + c`, rounded once.
pub fn fma(a: u64, b: u64, c: u64, f: Format, rm: Round) -> u64 {
    if let Some(nan) = f.nan_of(&[a, b, c]) {
        return nan;
    }
    let (pa, pb, pc) = (unpack(a, f), unpack(b, f), unpack(c, f));
    let psign = (a ^ b) & f.sign_bit() != 0;
    let zero = |p: Parts| matches!(p, Parts::Num { mant: 0, .. });
    let inf = |sign: bool| f.infinity() | if sign { f.sign_bit() } else { 0 };
    let product_inf = matches!(pa, Parts::Inf(_)) || matches!(pb, Parts::Inf(_));
    if product_inf && (zero(pa) || zero(pb)) {
        return f.invalid_nan();
    }
    match pc {
        Parts::Inf(sign) if product_inf && sign != psign => return f.invalid_nan(),
        Parts::Inf(sign) => return inf(sign),
        _ if product_inf => return inf(psign),
        _ => {}
    }
    let (
        Parts::Num { exp: ea, mant: ma, .. },
        Parts::Num { exp: eb, mant: mb, .. },
        Parts::Num { sign: csign, exp: ec, mant: mc },
    ) = (pa, pb, pc)
    else {
        return f.invalid_nan();
    };
    add_exact((psign, ea + eb, ma * mb), (csign, ec, mc), f, rm)
}

/// The sum of two exact numbers below 2^107, rounded once.
fn add_exact(x: (bool, i32, u128), y: (bool, i32, u128), f: Format, rm: Round) -> u64 {
    if x.2 == 0 && y.2 == 0 {
        let sign = if x.0 == y.0 { x.0 } else { rm == Round::Down };
        return pack(sign, 0, 0, f, rm);
    }
    if x.2 == 0 || y.2 == 0 {
        let (sign, exp, mant) = if x.2 == 0 { y } else { x };
        return pack(sign, exp, mant, f, rm);
    }
    let normal = |(sign, exp, mant): (bool, i32, u128)| {
        let up = mant.leading_zeros() as i32 - 2;
        (sign, exp - up, mant << up)
    };
    let (mut big, mut small) = (normal(x), normal(y));
    if (small.1, small.2) > (big.1, big.2) {
        std::mem::swap(&mut big, &mut small);
    }
    let shift = big.1 - small.1;
    let aligned = match shift {
        0 => small.2,
        1..=125 => small.2 >> shift | u128::from(small.2 & ((1 << shift) - 1) != 0),
        _ => 1,
    };
    let mant = if big.0 == small.0 { big.2 + aligned } else { big.2 - aligned };
    let sign = if mant == 0 { rm == Round::Down } else { big.0 };
    pack(sign, big.1, mant, f, rm)
}

/// `a + b`.
pub fn add(a: u64, b: u64, f: Format, rm: Round) -> u64 {
    if let Some(nan) = f.nan_of(&[a, b]) {
        return nan;
    }
    let one = (f.bias() as u64) << f.frac;
    fma(a, one, b, f, rm)
}

/// `a · b`.
pub fn mul(a: u64, b: u64, f: Format, rm: Round) -> u64 {
    if let Some(nan) = f.nan_of(&[a, b]) {
        return nan;
    }
    let zero = (a ^ b) & f.sign_bit();
    fma(a, b, zero, f, rm)
}

/// `a / b`.
pub fn div(a: u64, b: u64, f: Format, rm: Round) -> u64 {
    if let Some(nan) = f.nan_of(&[a, b]) {
        return nan;
    }
    let sign = (a ^ b) & f.sign_bit() != 0;
    let s = if sign { f.sign_bit() } else { 0 };
    match (unpack(a, f), unpack(b, f)) {
        (Parts::Inf(_), Parts::Inf(_)) => f.invalid_nan(),
        (Parts::Num { mant: 0, .. }, Parts::Num { mant: 0, .. }) => f.invalid_nan(),
        (Parts::Inf(_), _) | (_, Parts::Num { mant: 0, .. }) => s | f.infinity(),
        (_, Parts::Inf(_)) => s,
        (Parts::Num { exp: ea, mant: ma, .. }, Parts::Num { exp: eb, mant: mb, .. }) if ma != 0 => {
            // The quotient has at least 66 bits; a remainder makes its lowest bit sticky.
            let up = ma.leading_zeros() as i32 - 8;
            let ma = ma << up;
            let sticky = u128::from(!ma.is_multiple_of(mb));
            pack(sign, ea - up - eb - 1, (ma / mb) << 1 | sticky, f, rm)
        }
        _ => s,
    }
}

/// The square root of `a`.
pub fn sqrt(a: u64, f: Format, rm: Round) -> u64 {
    match (f.nan_of(&[a]), unpack(a, f)) {
        (Some(nan), _) => nan,
        (_, Parts::Num { mant: 0, .. }) => a,
        (_, Parts::Inf(true) | Parts::Num { sign: true, .. }) => f.invalid_nan(),
        (_, Parts::Num { exp, mant, .. }) => {
            // An even exponent, and at least 120 bits, of which the root keeps half.
            let up = mant.leading_zeros() as i32 - 6;
            let up = up - (exp - up).rem_euclid(2);
            let mant = mant << up;
            let root = mant.isqrt();
            pack(false, (exp - up) / 2 - 1, root << 1 | u128::from(root * root != mant), f, rm)
        }
        _ => a,
    }
}

/// A number of format `from` in format `to`. NaN: the canonical one, except that binary64 keeps what binary32
/// holds.
pub fn convert(bits: u64, from: Format, to: Format, rm: Round) -> u64 {
    match unpack(bits, from) {
        Parts::Nan if to.frac == 52 => {
            let sign = if bits & from.sign_bit() != 0 { to.sign_bit() } else { 0 };
            sign | to.infinity() | 1 << 51 | (bits & from.frac_mask()) << (to.frac - from.frac)
        }
        Parts::Nan => to.sign_bit() - 1,
        Parts::Inf(sign) => to.infinity() | if sign { to.sign_bit() } else { 0 },
        Parts::Num { sign, exp, mant } => pack(sign, exp, mant, to, rm),
    }
}

/// An integer in the format.
pub fn from_int(value: i128, f: Format, rm: Round) -> u64 {
    pack(value < 0, 0, value.unsigned_abs(), f, rm)
}

/// The number rounded to an integer; `None` for a NaN. What doesn't fit is ±`i128::MAX`.
pub fn to_int(bits: u64, f: Format, rm: Round) -> Option<i128> {
    match unpack(bits, f) {
        Parts::Nan => None,
        Parts::Inf(sign) => Some(if sign { -i128::MAX } else { i128::MAX }),
        Parts::Num { sign, exp, mant } => {
            let magnitude = match exp {
                e if e >= 0 && mant != 0 && e as u32 >= mant.leading_zeros() - 1 => i128::MAX as u128,
                e if e >= 0 => mant << (e as u32 & 127),
                e if e < -126 => u128::from(rounds_up(sign, false, u128::from(mant != 0), 2, rm)),
                e => {
                    let (kept, rest) = (mant >> -e, mant & ((1 << -e) - 1));
                    kept + u128::from(rounds_up(sign, kept & 1 != 0, rest, 1 << (-e - 1), rm))
                }
            };
            Some(if sign { -(magnitude as i128) } else { magnitude as i128 })
        }
    }
}

/// The number rounded to an integral value in the same format.
pub fn round_integral(bits: u64, f: Format, rm: Round) -> u64 {
    let exponent = (bits >> f.frac & f.exp_mask()) as i32 - f.bias();
    match f.nan_of(&[bits]) {
        Some(nan) => nan,
        None if exponent >= f.frac as i32 => bits,
        None => {
            let magnitude = from_int(to_int(bits, f, rm).unwrap_or(0), f, rm) & !f.sign_bit();
            magnitude | bits & f.sign_bit()
        }
    }
}

/// A binary32 operation's options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Single {
    /// Rounding direction.
    pub rm: Round,
    /// Subnormal operands and results are zero of their sign.
    pub ftz: bool,
    /// The result is clamped to [0, 1].
    pub sat: bool,
}

impl Single {
    fn input(self, x: u32) -> u32 {
        if self.ftz { F32.flush(x.into()) as u32 } else { x }
    }
    fn finish(self, x: u32) -> u32 {
        if self.sat { F32.saturate(x.into()) as u32 } else { x }
    }
    /// The host's result where it is the same, else what `exact` gives.
    fn nearest(self, r: f32, exact: impl Fn(Format) -> u64) -> u32 {
        match () {
            () if self.rm != Round::Nearest || self.ftz && r.abs() <= f32::MIN_POSITIVE => {
                self.finish(exact(F32.flushing(self.ftz)) as u32)
            }
            () if r.is_nan() => self.finish(0x7fff_ffff),
            () => self.finish(r.to_bits()),
        }
    }
    /// `a + b`
    pub fn add(self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.input(a), self.input(b));
        let host = f32::from_bits(a) + f32::from_bits(b);
        self.nearest(host, |f| add(a.into(), b.into(), f, self.rm))
    }
    /// `a · b`
    pub fn mul(self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.input(a), self.input(b));
        let host = f32::from_bits(a) * f32::from_bits(b);
        self.nearest(host, |f| mul(a.into(), b.into(), f, self.rm))
    }
    /// `a · b + c`, rounded once
    pub fn fma(self, a: u32, b: u32, c: u32) -> u32 {
        let (a, b, c) = (self.input(a), self.input(b), self.input(c));
        let host = f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c));
        self.nearest(host, |f| fma(a.into(), b.into(), c.into(), f, self.rm))
    }
}

/// binary64 `a + b`
pub fn dadd(a: u64, b: u64, rm: Round) -> u64 {
    let r = f64::from_bits(a) + f64::from_bits(b);
    if rm == Round::Nearest && !r.is_nan() { r.to_bits() } else { add(a, b, F64, rm) }
}

/// binary64 `a · b`
pub fn dmul(a: u64, b: u64, rm: Round) -> u64 {
    let r = f64::from_bits(a) * f64::from_bits(b);
    if rm == Round::Nearest && !r.is_nan() { r.to_bits() } else { mul(a, b, F64, rm) }
}

/// binary64 `a · b + c`, rounded once
pub fn dfma(a: u64, b: u64, c: u64, rm: Round) -> u64 {
    let r = f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c));
    if rm == Round::Nearest && !r.is_nan() { r.to_bits() } else { fma(a, b, c, F64, rm) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit patterns that reach every exponent range and rounding case.
    fn samples() -> impl Iterator<Item = u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..20_000).map(move |i| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            match i % 7 {
                0 => [0, 1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 1, 0x3ff0 << 48, 0x000f << 48, u64::MAX >> 12]
                    [(state >> 60) as usize / 2],
                1 => (state >> 12) | 0x3ff0 << 48,
                2 => state & 0x800f_ffff_ffff_ffff,
                _ => state ^ state >> 29,
            }
        })
    }

    #[test]
    fn nearest_agrees_with_the_host() {
        let v: Vec<u64> = samples().collect();
        for w in v.windows(3) {
            let d = w.iter().map(|x| f64::from_bits(*x)).collect::<Vec<_>>();
            let same = |x: u64, y: f64| f64::from_bits(x).is_nan() && y.is_nan() || x == y.to_bits();
            assert!(same(add(w[0], w[1], F64, Round::Nearest), d[0] + d[1]), "{w:x?}");
            assert!(same(mul(w[0], w[1], F64, Round::Nearest), d[0] * d[1]), "{w:x?}");
            assert!(same(fma(w[0], w[1], w[2], F64, Round::Nearest), d[0].mul_add(d[1], d[2])), "{w:x?}");
            assert!(same(div(w[0], w[1], F64, Round::Nearest), d[0] / d[1]), "{w:x?}");
            assert!(same(sqrt(w[0], F64, Round::Nearest), d[0].sqrt()), "{w:x?}");
            let s = d.iter().map(|x| *x as f32).collect::<Vec<_>>();
            let b: Vec<u64> = s.iter().map(|x| x.to_bits().into()).collect();
            let same =
                |x: u64, y: f32| f32::from_bits(x as u32).is_nan() && y.is_nan() || x == y.to_bits().into();
            assert!(same(convert(w[0], F64, F32, Round::Nearest), s[0]), "{w:x?}");
            assert!(same(fma(b[0], b[1], b[2], F32, Round::Nearest), s[0].mul_add(s[1], s[2])), "{b:x?}");
            assert!(same(add(b[0], b[1], F32, Round::Nearest), s[0] + s[1]), "{b:x?}");
            assert!(same(div(b[0], b[1], F32, Round::Nearest), s[0] / s[1]), "{b:x?}");
            assert!(same(sqrt(b[0], F32, Round::Nearest), s[0].sqrt()), "{b:x?}");
        }
    }

    #[test]
    fn directed_results_enclose_the_nearest() {
        for w in samples().collect::<Vec<_>>().windows(3) {
            let at = |rm| f64::from_bits(fma(w[0], w[1], w[2], F64, rm));
            let (down, near, up) = (at(Round::Down), at(Round::Nearest), at(Round::Up));
            if !near.is_nan() {
                assert!(down <= near && near <= up && (down == near || near == up), "{w:x?}");
                assert!(down == up || down.next_up() == up, "{w:x?}");
                assert_eq!(at(Round::Zero), if near < 0.0 || down < 0.0 { up } else { down }, "{w:x?}");
            }
        }
    }

    #[test]
    fn integers() {
        assert_eq!(to_int(2.5f64.to_bits(), F64, Round::Nearest), Some(2));
        assert_eq!(to_int((-2.5f64).to_bits(), F64, Round::Down), Some(-3));
        assert_eq!(to_int(1e30f64.to_bits(), F64, Round::Zero), Some(1e30 as i128));
        assert_eq!(to_int(1e-300f64.to_bits(), F64, Round::Up), Some(1));
        assert_eq!(to_int(f64::NAN.to_bits(), F64, Round::Up), None);
        assert_eq!(from_int(-16_777_217, F32, Round::Down), u64::from((-16_777_218f32).to_bits()));
        assert_eq!(from_int(u64::MAX.into(), F32, Round::Nearest), u64::from((2f32.powi(64)).to_bits()));
        assert_eq!(round_integral((-0.25f64).to_bits(), F64, Round::Nearest), (-0.0f64).to_bits());
    }

    #[test]
    fn flush_and_saturation() {
        let op = Single { ftz: true, ..Single::default() };
        assert_eq!(op.add(1, 0x8000_0000), 0);
        assert_eq!(Single::default().add(1, 1), 2);
        // What ptxas 13.0.88 makes of these constants.
        let (a, least) = (0x3f7f_ffff, 0x0080_0000);
        assert_eq!((op.mul(a, least), Single::default().mul(a, least)), (0, least));
        assert_eq!(op.mul(a, least | 1 << 31), 1 << 31);
        assert_eq!(op.mul(0x3f7f_f800, 0x0080_0400), least);
        let up = Single { rm: Round::Up, ..op };
        assert_eq!((up.mul(a, least), up.mul(0x3f7f_f800, 0x0080_0400)), (0, least));
        let double = |x: f64| convert(x.to_bits(), F64, F32.flushing(true), Round::Nearest);
        let part = |x: f64| (1.0 - x) * f64::from(f32::MIN_POSITIVE);
        assert_eq!((double(part(2f64.powi(-24))), double(part(2f64.powi(-26)))), (0, least.into()));
        let sat = Single { sat: true, ..Single::default() };
        assert_eq!(sat.add(2f32.to_bits(), 1f32.to_bits()), 1f32.to_bits());
        assert_eq!(sat.mul(f32::INFINITY.to_bits(), 0), 0);
        assert_eq!(Single::default().mul(f32::INFINITY.to_bits(), 0), 0x7fff_ffff);
    }

    #[test]
    fn half_precision_is_exact() {
        for x in 0..=u16::MAX {
            let wide = convert(x.into(), F16, F32, Round::Nearest) as u32;
            let host = half::f16::from_bits(x).to_f32();
            assert!(host.is_nan() || wide == host.to_bits(), "{x:x}");
            let back = convert(wide.into(), F32, F16, Round::Nearest) as u16;
            assert!(host.is_nan() || back == x, "{x:x}");
        }
    }
}
