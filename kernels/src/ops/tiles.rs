//! The tile registers: eight matrices of up to sixteen rows of 64 bytes.
//!
//! What a thread has in them stays between calls: nothing that a compiler writes uses them.

use core::arch::asm;
use core::marker::PhantomData;

/// Bytes of a row of a tile, at most.
const LINE: usize = 64;
/// Rows of a tile, at most.
pub(crate) const ROWS: usize = 16;

/// The shapes of the tiles, as the processor reads them.
#[repr(C, align(64))]
pub(crate) struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// No tile has a shape yet.
    pub(crate) const NONE: Self =
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };

    /// Gives a tile its shape.
    #[must_use]
    pub(crate) const fn with(mut self, tile: u8, rows: usize, row_bytes: usize) -> Self {
        self.row_bytes[tile as usize] = row_bytes as u16;
        self.rows[tile as usize] = rows as u8;
        self
    }
}

/// The tiles while they have shapes; dropped, they cost the system nothing when it changes threads.
pub(crate) struct Tiles(PhantomData<*mut ()>);

impl Tiles {
    /// Gives the tiles shapes.
    ///
    /// # Safety
    /// The processor must have AMX and the system must have given permission.
    #[inline(always)]
    pub(crate) unsafe fn with_shapes(shapes: &Shapes) -> Self {
        // SAFETY: the caller's promise.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const *shapes, options(nostack, preserves_flags)) }
        Self(PhantomData)
    }

    /// Makes a tile zero.
    #[inline(always)]
    pub(crate) fn zero<const TILE: u8>(&self) {
        // SAFETY: `self` says that the tiles have shapes.
        unsafe { asm!("tilezero tmm{}", const TILE, options(nomem, nostack, preserves_flags)) }
    }

    /// Reads the rows of a tile, each `stride` bytes after the last.
    ///
    /// # Safety
    /// The rows must be there.
    #[inline(always)]
    pub(crate) unsafe fn load<const TILE: u8>(&self, from: *const u8, stride: usize) {
        // SAFETY: the caller's promise; `self` says that the tiles have shapes.
        unsafe {
            asm!(
                "tileloadd tmm{}, [{} + {}*1]",
                const TILE,
                in(reg) from,
                in(reg) stride,
                options(readonly, nostack, preserves_flags),
            );
        }
    }

    /// Reads the lines of a tile.
    ///
    /// # Safety
    /// The lines must be there.
    #[inline(always)]
    pub(crate) unsafe fn load_lines<const TILE: u8>(&self, from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { self.load::<TILE>(from, LINE) }
    }

    /// Writes the rows of a tile as lines.
    ///
    /// # Safety
    /// There must be place for its rows.
    #[inline(always)]
    pub(crate) unsafe fn store_lines<const TILE: u8>(&self, to: *mut u8) {
        // SAFETY: the caller's promise; `self` says that the tiles have shapes.
        unsafe {
            asm!(
                "tilestored [{} + {}*1], tmm{}",
                in(reg) to,
                in(reg) LINE,
                const TILE,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Adds to tile `TO` the products of the signed bytes of each row of `LEFT` with the columns of `RIGHT`, in whose
    /// rows four bytes belong to a column.
    #[inline(always)]
    pub(crate) fn dot<const TO: u8, const LEFT: u8, const RIGHT: u8>(&self) {
        // SAFETY: `self` says that the tiles have shapes.
        unsafe {
            asm!(
                "tdpbssd tmm{}, tmm{}, tmm{}",
                const TO, const LEFT, const RIGHT,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

impl Drop for Tiles {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `self` says that the processor has tiles.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
    }
}
