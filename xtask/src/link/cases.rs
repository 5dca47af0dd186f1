//! The pairs of modules that are linked: each a kernel `k` with a function that the other module calls, and the
//! other module with functions that call back. All take two buffers of 32-bit numbers, `out` and `in`, an element
//! per thread.

/// A pair.
pub struct Case {
    /// What it is about.
    pub name: String,
    /// The module with the kernel.
    pub a: String,
    /// The other module.
    pub b: String,
    /// Whether the linker can know how much stack it takes.
    pub bounded: bool,
}

pub(super) const REGISTERS: &str = " .reg .pred p<8>; .reg .b16 h<8>; .reg .b32 r<64>; .reg .b64 d<32>; .reg .f32 f<16>;\n \
    .reg .f64 g<8>;\n";

/// A kernel: %r0 is the number of the thread, %r1 its element of `in`; what %r2 holds at the end goes to `out`.
pub(super) fn kernel(body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 out, .param .u64 in)\n{{\n{REGISTERS}\
         ld.param.u64 d0, [out];\n ld.param.u64 d1, [in];\n\
         mov.u32 r3, %tid.x;\n mov.u32 r4, %ctaid.x;\n mov.u32 r5, %ntid.x;\n mad.lo.u32 r0, r4, r5, r3;\n\
         mul.wide.u32 d2, r0, 4;\n add.u64 d3, d1, d2;\n add.u64 d2, d0, d2;\n ld.global.u32 r1, [d3];\n\
         {body}\n st.global.u32 [d2], r2;\n ret;\n}}\n"
    )
}

/// A function with a header such as `.visible .func (.param .b32 q) f(.param .b32 x)`.
fn func(header: &str, body: &str) -> String {
    format!("{header}\n{{\n{REGISTERS}{body}\n ret;\n}}\n")
}

/// `(.param .b32 q) NAME (.param .b32 x)`, the header of most functions.
fn int(name: &str) -> String {
    format!(".func (.param .b32 q) {name}(.param .b32 x)")
}

pub(super) fn external(header: &str) -> String {
    format!(".extern {header};\n")
}

fn visible(header: &str) -> String {
    format!(".visible {header}")
}

/// A call: types and sources of the arguments, type and destination of the result, and the label of a prototype.
fn call_any(callee: &str, args: &[(&str, &str)], result: Option<(&str, &str)>, prototype: &str) -> String {
    let mut s = "{\n".to_string();
    for (i, (ty, source)) in args.iter().enumerate() {
        s += &format!(" .param .{ty} a{i};\n st.param.{ty} [a{i}], {source};\n");
    }
    let mut head = String::new();
    if let Some((ty, _)) = result {
        s += &format!(" .param .{ty} res;\n");
        head = "(res), ".into();
    }
    let list: Vec<String> = (0..args.len()).map(|i| format!("a{i}")).collect();
    s += prototype;
    let label = if prototype.is_empty() { "" } else { ", PROTO" };
    s += &format!(" call {head}{callee}, ({}){label};\n", list.join(", "));
    if let Some((ty, to)) = result {
        s += &format!(" ld.param.{ty} {to}, [res];\n");
    }
    s + "}\n"
}

fn call(callee: &str, args: &[(&str, &str)], result: Option<(&str, &str)>) -> String {
    call_any(callee, args, result, "")
}

/// A call of a function made by [`int`].
fn call_int(callee: &str, x: &str, to: &str) -> String {
    call(callee, &[("b32", x)], Some(("b32", to)))
}

/// A call through a pointer to such a function.
fn call_pointer(pointer: &str, x: &str, to: &str) -> String {
    let prototype = " PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);\n";
    call_any(pointer, &[("b32", x)], Some(("b32", to)), prototype)
}

/// A module that begins with these declarations.
pub(super) fn module(items: &[String]) -> String {
    format!(".version 8.0\n.target sm_75\n.address_size 64\n{}", items.concat())
}

/// `fa`, the function of the kernel's module that the other one calls: 3 x + 1.
fn fa() -> String {
    func(&visible(&int("fa")), " ld.param.u32 r1, [x];\n mad.lo.u32 r1, r1, 3, 1;\n st.param.b32 [q], r1;")
}

/// Loads x into r1, runs the body, returns r2.
fn int_func(linkage: &str, name: &str, body: &str) -> String {
    func(
        &format!("{linkage} {}", int(name)),
        &format!(" ld.param.u32 r1, [x];\n{body}\n st.param.b32 [q], r2;"),
    )
}

/// A pair whose kernel's module has `fa`, and whose other module has `fb`.
fn simple(name: &'static str, a: &[String], kernel_body: &str, b: &[String]) -> Case {
    let declare_a = [external(&int("fb"))];
    let declare_b = [external(&int("fa"))];
    Case {
        name: name.into(),
        bounded: false,
        a: module(&[&declare_a[..], a, &[fa(), kernel(kernel_body)]].concat()),
        b: module(&[&declare_b[..], b].concat()),
    }
}

fn s(text: &str) -> String {
    text.into()
}

/// All pairs.
pub fn all() -> Vec<Case> {
    let fb = || call_int("fb", "r1", "r2");
    let back = |x: &str, to: &str| call_int("fa", x, to);
    let visible_fb = |body: &str| int_func(".visible", "fb", body);
    let mut cases = Vec::new();

    cases.push(simple(
        "integers",
        &[],
        &fb(),
        &[visible_fb(&format!(" add.u32 r3, r1, 7;\n{} xor.b32 r2, r2, r1;", back("r3", "r2")))],
    ));

    let header = ".func (.param .b64 q) mixed(.param .b32 x, .param .b64 p, .param .b32 y, .param .b64 z)";
    let args = [("b32", "r1"), ("b64", "d2"), ("b32", "r0"), ("b64", "d3")];
    cases.push(Case {
        name: "mixed widths".into(),
        bounded: false,
        a: module(&[
            external(header),
            fa(),
            kernel(&format!("{} cvt.u32.u64 r2, d5;", call("mixed", &args, Some(("b64", "d5"))))),
        ]),
        b: module(&[
            external(&int("fa")),
            func(
                &visible(header),
                &format!(
                    " ld.param.u32 r1, [x];\n ld.param.u64 d1, [p];\n ld.param.u32 r2, [y];\n ld.param.u64 d2, [z];\n\
                     {} ld.global.u32 r5, [d2];\n add.u32 r5, r5, r4;\n mul.wide.u32 d5, r5, r2;\n\
                     st.global.u32 [d1], r5;\n st.param.b64 [q], d5;",
                    back("r1", "r4")
                ),
            ),
        ]),
    });

    let header = ".func (.param .f64 q) floats(.param .f32 x, .param .f64 y, .param .f32 z)";
    let args = [("f32", "f1"), ("f64", "g1"), ("f32", "f2")];
    cases.push(Case {
        name: "floats".into(),
        bounded: false,
        a: module(&[
            external(header),
            fa(),
            kernel(&format!(
                " cvt.rn.f32.s32 f1, r1;\n cvt.f64.f32 g1, f1;\n mul.rn.f32 f2, f1, 0f3fc00000;\n\
                 {} cvt.rzi.s32.f64 r2, g2;",
                call("floats", &args, Some(("f64", "g2")))
            )),
        ]),
        b: module(&[
            external(&int("fa")),
            func(
                &visible(header),
                &format!(
                    " ld.param.f32 f1, [x];\n ld.param.f64 g1, [y];\n ld.param.f32 f2, [z];\n\
                     fma.rn.f32 f3, f1, f2, f1;\n cvt.rzi.s32.f32 r1, f2;\n{} cvt.f64.f32 g2, f3;\n\
                     cvt.rn.f64.s32 g3, r2;\n fma.rn.f64 g2, g1, g3, g2;\n st.param.f64 [q], g2;",
                    back("r1", "r2")
                ),
            ),
        ]),
    });

    for (name, bytes) in [("aggregate in registers", 16), ("aggregate on the stack", 64)] {
        let header = format!(".func (.param .b32 q) agg(.param .align 16 .b8 x[{bytes}], .param .b32 y)");
        cases.push(Case {
            name: name.into(),
            bounded: false,
            a: module(&[
                external(&header),
                fa(),
                kernel(&format!(
                    "{{ .param .align 16 .b8 a0[{bytes}];\n .param .b32 a1;\n .param .b32 res;\n\
                     add.u32 r6, r1, 1;\n mul.lo.u32 r7, r1, r1;\n\
                     st.param.v4.b32 [a0], {{r1, r6, r7, r0}};\n st.param.b32 [a0+{}], r6;\n\
                     st.param.b32 [a1], r0;\n call (res), agg, (a0, a1);\n ld.param.b32 r2, [res]; }}",
                    bytes - 4
                )),
            ]),
            b: module(&[
                external(&int("fa")),
                func(
                    &visible(&header),
                    &format!(
                        " ld.param.v2.u32 {{r1, r2}}, [x];\n ld.param.u32 r3, [x+8];\n ld.param.u32 r4, [x+{}];\n\
                         ld.param.u32 r5, [y];\n{} add.u32 r1, r1, r6;\n mad.lo.u32 r1, r1, 5, r2;\n\
                         xor.b32 r1, r1, r4;\n add.u32 r1, r1, r5;\n st.param.b32 [q], r1;",
                        bytes - 4,
                        back("r3", "r6")
                    ),
                ),
            ]),
        });
    }

    let header = ".func (.param .align 8 .b8 q[64]) large(.param .b32 x, .param .b64 y)";
    cases.push(Case {
        name: "result in memory".into(),
        bounded: false,
        a: module(&[
            external(header),
            fa(),
            kernel(
                "{ .param .b32 a0;\n .param .b64 a1;\n .param .align 8 .b8 res[64];\n\
                 st.param.b32 [a0], r1;\n st.param.b64 [a1], d3;\n call (res), large, (a0, a1);\n\
                 ld.param.b64 d6, [res+8];\n ld.param.b32 r6, [res];\n ld.param.b32 r7, [res+60]; }\n\
                 cvt.u32.u64 r8, d6;\n add.u32 r2, r6, r7;\n xor.b32 r2, r2, r8;",
            ),
        ]),
        b: module(&[
            external(&int("fa")),
            func(
                &visible(header),
                &format!(
                    " ld.param.u32 r1, [x];\n ld.param.u64 d1, [y];\n{} mul.wide.u32 d2, r1, r2;\n\
                     ld.global.u32 r4, [d1];\n st.param.b32 [q], r2;\n st.param.b64 [q+8], d2;\n\
                     st.param.b32 [q+60], r4;",
                    back("r1", "r2")
                ),
            ),
        ]),
    });

    let (even, odd) = (int("even"), int("odd"));
    let step = |other: &str| {
        format!(
            " mov.u32 r2, r1;\n setp.eq.u32 p0, r1, 0;\n @p0 bra DONE;\n sub.u32 r3, r1, 1;\n{} \
             mad.lo.u32 r2, r4, 3, r1;\nDONE:",
            call_int(other, "r3", "r4")
        )
    };
    cases.push(Case {
        name: "recursion across objects".into(),
        bounded: false,
        a: module(&[
            external(&odd),
            int_func(".visible", "even", &step("odd")),
            kernel(&format!(" and.b32 r6, r1, 15;\n{}", call_int("odd", "r6", "r2"))),
        ]),
        b: module(&[external(&even), int_func(".visible", "odd", &step("even"))]),
    });

    cases.push(simple(
        "recursion with local arrays",
        &[],
        &format!(" and.b32 r6, r1, 7;\n{}", call_int("fb", "r6", "r2")),
        &[visible_fb(&format!(
            " .local .align 8 .b8 buf[32];\n mov.u64 d1, buf;\n and.b32 r3, r1, 7;\n mul.wide.u32 d2, r3, 4;\n\
             add.u64 d2, d1, d2;\n st.local.u32 [d2], r1;\n mov.u32 r2, 1;\n setp.eq.u32 p0, r1, 0;\n @p0 bra DONE;\n\
             sub.u32 r4, r1, 1;\n{}{} ld.local.u32 r7, [d2];\n mad.lo.u32 r2, r5, r7, r6;\nDONE:",
            call_int("fb", "r4", "r5"),
            back("r5", "r6")
        ))],
    ));

    let header = ".func (.param .b32 q) apply(.param .b64 f, .param .b32 x)";
    let args = [("b64", "d5"), ("b32", "r1")];
    cases.push(Case {
        name: "function pointer as an argument".into(),
        bounded: false,
        a: module(&[
            external(header),
            fa(),
            int_func("", "own", " mul.lo.u32 r2, r1, r1;"),
            kernel(&format!(
                " mov.u64 d5, fa;\n and.b32 r6, r1, 1;\n setp.eq.u32 p0, r6, 0;\n mov.u64 d6, own;\n\
                 selp.b64 d5, d5, d6, p0;\n{}",
                call("apply", &args, Some(("b32", "r2")))
            )),
        ]),
        b: module(&[func(
            &visible(header),
            &format!(
                " ld.param.u64 d1, [f];\n ld.param.u32 r1, [x];\n{}{} st.param.b32 [q], r3;",
                call_pointer("d1", "r1", "r2"),
                call_pointer("d1", "r2", "r3")
            ),
        )]),
    });

    for (name, space) in [("table of functions", "global"), ("table of functions in constants", "const")] {
        let b = [
            visible_fb(" add.u32 r2, r1, 100;"),
            int_func(".visible", "fc", &back("r1", "r2")),
            format!(".visible .{space} .align 8 .u64 table[3] = {{fb, fc, fa}};\n"),
        ];
        let (load, index) = match space {
            "global" => ("ld.global.u64", " mov.u64 d5, table;\n"),
            _ => ("ld.const.u64", " mov.u64 d5, table;\n"),
        };
        cases.push(simple(
            name,
            &[format!(".extern .{space} .align 8 .u64 table[3];\n")],
            &format!(
                " rem.u32 r6, r1, 3;\n mul.wide.u32 d4, r6, 8;\n{index} add.u64 d5, d5, d4;\n {load} d6, [d5];\n{}",
                call_pointer("d6", "r1", "r2")
            ),
            &b,
        ));
    }

    cases.push(simple(
        "pointer to a table of functions",
        &[s(".extern .global .align 8 .u64 object[2];\n")],
        &format!(
            " ld.global.u64 d5, [object];\n and.b32 r6, r0, 1;\n mul.wide.u32 d4, r6, 8;\n add.u64 d5, d5, d4;\n\
             ld.u64 d6, [d5];\n{}",
            call_pointer("d6", "r1", "r2")
        ),
        &[
            visible_fb(" not.b32 r2, r1;"),
            s(".global .align 8 .u64 methods[4] = {0, 0, fb, fa};\n"),
            s(".visible .global .align 8 .u64 object[2] = {generic(methods)+16, 0};\n"),
        ],
    ));

    cases.push(simple(
        "global variables",
        &[
            s(".extern .global .align 4 .u32 gb[4];\n"),
            s(".visible .global .align 4 .u32 ga = 11;\n"),
            s(".global .align 4 .u32 hidden = 1000;\n"),
        ],
        &format!("{} ld.global.u32 r6, [gb+8];\n ld.global.u32 r7, [hidden];\n add.u32 r2, r2, r6;\n add.u32 r2, r2, r7;", fb()),
        &[
            s(".extern .global .align 4 .u32 ga;\n"),
            s(".visible .global .align 4 .u32 gb[4] = {1, 2, 30, 4};\n"),
            visible_fb(&format!(" ld.global.u32 r3, [ga];\n add.u32 r3, r3, r1;\n{}", back("r3", "r2"))),
        ],
    ));

    cases.push(simple(
        "constants",
        &[
            s(".extern .const .align 4 .u32 cb[8];\n"),
            s(".const .align 4 .u32 own[2] = {70, 71};\n"),
            s(".visible .const .align 8 .u64 ca = 123456789123;\n"),
        ],
        &format!(
            "{} and.b32 r6, r1, 7;\n mul.wide.u32 d5, r6, 4;\n mov.u64 d6, cb;\n add.u64 d5, d5, d6;\n\
             ld.const.u32 r7, [d5];\n ld.const.u32 r8, [own+4];\n add.u32 r2, r2, r7;\n add.u32 r2, r2, r8;",
            fb()
        ),
        &[
            s(".extern .const .align 8 .u64 ca;\n"),
            s(".const .align 2 .u16 pad[3] = {1, 2, 3};\n"),
            s(".visible .const .align 4 .u32 cb[8] = {10, 11, 12, 13, 14, 15, 16, 17};\n"),
            visible_fb(&format!(
                " ld.const.u64 d1, [ca];\n cvt.u32.u64 r3, d1;\n ld.const.u16 h1, [pad+2];\n cvt.u32.u16 r4, h1;\n\
                 add.u32 r3, r3, r4;\n add.u32 r3, r3, r1;\n{}",
                back("r3", "r2")
            )),
        ],
    ));

    let round = |to: &str, from: &str| {
        format!(
            " mov.u32 r3, %tid.x;\n xor.b32 r4, r3, 5;\n shl.b32 r5, r3, 2;\n shl.b32 r6, r4, 2;\n mov.u32 r7, {to};\n add.u32 r5, r7, r5;\n mov.u32 r7, {from};\n add.u32 r6, r7, r6;\n"
        )
    };
    cases.push(simple(
        "shared variables",
        &[s(".extern .shared .align 4 .u32 sb[64];\n"), s(".shared .align 4 .u32 own[64];\n")],
        &format!(
            "{} add.u32 r2, r2, 0;\n mov.u32 r20, r2;\n{} st.shared.u32 [r5], r20;\n bar.sync 0;\n\
             ld.shared.u32 r21, [r6];\n mov.u32 r7, sb;\n shl.b32 r8, r3, 2;\n add.u32 r7, r7, r8;\n\
             ld.shared.u32 r22, [r7];\n add.u32 r2, r21, r22;",
            fb(),
            round("own", "own")
        ),
        &[
            s(".visible .shared .align 4 .u32 sb[64];\n"),
            visible_fb(&format!(
                "{} st.shared.u32 [r5], r1;\n bar.sync 0;\n ld.shared.u32 r10, [r6];\n{}",
                round("sb", "sb"),
                back("r10", "r2")
            )),
        ],
    ));

    cases.push(simple(
        "dynamic shared memory",
        &[s(".extern .shared .align 16 .b8 dyn[];\n"), s(".shared .align 4 .u32 own[3];\n")],
        &format!(
            "{} st.shared.u32 [own], r4;\n bar.sync 0;\n mov.u32 r3, %tid.x;\n xor.b32 r3, r3, 9;\n shl.b32 r3, r3, 2;\n\
             mov.u32 r6, dyn;\n add.u32 r3, r3, r6;\n ld.shared.u32 r7, [r3];\n ld.shared.u32 r8, [own];\n\
             add.u32 r2, r7, r8;",
            fb()
        ),
        &[
            s(".extern .shared .align 16 .b8 dyn[];\n"),
            visible_fb(&format!(
                "{} mov.u32 r4, dyn;\n mov.u32 r5, %tid.x;\n shl.b32 r5, r5, 2;\n add.u32 r4, r4, r5;\n\
                 st.shared.u32 [r4], r2;",
                back("r1", "r2")
            )),
        ],
    ));

    cases.push(simple(
        "shared variables of functions",
        &[],
        &format!(
            " .shared .align 4 .u32 mine[64];\n{} mov.u32 r3, %tid.x;\n shl.b32 r4, r3, 2;\n mov.u32 r5, mine;\n\
             add.u32 r4, r4, r5;\n st.shared.u32 [r4], r2;\n bar.sync 0;\n xor.b32 r3, r3, 3;\n shl.b32 r3, r3, 2;\n\
             add.u32 r3, r3, r5;\n ld.shared.u32 r2, [r3];",
            fb()
        ),
        &[visible_fb(&format!(
            " .shared .align 4 .u32 mine[64];\n mov.u32 r3, %tid.x;\n shl.b32 r4, r3, 2;\n mov.u32 r5, mine;\n\
             add.u32 r4, r4, r5;\n st.shared.u32 [r4], r1;\n bar.sync 0;\n xor.b32 r3, r3, 1;\n shl.b32 r3, r3, 2;\n\
             add.u32 r3, r3, r5;\n ld.shared.u32 r6, [r3];\n{}",
            back("r6", "r2")
        ))],
    ));

    let vprintf = ".func (.param .b32 q) vprintf(.param .b64 x, .param .b64 y)";
    let print = |format: &str, x: &str| {
        format!(
            " {{ .local .align 8 .b8 list[8];\n .reg .b64 l, m;\n mov.u64 l, list;\n cvta.local.u64 m, l;\n\
             st.local.u32 [l], {x};\n mov.u64 l, {format};\n cvta.global.u64 l, l;\n{} }}\n",
            call("vprintf", &[("b64", "l"), ("b64", "m")], Some(("b32", "r40")))
        )
    };
    cases.push(simple(
        "printf",
        &[external(vprintf), s(".global .align 1 .b8 text[8] = {97, 32, 37, 100, 10, 0};\n")],
        &format!("{}{}", fb(), print("text", "r2")),
        &[
            external(vprintf),
            s(".global .align 1 .b8 other[8] = {98, 32, 37, 120, 10, 0};\n"),
            visible_fb(&format!("{}{} xor.b32 r2, r2, 1;", print("other", "r1"), back("r1", "r2"))),
        ],
    ));

    let malloc = ".func (.param .b64 q) malloc(.param .b64 x)";
    let free = ".func free(.param .b64 x)";
    let make = ".func (.param .b64 q) make(.param .b32 x)";
    cases.push(Case {
        name: "malloc and free".into(),
        bounded: false,
        a: module(&[
            external(free),
            external(make),
            fa(),
            kernel(&format!(
                "{} ld.u32 r2, [d5+4];\n{}",
                call("make", &[("b32", "r1")], Some(("b64", "d5"))),
                call("free", &[("b64", "d5")], None)
            )),
        ]),
        b: module(&[
            external(malloc),
            external(&int("fa")),
            func(
                &visible(make),
                &format!(
                    " ld.param.u32 r1, [x];\n{}{} st.u32 [d5+4], r2;\n st.param.b64 [q], d5;",
                    back("r1", "r2"),
                    call("malloc", &[("b64", "16")], Some(("b64", "d5")))
                ),
            ),
        ]),
    });

    let weak = || int_func(".weak", "shared_helper", " mad.lo.u32 r2, r1, r1, 5;");
    cases.push(simple(
        "weak function",
        &[weak()],
        &format!("{}{}", call_int("shared_helper", "r1", "r6"), call_int("fb", "r6", "r2")),
        &[weak(), visible_fb(&format!("{}{}", call_int("shared_helper", "r1", "r6"), back("r6", "r2")))],
    ));

    let weak = || s(".weak .global .align 4 .u32 wv = 17;\n.weak .global .align 4 .u32 wz[64];\n");
    cases.push(simple(
        "weak variables",
        &[weak()],
        &format!(
            "{} and.b32 r6, r0, 63;\n mul.wide.u32 d5, r6, 4;\n mov.u64 d6, wz;\n add.u64 d6, d6, d5;\n\
                  ld.global.u32 r7, [d6];\n add.u32 r2, r2, r7;",
            fb()
        ),
        &[
            weak(),
            visible_fb(&format!(
                " mov.u32 r3, %tid.x;\n mul.wide.u32 d5, r3, 4;\n mov.u64 d6, wz;\n add.u64 d6, d6, d5;\n\
                 mov.u32 r4, %ctaid.x;\n shl.b32 r4, r4, 6;\n mov.u32 r5, %tid.x;\n and.b32 r5, r5, 63;\n\
                 st.global.u32 [d6], 5;\n ld.global.u32 r4, [wv];\n add.u32 r4, r4, r1;\n{}",
                back("r4", "r2")
            )),
        ],
    ));

    let common = || s(".common .global .align 4 .u32 cm[64];\n");
    cases.push(simple(
        "common variable",
        &[common()],
        &format!(
            "{} mov.u32 r3, %tid.x;\n mul.wide.u32 d5, r3, 4;\n mov.u64 d6, cm;\n add.u64 d6, d6, d5;\n\
                  ld.global.u32 r7, [d6];\n add.u32 r2, r2, r7;",
            fb()
        ),
        &[
            common(),
            visible_fb(&format!(
                " mov.u32 r3, %tid.x;\n mul.wide.u32 d5, r3, 4;\n mov.u64 d6, cm;\n add.u64 d6, d6, d5;\n\
                 add.u32 r4, r3, 40;\n st.global.u32 [d6], r4;\n{}",
                back("r1", "r2")
            )),
        ],
    ));

    cases.push(simple(
        "managed variables",
        &[s(".extern .global .attribute(.managed) .align 4 .u32 mb;\n")],
        &format!("{} ld.global.u32 r6, [mb];\n add.u32 r2, r2, r6;", fb()),
        &[
            s(".visible .global .attribute(.managed) .align 4 .u32 mb = 41;\n"),
            s(".visible .global .attribute(.managed) .align 4 .u32 mz[2];\n"),
            visible_fb(&format!(" ld.global.u32 r3, [mz+4];\n add.u32 r3, r3, r1;\n{}", back("r3", "r2"))),
        ],
    ));

    // More values than there are registers that a call may change, live across calls, on both sides.
    let many = |seed: u32, at: usize| -> String {
        (0..24)
            .map(|i| format!(" mad.lo.u32 r{}, r1, {}, {};\n", at + i, seed + 2 * i as u32 + 1, i))
            .collect()
    };
    let sum =
        |at: usize| -> String { (0..24).map(|i| format!(" mad.lo.u32 r2, r2, 3, r{};\n", at + i)).collect() };
    cases.push(simple(
        "many live values",
        &[],
        &format!("{}{}{}", many(3, 20), fb(), sum(20)),
        &[visible_fb(&format!("{}{}{}{}", many(101, 30), back("r1", "r2"), sum(30), back("r2", "r2")))],
    ));

    cases.push(simple(
        "calls in divergent code",
        &[],
        &format!(
            " mov.u32 r2, 0;\n and.b32 r6, r1, 3;\n setp.eq.u32 p0, r6, 0;\n @p0 bra SKIP;\nLOOP:\n{} add.u32 r2, r2, r7;\n\
             sub.u32 r6, r6, 1;\n setp.ne.u32 p1, r6, 0;\n @p1 bra LOOP;\nSKIP:\n bar.warp.sync 0xffffffff;\n\
             shfl.sync.bfly.b32 r8, r2, 1, 31, 0xffffffff;\n add.u32 r2, r2, r8;",
            call_int("fb", "r6", "r7")
        ),
        &[visible_fb(&format!(
            " setp.gt.u32 p0, r1, 1;\n mov.u32 r2, 9;\n @p0 bra CALL;\n add.u32 r2, r2, r1;\n bra JOIN;\nCALL:\n{}JOIN:\n\
             mul.lo.u32 r2, r2, 7;",
            back("r1", "r2")
        ))],
    ));

    cases.push(simple(
        "warp operations in functions",
        &[s(".visible .global .align 4 .u32 counter;\n")],
        &format!(
            "{} bar.sync 0;\n ld.volatile.global.u32 r6, [counter];\n setp.ne.u32 p0, r6, 0;\n \
                  selp.u32 r7, 1, 0, p0;\n add.u32 r2, r2, r7;",
            fb()
        ),
        &[
            s(".extern .global .align 4 .u32 counter;\n"),
            visible_fb(&format!(
                " vote.sync.ballot.b32 r3, 1, 0xffffffff;\n shfl.sync.idx.b32 r4, r1, 3, 31, 0xffffffff;\n\
                 atom.global.add.u32 r5, [counter], 1;\n popc.b32 r3, r3;\n add.u32 r4, r4, r3;\n{}",
                back("r4", "r2")
            )),
        ],
    ));

    let twenty: Vec<String> = (0..20).map(|i| format!(".param .b32 x{i}")).collect();
    let header = format!(".func (.param .b32 q) wide({})", twenty.join(", "));
    let sources: Vec<String> = (0..20).map(|i| format!("r{}", 20 + i)).collect();
    let args: Vec<(&str, &str)> = sources.iter().map(|r| ("b32", r.as_str())).collect();
    let loads: String = (0..20).map(|i| format!(" ld.param.u32 r{}, [x{i}];\n", 20 + i)).collect();
    let fold: String = (0..20).map(|i| format!(" mad.lo.u32 r2, r2, 5, r{};\n", 20 + i)).collect();
    cases.push(Case {
        name: "arguments on the stack".into(),
        bounded: false,
        a: module(&[
            external(&header),
            fa(),
            kernel(&format!("{}{}", many(7, 20), call("wide", &args, Some(("b32", "r2"))))),
        ]),
        b: module(&[
            external(&int("fa")),
            func(
                &visible(&header),
                &format!("{loads} ld.param.u32 r1, [x19];\n{}{fold} st.param.b32 [q], r2;", back("r1", "r2")),
            ),
        ]),
    });

    let hidden = |n: u32| int_func("", "static_helper", &format!(" mad.lo.u32 r2, r1, {n}, {n};"));
    cases.push(simple(
        "functions of the same name",
        &[hidden(3), s(".global .align 4 .u32 static_var = 5;\n")],
        &format!(
            "{} ld.global.u32 r8, [static_var];\n add.u32 r6, r6, r8;\n{}",
            call_int("static_helper", "r1", "r6"),
            call_int("fb", "r6", "r2")
        ),
        &[
            hidden(8),
            s(".global .align 4 .u32 static_var = 6;\n"),
            visible_fb(&format!(
                "{} ld.global.u32 r8, [static_var];\n add.u32 r6, r6, r8;\n{}",
                call_int("static_helper", "r1", "r6"),
                back("r6", "r2")
            )),
        ],
    ));

    let header = ".func fill(.param .b64 p, .param .b32 x)";
    cases.push(Case {
        name: "pointer to the caller's stack".into(),
        bounded: false,
        a: module(&[
            external(header),
            fa(),
            kernel(&format!(
                " .local .align 8 .b8 buf[32];\n mov.u64 d5, buf;\n cvta.local.u64 d6, d5;\n{} and.b32 r6, r0, 7;\n\
                 mul.wide.u32 d7, r6, 4;\n add.u64 d5, d5, d7;\n ld.local.u32 r2, [d5];",
                call("fill", &[("b64", "d6"), ("b32", "r1")], None)
            )),
        ]),
        b: module(&[
            external(&int("fa")),
            func(
                &visible(header),
                &format!(
                    " ld.param.u64 d1, [p];\n ld.param.u32 r1, [x];\n mov.u32 r3, 0;\nLOOP:\n add.u32 r4, r1, r3;\n{} \
                     mul.wide.u32 d2, r3, 4;\n add.u64 d2, d1, d2;\n st.u32 [d2], r5;\n add.u32 r3, r3, 1;\n\
                     setp.lt.u32 p0, r3, 8;\n @p0 bra LOOP;",
                    back("r4", "r5")
                ),
            ),
        ]),
    });

    cases.push(simple(
        "addresses of other objects' variables in data",
        &[
            s(".visible .global .align 4 .u32 target[4] = {5, 6, 7, 8};\n"),
            s(".extern .global .align 8 .u64 links[2];\n"),
        ],
        &format!("{} ld.global.u64 d5, [links+8];\n ld.global.u32 r6, [d5];\n add.u32 r2, r2, r6;", fb()),
        &[
            s(".extern .global .align 4 .u32 target[4];\n"),
            s(".visible .global .align 8 .u64 links[2] = {generic(target), generic(target)+8};\n"),
            visible_fb(&format!(
                " ld.global.u64 d1, [links];\n ld.u32 r3, [d1+4];\n add.u32 r3, r3, r1;\n{}",
                back("r3", "r2")
            )),
        ],
    ));

    cases.push(simple(
        "exit in a function",
        &[],
        &format!(" st.global.u32 [d2], 77;\n{}", fb()),
        &[visible_fb(&format!(
            " rem.u32 r3, r1, 5;\n setp.eq.u32 p0, r3, 0;\n @p0 exit;\n{}",
            back("r1", "r2")
        ))],
    ));

    let header = ".func (.param .b32 q) choose(.param .b32 x, .param .b64 f, .param .b64 g)";
    let args = [("b32", "r1"), ("b64", "d5"), ("b64", "d6")];
    cases.push(Case {
        name: "divergent function pointers".into(),
        bounded: false,
        a: module(&[
            external(header),
            external(&int("fb")),
            fa(),
            kernel(&format!(" mov.u64 d5, fa;\n mov.u64 d6, fb;\n{}", call("choose", &args, Some(("b32", "r2"))))),
        ]),
        b: module(&[
            external(&int("fa")),
            visible_fb(&format!(" add.u32 r3, r1, 2;\n{}", back("r3", "r2"))),
            func(
                &visible(header),
                &format!(
                    " ld.param.u32 r1, [x];\n ld.param.u64 d1, [f];\n ld.param.u64 d2, [g];\n and.b32 r3, r1, 1;\n\
                     setp.eq.u32 p0, r3, 0;\n selp.b64 d3, d1, d2, p0;\n{} st.param.b32 [q], r2;",
                    call_pointer("d3", "r1", "r2")
                ),
            ),
        ]),
    });

    cases.push(simple(
        "alias",
        &[external(&int("other_fb"))],
        &format!(
            "{}{} mov.u64 d5, other_fb;\n{}",
            fb(),
            call_int("other_fb", "r2", "r6"),
            call_pointer("d5", "r6", "r2")
        ),
        &[
            visible_fb(&back("r1", "r2")),
            format!("{};\n", visible(&int("other_fb"))),
            s(".alias other_fb, fb;\n"),
        ],
    ));
    cases
}
