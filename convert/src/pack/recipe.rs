//! Which type each matrix is stored as.

use siskin::{Error, Result};
use siskin_kernels::quant::BlockType;
use std::fmt;
use std::str::FromStr;

/// Re-encodes matrices whose source takes at least as many bits; what is smaller already stays as it is.
///
/// Token and position tables and the output matrix stay at 8 bits or more where `tables` does not say otherwise.
/// Written as `q4_k`, or `q4_k,tables=q6_k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The type of matrices.
    pub matrices: BlockType,
    /// The type of token and position tables and of the output matrix.
    pub tables: Option<BlockType>,
}

/// What a type becomes in matrices whose columns are not whole blocks of it.
const FALLBACKS: &[(BlockType, BlockType)] = &[
    (BlockType::Q2_K, BlockType::IQ4_NL),
    (BlockType::Q3_K, BlockType::IQ4_NL),
    (BlockType::IQ4_XS, BlockType::IQ4_NL),
    (BlockType::Q4_K, BlockType::Q5_0),
    (BlockType::Q5_K, BlockType::Q5_1),
    (BlockType::Q6_K, BlockType::Q8_0),
    (BlockType::TQ1_0, BlockType::Q4_0),
    (BlockType::TQ2_0, BlockType::Q4_0),
];

impl Recipe {
    /// The type of the matrix `name`, whose source has type `source` and rows of `columns`.
    pub(super) fn choose(&self, name: &str, source: BlockType, columns: usize) -> BlockType {
        let table = ["token_embd.weight", "position_embd.weight", "output.weight"].contains(&name);
        let wanted = match (table, self.tables) {
            (true, Some(tables)) => tables,
            (true, None) if bits(self.matrices) < bits(BlockType::Q8_0) => BlockType::Q8_0,
            _ => self.matrices,
        };
        let wanted = fitting(wanted, columns);
        if bits(source) >= bits(wanted) { wanted } else { source }
    }
}

/// Bits per weight.
fn bits(block: BlockType) -> f64 {
    let codec = block.codec();
    8.0 * codec.bytes as f64 / codec.elements as f64
}

fn fitting(wanted: BlockType, columns: usize) -> BlockType {
    if wanted.row_bytes(columns).is_some() {
        return wanted;
    }
    let other = FALLBACKS.iter().find(|(block, _)| *block == wanted).map(|&(_, other)| other);
    match other.filter(|other| other.row_bytes(columns).is_some() && other.codec().can_encode()) {
        Some(other) => other,
        None => BlockType::F16,
    }
}

impl FromStr for Recipe {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (matrices, tables) = match text.split_once(',') {
            None => (text, None),
            Some((matrices, rest)) => {
                let tables = rest.trim().strip_prefix("tables=").ok_or_else(|| {
                    Error::argument("quant", format!("expected TYPE or TYPE,tables=TYPE, found '{text}'"))
                })?;
                (matrices, Some(block(tables)?))
            }
        };
        Ok(Self { matrices: block(matrices)?, tables })
    }
}

fn block(text: &str) -> Result<BlockType> {
    let found =
        BlockType::from_name(&text.trim().to_ascii_uppercase()).filter(|block| block.codec().can_encode());
    found.ok_or_else(|| {
        let known = BlockType::ALL.iter().filter(|block| block.codec().can_encode());
        let known: Vec<_> = known.map(|block| block.name().to_ascii_lowercase()).collect();
        Error::argument(
            "quant",
            format!("no type '{}' to write; there are {}", text.trim(), known.join(", ")),
        )
    })
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.matrices.name().to_ascii_lowercase())?;
        match self.tables {
            Some(tables) => write!(f, ",tables={}", tables.name().to_ascii_lowercase()),
            None => Ok(()),
        }
    }
}
