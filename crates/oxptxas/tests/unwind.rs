//! `.debug_frame` is true: in front of every instruction of a device function, the frame that its rules give and the address
//! that it returns to are those with which it was entered. The SASS simulator runs the code.

use object::{Object, ObjectSection, ObjectSymbol};
use oxptxas::Settings;
use sass::Target;
use sim::launch::LaunchFile;
use sim::stops::{Slot, Stop};
use std::collections::BTreeMap;
use std::path::Path;

const GENERAL: u64 = 5 << 24;
/// The address to return to, and registers that callers find as they were.
const KEPT: &[u64] = &[20, 2, 16, 17, 18, 19, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 36, 37, 44];

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn unsigned(data: &[u8], at: &mut usize) -> u64 {
    let (mut n, mut shift) = (0, 0);
    loop {
        let b = data[*at];
        *at += 1;
        n |= u64::from(b & 0x7f) << shift;
        shift += 7;
        if b < 0x80 {
            return n;
        }
    }
}

/// Where a register of the caller is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Where {
    /// So many bytes below the frame address.
    Below(u64),
    In(u64),
    Lost,
}

/// What holds in front of an instruction: the bytes from R1 to the frame address, and which registers of the caller are not
/// where they belong.
#[derive(Clone, Default, PartialEq, Debug)]
struct Row {
    frame: u64,
    saved: BTreeMap<u64, Where>,
}

/// The rows of every function in the code of a kernel, by the offset where it begins.
fn rows(data: &[u8], starts: &BTreeMap<u64, u64>) -> BTreeMap<u64, Vec<(u64, Row)>> {
    let mut out = BTreeMap::new();
    let mut at = 0;
    while at < data.len() {
        let end = at + 12 + number(data, at + 4, 8) as usize;
        if number(data, at + 12, 8) != u64::MAX {
            let start = starts[&(at as u64 + 20)];
            let mut k = at + 36;
            let (mut here, mut row) = (start, Row::default());
            let mut table = vec![(start, row.clone())];
            while k < end {
                let op = data[k];
                k += 1;
                match op {
                    0 => {}
                    0x04 => {
                        table.push((here, row.clone()));
                        here += 4 * number(data, k, 4);
                        k += 4;
                    }
                    0x05 => {
                        let r = unsigned(data, &mut k) - GENERAL;
                        row.saved.insert(r, Where::Below(4 * unsigned(data, &mut k)));
                    }
                    0x06 => {
                        row.saved.remove(&(unsigned(data, &mut k) - GENERAL));
                    }
                    0x07 => {
                        row.saved.insert(unsigned(data, &mut k) - GENERAL, Where::Lost);
                    }
                    0x09 => {
                        let r = unsigned(data, &mut k) - GENERAL;
                        row.saved.insert(r, Where::In(unsigned(data, &mut k) - GENERAL));
                    }
                    // The program counter, which R20 says, too.
                    0x16 => {
                        assert_eq!(unsigned(data, &mut k), GENERAL | 256);
                        k += unsigned(data, &mut k) as usize;
                    }
                    0x0c => {
                        assert_eq!(unsigned(data, &mut k), GENERAL | 1);
                        row.frame = unsigned(data, &mut k);
                    }
                    other => panic!("operation {other:#x}"),
                }
            }
            table.push((here, row));
            out.insert(start, table);
        }
        at = end;
    }
    out
}

fn row_at(table: &[(u64, Row)], at: u64) -> &Row {
    &table.iter().rfind(|(from, _)| *from <= at).unwrap().1
}

/// Instructions of device functions in front of which threads were looked at.
fn check(name: &str, cubin: &[u8], launch: &sim::launch::Launch) -> usize {
    let elf = object::File::parse(cubin).unwrap();
    let prefix = format!("${}$", launch.kernel);
    // Functions in the kernel's code, or executed behind it.
    let image = cubin::read::read(cubin).unwrap();
    let behind: BTreeMap<&str, u64> = image.behind(&launch.kernel).into_iter().collect();
    let functions: Vec<(u64, u64)> = elf
        .symbols()
        .filter_map(|s| match behind.get(s.name().unwrap()) {
            Some(start) => Some((*start, s.size())),
            None => s.name().unwrap().starts_with(&prefix).then(|| (s.address(), s.size())),
        })
        .collect();
    if functions.is_empty() {
        return 0;
    }
    let base = |name: &str| if name == launch.kernel { Some(0) } else { behind.get(name).copied() };
    let bases: BTreeMap<u64, u64> =
        elf.symbols().filter_map(|s| Some((s.index().0 as u64, base(s.name().unwrap())?))).collect();
    let mut starts = BTreeMap::new();
    for (table, size) in [(".rela.debug_frame", 24), (".rel.debug_frame", 16)] {
        let Some(table) = elf.section_by_name(table) else { continue };
        for e in table.data().unwrap().chunks(size) {
            if let Some(base) = bases.get(&(number(e, 8, 8) >> 32)) {
                starts.insert(number(e, 0, 8), (*base, (size == 24).then(|| number(e, 16, 8))));
            }
        }
    }
    let data = elf.section_by_name(".debug_frame").unwrap().data().unwrap();
    // Those of other kernels are left aside; where the table has no numbers to add, the field has.
    let mut at = 0;
    let mut own = Vec::new();
    let mut moved = BTreeMap::new();
    while at < data.len() {
        let end = at + 12 + number(data, at + 4, 8) as usize;
        let field = at as u64 + 20;
        if number(data, at + 12, 8) != u64::MAX
            && let Some((base, addend)) = starts.get(&field)
        {
            let start = base + addend.unwrap_or_else(|| number(data, at + 20, 8));
            moved.insert(own.len() as u64 + 20, start);
            own.extend(&data[at..end]);
        }
        at = end;
    }
    let rows = rows(&own, &moved);
    let mut probe = sim::sass::Probe::new(&[], None);
    let mut wanted: BTreeMap<u32, Vec<Slot>> = BTreeMap::new();
    for (start, size) in &functions {
        let table =
            rows.get(start).unwrap_or_else(|| panic!("{name}: nothing about the function at {start:#x}"));
        for at in (*start..start + size).step_by(16) {
            let row = row_at(table, at);
            let mut slots = vec![Slot::Register(1)];
            for r in KEPT {
                slots.push(match row.saved.get(r) {
                    Some(Where::Below(n)) => Slot::Stack((row.frame - n) as u32),
                    Some(Where::In(to)) => Slot::Register(*to as u8),
                    Some(Where::Lost) | None => Slot::Register(*r as u8),
                });
            }
            wanted.insert(at as u32, slots);
        }
    }
    probe.stops.wanted = wanted;
    sim::sass::observe(cubin, launch, sim::sass::Options::default(), &mut probe).unwrap();
    let mut threads: BTreeMap<([u32; 3], u32), Vec<Stop<u32>>> = BTreeMap::new();
    let mut seen = 0;
    let stride = probe.stops.stride();
    for s in probe.stops.seen(stride) {
        seen += 1;
        threads.entry((s.block, s.thread)).or_default().push(s);
    }
    let mut lost = 0;
    for stops in threads.values() {
        // Frame address and return address with which the functions that are under way were entered.
        let mut entered: Vec<(u64, Vec<u64>, u64)> = Vec::new();
        for s in stops {
            let at = u64::from(s.at);
            let (start, _) =
                functions.iter().find(|(start, size)| (*start..start + size).contains(&at)).unwrap();
            let row = row_at(&rows[start], at);
            let now = (s.values[0] + row.frame, s.values[1..].to_vec(), *start);
            if at == *start {
                // A function begins nowhere else: what is below this frame is over.
                entered.retain(|e| e.0 > now.0 || e.0 == now.0 && e.2 != now.2);
                entered.push(now);
                continue;
            }
            while entered.last().is_some_and(|e| e.0 < now.0) {
                entered.pop();
            }
            let of = entered
                .iter()
                .rfind(|e| e.2 == *start)
                .unwrap_or_else(|| panic!("{name}: {at:#x}: {now:x?}"));
            assert_eq!(of.0, now.0, "{name}: the frame at {at:#x}");
            for (k, r) in KEPT.iter().enumerate() {
                match row.saved.get(r) {
                    Some(Where::Lost) => lost += 1,
                    place => assert_eq!(of.1[k], now.1[k], "{name}: R{r} {place:?} at {at:#x}"),
                }
            }
        }
    }
    assert_eq!(lost, 0, "{name}");
    seen
}

#[test]
fn every_instruction_is_unwound() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    for name in ["calls", "divsqrt", "double"] {
        let source = std::fs::read_to_string(dir.join(name).with_extension("ptx")).unwrap();
        let file = std::fs::read_to_string(dir.join(name).with_extension("toml")).unwrap();
        let launches = LaunchFile::parse(&file).unwrap().launch;
        for (sm, level, debug) in
            [75, 90, 120].into_iter().flat_map(|sm| [(sm, 3, false), (sm, 0, false), (sm, 0, true)])
        {
            let settings = Settings { opt_level: level, debug, ..Settings::new(Target::new(sm).unwrap()) };
            let cubin = oxptxas::compile(&source, name, &settings).unwrap().cubin;
            let label = format!("{name} for sm_{sm} -O{level} {}", if debug { "-g" } else { "" });
            let seen: usize = launches.iter().map(|l| check(&label, &cubin, l)).sum();
            assert!(seen > 100 || name != "calls", "{label}: {seen}");
        }
    }
}
