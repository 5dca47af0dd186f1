//! Which instructions of a module the interpreter would refuse, found by executing each one alone on a warp of
//! zeros: what it does there is nobody's business, whether it has a meaning is.

use super::decode::{Fill, Place, Program, spelling};
use super::run::Block;
use super::thread::{Env, Thread};
use crate::launch::Launch;
use crate::memory::Memory;
use crate::sass::Coverage;
use ::ptx::ast::{Module, Stmt};

/// How messages about instructions without a meaning in the interpreter begin.
pub(super) const UNSUPPORTED: [&str; 2] = ["unsupported", "not supported"];

/// What the interpreter makes of each instruction of a module.
pub fn coverage(module: &Module) -> Coverage {
    let mut out = Coverage::default();
    let refuse = |out: &mut Coverage, what: String, why: String| {
        *out.refused.entry((what, why)).or_default() += 1;
    };
    for (kernel, func) in module.funcs.iter() {
        let Some(body) = &func.body else { continue };
        let insts = body.stmts.iter().filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None });
        let count = insts.clone().count() as u64;
        out.total += count;
        let mut program = match Program::new(module, kernel, Fill::Zero, 0) {
            Ok(p) => p,
            Err(e) => {
                // One instruction without a form hides the others of the function.
                let name = insts.clone().find(|i| Some(i.span) == e.span).map(spelling);
                refuse(&mut out, name.unwrap_or_default(), e.message);
                continue;
            }
        };
        let mut memory = Memory::new();
        for v in program.globals.clone() {
            let at = memory.alloc("", vec![0; module.vars[v].size() as usize]);
            program.places[v] = Place::Fixed(at);
        }
        let launch = Launch {
            kernel: func.name.clone(),
            grid: [1; 3],
            block: [32, 1, 1],
            cluster: None,
            cooperative: false,
            stack: 0,
            shared: 1 << 16,
            args: vec![],
            buffers: Default::default(),
            images: Default::default(),
            names: Default::default(),
            generated: None,
        };
        let params = vec![0; 1 << 12];
        let mut watch = crate::watch::Watch::new(&[]);
        let mut env = Env {
            watch: &mut watch,
            program: &program,
            launch: &launch,
            params: &params,
            memory: &mut memory,
            shared: vec![vec![0; program.shared as usize + (1 << 16)]],
            tmem: Vec::new(),
            late: false,
            pending: Vec::new(),
            ctaid: [0; 3],
            output: Default::default(),
            clock: 0,
            limit: 0,
            stops: None,
        };
        for (pc, code) in program.code.iter().enumerate().filter(|(_, c)| c.func == kernel) {
            let mut block = Block::new(&env, kernel, 0);
            let lanes: Vec<usize> = (0..32).collect();
            for t in &mut block.threads {
                *t = Thread { pc: pc as u32, ..t.clone() };
            }
            if let Err(e) = block.step(&mut env, &lanes)
                && UNSUPPORTED.iter().any(|u| e.message.starts_with(u))
            {
                refuse(&mut out, spelling(code.inst), e.message);
            }
        }
    }
    out
}
