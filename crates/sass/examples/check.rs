//! Compares the table with nvdisasm's text: `check FILE.tsv…`, lines `target<TAB>high<TAB>low<TAB>text`,
//! then optionally `<TAB>pc` (hexadecimal halves of the word; the text as nvdisasm prints it at address pc
//! or 0, spaces collapsed; more columns are ignored).
//!
//! For each line: decode, print, compare; encode back, compare the word; parse the text, encode, compare.
//! Prints the failures grouped by kind, most frequent first; with `--list OUT` writes each failing line to OUT, with
//! what is wrong in front.

use sass::{Control, Target, assemble, decode, disassemble, encode, print};
use std::collections::BTreeMap;

fn main() {
    let mut failures: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut lines, mut good, mut exact) = (0, 0, 0);
    let mut paths: Vec<String> = std::env::args().skip(1).collect();
    let list_to =
        paths.iter().position(|p| p == "--list").map(|i| paths.drain(i..i + 2).nth(1).expect("a file"));
    let mut listed = String::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("readable file");
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            let (&[target, high, low, text], pc) = match columns[..] {
                [_, _, _, _] => (columns.first_chunk().expect("4 columns"), "0"),
                [_, _, _, _, pc, ..] => (columns.first_chunk().expect("4 columns"), pc),
                _ => panic!("bad line `{line}`"),
            };
            let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).expect("hexadecimal");
            let word = u128::from(hex(high)) << 64 | u128::from(hex(low));
            let pc = hex(pc) as i64;
            let Some(target) = Target::parse(target) else { panic!("unknown target in `{line}`") };
            lines += 1;
            let name =
                text.split(' ').find(|w| !w.starts_with('@')).unwrap_or("").split('.').next().unwrap_or("");
            let mut fail = |what: String, got: String| {
                if list_to.is_some() {
                    listed += &format!("{name} {what}\t{line}\t{got}\n");
                }
                let entry = failures
                    .entry(format!("{name} {what}"))
                    .or_insert((0, format!("{target} {high}:{low} `{text}` {got}")));
                entry.0 += 1;
            };
            match decode(word, target, pc) {
                Err(_) if text == "(illegal)" => good += 1,
                Ok(inst) if text == "(illegal)" => {
                    fail(format!("{} accepted", inst.op), print(&inst, target).to_string());
                }
                Err(e) => fail(format!("{:?}", e.reason), String::new()),
                Ok(inst) => {
                    let printed = disassemble(word, target, pc).expect("it decodes");
                    let squeeze = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
                    if squeeze(&printed) != squeeze(text) {
                        fail("text".into(), format!("printed `{printed}`"));
                        continue;
                    }
                    let control = ((1u128 << 23) - 1) << 102;
                    let differs = |w: u128| (w ^ word) & !control != 0;
                    match encode(&inst, target, pc) {
                        Ok(back)
                            if !differs(back)
                                || decode(back, target, pc)
                                    .is_ok_and(|i| i.mods == inst.mods && i.operands == inst.operands) => {}
                        Ok(back) => {
                            fail("reencode".into(), format!("bits {:x}", (back ^ word) & !control));
                            continue;
                        }
                        Err(e) => {
                            fail("reencode".into(), e.to_string());
                            continue;
                        }
                    }
                    match assemble(text, target, pc, Control::from_bits(word)) {
                        Ok(back) => {
                            // What the text does not show (hidden descriptors, bits without a meaning) may differ.
                            let again = disassemble(back, target, pc).unwrap_or_default();
                            if again == printed {
                                good += 1;
                                exact += usize::from(back == word);
                            } else {
                                fail("parse".into(), format!("gave `{again}`"));
                            }
                        }
                        Err(e) => fail("parse".into(), e.to_string()),
                    }
                }
            }
        }
    }
    if let Some(path) = list_to {
        std::fs::write(path, listed).expect("writable file");
    }
    let mut list: Vec<_> = failures.into_iter().collect();
    list.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
    for (what, (n, example)) in &list {
        println!("{n:6} {what}: {example}");
    }
    println!("{good} of {lines} lines agree; text and control field give the same 128 bits for {exact}");
}
