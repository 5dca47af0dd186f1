//! Places in the source text.

/// A half-open byte range of the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// From `start` to `end`.
    pub fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }
    /// From the start of `self` to the end of `other`.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.start) }
    }
}

/// Line starts of a source text, for turning offsets into lines and columns.
#[derive(Clone, Debug)]
pub struct LineIndex {
    starts: Vec<u32>,
    /// What preprocessors left of where lines come from, in the order of the text.
    marks: Vec<Mark>,
}

/// `#line 7 "a.cu"`: the line behind it is line 7 of `a.cu`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mark {
    /// The line behind it, from 1.
    next: u32,
    file: String,
    line: u32,
}

impl LineIndex {
    /// Indexes `source`.
    pub fn new(source: &str) -> LineIndex {
        let mut starts = vec![0];
        starts.extend(source.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1));
        let mut lines = LineIndex { starts, marks: Vec::new() };
        // Few texts have any.
        if source.contains('#') {
            lines.marks = marks(source, &lines);
        }
        lines
    }
    /// The file and line that a line (from 1) comes from, if a preprocessor said so.
    pub fn origin(&self, line: u32) -> Option<(&str, u32)> {
        let mark = self.marks[..self.marks.partition_point(|m| m.next <= line)].last()?;
        Some((&mark.file, mark.line.wrapping_add(line - mark.next)))
    }
    /// Line and column (both from 1; the column counts bytes) of an offset.
    pub fn line_col(&self, offset: u32) -> (u32, u32) {
        let line = self.starts.partition_point(|s| *s <= offset).max(1);
        (line as u32, offset - self.starts[line - 1] + 1)
    }
    /// Line (from 1) of an offset.
    pub fn line(&self, offset: u32) -> u32 {
        self.line_col(offset).0
    }
    /// Byte offset of the start of a line (from 1).
    pub fn offset(&self, line: u32) -> u32 {
        self.starts.get((line as usize).saturating_sub(1)).copied().unwrap_or(0)
    }
    /// The text of a line (from 1), without its end.
    pub fn text<'s>(&self, source: &'s str, line: u32) -> &'s str {
        let start = self.starts[line as usize - 1] as usize;
        let end = self.starts.get(line as usize).map_or(source.len(), |e| *e as usize);
        source[start..end].trim_end_matches(['\n', '\r'])
    }
}

/// The lines of preprocessors in a text: outside of comments and strings, from anywhere in a line to its end. They have the shape that
/// the lexer skips; a number counts with its lowest 32 bits, as ptxas has it.
fn marks(source: &str, lines: &LineIndex) -> Vec<Mark> {
    let mut out = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['#', '"', '/']) {
        let place = source.len() - rest.len() + at;
        rest = &rest[at..];
        let end = match rest.as_bytes() {
            [b'/', b'/', ..] => rest.find('\n'),
            [b'/', b'*', ..] => rest.find("*/").map(|n| n + 2),
            [b'"', ..] => rest[1..].find('"').map(|n| n + 2),
            [b'#', ..] => {
                let text = rest.lines().next().unwrap_or(rest);
                let next = lines.line(place as u32) + 1;
                out.extend(mark(text).map(|(line, file)| Mark { next, file: file.into(), line }));
                rest.find('\n')
            }
            _ => Some(1),
        };
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    out
}

/// The line and the file of `#line 7 "a.cu"` or `# 7 "a.cu"`.
fn mark(text: &str) -> Option<(u32, &str)> {
    let text = text[1..].trim_start();
    let text = text.strip_prefix("line").unwrap_or(text).trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let line = text[..digits].bytes().fold(0u32, |n, d| n.wrapping_mul(10).wrapping_add(u32::from(d - b'0')));
    let name = text[digits..].trim_start().strip_prefix('"')?;
    Some((line, &name[..name.find('"')?]))
}
