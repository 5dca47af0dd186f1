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
        let object = Settings { relocatable: true, ..settings };
        assert!(refusal(&said, &object).contains("'.abi_preserve' is not supported yet"), "{target}");
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
