//! Matmul with AMX: sixteen rows times a panel of sixteen outputs in one instruction.
//!
//! Small numbers of rows are faster with vectors, and float types always use vectors: both go to the AVX-512
//! kernel.

mod blocks;
mod row_types;

use core::ops::Range;

use super::formats::by_type;
use super::row_types::{BookRow, ByteRow};
use super::run::MatmulShare;
use super::{Function, MatmulOperands, Output, avx512};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::ops::amx_tiles::{self as tiles, Shapes, Tiles};
use crate::panel::{PanelType, ROWS};
use crate::simd::Avx512;

/// Minimum number of rows of the last tile of several, and of a single tile for row types; fewer are faster with vectors.
const MIN_TILE_ROWS: usize = 9;
/// Minimum number of rows for other types, whose weights are first unpacked.
const MIN_ROWS: usize = 14;
/// The same for types with minimums, whose tiles need a correction per sub-block.
const MIN_ROWS_WITH_MINIMUMS: usize = 28;

pub(super) const KERNEL: Kernel<Function> =
    Kernel::new("matmul-amx", CpuFeatures::AVX512.with(CpuFeatures::AMX), amx);

fn amx(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    // SAFETY: the kernel list selects this entry only if the processor has AVX-512 and AMX.
    unsafe { shell(product, rows, panels, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn shell(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    let tiled = tiled_rows(product.panel, rows.len());
    let (with_tiles, with_vectors) = (rows.start..rows.start + tiled, rows.start + tiled..rows.end);
    // An empty range goes to the vector kernel too, which checks the arguments.
    if !with_vectors.is_empty() || with_tiles.is_empty() {
        avx512::shell(product, with_vectors, panels.clone(), out);
    }
    if !with_tiles.is_empty() {
        let part = MatmulShare::checked(product, with_tiles, panels, out);
        // SAFETY: the processor has AMX.
        unsafe { multiply(Avx512::inside(), &part) }
    }
}

/// Rows whose accumulators are kept at a time: a multiple of the rows of a tile.
const GROUP: usize = 128;

/// Splits `rows` into groups of up to `max_rows` rows; all but the last are multiples of `step`.
fn groups(rows: Range<usize>, step: usize, max_rows: usize) -> impl Iterator<Item = Range<usize>> {
    let whole = rows.start..rows.end - rows.len() % step;
    let rest = Some(whole.end..rows.end).filter(|rest| !rest.is_empty());
    let groups = whole.clone().step_by(max_rows).map(move |start| start..whole.end.min(start + max_rows));
    groups.chain(rest)
}

/// Returns how many of the first rows to compute with tiles.
fn tiled_rows(panel: PanelType, rows: usize) -> usize {
    let min = match panel {
        _ if panel.is_float() => return 0,
        _ if panel.is_row() => MIN_TILE_ROWS,
        _ if panel.has_min() => MIN_ROWS_WITH_MINIMUMS,
        _ => MIN_ROWS,
    };
    let over = rows % tiles::ROWS;
    match rows < min {
        true => 0,
        false if over < MIN_TILE_ROWS => rows - over,
        false => rows,
    }
}

/// # Safety
/// The processor must have AMX.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn multiply(l: Avx512, part: &MatmulShare<'_>) {
    macro_rules! blocks {
        ($plane:ty, $scheme:ty) => {
            blocks::run::<$plane, $scheme>(l, part)
        };
    }
    // SAFETY: the processor has AMX (see `# Safety`), and `part` comes from `MatmulShare::checked`.
    unsafe {
        by_type!(part.product.panel, blocks, {
            // Left to the vector kernel.
            PanelType::F32 | PanelType::F16 | PanelType::BF16 => {}
            PanelType::W8R => row_types::run::<ByteRow>(l, part),
            PanelType::W4I => row_types::run::<BookRow>(l, part),
        })
    }
}

/// A loop that only multiplies: at least `count` int8 multiply-adds.
pub(in crate::ops) fn dots(count: usize, out: &mut [f32; 16]) {
    const PRODUCTS: usize = tiles::ROWS * 64 * ROWS;
    let mut shapes = Shapes::NONE;
    for tile in 0..8 {
        shapes = shapes.with(tile, tiles::ROWS, 64);
    }
    let mut sums = [[0_i32; ROWS]; tiles::ROWS];
    // SAFETY: the kernel list selects this entry only if the processor has AMX; `sums` has room for a tile.
    unsafe {
        let tiles = Tiles::with_shapes(&shapes);
        for _ in 0..count.div_ceil(4 * PRODUCTS) {
            tiles.dot::<0, 4, 6>();
            tiles.dot::<1, 4, 7>();
            tiles.dot::<2, 5, 6>();
            tiles.dot::<3, 5, 7>();
        }
        tiles.store_lines::<0>(sums.as_mut_ptr().cast());
    }
    *out = sums[0].map(|sum| sum as f32);
}
