//! GGUF tensor types and their block sizes.

/// `(id, name, elements per block, bytes per block)` of every type that occurs in files.
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

/// Returns `(elements, bytes)` of a block of the type with this id, if known.
pub fn block_of(ggml_type: u32) -> Option<(u64, u64)> {
    TYPES.iter().find(|row| row.0 == ggml_type).map(|&(_, _, elements, bytes)| (elements, bytes))
}

/// Returns the name of the type with this id, if known.
pub fn type_name(ggml_type: u32) -> Option<&'static str> {
    TYPES.iter().find(|row| row.0 == ggml_type).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siskin_kernels::quant::BlockType;
    use std::collections::HashSet;

    #[test]
    fn every_block_type_has_the_number_name_and_sizes_of_its_line() {
        for &block in BlockType::ALL {
            let codec = block.codec();
            let line = TYPES.iter().find(|row| row.0 == codec.gguf_id);
            let want = (codec.gguf_id, codec.name, codec.elements as u64, codec.bytes as u64);
            assert_eq!(line, Some(&want), "{}: files with this type are rejected", block.name());
        }
    }

    #[test]
    fn numbers_and_names_are_unique() {
        let numbers: HashSet<u32> = TYPES.iter().map(|row| row.0).collect();
        let names: HashSet<&str> = TYPES.iter().map(|row| row.1).collect();
        assert_eq!((numbers.len(), names.len()), (TYPES.len(), TYPES.len()));
    }
}
