//! Modules of many kernels, each under a line with the statement that it is for (example `statements` of crates/ptx): taken
//! apart where a compiler refuses some of the statements.

/// What a compiler says of a module.
pub enum Verdict {
    /// It was compiled.
    Taken,
    /// It was refused; errors are on these lines, as far as it says.
    Refused(Vec<usize>),
}

/// Before each kernel of such a module.
const MARK: &str = "\n// ";

/// Head, and kernels with their statements. `None` if the module is none of these.
pub fn split(text: &str) -> Option<(&str, Vec<&str>)> {
    let starts: Vec<usize> = text
        .match_indices(MARK)
        .map(|(at, _)| at + 1)
        .filter(|at| text[*at..].lines().nth(1).is_some_and(|l| l.starts_with(".visible .entry statement")))
        .collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let kernels: Vec<&str> = starts.iter().zip(ends).map(|(from, to)| &text[*from..to]).collect();
    Some((&text[..*starts.first()?], kernels))
}

/// Compiles a module whole; where it is refused, without the kernels that have errors; where no error has a line, in
/// halves. `compile` gets a text and the number of the part.
pub fn compile_parts(text: &str, compile: &mut dyn FnMut(&str, usize) -> Verdict) {
    let mut number = 0;
    let mut next = |text: &str| {
        number += 1;
        compile(text, number - 1)
    };
    let Some((head, kernels)) = split(text) else {
        next(text);
        return;
    };
    let mut open = vec![kernels];
    while let Some(kernels) = open.pop() {
        let Verdict::Refused(lines) = next(&format!("{head}{}", kernels.concat())) else { continue };
        if kernels.len() < 2 {
            continue;
        }
        let mut from = head.lines().count() + 1;
        let mut fine = vec![];
        for kernel in &kernels {
            let to = from + kernel.lines().count();
            if !lines.iter().any(|l| (from..to).contains(l)) {
                fine.push(*kernel);
            }
            from = to;
        }
        if fine.len() < kernels.len() {
            if !fine.is_empty() {
                open.push(fine);
            }
        } else {
            let (a, b) = kernels.split_at(kernels.len() / 2);
            open.extend([b.to_vec(), a.to_vec()]);
        }
    }
}

/// The lines that errors of ptxas name.
pub fn error_lines(text: &str) -> Vec<usize> {
    let line = |l: &str| {
        let (_, rest) = l.split_once(", line ")?;
        let (number, rest) = rest.split_once(';')?;
        let wrong = rest.trim_start();
        (wrong.starts_with("error") || wrong.starts_with("fatal")).then(|| number.parse().ok())?
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(statements: &[&str]) -> String {
        let kernel = |s: &&str| format!("// {s}\n.visible .entry statement0()\n{{\n{s}\n}}\n");
        format!(".version 8.0\n.target sm_75\n{}", statements.iter().map(kernel).collect::<String>())
    }

    #[test]
    fn what_is_refused_is_left_out() {
        for named in [true, false] {
            let mut taken = vec![];
            compile_parts(&module(&["a;", "bad;", "c;", "d;"]), &mut |text, _| {
                let lines: Vec<usize> =
                    text.lines().enumerate().filter(|(_, l)| *l == "bad;").map(|(i, _)| i + 1).collect();
                if lines.is_empty() {
                    taken.extend(text.lines().filter_map(|l| l.strip_prefix("// ")).map(str::to_string));
                    return Verdict::Taken;
                }
                Verdict::Refused(if named { lines } else { vec![] })
            });
            taken.sort();
            assert_eq!(taken, ["a;", "c;", "d;"], "{named}");
        }
    }

    #[test]
    fn other_modules_stay_whole() {
        let mut parts = 0;
        compile_parts(".version 8.0\n// text\n.target sm_75\n", &mut |_, _| {
            parts += 1;
            Verdict::Refused(vec![])
        });
        assert_eq!(parts, 1);
    }

    #[test]
    fn lines_of_errors() {
        let text = "ptxas x.ptx, line 12; error   : Illegal\nptxas x.ptx, line 3; warning : old\nptxas fatal   : aborted";
        assert_eq!(error_lines(text), [12]);
    }
}
