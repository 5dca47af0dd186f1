//! What threads print with `vprintf`, and what else the driver's functions do, the same for the interpreter and
//! the simulator.

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
}

/// Their names.
pub(crate) const DRIVER: [(&str, Driver); 6] = [
    ("vprintf", Driver::Printf),
    ("malloc", Driver::Malloc),
    ("free", Driver::Free),
    ("__assertfail", Driver::Assert),
    // The device runtime's library calls these for cooperative groups.
    ("__cuda_syscall_CGS_get_intrinsic_handle", Driver::GridHandle),
    ("__cuda_syscall_CGS_sync", Driver::GridSync),
];

/// Largest piece of memory that `malloc` gives: the driver's heap.
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
        let long = has(b'l') || has(b'z') || has(b'j') || has(b't') || has(b'q');
        let text = match kind {
            b'%' => "%".to_string(),
            b'd' | b'i' if long => (argument(8)? as i64).to_string(),
            b'd' | b'i' => (argument(4)? as i32).to_string(),
            b'u' | b'x' | b'X' | b'o' => {
                let n = if long { argument(8)? } else { argument(4)? };
                match kind {
                    b'u' => n.to_string(),
                    b'o' => format!("{n:o}"),
                    b'x' if has(b'#') => format!("{n:#x}"),
                    b'x' => format!("{n:x}"),
                    _ => format!("{n:X}"),
                }
            }
            b'p' => format!("{:#x}", argument(8)?),
            b'c' => char::from(argument(4)? as u8).to_string(),
            b's' => {
                let bytes = string(argument(8)?)?;
                String::from_utf8_lossy(&bytes[..precision.unwrap_or(bytes.len()).min(bytes.len())])
                    .into_owned()
            }
            b'f' | b'F' => format!("{:.*}", precision.unwrap_or(6), f64::from_bits(argument(8)?)),
            // Every digit instead of the shortest of two forms.
            b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => format!("{:e}", f64::from_bits(argument(8)?)),
            other => format!("%{}", char::from(other)),
        };
        let sign = if has(b'+') && matches!(kind, b'd' | b'i' | b'f' | b'e' | b'g') && !text.starts_with('-')
        {
            "+"
        } else {
            ""
        };
        let pad = width.unwrap_or(0).saturating_sub(text.len() + sign.len());
        match () {
            () if has(b'-') => out.extend([sign, &text, &" ".repeat(pad)]),
            () if flags.first() == Some(&b'0') && kind != b's' => {
                let (minus, digits) = text.strip_prefix('-').map_or(("", &text[..]), |d| ("-", d));
                out.extend([sign, minus, &"0".repeat(pad), digits]);
            }
            () => out.extend([&" ".repeat(pad), sign, &text]),
        }
    }
    Some(out)
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
}
