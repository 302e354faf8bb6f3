//! AMX tile registers: eight matrices of up to sixteen rows of 64 bytes.
//!
//! Their contents persist between calls on a thread: no compiler-generated code uses them.

use core::arch::asm;
use core::marker::PhantomData;

/// Maximum number of bytes in a row of a tile.
const LINE: usize = 64;
/// Maximum number of rows of a tile.
pub(crate) const ROWS: usize = 16;

/// The tile configuration in the memory layout of `ldtilecfg`.
#[repr(C, align(64))]
pub(crate) struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// A configuration in which no tile has a shape yet.
    pub(crate) const NONE: Self =
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };

    /// Sets the shape of a tile.
    #[must_use]
    pub(crate) const fn with(mut self, tile: u8, rows: usize, row_bytes: usize) -> Self {
        self.row_bytes[tile as usize] = row_bytes as u16;
        self.rows[tile as usize] = rows as u8;
        self
    }
}

/// The tile registers while they are configured. Dropping releases them, so that a context switch does not
/// save them.
pub(crate) struct Tiles(PhantomData<*mut ()>);

impl Tiles {
    /// Configures the tiles.
    ///
    /// # Safety
    /// The processor must have AMX and the operating system must have granted permission to use it.
    #[inline(always)]
    pub(crate) unsafe fn with_shapes(shapes: &Shapes) -> Self {
        // SAFETY: the processor has AMX and the system permits it (see `# Safety`); `shapes` has 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const *shapes, options(nostack, preserves_flags)) }
        Self(PhantomData)
    }

    /// Zeroes a tile.
    #[inline(always)]
    pub(crate) fn zero<const TILE: u8>(&self) {
        // SAFETY: `self` proves that the tiles are configured.
        unsafe { asm!("tilezero tmm{}", const TILE, options(nomem, nostack, preserves_flags)) }
    }

    /// Loads the rows of a tile, `stride` bytes apart.
    ///
    /// # Safety
    /// Every row of the tile's shape, from `from` on and `stride` bytes apart, must be readable.
    #[inline(always)]
    pub(crate) unsafe fn load<const TILE: u8>(&self, from: *const u8, stride: usize) {
        // SAFETY: the rows of the tile's shape are readable, `stride` bytes apart (see `# Safety`); `self` proves that
        // the tiles are configured.
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

    /// Loads the rows of a tile from consecutive 64-byte lines.
    ///
    /// # Safety
    /// Every row of the tile's shape, from `from` on and 64 bytes apart, must be readable.
    #[inline(always)]
    pub(crate) unsafe fn load_lines<const TILE: u8>(&self, from: *const u8) {
        // SAFETY: the rows of the tile's shape are readable, 64 bytes apart (see `# Safety`).
        unsafe { self.load::<TILE>(from, LINE) }
    }

    /// Stores the rows of a tile as consecutive 64-byte lines.
    ///
    /// # Safety
    /// Every row of the tile's shape, from `to` on and 64 bytes apart, must be writable.
    #[inline(always)]
    pub(crate) unsafe fn store_lines<const TILE: u8>(&self, to: *mut u8) {
        // SAFETY: the rows of the tile's shape are writable, 64 bytes apart (see `# Safety`); `self` proves that the
        // tiles are configured.
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

    /// Adds to tile `TO` the int8 matrix product of `LEFT` and `RIGHT`. In each row of `RIGHT`, four
    /// consecutive bytes belong to one column.
    #[inline(always)]
    pub(crate) fn dot<const TO: u8, const LEFT: u8, const RIGHT: u8>(&self) {
        // SAFETY: `self` proves that the tiles are configured.
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
        // SAFETY: `self` proves that the processor has AMX.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
    }
}
