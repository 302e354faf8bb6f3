//! Sizes of packed tensors by panel type number.

/// Columns and 64-byte lines of a block of each panel type.
const BLOCKS: &[(u64, u64)] = &[
    (64, 64),
    (64, 32),
    (64, 32),
    (64, 17),
    (64, 20),
    (64, 9),
    (64, 10),
    (64, 9),
    (64, 9),
    (64, 11),
    (64, 12),
    (256, 37),
    (256, 45),
    (256, 53),
    (256, 29),
    (256, 21),
    (256, 35),
    (256, 17),
];

pub(super) fn tensor_bytes(panel: u16, rows: u64, columns: u64) -> Option<u64> {
    let &(block, lines) = BLOCKS.get(panel as usize)?;
    let panels = rows.div_ceil(16);
    panels.checked_mul(columns.div_ceil(block))?.checked_mul(lines * 64)
}
