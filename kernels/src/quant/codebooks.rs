//! Value tables of the 4-bit formats that are not evenly spaced.

/// The sixteen levels of IQ4_NL and IQ4_XS.
pub const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The sixteen values of FP4 (E2M1), doubled so that they are integers. Code 8 is a plain zero.
pub const FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
