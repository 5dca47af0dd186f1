//! `oxsass explain`: what it says of kernels whose code is known.

use oxptxas::{Settings, Target};
use oxsass::explain::{Kernel, explain, page};
use std::path::Path;

fn source(kernel: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    std::fs::read_to_string(folder.join(format!("{kernel}.ptx"))).unwrap()
}

fn explained(source: &str, limit: Option<u32>) -> Vec<Kernel> {
    let target = Target::parse("sm_90").unwrap();
    let settings = Settings { max_registers: limit, ..Settings::new(target) };
    explain(source, "kernel.ptx", &settings, |_| None).unwrap()
}

#[test]
fn a_loop_with_barriers() {
    let kernels = explained(&source("matmul"), None);
    let [k] = &kernels[..] else { panic!("{} kernels", kernels.len()) };
    assert_eq!(k.name, "matmul");
    let timing = k.timing.as_ref().unwrap();
    assert!(timing.cycles > 0 && timing.full > timing.cycles);
    let [l] = &k.loops[..] else { panic!("{} loops", k.loops.len()) };
    assert!(l.issued > 0 && l.units.iter().any(|u| u.0 == "Fma"), "{:?}", l.units);
    assert_eq!(l.units.iter().map(|u| u.1).sum::<u64>(), l.issued);
    // It takes what is live and the two registers of the hardware, or a few more.
    let peak = k.code[k.peak].live;
    assert!(peak < k.registers && peak + 8 > k.registers, "{peak} of {}", k.registers);
    let why = k.remarks.iter().find(|r| r.phase.name() == "unroll-by-four").unwrap();
    assert!(!why.done && why.text.contains("must not be copied"), "{why:?}");
    let text = k.to_string();
    for part in
        ["Most registers, ", "Registers needed", "Loops", "units: ", "waits: ", "Decisions", "not done: "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("Spills"), "{text}");
}

#[test]
fn spills_and_what_passes_did() {
    let kernels = explained(&source("spill"), Some(32));
    let k = &kernels[0];
    assert!(k.spills.0 > 0 && k.to_string().contains("Spills: "));
    let marked = k.code.iter().filter(|l| l.spills).count();
    assert!(
        marked > 0
            && k.code.iter().filter(|l| l.spills).all(|l| l.text.contains("DL") || l.text.contains("STL"))
    );
    let unrolled = explained(&source("sha256"), None);
    let remarks: Vec<_> = unrolled.iter().flat_map(|k| &k.remarks).collect();
    assert!(remarks.iter().any(|r| r.done && r.phase.name() == "unroll"), "{remarks:?}");
    assert!(remarks.iter().any(|r| r.done && r.phase.name() == "predicate"), "{remarks:?}");
}

/// That the page about a kernel is whole; its links.
fn whole(kernel: &str, registers: Option<u32>) -> usize {
    let source = source(kernel);
    let page = page("a<b>.ptx", &source, &explained(&source, registers));
    assert!(
        page.contains("a&lt;b&gt;.ptx") && !page.contains("http") && !page.contains("<script"),
        "foreign parts"
    );
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let name = tag.split([' ', '>', '/']).next().unwrap();
        if let Some(end) = tag.strip_prefix('/') {
            let end = end.split('>').next().unwrap();
            assert_eq!(open.pop(), Some(end), "</{end}>");
        } else if !matches!(name, "!doctype" | "meta" | "br")
            && !tag.split('>').next().unwrap().ends_with('/')
        {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let mut links = 0;
    for to in page.split("href=\"#").skip(1).map(|l| l.split('"').next().unwrap()) {
        links += 1;
        assert!(page.contains(&format!("id=\"{to}\"")), "nothing is called {to}");
    }
    links
}

/// Every element ends, every link leads somewhere, and nothing comes from elsewhere.
#[test]
fn the_page_is_whole() {
    let mut links = 0;
    for (kernel, registers) in [("spill", Some(32)), ("sha256", None)] {
        links += whole(kernel, registers);
    }
    assert!(links > 1000, "{links}");
}
