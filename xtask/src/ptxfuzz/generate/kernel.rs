//! The kernel: set all registers, run, store all registers. And its launch.

use super::memory::{CELLS, LOCAL, OWN_INTEGERS, OWN_SHARED, SUMS, TABLE};
use super::{Context, Gen, Program, UNIFORM};
use crate::ptxfuzz::class::Class;
use ptx::Type;
use sim::launch::{Arg, Buffer, Elem, Field, Launch};
use sim::number::Number;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is in the output buffer.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Bytes of each thread.
    pub stride: usize,
    /// Values of each thread, all other bytes being integers.
    pub slots: Vec<(usize, Class)>,
}

/// Words of input of a thread.
const INPUT: usize = 16;

impl Gen {
    pub(super) fn program(mut self) -> Program {
        self.tables();
        self.functions();
        self.kernel()
    }

    /// Variables that all read.
    fn tables(&mut self) {
        for (space, name) in [("const", "ctab"), ("global", "gtab")] {
            let bytes: Vec<String> = (0..TABLE).map(|_| (self.rng.bits() & 0xff).to_string()).collect();
            let _ =
                writeln!(self.module, ".{space} .align 16 .b8 {name}[{TABLE}] = {{{}}};", bytes.join(", "));
        }
        if self.partings {
            self.tiles();
        }
        if self.profile.shared {
            let threads = self.profile.threads;
            let _ = writeln!(self.module, ".shared .align 16 .b8 exchange[{}];", 8 * threads);
            let _ = writeln!(self.module, ".shared .align 16 .b8 owned[{}];", OWN_SHARED * threads);
            let _ = writeln!(self.module, ".shared .align 16 .b8 added[{}];", 8 * SUMS);
        }
    }

    /// Who the thread is, uniform values, local memory: at the start of every function.
    pub(super) fn ids(&mut self) {
        self.line("mov.u32 %id, %tid.x;");
        self.line("mov.u32 %lane, %laneid;");
        if self.profile.shared {
            let t = self.temp("b32");
            self.line(format!("mov.u32 {t}, owned;"));
            self.line(format!("mad.lo.u32 %sown, %id, {OWN_SHARED}, {t};"));
            self.line(format!("mov.u32 {t}, exchange;"));
            self.line(format!("mad.lo.u32 %sex, %id, 8, {t};"));
        }
        for i in 0..UNIFORM {
            match self.rng.below(3) {
                0 => self.line(format!("mov.u32 %u{i}, %ctaid.x;")),
                1 => self.line(format!("ld.const.u32 %u{i}, [ctab+{}];", 4 * i)),
                _ => {
                    let n = self.rng.integer() as u32;
                    self.line(format!("mov.b32 %u{i}, {n:#x};"));
                }
            }
            let n = self.rng_small();
            self.line(format!("setp.gt.s32 %q{i}, %u{i}, {n};"));
        }
        if !self.profile.local {
            return;
        }
        for at in (0..LOCAL).step_by(8) {
            let t = self.temp("b32");
            let n = self.rng_small();
            self.line(format!("mov.b32 {t}, {n};"));
            self.line(format!("st.local.v2.b32 [loc+{at}], {{%id, {t}}};"));
        }
    }

    fn rng_small(&mut self) -> i32 {
        self.rng.integer() as i16 as i32
    }

    /// Sets the pools of a function from its parameters, constants and each other.
    pub(super) fn initialize_from_params(&mut self, params: &[Class]) {
        let pools: Vec<(Class, usize)> = self.profile.pools.iter().map(|(c, n)| (*c, *n)).collect();
        for (c, n) in pools {
            if c == Class::P {
                continue;
            }
            let given: Vec<usize> = (0..params.len()).filter(|i| params[*i] == c).collect();
            for i in 0..n {
                let r = format!("%{}{i}", c.prefix());
                match given.get(i) {
                    Some(k) => {
                        let ty = c.memory_types()[self.rng.below(c.memory_types().len())];
                        self.line(format!("ld.param.{ty} {r}, [p{k}];"));
                    }
                    None => self.initialize(c, &r),
                }
            }
        }
        self.initialize_predicates();
    }

    fn initialize_predicates(&mut self) {
        for i in 0..self.pool(Class::P) {
            let (a, n) = (self.word(), self.rng.integer() as u32);
            self.line(format!("setp.gt.u32 %p{i}, {a}, {n:#x};"));
        }
    }

    /// A constant, or a number made from the thread's.
    fn initialize(&mut self, c: Class, r: &str) {
        let bits = 8 * c.bytes();
        match c {
            Class::F if self.rng.percent(50) => self.line(format!("cvt.rn.f32.u32 {r}, %id;")),
            Class::G if self.rng.percent(50) => self.line(format!("cvt.rn.f64.s32 {r}, %id;")),
            Class::R if self.rng.percent(50) => {
                let n = self.rng.integer() as u32;
                self.line(format!("mul.lo.u32 {r}, %id, {n:#x};"));
            }
            Class::D if self.rng.percent(50) => {
                let n = self.rng.integer() as u32;
                self.line(format!("mul.wide.u32 {r}, %id, {n:#x};"));
            }
            Class::F => {
                let n = self.float32();
                self.line(format!("mov.f32 {r}, 0f{n:08X};"));
            }
            Class::G => {
                let n = self.float64();
                self.line(format!("mov.f64 {r}, 0d{n:016X};"));
            }
            _ => {
                let ty = match bits {
                    16 => Type::b16,
                    32 => Type::b32,
                    _ => Type::b64,
                };
                let n = self.constant(ty, false, false).unwrap_or_else(|| "1".into());
                self.line(format!("mov.b{bits} {r}, {n};"));
            }
        }
    }

    fn kernel(mut self) -> Program {
        self.decls.clear();
        self.body.clear();
        let in_ptr = self.temp("b64");
        let floats = self.temp("b64");
        let out = self.temp("b64");
        let gid = self.temp("b32");
        let t = self.temp("b32");
        self.line("mov.u32 %id, %tid.x;");
        self.line(format!("mov.u32 {t}, %ctaid.x;"));
        self.line(format!("mad.lo.u32 {gid}, {t}, {}, %id;", self.profile.threads));
        self.line(format!("ld.param.u64 {in_ptr}, [in];"));
        self.line(format!("ld.param.u64 {floats}, [floats];"));
        self.line(format!("ld.param.u64 {out}, [out];"));
        self.line("ld.param.u64 %sums, [gsums];");
        self.line(format!("mad.wide.u32 {in_ptr}, {gid}, {}, {in_ptr};", 4 * INPUT));
        self.line(format!("mad.wide.u32 {floats}, {gid}, {}, {floats};", 4 * INPUT));
        // The stride is known at the end only.
        self.line(format!("mad.wide.u32 {out}, {gid}, STRIDE, {out};"));
        self.line(format!("add.u64 %own, {out}, OWN;"));
        self.ids();
        for (i, r) in ["%u0", "%u1"].iter().enumerate() {
            self.line(format!("ld.param.u32 {r}, [n{i}];"));
        }
        let pools: Vec<(Class, usize)> = self.profile.pools.iter().map(|(c, n)| (*c, *n)).collect();
        for (c, n) in pools.iter().filter(|p| p.0 != Class::P) {
            for i in 0..*n {
                let r = format!("%{}{i}", c.prefix());
                let base =
                    if c.is_float() && c.half() == Class::F || *c == Class::G { &floats } else { &in_ptr };
                if self.rng.percent(70) {
                    let ty = c.memory_types()[self.rng.below(c.memory_types().len())];
                    let at = c.bytes() * self.rng.below(4 * INPUT / c.bytes());
                    let nc = self.rng.pick(&["", "", ".nc"]);
                    self.line(format!("ld.global{nc}.{ty} {r}, [{base}+{at}];"));
                } else {
                    self.initialize(*c, &r);
                }
            }
        }
        self.initialize_predicates();
        if self.profile.shared {
            for at in (0..OWN_SHARED).step_by(8) {
                let r = self.word();
                self.line(format!("st.shared.v2.b32 [%sown+{at}], {{%id, {r}}};"));
            }
            let p = self.temp("pred");
            let zero = self.temp("b64");
            self.line(format!("setp.lt.u32 {p}, %id, {SUMS};"));
            self.line(format!("mov.u32 {t}, added;"));
            self.line(format!("mad.lo.u32 {t}, %id, 8, {t};"));
            self.line(format!("mov.b64 {zero}, {};", self.profile.statements));
            self.line(format!("@{p} st.shared.b64 [{t}], {zero};"));
            self.line("bar.sync 0;");
        }
        let ctx = Context { uniform: true, depth: self.profile.depth, times: 1, exits: Vec::new() };
        let n = self.profile.statements;
        self.statements(n, &ctx);
        if self.partings {
            let uniform = self.partings(&ctx);
            let n = self.rng.range(0, 6);
            self.statements(n, &Context { uniform, ..ctx });
        }
        let output = self.finish(&pools, &out);
        let (stride, own) = (output.stride, output.stride - OWN_INTEGERS - 8 * CELLS.len());
        let body = self.body.replace("STRIDE", &stride.to_string()).replace("OWN", &own.to_string());
        let limit = self.profile.maxnreg.map(|n| format!("\n.maxnreg {n}")).unwrap_or_default();
        let declarations = self.declarations();
        let _ = write!(
            self.module,
            ".visible .entry k(.param .u64 in, .param .u64 floats, .param .u64 out, .param .u64 gsums, .param .u32 n0, \
             .param .u32 n1){limit}\n{{\n{declarations}{body}}}\n"
        );
        let launch = self.launch(stride);
        Program { text: self.module, launch, output }
    }

    /// Stores what the registers hold.
    fn finish(&mut self, pools: &[(Class, usize)], out: &str) -> Output {
        let mut slots = Vec::new();
        let mut at = 0usize;
        for (c, n) in pools {
            for i in 0..*n {
                if self.rng.percent(20) {
                    continue;
                }
                let r = format!("%{}{i}", c.prefix());
                if *c == Class::P {
                    let t = self.temp("b32");
                    self.line(format!("selp.b32 {t}, 1, 0, {r};"));
                    self.line(format!("st.global.u8 [{out}+{at}], {t};"));
                } else {
                    let size = c.bytes();
                    at = at.next_multiple_of(size);
                    let ty = c.memory_types()[self.rng.below(c.memory_types().len())];
                    self.line(format!("st.global.{ty} [{out}+{at}], {r};"));
                    slots.push((at, *c));
                }
                at += c.bytes();
            }
        }
        for i in 0..UNIFORM {
            at = at.next_multiple_of(4);
            self.line(format!("st.global.b32 [{out}+{at}], %u{i};"));
            at += 4;
        }
        if self.profile.shared {
            at = at.next_multiple_of(8);
            let t = self.temp("b64");
            self.line("bar.sync 0;");
            for k in 0..SUMS {
                self.line(format!("ld.shared.b64 {t}, [added+{}];", 8 * k));
                self.line(format!("st.global.b64 [{out}+{at}], {t};"));
                at += 8;
            }
            self.line(format!("ld.shared.b64 {t}, [%sown+{}];", OWN_SHARED - 8));
            self.line(format!("st.global.b64 [{out}+{at}], {t};"));
            at += 8;
        }
        self.line("ret;");
        let own = at.next_multiple_of(16);
        slots.extend(CELLS.iter().enumerate().map(|(k, c)| (own + OWN_INTEGERS + 8 * k, *c)));
        Output { stride: own + OWN_INTEGERS + 8 * CELLS.len(), slots }
    }

    fn launch(&mut self, stride: usize) -> Launch {
        let threads = self.profile.threads * self.profile.blocks;
        let buffer = Buffer::zeros;
        let mut words =
            |n: usize| (0..n).map(|_| Number::Int((self.rng.integer() as u32).into())).collect::<Vec<_>>();
        let (integers, sums) = (words(threads * INPUT), words(2 * SUMS));
        let floats = Buffer { special: true, seed: self.rng.bits(), ..buffer(Elem::F32, threads * INPUT) };
        let floats = if self.rng.percent(50) {
            Buffer { ty: Elem::F64, length: floats.length / 2, ..floats }
        } else {
            floats
        };
        let pointer = |name: &str| Arg { buffer: Some(name.into()), ..Arg::default() };
        let number = |n: u64| Arg {
            fields: Some(vec![Field { ty: Elem::U32, values: vec![Number::Int((n as u32).into())] }]),
            ..Arg::default()
        };
        let (n0, n1) = (self.rng.integer(), self.rng.integer());
        Launch {
            images: Default::default(),
            names: Default::default(),
            kernel: "k".into(),
            grid: [self.profile.blocks as u32, 1, 1],
            block: [self.profile.threads as u32, 1, 1],
            cluster: None,
            cooperative: false,
            shared: 0,
            generated: None,
            // For recursion, whose depth the compiler doesn't know.
            stack: 1 << 14,
            args: vec![
                pointer("in"),
                pointer("floats"),
                pointer("out"),
                pointer("sums"),
                number(n0),
                number(n1),
            ],
            buffers: BTreeMap::from([
                ("in".into(), Buffer { list: Some(integers), ..buffer(Elem::U32, threads * INPUT) }),
                ("floats".into(), floats),
                ("out".into(), buffer(Elem::U8, threads * stride)),
                ("sums".into(), Buffer { list: Some(sums), ..buffer(Elem::U32, 2 * SUMS) }),
            ]),
        }
    }
}
