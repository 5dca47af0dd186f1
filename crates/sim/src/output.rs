//! What threads print with `vprintf`, and what else the driver's functions do, the same for the interpreter and
//! the simulator.

use crate::image::Geometry;
use std::collections::BTreeMap;

/// Text printed, by number of the block and thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Output(BTreeMap<(u64, u32), String>);

impl Output {
    /// Appends what a thread prints.
    pub fn print(&mut self, block: u64, thread: u32, text: &str) {
        self.0.entry((block, thread)).or_default().push_str(text);
    }
    /// Takes in what others of the same launch have printed.
    pub(crate) fn merge(&mut self, other: Output) {
        for ((block, thread), text) in other.0 {
            self.print(block, thread, &text);
        }
    }
    /// All of it: thread after thread, each one's lines in its order. The order between threads is nobody's
    /// promise, so it is left out.
    pub fn text(&self) -> String {
        self.0.values().map(String::as_str).collect()
    }
}

/// The functions that the driver provides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Driver {
    Printf,
    Malloc,
    Free,
    Assert,
    /// What names the whole grid (`cudaCGGetIntrinsicHandle`): a number, zero where its blocks don't run at once.
    GridHandle,
    /// A barrier of what was named so (`cudaCGSynchronize`).
    GridSync,
    /// A texture of a volume or a cube fetched by derivatives; whether it gives halves, two in a word.
    Gradient(Geometry, bool),
}

/// Their names.
pub(crate) const DRIVER: [(&str, Driver); 38] = [
    ("vprintf", Driver::Printf),
    ("malloc", Driver::Malloc),
    ("free", Driver::Free),
    ("__assertfail", Driver::Assert),
    // The device runtime's library calls these for cooperative groups.
    ("__cuda_syscall_CGS_get_intrinsic_handle", Driver::GridHandle),
    ("__cuda_syscall_CGS_sync", Driver::GridSync),
    // What kind the results are is the caller's business, and all of memory is there.
    ("__cuda_syscall_tex_grad_3d_v4_f32_f32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_f32_f32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_3d_v4_s32_f32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_s32_f32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_3d_v4_u32_f32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_u32_f32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_cube_v4_f32_f32", Driver::Gradient(Geometry::Cube, false)),
    ("__cuda_syscall_tex_grad_pred_cube_v4_f32_f32", Driver::Gradient(Geometry::Cube, false)),
    ("__cuda_syscall_tex_grad_cube_v4_s32_f32", Driver::Gradient(Geometry::Cube, false)),
    ("__cuda_syscall_tex_grad_pred_cube_v4_s32_f32", Driver::Gradient(Geometry::Cube, false)),
    ("__cuda_syscall_tex_grad_cube_v4_u32_f32", Driver::Gradient(Geometry::Cube, false)),
    ("__cuda_syscall_tex_grad_pred_cube_v4_u32_f32", Driver::Gradient(Geometry::Cube, false)),
    ("__cuda_syscall_tex_grad_acube_v4_f32_f32", Driver::Gradient(Geometry::ArrayCube, false)),
    ("__cuda_syscall_tex_grad_pred_acube_v4_f32_f32", Driver::Gradient(Geometry::ArrayCube, false)),
    ("__cuda_syscall_tex_grad_acube_v4_s32_f32", Driver::Gradient(Geometry::ArrayCube, false)),
    ("__cuda_syscall_tex_grad_pred_acube_v4_s32_f32", Driver::Gradient(Geometry::ArrayCube, false)),
    ("__cuda_syscall_tex_grad_acube_v4_u32_f32", Driver::Gradient(Geometry::ArrayCube, false)),
    ("__cuda_syscall_tex_grad_pred_acube_v4_u32_f32", Driver::Gradient(Geometry::ArrayCube, false)),
    ("__cuda_syscall_tex_grad_3d_v4_f32_s32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_f32_s32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_3d_v4_s32_s32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_s32_s32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_3d_v4_u32_s32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_u32_s32", Driver::Gradient(Geometry::D3, false)),
    ("__cuda_syscall_tex_grad_3d_v4_f16_s32", Driver::Gradient(Geometry::D3, true)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_f16_s32", Driver::Gradient(Geometry::D3, true)),
    ("__cuda_syscall_tex_grad_3d_v4_f16_f32", Driver::Gradient(Geometry::D3, true)),
    ("__cuda_syscall_tex_grad_pred_3d_v4_f16_f32", Driver::Gradient(Geometry::D3, true)),
    ("__cuda_syscall_tex_grad_cube_v4_f16_f32", Driver::Gradient(Geometry::Cube, true)),
    ("__cuda_syscall_tex_grad_pred_cube_v4_f16_f32", Driver::Gradient(Geometry::Cube, true)),
    ("__cuda_syscall_tex_grad_acube_v4_f16_f32", Driver::Gradient(Geometry::ArrayCube, true)),
    ("__cuda_syscall_tex_grad_pred_acube_v4_f16_f32", Driver::Gradient(Geometry::ArrayCube, true)),
];

/// Bytes that `malloc` has to give unless somebody says otherwise: the driver's heap.
pub(crate) const HEAP: u64 = 8 << 20;

/// Formats as `vprintf` does; `argument` gives the number of so many bytes (4 or 8) at the next place in the
/// list, `string` the text at an address. `None` when one of them fails.
pub(crate) fn format(
    format: &[u8],
    argument: &mut dyn FnMut(usize) -> Option<u64>,
    string: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
) -> Option<String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some((&c, tail)) = rest.split_first() {
        rest = tail;
        if c != b'%' {
            out.push(char::from(c));
            continue;
        }
        let at = rest.iter().position(|c| !b"-+ #0123456789.*lhzjtq".contains(c)).unwrap_or(rest.len());
        let (flags, tail) = rest.split_at(at);
        let Some((&kind, tail)) = tail.split_first() else {
            out.push('%');
            break;
        };
        rest = tail;
        let mut numbers = [None::<usize>; 2];
        let mut part = 0;
        for (i, c) in flags.iter().enumerate() {
            match c {
                b'.' => (part, numbers[1]) = (1, Some(0)),
                b'*' => numbers[part] = Some(argument(4)? as u32 as usize),
                b'0' if part == 0 && numbers[0].is_none() => {}
                b'0'..=b'9' => {
                    let n = numbers[part].unwrap_or(0) * 10 + usize::from(c - b'0');
                    numbers[part] = Some(n.min(1 << 10));
                }
                _ => debug_assert!(i < flags.len()),
            }
        }
        let [width, precision] = numbers.map(|n| n.map(|n| n.min(1 << 10)));
        let has = |c: u8| flags.contains(&c);
        // `0` among the flags, in front of the width.
        let filled = flags.iter().find(|c| !b"+- #".contains(c)) == Some(&b'0');
        let long = has(b'l') || has(b'z') || has(b'j') || has(b't') || has(b'q');
        let text = match kind {
            b'%' => "%".to_string(),
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                let n = if long { argument(8)? } else { argument(4)? };
                let narrow = flags.iter().filter(|c| **c == b'h').count();
                integer(kind, n, if long { 64 } else { [32, 16, 8][narrow.min(2)] }, precision, has(b'#'))
            }
            b'p' => format!("{:#x}", argument(8)?),
            b'c' => char::from(argument(4)? as u8).to_string(),
            b's' => {
                let bytes = string(argument(8)?)?;
                String::from_utf8_lossy(&bytes[..precision.unwrap_or(bytes.len()).min(bytes.len())])
                    .into_owned()
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let x = f64::from_bits(argument(8)?);
                let text = real(kind.to_ascii_lowercase(), x, precision, has(b'#'));
                if kind.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text }
            }
            other => format!("%{}", char::from(other)),
        };
        let signed = matches!(kind.to_ascii_lowercase(), b'd' | b'i' | b'f' | b'e' | b'g' | b'a');
        let sign = match signed && !text.starts_with('-') {
            true if has(b'+') => "+",
            true if has(b' ') => " ",
            _ => "",
        };
        let number = match kind.to_ascii_lowercase() {
            // Zeros in front are the precision's.
            b'd' | b'i' | b'u' | b'x' | b'o' => precision.is_none(),
            b'f' | b'e' | b'g' | b'a' => !text.to_ascii_lowercase().ends_with(['f', 'n']),
            kind => kind == b'p',
        };
        let pad = width.unwrap_or(0).saturating_sub(text.len() + sign.len());
        match () {
            () if has(b'-') => out.extend([sign, &text, &" ".repeat(pad)]),
            () if filled && number => {
                let (minus, digits) = text.strip_prefix('-').map_or(("", &text[..]), |d| ("-", d));
                let base = digits.get(..2).filter(|b| b.eq_ignore_ascii_case("0x")).unwrap_or("");
                out.extend([sign, minus, base, &"0".repeat(pad), &digits[base.len()..]]);
            }
            () => out.extend([&" ".repeat(pad), sign, &text]),
        }
    }
    Some(out)
}

/// An integer of so many bits as C writes it by `d`, `u`, `x`, `X` and `o`; `marked`: with its base.
fn integer(kind: u8, n: u64, bits: u32, precision: Option<usize>, marked: bool) -> String {
    let unused = 64 - bits;
    let signed = (n << unused) as i64 >> unused;
    let negative = matches!(kind, b'd' | b'i') && signed < 0;
    let n = if negative { signed.unsigned_abs() } else { n << unused >> unused };
    let mut digits = match kind {
        b'o' => format!("{n:o}"),
        b'x' => format!("{n:x}"),
        b'X' => format!("{n:X}"),
        _ => n.to_string(),
    };
    // No digit at all where none is asked for.
    if precision == Some(0) && n == 0 {
        digits.clear();
    }
    let zeros = "0".repeat(precision.unwrap_or(0).saturating_sub(digits.len()));
    let base = match kind {
        b'x' if marked && n != 0 => "0x",
        b'X' if marked && n != 0 => "0X",
        b'o' if marked && zeros.is_empty() && !digits.starts_with('0') => "0",
        _ => "",
    };
    format!("{}{base}{zeros}{digits}", if negative { "-" } else { "" })
}

/// A number as C writes it by `f`, `e`, `g` and `a`; `whole`: without leaving out zeros.
fn real(kind: u8, x: f64, precision: Option<usize>, whole: bool) -> String {
    if !x.is_finite() {
        let name = if x.is_nan() { "nan" } else { "inf" };
        return if x.is_sign_negative() { format!("-{name}") } else { name.to_string() };
    }
    // An exponent has a sign and two digits at least.
    let scientific = |digits: usize| {
        let text = format!("{x:.digits$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        (mantissa.to_string(), exponent)
    };
    let joined = |(m, e): (String, i32)| format!("{m}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs());
    match kind {
        b'f' => format!("{x:.*}", precision.unwrap_or(6)),
        b'e' => joined(scientific(precision.unwrap_or(6))),
        b'g' => {
            let digits = precision.unwrap_or(6).max(1);
            let (mantissa, exponent) = scientific(digits - 1);
            let short = |text: String| match text.contains('.') && !whole {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            };
            if (-4..digits as i32).contains(&exponent) {
                short(format!("{x:.*}", (digits as i32 - 1 - exponent) as usize))
            } else {
                joined((short(mantissa), exponent))
            }
        }
        _ => hexadecimal(x, precision),
    }
}

/// A finite number by `a`.
fn hexadecimal(x: f64, precision: Option<usize>) -> String {
    let bits = x.to_bits();
    let (mut fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
    let mut first = u64::from(biased != 0);
    let exponent = if x == 0.0 { 0 } else { biased.max(1) - 1023 };
    let mut digits = 13;
    if let Some(p) = precision.filter(|p| *p < 13) {
        // To the nearest, ties to even.
        let cut = 52 - 4 * p as u32;
        let all = first << 52 | fraction;
        let rest = all & ((1 << cut) - 1);
        let up = rest > 1 << (cut - 1) || rest == 1 << (cut - 1) && all >> cut & 1 == 1;
        let kept = (all >> cut) + u64::from(up);
        (first, fraction, digits) = (kept >> (4 * p), kept & ((1 << (4 * p)) - 1), p);
    }
    let mut text = format!("{fraction:0digits$x}");
    match precision {
        None => text.truncate(text.trim_end_matches('0').len()),
        Some(0) => text.clear(),
        Some(p) => text.push_str(&"0".repeat(p.saturating_sub(13))),
    }
    let minus = if x.is_sign_negative() { "-" } else { "" };
    let point = if text.is_empty() { "" } else { "." };
    format!("{minus}0x{first:x}{point}{text}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_c_does() {
        let values = [7u64, 0xffff_fffe, 255, 1.5f64.to_bits(), 0];
        let mut at = 0;
        let mut next = |_| {
            at += 1;
            values.get(at - 1).copied()
        };
        let text = format(b"%03d|%-4d|%5x|%.2f|%s|%%\n", &mut next, &mut |_| Some(b"hi".to_vec()));
        assert_eq!(text.unwrap(), "007|-2  |   ff|1.50|hi|%\n");
    }

    /// What glibc's printf writes for the same.
    #[test]
    fn writes_integers_as_c_does() {
        let say = |f: &str, x: i64| format(f.as_bytes(), &mut |_| Some(x as u64), &mut |_| None).unwrap();
        let cases = [
            ("%04x", 255, "00ff"),
            ("%#06x", 255, "0x00ff"),
            ("%#X", 255, "0XFF"),
            ("%#o|", 8, "010|"),
            ("%.3d", -5, "-005"),
            ("%06.3d", 5, "   005"),
            ("%.0d|", 0, "|"),
            ("%hhd", 511, "-1"),
            ("%hu", 65537, "1"),
            ("%lld", i64::MIN, "-9223372036854775808"),
            ("%+d", 5, "+5"),
            ("% d", 5, " 5"),
        ];
        for (f, x, want) in cases {
            assert_eq!(say(f, x), want, "{f} of {x}");
        }
    }

    /// The same of numbers that are not whole.
    #[test]
    fn writes_numbers_as_c_does() {
        let say = |f: &str, x: f64| format(f.as_bytes(), &mut |_| Some(x.to_bits()), &mut |_| None).unwrap();
        let cases = [
            ("%e", 3.25, "3.250000e+00"),
            ("%5.2e", 2.0, "2.00e+00"),
            ("%.0e", 1.5e-300, "2e-300"),
            ("%E", 1e100, "1.000000E+100"),
            ("%g", 100000.0, "100000"),
            ("%g", 1e6, "1e+06"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 0.00001234, "1.234e-05"),
            ("%.3g", 9.999, "10"),
            ("%#g", 1.5, "1.50000"),
            ("%g", 0.0, "0"),
            ("%a", 1.0, "0x1p+0"),
            ("%a", 0.1, "0x1.999999999999ap-4"),
            ("%.2a", 1.999, "0x2.00p+0"),
            ("%.0a", 1.5, "0x2p+0"),
            ("%a", 5e-324, "0x0.0000000000001p-1022"),
            ("%A", -10.0, "-0X1.4P+3"),
            ("%08.2f", -1.5, "-0001.50"),
            ("%+08.2f", 1.5, "+0001.50"),
            ("% f", 1.0, " 1.000000"),
            ("%f", f64::NAN, "nan"),
            ("%06f", f64::NEG_INFINITY, "  -inf"),
            ("%F", f64::INFINITY, "INF"),
        ];
        for (f, x, want) in cases {
            assert_eq!(say(f, x), want, "{f} of {x}");
        }
    }
}
