//! Every kernel in `kernels/` has a launch file that fits its parameters.

use sim::launch::LaunchFile;
use std::fs;

#[test]
fn launch_files_fit_their_kernels() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
    let mut count = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "ptx") {
            continue;
        }
        count += 1;
        let name = path.display();
        let module = ptx::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        let text = fs::read_to_string(path.with_extension("toml")).unwrap();
        let file = LaunchFile::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        for launch in &file.launch {
            let func = module.funcs.values().find(|f| f.entry && f.name == launch.kernel);
            let func = func.unwrap_or_else(|| panic!("{name}: no kernel '{}'", launch.kernel));
            let size = module.param_layout(func).1;
            assert_eq!(size as usize, launch.prepare().params.len(), "{name}: {}", launch.kernel);
        }
    }
    assert_eq!(count, 22);
}
