//! The program's memory. Most of what a compilation asks for is small and lives for one pass: operands of instructions, short lists. Such
//! pieces have a list of free ones for each size and thread, so that to take or to give one back is a few instructions; the C library's
//! allocator, which looks for neighbours to merge with, took an eighth of most compilations. Large pieces are its business as before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

/// The allocator: [`System`] for what is large.
pub struct Memory;

/// Sizes are multiples of this, and all pieces are aligned so.
const STEP: usize = 16;
/// The largest small piece.
const SMALL: usize = 512;
/// Small pieces are cut from blocks of this size.
const BLOCK: usize = 32 << 10;
/// Up to here each multiple of [`STEP`] has its list; beyond, each of [`COARSE`] does.
const FINE: usize = 256;
const COARSE: usize = 128;
const CLASSES: usize = FINE / STEP + (SMALL - FINE) / COARSE;

/// What a thread has free.
struct Pool {
    /// The first free piece of each class; its first word says where the next one is.
    free: [Cell<*mut u8>; CLASSES],
    /// What is left of the block that pieces are cut from.
    next: Cell<*mut u8>,
    left: Cell<usize>,
}

thread_local! {
    static POOL: Pool = const {
        Pool { free: [const { Cell::new(null_mut()) }; CLASSES], next: Cell::new(null_mut()), left: Cell::new(0) }
    };
}

/// The class of a small piece; none of others.
#[inline]
fn class(size: usize, align: usize) -> Option<usize> {
    if size > SMALL || align > STEP {
        None
    } else if size <= FINE {
        Some(size.max(1).div_ceil(STEP) - 1)
    } else {
        Some(FINE / STEP + (size - FINE).div_ceil(COARSE) - 1)
    }
}

/// How large the pieces of a class are.
#[inline]
fn size_of(class: usize) -> usize {
    if class < FINE / STEP { (class + 1) * STEP } else { FINE + (class + 1 - FINE / STEP) * COARSE }
}

impl Pool {
    #[inline]
    fn take(&self, class: usize) -> *mut u8 {
        let first = self.free[class].get();
        if first.is_null() {
            return self.cut(size_of(class));
        }
        // SAFETY: a piece in the list is free, aligned for a pointer, and begins with one ([`Self::give`]).
        #[allow(unsafe_code)]
        self.free[class].set(unsafe { first.cast::<*mut u8>().read() });
        first
    }

    #[inline]
    fn give(&self, piece: *mut u8, class: usize) {
        // SAFETY: the caller has no use for the piece any more, which is at least [`STEP`] bytes and aligned so.
        #[allow(unsafe_code)]
        unsafe {
            piece.cast::<*mut u8>().write(self.free[class].get());
        }
        self.free[class].set(piece);
    }

    /// A new piece. What is left of a block that is too small for it is left alone: less than one of the largest pieces.
    #[cold]
    fn cut(&self, size: usize) -> *mut u8 {
        if self.left.get() < size {
            // SAFETY: the size is not 0.
            #[allow(unsafe_code)]
            let block = unsafe { System.alloc(Layout::from_size_align(BLOCK, STEP).expect("a block")) };
            fresh::touched(block, BLOCK);
            if block.is_null() {
                return block;
            }
            self.next.set(block);
            self.left.set(BLOCK);
        }
        let piece = self.next.get();
        self.next.set(piece.wrapping_add(size));
        self.left.set(self.left.get() - size);
        piece
    }
}

// SAFETY: pieces of a class are as large and aligned as its layouts ask, and each is in one list or with one owner; a layout says whether its
// piece is small when it is taken and when it is given back alike. A thread that gives back what another took has it in its own list from then on.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Memory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout.size(), layout.align()) {
            Some(class) => POOL.with(|p| p.take(class)),
            None => {
                // SAFETY: as the caller says.
                let piece = unsafe { System.alloc(layout) };
                fresh::touched(piece, layout.size());
                piece
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match class(layout.size(), layout.align()) {
            Some(class) => POOL.with(|p| p.give(piece, class)),
            // SAFETY: as the caller says.
            None => unsafe { System.dealloc(piece, layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match class(layout.size(), layout.align()) {
            Some(class) => {
                let piece = POOL.with(|p| p.take(class));
                if !piece.is_null() {
                    // SAFETY: the piece is as large at least.
                    unsafe { piece.write_bytes(0, layout.size()) };
                }
                piece
            }
            // SAFETY: as the caller says. What comes from the system is zero already.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (old, new) = (class(layout.size(), layout.align()), class(size, layout.align()));
        if old.is_some() && old == new {
            return piece;
        }
        // SAFETY: as the caller says; both pieces hold the bytes that are copied, and are not the same.
        unsafe {
            if old.is_none() && new.is_none() {
                let moved = System.realloc(piece, layout, size);
                fresh::touched(moved, size);
                return moved;
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                std::ptr::copy_nonoverlapping(piece, moved, layout.size().min(size));
                self.dealloc(piece, layout);
            }
            moved
        }
    }
}

/// Pages that the system has not given yet.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod fresh {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// So many bytes are asked for at once.
    const AHEAD: usize = 64 << 10;
    /// Of a larger piece, much may never be touched.
    const LARGE: usize = 256 << 10;
    const PAGE: usize = 4 << 10;

    /// Where the part of the C library's heap ends whose pages are there, or come one by one.
    static READY: AtomicUsize = AtomicUsize::new(0);

    /// A piece is to be used. Where it is the first at the end of the heap, its pages and the next few are asked for in one call: a page
    /// that comes when it is first touched takes five times as long, and a small program touches little else than new ones.
    #[inline]
    pub fn touched(piece: *mut u8, size: usize) {
        if piece.addr() + size > READY.load(Relaxed) {
            ask(piece.addr(), size);
        }
    }

    #[cold]
    fn ask(piece: usize, size: usize) {
        // SAFETY: it only says where the heap ends.
        #[allow(unsafe_code)]
        let top = unsafe { libc::sbrk(0) };
        let end = (piece + size).next_multiple_of(PAGE);
        // What is above is no part of it.
        if end > top.addr() {
            return;
        }
        let from = (piece / PAGE * PAGE).max(READY.load(Relaxed));
        let to = (end + AHEAD).min(top.addr() / PAGE * PAGE);
        READY.store(to, Relaxed);
        if size <= LARGE {
            // SAFETY: these are pages of the heap, which stay as they are. A system that does not know the call refuses it.
            #[allow(unsafe_code)]
            unsafe {
                libc::madvise(top.with_addr(from), to - from, libc::MADV_POPULATE_WRITE);
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod fresh {
    pub fn touched(_: *mut u8, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_sizes() {
        let mut last = 0;
        for size in 0..=SMALL {
            let class = class(size, 8).expect("a small piece");
            assert!(
                class < CLASSES && size_of(class) >= size && size_of(class).is_multiple_of(STEP),
                "{size}"
            );
            assert!(class == last || class == last + 1 && size_of(last) < size, "{size}");
            last = class;
        }
        assert_eq!(last + 1, CLASSES);
        assert_eq!((class(SMALL + 1, 8), class(8, 32)), (None, None));
    }

    #[test]
    #[allow(unsafe_code)]
    fn pieces_keep_what_they_hold_and_come_back() {
        let layout = |size| Layout::from_size_align(size, 8).expect("a layout");
        // SAFETY: each piece is used within its size and given back once.
        unsafe {
            let mut piece = Memory.alloc(layout(24));
            piece.write_bytes(7, 24);
            for (from, to) in [(24, 32), (32, 300), (300, 5000), (5000, 9000), (9000, 40)] {
                piece = Memory.realloc(piece, layout(from), to);
                assert!((0..24).all(|k| piece.add(k).read() == 7), "{to}");
            }
            Memory.dealloc(piece, layout(40));
            let again = Memory.alloc_zeroed(layout(48));
            assert_eq!(again, piece);
            assert!((0..48).all(|k| again.add(k).read() == 0));
            Memory.dealloc(again, layout(48));
        }
    }
}
