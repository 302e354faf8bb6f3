//! Compares the emulated instructions to plain loops of their specification.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::arch::asm;

/// Rows and bytes per row of the three tiles of a product.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    depth: usize,
    columns: usize,
}

const SHAPES: [Shape; 4] = [
    Shape { rows: 16, depth: 64, columns: 64 },
    Shape { rows: 9, depth: 32, columns: 64 },
    Shape { rows: 1, depth: 4, columns: 4 },
    Shape { rows: 16, depth: 16, columns: 32 },
];

fn configuration(shape: Shape) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let tiles =
        [(0, shape.rows, shape.columns), (1, shape.rows, shape.depth), (2, shape.depth / 4, shape.columns)];
    for (tile, rows, columns) in tiles {
        bytes[16 + 2 * tile] = columns as u8;
        bytes[48 + tile] = rows as u8;
    }
    bytes
}

fn numbers(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..count).map(|_| next()).collect()
}

macro_rules! product {
    ($instruction:literal, $shape:expr, $left:expr, $right:expr) => {{
        let shape: Shape = $shape;
        let mut out = vec![-1_i32; 16 * 16];
        let configuration = configuration(shape);
        // SAFETY: the emulator is installed, and all tiles have their place in memory.
        unsafe {
            asm!(
                "ldtilecfg [{configuration}]",
                "tilezero tmm0",
                "tileloadd tmm1, [{left} + {left_stride}*1]",
                "tileloadd tmm2, [{right} + {stride}*2 - 8]",
                $instruction,
                "tilestored [{out} + {stride}*2], tmm0",
                "tilerelease",
                configuration = in(reg) configuration.as_ptr(),
                left = in(reg) $left.as_ptr(),
                left_stride = in(reg) 80_usize,
                right = in(reg) $right.as_ptr().wrapping_add(8),
                stride = in(reg) 32_usize,
                out = in(reg) out.as_mut_ptr(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _,
                options(nostack),
            );
        }
        out
    }};
}

/// Requests permission to use AMX, if the processor has it. Then the hardware executes all instructions. Without
/// permission, it would execute the first instruction, which configures tiles, and trap on those that use them, so that
/// the emulator would lack the configuration.
fn ask_for_tiles() {
    const REQUEST: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) };
}

#[test]
fn products_match_naive_loops() {
    ask_for_tiles();
    assert!(siskin_emulator::install());
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let left = numbers(3 * seed as u64, 80 * 16);
        let right = numbers(7 + seed as u64, 64 * 16);
        let found = [
            (true, true, product!("tdpbssd tmm0, tmm1, tmm2", shape, left, right)),
            (true, false, product!("tdpbsud tmm0, tmm1, tmm2", shape, left, right)),
            (false, true, product!("tdpbusd tmm0, tmm1, tmm2", shape, left, right)),
            (false, false, product!("tdpbuud tmm0, tmm1, tmm2", shape, left, right)),
        ];
        for (left_signed, right_signed, found) in found {
            let value = |byte: u8, signed| if signed { i32::from(byte as i8) } else { i32::from(byte) };
            for row in 0..16 {
                for column in 0..16 {
                    let inside = row < shape.rows && column < shape.columns / 4;
                    let terms = (0..shape.depth).map(|k| {
                        value(left[80 * row + k], left_signed)
                            * value(right[64 * (k / 4) + 4 * column + k % 4], right_signed)
                    });
                    let want = if inside { terms.sum() } else { -1 };
                    assert_eq!(found[16 * row + column], want, "{left_signed} {right_signed} {row} {column}");
                }
            }
        }
    }
}
