//! PTX with one statement on a line, so that a line says which statement an instruction of the code comes from.

use super::{Broken, Kernel};
use ::ptx::ast::Stmt;
use ::ptx::{LineIndex, Module};

/// The text, and where its lines were.
pub struct Split {
    /// The same module; each statement of a function begins a line of its own.
    pub source: String,
    /// The line of each line in the text that it was made of.
    original: Vec<u32>,
}

/// Begins a line before each statement that shares one with an earlier statement, and ends none within a statement (a reference
/// compiler says where a statement of several lines ends).
pub fn one_per_line(module: &Module, source: &str) -> Split {
    let bodies = module.funcs.values().filter_map(|f| f.body.as_ref());
    let mut starts: Vec<u32> = bodies
        .flat_map(|body| &body.stmts)
        .filter_map(|s| match s {
            Stmt::Inst(i) => Some(i.span.start),
            _ => None,
        })
        .collect();
    let bodies = module.funcs.values().filter_map(|f| f.body.as_ref());
    let mut spans: Vec<(u32, u32)> = bodies
        .flat_map(|body| &body.stmts)
        .filter_map(|s| match s {
            Stmt::Inst(i) => Some((i.span.start, i.span.end)),
            _ => None,
        })
        .collect();
    starts.sort_unstable();
    let lines = LineIndex::new(source);
    let shared = |p: &[u32]| p[0] != p[1] && lines.line(p[0]) == lines.line(p[1]);
    let begun = starts.windows(2).filter(|p| shared(p)).map(|p| p[1] as usize);
    let mut begun = begun.peekable();
    spans.sort_unstable();
    let mut spans = spans.into_iter().peekable();
    let mut split = Split { source: String::with_capacity(source.len() + 64), original: vec![1] };
    let mut line = 1;
    for (at, c) in source.char_indices() {
        while spans.next_if(|(_, end)| *end as usize <= at).is_some() {}
        // A comment ends with its line.
        if c == '\n'
            && spans.peek().is_some_and(|(start, end)| {
                (*start as usize) < at && !source[*start as usize..*end as usize].contains("//")
            })
        {
            line += 1;
            split.source.push(' ');
            continue;
        }
        if begun.next_if_eq(&at).is_some() {
            split.source.push('\n');
            split.original.push(line);
        }
        split.source.push(c);
        if c == '\n' {
            line += 1;
            split.original.push(line);
        }
    }
    split
}

impl Split {
    /// The line of the text that it was made of.
    pub fn original(&self, line: u32) -> u32 {
        self.original.get((line as usize).wrapping_sub(1)).copied().unwrap_or(line)
    }

    /// Findings of code that was made of this text, with the lines of the original.
    pub fn of_original(&self, kernel: &mut Kernel) {
        for v in &mut kernel.violations {
            v.lines = (self.original(v.lines.0), self.original(v.lines.1));
            if let super::Why::Fence(line) = &mut v.why {
                *line = self.original(*line);
            }
        }
        for b in &mut kernel.broken {
            let (Broken::Missing(line, _)
            | Broken::Gone(line, _)
            | Broken::Passed { line, .. }
            | Broken::Weak(_, line, _)
            | Broken::Threads(_, line)) = b;
            *line = self.original(*line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_get_lines_of_their_own() {
        let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\
                      .reg .pred p; .reg .b32 a; mov.b32 a, 1; // two; here\n\
                      { add.s32 a, a, 1; @p mov.b32 a, 2; } mov.b32 a, 3;\n\
                      ret; }\n";
        let module = ::ptx::parse(source).expect("PTX");
        let split = one_per_line(&module, source);
        assert_eq!(split.source.lines().count(), source.lines().count() + 2);
        let again = ::ptx::parse(&split.source).expect("PTX");
        let lines = LineIndex::new(&split.source);
        let original = LineIndex::new(source);
        let of = |m: &Module| -> Vec<u32> {
            let body = m.funcs.values().next().and_then(|f| f.body.as_ref()).expect("a body");
            let insts = body.stmts.iter();
            insts.filter_map(|s| if let Stmt::Inst(i) = s { Some(i.span.start) } else { None }).collect()
        };
        let (before, after) = (of(&module), of(&again));
        assert_eq!(before.len(), after.len());
        for (b, a) in before.iter().zip(&after) {
            assert_eq!(split.original(lines.line(*a)), original.line(*b));
        }
        let mut on: Vec<u32> = after.iter().map(|a| lines.line(*a)).collect();
        on.dedup();
        assert_eq!(on.len(), after.len());
    }
}
