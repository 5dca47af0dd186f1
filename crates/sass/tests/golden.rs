//! Words of ptxas with nvdisasm's text: decoding, printing, encoding and parsing must reproduce them.

use sass::{
    Control, Guard, Inst, Mod, Mods, Opcode, Operand, Reg, Target, assemble, decode, disassemble, encode,
    print,
};

struct Line<'a> {
    target: Target,
    word: u128,
    text: &'a str,
    pc: i64,
}

fn lines(file: &str) -> impl Iterator<Item = Line<'_>> {
    file.lines().filter(|l| !l.starts_with('#')).map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).expect("hexadecimal");
        Line {
            target: Target::parse(columns[0]).expect("target"),
            word: u128::from(hex(columns[1])) << 64 | u128::from(hex(columns[2])),
            text: columns[3],
            pc: hex(columns[4]) as i64,
        }
    })
}

/// Runs of spaces are one: nvdisasm pads after infinities and NaNs.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

static KERNELS: &str = include_str!("golden/kernels.tsv");
/// Words of single instructions, by group.
static FORMS: &[&str] = &[
    include_str!("golden/conversions.tsv"),
    include_str!("golden/tensor.tsv"),
    include_str!("golden/async.tsv"),
    include_str!("golden/programs.tsv"),
    include_str!("golden/rare.tsv"),
];

#[test]
fn words_of_ptxas_round_trip() {
    let mut failures = Vec::new();
    for Line { target, word, text, pc } in lines(KERNELS).chain(FORMS.iter().flat_map(|f| lines(f))) {
        let check = || -> Result<(), String> {
            let inst = decode(word, target, pc).map_err(|e| e.to_string())?;
            let printed = disassemble(word, target, pc).map_err(|e| e.to_string())?;
            if squeeze(&printed) != squeeze(text) {
                return Err(format!("prints as `{printed}`"));
            }
            // Bits without a meaning (a predicate field that BAR.SYNC ignores) may differ.
            let back = encode(&inst, target, pc).map_err(|e| e.to_string())?;
            let again = decode(back, target, pc).map_err(|e| e.to_string())?;
            if again != inst {
                return Err(format!("encodes as {back:#034x}, {}", print(&again, target)));
            }
            let ctrl = Control::from_bits(word);
            let assembled = assemble(text, target, pc, ctrl).map_err(|e| e.to_string())?;
            let again = disassemble(assembled, target, pc).map_err(|e| e.to_string())?;
            if again != printed {
                return Err(format!("assembles to {assembled:#034x}, {again}"));
            }
            Ok(())
        };
        if let Err(why) = check() {
            failures.push(format!("{target} {word:#034x} `{text}`: {why}"));
        }
    }
    assert!(failures.is_empty(), "{} lines fail:\n{}", failures.len(), failures.join("\n"));
}

/// Flipping any single bit of a word gives either an error or an instruction that encodes to a word that
/// decodes to the same instruction: nothing that the decoder accepts is lost by the encoder.
#[test]
fn flipped_words_decode_to_what_encodes_back() {
    let mut decoded = 0u32;
    for (i, Line { target, word, text, pc }) in lines(KERNELS).enumerate() {
        if i % 7 != 0 {
            continue;
        }
        for bit in 0..105 {
            let flipped = word ^ 1 << bit;
            let Ok(inst) = decode(flipped, target, pc) else { continue };
            decoded += 1;
            let back = encode(&inst, target, pc).unwrap_or_else(|e| {
                panic!("{target} bit {bit} of `{text}` gives `{}`: {e}", print(&inst, target))
            });
            assert_eq!(decode(back, target, pc).as_ref(), Ok(&inst), "{target} bit {bit} of `{text}`");
        }
    }
    assert!(decoded > 10_000, "only {decoded} flipped words decode");
}

#[test]
fn unknown_words_are_errors() {
    let target = Target::new(90).expect("sm_90");
    assert!(decode(0, target, 0).is_err());
    assert!(decode(u128::MAX, target, 0).is_err());
}

#[test]
fn what_a_target_lacks_does_not_encode() {
    let inst = Inst {
        guard: Guard::TRUE,
        op: Opcode::IADD,
        mods: Mods::of(&[Mod::_64]),
        operands: [
            Operand::reg(Reg::r(4)),
            Operand::reg(Reg::PT),
            Operand::reg(Reg::r(6)),
            Operand::reg(Reg::r(8)),
            Operand::Reg(sass::RegOp { not: true, ..sass::RegOp::plain(Reg::PT) }),
        ]
        .into_iter()
        .collect(),
        ctrl: Default::default(),
    };
    let on = |sm| encode(&inst, Target::new(sm).expect("target"), 0);
    assert!(on(90).is_err());
    assert!(on(120).is_ok());
}

#[test]
fn registers_that_share_a_field_must_go_together() {
    for sm in [90, 100] {
        let target = Target::new(sm).expect("target");
        let assembles = |text| sass::assemble(text, target, 0, Default::default()).is_ok();
        for good in [
            "LDGSTS.E.64 [UR6], desc[UR7][R16.64]",
            "LDGSTS.E.64 [R6+UR6], desc[UR7][R16.64]",
            "LDGSTS.E.64 [R6], desc[UR8][R16.64]",
        ] {
            assert!(assembles(good), "{target}: {good}");
        }
        for wrong in [
            "LDGSTS.E.64 [UR6], desc[UR9][R16.64]",
            "LDGSTS.E.64 [R6+UR6], desc[UR8][R16.64]",
            "LDGSTS.E.64 [R6+UR6], desc[UR9][R16.64]",
        ] {
            assert!(!assembles(wrong), "{target}: {wrong}");
        }
    }
}
