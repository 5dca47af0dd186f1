//! Constant expressions, operands made of them, vector registers: what ptxas 13.0.88 takes, and the value it stores
//! (`.global .b64 x = …;` and the contents of the variable in the cubin).

use ptx::{Module, Operand, Stmt};

const HEAD: &str =
    ".version 9.0\n.target sm_90\n.address_size 64\n.global .align 16 .b8 g[64];\n.global .u32 a[4];\n";

fn module(text: &str) -> Result<Module, String> {
    let text = format!("{HEAD}{text}");
    let parsed = ptx::parse(&text).and_then(|m| ptx::check(&m, 90).map(|()| m));
    parsed.map_err(|e| e[0].message.clone())
}

fn value(ty: &str, expression: &str) -> Result<u64, String> {
    let module = module(&format!(".global .{ty} x = {expression};\n"))?;
    let bytes = &module.vars.values().last().unwrap().init.as_ref().unwrap().bytes;
    Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

#[test]
fn integers_are_signed_or_unsigned() {
    for (expression, want) in [
        ("-1/2", 0),
        ("-1U/2", 0x7fff_ffff_ffff_ffff),
        ("-1/2U", 0x7fff_ffff_ffff_ffff),
        ("0xffffffffffffffff/2", 0x7fff_ffff_ffff_ffff),
        ("9223372036854775808/2", 1 << 62),
        ("-9223372036854775808/2", 1 << 62),
        ("-8/3", -2i64 as u64),
        ("8/-3", -2i64 as u64),
        ("-1>>1", u64::MAX),
        ("-1U>>1", 0x7fff_ffff_ffff_ffff),
        ("-1>>1U", u64::MAX),
        ("4>>65", 2),
        ("1<<65", 2),
        ("1<<-1", 1 << 63),
        ("-1>0", 0),
        ("-1>0U", 1),
        ("~0>0", 1),
        ("~0>>1", 0x7fff_ffff_ffff_ffff),
        ("-7% 2", 1),
        ("7% -2", 7),
        ("(-2&-1)/2", -1i64 as u64),
        ("(-2&-1U)/2", 0x7fff_ffff_ffff_ffff),
        ("(1?-4:3U)/2", -2i64 as u64),
        ("(1?-4U:3)/2", 0x7fff_ffff_ffff_fffe),
        ("(.u64)-1/2", 0x7fff_ffff_ffff_ffff),
        ("(.s64)-1U/2", 0),
        ("(!0U)/-1", u64::MAX),
        ("(1&&1U)/-1", u64::MAX),
        ("(1<<3U)/-2", -4i64 as u64),
        ("(1U<<3)/-2", 0),
        ("(1+2)*3", 9),
        ("!1", 0),
        ("-WARP_SZ", -32i64 as u64),
    ] {
        assert_eq!(value("b64", expression), Ok(want), "{expression}");
    }
}

#[test]
fn what_a_digit_pushes_out_is_lost() {
    for (literal, want) in [
        ("18446744073709551615", u64::MAX),
        ("18446744073709551616", 0),
        ("18446744073709551620", 4),
        ("92233720368547758070", -10i64 as u64),
        ("0x1ffffffffffffffff", u64::MAX),
        ("0x10000000000000000fff", 0xfff),
        ("04000000000000000000000", 0),
    ] {
        assert_eq!(value("b64", literal), Ok(want), "{literal}");
    }
    let binary = format!("0b1{}", "0".repeat(64));
    for literal in ["99999999999999999999", "0xfffffffffffffffff", "010000000000000000000000", &binary] {
        assert_eq!(value("b64", literal), Err("Constant overflow".into()), "{literal}");
    }
}

#[test]
fn floating_point_expressions() {
    let bits = |x: f64| Ok(x.to_bits());
    for (expression, want) in [
        ("--1.5", 1.5),
        ("+1.0", 1.0),
        ("-(1.0)", -1.0),
        ("1.0+2.0*3.0", 7.0),
        ("1e308*10.0", f64::INFINITY),
        ("0e999", 0.0),
        ("2.2250738585072014e-308", f64::MIN_POSITIVE),
    ] {
        assert_eq!(value("f64", expression), bits(want), "{expression}");
    }
    for (ty, expression, want) in [
        ("f64", "0f3f800000", 0x3f80_0000),
        ("b64", "0f3f800000", 0x3f80_0000),
        ("f64", "(0f3f800000)", 0x3f80_0000),
        ("f32", "0d3ff0000000000000", 0x3f80_0000),
        ("b32", "1.1", 0x3f8c_cccd),
        ("b16", "1.1", 0x999a),
        ("b8", "0f12345678", 0x78),
    ] {
        assert_eq!(value(ty, expression), Ok(want), "{ty} {expression}");
    }
    for (ty, expression, message) in [
        ("f64", "1e999999999", "Constant overflow"),
        ("f64", "1e-310", "Constant overflow"),
        ("f64", "1", "Initial value type mismatch"),
        ("f64", "1+1.0", "Constant expression type mismatch"),
        ("f64", "5.0% 3.0", "Integer constant expression expected"),
        ("f64", "1?2.0:3.0", "Integer constant expression expected"),
        ("f64", "-0f3f800000", "Parsing error near '0f3f800000': syntax error"),
        ("f64", "(.f64)1", "Unsupported cast operation"),
        ("b64", "1/0", "Constant expression has division by zero"),
        ("f64", "1.0/0.0", "Constant expression has division by zero"),
        ("u16", "1.5", "Initial value type mismatch"),
        ("f16", "1", "No initial value is allowed for .f16 type"),
        ("f16x2", "1", "Initial value type mismatch"),
    ] {
        assert_eq!(value(ty, expression), Err(message.into()), "{ty} {expression}");
    }
}

const REGISTERS: &str = ".reg .pred p; .reg .b16 h<3>; .reg .b32 r<12>; .reg .b64 d<3>; .reg .f32 f<5>; .reg .v4 .f32 v; \
    .reg .v2 .b32 w<3>;";

fn statement(text: &str) -> Result<Module, String> {
    module(&format!(".entry k() {{ {REGISTERS} {text} ret; }}\n"))
}

/// Operands of the statement before `ret`.
fn operands(text: &str) -> Vec<Operand> {
    let module = statement(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let body = module.funcs.values().last().unwrap().body.as_ref().unwrap();
    let insts = body.stmts.iter().filter_map(|s| match s {
        Stmt::Inst(i) => Some(i.operands.to_vec()),
        _ => None,
    });
    insts.rev().nth(1).unwrap()
}

#[test]
fn operands_are_expressions() {
    for (text, want) in [
        ("mov.u64 d0, a[1];", 4),
        ("mov.u64 d0, g[3];", 3),
        ("mov.u64 d0, a[-1];", -4),
        ("mov.u64 d0, a+1;", 1),
        ("mov.u64 d0, a+4*2;", 8),
    ] {
        assert!(matches!(operands(text)[1], Operand::Var(_, n) if n == want), "{text}");
    }
    for (text, want) in [
        ("ld.global.u32 r0, [d1+4*2];", 8),
        ("ld.global.u32 r0, [g+1<<4];", 16),
        ("ld.global.u32 r0, [d1+(1+2)*3];", 9),
        ("ld.global.u32 r0, [d1+4-4];", 0),
        ("ld.global.u32 r0, [d1+-4];", -4),
        ("ld.global.u32 r0, [d1+1?2:3];", 2),
    ] {
        let Operand::Addr(a) = &operands(text)[1] else { panic!("{text}") };
        assert_eq!(a.offset, want, "{text}");
    }
    for text in ["mov.b32 r0, (9);", "mov.b32 r0, (1+2)*3;", "mov.b32 r0, !1;", "mov.b32 r0, (7) % (4);"] {
        assert!(matches!(operands(text)[1], Operand::Int(_)), "{text}");
    }
    for (text, message) in [
        ("mov.u64 d0, a - 4;", "Parsing error near '-': syntax error"),
        ("ld.global.u32 r0, [d1-4];", "Parsing error near '-': syntax error"),
        ("mov.u64 d0, a[1]+4;", "Parsing error near '+': syntax error"),
        ("ld.global.u32 r0, [a[1]];", "Parsing error near '[': syntax error"),
        ("mov.b32 r0, 7 %3;", "Parsing error near '%3': syntax error"),
        ("mov.b32 r0, 1/0;", "Constant expression has division by zero"),
        ("mov.u64 d0, k[1];", "Parsing error near '[': syntax error"),
        (
            "mov.u64 d0, a[f1];",
            "Illegal to use symbol 'f1' of type .f32 as array index. Use integer or bit only.",
        ),
        ("mov.u64 d0, a[r1-1];", "Parsing error near '-': syntax error"),
        (
            "ld.shared.u32 r0, a[r1];",
            "State space mismatch between instruction and address in instruction 'ld'",
        ),
        ("atom.global.add.u32 r0, a[r1], 1;", "Arguments mismatch for instruction 'atom'"),
        ("add.u64 d0, d1, a[r1];", "Arguments mismatch for instruction 'add'"),
    ] {
        assert_eq!(statement(text).err().as_deref(), Some(message), "{text}");
    }
}

#[test]
fn constants_are_added_to_registers() {
    for (text, want) in [
        ("st.global.u32 [g], r1+1;", "add.u32 %sum, r1, 1;"),
        ("add.u64 d0, d1+7, d2;", "add.u64 %sum, d1, 7;"),
        ("st.global.u16 [g], h1+65535;", "add.u16 %sum, h1, 65535;"),
        ("@p mov.b32 r0, r1+-1;", "add.u32 %sum, r1, -1;"),
        ("bar.sync r1+1;", "add.u32 %sum, r1, 1;"),
        ("st.global.u32 [g], %laneid+1;", "mov.u32 %sum, %laneid;"),
    ] {
        let printed = statement(text).unwrap_or_else(|e| panic!("{text}: {e}")).to_string();
        assert!(printed.contains(want), "{text}\n{printed}");
    }
    for (text, message) in [
        ("mov.u32 r0+1, r1;", "Result register required for instruction 'mov'"),
        ("mov.f32 f0, f1+1;", "A constant cannot be added to a register of type .f32"),
        ("mov.v2.b32 {r0,r1}, {r2+1,r3};", "Parsing error near '+': syntax error"),
        ("mov.b32 r0, r1-1;", "Parsing error near '-': syntax error"),
        ("mov.b32 r0, w0.x+1;", "Parsing error near '+': syntax error"),
    ] {
        assert_eq!(statement(text).err().as_deref(), Some(message), "{text}");
    }
}

#[test]
fn vector_registers_have_components() {
    for text in [
        "mov.v4.f32 v, {f1, f2, f3, f4};",
        "mov.f32 f0, v.a;",
        "add.f32 v.x, v.y, v.z;",
        "ld.global.v4.f32 v, [g];",
        "st.global.v2.b32 [g], {v.x, v.w};",
        "mov.v2.b32 w1, w02;",
        "mov.b64 d0, w1;",
        "mov.b64 w1, d0;",
        "setp.eq.s32 p, w0.x, w2.y;",
    ] {
        statement(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    for (text, message) in [
        ("mov.f32 f0, v.q;", "Unknown vector selector: 'q'"),
        ("mov.b32 r0, w0.z;", "Unknown vector selector: 'z'"),
        ("ld.global.u32 r0, [w0.x];", "Parsing error near '.x': syntax error"),
        ("st.global.v4.f32 [g], {v};", "Illegal expression 'v'"),
        (".reg .v4 .b64 x;", "Vector type too large, exceeds 128 bit limit"),
        (".reg .v2 .pred x;", "Predicate type can only be used to define scalar register variables"),
        ("ld.global.v2.f32 v, [g];", "Argument vector size mismatch for instruction 'ld'"),
    ] {
        assert_eq!(statement(text).err().as_deref(), Some(message), "{text}");
    }
}

#[test]
fn zeros_before_the_number_of_a_register() {
    let same = operands("add.u32 r9, r09, r0009;");
    assert!(same[0] == same[1] && same[1] == same[2]);
    let duplicate = |n: &str| Some(format!("Duplicate definition of variable '{n}'"));
    assert_eq!(statement(".reg .b32 q<12>; .reg .b32 q09;").err(), duplicate("q09"));
    assert_eq!(statement(".reg .f32 q5; .reg .b32 q<12>;").err(), duplicate("q5"));
    assert_eq!(statement(".reg .f32 q05; .reg .b32 q<12>;").err(), None);
    assert_eq!(statement(".reg .b32 q1<12>; mov.b32 q101, 1;").err(), Some("Unknown symbol 'q101'".into()));
}
