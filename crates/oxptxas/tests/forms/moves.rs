//! Cases that the table cannot describe: packing and unpacking moves.

use crate::generate::{Case, THREADS, Tolerance};
use crate::values::{Shape, values};
use ptx::Type;
use std::fmt::Write as _;

/// `mov` between a register and a vector of registers, both ways.
pub fn cases() -> Vec<Case> {
    let shapes = [
        ("b16", "b8", 2),
        ("b32", "b8", 4),
        ("b32", "b16", 2),
        ("b64", "b16", 4),
        ("b64", "b32", 2),
        ("b128", "b32", 4),
        ("b128", "b64", 2),
    ];
    let mut out = Vec::new();
    for (whole, part, n) in shapes {
        let names: Vec<String> = (0..n).map(|i| format!("%e{i}")).collect();
        let mut turned = names.clone();
        turned.rotate_left(1);
        let text = format!("mov.{whole} {{{}}}, %a", names.join(", "));
        let mut body = head(whole);
        for e in &names {
            let _ = writeln!(body, ".reg .{part} {e};");
        }
        let _ = writeln!(body, "ld.global.{whole} %a, [%in];\n{text};");
        let _ =
            writeln!(body, "mov.{whole} %a, {{{}}};\nst.global.{whole} [%out], %a;\nret;", turned.join(", "));
        out.push(Case {
            text,
            body,
            inputs: values(&[Shape::Of(Type::b64)], THREADS, 5),
            tolerance: Tolerance::Exact,
            targets: &[],
        });
    }
    for t in ["b16", "b32", "b64", "b128", "u16", "s32", "f32", "f64", "u64"] {
        let mut body = head(t);
        let text = format!("mov.{t} %d, %a");
        let _ = writeln!(
            body,
            ".reg .{t} %d;\nld.global.{t} %a, [%in];\n{text};\nst.global.{t} [%out], %d;\nret;"
        );
        out.push(Case {
            text,
            body,
            inputs: values(&[Shape::Of(Type::b64)], THREADS, 5),
            tolerance: Tolerance::Exact,
            targets: &[],
        });
    }
    out
}

fn head(whole: &str) -> String {
    format!(
        ".reg .b64 %in, %out;\n.reg .b32 %t;\n.reg .{whole} %a;\nmov.u32 %t, %tid.x;\nld.param.u64 %in, [pin];\n\
         ld.param.u64 %out, [pout];\nmad.wide.u32 %in, %t, 80, %in;\nmad.wide.u32 %out, %t, 32, %out;\n"
    )
}
