//! Blocks that run side by side on several processors give what they give one after another.

use sim::launch::{Launch, LaunchFile};
use sim::sass::{Options, run};

fn compile(source: &str, name: &str) -> Option<Vec<u8>> {
    let settings = oxptxas::Settings::new(sass::Target::new(90).unwrap());
    oxptxas::compile(source, name, &settings).ok().map(|o| o.cubin)
}

/// The results with and without other processors, of which there are four here.
fn both<T: Send>(f: impl Fn(Options) -> T + Sync) -> [T; 2] {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    [true, false]
        .map(|parallel| pool.install(|| f(Options { parallel, limit: u64::MAX, ..Options::default() })))
}

#[test]
fn kernels_give_the_same_buffers_counts_and_texts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut launches = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let toml = path.with_extension("toml");
        if path.extension().is_none_or(|e| e != "ptx") || !toml.exists() {
            continue;
        }
        let name = path.display().to_string();
        let Some(cubin) = compile(&std::fs::read_to_string(&path).unwrap(), &name) else { continue };
        for launch in LaunchFile::parse(&std::fs::read_to_string(&toml).unwrap()).unwrap().launch {
            let [a, b] = both(|o| run(&cubin, &launch, o).unwrap());
            assert!(a.buffers == b.buffers, "{name}");
            assert_eq!((a.issued, a.output), (b.issued, b.output), "{name}");
            launches += 1;
        }
    }
    assert!(launches > 20, "{launches} launches");
}

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {\n\
    .reg .b32 %a, %b, %t; .reg .b64 %p, %o; .reg .pred %q;\n\
    ld.param.u64 %p, [out]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x;\n";

fn launch(words: u32) -> Launch {
    let text = format!(
        "[[launch]]\nkernel = 'k'\ngrid = [100, 1, 1]\nblock = [64, 1, 1]\nargs = [{{ buffer = 'out' }}]\n\
         [launch.buffers.out]\ntype = 'u32'\nlength = {words}\n"
    );
    LaunchFile::parse(&text).unwrap().launch.remove(0)
}

#[test]
fn sums_of_all_blocks_lose_nothing() {
    let source = format!(
        "{HEAD} and.b32 %a, %t, 3; mul.wide.u32 %o, %a, 4; add.s64 %o, %o, %p;\n\
         red.global.add.u32 [%o], %b; red.global.max.u32 [%p+16], %b; ret; }}"
    );
    let cubin = compile(&source, "k").unwrap();
    for run in both(|o| run(&cubin, &launch(8), o).unwrap()) {
        let words: Vec<u32> =
            run.buffers["out"].as_chunks().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
        assert_eq!(words[..5], [16 * 4950, 16 * 4950, 16 * 4950, 16 * 4950, 99]);
    }
}

#[test]
fn the_first_block_that_fails_is_named() {
    let source = format!(
        "{HEAD} mad.lo.u32 %a, %b, 64, %t; mul.wide.u32 %o, %a, 4; add.s64 %o, %o, %p;\n\
         setp.eq.u32 %q, %b, 5; @%q bra SLOW; back: st.global.u32 [%o], %a; ret;\n\
         SLOW: add.u32 %t, %t, 1; setp.lt.u32 %q, %t, 5000; @%q bra SLOW; bra back; }}"
    );
    let cubin = compile(&source, "k").unwrap();
    // Block 5 and those behind it have no place; it comes last.
    let [a, b] = both(|o| run(&cubin, &launch(5 * 64), o).unwrap_err().to_string());
    assert!(a.contains("block [5, 0, 0]"), "{a}");
    assert_eq!(a, b);
}

#[test]
fn counters_and_limits_hold_together() {
    let source = format!(
        "{HEAD} L: add.u32 %t, %t, 1; setp.ne.u32 %q, %t, -1; @%q bra L; st.global.u32 [%p], %t; ret; }}"
    );
    let cubin = compile(&source, "k").unwrap();
    let errors = both(|o| run(&cubin, &launch(1), Options { limit: 100_000, ..o }).unwrap_err().to_string());
    assert_eq!(
        errors,
        ["stopped after 100000 warp instructions, the limit of a launch"; 2].map(String::from)
    );
}
