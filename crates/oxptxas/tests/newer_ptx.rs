//! What came with PTX 9.1 and later, vector registers as parameters, products that are rounded otherwise and parameters that
//! are read behind their end: our code against the interpreter, on launches that nobody wrote.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use sass::{Mod, Opcode, Target};

/// The code of `k` at both levels does what the interpreter does.
fn same(source: &str, arch: &str) {
    let module = ptx::parse(source).unwrap_or_else(|e| panic!("{e:?}\n{source}"));
    for opt_level in [0, 3] {
        let settings = Settings { opt_level, ..Settings::new(Target::parse(arch).unwrap()) };
        let output =
            compile(source, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("oxptxas")));
        match verify::kernel(&module, source, &output.cubin, "k", 0..4) {
            Verdict::Same => {}
            other => panic!("{arch} -O{opt_level}: {other:?}\n{source}"),
        }
    }
}

/// A kernel that computes from two numbers of a buffer for each of its threads.
fn of_two(version: &str, target: &str, statement: &str) -> String {
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b32 r<6>; .reg .b64 d<6>;\n\
         .local .align 16 .b8 lv[16];\n\
         ld.param.u64 d1, [in]; ld.param.u64 d2, [out]; mov.u32 r1, %tid.x; mul.wide.u32 d3, r1, 8;\n\
         add.u64 d1, d1, d3; add.u64 d2, d2, d3; ld.global.v2.b32 {{r2, r3}}, [d1];\n\
         {statement}\nst.global.b32 [d2], r4;\nret;\n}}\n"
    )
}

#[test]
fn parts_of_a_register() {
    for statement in [
        "add.u8x4 r4, r2, r3;",
        "add.sat.u8x4 r4, r2, r3;",
        "add.sat.s8x4 r4, r2, r3;",
        "sub.u8x4 r4, r2, r3;",
        "sub.sat.u8x4 r4, r2, r3;",
        "sub.sat.s8x4 r4, r2, r3;",
        "min.u8x4 r4, r2, r3;",
        "max.s8x4 r4, r2, r3;",
        "max.relu.s8x4 r4, r2, r3;",
        "neg.s8x4 r4, r2;",
        "add.sat.u16x2 r4, r2, r3;",
        "add.sat.s16x2 r4, r2, r3;",
        "add.sat.u32 r4, r2, r3;",
        "add.sat.u32 r4, r2, 4294967040;",
    ] {
        same(&of_two("9.2", "sm_120f", statement), "sm_120f");
    }
}

#[test]
fn volatile_local_memory() {
    let statement = "st.volatile.local.v2.b32 [lv], {r2, r3}; ld.volatile.local.b32 r4, [lv+4];";
    for arch in ["sm_75", "sm_90", "sm_120"] {
        same(&of_two("9.1", "sm_75", statement), arch);
    }
}

#[test]
fn vector_registers_as_parameters() {
    let source = of_two("8.0", "sm_75", "call (w), f, (v, 5); mov.u32 r4, w.x; xor.b32 r4, r4, w.y;");
    let source = source
        .replace(
            "ld.global.v2.b32 {r2, r3}, [d1];",
            ".reg .v4 .u16 v; .reg .v2 .u32 w; ld.global.v4.u16 v, [d1];",
        )
        .replace(
            ".visible",
            ".func (.reg .v2 .u32 o) f(.reg .v4 .u16 i, .reg .u32 j)\n{\n.reg .v2 .u32 t;\n\
             cvt.u32.u16 t.x, i.w; cvt.u32.u16 o.y, i.y; mad.lo.u32 t.x, t.x, j, o.y;\n\
             cvt.u32.u16 t.y, i.z; sub.u32 o.x, t.x, t.y;\nret;\n}\n.visible",
        );
    for arch in ["sm_75", "sm_90", "sm_120"] {
        same(&source, arch);
    }
}

/// In objects they are passed as `.param` variables of the same vector type, which the texts of the linker say; the places are
/// those of `cargo xtask link-check`.
#[test]
fn vector_registers_as_parameters_in_objects() {
    let bodies = "\n{\n.reg .v4 .u16 v; .reg .v2 .b32 w; .reg .b32 r<3>;\nmov.b32 r1, 1;\ncall (w), f, (v, r1);\nret;\n}\n";
    let source = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .func (.reg .v2 .b32 o) f(.reg .v4 .u16 i, .reg .b32 j)\n{{\ncvt.u32.u16 o.x, i.y;\n\
         mov.b32 o.y, j;\nret;\n}}\n.visible .func g(.reg .b32 x, .reg .v4 .u8 a, .reg .v2 .f64 c){bodies}"
    );
    for arch in ["sm_75", "sm_90", "sm_120"] {
        let settings = Settings { relocatable: true, ..Settings::new(Target::parse(arch).unwrap()) };
        let output =
            compile(&source, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("oxptxas")));
        let texts = String::from_utf8_lossy(&output.cubin).into_owned();
        assert!(["#lli", "#viix"].iter().all(|t| texts.contains(&format!("{t}\0"))), "{arch}");
    }
}

/// What is read there is not defined, and the program need not come to it.
#[test]
fn parameters_read_behind_their_end() {
    for place in ["out+96", "out+65535", "out+70000", "out+2147483647", "out+33", "out+4294967296"] {
        let load = format!(
            "setp.eq.u32 p, r1, 2000; @p bra X; mov.b32 r4, r2; bra Y; X: ld.param.u32 r4, [{place}]; Y:"
        );
        let source = of_two("8.0", "sm_75", &load).replace(".reg .b32", ".reg .pred p; .reg .b32");
        for arch in ["sm_75", "sm_90", "sm_120"] {
            same(&source, arch);
        }
    }
    let call =
        "{ .param .b32 x; .param .b32 y; st.param.b32 [x], r1; call (y), f, (x); ld.param.b32 r4, [y]; }";
    let callee = ".func (.param .b32 y) f(.param .b32 x) { .reg .pred p; .reg .b32 a; ld.param.b32 a, [x]; setp.ne.u32 p, a, 5000; \
        @p bra Z; ld.param.b32 a, [x+64]; Z: st.param.b32 [y], a; ret; }\n.visible";
    let source = of_two("8.0", "sm_75", call).replace(".visible", callee);
    same(&source, "sm_75");
}

#[test]
fn products_of_binary64_are_rounded_as_they_say() {
    for (shape, arch, [d, a, b]) in
        [("m8n8k4", "sm_80", [2, 1, 1]), ("m16n8k8", "sm_90", [4, 4, 2]), ("m16n8k16", "sm_100", [4, 8, 4])]
    {
        for (word, mods) in [
            ("", None),
            (".rn", None),
            (".rz", Some(Mod::RZ)),
            (".rm", Some(Mod::RM)),
            (".rp", Some(Mod::RP)),
        ] {
            let list =
                |name: &str, n: usize| (0..n).map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(", ");
            let names = |name: &str, n: usize| format!("{{{}}}", list(name, n));
            let loads: String = [("a", a), ("b", b), ("c", d)]
                .iter()
                .flat_map(|(name, n)| {
                    (0..*n).map(move |i| format!("ld.global.f64 {name}{i}, [d1]; add.u64 d1, d1, 256;\n"))
                })
                .collect();
            let stores: String = (0..d).map(|i| format!("st.global.f64 [d2+{}], e{i};\n", 256 * i)).collect();
            let source = format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
                 .reg .b64 d<4>; .reg .f64 {}, {}, {}, {}; .reg .b32 r;\n\
                 ld.param.u64 d1, [in]; ld.param.u64 d2, [out]; mov.u32 r, %laneid; mul.wide.u32 d3, r, 8;\n\
                 add.u64 d1, d1, d3; add.u64 d2, d2, d3;\n{loads}\
                 mma.sync.aligned.{shape}.row.col{word}.f64.f64.f64.f64 {}, {}, {}, {};\n{stores}ret;\n}}\n",
                list("e", d),
                list("a", a),
                list("b", b),
                list("c", d),
                names("e", d),
                names("a", a),
                names("b", b),
                names("c", d),
            );
            let source = if shape == "m8n8k4" { source } else { source.replace("sm_80", "sm_90") };
            let target = Target::parse(arch).unwrap();
            let output = compile(&source, "k.ptx", &Settings::new(target))
                .unwrap_or_else(|f| panic!("{}", f.render("oxptxas")));
            let image = cubin::read::read(&output.cubin).unwrap();
            let words = image.kernels["k"].code.iter().enumerate();
            let insts: Vec<_> =
                words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap()).collect();
            let products: Vec<_> = insts.iter().filter(|i| i.op == Opcode::DMMA).collect();
            assert!(!products.is_empty(), "{arch}");
            for p in products {
                let rounded = [Mod::RZ, Mod::RM, Mod::RP].into_iter().find(|m| p.mods.has(*m));
                assert_eq!(rounded, mods, "{arch} {word}");
            }
            let module = ptx::parse(&source).unwrap();
            match verify::kernel(&module, &source, &output.cubin, "k", 0..2) {
                Verdict::Same | Verdict::Close => {}
                other => panic!("{arch} {shape}{word}: {other:?}"),
            }
        }
    }
}

/// A load that acquires and a store that releases, of which there is to be just one each.
#[test]
fn ordered_accesses_of_devices() {
    let statement = "ld.mmio.acquire.sys.global.b32 r4, [d1]; st.mmio.release.sys.global.b32 [d1], r4;";
    for arch in ["sm_75", "sm_80", "sm_90", "sm_120"] {
        let source = of_two("9.3", "sm_75", statement);
        same(&source, arch);
        let settings = Settings::new(Target::parse(arch).unwrap());
        let output =
            compile(&source, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("oxptxas")));
        let image = cubin::read::read(&output.cubin).unwrap();
        let words = image.kernels["k"].code.iter().enumerate();
        let target = Target::parse(arch).unwrap();
        let insts: Vec<_> = words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap()).collect();
        let of = |op: Opcode| insts.iter().filter(|i| i.op == op).count();
        assert_eq!([of(Opcode::CCTL), of(Opcode::MEMBAR)], [1, 1], "{arch}");
        assert_eq!(insts.iter().filter(|i| i.mods.has(Mod::MMIO)).count(), 2, "{arch}");
    }
}

/// A function with two results, one of them a predicate.
#[test]
fn predicates_as_results() {
    let two = ".func (.reg .b32 a, .reg .pred b) f(.reg .b32 x, .reg .pred p)\n\
               { add.u32 a, x, 1; @p add.u32 a, a, 16; setp.gt.s32 b, x, 0; ret; }\n";
    let statement =
        "{ .reg .pred p<2>; setp.gt.s32 p0, r3, 0; call (r4, p1), f, (r2, p0); @p1 add.u32 r4, r4, 256; }";
    for arch in ["sm_75", "sm_90", "sm_120"] {
        same(
            &of_two("8.0", "sm_75", statement).replace(".visible .entry", &format!("{two}.visible .entry")),
            arch,
        );
    }
}

/// Forms that ptxas 13.5.37 takes and that are not built: the error names the version that they are of.
#[test]
fn newer_than_what_is_built() {
    let said = |version: &str, statement: &str| {
        let source = of_two(version, "sm_120a", statement);
        let failure = compile(&source, "k.ptx", &Settings::new(Target::parse("sm_120a").unwrap()));
        failure.err().unwrap().render("oxptxas")
    };
    for (of, statement) in [
        ("9.1", "cvt.rn.satfinite.s2f6x2.f32 r1, r2, r3;"),
        ("9.1", "multimem.cp.async.bulk.global.shared::cta.bulk_group [d1], [d2], r1;"),
        (
            "9.1",
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0 {r1, r1, r1, r1}, \
             {r1, r2, r3, r4}, {r1, r2}, {r1, r1, r1, r1}, r3, {0, 0}, r4, {0, 0};",
        ),
        ("9.2", "@p cvt.rn.scaled::n2::ue8m0.bf16x2.e5m2x2 r1, r2, r3;"),
        ("9.2", "cvt.rn.bf16x2.e4m3x2 r1, r2;"),
        (
            "9.2",
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [d1], [d2], r1, r2, r3, [d1];",
        ),
        ("9.2", "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b128 [d1], d2, [d2];"),
        ("9.3", "clmad.lo.u64 d1, d2, d3, d3;"),
        ("9.3", "cp.async.bulk.weak.shared::cta.global.mbarrier::complete_tx::bytes [d1], [d2], r1, [d3];"),
        ("9.3", "mbarrier.init.layout::v1.shared.b64 [d1], 1;"),
        ("9.4", "here: atom.global.add.noftz.f32 r1, [d1], r2;"),
        ("9.4", "ld.global.proxy::readonly.u32 r1, [d1];"),
        ("9.4", "prefetch.global.L1::32B.valid_addr [d1];"),
        ("9.4", "fence.proxy.alias.release.sys;"),
        ("9.4", "mov.u32 r1, %perctamemorysize;"),
    ] {
        assert!(
            said("9.5", statement).contains(&format!("is of PTX {of}, and not built yet")),
            "{}",
            said("9.5", statement)
        );
        assert!(!said("9.0", statement).contains("not built yet"), "{}", said("9.0", statement));
    }
    let directive = of_two("9.4", "sm_120a", "").replace("\n{\n", " .minperctamemory 1024\n{\n");
    let failure = compile(&directive, "k.ptx", &Settings::new(Target::parse("sm_120a").unwrap()));
    let said_of = failure.err().unwrap().render("oxptxas");
    assert!(said_of.contains("'minperctamemory' is of PTX 9.4"), "{said_of}");
    // Others may be newer.
    assert!(said("9.5", "frob.u32 r1, r2;").contains("since 9.0, only a part is known"));
    assert!(!said("9.0", "frob.u32 r1, r2;").contains("since 9.0"));
}

/// The address of the element that a register names: 32 bits of number times the size of one component, 1 where the size of
/// the array is not known (ptxas 13.0.88, read off its code).
#[test]
fn elements_that_registers_name() {
    let arrays = ".global .u32 g[8] = {3, 5, 7, 11, 13, 17, 19, 23}; .global .v2 .u16 gv[4] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};\n\
        .const .u8 c[8] = {9, 8, 7, 6, 5, 4, 3, 2}; .shared .u32 s[8];\n.visible .entry";
    for statement in [
        "and.b32 r2, r2, 3; mov.u64 d4, g[r2]; ld.global.u32 r4, [d4];",
        "and.b32 r2, r2, 3; ld.global.u32 r4, g[r2+2];",
        "and.b32 r2, r2, 3; ld.u32 r4, g[r2];",
        "ld.global.u32 r4, g[5];",
        "and.b32 r2, r2, 3; ld.global.u16 r4, gv[r2];",
        "ld.global.u16 r4, gv[1];",
        "and.b32 r2, r2, 7; ld.const.u8 r4, c[r2];",
        "and.b32 r2, r2, 7; st.shared.u32 s[r2], r3; ld.shared.u32 r4, s[r2];",
        "and.b32 r2, r2, 7; st.shared.u32 s[r2], r3; cvta.shared.u64 d4, s[r2]; ld.u32 r4, [d4];",
        "{ .reg .s16 h; and.b32 r2, r2, 3; cvt.u16.u32 h, r2; sub.s16 h, h, 2; ld.global.u32 r4, g[h+2]; }",
        "{ .reg .b64 n; and.b32 r2, r2, 3; mov.b64 n, {r2, r3}; ld.global.u32 r4, g[n]; }",
    ] {
        let source = of_two("8.0", "sm_75", statement).replace(".visible .entry", arrays);
        for arch in ["sm_75", "sm_120"] {
            same(&source, arch);
        }
    }
}

/// Without `.sync` those take part that are there: defined where the whole warp comes together.
#[test]
fn exchanges_without_sync() {
    let with =
        |statement: &str| of_two("6.0", "sm_60", statement).replace(".reg .b32", ".reg .pred p; .reg .b32");
    for statement in [
        "shfl.bfly.b32 r4, r2, 3, 31;",
        "shfl.up.b32 r4|p, r2, 1, 0; @!p mov.b32 r4, r3;",
        "setp.lt.u32 p, r2, r3; vote.ballot.b32 r4, p;",
        "setp.lt.u32 p, r2, r3; vote.any.pred p, p; selp.b32 r4, 1, 2, p;",
    ] {
        same(&with(statement), "sm_75");
    }
}
