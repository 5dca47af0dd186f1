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
    let options = sim::sass::Options { limit: u64::MAX, ..Default::default() };
    let issued = sim::sass::run(&cubin, &launch, options).unwrap().issued;
    bencher.counter(ItemsCount::new(issued)).bench(|| sim::sass::run(&cubin, &launch, options).unwrap());
}

/// Launches of the PTX interpreter.
#[divan::bench(args = ["sha256", "matmul"], sample_count = 5)]
fn ptx(bencher: divan::Bencher<'_, '_>, name: &str) {
    let (source, launch) = kernel(name);
    let module = ::ptx::parse(&source).unwrap();
    bencher.bench(|| sim::ptx::run(&module, &launch).unwrap());
}
