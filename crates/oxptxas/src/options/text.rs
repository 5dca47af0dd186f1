//! How ptxas reads numbers, lists and the text of options files.

use super::Error;

/// What C's `strtol` makes of a text that is a number as a whole, with the digits of its base: hexadecimal after `0x`, octal after
/// `0`; nothing is 0. `Err` where it does not fit 64 bits.
pub fn number(text: &str) -> Option<Result<i64, ()>> {
    let digits = text.trim_start();
    let (negative, digits) = match digits.as_bytes() {
        [b'-', ..] => (true, &digits[1..]),
        [b'+', ..] => (false, &digits[1..]),
        _ => (false, digits),
    };
    let (digits, radix) = match digits.as_bytes() {
        [] if text.is_empty() => return Some(Ok(0)),
        [b'0', b'x' | b'X', _, ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let n = i128::from_str_radix(digits, radix).unwrap_or(i128::MAX);
    Some(i64::try_from(if negative { -n } else { n }).map_err(drop))
}

/// What C's `atoi` makes of a text: the decimal number that it begins with, cut to 32 bits; 0 without one.
pub fn leading_number(text: &str) -> u32 {
    let digits = text.trim_start();
    let (negative, digits) = match digits.as_bytes() {
        [b'-', ..] => (true, &digits[1..]),
        [b'+', ..] => (false, &digits[1..]),
        _ => (false, digits),
    };
    let end = digits.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
    let most = if negative { i64::MIN } else { i64::MAX };
    let n = match digits[..end].parse::<i64>() {
        Ok(n) if negative => -n,
        Ok(n) => n,
        Err(_) if end == 0 => 0,
        Err(_) => most,
    };
    n as u32
}

/// Splits the text of an options file at blanks, tabs and ends of lines; double quotes keep these, inside and outside of them a
/// backslash stands for the character behind it (for a quote, for nothing), and a NUL ends the text (ptxas 13.0.88).
pub(super) fn words(text: &str) -> Result<Vec<String>, Error> {
    let mut out = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut chars = text.chars().take_while(|c| *c != '\0');
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let next = chars.next().ok_or(Error::Stray('\\'))?;
                word.get_or_insert_default().extend((next != '"').then_some(next));
            }
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' | '\t' | '\n' | '\r' if !quoted => out.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    out.extend(word);
    if quoted { Err(Error::Stray('"')) } else { Ok(out) }
}

/// The elements of a list, without blanks around them; commas and blanks in double quotes are part of one.
pub(super) fn elements(text: &str) -> Result<Vec<String>, Error> {
    let mut out: Vec<String> = Vec::new();
    let mut element = String::new();
    // How much of it is kept although it ends in blanks.
    let mut kept = 0;
    let mut quoted = false;
    let mut end = |element: &mut String, kept: &mut usize| {
        let last = element.trim_end_matches([' ', '\t']).len().max(std::mem::take(kept));
        element.truncate(last);
        out.extend(Some(std::mem::take(element)).filter(|e| !e.is_empty()));
    };
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                kept = element.len();
            }
            ',' if !quoted => end(&mut element, &mut kept),
            ' ' | '\t' if !quoted && element.is_empty() => {}
            _ => element.push(c),
        }
    }
    end(&mut element, &mut kept);
    if quoted { Err(Error::Stray('"')) } else { Ok(out) }
}
