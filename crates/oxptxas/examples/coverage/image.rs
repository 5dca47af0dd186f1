//! Statements on textures and surfaces: the handle is a parameter, or another one in every second thread; coordinates stay
//! near the image, and what would trap is inside.

use std::fmt::Write;

/// Launches that are made up for a statement: of one thread, and of a warp; the seed chooses the image as well.
pub const LAUNCHES: [u64; 10] = [6, 8, 20, 22, 34, 36, 48, 50, 62, 78];

/// The register of the handle in the statements.
pub const HANDLE: &str = "b64r200";

/// Whether a statement has a handle of a texture or surface.
pub fn is_image(statement: &str) -> bool {
    let op = statement.split(['.', ' ']).next().unwrap_or("");
    matches!(op, "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq")
}

/// What the kernel around a statement needs to know.
pub struct Statement<'a> {
    op: &'a str,
    /// Coordinates in braces behind the handle.
    coordinates: Vec<&'a str>,
    /// Threads with handles of their own.
    pub varying: bool,
}

impl<'a> Statement<'a> {
    pub fn of(text: &'a str, varying: bool) -> Option<Statement<'a>> {
        let op = text.split(' ').next().unwrap_or("");
        let inside = text.split("200, {").nth(1).and_then(|s| s.split('}').next());
        let coordinates = inside.map_or(Vec::new(), |s| s.split(", ").collect());
        is_image(text).then_some(Statement { op, coordinates, varying })
    }

    fn has(&self, word: &str) -> bool {
        self.op.split('.').any(|w| w == word)
    }

    /// Bytes that an access of a surface moves.
    fn bytes(&self) -> u32 {
        let element = [("b8", 1), ("b16", 2), ("b32", 4), ("u32", 4), ("s32", 4)];
        let element = element.iter().find(|e| self.has(e.0)).map_or(8, |e| e.1);
        let count = if self.has("v4") {
            4
        } else if self.has("v2") {
            2
        } else {
            1
        };
        element * count
    }

    /// Loads the handle.
    pub fn handle(&self, out: &mut String) {
        let _ = writeln!(out, "ld.param.u64 {HANDLE}, [h0];");
        if self.varying {
            let _ = writeln!(
                out,
                "ld.param.u64 w, [h1]; and.b32 x, t, 1; setp.ne.u32 odd, x, 0; selp.b64 {HANDLE}, w, {HANDLE}, odd;"
            );
        }
    }

    /// Gives a register another value than the usual one; `t` is the thread, `k` the second parameter.
    pub fn value(&self, out: &mut String, to: &str, family: &str, number: u32) -> bool {
        let surface = self.op.starts_with("su");
        let place = self.coordinates.iter().position(|c| *c == to);
        let n = number % 50;
        match family {
            // Fractions of all kinds, to both sides.
            "f32r" => {
                // Derivatives are steps of a few texels at most.
                let (unit, least) = match self.has("grad") && place.is_none() {
                    true => ("0f3c923a2a", "0f3e400000"),
                    false => ("0f3e923a2a", "0f40400000"),
                };
                let _ = writeln!(
                    out,
                    "mad.lo.u32 x, t, {}, k; mad.lo.u32 x, k, {}, x; add.u32 x, x, {}; and.b32 x, x, 63;\n\
                     cvt.rn.f32.u32 y, x; mul.rn.f32 y, y, {unit}; sub.f32 {to}, y, {least};",
                    11 + 2 * n,
                    3 + n,
                    17 * n
                );
            }
            // Stored by threads that may meet: the same by all.
            "b32r" | "u32r" | "s32r" | "b64r" | "u64r" | "s64r" | "b16r" | "b8r"
                if place.is_none() && self.op.starts_with("sust") && !self.has("zero") =>
            {
                let bits = family.trim_matches(|c: char| !c.is_ascii_digit());
                let _ = writeln!(out, "mad.lo.u32 x, k, {}, {};", 0x0103_0507 + n, 0x4001_2345 * (n + 1));
                let _ = match bits {
                    "64" => writeln!(out, "cvt.u64.u32 w, x; mad.wide.u32 {to}, x, 77777, w;"),
                    "32" => writeln!(out, "mov.b32 {to}, x;"),
                    _ => writeln!(out, "cvt.u{bits}.u32 {to}, x;"),
                };
            }
            "b32r" | "u32r" | "s32r" if place.is_none() && surface => return false,
            "b32r" | "u32r" | "s32r" => {
                let array = self.has("a1d") || self.has("a2d");
                let first = usize::from(array);
                let unit = if place == Some(first) && self.has("b") { self.bytes() } else { 1 };
                let _ = match () {
                    () if surface && self.has("trap") => {
                        writeln!(out, "add.u32 x, t, k; shr.u32 x, x, {}; and.b32 x, x, 1;", n % 3)
                    }
                    // Every thread has a place of its own.
                    () if surface && place == Some(first) => {
                        writeln!(out, "add.u32 x, t, k; and.b32 x, x, 31; sub.u32 x, x, 4;")
                    }
                    () if surface => writeln!(
                        out,
                        "mad.lo.u32 x, t, {}, k; shr.u32 x, x, 1; and.b32 x, x, 3; sub.u32 x, x, {};",
                        3 + 2 * n,
                        n % 2
                    ),
                    () if self.has("2dms") || self.has("a2dms") => {
                        writeln!(out, "mad.lo.u32 x, t, {}, k; shr.u32 x, x, 1; and.b32 x, x, 1;", 3 + 2 * n)
                    }
                    () => writeln!(
                        out,
                        "mad.lo.u32 x, t, {}, k; add.u32 x, x, {n}; and.b32 x, x, 7; sub.u32 x, x, 2;",
                        3 + 2 * n
                    ),
                };
                let _ = writeln!(out, "mul.lo.u32 {to}, x, {unit};");
            }
            _ => return false,
        }
        true
    }
}
