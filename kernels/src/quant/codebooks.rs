//! Codebooks of the 4-bit formats with non-uniform levels.

/// The sixteen levels of IQ4_NL and IQ4_XS.
pub const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The sixteen levels of W4i.
pub const W4I: [i8; 16] = [-10, -8, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 9];

/// The levels of W4i plus an offset that makes them non-negative, for vector code.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) const W4I_RAISED: [i8; 16] = {
    let mut raised = W4I;
    let mut i = 0;
    while i < 16 {
        raised[i] += 10;
        i += 1;
    }
    raised
};

/// The factors of W4i, indexed by code.
pub(crate) const W4I_FACTORS: [i8; 16] = [5, 6, 7, 8, 9, 10, 11, 12, -5, -6, -7, -8, -9, -10, -11, -12];

/// The sixteen values of FP4 (E2M1), doubled so that they are integers. Code 8 is a plain zero.
pub const FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
