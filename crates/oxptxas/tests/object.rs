//! Relocatable objects, and what executables do with what is elsewhere.

use cubin::graph::Graph;
use oxptxas::Settings;
use sass::Target;

const HEADER: &str = ".version 8.8\n.target sm_75\n.address_size 64\n";

fn settings(sm: u8, relocatable: bool) -> Settings {
    Settings { relocatable, ..Settings::new(Target::new(sm).unwrap()) }
}

fn object(text: &str) -> Result<Graph, String> {
    let output = oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(90, true));
    let output = output.map_err(|f| f.diagnostics.iter().map(|d| d.message.clone()).collect::<String>())?;
    Ok(cubin::graph::read(&output.cubin).unwrap())
}

fn pairs(list: &[(String, String)]) -> Vec<(&str, &str)> {
    list.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect()
}

/// nvlink compares these texts: one that differs from ptxas's keeps objects of both from being linked, or lets calls
/// through pointers miss.
#[test]
fn prototypes_are_those_of_ptxas() {
    let table = include_str!("prototypes.tsv");
    let (mut same, mut refused) = (0, 0);
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let (head, expected) = line.split_once('\t').unwrap();
        let body = if head.ends_with(".noreturn") { "exit;" } else { "ret;" };
        let found = object(&format!(".visible .func {head} {{ {body} }}\n"));
        if expected == "refused" {
            assert!(found.is_err(), "{head}");
            refused += 1;
        } else {
            let graph = found.unwrap_or_else(|e| panic!("{head}: {e}"));
            assert_eq!(pairs(&graph.others), [("f", expected)], "{head}");
            same += 1;
        }
    }
    assert!(same > 200 && refused > 10, "{same} {refused}");
}

/// As in ptxas's objects, the call graph is that of the text: dead code counts.
#[test]
fn call_graph_has_what_dead_code_names() {
    let module = |dead: &str| {
        format!(
            ".extern .func ext(.param .b32 x);\n.visible .entry k() {{ .reg .b64 d<2>; .param .b32 a; bra END;\n\
             {dead}\nEND: ret; }}\n"
        )
    };
    let graph = object(&module("call ext, (a);")).unwrap();
    assert_eq!(pairs(&graph.calls), [("k", "ext")]);
    assert_eq!(pairs(&graph.others), [("ext", "#vi")]);
    let graph = object(&module("mov.b64 d0, ext;")).unwrap();
    assert_eq!(pairs(&graph.taken), [("ext", "#vi")]);
    assert_eq!(pairs(&graph.takes), [("k", "ext")]);
    let graph = object(&module(
        "P: .callprototype (.param .b32 _[3]) _ (.param .b16 _, .param .align 8 .b8 _[12]);\n\
        .param .b16 h; .param .align 8 .b8 b[12]; .param .b32 r[3]; call (r), d0, (h, b), P;",
    ))
    .unwrap();
    assert_eq!(pairs(&graph.indirect), [("k", "#i3hb12")]);
    assert_eq!(object(&module("")).unwrap(), Graph::default());
}

/// Numbers of 8 and 16 bits where the convention holds, and several results, as ptxas refuses them.
#[test]
fn what_the_convention_has_no_place_for() {
    let whole = |text: &str| match oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(90, false))
    {
        Ok(_) => String::new(),
        Err(f) => f.diagnostics[0].message.clone(),
    };
    let kernel =
        |body: &str| format!(".visible .entry k() {{ .reg .b64 d<2>; .reg .b32 r<2>; {body} ret; }}\n");
    let narrow = "In ABI compilation, passing predicate, 8-bit and 16-bit parameters to device functions is not supported";
    let own = format!(".visible .func f(.param .u16 x) {{ ret; }}\n{}", kernel(""));
    assert_eq!(whole(&own), "");
    assert_eq!(object(&own).unwrap_err(), narrow);
    let through = kernel(".param .u8 a; P: .callprototype _ (.param .u8 _); call d0, (a), P;");
    assert_eq!(whole(&through), narrow);
    assert_eq!(whole(&kernel("P: .callprototype _ (.param .u8 _);")), "");
    let taken = format!(".func f(.param .s8 x) {{ ret; }}\n{}", kernel("mov.b64 d0, f;"));
    assert_eq!(whole(&taken), narrow);
    let again = ".func f(.param .s8 x) { .param .s8 a; call f, (a); ret; }\n";
    assert_eq!(whole(again), narrow);
    let result = object(".visible .func (.param .u16 r) f() { ret; }\n").unwrap_err();
    assert!(result.contains("returning predicate"), "{result}");
    assert!(object(".extern .func f(.param .u16 x);\n").is_ok());
    assert!(object(&format!(".extern .func f(.param .u16 x);\n{}", kernel("mov.b64 d0, f;"))).is_err());

    let two = format!(
        ".func (.reg .b32 a, .reg .b32 b) f() {{ mov.b32 a, 1; mov.b32 b, 2; ret; }}\n{}",
        kernel("call (r0, r1), f;")
    );
    assert_eq!(whole(&two), "");
    assert_eq!(object(&two).unwrap_err(), "'Compile only(-c)' requires ABI");
    let in_memory = ".visible .func (.param .b32 a, .param .b32 b) f() { ret; }\n";
    assert_eq!(whole(in_memory), "Multiple return parameters require .register state space");
}

/// Variables that are elsewhere are an executable's own where their size is known; functions are refused.
#[test]
fn what_is_elsewhere_in_an_executable() {
    let module = |declaration: &str, body: &str| {
        let text = format!(
            "{HEADER}{declaration}\n.visible .entry k(.param .u64 p) {{ .reg .b64 d<2>; .reg .b32 r<2>;\n\
             ld.param.u64 d0, [p]; {body} st.global.b32 [d0], r0; ret; }}\n"
        );
        oxptxas::compile(&text, "k.ptx", &settings(90, false))
    };
    for (space, array) in [("global", ""), ("global", "[3]"), ("const", ""), ("shared", "[4]")] {
        let declaration = format!(".extern .{space} .u32 g{array};");
        for body in ["", &format!("ld.{space}.u32 r0, [g];")] {
            let output = module(&declaration, body).unwrap_or_else(|f| panic!("{}", f.render("oxptxas")));
            let expected =
                "Unresolved extern variable 'g' in whole program compilation, ignoring extern qualifier";
            let said: Vec<&str> = output.warnings.iter().map(|w| w.message.as_str()).collect();
            assert_eq!(said, [expected], "{declaration} {body}");
        }
    }
    assert!(module(".extern .shared .u32 g[];", "ld.shared.u32 r0, [g];").unwrap().warnings.is_empty());
    for (declaration, body, message) in [
        (".extern .global .u32 g[];", "", "Unresolved extern variable 'g'"),
        (".extern .func g();", "bra END; call g; END:", "Unresolved extern function 'g'"),
        (".func g();", "", "Unresolved extern function 'g'"),
        (".extern .func g();", "bra END; mov.b64 d1, g; END:", "Cannot take address of function 'g'"),
        (".extern .func g();\n.global .u64 t = g;", "", "Cannot take address of function 'g'"),
    ] {
        let failure = module(declaration, body).unwrap_err();
        assert_eq!(failure.diagnostics[0].message, message, "{declaration} {body}");
    }
}
