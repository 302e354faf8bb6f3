//! The eight AMX tiles and the instructions on them.

/// Bytes per tile row, and rows per tile.
const BYTES: usize = 64;
const ROWS: usize = 16;
const TILES: usize = 8;

/// Signedness of the multiplied bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signs {
    pub(crate) left: bool,
    pub(crate) right: bool,
}

/// An instruction with its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileInstruction {
    Configure { from: *const u8 },
    Release,
    Zero { tile: usize },
    Load { tile: usize, from: *const u8, stride: isize },
    Store { tile: usize, to: *mut u8, stride: isize },
    Dot { signs: Signs, to: usize, left: usize, right: usize },
}

/// The tiles of a thread.
#[derive(Clone)]
pub(crate) struct EmulatedTiles {
    rows: [usize; TILES],
    columns: [usize; TILES],
    data: [[[u8; BYTES]; ROWS]; TILES],
}

impl EmulatedTiles {
    pub(crate) const NEW: Self =
        Self { rows: [0; TILES], columns: [0; TILES], data: [[[0; BYTES]; ROWS]; TILES] };

    /// Executes an instruction. Returns `None` if a processor would raise an exception.
    ///
    /// # Safety
    /// The memory that the instruction accesses must be valid for that: for `Configure`, 64 readable bytes; for `Load`
    /// and `Store`, the bytes of each row of the tile's shape, `stride` bytes apart.
    pub(crate) unsafe fn run(&mut self, instruction: TileInstruction) -> Option<()> {
        match instruction {
            // SAFETY: 64 bytes at `from`, the size of a configuration, are readable (see `# Safety`).
            TileInstruction::Configure { from } => self.configure(unsafe { &*from.cast() }),
            TileInstruction::Release => {
                *self = Self::NEW;
                Some(())
            }
            TileInstruction::Zero { tile } => {
                self.shape(tile)?;
                self.data[tile] = [[0; BYTES]; ROWS];
                Some(())
            }
            TileInstruction::Load { tile, from, stride } => {
                let (rows, columns) = self.shape(tile)?;
                self.data[tile] = [[0; BYTES]; ROWS];
                for (row, data) in self.data[tile].iter_mut().enumerate().take(rows) {
                    let from = from.wrapping_offset(stride * row as isize);
                    // SAFETY: the row is readable for `columns` bytes (see `# Safety`), and `data` has room for 64.
                    unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), columns) };
                }
                Some(())
            }
            TileInstruction::Store { tile, to, stride } => {
                let (rows, columns) = self.shape(tile)?;
                for (row, data) in self.data[tile].iter().enumerate().take(rows) {
                    let to = to.wrapping_offset(stride * row as isize);
                    // SAFETY: the row is writable for `columns` bytes (see `# Safety`), and `data` has 64.
                    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, columns) };
                }
                Some(())
            }
            TileInstruction::Dot { signs, to, left, right } => self.dot(signs, to, left, right),
        }
    }

    fn configure(&mut self, bytes: &[u8; 64]) -> Option<()> {
        *self = Self::NEW;
        let reserved = bytes[2..16].iter().chain(&bytes[32..48]).chain(&bytes[56..]);
        if bytes[0] != 1 || bytes[1] != 0 || reserved.copied().any(|byte| byte != 0) {
            return None;
        }
        for tile in 0..TILES {
            let columns = usize::from(u16::from_le_bytes([bytes[16 + 2 * tile], bytes[17 + 2 * tile]]));
            let rows = usize::from(bytes[48 + tile]);
            if columns > BYTES || rows > ROWS || (columns == 0) != (rows == 0) {
                return None;
            }
            (self.rows[tile], self.columns[tile]) = (rows, columns);
        }
        Some(())
    }

    /// Returns the rows and bytes per row of a configured tile.
    fn shape(&self, tile: usize) -> Option<(usize, usize)> {
        let shape = (*self.rows.get(tile)?, *self.columns.get(tile)?);
        (shape.0 != 0).then_some(shape)
    }

    fn dot(&mut self, signs: Signs, to: usize, left: usize, right: usize) -> Option<()> {
        let (rows, columns) = self.shape(to)?;
        let (left_rows, left_columns) = self.shape(left)?;
        let (right_rows, right_columns) = self.shape(right)?;
        let different = to != left && to != right && left != right;
        let whole = columns.is_multiple_of(4) && left_columns.is_multiple_of(4);
        let fitting = left_rows == rows && right_columns == columns && left_columns == 4 * right_rows;
        if !(different && whole && fitting) {
            return None;
        }
        let value = |byte: u8, signed: bool| if signed { i32::from(byte as i8) } else { i32::from(byte) };
        for row in 0..rows {
            for column in 0..columns / 4 {
                let place = 4 * column..4 * column + 4;
                let mut sum = i32::from_le_bytes(self.data[to][row][place.clone()].try_into().ok()?);
                for k in 0..left_columns {
                    let a = value(self.data[left][row][k], signs.left);
                    let b = value(self.data[right][k / 4][4 * column + k % 4], signs.right);
                    sum = sum.wrapping_add(a * b);
                }
                self.data[to][row][place].copy_from_slice(&sum.to_le_bytes());
            }
        }
        Some(())
    }
}
