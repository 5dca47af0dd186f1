//! Convergence barriers.

use ori::Function;

/// Places convergence barriers in a function in SSA.
pub fn run(func: &mut Function) {
    let _ = func;
}
