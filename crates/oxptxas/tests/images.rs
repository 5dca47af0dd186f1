//! Textures and surfaces, executed: by the interpreter, and as code of ours (and of ptxas, where the tools are there) in the
//! simulator. A launch file with results computed by hand; then offsets, depths and whether texels are in memory, which the
//! example `coverage` has no statements with, on images that are made up.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use rayon::prelude::*;
use sass::Target;
use sim::launch::LaunchFile;
use std::path::PathBuf;
use std::process::Command;

#[path = "../examples/coverage/image.rs"]
mod image;
#[path = "../examples/coverage/kernel.rs"]
#[allow(dead_code)]
mod kernel;

const TARGETS: [&str; 5] = ["sm_75", "sm_86", "sm_90", "sm_100", "sm_120"];

/// Our cubins at both levels, and ptxas's.
fn cubins(source: &str, target: Target) -> Vec<(String, Vec<u8>)> {
    let ours = [0, 3].map(|opt_level| {
        let settings = Settings { opt_level, ..Settings::new(target) };
        let output = compile(source, "images.ptx", &settings);
        (
            format!("{target} -O{opt_level}"),
            output.unwrap_or_else(|e| panic!("{target}: {e:?}\n{source}")).cubin,
        )
    });
    ours.into_iter().chain(reference(source, target)).collect()
}

fn reference(source: &str, target: Target) -> Option<(String, Vec<u8>)> {
    let tools = PathBuf::from(std::env::var_os("OXPTXAS_ORACLES")?);
    let id = rayon::current_thread_index().unwrap_or(99);
    let file = |ending| std::env::temp_dir().join(format!("images{}-{id}.{ending}", std::process::id()));
    let (input, output) = (file("ptx"), file("cubin"));
    std::fs::write(&input, source).expect("can be written");
    let mut ptxas = Command::new(tools.join("ptxas"));
    let run = ptxas.arg(format!("-arch={target}")).arg(&input).arg("-o").arg(&output).output().expect("runs");
    assert!(run.status.success(), "{}\n{source}", String::from_utf8_lossy(&run.stderr));
    let cubin = std::fs::read(&output).expect("is there");
    let _ = (std::fs::remove_file(input), std::fs::remove_file(output));
    Some((format!("ptxas for {target}"), cubin))
}

/// Thread t samples a row of four numbers at t/2, linearly, and changes a surface of bytes.
const KERNEL: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 picture, .param .u64 bytes, .param .u64 out)
{
.reg .b32 t, x; .reg .b64 p, s, o; .reg .f32 a, b, c, d, u; .reg .b16 h;
mov.u32 t, %tid.x;
ld.param.u64 p, [picture];
ld.param.u64 s, [bytes];
ld.param.u64 o, [out];
mad.wide.u32 o, t, 16, o;
cvt.rn.f32.u32 u, t;
mul.rn.f32 u, u, 0f3f000000;
tex.1d.v4.f32.f32 {a, b, c, d}, [p, {u}];
st.global.f32 [o], a;
txq.width.b32 x, [p];
st.global.u32 [o+4], x;
shl.b32 x, t, 1;
suld.b.2d.b16.zero h, [s, {x, 1}];
cvt.u32.u16 x, h;
st.global.u32 [o+8], x;
shl.b32 x, t, 2;
sured.b.add.2d.u32.clamp [s, {x, 0}], t;
ret;
}
";

const LAUNCH: &str = r#"
[[launch]]
kernel = "k"
grid = [1, 1, 1]
block = [8, 1, 1]
args = [{ texture = "row" }, { surface = "counts" }, { buffer = "out" }]
[launch.buffers.texels]
type = "f32"
length = 4
list = [0.0, 256.0, 512.0, 1024.0]
[launch.buffers.words]
type = "u32"
length = 8
list = [1, 2, 3, 4, 5, 6, 7, 8]
[launch.buffers.out]
type = "u32"
length = 32
fill = 7
[launch.images.row]
buffer = "texels"
geometry = "1d"
type = "f32"
size = [4]
filter = "linear"
address = ["border"]
[launch.images.counts]
buffer = "words"
geometry = "2d"
type = "u32"
size = [4, 2]
pitch = 16
"#;

#[test]
fn a_launch_file_has_images() {
    let launch = &LaunchFile::parse(LAUNCH).expect("is a launch file").launch[0];
    // The mean at t/2 of what is half a texel to the left and to the right of it, the border being 0; then the width,
    // and the halves of the words in the second row.
    let samples = [0f32, 0.0, 128.0, 256.0, 384.0, 512.0, 768.0, 1024.0];
    let halves = [5, 0, 6, 0, 7, 0, 8, 0];
    let mut out = Vec::new();
    for t in 0..8 {
        out.extend([samples[t].to_bits(), 4, halves[t], 7].map(u32::to_le_bytes).concat());
    }
    // Threads from 3 on meet in the last column.
    let words = [1, 2 + 1, 3 + 2, 4 + 3 + 4 + 5 + 6 + 7, 5, 6, 7, 8u32].map(u32::to_le_bytes).concat();
    let module = verify::module(KERNEL, Target::parse("sm_75").expect("is one")).expect("is PTX");
    let interpreted = sim::ptx::run(&module, launch).expect("runs");
    assert_eq!((&interpreted["out"], &interpreted["words"]), (&out, &words));
    for target in TARGETS {
        for (name, cubin) in cubins(&KERNEL.replace("sm_75", target), Target::parse(target).expect("is one"))
        {
            let run = sim::sass::run(&cubin, launch, sim::sass::Options::default());
            let buffers = run.unwrap_or_else(|e| panic!("{name}: {e}")).buffers;
            assert_eq!((&buffers["out"], &buffers["words"]), (&out, &words), "{name}");
        }
    }
}

#[test]
fn images_that_make_no_sense_are_refused() {
    for (from, to, what) in [
        ("texture = \"row\"", "texture = \"raw\"", "no image 'raw'"),
        ("buffer = \"words\"", "buffer = \"word\"", "no buffer 'word'"),
        ("geometry = \"1d\"", "geometry = \"4d\"", "geometry '4d'"),
        ("size = [4]", "size = [5]", "it has 20 bytes"),
        ("size = [4, 2]", "size = [4]", "a size of 1 dimensions"),
        ("pitch = 16", "pitch = 8", "multiples of 16"),
        ("size = [4, 2]", "size = [5, 1]", "rows of 20 bytes"),
        ("filter = \"linear\"", "filter = \"cubic\"", "filter 'cubic'"),
        ("address = [\"border\"]", "address = [\"edge\"]", "address mode 'edge'"),
        ("pitch = 16", "channels = 3", "3 channels"),
        ("pitch = 16", "layers = 2", "no array"),
        ("pitch = 16", "levels = 9", "9 levels"),
    ] {
        assert!(LAUNCH.contains(from), "{from}");
        let error = LaunchFile::parse(&LAUNCH.replacen(from, to, 1)).expect_err(to);
        assert!(error.to_string().contains(what), "{to}: {error}");
    }
}

/// Statements that `coverage` lacks. Registers of type s32 hold numbers from -2 to 5.
const STATEMENTS: &[&str] = &[
    "tex.1d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5}], {s32r1};",
    "tex.1d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5}], f32r6;",
    "tex.1d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {s32r5}], {3};",
    "tex.1d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {2}], {s32r1};",
    "tex.1d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}|p1, [b64r200, {f32r5}];",
    "tex.2d.v4.u32.f32 {u32r1, u32r2, u32r3, u32r4}, [b64r200, {f32r5, f32r6}], {s32r1, s32r2};",
    "tex.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6}], {3, -4};",
    "tex.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6}], {s32r1, s32r2}, f32r7;",
    "tex.2d.v4.s32.s32 {s32r1, s32r2, s32r3, s32r4}, [b64r200, {s32r5, s32r6}], {s32r7, -1};",
    "tex.3d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6, f32r7, f32r8}], {s32r1, s32r2, s32r3, s32r4};",
    "tex.3d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}|p1, [b64r200, {s32r5, s32r6, s32r7, s32r8}], {s32r1, s32r2, s32r3, s32r4};",
    "tex.a1d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, f32r5}], {s32r1}, f32r6;",
    "tex.a1d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, s32r5}], {s32r1};",
    "tex.a2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, f32r5, f32r6, f32r7}], {s32r1, s32r2};",
    "tex.a2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}|p1, [b64r200, {u32r9, f32r5, f32r6, f32r7}], {s32r1, s32r2}, f32r8;",
    "tex.cube.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6, f32r7, f32r8}], f32r9;",
    "tex.acube.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, f32r5, f32r6, f32r7}], f32r8;",
    "tex.level.1d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5}], f32r6, {s32r1};",
    "tex.level.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6}], f32r7, {s32r1, s32r2}, f32r8;",
    "tex.level.2d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {s32r5, s32r6}], s32r7, {s32r1, s32r2};",
    "tex.level.a2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, f32r5, f32r6, f32r7}], f32r8, {s32r1, s32r2}, f32r9;",
    "tex.level.acube.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}|p1, [b64r200, {u32r9, f32r5, f32r6, f32r7}], f32r8, f32r9;",
    "tex.level.a2d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, s32r5, s32r6, s32r7}], s32r8, {s32r1, s32r2};",
    "tex.base.2d.v2.f16x2.f32 {b32r1, b32r2}, [b64r200, {f32r5, f32r6}], {s32r1, s32r2};",
    "tex.2d.v4.f16.f32 {f16r1, f16r2, f16r3, f16r4}, [b64r200, {f32r5, f32r6}], {1, -1};",
    "tex.grad.1d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5}], {f32r6}, {f32r7}, {s32r1};",
    "tex.grad.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6}], {f32r7, f32r8}, {f32r9, f32r10}, {s32r1, -2};",
    "tex.grad.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}|p1, [b64r200, {f32r5, f32r6}], {f32r7, f32r8}, {f32r9, f32r10};",
    "tex.grad.a1d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, f32r5}], {f32r6}, {f32r7}, {2};",
    "tex.grad.a2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, f32r5, f32r6, f32r6}], {f32r7, f32r8}, {f32r9, f32r10}, {s32r1, s32r2};",
    "tex.grad.1d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {s32r5}], {f32r6}, {f32r7};",
    "tex.grad.2d.v4.f32.s32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {s32r5, s32r6}], {f32r7, f32r8}, {f32r9, f32r10}, {s32r1, -2};",
    "tex.grad.a1d.v4.u32.s32 {u32r1, u32r2, u32r3, u32r4}, [b64r200, {u32r9, s32r5}], {f32r6}, {f32r7};",
    "tex.grad.a2d.v2.f16x2.s32 {b32r1, b32r2}, [b64r200, {u32r9, s32r5, s32r6, s32r6}], {f32r7, f32r8}, {f32r9, f32r10};",
    "tex.grad.3d.v2.f16x2.f32 {b32r1, b32r2}, [b64r200, {f32r5, f32r6, f32r7, f32r8}], {f32r9, f32r10, f32r11, f32r12}, {f32r13, f32r14, f32r15, f32r16};",
    "tex.grad.cube.v4.f16.f32 {f16r1, f16r2, f16r3, f16r4}, [b64r200, {f32r5, f32r6, f32r7, f32r8}], {f32r9, f32r10, f32r11, f32r12}, {f32r13, f32r14, f32r15, f32r16};",
    "tld4.r.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6}], {s32r1, s32r2};",
    "tld4.g.2d.v4.u32.f32 {u32r1, u32r2, u32r3, u32r4}|p1, [b64r200, {f32r5, f32r6}], {-3, 2};",
    "tld4.b.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6}], f32r7;",
    "tld4.a.2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6}], {s32r1, s32r2}, f32r7;",
    "tld4.r.a2d.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {u32r9, f32r5, f32r6, f32r6}], {s32r1, s32r2}, f32r7;",
    "tld4.b.cube.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}, [b64r200, {f32r5, f32r6, f32r7, f32r8}], f32r9;",
    "tld4.a.acube.v4.f32.f32 {f32r1, f32r2, f32r3, f32r4}|p1, [b64r200, {u32r9, f32r5, f32r6, f32r7}], f32r8;",
    "suld.b.2d.v4.b8.zero {b8r41, b8r42, b8r43, b8r44}, [b64r200, {s32r1, s32r2}];",
    "suld.b.3d.v2.b64.clamp {b64r41, b64r42}, [b64r200, {s32r1, s32r2, s32r3, s32r4}];",
    "suld.b.a2d.v4.b16.clamp {b16r41, b16r42, b16r43, b16r44}, [b64r200, {s32r1, s32r2, s32r3, s32r4}];",
    "suld.b.a1d.v4.b32.zero {b32r41, b32r42, b32r43, b32r44}, [b64r200, {s32r1, s32r2}];",
    "sust.b.2d.v4.b8.zero [b64r200, {s32r1, s32r2}], {b8r41, b8r42, b8r43, b8r44};",
    "sust.b.3d.v2.b64.zero [b64r200, {s32r1, s32r2, s32r3, s32r4}], {b64r41, b64r42};",
    "sust.b.a2d.v4.b16.zero [b64r200, {s32r1, s32r2, s32r3, s32r4}], {b16r41, b16r42, b16r43, b16r44};",
    "sust.b.a1d.v4.b32.zero [b64r200, {s32r1, s32r2}], {b32r41, b32r42, b32r43, b32r44};",
    "sust.p.2d.v2.b32.zero [b64r200, {s32r1, s32r2}], {b32r41, b32r42};",
    "sust.p.3d.v4.b32.zero [b64r200, {s32r1, s32r2, s32r3, s32r4}], {b32r41, b32r42, b32r43, b32r44};",
    "sured.b.min.3d.s64.clamp [b64r200, {s32r1, s32r2, s32r3, s32r4}], b64r41;",
    "sured.b.max.2d.u32.zero [b64r200, {s32r1, s32r2}], b32r41;",
    "sured.p.max.2d.b64.clamp [b64r200, {s32r1, s32r2}], b64r41;",
    "sured.p.min.3d.b32.zero [b64r200, {s32r1, s32r2, s32r3, s32r4}], b32r41;",
];

#[test]
fn statements_give_what_the_interpreter_gives() {
    let cases: Vec<(&str, &str)> =
        STATEMENTS.iter().flat_map(|s| TARGETS.iter().map(move |t| (*s, *t))).collect();
    let wrong: Vec<String> =
        cases.par_iter().filter_map(|(statement, target)| judge(statement, target).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn judge(statement: &str, name: &str) -> Result<(), String> {
    let target = Target::parse(name).expect("is one");
    let sources = [Some(kernel::module(statement, name)), kernel::varying(statement, name)];
    for source in sources.into_iter().flatten() {
        let module = verify::module(&source, target).map_err(|e| format!("{statement}: {e:?}"))?;
        for (who, cubin) in cubins(&source, target) {
            let mut last = Verdict::Undefined("no launch".into());
            let mut same = false;
            for seed in image::LAUNCHES {
                match verify::kernel(&module, &source, &cubin, "k", seed..seed + 1) {
                    Verdict::Same | Verdict::Close => same = true,
                    // ptxas has the lanes of a quad take turns at derivatives, which only the hardware can.
                    Verdict::OutOfScope(why)
                        if who.starts_with("ptxas") && why.contains("BMOV.B.FROM_STATE") =>
                    {
                        same = true;
                    }
                    v @ (Verdict::Differs(_) | Verdict::OutOfScope(_)) => {
                        return Err(format!("{who}: {statement} {v}"));
                    }
                    v @ (Verdict::Undefined(_) | Verdict::Silent) => last = v,
                }
            }
            if !same {
                return Err(format!("{who}: {statement} {last}"));
            }
        }
    }
    Ok(())
}

/// A statement, and another one that its code must not be taken for: what the launches tell apart.
const OTHERS: &[(&str, &str)] = &[
    ("{f32r5, f32r6}], {s32r1, s32r2};", "{f32r5, f32r6}], {s32r2, s32r1};"),
    ("{f32r5, f32r6}], {3, -4};", "{f32r5, f32r6}], {3, -3};"),
    ("{f32r5, f32r6}], {s32r1, s32r2}, f32r7;", "{f32r5, f32r6}], {s32r1, s32r2}, f32r6;"),
    ("], s32r7, {s32r1, s32r2};", "], s32r6, {s32r1, s32r2};"),
    ("], f32r7, {s32r1, s32r2}, f32r8;", "], f32r8, {s32r1, s32r2}, f32r8;"),
    ("{f32r7, f32r8}, {f32r9, f32r10}, {s32r1, -2};", "{f32r7, f32r8}, {f32r7, f32r8}, {s32r1, -2};"),
    ("tld4.g", "tld4.r"),
    ("{u32r9, f32r5, f32r6, f32r7}], f32r8;", "{u32r10, f32r5, f32r6, f32r7}], f32r8;"),
    ("[b64r200, {f32r5, f32r6, f32r7, f32r8}], f32r9;", "[b64r200, {f32r6, f32r5, f32r7, f32r8}], f32r9;"),
    ("suld.b.3d.v2.b64.clamp", "suld.b.3d.v2.b64.zero"),
    ("sust.b.3d.v2.b64.zero", "sust.b.3d.v2.b64.clamp"),
    ("sured.b.min.3d.s64.clamp", "sured.b.min.3d.u64.clamp"),
    ("sured.p.max.2d.b64.clamp", "sured.p.min.2d.b64.clamp"),
    ("sust.b.a1d.v4.b32.zero [b64r200, {s32r1, s32r2}]", "sust.b.a1d.v4.b32.zero [b64r200, {s32r1, s32r3}]"),
];

#[test]
fn launches_tell_statements_apart() {
    let target = Target::parse("sm_75").expect("is one");
    for (from, to) in OTHERS {
        let statement = STATEMENTS.iter().find(|s| s.contains(from)).unwrap_or_else(|| panic!("no {from}"));
        // Both kernels have the same registers.
        let source =
            kernel::module(&format!("{statement} {to_registers}", to_registers = registers(to)), "sm_75");
        let line = source.lines().find(|l| l.starts_with(statement)).expect("is in the kernel").to_string();
        let source = source.replace(&line, statement);
        let other = source.replace(*statement, &statement.replacen(from, to, 1));
        let module = verify::module(&source, target).expect("is PTX");
        let cubin = compile(&other, "images.ptx", &Settings::new(target)).expect("compiles").cubin;
        let differs = |seed| {
            matches!(verify::kernel(&module, &source, &cubin, "k", seed..seed + 1), Verdict::Differs(_))
        };
        assert!(image::LAUNCHES.into_iter().any(differs), "{statement} as {to}");
    }
}

/// A comment that names the registers of a piece of a statement, so that the kernel around it has them.
fn registers(piece: &str) -> String {
    format!("// {}", piece.replace(['{', '}', '['], " "))
}
