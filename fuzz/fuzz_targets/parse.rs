//! Any bytes: the parser says something of them, and its diagnostics can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(source) = ptx::text(data) else { return };
    let (_, errors) = ptx::parse_all(source);
    let lines = ptx::LineIndex::new(source);
    for e in errors.iter().take(5) {
        for style in [ptx::Style::Plain, ptx::Style::Rich, ptx::Style::Json] {
            std::hint::black_box(e.render_as(style, "ptxas", "fuzz.ptx", source, &lines));
        }
    }
});
