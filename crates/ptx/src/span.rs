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
}

impl LineIndex {
    /// Indexes `source`.
    pub fn new(source: &str) -> LineIndex {
        let mut starts = vec![0];
        starts.extend(source.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1));
        LineIndex { starts }
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
