//! `--search`, also for objects: what it takes is what its message says, for any number of threads, and does what the PTX says.

use oxptxas::{Settings, Severity, compile};
use oxsass::verify;
use sass::Target;
use std::path::Path;

fn source(kernel: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    std::fs::read_to_string(folder.join(format!("{kernel}.ptx"))).unwrap()
}

fn said(output: &oxptxas::Output) -> Vec<&str> {
    let infos = output.warnings.iter().filter(|w| w.severity == Severity::Info);
    infos.map(|w| w.message.as_str()).filter(|m| m.starts_with("Search")).collect()
}

#[test]
fn what_is_found_can_be_said_as_a_knob() {
    for (arch, relocatable) in [("sm_75", false), ("sm_90", true)] {
        searched(&source("saxpy"), Settings { relocatable, ..Settings::new(Target::parse(arch).unwrap()) });
    }
}

fn searched(source: &str, plain: Settings) {
    let searching = |threads| Settings { search: true, threads: Some(threads), ..plain.clone() };
    let one = compile(source, "kernel.ptx", &searching(1)).unwrap();
    let two = compile(source, "kernel.ptx", &searching(2)).unwrap();
    assert!(one.cubin == two.cubin, "one thread and two find different codes");
    let messages = said(&one);
    assert!(!messages.is_empty() && messages.len() == one.kernels.len(), "{messages:?}");
    let mut again = plain.clone();
    for knob in messages.iter().filter_map(|m| m.split_once("-knob ")) {
        again.knobs.add(knob.1.trim_matches('\'')).unwrap();
    }
    assert!(compile(source, "kernel.ptx", &again).unwrap().cubin == one.cubin, "{messages:?}");
    let module = ptx::parse(source).unwrap();
    for name in verify::kernels(&module) {
        let verdict = verify::kernel(&module, source, &one.cubin, name, 0..2);
        assert!(verdict.is_right(), "{name}: {verdict}");
    }
}

#[test]
fn every_choice_gives_right_code() {
    let (source, mut codes) = (source("matmul"), std::collections::BTreeSet::new());
    let module = ptx::parse(&source).unwrap();
    let name = verify::kernels(&module)[0];
    for choices in
        ["unroll=2", "unroll=-4", "registers=24", "latency=600", "order=1", "order=2", "without=prepass+sink"]
    {
        let mut settings = Settings::new(Target::parse("sm_90").unwrap());
        settings.knobs.add(&format!("Tune={name}:{choices}")).unwrap();
        let cubin = compile(&source, "kernel.ptx", &settings).unwrap().cubin;
        let verdict = verify::kernel(&module, &source, &cubin, name, 0..2);
        assert!(verdict.is_right(), "{choices}: {verdict}");
        codes.insert(cubin);
    }
    assert!(codes.len() >= 4, "{} codes of 7 choices", codes.len());
}

#[test]
fn dynamic_shared_memory_is_no_obstacle() {
    let source = source("saxpy").replacen(".visible", ".extern .shared .align 16 .b8 room[];\n.visible", 1);
    let settings = Settings { search: true, ..Settings::new(Target::parse("sm_90").unwrap()) };
    let output = compile(&source, "kernel.ptx", &settings).unwrap();
    assert!(said(&output).iter().all(|m| !m.contains("leaves")), "{:?}", said(&output));
}
