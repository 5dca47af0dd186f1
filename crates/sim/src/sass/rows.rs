//! Operations on words that are computed for all lanes of a warp at once: loops over rows of registers, which the
//! compiler turns into vector instructions. [`super::operand::lanewise`] is for what has no such form.

use super::Fault;
use super::operand::{Dst, Exec, From, Kind, Pred, PredDst, Src};
use super::state::{Machine, PT, Warp};
use sass::Reg;

/// A word of each lane.
pub(crate) type Row = [u32; 32];

/// Where the words of a source are.
#[derive(Clone, Copy)]
enum Place {
    /// In this row of the register file, as they are.
    Row(u8),
    /// There, to be changed: `((x & and) ^ xor) + add`.
    Changed { row: u8, and: u32, xor: u32, add: u32 },
    /// In a uniform register, or there and to be changed by modifiers of a kind of their own.
    Other,
    /// Known beforehand.
    Fixed,
}

/// A source of words.
#[derive(Clone)]
pub(crate) struct Word {
    src: Src,
    place: Place,
    fixed: Row,
}

impl Word {
    /// A source of 32 bits with its modifiers.
    pub(crate) fn of(src: Src) -> Word {
        let fixed = match src.from {
            From::Fixed(x) => src.apply(x) as u32,
            _ => 0,
        };
        let place = match src.from {
            From::Fixed(_) => Place::Fixed,
            From::Uniform(_) => Place::Other,
            From::Reg(row) if !(src.neg || src.abs || src.not) => Place::Row(row),
            From::Reg(row) => match (src.kind, src.neg, src.abs, src.not) {
                (Kind::Int, true, false, false) => Place::Changed { row, and: !0, xor: !0, add: 1 },
                (Kind::Int, false, false, true) => Place::Changed { row, and: !0, xor: !0, add: 0 },
                (Kind::Single | Kind::Halves, neg, abs, _) => {
                    let sign = if src.kind == Kind::Single { 1 << 31 } else { 0x8000_8000 };
                    let (and, xor) = (if abs { !sign } else { !0 }, if neg { sign } else { 0 });
                    Place::Changed { row, and, xor, add: 0 }
                }
                _ => Place::Other,
            },
        };
        Word { src, place, fixed: [fixed; 32] }
    }

    /// The words of a source of 64 bits, the lower ones first, without modifiers.
    pub(crate) fn pair(src: Src) -> [Word; 2] {
        let upper = |r: u8| if r >= 254 { 255 } else { r + 1 };
        let part = |from| Word::of(Src::word(from));
        match src.from {
            From::Reg(r) => [part(From::Reg(r)), part(From::Reg(upper(r)))],
            From::Uniform(r) => [part(From::Uniform(r)), part(From::Uniform(upper(r)))],
            From::Fixed(x) => [part(From::Fixed(x & 0xffff_ffff)), part(From::Fixed(x >> 32))],
        }
    }

    /// Puts the words into `out` where they are not to be had in place.
    #[inline(always)]
    fn prepare(&self, w: &Warp, out: &mut Row) {
        match self.place {
            Place::Changed { row, and, xor, add } => {
                for (o, x) in out.iter_mut().zip(&w.r[usize::from(row)]) {
                    *o = ((x & and) ^ xor).wrapping_add(add);
                }
            }
            Place::Other => self.gather(w, out),
            Place::Row(_) | Place::Fixed => {}
        }
    }

    #[inline(never)]
    fn gather(&self, w: &Warp, out: &mut Row) {
        match self.src.from {
            From::Reg(r) => {
                let row = &w.r[usize::from(r)];
                out.iter_mut().zip(row).for_each(|(o, x)| *o = self.src.apply((*x).into()) as u32);
            }
            _ => out.fill(self.src.uniform(w) as u32),
        }
    }

    /// The words, of which `prepared` has those that are not in place.
    #[inline(always)]
    fn row<'a>(&'a self, w: &'a Warp, prepared: &'a Row) -> &'a Row {
        match self.place {
            Place::Row(r) => &w.r[usize::from(r)],
            Place::Fixed => &self.fixed,
            _ => prepared,
        }
    }

    fn uniform(&self, w: &Warp) -> u32 {
        self.src.uniform(w) as u32
    }
}

/// Writes the lanes of `mask` of a register.
#[inline(always)]
pub(crate) fn put(w: &mut Warp, register: usize, mask: u32, values: &Row) {
    if register >= usize::from(Reg::ZERO) {
        return;
    }
    let row = &mut w.r[register];
    if mask == u32::MAX {
        *row = *values;
    } else {
        for (lane, (r, v)) in row.iter_mut().zip(values).enumerate() {
            let keep = (mask >> lane & 1).wrapping_sub(1);
            *r = *r & keep | v & !keep;
        }
    }
}

/// What an operation reads and writes: W words and Q predicates of N words and P predicates.
struct Form<F, const N: usize, const P: usize, const W: usize, const Q: usize> {
    dst: u8,
    pdst: [u8; Q],
    srcs: [Word; N],
    preds: [Pred; P],
    f: F,
}

impl<F, const N: usize, const P: usize, const W: usize, const Q: usize> Loop for Form<F, N, P, W, Q>
where
    F: Fn([u32; N], [bool; P]) -> ([u32; W], [bool; Q]) + Send + Sync + 'static,
{
    #[inline(always)]
    fn run(&self, m: &mut Machine<'_>, mask: u32) -> Result<(), Fault> {
        let w = &mut *m.warp;
        let mut prepared = [[0; 32]; N];
        for (s, row) in self.srcs.iter().zip(&mut prepared) {
            s.prepare(w, row);
        }
        let rows: [&Row; N] = std::array::from_fn(|i| self.srcs[i].row(w, &prepared[i]));
        let masks = self.preds.map(|p| p.mask(w));
        let mut results = [[0; 32]; W];
        let mut bits = [0; Q];
        for lane in 0..32 {
            let holds = masks.map(|m| m >> lane & 1 != 0);
            let (words, preds) = (self.f)(std::array::from_fn(|i| rows[i][lane]), holds);
            for i in 0..W {
                results[i][lane] = words[i];
            }
            for i in 0..Q {
                bits[i] |= u32::from(preds[i]) << lane;
            }
        }
        if self.dst != Reg::ZERO {
            for (i, row) in results.iter().enumerate() {
                put(w, usize::from(self.dst) + i, mask, row);
            }
        }
        for (index, bits) in self.pdst.iter().zip(bits) {
            if *index != PT {
                let p = &mut w.p[usize::from(*index & 7)];
                *p = *p & !mask | bits & mask;
            }
        }
        Ok(())
    }
}

/// A lane-wise operation: `f` maps the sources and the predicate sources of a lane to the words of the result and to
/// predicates. It must have a result for whatever bits there are.
pub(crate) fn words<const N: usize, const P: usize, const W: usize, const Q: usize>(
    dst: Option<Dst>,
    pdst: [PredDst; Q],
    srcs: [Word; N],
    preds: [Pred; P],
    f: impl Fn([u32; N], [bool; P]) -> ([u32; W], [bool; Q]) + Send + Sync + 'static,
) -> Exec {
    if dst.is_some_and(Dst::is_uniform) || pdst.iter().any(|p| p.is_uniform()) {
        return Box::new(move |m, _| {
            let w = &mut *m.warp;
            let holds = std::array::from_fn(|i| preds[i].mask(w) & 1 != 0);
            let (words, bits) = f(std::array::from_fn(|i| srcs[i].uniform(w)), holds);
            if let Some(d) = dst {
                words.iter().enumerate().for_each(|(i, x)| d.word(w, 0, i as u8, *x));
            }
            pdst.iter().zip(bits).for_each(|(p, bit)| p.put(w, 0, bit));
            Ok(())
        });
    }
    let dst = dst.map_or(Reg::ZERO, Dst::index);
    vector(Form { dst, pdst: pdst.map(PredDst::index), srcs, preds, f })
}

/// One word of words.
pub(crate) fn word<const N: usize>(
    dst: Dst,
    srcs: [Src; N],
    f: impl Fn([u32; N]) -> u32 + Send + Sync + 'static,
) -> Exec {
    words(Some(dst), [], srcs.map(Word::of), [], move |x, []| ([f(x)], []))
}

/// As [`words`], where `f` says of which lanes it can't tell the result; these get that of `slow`.
pub(crate) fn careful<const N: usize, const W: usize>(
    dst: Dst,
    srcs: [Word; N],
    f: impl Fn([u32; N]) -> ([u32; W], bool) + Send + Sync + 'static,
    slow: impl Fn([u32; N]) -> [u32; W] + Send + Sync + 'static,
) -> Exec {
    if dst.is_uniform() {
        return words(Some(dst), [], srcs, [], move |x, []| (slow(x), []));
    }
    vector(Careful { dst: dst.index(), srcs, f, slow })
}

/// See [`careful`].
struct Careful<F, S, const N: usize> {
    dst: u8,
    srcs: [Word; N],
    f: F,
    slow: S,
}

impl<F, S, const N: usize, const W: usize> Loop for Careful<F, S, N>
where
    F: Fn([u32; N]) -> ([u32; W], bool) + Send + Sync + 'static,
    S: Fn([u32; N]) -> [u32; W] + Send + Sync + 'static,
{
    #[inline(always)]
    fn run(&self, m: &mut Machine<'_>, mask: u32) -> Result<(), Fault> {
        let w = &mut *m.warp;
        let mut prepared = [[0; 32]; N];
        for (s, row) in self.srcs.iter().zip(&mut prepared) {
            s.prepare(w, row);
        }
        let rows: [&Row; N] = std::array::from_fn(|i| self.srcs[i].row(w, &prepared[i]));
        let mut results = [[0; 32]; W];
        let mut open = 0;
        for lane in 0..32 {
            let (words, unknown) = (self.f)(std::array::from_fn(|i| rows[i][lane]));
            for i in 0..W {
                results[i][lane] = words[i];
            }
            open |= u32::from(unknown) << lane;
        }
        for lane in super::operand::lanes(open & mask) {
            let words = (self.slow)(std::array::from_fn(|i| rows[i][lane]));
            for i in 0..W {
                results[i][lane] = words[i];
            }
        }
        if self.dst != Reg::ZERO {
            for (i, row) in results.iter().enumerate() {
                put(w, usize::from(self.dst) + i, mask, row);
            }
        }
        Ok(())
    }
}

/// What is done to all lanes of a warp at once.
pub(crate) trait Loop: Send + Sync + 'static {
    /// Does it, in the lanes of `mask`. It is to be inlined into code for the processor at hand.
    fn run(&self, m: &mut Machine<'_>, mask: u32) -> Result<(), Fault>;
}

/// `f`, compiled for processors with AVX2 and fused multiply-add as well as for any.
#[cfg(target_arch = "x86_64")]
pub(crate) fn vector(f: impl Loop) -> Exec {
    /// Inlines `f` into code that may use wider vectors. Calling it is unsafe only where the processor lacks them.
    #[target_feature(enable = "avx2,fma")]
    fn wide(f: &impl Loop, m: &mut Machine<'_>, mask: u32) -> Result<(), Fault> {
        f.run(m, mask)
    }
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
        return Box::new(move |m, mask| f.run(m, mask));
    }
    Box::new(move |m, mask| {
        // SAFETY: the features that `wide` is compiled for were detected.
        #[allow(unsafe_code)]
        unsafe {
            wide(&f, m, mask)
        }
    })
}

/// Other processors' vectors are in every target's code.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn vector(f: impl Loop) -> Exec {
    Box::new(move |m, mask| f.run(m, mask))
}
