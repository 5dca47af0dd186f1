//! Where registers of the PTX are in the machine: `.nv_debug_info_reg_sass`, and their types,
//! `.nv_debug_info_reg_type` (docs/cubin.md). Debuggers find the variables there that DWARF says are in a register of
//! the PTX.

/// Where 32 bits of a register are, by the class that the sections have for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A predicate.
    Predicate(u8),
    /// A general register.
    Register(u8),
    /// So many bytes above the stack pointer.
    Stack(u16),
    /// A uniform predicate.
    UniformPredicate(u8),
    /// A uniform register.
    UniformRegister(u8),
}

impl Place {
    fn number(self) -> u32 {
        /// The stack pointer, R1.
        const SP: u32 = 1 << 16;
        match self {
            Place::Predicate(n) => 2 << 24 | u32::from(n),
            Place::Register(n) => 5 << 24 | u32::from(n),
            Place::Stack(n) => 7 << 24 | SP | u32::from(n),
            Place::UniformPredicate(n) => 9 << 24 | u32::from(n),
            Place::UniformRegister(n) => 11 << 24 | u32::from(n),
        }
    }

    /// The place that a file's number means.
    pub fn of(number: u32) -> Option<Place> {
        let low = number as u8;
        Some(match number >> 24 {
            2 => Place::Predicate(low),
            5 => Place::Register(low),
            7 if number >> 16 & 0xff == 1 => Place::Stack(number as u16),
            9 => Place::UniformPredicate(low),
            11 => Place::UniformRegister(low),
            _ => return None,
        })
    }
}

/// Where a word of a register is while code from `start` to before `end` is next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The register, with its `%`.
    pub register: String,
    /// Its type, as the section of types numbers them.
    pub ty: u8,
    /// Which 32 bits of it, 0 being the lowest.
    pub word: u32,
    /// Where they are.
    pub place: Place,
    /// Byte offset in the function.
    pub start: u32,
    /// Byte offset behind the last instruction.
    pub end: u32,
}

/// Contents of the two sections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sections {
    /// `.nv_debug_info_reg_sass`
    pub places: Vec<u8>,
    /// `.nv_debug_info_reg_type`
    pub types: Vec<u8>,
}

/// The sections for functions by name.
pub fn sections(functions: &[(String, Vec<Entry>)]) -> Sections {
    let mut out = Sections::default();
    for (name, entries) in functions {
        for part in [&mut out.places, &mut out.types] {
            part.extend(name.as_bytes());
            part.push(0);
            part.extend((entries.len() as u32).to_le_bytes());
        }
        let mut sorted: Vec<&Entry> = entries.iter().collect();
        sorted.sort_by(|a, b| {
            (a.place.number(), a.start, &a.register).cmp(&(b.place.number(), b.start, &b.register))
        });
        for e in sorted {
            out.places.extend(e.word.to_le_bytes());
            out.places.extend(e.register.as_bytes());
            out.places.push(0);
            for n in [e.place.number(), e.start, e.end] {
                out.places.extend(n.to_le_bytes());
            }
            out.types.push(e.ty);
        }
    }
    out
}

/// What the sections of a file say, ours or ptxas's; entries in places that have no name here are left out.
pub fn read(sections: &Sections) -> Option<Vec<(String, Vec<Entry>)>> {
    let text = |data: &mut &[u8]| -> Option<String> {
        let at = data.iter().position(|b| *b == 0)?;
        let text = String::from_utf8(data[..at].to_vec()).ok()?;
        *data = &data[at + 1..];
        Some(text)
    };
    let number = |data: &mut &[u8]| -> Option<u32> {
        let (word, rest) = data.split_first_chunk::<4>()?;
        *data = rest;
        Some(u32::from_le_bytes(*word))
    };
    let (mut places, mut types) = (&sections.places[..], &sections.types[..]);
    let mut out = Vec::new();
    while !places.is_empty() {
        let name = text(&mut places)?;
        let count = number(&mut places)?;
        if text(&mut types)? != name || number(&mut types)? != count {
            return None;
        }
        let mut entries = Vec::new();
        for _ in 0..count {
            let word = number(&mut places)?;
            let register = text(&mut places)?;
            let [place, start, end] = [number(&mut places)?, number(&mut places)?, number(&mut places)?];
            let (ty, rest) = types.split_first()?;
            types = rest;
            if let Some(place) = Place::of(place) {
                entries.push(Entry { register, ty: *ty, word, place, start, end });
            }
        }
        out.push((name, entries));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole section that ptxas 13.0.88 -g writes for a kernel that loads and stores a word (sm_90).
    #[test]
    fn as_ptxas_writes_it() {
        let bytes: Vec<u8> = [
            &b"k\0\x05\0\0\0"[..],
            b"\0\0\0\0%r1\0\0\0\0\x05\xe0\0\0\0\x70\x01\0\0",
            b"\0\0\0\0%rd1\0\x02\0\0\x05\xa0\0\0\0\xf0\0\0\0",
            b"\x01\0\0\0%rd1\0\x03\0\0\x05\xb0\0\0\0\0\x01\0\0",
            b"\0\0\0\0%rd1\0\x04\0\0\x05\x60\0\0\0\x70\x01\0\0",
            b"\x01\0\0\0%rd1\0\x05\0\0\x05\x70\0\0\0\x70\x01\0\0",
        ]
        .concat();
        let entry = |register: &str, ty, word, n, start, end| Entry {
            register: register.into(),
            ty,
            word,
            place: Place::Register(n),
            start,
            end,
        };
        let entries = vec![
            entry("%rd1", 3, 1, 5, 0x70, 0x170),
            entry("%r1", 2, 0, 0, 0xe0, 0x170),
            entry("%rd1", 3, 0, 2, 0xa0, 0xf0),
            entry("%rd1", 3, 1, 3, 0xb0, 0x100),
            entry("%rd1", 3, 0, 4, 0x60, 0x170),
        ];
        let written = sections(&[("k".into(), entries)]);
        assert_eq!(written.places, bytes);
        assert_eq!(written.types, b"k\0\x05\0\0\0\x02\x03\x03\x03\x03");
        let again = read(&written).unwrap();
        assert_eq!(sections(&again), written);
        assert_eq!(Place::of(Place::Stack(0x1d8).number()), Some(Place::Stack(0x1d8)));
    }
}
