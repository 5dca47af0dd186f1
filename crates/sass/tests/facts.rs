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
    facts::Facts::read(&list(words), &list(slots), &memory::Sizes::default()).err()
}

#[test]
fn every_fact_is_asked_for() {
    for (line, why) in [
        ("alu pure : >R <S", "UNIT EFFECT LANES"),
        ("alu harmless own : >R <S", "no effect"),
        ("alu pure perhaps notwin : >R <S", "across lanes"),
        ("alu pure own notwin : >R <S <S", "exchanged"),
        ("alu pure own noswap : >R <S <S", "uniform datapath"),
        ("alu pure own notwin swap=1,2 : >R <S <S[64=2]", "different shapes"),
        ("alu pure own notwin swap=1,3 : >R <S <S", "no operand"),
        ("alu pure own notwin any=0 : >R <S", "not a source"),
        ("alu pure own notwin harmless : >R <S", "unknown word"),
        ("alu control own : <L", "no effect"),
        ("alu control=away own : <L", "unknown control"),
        ("load mem=global.read own : >R <A", "no size"),
        ("load mem=global.read:4 own : >R <A <A", "1 accesses for 2 addresses"),
    ] {
        let found = refused(line).unwrap_or_else(|| panic!("`{line}` is taken"));
        assert!(found.contains(why), "`{line}`: {found}");
    }
    assert_eq!(refused("alu pure own swap=1,2 twin=UIADD3 any=2 queued=75-89 : >R <S <S"), None);
    assert_eq!(refused("load mem=global.read:4 own queued : >R <A"), None);
    assert_eq!(refused("control control=jump own : <P <L"), None);
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
