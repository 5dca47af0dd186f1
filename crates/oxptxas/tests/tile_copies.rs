//! Copies of columns of pixels, of narrow elements, and with other swizzles: our code gives what the interpreter does, at once and late.

#[path = "../../sim/tests/both/tile_cases.rs"]
mod cases;

use cases::{COLUMNS, Case, UNITS, kernel, launch};
use oxptxas::{Settings, compile};
use sass::Target;

fn check(cases: &[Case]) {
    for (map, cluster, body, targets) in cases {
        let launch = launch(map, cluster);
        for name in *targets {
            let (source, target) = (kernel(name, body), Target::parse(name).unwrap());
            let mut module = ptx::parse(&source).unwrap_or_else(|e| panic!("{e:?}"));
            lower::layout::place_params(&mut module, target);
            let after = sim::ptx::execute(&module, &launch, 1 << 20);
            let after = after.unwrap_or_else(|e| panic!("{}", e.render("test", &source)));
            let wanted = launch.collect(&after);
            for (opt_level, late) in [(0, false), (3, false), (3, true)] {
                let settings = Settings { opt_level, ..Settings::new(target) };
                let cubin =
                    compile(&source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("test")));
                let options = sim::sass::Options { fill: 0, late, ..Default::default() };
                let found = sim::sass::run(&cubin.cubin, &launch, options);
                let found = found.unwrap_or_else(|e| panic!("{name} -O{opt_level}: {e}\n{body}"));
                let same = launch.compare(&found.buffers, &wanted);
                same.unwrap_or_else(|e| panic!("{name} -O{opt_level}, late {late}: {e}\n{map}\n{body}"));
            }
        }
    }
}

#[test]
fn columns_of_pixels() {
    check(COLUMNS);
}

#[test]
fn narrow_elements_and_units_that_stay_together() {
    check(UNITS);
}
