//! The build refuses lines of the instruction table that leave a fact open.

#[allow(dead_code)]
#[path = "../build/facts.rs"]
mod facts;
#[allow(dead_code)]
#[path = "../build/memory.rs"]
mod memory;

fn ident(spelling: &str) -> String {
    spelling.replace('.', "_")
}

/// What is wrong with `op X LINE`, if anything.
fn refused(line: &str) -> Option<String> {
    let list = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let (words, slots) = line.split_once(" :").expect("a colon");
    let named: Result<Vec<_>, String> = slots.split_whitespace().map(facts::named_slot).collect();
    let (names, slots): (Vec<String>, Vec<String>) = match named {
        Ok(named) => named.into_iter().unzip(),
        Err(why) => return Some(why),
    };
    facts::Facts::read(&list(words), (&slots, &names), &memory::Sizes::default()).err()
}

#[test]
fn every_fact_is_asked_for() {
    for (line, why) in [
        ("alu pure : d>R a<S", "UNIT EFFECT LANES"),
        ("alu harmless own : d>R a<S", "no effect"),
        ("alu pure perhaps notwin : d>R a<S", "across lanes"),
        ("alu pure own notwin : d>R a<S b<S", "exchanged"),
        ("alu pure own noswap : d>R a<S b<S", "uniform datapath"),
        ("alu pure own notwin swap=a,b : d>R a<S b<S[64=2]", "different shapes"),
        ("alu pure own notwin swap=a,c : d>R a<S b<S", "no operand"),
        ("alu pure own notwin any=d : d>R a<S", "not a source"),
        ("alu pure own notwin harmless : d>R a<S", "unknown word"),
        ("alu control own : d<L", "no effect"),
        ("alu control=away own : d<L", "unknown control"),
        ("alu pure own notwin : >R a<S", "no name"),
        ("alu pure own notwin : d>R A<S", "no name"),
        ("alu pure own notwin : d>R aS", "no role"),
        ("load mem=global.read own : d>R a<A", "no size"),
        ("load mem=global.read:4 own : d>R a<A b<A", "1 accesses for 2 addresses"),
    ] {
        let found = refused(line).unwrap_or_else(|| panic!("`{line}` is taken"));
        assert!(found.contains(why), "`{line}`: {found}");
    }
    assert_eq!(refused("alu pure own swap=a,b twin=UIADD3 any=b queued=75-89 : d>R a<S b<S"), None);
    assert_eq!(refused("load mem=global.read:4 own queued : d>R a<A"), None);
    assert_eq!(refused("control control=jump own : d<P a<L"), None);
}

#[test]
fn special_registers_say_for_whom_they_are_the_same() {
    assert!(facts::special(&[]).is_err());
    assert!(facts::special(&["volatile"]).is_err());
    assert!(facts::special(&["lane", "sometimes"]).is_err());
    assert!(facts::special(&["lane", "clock"]).is_ok());
    assert!(facts::special(&["block"]).is_ok());
}

#[test]
fn twins_have_the_same_operands() {
    let list = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let is_twin = |a, b| facts::Facts::is_twin(&list(a), &list(b));
    assert!(is_twin(">R >P <S <P", ">UR >UP <S <UP"));
    assert!(is_twin(">R <S <I", ">UR <S"));
    assert!(!is_twin(">R >P <S", ">UR <S <S"));
    assert!(!is_twin(">R <S", ">R <S"));
}

#[test]
fn immediates_of_two_registers() {
    use sass::{Opcode, WideImmediate};
    let of = |what: WideImmediate| {
        let ops = Opcode::EVERY.iter().filter(move |op| op.info().wide_immediate == what);
        ops.map(|op| op.name()).collect::<Vec<_>>()
    };
    assert_eq!(of(WideImmediate::Both), ["FADD2", "FMUL2", "FFMA2"]);
    // MUFU has the high half alone for an operand (`.RCP64H`).
    let halves = of(WideImmediate::HighHalf);
    assert_eq!(halves, ["MUFU", "DADD", "DMUL", "DFMA", "DSETP", "F2I", "F2F", "FRND"]);
}

#[test]
fn targets_have_instructions() {
    use sass::{Opcode, Target};
    let has = |sm, op| Target::new(sm).expect("a target").has(op);
    assert!(has(100, Opcode::FADD2) && has(103, Opcode::FFMA2));
    assert!(!has(90, Opcode::FADD2) && !has(110, Opcode::FMUL2) && !has(120, Opcode::FFMA2));
}
