//! Any bytes: the checker says something of what the parser makes of them, for old and new targets.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(source) = ptx::text(data) else { return };
    let (module, _) = ptx::parse_all(source);
    for sm in [75, 90, 121] {
        let _ = std::hint::black_box(ptx::check(&module, sm));
    }
});
