//! What ptxas 13.0.88 takes though the manual doesn't say what it means, and ours takes for the same.

use oxptxas::{Settings, compile};
use sass::Target;

fn settings(target: &str) -> Settings {
    Settings::new(Target::parse(target).expect("is one"))
}

fn code(source: &str, settings: &Settings) -> Vec<u128> {
    let cubin = compile(source, "k.ptx", settings).unwrap_or_else(|e| panic!("{e}\n{source}")).cubin;
    cubin::read::read(&cubin).expect("is one").kernels["k"].code.clone()
}

fn refusal(source: &str, settings: &Settings) -> String {
    compile(source, "k.ptx", settings).expect_err(source).to_string()
}

fn kernel(target: &str, before: &str, statements: &str) -> String {
    format!(
        ".version 9.0\n.target {target}\n.address_size 64\n{before}\n.visible .entry k(.param .u64 o)\n{{\n\
         .reg .b32 %r<40>; .reg .f32 %f<9>; .reg .b64 %rd<3>;\n\
         ld.param.u64 %rd1, [o];\n{statements}\nret;\n}}\n"
    )
}

/// The metadata of sparse products may be registers in braces, of which the first one counts.
#[test]
fn metadata_in_braces() {
    let loads = "ld.global.u32 %r20, [%rd1+20]; ld.global.u32 %r21, [%rd1+24];
         ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+32]; ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+64];";
    let product = |metadata: &str| {
        let statements = format!(
            "{loads}\nmma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f1, %f2, %f3, %f4}}, {{%r1, %r2}}, \
             {{%r3, %r4}}, {{%f1, %f2, %f3, %f4}}, {metadata}, 0x0;\nst.global.v4.f32 [%rd1], {{%f1, %f2, %f3, %f4}};"
        );
        kernel("sm_80", "", &statements)
    };
    for target in ["sm_80", "sm_90", "sm_120"] {
        let settings = settings(target);
        let one = code(&product("%r20"), &settings);
        for many in ["{%r20}", "{%r20, %r21}", "{%r20, %r21, %r1, %r2}"] {
            assert_eq!(code(&product(many), &settings), one, "{target} {many}");
        }
        for wrong in ["{%r20, _}", "{%rd1, %r2}", "{5, 6}", "5"] {
            assert!(refusal(&product(wrong), &settings).contains("mismatch"), "{target} {wrong}");
        }
    }
}

/// How many registers a function preserves is for who calls it from another file.
#[test]
fn registers_to_preserve() {
    let source = |attributes: &str| {
        let f = format!(".func (.reg .u32 r) f (.reg .u32 a) {attributes} {{ add.u32 r, a, 1; ret; }}");
        kernel("sm_80", &f, "ld.global.u32 %r1, [%rd1]; call (%r2), f, (%r1); st.global.u32 [%rd1], %r2;")
    };
    let said = source(".abi_preserve 10 .abi_preserve_control 3");
    for target in ["sm_80", "sm_90", "sm_120"] {
        let settings = settings(target);
        assert_eq!(code(&said, &settings), code(&source(""), &settings), "{target}");
    }
}

/// ptxas has given up addresses of 32 bits on all targets.
#[test]
fn addresses_of_32_bits() {
    for statement in ["cvta.to.global.u32 %r2, %r1;", "cvta.shared.u32 %r2, %r1;", "cvta.param.u32 %r2, %r1;"]
    {
        for target in ["sm_75", "sm_90"] {
            let message = refusal(&kernel(target, "", statement), &settings(target));
            assert!(message.contains("32-Bit addressing is not supported"), "{statement}: {message}");
        }
    }
}

/// A kernel with `.explicitcluster` is always launched with clusters, so that nothing asks whether it is.
#[test]
fn barriers_of_explicit_clusters() {
    let source = |directives: &str| {
        format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{directives}\n{{\n\
             .reg .b64 %rd<3>; .reg .b32 %r<4>; ld.param.u64 %rd1, [o];\n\
             mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 4, %rd1; mov.u32 %r2, %ctaid.x; mad.wide.u32 %rd1, %r2, 4096, %rd1;\n\
             barrier.cluster.arrive; barrier.cluster.wait;\nst.global.u32 [%rd1], 5;\nret;\n}}\n"
        )
    };
    for target in ["sm_90", "sm_120"] {
        for (directives, barriers) in [
            ("", 1),
            (".reqnctapercluster 2, 1, 1", 1),
            (".explicitcluster", 0),
            (".explicitcluster .reqnctapercluster 2, 1, 1", 0),
        ] {
            let source = source(directives);
            for opt_level in [0, 3] {
                let settings = Settings { opt_level, ..settings(target) };
                let output = compile(&source, "k.ptx", &settings).expect("compiles");
                assert_eq!(output.kernels[0].barriers, barriers, "{target} {directives}");
                let module = oxsass::verify::module(&source, settings.target).expect("is PTX");
                let verdict = oxsass::verify::kernel(&module, &source, &output.cubin, "k", 0..4);
                assert!(matches!(verdict, oxsass::verify::Verdict::Same), "{target} {directives}: {verdict}");
            }
        }
    }
}

/// What ptxas advises, where, and what keeps it from that.
#[test]
fn advice() {
    let statements = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3, %r4}, \
         {%f1, %f2, %f3, %f4}, %r5, 0;\n.reg .b16 h; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes\
         .multicast::cluster [%r1], [%rd1], %r2, [%r3], h;";
    let said = |target: &str, options: &[&str]| {
        let arch = format!("-arch={target}");
        let settings = Settings::parse(&[&[arch.as_str()], options].concat()).expect("are right");
        let output = compile(&kernel(target, "", statements), "k.ptx", &settings).expect("compiles");
        output.warnings.iter().filter(|w| w.message.starts_with("Advisory: ") && w.span.is_some()).count()
    };
    for (target, count) in [("sm_90", 2), ("sm_90a", 1), ("sm_100", 2), ("sm_103f", 1), ("sm_120a", 2)] {
        assert_eq!(said(target, &[]), count, "{target}");
    }
    assert_eq!(said("sm_90", &["-suppress-sparse-mma-advisory-info"]), 1);
    assert_eq!(said("sm_90", &["-suppress-async-bulk-multicast-advisory-warning"]), 1);
}
