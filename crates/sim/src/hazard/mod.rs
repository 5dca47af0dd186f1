//! The static hazard checker: proves that the control fields of a cubin's code cover every dependence along
//! every path. It knows nothing of how the control fields were chosen; its least distances are what ptxas's
//! own code shows ([`Minima`]).

pub(crate) mod access;
mod engine;
pub(crate) mod flow;
mod minima;
mod pipes;
mod tokens;
mod walk;

pub use access::{Place, Use};
pub use engine::{Distance, Kind, Stats, Violation, Why};
pub use minima::{Class, Minima};
pub use walk::Walker;

use crate::FileError;
use sass::{Inst, Target};

/// The code of one section.
pub struct Code {
    target: Target,
    insts: Vec<Option<Inst>>,
    words: Vec<u128>,
    graph: flow::Graph,
}

impl Code {
    /// Decodes the words of a section; control enters it at the start and at the byte offsets `functions`.
    pub fn new(target: Target, words: &[u128], functions: &[u64]) -> Code {
        let insts: Vec<Option<Inst>> = words
            .iter()
            .enumerate()
            .map(|(k, w)| sass::decode(*w, target, flow::INST_BYTES * k as i64).ok())
            .map(|inst| inst.filter(|i| pipes::transparent(i.op)))
            .collect();
        let starts: Vec<usize> =
            functions.iter().filter_map(|f| usize::try_from(*f / flow::INST_BYTES as u64).ok()).collect();
        let graph = flow::Graph::new(&insts, &starts);
        Code { target, insts, words: words.to_vec(), graph }
    }

    /// The decoded instructions; `None` where the table has no form of the word, or the checker doesn't know what
    /// registers it uses.
    pub fn insts(&self) -> &[Option<Inst>] {
        &self.insts
    }

    /// The word of an instruction.
    pub fn word(&self, at: usize) -> u128 {
        self.words[at]
    }

    /// Whether control may come to the instruction after this one from elsewhere, or go elsewhere.
    pub fn ends_block(&self, at: usize) -> bool {
        let next = flow::next(self.insts[at].as_ref(), at, self.insts.len());
        next.target.is_some() || !next.falls || self.graph.leader.get(at + 1).is_none_or(|l| *l)
    }

    /// A copy in which one instruction has another control field.
    #[must_use]
    pub fn with_control(&self, at: usize, ctrl: sass::Control) -> Code {
        let mut words = self.words.clone();
        let mask =
            sass::Control { stall: 15, no_yield: true, write_sb: None, read_sb: None, wait: 63, reuse: 0 };
        words[at] = words[at] & !mask.to_bits() | ctrl.to_bits();
        let graph = flow::Graph { leader: self.graph.leader.clone(), roots: self.graph.roots.clone() };
        Code { target: self.target, insts: self.insts.clone(), words, graph }
    }

    /// Pairs of a writer and the next reader of its result, within a block, where the reader itself waits for
    /// the writer's scoreboard, and nothing in between does or completes only after the writer.
    pub fn waited_results(&self) -> Vec<(usize, usize)> {
        let mut pending: std::collections::BTreeMap<access::Cell, (usize, u8)> = Default::default();
        let mut pairs = vec![];
        for (k, inst) in self.insts.iter().enumerate() {
            let ctrl = sass::Control::from_bits(self.words[k]);
            if let Some(inst) = inst {
                access::reads(inst, |c, _| match pending.get(&c) {
                    Some((writer, s)) if ctrl.wait >> s & 1 != 0 => pairs.push((*writer, k)),
                    _ => {}
                });
            }
            pending.retain(|_, (_, s)| ctrl.wait >> *s & 1 == 0);
            if let Some(inst) = inst {
                let follows = |w: usize| {
                    self.insts[w].as_ref().is_some_and(|older| pipes::same_order(older.op, inst.op))
                };
                pending.retain(|_, (w, _)| !follows(*w));
                access::writes(inst, |c| {
                    pending.remove(&c);
                    if let Some(s) = ctrl.write_sb {
                        pending.insert(c, (k, s));
                    }
                });
            }
            if self.ends_block(k) {
                pending.clear();
            }
        }
        pairs.dedup();
        pairs
    }

    /// Every hazard, in address order.
    pub fn check(&self, minima: &Minima) -> (Vec<Violation>, Stats) {
        let mut violations = vec![];
        let stats =
            engine::run(self, &mut |d: &Distance| minima.least(self.target, Class::of(d)), &mut violations);
        tokens::check(self, &mut violations);
        violations.sort_by_key(|v| v.at);
        (violations, stats)
    }

    /// What is wrong with groups of products and copies, which [`Code::check`] looks at, too.
    pub fn tokens(&self) -> Vec<Violation> {
        let mut violations = vec![];
        tokens::check(self, &mut violations);
        violations
    }

    /// A copy in which two instructions have changed places.
    #[must_use]
    pub fn exchanged(&self, i: usize, j: usize, functions: &[u64]) -> Code {
        let mut words = self.words.clone();
        words.swap(i, j);
        Code::new(self.target, &words, functions)
    }

    /// Calls `f` with every distance between dependent instructions of fixed latency.
    pub fn distances(&self, f: &mut dyn FnMut(&Distance<'_>)) {
        let mut ask = |d: &Distance| {
            f(d);
            0
        };
        engine::run(self, &mut ask, &mut vec![]);
    }
}

/// Checks every kernel of a cubin.
///
/// # Errors
/// When the file is not a cubin for a known target.
pub fn check_cubin(file: &[u8], minima: &Minima) -> Result<Vec<(String, Vec<Violation>, Stats)>, FileError> {
    Ok(load(file)?
        .into_iter()
        .map(|(name, code)| {
            let (violations, stats) = code.check(minima);
            (name, violations, stats)
        })
        .collect())
}

/// Runs a launch and checks the paths that its warps take.
///
/// # Errors
/// As [`crate::sass::run`].
pub fn check_run(
    cubin: &[u8],
    launch: &crate::launch::Launch,
    options: crate::sass::Options,
    minima: &Minima,
) -> Result<Vec<Violation>, crate::sass::SimError> {
    let (target, words) = crate::sass::code(cubin, &launch.kernel)?;
    let code = Code::new(target, &words, &[]);
    let mut probe = crate::sass::Probe::new(&[], None);
    probe.trace = Some(Default::default());
    crate::sass::observe(cubin, launch, options, &mut probe)?;
    let mut found = std::collections::BTreeMap::new();
    for warp in probe.trace.unwrap_or_default().warps {
        let mut walker = Walker::new(&code, minima);
        warp.issues.iter().for_each(|i| walker.step(i.pc as usize / flow::INST_BYTES as usize, i.lanes));
        found.extend(walker.violations().into_iter().map(|v| ((v.at, v.on, v.to_string()), v)));
    }
    Ok(found.into_values().collect())
}

/// The code of every kernel of a cubin.
///
/// # Errors
/// When the file is not a cubin for a known target.
pub fn load(file: &[u8]) -> Result<Vec<(String, Code)>, FileError> {
    let image = cubin::read::read(file)?;
    let target = Target::new(image.sm).ok_or(FileError::Target(image.sm))?;
    Ok(image
        .kernels
        .into_iter()
        .map(|(name, k)| {
            let functions: Vec<u64> = k.functions.iter().map(|f| f.1).collect();
            let code = Code::new(target, &k.code, &functions);
            (name, code)
        })
        .collect())
}
