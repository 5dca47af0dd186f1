//! Executables of objects: nvlink links them, as it does for nvcc.

use sass::Target;
use std::path::Path;
use std::process::Command;

/// What the linker makes of objects for a target, in their order.
///
/// # Errors
/// What the linker says, or how to get one.
pub fn link(nvlink: &Path, target: Target, objects: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().map_err(|e| format!("a folder for objects: {e}"))?;
    let output = folder.path().join("linked.cubin");
    let mut command = Command::new(nvlink);
    command.arg(format!("-arch={target}")).arg("-o").arg(&output);
    for (n, object) in objects.iter().enumerate() {
        let path = folder.path().join(format!("{n}.o"));
        std::fs::write(&path, object).map_err(|e| format!("{}: {e}", path.display()))?;
        command.arg(path);
    }
    let said = command.output().map_err(|e| {
        format!(
            "objects are linked by nvlink, and {} cannot be run: {e}; it comes with CUDA's toolkit or by `pip install nvidia-cuda-nvcc`, \
             and --nvlink says where it is",
            nvlink.display()
        )
    })?;
    if !said.status.success() {
        let lines = [said.stdout, said.stderr].concat();
        return Err(format!("nvlink: {}", String::from_utf8_lossy(&lines).trim()));
    }
    std::fs::read(&output).map_err(|e| format!("what nvlink made: {e}"))
}

/// The target that an object says it is for.
pub fn target_of(object: &[u8]) -> Option<Target> {
    /// Where `e_flags` has the SM.
    const SM: usize = 49;
    object.starts_with(b"\x7fELF").then(|| object.get(SM).copied()).flatten().and_then(Target::new)
}
