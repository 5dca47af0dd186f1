//! Textures, samplers and surfaces by name: what the file says of them, beside ptxas's where the tools are there; that the
//! interpreter, our code and ptxas's agree; a launch file with results computed by hand; what is refused.

use contract::elf::{Elf, number, split};
use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use sass::Target;
use sim::launch::LaunchFile;
use std::path::PathBuf;
use std::process::Command;

const TARGETS: [&str; 6] = ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"];

/// What a module of these tests begins with.
fn header(mode: &str) -> String {
    let samplers = if mode.is_empty() {
        String::new()
    } else {
        "
.global .samplerref s0 = { addr_mode_0 = clamp_to_border, filter_mode = nearest };
.global .samplerref s1 = { addr_mode_0 = wrap, addr_mode_1 = 1, addr_mode_2 = clamp_ogl, filter_mode = linear, force_unnormalized_coords = 1 };
.global .samplerref s2;"
            .to_string()
    };
    format!(
        ".version 9.0
.target sm_75{mode}
.address_size 64
.global .texref tx;
.visible .global .texref ty;
.global .surfref sf;
.global .surfref sg;{samplers}
"
    )
}

/// A kernel of these statements.
fn kernel(statements: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 out, .param .f32 x, .param .texref tp, .param .f32 y, .param .surfref sp) {{
.reg .f32 %f<12>; .reg .b64 %rd<6>; .reg .b32 %r<12>; .reg .pred %p<4>;
ld.param.u64 %rd1, [out]; ld.param.f32 %f1, [x]; ld.param.f32 %f2, [y];
mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 32, %rd1; cvt.rn.f32.u32 %f3, %r1; fma.rn.f32 %f1, %f3, 0f3F333333, %f1;
mov.u32 %r2, 0; mov.f32 %f5, 0f00000000; setp.lt.u32 %p1, %r1, 7; and.b32 %r9, %r1, 3;
{statements}
st.global.f32 [%rd1], %f5; st.global.u32 [%rd1+4], %r2; ret; }}
"
    )
}

/// Kernels, and the mode that they need.
fn modules() -> Vec<(&'static str, String)> {
    let alone = |s: &str| ("", header("") + &kernel(s));
    let apart = |s: &str| (", texmode_independent", header(", texmode_independent") + &kernel(s));
    let f = ".func (.reg .f32 %r0) f(.reg .f32 %x) { .reg .f32 %f<5>;
 tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [ty, {%x}]; add.f32 %r0, %f1, %f2; ret; }
.func (.reg .f32 %r0) g(.reg .f32 %x) { .reg .f32 %f<5>; call (%r0), f, (%x);
 tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [tx, {%x}]; add.f32 %r0, %r0, %f2; ret; }
";
    vec![
        alone(
            "tex.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, {%f1,%f2}]; tex.1d.v4.f32.f32 {%f6,%f7,%f8,%f9}, [ty, {%f1}]; add.f32 %f5, %f5, %f6;",
        ),
        alone(
            "suld.b.1d.b32.zero %r2, [sf, {%r1}]; sust.b.1d.b32.clamp [sg, {%r1}], %r1; sured.b.add.1d.u32.clamp [sp, {%r1}], %r1;",
        ),
        alone("tex.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tp, {%f1,%f2}]; suld.b.1d.b32.zero %r2, [sp, {%r1}];"),
        alone(
            "txq.width.b32 %r2, [tx]; suq.width.b32 %r3, [sf]; add.u32 %r2, %r2, %r3; txq.channel_order.b32 %r4, [ty]; suq.channel_data_type.b32 %r5, [sg]; add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r5;",
        ),
        alone(
            "mov.u64 %rd2, tx; @%p1 mov.u64 %rd2, ty; tex.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [%rd2, {%f1,%f2}];",
        ),
        alone(
            "mov.u64 %rd2, sf; @%p1 mov.u64 %rd2, sg; suld.b.1d.b32.zero %r2, [%rd2, {%r1}]; mov.u64 %rd3, ty; istypep.texref %p2, %rd3; istypep.surfref %p3, %rd2; selp.f32 %f5, %f1, %f2, %p2; @%p3 add.f32 %f5, %f5, %f5;",
        ),
        alone(
            "tld4.r.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, {%f1,%f2}]; tex.level.2d.v4.f32.f32 {%f6,%f7,%f8,%f9}, [tx, {%f1,%f2}], %f3; add.f32 %f5, %f5, %f6;",
        ),
        alone("@%p1 tex.1d.v4.s32.s32 {%r2,%r3,%r4,%r5}, [tx, {%r9}];"),
        alone(
            "tex.grad.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, {%f1,%f2}], {%f3,%f2}, {%f2,%f3}, %f1; tex.base.2dms.v4.s32.s32 {%r2,%r3,%r4,%r5}, [ty, {0,%r9,%r9,%r9}];",
        ),
        apart(
            "tex.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, s1, {%f1,%f2}]; tex.1d.v4.f32.f32 {%f6,%f7,%f8,%f9}, [ty, s0, {%f1}]; tex.2d.v4.f32.f32 {%f7,%f8,%f9,%f10}, [tx, s0, {%f2,%f1}]; add.f32 %f5, %f5, %f6; add.f32 %f5, %f5, %f7;",
        ),
        apart(
            "mov.u64 %rd2, tx; mov.u64 %rd3, s2; tex.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [%rd2, %rd3, {%f1,%f2}]; tex.2d.v4.f32.f32 {%f6,%f7,%f8,%f9}, [%rd2, s1, {%f1,%f2}]; tex.2d.v4.f32.f32 {%f7,%f8,%f9,%f10}, [tx, %rd3, {%f2,%f1}]; add.f32 %f5, %f5, %f6; add.f32 %f5, %f5, %f7;",
        ),
        apart(
            "mov.u64 %rd3, s2; @%p1 mov.u64 %rd3, s1; tex.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, %rd3, {%f1,%f2}];",
        ),
        apart(
            "txq.width.b32 %r2, [tx]; txq.filter_mode.b32 %r3, [s1]; txq.channel_order.b32 %r4, [ty]; txq.addr_mode_1.b32 %r5, [s0]; shl.b32 %r3, %r3, 8; shl.b32 %r5, %r5, 12; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r5;",
        ),
        (
            "",
            header("")
                + f
                + &kernel(
                    "call (%f5), g, (%f1); suld.b.1d.b32.zero %r2, [sf, {%r1}]; call (%f6), f, (%f2); add.f32 %f5, %f5, %f6;",
                )
                + ".visible .entry k2(.param .u64 out) { .reg .f32 %f<6>; .reg .b64 %rd<3>; ld.param.u64 %rd1, [out]; mov.f32 %f1, 0f3F800000; call (%f2), f, (%f1); st.global.f32 [%rd1], %f2; ret; }\n",
        ),
    ]
}

/// The module of which ptxas takes the lanes of a quad by turns, which is not simulated.
const IN_TURNS: usize = 8;

/// What ptxas makes of it.
fn reference(source: &str, target: &str) -> Option<Vec<u8>> {
    reference_with(source, target, &[])
}

fn reference_with(source: &str, target: &str, options: &[&str]) -> Option<Vec<u8>> {
    let tools = PathBuf::from(std::env::var_os("OXPTXAS_ORACLES")?);
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    let file = |ending| std::env::temp_dir().join(format!("named{}-{thread}.{ending}", std::process::id()));
    let (input, output) = (file("ptx"), file("cubin"));
    std::fs::write(&input, source).expect("can be written");
    let mut ptxas = Command::new(tools.join("ptxas"));
    let run = ptxas
        .args(options)
        .arg(format!("-arch={target}"))
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .output()
        .expect("runs");
    assert!(run.status.success(), "{}\n{source}", String::from_utf8_lossy(&run.stderr));
    let cubin = std::fs::read(&output).expect("is there");
    let _ = (std::fs::remove_file(input), std::fs::remove_file(output));
    Some(cubin)
}

fn ours(source: &str, target: &str, opt_level: u8) -> Vec<u8> {
    let settings = Settings { opt_level, ..Settings::new(Target::parse(target).expect("is one")) };
    let output = compile(source, "named.ptx", &settings);
    output.unwrap_or_else(|e| panic!("{target}: {e}\n{source}")).cubin
}

/// Attributes of the file and of kernels that are about these names: SAMPLER_INIT, SAMPLER_FORCE_UNNORMALIZED, BINDLESS_TEXTURE_BANK,
/// BINDLESS_SURFACE_BANK, ISTYPEP_USED, TEXMODE_INDEPENDENT; KPARAM_INFO and CBANK_PARAM_SIZE as well.
const ATTRIBUTES: [u8; 8] = [0x09, 0x13, 0x15, 0x16, 0x17, 0x19, 0x22, 0x4d];

/// What a file says: its symbols of these types, its attributes, the words of constant bank 0, and how large that is.
fn said(file: &[u8]) -> Vec<String> {
    let elf = Elf::new(file).expect("is a cubin");
    let opaque = |n: u32| elf.symbols.get(n as usize).is_some_and(|s| matches!(s.info & 15, 10..=12));
    let name = |n: u32| if opaque(n) { elf.symbol_name(n) } else { n.to_string() };
    let mut out = Vec::new();
    for s in elf.symbols.iter().filter(|s| matches!(s.info & 15, 10..=12)) {
        let (value, size) = (s.value, s.size);
        out.push(format!("symbol {} {:#x} {} {value} {size} {}", s.name, s.info, s.other, s.section != 0));
    }
    // They are in no order that means anything.
    out.sort();
    for s in &elf.sections {
        if s.name.starts_with(".nv.info") {
            for (_, code, payload) in split(elf.bytes(s)).into_iter().filter(|r| ATTRIBUTES.contains(&r.1)) {
                let words: Vec<u32> = payload.chunks(4).map(|w| number(w, 0, w.len()) as u32).collect();
                let of = |w: &u32| if matches!(code, 0x09 | 0x13 | 0x17) { name(*w) } else { w.to_string() };
                let first = words.first().map(of).unwrap_or_default();
                out.push(format!("{} {code:#x} {first} {:x?}", s.name, words.get(1..).unwrap_or(&[])));
            }
        }
        let Some(kernel) = s.name.split_once(".nv.constant0.").map(|n| n.1) else { continue };
        if s.name.starts_with(".nv.constant0.") {
            out.push(format!("bank of {kernel}: {:#x}", s.size));
        } else if s.entsize != 0 {
            let entries = elf.bytes(s).chunks(s.entsize as usize);
            let mut words: Vec<String> = entries
                .map(|e| {
                    let (at, info) = (number(e, 0, 8), number(e, 8, 8));
                    format!(
                        "word {kernel} {at:#x} {:#x} {}",
                        info as u32,
                        elf.symbol_name((info >> 32) as u32)
                    )
                })
                .collect();
            words.sort();
            out.extend(words);
        }
    }
    out
}

#[test]
fn files_say_what_ptxas_says() {
    for (n, (_, source)) in modules().into_iter().enumerate() {
        for target in TARGETS {
            let source = source.replace("sm_75", target);
            let Some(theirs) = reference(&source, target) else { return };
            let (mut ours, mut theirs) = (said(&ours(&source, target, 3)), said(&theirs));
            // Before sm_90 ptxas may have a texture and a sampler that handles are made of in one word.
            if matches!(n, 10..=12) {
                let keeps = |s: &String| !s.starts_with("word") && !s.starts_with("bank");
                ours.retain(keeps);
                theirs.retain(keeps);
            }
            // A function's code is the same in all kernels here, and finds the word in one place.
            if n == 13 {
                let first = |s: &String| !s.starts_with("word k2") && !s.starts_with("bank of k2");
                ours.retain(first);
                theirs.retain(first);
            }
            assert_eq!(ours, theirs, "{target}: {source}");
        }
    }
}

/// How many of each kind `-v` counts: two textures with two samplers make three words.
#[test]
fn names_are_counted() {
    let statements = "tex.2d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, s0, {%f1,%f2}]; tex.2d.v4.f32.f32 {%f6,%f7,%f8,%f9}, [tx, s1, {%f1,%f2}];
 tex.2d.v4.f32.f32 {%f7,%f8,%f9,%f10}, [ty, s1, {%f1,%f2}]; suld.b.1d.b32.zero %r2, [sf, {%r1}];";
    let source = header(", texmode_independent") + &kernel(statements);
    for (target, said) in
        [("sm_75", "2 textures, 1 surfaces, 2 samplers"), ("sm_80", "3 textures, 1 surfaces, 3 samplers")]
    {
        let source = source.replace("sm_75", target);
        let target = Target::parse(target).expect("is one");
        let output = compile(&source, "named.ptx", &Settings::new(target)).expect("compiles");
        let text = output.verbose("oxptxas", target);
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn words_are_behind_the_parameters() {
    let (_, source) = &modules()[0];
    for (target, first) in [("sm_75", 0x170), ("sm_90", 0x220), ("sm_120", 0x390)] {
        let said = said(&ours(&source.replace("sm_75", target), target, 0));
        let expected = [
            "symbol sf 0x1c 0 0 0 false".to_string(),
            "symbol sp 0xc 0 0 0 true".into(),
            "symbol tx 0x1a 0 0 0 false".into(),
            format!("bank of k: {:#x}", first + 8),
            format!("word k {first:#x} 0x6 tx"),
            format!("word k {:#x} 0x6 ty", first + 4),
        ];
        for line in expected {
            assert!(said.contains(&line), "{target}: no {line}: {said:#?}");
        }
    }
}

#[test]
fn code_does_what_the_interpreter_does() {
    for (n, (_, source)) in modules().into_iter().enumerate() {
        for target in TARGETS {
            let source = source.replace("sm_75", target);
            let own = [0, 3].map(|level| (format!("-O{level}"), ours(&source, target, level)));
            let theirs = reference(&source, target).map(|c| ("ptxas".to_string(), c));
            let theirs = theirs.filter(|_| n != IN_TURNS);
            for (who, cubin) in own.into_iter().chain(theirs) {
                compared(n, &source, target, &who, &cubin);
            }
        }
    }
}

/// Thread t samples a row of four numbers at t/2 with two samplers, and reads a surface.
const KERNEL: &str = "
.version 9.0
.target sm_75, texmode_independent
.address_size 64
.global .texref row;
.global .samplerref smooth;
.global .samplerref rough;
.global .surfref words;
.visible .entry k(.param .u64 out)
{
.reg .b32 t, x; .reg .b64 o; .reg .f32 a, b, c, d, u;
mov.u32 t, %tid.x;
ld.param.u64 o, [out];
mad.wide.u32 o, t, 16, o;
cvt.rn.f32.u32 u, t;
mul.rn.f32 u, u, 0f3f000000;
tex.1d.v4.f32.f32 {a, b, c, d}, [row, smooth, {u}];
st.global.f32 [o], a;
tex.1d.v4.f32.f32 {a, b, c, d}, [row, rough, {u}];
st.global.f32 [o+4], a;
shl.b32 x, t, 2;
suld.b.1d.b32.zero x, [words, {x}];
st.global.u32 [o+8], x;
ret;
}
";

const LAUNCH: &str = r#"
[[launch]]
kernel = "k"
grid = [1, 1, 1]
block = [8, 1, 1]
args = [{ buffer = "out" }]
[launch.names]
row = { texture = "numbers" }
words = { surface = "counts" }
smooth = { sampler = { filter = "linear", address = ["border"] } }
rough = { sampler = { filter = "point", address = ["wrap"] } }
[launch.buffers.texels]
type = "f32"
length = 4
list = [0.0, 256.0, 512.0, 1024.0]
[launch.buffers.integers]
type = "u32"
length = 6
list = [1, 2, 3, 4, 5, 6]
[launch.buffers.out]
type = "u32"
length = 32
fill = 7
[launch.images.numbers]
buffer = "texels"
geometry = "1d"
type = "f32"
size = [4]
[launch.images.counts]
buffer = "integers"
geometry = "1d"
type = "u32"
size = [6]
"#;

#[test]
fn a_launch_file_has_names() {
    let launch = &LaunchFile::parse(LAUNCH).expect("is a launch file").launch[0];
    // The mean at t/2 of what is half a texel to the left and to the right of it, the border being 0; then the texel there.
    let smooth = [0f32, 0.0, 128.0, 256.0, 384.0, 512.0, 768.0, 1024.0];
    let rough = [0f32, 0.0, 256.0, 256.0, 512.0, 512.0, 1024.0, 1024.0];
    let words = [1, 2, 3, 4, 5, 6, 0, 0];
    let mut out = Vec::new();
    for t in 0..8 {
        let row = [smooth[t].to_bits(), rough[t].to_bits(), words[t], 7];
        out.extend(row.map(u32::to_le_bytes).concat());
    }
    let module = verify::module(KERNEL, Target::parse("sm_75").expect("is one")).expect("is PTX");
    assert_eq!(sim::ptx::run(&module, launch).expect("runs")["out"], out);
    for target in TARGETS {
        let source = KERNEL.replace("sm_75", target);
        let cubins = [0, 3].map(|level| ours(&source, target, level));
        for cubin in cubins.into_iter().chain(reference(&source, target)) {
            let run = sim::sass::run(&cubin, launch, sim::sass::Options::default());
            assert_eq!(run.unwrap_or_else(|e| panic!("{target}: {e}")).buffers["out"], out, "{target}");
        }
    }
    for (from, to, what) in [
        ("row = { texture = \"numbers\" }", "row = { surface = \"numbers\" }", "no handle of a texture"),
        ("row = { texture = \"numbers\" }\n", "", "bound to 'row'"),
        ("rough = { sampler", "rough2 = { sampler", "bound to 'rough'"),
    ] {
        let launch = &LaunchFile::parse(&LAUNCH.replacen(from, to, 1)).expect("is a launch file").launch[0];
        let run = sim::sass::run(&ours(KERNEL, "sm_75", 3), launch, sim::sass::Options::default());
        let Err(error) = run else { panic!("{to}") };
        let error = error.to_string();
        assert!(error.contains(what), "{to}: {error}");
        assert!(sim::ptx::run(&module, launch).is_err(), "{to}");
    }
    for (from, to, what) in [
        ("texture = \"numbers\"", "texture = \"number\"", "no image 'number'"),
        ("filter = \"point\"", "filter = \"cubic\"", "filter 'cubic'"),
        (
            "row = { texture = \"numbers\" }",
            "row = { texture = \"numbers\", surface = \"counts\" }",
            "stands for",
        ),
    ] {
        let error = LaunchFile::parse(&LAUNCH.replacen(from, to, 1)).expect_err(to);
        assert!(error.to_string().contains(what), "{to}: {error}");
    }
}

/// Statements that are refused, and the message; the mode.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "",
        "tex.1d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [sf, {%f1}];",
        "Argument 1 of instruction 'tex': .texref or .u64 register expected",
    ),
    (
        "",
        "tex.1d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [out, {%f1}];",
        "Argument 1 of instruction 'tex': .texref or .u64 register expected",
    ),
    ("", "tex.1d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [%r1, {%f1}];", "Arguments mismatch for instruction 'tex'"),
    ("", "tex.1d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, %rd1, {%f1}];", "requires .target texmode_independent"),
    ("", "txq.width.b32 %r2, [sf];", "Argument 1 of instruction 'txq': .texref or .u64 register expected"),
    ("", "suq.width.b32 %r2, [tx];", "Argument 1 of instruction 'suq': .surfref or .u64 register expected"),
    ("", "mov.b64 %rd2, tx;", "Indirect access to texture requires .u64 type"),
    ("", "mov.u32 %r2, sf;", "Indirect access to surface requires .u64 type"),
    ("", "ld.global.u32 %r2, [tx];", "Illegal operand type to instruction 'ld'"),
    ("", "ld.param.u64 %rd2, [tp];", "Illegal operand type to instruction 'ld'"),
    ("", "cvta.global.u64 %rd2, tx;", "not supported yet"),
    ("", "mov.u64 %rd2, tx+4;", "not supported yet"),
    (
        ", texmode_independent",
        "tex.1d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, {%f1}];",
        "Argument 2 of instruction 'tex': .samplerref or .u64 register expected",
    ),
    (
        ", texmode_independent",
        "tex.1d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [tx, sf, {%f1}];",
        "Argument 2 of instruction 'tex': .samplerref or .u64 register expected",
    ),
    (
        ", texmode_independent",
        "tex.1d.v4.f32.f32 {%f5,%f6,%f7,%f8}, [s0, s0, {%f1}];",
        "Argument 1 of instruction 'tex': .texref or .u64 register expected",
    ),
    (
        ", texmode_independent",
        "txq.filter_mode.b32 %r2, [tx];",
        "Argument 1 of instruction 'txq': .samplerref or .u64 register expected",
    ),
];

#[test]
fn what_is_of_another_kind_is_refused() {
    for (mode, statement, what) in REFUSED {
        let source = header(mode) + &kernel(statement);
        for target in ["sm_75", "sm_90"] {
            let settings = Settings::new(Target::parse(target).expect("is one"));
            let failure =
                compile(&source.replace("sm_75", target), "named.ptx", &settings).expect_err(statement);
            assert!(failure.to_string().contains(what), "{statement}: {failure}");
            assert!(failure.messages()[0].place.is_some(), "{statement}");
        }
    }
}

/// An object of ours, at a level, or ptxas's.
fn object(source: &str, target: &str, who: &str) -> Vec<u8> {
    if who == "ptxas" {
        return reference_with(source, target, &["-c"]).expect("the tools are there");
    }
    let opt_level = if who == "-O0" { 0 } else { 3 };
    let extensible = who == "-ewp";
    let settings = Settings {
        relocatable: !extensible,
        extensible,
        opt_level,
        ..Settings::new(Target::parse(target).expect("is one"))
    };
    compile(source, "named.ptx", &settings).unwrap_or_else(|e| panic!("{target}: {e}\n{source}")).cubin
}

/// What nvlink makes of objects.
fn linked(objects: &[Vec<u8>], target: &str) -> Option<Vec<u8>> {
    let tools = PathBuf::from(std::env::var_os("OXPTXAS_ORACLES")?);
    let folder = tempfile::tempdir().expect("can be made");
    let mut nvlink = Command::new(tools.join("nvlink"));
    nvlink.arg(format!("-arch={target}")).arg("-o").arg(folder.path().join("out"));
    for (n, o) in objects.iter().enumerate() {
        let path = folder.path().join(format!("{n}.o"));
        std::fs::write(&path, o).expect("can be written");
        nvlink.arg(path);
    }
    let run = nvlink.output().expect("runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(std::fs::read(folder.path().join("out")).expect("is there"))
}

fn compared(n: usize, source: &str, target: &str, who: &str, cubin: &[u8]) {
    let module = verify::module(source, Target::parse(target).expect("is one")).expect("is PTX");
    let mut same = 0;
    for seed in 0..6 {
        match verify::kernel(&module, source, cubin, "k", seed..seed + 1) {
            Verdict::Same | Verdict::Close => same += 1,
            v @ (Verdict::Differs(_) | Verdict::OutOfScope(_)) => panic!("{n} {target} {who}: {v}\n{source}"),
            Verdict::Undefined(_) | Verdict::Silent => {}
        }
    }
    assert!(same > 0, "{n} {target} {who}: nothing compared\n{source}");
}

/// Objects, linked by nvlink, do what the PTX says. ptxas's alone are not asked: some say to nvlink that words are at the sum of
/// two offsets, which are outside of the bank (docs/lowering.md).
#[test]
fn linked_objects_do_what_the_interpreter_does() {
    for (n, (_, source)) in modules().into_iter().enumerate() {
        for target in TARGETS {
            let source = source.replace("sm_75", target);
            // nvlink takes nothing from what can be extended; registers and frames of calls are its affair.
            if !source.contains(" call ") {
                compared(n, &source, target, "-ewp", &object(&source, target, "-ewp"));
            }
            for who in ["-O0", "-O3"] {
                let Some(file) = linked(&[object(&source, target, who)], target) else { return };
                compared(n, &source, target, who, &file);
            }
        }
    }
}

/// A function that names textures in an object of ours, called by a kernel in one of ptxas's, and the other way round.
#[test]
fn names_are_one_in_all_objects() {
    let function = ".visible .func (.param .f32 r) f(.param .f32 x) { .reg .f32 %f<6>; ld.param.f32 %f5, [x];
 tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [ty, {%f5}]; add.f32 %f1, %f1, %f2; st.param.f32 [r], %f1; ret; }
";
    let statements = "{ .param .f32 a; .param .f32 b; st.param.f32 [a], %f1; call (b), f, (a); ld.param.f32 %f5, [b]; }
 tex.1d.v4.f32.f32 {%f6,%f7,%f8,%f9}, [ty, {%f2}]; add.f32 %f5, %f5, %f6; suld.b.1d.b32.zero %r2, [sf, {%r1}];";
    let declared = ".extern .func (.param .f32 r) f(.param .f32 x);\n";
    for target in TARGETS {
        let [header, kernel] = [header(""), kernel(statements)].map(|s| s.replace("sm_75", target));
        let whole = format!("{header}{function}{kernel}");
        let (a, b) = (format!("{header}{declared}{kernel}"), format!("{header}{function}"));
        for (of_kernel, of_function) in [("-O3", "-O0"), ("ptxas", "-O3"), ("-O3", "ptxas")] {
            if std::env::var_os("OXPTXAS_ORACLES").is_none() {
                return;
            }
            let objects = [object(&a, target, of_kernel), object(&b, target, of_function)];
            let file = linked(&objects, target).expect("the tools are there");
            compared(0, &whole, target, &format!("{of_kernel} {of_function}"), &file);
        }
    }
}

/// What can be extended (`-ewp`) has words behind the parameters, as executables have, of ptxas's size and at ptxas's place.
#[test]
fn extensible_programs_have_words() {
    let params = |target: &str, bytes: u32| {
        format!(
            ".version 9.0\n.target {target}\n.address_size 64\n.global .texref t; .global .surfref s;\n\
             .visible .entry k(.param .u64 p, .param .b8 q[{bytes}]) {{ .reg .b32 r<3>; .reg .b64 d; ld.param.u64 d, [p];\n\
             txq.width.b32 r0, [t]; suq.width.b32 r1, [s]; add.u32 r0, r0, r1; st.global.u32 [d], r0; ret; }}\n"
        )
    };
    for (target, base) in [("sm_75", 0x160), ("sm_90", 0x210), ("sm_100", 0x380), ("sm_120", 0x380)] {
        for bytes in [4u32, 8, 12, 20] {
            let apart = if base == 0x380 { 16 } else { 4 };
            let first = (base + 8 + bytes).next_multiple_of(apart);
            let source = params(target, bytes);
            let executable = ours(&source, target, 3);
            for file in [&executable, &object(&source, target, "-ewp")] {
                let said = said(file);
                for line in [
                    format!("bank of k: {:#x}", first + 8),
                    format!("word k {first:#x} 0x6 t"),
                    format!("word k {:#x} 0x34 s", first + 4),
                ] {
                    assert!(said.contains(&line), "{target}, {bytes}: no {line}: {said:#?}");
                }
            }
            for options in [&[][..], &["-ewp"]] {
                let Some(theirs) = reference_with(&source, target, options) else { continue };
                let of_bank = |file: &[u8]| {
                    let mut said = said(file);
                    said.retain(|s| s.starts_with("bank") || s.starts_with("word"));
                    said
                };
                assert_eq!(of_bank(&executable), of_bank(&theirs), "{target}, {bytes}, {options:?}");
            }
        }
    }
}

/// Symbols and attributes of objects are ptxas's.
#[test]
fn objects_say_what_ptxas_says() {
    for (_, source) in modules() {
        for target in TARGETS {
            let source = source.replace("sm_75", target);
            let Some(theirs) = reference_with(&source, target, &["-c"]) else { return };
            let keeps = |s: &String| s.starts_with("symbol") || s.starts_with(".nv.info ");
            let [ours, theirs] = [object(&source, target, "-O3"), theirs].map(|file| {
                let mut said = said(&file);
                said.retain(keeps);
                said
            });
            assert_eq!(ours, theirs, "{target}: {source}");
        }
    }
}

/// What nothing calls names textures for which no kernel has words: it is left out of what can be extended (`-ewp`), with those that
/// call it, also where code is debugged.
#[test]
fn extensible_programs_leave_out_what_nothing_calls() {
    let size =
        ".func (.param .b32 r) size() { .reg .b32 a; txq.width.b32 a, [t]; st.param.b32 [r], a; ret; }\n";
    let calls = "{ .param .b32 s; call (s), size; }";
    let source = |kernel: &str| {
        format!(
            ".version 9.0\n.target sm_75\n.address_size 64\n.global .texref t;\n{size}\
             .visible .func outer() {{ {calls} ret; }}\n.visible .func other() {{ ret; }}\n\
             .visible .entry k() {{ {kernel} ret; }}\n"
        )
    };
    for (kernel, debug, want) in [
        ("", false, &["k"][..]),
        ("", true, &["k", "other"]),
        (calls, false, &["k", "size"]),
        (calls, true, &["k", "other", "outer", "size"]),
    ] {
        let settings =
            Settings { extensible: true, debug, ..Settings::new(Target::parse("sm_75").expect("is one")) };
        let file = oxptxas::compile(&source(kernel), "k.ptx", &settings);
        let file = file.unwrap_or_else(|e| panic!("{}", e.render("oxptxas"))).cubin;
        let mut there: Vec<String> = cubin::read::read(&file).unwrap().kernels.into_keys().collect();
        there.sort_unstable();
        assert_eq!(there, want, "{kernel} {debug}");
    }
}
