//! Options that stand for what the PTX could have said: launch bounds, cache operators.

use ptx::{Mod as M, Module, Op, Stmt};

/// Cache operators of loads and stores.
const OPERATORS: [M; 8] = [M::ca, M::cg, M::cs, M::lu, M::cv, M::wb, M::wt, M::nc];

/// What the command line says about all kernels, loads and stores.
#[derive(Clone, Debug, Default)]
pub struct Directives {
    /// `-maxntid`
    pub maxntid: Option<[u32; 3]>,
    /// `-minnctapersm`
    pub minnctapersm: Option<u32>,
    /// `-override-directive-values`: these, and `-maxrregcount`, win over what the PTX says.
    pub win: bool,
    /// `-dlcm`, `-dscm`: of accesses that name none.
    pub default_cache: [Option<M>; 2],
    /// `-flcm`, `-fscm`: of all.
    pub forced_cache: [Option<M>; 2],
}

/// The cache operator of this name.
pub fn cache_operator(name: &str) -> Option<M> {
    OPERATORS.into_iter().find(|m| m.name() == name)
}

impl Directives {
    /// Writes them into the module; `registers` is `-maxrregcount`.
    pub fn apply(&self, module: &mut Module, registers: Option<u32>) {
        for f in module.funcs.values_mut().filter(|f| f.entry) {
            let a = &mut f.attrs;
            // What a program has to launch stays what it is.
            if let Some(n) = self.maxntid
                && (self.win || a.maxntid.or(a.reqntid).is_none())
            {
                a.maxntid = Some(n);
            }
            if let Some(n) = self.minnctapersm
                && (self.win || a.minnctapersm.is_none())
            {
                a.minnctapersm = Some(n);
            }
            if let Some(n) = registers
                && self.win
            {
                a.maxnreg = Some(n);
            }
        }
        if self.default_cache == [None; 2] && self.forced_cache == [None; 2] {
            return;
        }
        for s in module.funcs.values_mut().flat_map(|f| f.body.iter_mut().flat_map(|b| &mut b.stmts)) {
            let Stmt::Inst(inst) = s else { continue };
            let which = match inst.op {
                Op::ld => 0,
                Op::st => 1,
                _ => continue,
            };
            let elsewhere = [
                M::shared,
                M::shared_cta,
                M::shared_cluster,
                M::local,
                M::_const,
                M::param,
                M::param_entry,
                M::param_func,
                M::volatile,
                M::relaxed,
                M::acquire,
                M::release,
                M::mmio,
                M::_async,
                M::bulk,
            ];
            if inst.one_of(&elsewhere).is_some() {
                continue;
            }
            let operators = &OPERATORS[..OPERATORS.len() - 1];
            if let Some(m) = self.forced_cache[which] {
                inst.mods.retain(|m| !operators.contains(m));
                inst.mods.push(m);
            } else if let Some(m) = self.default_cache[which]
                && inst.one_of(operators).is_none()
            {
                inst.mods.push(m);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> Module {
        let text = ".version 9.0\n.target sm_90\n.address_size 64\n\
            .visible .entry a(.param .u64 p) .reqntid 64 { .reg .b64 d; .reg .b32 r; ld.param.u64 d,[p];\n\
            ld.global.u32 r,[d]; ld.global.cs.u32 r,[d]; ld.volatile.global.u32 r,[d]; st.u32 [d],r; ret; }\n\
            .visible .entry b() .maxnreg 40 { ret; }";
        ptx::parse(text).unwrap()
    }

    fn operators(d: &Directives) -> Vec<Option<M>> {
        let mut m = module();
        d.apply(&mut m, None);
        let stmts = m.funcs.values().flat_map(|f| f.body.iter().flat_map(|b| &b.stmts));
        stmts
            .filter_map(|s| match s {
                Stmt::Inst(i) if matches!(i.op, Op::ld | Op::st) => Some(i.one_of(&OPERATORS)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn cache_operators() {
        let d = Directives { default_cache: [Some(M::cg), None], ..Directives::default() };
        assert_eq!(operators(&d), [None, Some(M::cg), Some(M::cs), None, None]);
        let d = Directives { forced_cache: [Some(M::cv), Some(M::wt)], ..Directives::default() };
        assert_eq!(operators(&d), [None, Some(M::cv), Some(M::cv), None, Some(M::wt)]);
    }

    #[test]
    fn launch_bounds() {
        let bounds = |d: &Directives, registers| {
            let mut m = module();
            d.apply(&mut m, registers);
            let all = m.funcs.values().map(|f| (f.attrs.maxntid, f.attrs.reqntid, f.attrs.maxnreg));
            all.collect::<Vec<_>>()
        };
        let d = Directives { maxntid: Some([512, 1, 1]), ..Directives::default() };
        assert_eq!(
            bounds(&d, Some(32)),
            [(None, Some([64, 1, 1]), None), (Some([512, 1, 1]), None, Some(40))]
        );
        let d = Directives { win: true, ..d };
        assert_eq!(
            bounds(&d, Some(32)),
            [(Some([512, 1, 1]), Some([64, 1, 1]), Some(32)), (Some([512, 1, 1]), None, Some(32))]
        );
    }
}
