//! Device functions and their calls.

use super::{Context, Gen, MOST_TIMES};
use crate::ptxfuzz::class::Class;
use std::fmt::Write as _;

/// A function that may be called.
#[derive(Clone, Debug)]
pub(super) struct Function {
    name: String,
    params: Vec<Class>,
    result: Option<Class>,
    /// All threads of the block must call it together.
    uniform: bool,
    /// The first parameter bounds its recursion.
    recursive: bool,
    /// Statements that a call runs, in units of the weight of a statement of the caller.
    cost: usize,
}

impl Gen {
    /// Generates the device functions; later ones call earlier ones.
    pub(super) fn functions(&mut self) {
        for k in 0..self.profile.functions {
            let classes: Vec<Class> = self.profile.pools.keys().copied().filter(|c| *c != Class::P).collect();
            let params: Vec<Class> =
                (0..self.rng.range(0, 6)).map(|_| classes[self.rng.below(classes.len())]).collect();
            let result = self.rng.percent(80).then(|| classes[self.rng.below(classes.len())]);
            let f = Function {
                name: format!("fn{k}"),
                params,
                result,
                uniform: self.rng.percent(25),
                recursive: self.rng.percent(25),
                cost: 8,
            };
            self.function(f);
        }
    }

    fn header(&self, f: &Function) -> String {
        let result = f.result.map(|c| format!("(.param .{} ret) ", memory_type(c))).unwrap_or_default();
        let mut params = vec![".param .b64 own".to_string(), ".param .b64 sums".to_string()];
        if f.recursive {
            params.push(".param .b32 depth".into());
        }
        params.extend(f.params.iter().enumerate().map(|(i, c)| format!(".param .{} p{i}", memory_type(*c))));
        format!(".func {result}{}({})", f.name, params.join(", "))
    }

    fn function(&mut self, f: Function) {
        let pools = self.profile.pools.clone();
        for n in self.profile.pools.values_mut() {
            *n = (*n).min(4);
        }
        self.decls.clear();
        self.body.clear();
        self.line("ld.param.b64 %own, [own];");
        self.line("ld.param.b64 %sums, [sums];");
        self.ids();
        self.initialize_from_params(&f.params);
        let end = self.label();
        let ctx = Context { uniform: f.uniform, depth: 2, times: 4, exits: vec![end.clone()] };
        self.end = Some((end.clone(), f.result.map(|c| (c, memory_type(c)))));
        let n = self.rng.range(2, 12);
        if f.recursive {
            let (d, p) = (self.temp("b32"), self.temp("pred"));
            self.line(format!("ld.param.b32 {d}, [depth];"));
            self.line(format!("setp.eq.u32 {p}, {d}, 0;"));
            self.line(format!("@{p} bra {end};"));
            self.line(format!("sub.u32 {d}, {d}, 1;"));
            self.statements(n / 2, &ctx);
            let again = Function { cost: 1, ..f.clone() };
            for _ in 0..self.rng.range(1, 2) {
                self.emit_call(&again, Some(&d));
            }
        }
        self.statements(n, &ctx);
        self.place(&end);
        if let Some(c) = f.result {
            let r = self.reg(c);
            self.line(format!("st.param.{} [ret], {r};", memory_type(c)));
        }
        self.line("ret;");
        let text = format!("{}\n{{\n{}{}}}\n", self.header(&f), self.declarations(), self.body);
        self.module.push_str(&text);
        self.profile.pools = pools;
        self.end = None;
        self.functions.push(f);
    }

    /// A call of one of the functions.
    pub(super) fn call(&mut self, ctx: &Context) {
        let able: Vec<Function> = self
            .functions
            .iter()
            .filter(|f| (ctx.uniform || !f.uniform) && ctx.times * f.cost <= MOST_TIMES)
            .cloned()
            .collect();
        if able.is_empty() {
            return self.arithmetic(ctx);
        }
        let f = able[self.rng.below(able.len())].clone();
        self.emit_call(&f, None);
    }

    fn emit_call(&mut self, f: &Function, depth: Option<&str>) {
        let n = self.number();
        self.line("{");
        let mut args = vec![format!("a{n}_own"), format!("a{n}_sums")];
        for (a, r) in args.clone().iter().zip(["%own", "%sums"]) {
            self.line(format!(".param .b64 {a};"));
            self.line(format!("st.param.b64 [{a}], {r};"));
        }
        if f.recursive {
            let a = format!("a{n}_depth");
            self.line(format!(".param .b32 {a};"));
            let d = depth.map_or_else(|| format!("{}", self.rng.below(4)), str::to_string);
            self.line(format!("st.param.b32 [{a}], {d};"));
            args.push(a);
        }
        for (i, c) in f.params.iter().enumerate() {
            let a = format!("a{n}_{i}");
            self.line(format!(".param .{} {a};", memory_type(*c)));
            let r = self.reg(*c);
            self.line(format!("st.param.{} [{a}], {r};", memory_type(*c)));
            args.push(a);
        }
        let result = f.result.map(|c| {
            self.line(format!(".param .{} a{n}_ret;", memory_type(c)));
            format!("(a{n}_ret), ")
        });
        self.line(format!("call.uni {}{}, ({});", result.unwrap_or_default(), f.name, args.join(", ")));
        if let Some(c) = f.result {
            let r = self.reg(c);
            self.line(format!("ld.param.{} {r}, [a{n}_ret];", memory_type(c)));
        }
        self.line("}");
    }

    /// Declarations of all registers of the function being generated.
    pub(super) fn declarations(&mut self) -> String {
        let mut text = String::new();
        for (c, n) in &self.profile.pools {
            let _ = writeln!(text, "\t.reg .{} %{}<{n}>;", c.register(), c.prefix());
        }
        let _ = writeln!(text, "\t.reg .b32 %u<{0}>;\n\t.reg .pred %q<{0}>;", super::UNIFORM);
        text.push_str("\t.reg .b64 %own, %sums;\n\t.reg .b32 %lane, %id, %sown, %sex;\n");
        if self.profile.local {
            let _ = writeln!(text, "\t.local .align 16 .b8 loc[{}];", super::memory::LOCAL);
        }
        text.push_str(&self.decls);
        text
    }
}

/// Type of a parameter.
fn memory_type(c: Class) -> &'static str {
    match c.bytes() {
        2 => "b16",
        4 if c == Class::F => "f32",
        8 if c == Class::G => "f64",
        4 => "b32",
        _ => "b64",
    }
}
