//! What was found, as one page that needs nothing else: plots of the registers that live along the code and of where the time goes, and
//! the code beside its PTX.

use super::text::{reasons, units};
use super::{Kernel, Line};
use sim::cycles::{Reason, Stalls};
use std::fmt::Write as _;

/// Size of the plot, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 220.0;

/// Colours of the reasons, in the order of [`Reason::ALL`].
const COLOURS: [&str; 6] = ["#7a8fa6", "#c8553d", "#e0a458", "#6a4c93", "#3a7d44", "#b8c4cf"];

const STYLE: &str = "
:root { --ink: #1d2733; --paper: #fbfaf7; --faint: #e6e3dc; --mark: #c8553d; --curve: #2b6777; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --paper: #15191e; --faint: #2c333b; --mark: #ef8a6f; --curve: #76b5c5; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
h2 { border-bottom: 2px solid var(--curve); margin-top: 3rem; } h3 { margin-bottom: .3rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .1rem .6rem; vertical-align: top; }
th { border-bottom: 1px solid var(--ink); } td.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font: 12.5px/1.4 ui-monospace, monospace; } h2 code { font-size: 1.3rem; } .code { max-height: 36rem; overflow: auto; border: 1px solid var(--faint); }
.code tr:target, .code tr:hover { background: var(--faint); } .spill code { color: var(--mark); }
.no { opacity: .75; } .no::before { content: '✗ '; color: var(--mark); } .yes::before { content: '✓ '; color: var(--curve); }
.bar { display: inline-block; height: .7rem; background: var(--curve); } a { color: inherit; }
.key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .9rem; }
";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page of a file's kernels.
pub fn page(file: &str, source: &str, kernels: &[Kernel]) -> String {
    let title = escaped(file);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    if kernels.len() > 1 {
        out += "<ul>";
        for (n, k) in kernels.iter().enumerate() {
            _ = write!(out, "<li><a href=\"#k{n}\"><code>{}</code></a></li>", escaped(&k.name));
        }
        out += "</ul>\n";
    }
    let ptx: Vec<&str> = source.lines().collect();
    kernels.iter().enumerate().for_each(|(n, k)| kernel(&mut out, n, k, &ptx));
    out + "</body></html>\n"
}

fn kernel(out: &mut String, n: usize, k: &Kernel, ptx: &[&str]) {
    _ = writeln!(out, "<h2 id=\"k{n}\"><code>{}</code></h2>", escaped(&k.name));
    k.summary().iter().for_each(|s| _ = writeln!(out, "<p>{}</p>", escaped(s)));
    if let Ok(t) = &k.timing {
        bar(out, &t.stalls);
    }
    out.push_str("<h3>Registers along the code</h3>\n");
    curve(out, n, k);
    let link = |at: Option<usize>| match at {
        Some(i) => format!("<a href=\"#k{n}i{i}\">{}</a>", escaped(&k.place(at))),
        None => "around the loop".into(),
    };
    _ = writeln!(
        out,
        "<p>Most are needed <code>{}</code>. They hold:</p>\n<table><tr><th>registers</th><th>made</th><th>read next</th></tr>",
        link(Some(k.peak))
    );
    for h in &k.held {
        _ = writeln!(
            out,
            "<tr><td>{}</td><td><code>{}</code></td><td><code>{}</code></td></tr>",
            h.registers,
            link(h.made),
            link(h.read)
        );
    }
    out.push_str("</table>\n");
    if let Some(spilled) = k.spilled() {
        _ = writeln!(
            out,
            "<h3>Spills</h3>\n<p>{}. They are marked along the lower edge of the plot and in the code.</p>",
            escaped(&spilled)
        );
    }
    if !k.loops.is_empty() {
        out.push_str("<h3>Loops</h3>\n");
    }
    for l in &k.loops {
        _ = writeln!(
            out,
            "<p><a href=\"#k{n}i{}\">{}</a>: {} instructions, {} executed, {} cycles waited ({}).<br>Units: {}</p>",
            l.first,
            escaped(&k.lines_of(l.first, l.last)),
            l.last - l.first + 1,
            l.issued,
            l.stalls.total(),
            escaped(&reasons(&l.stalls)),
            escaped(&units(l))
        );
        bar(out, &l.stalls);
    }
    if !k.remarks.is_empty() {
        out.push_str("<h3>Decisions</h3>\n<table><tr><th>line</th><th>phase</th><th></th></tr>\n");
    }
    for r in &k.remarks {
        let class = if r.done { "yes" } else { "no" };
        let (line, phase, text) = (r.loc.0, r.phase.name(), escaped(&r.text));
        let statement = escaped(ptx.get((line as usize).wrapping_sub(1)).map_or("", |l| l.trim()));
        _ = writeln!(
            out,
            "<tr><td class=\"n\" title=\"{statement}\">{line}</td><td>{phase}</td><td class=\"{class}\">{text}</td></tr>"
        );
    }
    if !k.remarks.is_empty() {
        out.push_str("</table>\n");
    }
    out.push_str("<h3>Code</h3>\n");
    code(out, n, k, ptx);
}

/// Where the time goes, as one bar with a key.
fn bar(out: &mut String, stalls: &Stalls) {
    let all = stalls.total().max(1) as f64;
    let parts = || Reason::ALL.iter().zip(COLOURS).filter(|(r, _)| stalls.of(**r) > 0);
    let mut x = 0.0;
    _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} 18\" role=\"img\">");
    for (reason, colour) in parts() {
        let wide = WIDTH * stalls.of(*reason) as f64 / all;
        _ = write!(
            out,
            "<rect x=\"{x:.1}\" width=\"{wide:.1}\" height=\"18\" fill=\"{colour}\"><title>{reason}: {} cycles</title></rect>",
            stalls.of(*reason)
        );
        x += wide;
    }
    out.push_str("</svg><p class=\"key\">");
    for (reason, colour) in parts() {
        _ = write!(out, "<span style=\"background:{colour}\"></span>{reason}");
    }
    out.push_str("</p>\n");
}

/// The registers that live at each instruction; loops are shaded, spills marked.
fn curve(out: &mut String, n: usize, k: &Kernel) {
    let most = k.code.iter().map(|l| l.live).max().unwrap_or(0).max(1);
    let x = |i: usize| WIDTH * i as f64 / k.code.len().max(1) as f64;
    let y = |live: u32| HEIGHT - (HEIGHT - 20.0) * f64::from(live) / f64::from(most);
    _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">", HEIGHT + 18.0);
    for l in &k.loops {
        let (from, to) = (x(l.first), x(l.last + 1));
        _ = write!(
            out,
            "<rect x=\"{from:.1}\" width=\"{:.1}\" height=\"{HEIGHT}\" fill=\"var(--faint)\" opacity=\".6\"><title>loop, {}</title></rect>",
            to - from,
            escaped(&k.lines_of(l.first, l.last))
        );
    }
    let mut path = String::new();
    for (i, l) in k.code.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        _ = write!(path, "{command}{:.1} {:.1}H{:.1}", x(i), y(l.live), x(i + 1));
    }
    _ = write!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"var(--curve)\" stroke-width=\"2\"/>");
    // Spills stand along the lower edge.
    let wide = (WIDTH / k.code.len().max(1) as f64).max(0.5);
    for (i, _) in k.code.iter().enumerate().filter(|(_, l)| l.spills) {
        let (x, y) = (x(i), HEIGHT - 8.0);
        _ = write!(
            out,
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{wide:.2}\" height=\"8\" fill=\"var(--mark)\"/>"
        );
    }
    // What lies under the pointer is told, and leads to the code.
    for (i, l) in k.code.iter().enumerate() {
        _ = write!(
            out,
            "<a href=\"#k{n}i{i}\"><rect x=\"{:.2}\" width=\"{wide:.2}\" height=\"{HEIGHT}\" fill=\"transparent\"><title>{} registers: {}</title></rect></a>",
            x(i),
            l.live,
            escaped(&k.place(Some(i)))
        );
    }
    _ = writeln!(
        out,
        "<text x=\"4\" y=\"14\">{most} registers</text><text x=\"4\" y=\"{:.0}\">{} instructions</text></svg>",
        HEIGHT + 14.0,
        k.code.len()
    );
}

/// The code with its lines.
fn code(out: &mut String, n: usize, k: &Kernel, ptx: &[&str]) {
    let most = k.code.iter().map(|l| l.live).max().unwrap_or(0).max(1);
    let longest = k.code.iter().map(|l| l.stalls.total()).max().unwrap_or(0).max(1);
    out.push_str("<div class=\"code\"><table><tr><th></th><th>SASS</th><th>registers</th><th>waited</th><th>line</th><th>PTX</th></tr>\n");
    let mut before = 0;
    for (i, l) in k.code.iter().enumerate() {
        let Line { text, line, live, stalls, spills, .. } = l;
        let statement = match *line {
            line if line != before => ptx.get((line as usize).wrapping_sub(1)).map_or("", |l| l.trim()),
            _ => "",
        };
        before = *line;
        let class = if *spills { " class=\"spill\"" } else { "" };
        let width =
            |n: f64, of: f64| format!("<span class=\"bar\" style=\"width:{:.1}rem\"></span>", 6.0 * n / of);
        let waited = match stalls.total() {
            0 => String::new(),
            n => format!("{} {n}", width(n as f64, longest as f64)),
        };
        let number = if *line == 0 { String::new() } else { line.to_string() };
        _ = writeln!(
            out,
            "<tr id=\"k{n}i{i}\"{class}><td><code>{:04x}</code></td><td><code>{}</code></td><td>{} {live}</td>\
             <td title=\"{}\">{waited}</td><td class=\"n\">{number}</td><td><code>{}</code></td></tr>",
            16 * i,
            escaped(text),
            width(f64::from(*live), f64::from(most)),
            escaped(&reasons(stalls)),
            escaped(statement)
        );
    }
    out.push_str("</table></div>\n");
}
