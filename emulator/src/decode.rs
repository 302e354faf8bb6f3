//! Decodes AMX instructions.

use crate::amx_tiles::{Signs, TileInstruction};

/// The sixteen general registers, in encoding order, and the instruction pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) general: [u64; 16],
    pub(crate) instruction: u64,
}

/// The bytes after the prefix, read one by one.
struct Bytes {
    at: *const u8,
    length: usize,
}

impl Bytes {
    /// # Safety
    /// The instruction must have another byte.
    unsafe fn next(&mut self) -> u8 {
        // SAFETY: the instruction has a byte at `self.length` (see `# Safety`).
        let byte = unsafe { *self.at.add(self.length) };
        self.length += 1;
        byte
    }

    /// # Safety
    /// The instruction must have `size` more bytes.
    unsafe fn displacement(&mut self, size: usize) -> i64 {
        let mut bytes = [0; 4];
        for byte in &mut bytes[..size] {
            // SAFETY: the instruction has `size` more bytes (see `# Safety`).
            *byte = unsafe { self.next() };
        }
        match size {
            1 => i64::from(bytes[0] as i8),
            4 => i64::from(i32::from_le_bytes(bytes)),
            _ => 0,
        }
    }
}

/// A memory operand: address and row stride.
struct Place {
    base: u64,
    stride: u64,
}

/// Decodes the instruction at the instruction pointer and returns it with its length, or `None` if it is not an AMX
/// instruction.
///
/// # Safety
/// The instruction pointer must point to an instruction.
pub(crate) unsafe fn decode(registers: &Registers) -> Option<(TileInstruction, usize)> {
    let mut bytes = Bytes { at: registers.instruction as *const u8, length: 0 };
    // SAFETY: a byte is read only if the preceding bytes imply that the instruction continues.
    unsafe {
        if bytes.next() != 0xc4 {
            return None;
        }
        let (first, second) = (bytes.next(), bytes.next());
        // The opcode map; neither wide operands nor long vectors are allowed.
        if first & 0x1f != 2 || second & 0x84 != 0 {
            return None;
        }
        let (prefix, vector) = (second & 3, usize::from(!second >> 3 & 15));
        let (opcode, modes) = (bytes.next(), bytes.next());
        let (high, low) = (usize::from(modes >> 3 & 7), usize::from(modes & 7));
        let register = modes >> 6 == 3;
        let instruction = match (opcode, prefix, register) {
            (0x49, 0, true) if modes == 0xc0 => TileInstruction::Release,
            (0x49, 3, true) => TileInstruction::Zero { tile: high },
            (0x49, 0, false) => {
                let place = place(&mut bytes, first, modes, registers);
                TileInstruction::Configure { from: place.base as *const u8 }
            }
            (0x4b, 1 | 3, false) => {
                let place = place(&mut bytes, first, modes, registers);
                TileInstruction::Load {
                    tile: high,
                    from: place.base as *const u8,
                    stride: place.stride as isize,
                }
            }
            (0x4b, 2, false) => {
                let place = place(&mut bytes, first, modes, registers);
                TileInstruction::Store {
                    tile: high,
                    to: place.base as *mut u8,
                    stride: place.stride as isize,
                }
            }
            (0x5e, _, true) => {
                let signs = Signs { left: prefix >= 2, right: prefix % 2 == 1 };
                TileInstruction::Dot { signs, to: high, left: low, right: vector }
            }
            _ => return None,
        };
        Some((instruction, bytes.length))
    }
}

/// Reads the rest of a memory operand: `modes` is the byte that begins it.
///
/// # Safety
/// `bytes` must be followed by the rest of the operand that `modes` describes.
unsafe fn place(bytes: &mut Bytes, first: u8, modes: u8, registers: &Registers) -> Place {
    // The upper bits of register numbers are stored inverted.
    let (index_bit, base_bit) = (usize::from(!first >> 6 & 1) << 3, usize::from(!first >> 5 & 1) << 3);
    // SAFETY: the rest of the operand follows (see `# Safety`); only bytes that belong to it are read.
    unsafe {
        let (mode, low) = (modes >> 6, usize::from(modes & 7));
        let size = [0, 1, 4, 0][usize::from(mode)];
        if low != 4 {
            if mode == 0 && low == 5 {
                let offset = bytes.displacement(4);
                let next = registers.instruction + bytes.length as u64;
                return Place { base: next.wrapping_add_signed(offset), stride: 0 };
            }
            let base = registers.general[low + base_bit];
            return Place { base: base.wrapping_add_signed(bytes.displacement(size)), stride: 0 };
        }
        let scaled = bytes.next();
        let (index, base) = (usize::from(scaled >> 3 & 7) + index_bit, usize::from(scaled & 7));
        let stride = if index == 4 { 0 } else { registers.general[index] << (scaled >> 6) };
        if mode == 0 && base == 5 {
            return Place { base: bytes.displacement(4) as u64, stride };
        }
        let base = registers.general[base + base_bit];
        Place { base: base.wrapping_add_signed(bytes.displacement(size)), stride }
    }
}
