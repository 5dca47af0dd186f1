//! The table of ZLUDA's PTX tests: calls of macros in Rust, `test_ptx!(name, [inputs], [outputs])`, whose numbers are
//! constant expressions. Only as much of Rust is read as these need.

use std::iter::Peekable;
use std::vec::IntoIter;

/// Numbers of one type in memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Values {
    /// The element's type, as Rust has it; `f16` is the crate `half`'s.
    pub ty: String,
    /// One after another, little endian.
    pub bytes: Vec<u8>,
}

impl Values {
    /// Bytes of an element.
    pub fn size(&self) -> usize {
        size(&self.ty)
    }
}

/// A row of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Test {
    /// Name of the file and of its kernel.
    pub name: String,
    /// What the first parameter points to; without it, both point to the output.
    pub input: Option<Values>,
    /// What the second parameter points to shall hold afterwards; without it, nothing is executed.
    pub output: Option<Values>,
    /// Threads of the one block.
    pub threads: u32,
}

/// The macros of the table, and how many threads each runs.
const MACROS: [(&str, u32); 3] = [("test_ptx", 1), ("test_ptx_with_32", 1), ("test_ptx_warp", 64)];

/// Reads the table.
///
/// # Errors
/// The first row that can't be read.
pub fn parse(text: &str) -> Result<Vec<Test>, String> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let mut tests = Vec::new();
    while let Some(token) = tokens.next() {
        let Some((_, threads)) = MACROS.iter().find(|m| m.0 == token) else { continue };
        if tokens.next_if_eq("!").is_none() || tokens.next_if_eq("(").is_none() {
            continue;
        }
        let name = tokens.next().ok_or("a test without a name")?;
        let mut lists = Vec::new();
        while tokens.next_if_eq(",").is_some() && tokens.peek().is_some_and(|t| t == "[") {
            lists.push(list(&mut tokens).map_err(|e| format!("{name}: {e}"))?);
        }
        if tokens.next_if_eq(")").is_none() {
            return Err(format!("{name}: no end at {:?}", tokens.peek()));
        }
        let output = lists.pop();
        tests.push(Test { name, input: lists.pop(), output, threads: *threads });
    }
    Ok(tests)
}

type Tokens = Peekable<IntoIter<String>>;

/// Words, numbers and punctuation without comments. `::` is part of a word, so that a path is one.
fn tokens(text: &str) -> Result<Vec<String>, String> {
    let lines = text.lines().map(|l| l.split("//").next().unwrap_or(l));
    let chars: Vec<char> = lines.flat_map(|l| l.chars().chain(['\n'])).collect();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let start = at;
        let c = chars[at];
        at += 1;
        if c.is_whitespace() {
            continue;
        }
        if word(c) {
            let number = c.is_ascii_digit();
            while let Some(next) = chars.get(at) {
                let path = !number && *next == ':' && chars.get(at + 1) == Some(&':');
                let point = number && *next == '.' && chars.get(at + 1).is_some_and(char::is_ascii_digit);
                let point = point && !chars[start..at].contains(&'.');
                match next {
                    _ if path => at += 2,
                    _ if point || word(*next) => at += 1,
                    _ => break,
                }
            }
        }
        out.push(chars[start..at].iter().collect());
    }
    Ok(out)
}

/// A value, and its type if the expression tells it.
#[derive(Clone, Copy, Debug)]
enum Value {
    Int(i128),
    Float(f64),
    /// Bits of a NaN or of a number that was given as such, of a type.
    Bits(u64),
}

type Typed = (Value, Option<&'static str>);

/// `[a, b, …]`: the type is that of the elements that have one.
fn list(tokens: &mut Tokens) -> Result<Values, String> {
    tokens.next();
    let mut values: Vec<Typed> = Vec::new();
    while tokens.next_if_eq("]").is_none() {
        values.push(expression(tokens)?);
        if tokens.next_if_eq(",").is_none() && tokens.peek().is_none_or(|t| t != "]") {
            return Err(format!("no list at {:?}", tokens.peek()));
        }
    }
    let told = values.iter().find_map(|v| v.1);
    let floats = values.iter().any(|v| matches!(v.0, Value::Float(_)));
    let ty = told.unwrap_or(if floats { "f64" } else { "i32" });
    let bytes = values.iter().flat_map(|v| bits(v.0, ty).to_le_bytes().into_iter().take(size(ty))).collect();
    Ok(Values { ty: ty.into(), bytes })
}

/// Types and their sizes.
const TYPES: [(&str, usize); 11] = [
    ("u8", 1),
    ("i8", 1),
    ("u16", 2),
    ("i16", 2),
    ("f16", 2),
    ("u32", 4),
    ("i32", 4),
    ("f32", 4),
    ("u64", 8),
    ("i64", 8),
    ("f64", 8),
];

fn size(ty: &str) -> usize {
    TYPES.iter().find(|t| t.0 == ty).map_or(0, |t| t.1)
}

fn bits(v: Value, ty: &str) -> u64 {
    match (v, ty) {
        (Value::Bits(b), _) => b,
        (Value::Float(x), "f64") => x.to_bits(),
        (Value::Float(x), "f16") => {
            sim::fp::convert(x.to_bits(), sim::fp::F64, sim::fp::F16, sim::fp::Round::Nearest)
        }
        (Value::Float(x), _) => (x as f32).to_bits().into(),
        (Value::Int(n), "f64") => (n as f64).to_bits(),
        (Value::Int(n), "f32") => (n as f32).to_bits().into(),
        (Value::Int(n), _) => n as u64,
    }
}

/// A quotient of terms.
fn expression(tokens: &mut Tokens) -> Result<Typed, String> {
    let (mut value, mut ty) = term(tokens)?;
    while tokens.next_if_eq("/").is_some() {
        let (by, other) = term(tokens)?;
        ty = ty.or(other);
        value = match (value, by) {
            (Value::Float(a), Value::Float(b)) => Value::Float(a / b),
            _ => return Err("a quotient of something else than floating-point numbers".into()),
        };
    }
    Ok((value, ty))
}

fn term(tokens: &mut Tokens) -> Result<Typed, String> {
    let token = tokens.next().ok_or("no number")?;
    if token == "-" {
        let (value, ty) = term(tokens)?;
        let negated = match value {
            Value::Int(n) => Value::Int(-n),
            Value::Float(x) => Value::Float(-x),
            Value::Bits(_) => return Err("minus before bits".into()),
        };
        return Ok((negated, ty));
    }
    if token.starts_with(|c: char| c.is_ascii_digit()) {
        return number(&token);
    }
    let (path, name) = token.rsplit_once("::").ok_or_else(|| format!("unknown '{token}'"))?;
    let ty = path.split("::").find_map(|p| TYPES.iter().find(|t| t.0 == p)).map(|t| t.0);
    let ty = ty.ok_or_else(|| format!("unknown '{token}'"))?;
    let argument = match tokens.next_if_eq("(") {
        Some(_) if tokens.next_if_eq(")").is_some() => None,
        Some(_) => {
            let value = expression(tokens)?.0;
            tokens.next_if_eq(")").ok_or_else(|| format!("{token}: no ')'"))?;
            Some(value)
        }
        None => None,
    };
    let (width, signed) = (8 * size(ty), ty.starts_with('i'));
    let float = ty.starts_with('f');
    let value = match (name, argument) {
        ("MAX" | "max_value", None) if !float => Value::Int((1 << (width - usize::from(signed))) - 1),
        ("MIN" | "min_value", None) if !float => Value::Int(if signed { -(1 << (width - 1)) } else { 0 }),
        ("NAN", None) if float => Value::Bits(match width {
            16 => 0x7e00,
            32 => f32::NAN.to_bits().into(),
            _ => f64::NAN.to_bits(),
        }),
        ("INFINITY", None) if float => Value::Float(f64::INFINITY),
        ("NEG_INFINITY", None) if float => Value::Float(f64::NEG_INFINITY),
        ("PI", None) if ty == "f32" => Value::Float(std::f32::consts::PI.into()),
        ("PI", None) if ty == "f64" => Value::Float(std::f64::consts::PI),
        ("from_bits", Some(Value::Int(n))) if float => Value::Bits(n as u64),
        ("from_f32" | "from_f64", Some(x @ Value::Float(_))) if float => x,
        _ => return Err(format!("unknown '{token}'")),
    };
    // `.to_bits()` makes an integer of it.
    if tokens.next_if_eq(".").is_some() {
        let unsigned = TYPES.iter().find(|t| t.0.starts_with('u') && t.1 == size(ty)).map(|t| t.0);
        let call = [tokens.next(), tokens.next(), tokens.next()];
        if call.map(Option::unwrap_or_default) != ["to_bits", "(", ")"] {
            return Err(format!("unknown method of '{token}'"));
        }
        return Ok((Value::Int(bits(value, ty).into()), unsigned));
    }
    Ok((value, Some(ty)))
}

/// A literal, perhaps with its type behind it.
fn number(token: &str) -> Result<Typed, String> {
    let token = token.replace('_', "");
    let bad = || format!("unknown number '{token}'");
    let radix = match token.get(..2) {
        Some("0x") => 16,
        Some("0b") => 2,
        _ => 10,
    };
    // In hexadecimal, `f32` may be digits: only integers have suffixes there.
    let suffix =
        TYPES.iter().map(|t| t.0).find(|t| token.ends_with(t) && (radix != 16 || !t.starts_with('f')));
    let digits = token.strip_suffix(suffix.unwrap_or("")).unwrap_or(&token);
    if radix == 10 && (digits.contains('.') || suffix.is_some_and(|s| s.starts_with('f'))) {
        return Ok((Value::Float(digits.parse().map_err(|_| bad())?), suffix));
    }
    let digits = if radix == 10 { digits } else { &digits[2..] };
    Ok((Value::Int(i128::from_str_radix(digits, radix).map_err(|_| bad())?), suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Values {
        let tests = parse(&format!("test_ptx!(k, [0u8], [{text}]);")).expect("parses");
        tests[0].output.clone().expect("has an output")
    }

    #[test]
    fn numbers_have_the_type_that_one_of_them_tells() {
        assert_eq!(one("1.5, 2f32").bytes, [1.5f32.to_le_bytes(), 2f32.to_le_bytes()].concat());
        assert_eq!(one("0x12_34"), Values { ty: "i32".into(), bytes: vec![0x34, 0x12, 0, 0] });
        assert_eq!(one("-0b1_0i16, // 3\n 4").bytes, [0xfe, 0xff, 4, 0]);
        assert_eq!(one("half::f16::NAN.to_bits()"), Values { ty: "u16".into(), bytes: vec![0, 0x7e] });
        assert_eq!(one("half::f16::from_f32(-0.0)").bytes, [0, 0x80]);
        assert_eq!(one("std::f32::consts::PI / 2f32").bytes, std::f32::consts::FRAC_PI_2.to_le_bytes());
        assert_eq!(one("i32::MIN, u64::max_value()").bytes, [0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(one("f32::from_bits(0x33800000)").bytes, 0x3380_0000u32.to_le_bytes());
    }

    #[test]
    fn rows_may_lack_numbers_and_macros_are_no_rows() {
        let text = "macro_rules! test_ptx { ($n:ident) => {} }\ntest_ptx!(a);\ntest_ptx_warp!(b, [1u8]);";
        let tests = parse(text).expect("parses");
        assert_eq!(tests.len(), 2);
        assert_eq!((tests[0].output.is_none(), tests[1].threads), (true, 64));
        assert!(tests[1].input.is_none());
        assert!(parse("test_ptx!(a, [x]);").is_err());
    }
}
