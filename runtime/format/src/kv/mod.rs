//! The `.siskin-kv` file: the tokens of a sequence, its KV cache, and what a session keeps beside them.
//!
//! `docs/format-kv.md` specifies every byte. The container is that of `.siskin` files. Blocks have hashes of their own,
//! so that a reader can check those that it uses.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::KvFile;
pub use write::KvFileWriter;

use crate::container::{ContainerFormat, Hash, SectionRule};

/// The first bytes of every `.siskin-kv` file.
pub const MAGIC: [u8; 8] = *b"SISKINKV";
/// Readers reject files of another major version.
const MAJOR: u16 = 1;
const MINOR: u16 = 0;
/// Every block starts at a multiple of this.
const BLOCK_ALIGNMENT: u64 = 64;
/// Bytes of a record of the block table.
const RECORD_BYTES: usize = 48;

/// The model that computed a KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvIdentity {
    /// A hash of the model's weights and its adapter.
    pub model: [u8; 32],
    /// The layers that were skipped.
    pub skipped_layers: Vec<u32>,
}

impl std::fmt::Display for KvGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.positions {
            KvPositions::Full => write!(f, "all positions"),
            KvPositions::SlidingWindow { window, sinks } => {
                write!(f, "a window of {window} + {sinks} positions")
            }
            KvPositions::Transient => write!(f, "no positions"),
            KvPositions::CrossAttention => write!(f, "the positions of an encoded input"),
            KvPositions::RecurrentState => write!(f, "a recurrent state"),
        }?;
        write!(f, " ({})", self.block_format)
    }
}

/// Which positions a group of layers keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvPositions {
    /// All.
    Full,
    /// The last `window`, and the first `sinks`.
    SlidingWindow {
        /// The number of newest positions.
        window: u32,
        /// The number of oldest positions (attention sinks).
        sinks: u32,
    },
    /// None between two batches.
    Transient,
    /// Those of an encoded input.
    CrossAttention,
    /// None: the state of a recurrence.
    RecurrentState,
}

/// The layout of the blocks of a group of layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroup {
    /// Which positions it keeps.
    pub positions: KvPositions,
    /// The size of a block in words of four bytes.
    pub block_words: u32,
    /// What the words are, such as `F16 11520`. Blocks can be exchanged if these are equal.
    pub block_format: String,
}

/// The layout of a KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Positions per block.
    pub block_positions: u32,
    /// The groups of layers.
    pub groups: Vec<KvGroup>,
}

/// The numbers of the kinds of sections.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum SectionKind {
    Identity = 1,
    Layout = 2,
    Tokens = 3,
    BlockTable = 4,
    Blocks = 5,
    Session = 6,
}

impl SectionKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Layout => "layout",
            Self::Tokens => "tokens",
            Self::BlockTable => "block table",
            Self::Blocks => "blocks",
            Self::Session => "session",
        }
    }
}

static CONTAINER: ContainerFormat = ContainerFormat {
    magic: MAGIC,
    major: MAJOR,
    minor: MINOR,
    extension: ".siskin-kv",
    kinds: &[
        rule(SectionKind::Identity),
        rule(SectionKind::Layout),
        rule(SectionKind::Tokens),
        rule(SectionKind::BlockTable),
        SectionRule { alignment: BLOCK_ALIGNMENT, ..rule(SectionKind::Blocks) },
        rule(SectionKind::Session),
    ],
};

const fn rule(kind: SectionKind) -> SectionRule {
    SectionRule::new(kind as u32, kind.name())
}

/// A record of the block table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BlockRecord {
    group: u32,
    /// The number of the block in the sequence: its first position divided by the positions per block.
    index: u32,
    /// From the start of the file.
    offset: u64,
    hash: Hash,
}

/// Returns the hash of the blocks section: over the hashes of its blocks.
fn blocks_hash(records: &[BlockRecord]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for record in records {
        hasher.update(&record.hash);
    }
    *hasher.finalize().as_bytes()
}
