//! Global memory of a simulated device: separate allocations with gaps between them, so that an access
//! outside of all is found.

/// One allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Address of its first byte.
    pub base: u64,
    /// Contents.
    pub bytes: Vec<u8>,
    /// What it is, for messages.
    pub name: String,
}

/// Global memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Ascending by address.
    allocations: Vec<Allocation>,
}

/// First address handed out. Away from null and from the windows of shared and local memory.
const FIRST: u64 = 0x7f_1000_0000;
/// Bytes left free behind each allocation.
const GAP: u64 = 0x1_0000;

impl Memory {
    /// Nothing allocated.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates `bytes` and returns the address, a multiple of 256.
    pub fn alloc(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        let base = self
            .allocations
            .last()
            .map_or(FIRST, |a| (a.base + a.bytes.len() as u64 + GAP).next_multiple_of(256));
        self.allocations.push(Allocation { base, bytes, name: name.to_string() });
        base
    }

    /// The allocation that holds all of `address … address + size`.
    fn find(&self, address: u64, size: usize) -> Option<usize> {
        let i = self.allocations.partition_point(|a| a.base <= address).checked_sub(1)?;
        let a = &self.allocations[i];
        (address - a.base + size as u64 <= a.bytes.len() as u64).then_some(i)
    }

    /// The bytes at `address`; `None` if they are not all inside one allocation.
    pub fn slice(&self, address: u64, size: usize) -> Option<&[u8]> {
        let a = &self.allocations[self.find(address, size)?];
        let at = (address - a.base) as usize;
        Some(&a.bytes[at..at + size])
    }

    /// The bytes at `address`, for writing.
    pub fn slice_mut(&mut self, address: u64, size: usize) -> Option<&mut [u8]> {
        let i = self.find(address, size)?;
        let a = &mut self.allocations[i];
        let at = (address - a.base) as usize;
        Some(&mut a.bytes[at..at + size])
    }

    /// The little-endian number of `size` bytes (at most 8) at `address`.
    pub fn read(&self, address: u64, size: usize) -> Option<u64> {
        self.slice(address, size).map(little_endian)
    }

    /// Writes the low `size` bytes (at most 8) of `value`.
    pub fn write(&mut self, address: u64, size: usize, value: u64) -> Option<()> {
        self.slice_mut(address, size)?.copy_from_slice(&value.to_le_bytes()[..size]);
        Some(())
    }

    /// The allocation at `base`.
    pub fn allocation(&self, base: u64) -> Option<&Allocation> {
        self.find(base, 0).map(|i| &self.allocations[i])
    }
}

/// A little-endian number of up to 8 bytes.
pub fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_stay_inside_allocations() {
        let mut m = Memory::new();
        let a = m.alloc("a", vec![0; 10]);
        let b = m.alloc("b", vec![7; 4]);
        assert_eq!(m.read(b, 4), Some(0x0707_0707));
        assert_eq!(m.write(a + 6, 4, 0x1_2345_6789), Some(()));
        assert_eq!(m.read(a + 6, 4), Some(0x2345_6789));
        assert_eq!(m.read(a + 7, 4), None);
        assert_eq!(m.read(a - 1, 1), None);
    }
}
