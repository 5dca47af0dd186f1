//! Looking a word up in the table allocates nothing; an instruction with more than six operands or modifiers keeps
//! them on the heap, as `SmallVec` does, and that is all.

use sass::{Target, decode};

#[test]
fn decoding_allocates_for_long_operand_lists_only() {
    let golden = include_str!("golden/kernels.tsv").lines().chain(include_str!("golden/tensor.tsv").lines());
    let mut decoded = 0;
    // The index over the table is made once.
    _ = decode(0, Target::new(90).unwrap(), 0);
    for line in golden.filter(|l| !l.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).unwrap();
        let target = Target::parse(columns[0]).unwrap();
        let word = u128::from(hex(columns[1])) << 64 | u128::from(hex(columns[2]));
        let mut inst = None;
        let counted = allocation_counter::measure(|| inst = Some(decode(word, target, 0).unwrap()));
        let inst = inst.unwrap();
        let long = inst.operands.spilled() || inst.mods.0.spilled();
        assert!(long || counted.count_total == 0, "{line}: {} allocations", counted.count_total);
        decoded += 1;
    }
    assert!(decoded > 1000, "{decoded}");
}
