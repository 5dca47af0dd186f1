//! Several modules as one, as linking makes them: what they mean together can be interpreted, and what a linker made of their
//! objects compared with that.

/// The text of modules as one: declarations of what another one has become forward declarations, or go; what only one of them
/// sees gets another name where an earlier one has that. What is for debuggers is left out: lines of comments, `.file` and `.loc`,
/// sections, `debug` of `.target`.
pub fn modules<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let mut all = texts.into_iter();
    let first = all.next().unwrap_or_default();
    all.enumerate().fold(plain(first), |merged, (n, text)| both(&merged, &plain(text), n + 1))
}

/// Without comments and lines about the source.
fn plain(text: &str) -> String {
    let line = |l: &str| {
        let l = l.split("//").next().unwrap_or_default();
        let word = l.split_whitespace().next().unwrap_or_default();
        match word {
            ".file" | ".loc" => None,
            ".target" => {
                let names = l.split(',').filter(|n| n.trim() != "debug");
                Some(names.collect::<Vec<_>>().join(",") + "\n")
            }
            _ => Some(format!("{l}\n")),
        }
    };
    text.lines().filter_map(line).collect()
}

/// What comes first in a module.
fn is_header(item: &str) -> bool {
    [".version", ".target", ".address_size"].iter().any(|h| item.starts_with(h))
}

/// The declarations and definitions of a module, in order.
fn items(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut item = String::new();
    let mut depth = 0;
    for line in text.split_inclusive('\n') {
        let header = depth == 0 && is_header(line.trim_start());
        for c in line.chars() {
            item.push(c);
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            let initializer = item.contains('=') && !item.contains(".func") && !item.contains(".entry");
            if depth == 0 && (c == ';' || c == '}' && !initializer) {
                out.push(std::mem::take(&mut item));
            }
        }
        if header {
            out.push(std::mem::take(&mut item));
        }
    }
    out.retain(|i| !i.trim().is_empty() && !i.trim_start().starts_with(".section"));
    out.into_iter().map(|i| i.trim().to_string() + "\n").collect()
}

/// The name that an item declares.
fn name(item: &str) -> &str {
    let word = |s: &'static str| item.find(s).map(|at| at + s.len());
    let start = match (word(".entry "), word(".func ")) {
        (Some(at), _) | (_, Some(at)) => at,
        _ => {
            let head = item.split(['=', '[', ';']).next().unwrap_or("").trim_end();
            return head.rsplit([' ', ')', '\t']).next().unwrap_or(head);
        }
    };
    let rest = item[start..].trim_start();
    let rest =
        if rest.starts_with('(') { rest[rest.find(')').map_or(0, |n| n + 1)..].trim_start() } else { rest };
    rest.split(|c: char| !is_of_name(c)).next().unwrap_or(rest)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '%')
}

fn is_external(item: &str) -> bool {
    item.starts_with(".extern")
}

fn is_function(item: &str) -> bool {
    item.contains(".func")
}

/// Whether only its own module sees it.
fn is_hidden(item: &str) -> bool {
    let seen = [".visible", ".extern", ".weak", ".common", ".alias"];
    !is_header(item) && !seen.iter().any(|w| item.starts_with(w))
}

/// The text with another name in place of one.
fn renamed(text: &str, from: &str, to: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let end = at + from.len();
        let whole = !rest[..at].ends_with(is_of_name) && !rest[end..].starts_with(is_of_name);
        out += &rest[..at];
        out += if whole { to } else { from };
        rest = &rest[end..];
    }
    out + rest
}

/// Two modules as one; the second is the `n`-th that is added.
fn both(a: &str, b: &str, n: usize) -> String {
    let first = items(a);
    let mut text = b.to_string();
    for item in items(b).iter().filter(|i| is_hidden(i)) {
        let own = name(item);
        if first.iter().any(|i| name(i) == own) {
            text = renamed(&text, own, &format!("{own}_of_{n}"));
        }
    }
    // What the first hides the second means otherwise.
    let mut a = a.to_string();
    for item in first.iter().filter(|i| is_hidden(i)) {
        let own = name(item);
        if items(&text).iter().any(|i| !is_hidden(i) && name(i) == own) {
            a = renamed(&a, own, &format!("{own}_before_{n}"));
        }
    }
    let (a, b) = (items(&a), items(&text));
    let all = || a.iter().chain(b.iter().filter(|i| !is_header(i)));
    let elsewhere = |i: &String| all().any(|j| !is_external(j) && name(j) == name(i));
    let mut out: String = a.iter().filter(|i| is_header(i)).cloned().collect();
    let mut seen = Vec::new();
    // First the functions' headers, since variables name them, then variables that name no other.
    for i in all().filter(|i| is_function(i)) {
        let head = i.split(['{', ';']).next().unwrap_or(i).trim_end();
        if !seen.contains(&name(i)) {
            seen.push(name(i));
            let linkage = all().find(|j| is_function(j) && !is_external(j) && name(j) == name(i));
            let linkage = linkage.and_then(|j| j.split(' ').next()).unwrap_or(".extern");
            let head = head
                .trim_start_matches(".extern ")
                .trim_start_matches(".visible ")
                .trim_start_matches(".weak ");
            let linkage = if linkage == ".func" { "" } else { linkage };
            out += &format!("{linkage} {head};\n");
        }
    }
    let is_alias = |i: &str| i.starts_with(".alias");
    let is_variable = |i: &&String| !is_function(i) && !is_alias(i) && !i.contains(".entry") && !is_header(i);
    let mut variables: Vec<&String> =
        all().filter(is_variable).filter(|i| !(is_external(i) && elsewhere(i))).collect();
    variables.sort_by_key(|i| i.contains('=') && i.contains("generic"));
    variables.dedup_by_key(|i| name(i));
    let mut names: Vec<&str> = Vec::new();
    for i in variables {
        if !names.contains(&name(i)) {
            names.push(name(i));
            out += i;
        }
    }
    let mut defined: Vec<&str> = Vec::new();
    for i in all().filter(|i| (is_function(i) || i.contains(".entry")) && i.contains('{')) {
        if !defined.contains(&name(i)) {
            defined.push(name(i));
            out += i;
        }
    }
    out.extend(all().filter(|i| is_alias(i)).cloned());
    out
}
