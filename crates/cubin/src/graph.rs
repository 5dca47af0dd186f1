//! Reads what a relocatable object, ours or ptxas's, says of its functions: the call graph and the prototypes.

use crate::Error;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, Sym};

/// What `.nv.callgraph` and `.nv.prototype` hold; pairs in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Graph {
    /// Calls by name: caller, callee.
    pub calls: Vec<(String, String)>,
    /// Functions whose address is taken, with their prototypes.
    pub taken: Vec<(String, String)>,
    /// Functions that call through pointers, with the prototypes.
    pub indirect: Vec<(String, String)>,
    /// Functions, with those whose address they take.
    pub takes: Vec<(String, String)>,
    /// Other functions that other objects see, with their prototypes.
    pub others: Vec<(String, String)>,
}

/// Reads an object.
///
/// # Errors
/// What is wrong with the file.
pub fn read(data: &[u8]) -> Result<Graph, Error> {
    let header = FileHeader64::<LE>::parse(data).map_err(Error::NoElf)?;
    let sections = header.sections(LE, data).map_err(Error::damaged)?;
    let symbols = sections.symbols(LE, data, elf::SHT_SYMTAB).map_err(Error::damaged)?;
    let mut graph = Graph::default();
    let text = |offset: u32| -> Result<String, Error> {
        let bytes = symbols.strings().get(offset).map_err(|()| Error::NoText)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    };
    let symbol = |n: u32| -> Result<String, Error> {
        let s = symbols.symbol(object::SymbolIndex(n as usize)).map_err(Error::damaged)?;
        text(s.st_name(LE))
    };
    for s in sections.iter() {
        let name = sections.section_name(LE, s).map_err(Error::damaged)?;
        let of_graph = match name {
            b".nv.callgraph" => true,
            b".nv.prototype" => false,
            _ => continue,
        };
        let mut part = 0;
        let bytes = s.data(LE, data).map_err(Error::damaged)?;
        for pair in bytes.chunks_exact(8) {
            let word = |at: usize| u32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
            let (a, b) = (word(0), word(4));
            if of_graph && a == 0 && b as i32 <= -1 {
                part = (b as i32).unsigned_abs();
                continue;
            }
            let of = symbol(a)?;
            match (of_graph, part) {
                (false, _) => graph.others.push((of, text(b)?)),
                (true, 1) => graph.calls.push((of, symbol(b)?)),
                (true, 2) => graph.taken.push((of, text(b)?)),
                (true, 3) => graph.indirect.push((of, text(b)?)),
                (true, 4) => graph.takes.push((of, symbol(b)?)),
                (true, n) => return Err(Error::PartOfGraph(n)),
            }
        }
    }
    Ok(graph)
}
