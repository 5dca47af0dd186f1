//! What is printed of a right module is right, and is printed the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(source) = ptx::text(data) else { return };
    let Ok(module) = ptx::parse(source) else { return };
    if ptx::check(&module, 121).is_err() {
        return;
    }
    let once = module.to_string();
    let again = match ptx::parse(&once) {
        Ok(module) => module.to_string(),
        Err(errors) => panic!("the printed module is wrong: {}\n{once}", errors[0].message),
    };
    assert_eq!(once, again);
});
