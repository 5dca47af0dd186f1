//! Code that names registers which its warp gave back to others, or did not get yet.

/// What is found in the kernels of a cubin that give registers back or ask for some: the name of the kernel, and the first such
/// instruction. Code that goes where nobody can tell is not looked at.
///
/// # Errors
/// A file that cannot be read.
pub fn excesses(bytes: &[u8]) -> Result<Vec<(String, String)>, crate::Error> {
    let cubin = cubin::read::read(bytes)?;
    let target = sass::Target::new(cubin.sm).ok_or(crate::Error::Target(cubin.sm))?;
    let mut out = Vec::new();
    for (name, kernel) in cubin.kernels.iter().filter(|(_, k)| k.entry) {
        let decoded = kernel.code.iter().enumerate();
        let insts: Result<Vec<_>, _> =
            decoded.map(|(k, w)| sass::decode(*w, target, 16 * k as i64)).collect();
        let Ok(insts) = insts else { continue };
        if backend::pool::check::changes(&insts)
            && let Err(e) = backend::pool::check::check_linked(&insts, kernel.registers)
            && !e.is_lost()
        {
            out.push((name.clone(), e.to_string()));
        }
    }
    Ok(out)
}
