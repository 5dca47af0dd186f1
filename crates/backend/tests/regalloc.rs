//! File tests of the register allocator.
use backend::regalloc::{Limits, allocate};
#[test]
fn smoke() {
    let text = std::fs::read_to_string("tests/regalloc/loop.ori").unwrap();
    for mut f in ori::parse::parse_all(&text).unwrap() {
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:#?}"));
        let limits = Limits::of(&f);
        let stats = allocate(&mut f, &limits).unwrap();
        eprintln!("{stats:?}\n{f}");
    }
}
