//! Speed of the two executors: `cargo bench -p oxptxas --bench simulator`.

use divan::counter::ItemsCount;
use sim::launch::{Launch, LaunchFile};
use std::path::Path;

fn main() {
    divan::main();
}

/// One block of 1,024 threads that hash 44 bytes each.
const LAUNCH: &str = "\
[[launch]]
kernel = 'sha256'
grid = [1, 1, 1]
block = [1024, 1, 1]
args = [{ buffer = 'messages' }, { i32 = 44 }, { buffer = 'digests' }, { i32 = 1024 }]
[launch.buffers.messages]
type = 'u8'
length = 45056
random = [0, 255]
seed = 1
[launch.buffers.digests]
type = 'u32'
length = 8192
compare = 'exact'
";

fn kernel(name: &str) -> (String, Launch) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../kernels/{name}.ptx"));
    let source = std::fs::read_to_string(&path).unwrap();
    let launches = match name {
        "sha256" => LAUNCH.to_string(),
        _ => std::fs::read_to_string(path.with_extension("toml")).unwrap(),
    };
    (source, LaunchFile::parse(&launches).unwrap().launch.remove(0))
}

/// Warp instructions of the SASS simulator.
#[divan::bench(args = ["sha256", "matmul", "nbody", "mandelbrot", "double"], sample_count = 5)]
fn sass(bencher: divan::Bencher<'_, '_>, name: &str) {
    let (source, launch) = kernel(name);
    let settings = oxptxas::Settings::new(sass::Target::new(90).unwrap());
    let cubin =
        oxptxas::compile(&source, name, &settings).unwrap_or_else(|f| panic!("{}", f.render(name))).cubin;
    let options = sim::sass::Options { limit: u64::MAX, parallel: false, ..Default::default() };
    let issued = sim::sass::run(&cubin, &launch, options).unwrap().issued;
    bencher.counter(ItemsCount::new(issued)).bench(|| sim::sass::run(&cubin, &launch, options).unwrap());
}

/// A body that each of 256 threads of 8 blocks executes 1,000 times: integers, and binary32 numbers.
const LOOPS: [(&str, &str); 2] = [
    (
        "integer",
        "mad.lo.u32 %a, %a, 1664525, %b; shf.l.wrap.b32 %b, %b, %b, 7; xor.b32 %b, %b, %a; add.u32 %c, %c, %b;\n\
         lop3.b32 %a, %a, %b, %c, 0xca; min.s32 %c, %c, %a; shr.u32 %d, %c, 3; add.u32 %a, %a, %d;\n",
    ),
    (
        "binary32",
        "fma.rn.f32 %x, %x, %y, %z; fma.rn.f32 %y, %y, 0f3F7FFFF0, %x; add.rn.f32 %z, %z, %x; mul.rn.f32 %x, %y, %z;\n\
         fma.rn.f32 %z, %x, %y, 0f3F000000; max.f32 %y, %y, 0f3F000000; min.f32 %z, %z, 0f3FC00000; add.f32 %x, %x, %z;\n",
    ),
];

/// Instructions of threads in loops without memory, on one processor.
#[divan::bench(args = ["integer", "binary32"], sample_count = 5)]
fn threads(bencher: divan::Bencher<'_, '_>, name: &str) {
    let body = LOOPS.iter().find(|l| l.0 == name).map_or("", |l| l.1);
    let source = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {{\n\
         .reg .b32 %a, %b, %c, %d, %n, %t; .reg .f32 %x, %y, %z; .reg .b64 %p, %o; .reg .pred %q;\n\
         ld.param.u64 %p, [out]; mov.u32 %t, %tid.x; mov.u32 %a, %t; mov.u32 %b, 77; mov.u32 %c, 1; mov.u32 %n, 0;\n\
         cvt.rn.f32.u32 %x, %a; mov.f32 %y, 0f3F800000; mov.f32 %z, 0f3F000000;\n\
         L: {body} add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 1000; @%q bra L;\n\
         mul.wide.u32 %o, %t, 4; xor.b32 %c, %c, %b; add.s64 %p, %p, %o; cvt.rni.s32.f32 %d, %x; cvt.rni.s32.f32 %b, %y;\n\
         xor.b32 %c, %c, %d; xor.b32 %c, %c, %b; st.global.u32 [%p], %c; ret; }}\n"
    );
    let launch = "[[launch]]\nkernel = 'k'\ngrid = [8, 1, 1]\nblock = [256, 1, 1]\nargs = [{ buffer = 'out' }]\n\
                  [launch.buffers.out]\ntype = 'u32'\nlength = 256\n";
    let launch = LaunchFile::parse(launch).unwrap().launch.remove(0);
    let settings = oxptxas::Settings::new(sass::Target::new(90).unwrap());
    let cubin =
        oxptxas::compile(&source, name, &settings).unwrap_or_else(|f| panic!("{}", f.render(name))).cubin;
    let options = sim::sass::Options { limit: u64::MAX, parallel: false, ..Default::default() };
    let issued = 32 * sim::sass::run(&cubin, &launch, options).unwrap().issued;
    bencher.counter(ItemsCount::new(issued)).bench(|| sim::sass::run(&cubin, &launch, options).unwrap());
}

/// Launches of the PTX interpreter.
#[divan::bench(args = ["sha256", "matmul"], sample_count = 5)]
fn ptx(bencher: divan::Bencher<'_, '_>, name: &str) {
    let (source, launch) = kernel(name);
    let module = ::ptx::parse(&source).unwrap();
    bencher.bench(|| sim::ptx::run(&module, &launch).unwrap());
}
