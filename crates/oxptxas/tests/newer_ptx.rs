//! What came with PTX 9.1 and later, vector registers as parameters, products that are rounded otherwise and parameters that
//! are read behind their end: our code against the interpreter, on launches that nobody wrote.

use oxptxas::verify::{self, Verdict};
use oxptxas::{Settings, compile};
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
    // Objects have no word for them yet.
    let settings = Settings { relocatable: true, ..Settings::new(Target::parse("sm_75").unwrap()) };
    assert!(compile(&source, "k.ptx", &settings).is_err());
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

/// What is not known of newer PTX is an error that says so.
#[test]
fn newer_than_what_is_known() {
    for statement in ["clmad.lo.u64 d1, d2, d3, d3;", "cvt.rn.satfinite.s2f6x2.f32 r1, r2, r3;"] {
        let said = |version: &str| {
            let source = of_two(version, "sm_100a", statement);
            let failure = compile(&source, "k.ptx", &Settings::new(Target::parse("sm_100a").unwrap()));
            failure.err().unwrap().render("oxptxas")
        };
        assert!(said("9.5").contains("since 9.0, only a part is known"), "{}", said("9.5"));
        assert!(!said("9.0").contains("since 9.0"), "{}", said("9.0"));
    }
}
