//! What the printer prints is accepted, and prints as itself.

use std::path::Path;

fn round_trip(name: &str, source: &str) {
    let module = ptx::parse(source).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let once = module.to_string();
    let again = ptx::parse(&once).unwrap_or_else(|e| panic!("{name}: {:?}\n{once}", e[0]));
    let sm = ptx::check::target_sm(&module);
    assert_eq!(ptx::check(&again, sm).is_ok(), ptx::check(&module, sm).is_ok(), "{name}");
    assert_eq!(again.to_string(), once, "{name}");
    // The same code: only names may differ, and only where blocks hid one another's.
    let count =
        |m: &ptx::Module| m.funcs.values().filter_map(|f| f.body.as_ref()).map(|b| b.stmts.len()).sum();
    let (a, b): (usize, usize) = (count(&module), count(&again));
    assert_eq!(a, b, "{name}");
}

#[test]
fn kernels_round_trip() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "ptx"));
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        round_trip(&file.display().to_string(), &std::fs::read_to_string(&file).unwrap());
    }
}

/// Files named by `PTX_FILES` (separated by `:`), if it is set.
#[test]
fn other_files_round_trip() {
    for file in std::env::var("PTX_FILES").unwrap_or_default().split(':').filter(|f| !f.is_empty()) {
        round_trip(file, &std::fs::read_to_string(file).unwrap());
    }
}

const SCOPES: &str = "\
.version 9.0
.target sm_90, debug
.address_size 64
.file 1 \"a.cu\"
.global .align 16 .v4 .f32 v[2] = {{1.0, 2.0, 0.0, 0.0}, {3.0, 0.0, 0.0, 0.0}};
.global .u32 t[2][3] = {{1}, {2, 3}};
.const .u64 at[2] = {generic(v)+8, t};
.func (.reg .u32 r) f(.reg .u32 a, .param .align 8 .b8 s[16])
{
\tmov.u32 r, a;
\tret;
}
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .f64 d)
.maxntid 128
.minnctapersm 2
{
\t.reg .b32 %r<4>;
\t.reg .pred q;
\t.loc 1 7 9
\t.loc 1 2 3, function_name info+4, inlined_at 1 7 9
\t{
\t.reg .f32 %r<4>;
\tadd.f32 %r1, %r2, 0f3F800000;
L: @!q bra L;
\t}
\tadd.u32 %r1, %r2, -4;
\tshfl.sync.bfly.b32 %r1|_, %r2, 1, 31, -1;
\tvadd.s32.s32.u32.sat %r1, %r2.b3, %r1.h0, %r3;
\tmov.u32 %r3, %tid.y;
\tst.local.v2.u32 [16], {%r1, 5};
\ttex.1d.v4.s32.s32 {%r0, _, %r1, %r2}|q, [at, {%r3}];
L: bra L;
}
.section .debug_str { info: .b8 0 }
";

#[test]
fn scopes_and_initializers_round_trip() {
    round_trip("scopes", SCOPES);
    let module = ptx::parse(SCOPES).unwrap();
    let init = |name: &str| {
        let var = module.vars.values().find(|v| v.name == name).unwrap();
        let init = var.init.as_ref().unwrap();
        assert_eq!(init.bytes.len() as u64 % 4, 0);
        init.bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>()
    };
    // Values follow one another, whatever the rows.
    assert_eq!(init("t"), [1, 2, 3]);
    assert_eq!(init("v")[4], 3f32.to_bits());
    let text = module.to_string();
    assert!(text.contains("add.f32 %r1, %r2, 0f3F800000") || text.contains("add.f32 %r1_1"), "{text}");
}

#[test]
fn written_zero_offsets_are_kept() {
    let head =
        ".version 9.0\n.target sm_90\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n";
    let source = format!("{head}ld.global.b32 %r1, [ %rd1 + 0 ];\nld.global.b32 %r1, [%rd1];\nret;\n}}\n");
    let text = ptx::parse(&source).expect("a right module").to_string();
    assert!(text.contains("[%rd1+0];") && text.contains("[%rd1];"), "{text}");
}
