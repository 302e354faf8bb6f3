//! Recipes: which weight type each matrix is stored as.

use super::mix::{MixLayout, QuantMix};
use super::target::WeightTarget;
use siskin_format::{Error, Result};
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::RowType;
use std::fmt;
use std::str::FromStr;

/// Quantizes matrices whose source type has at least as many bits per weight. Matrices that are already smaller are
/// kept.
///
/// Token and position embeddings and the LM head stay at 8 bits or more unless `tables` is set. Written as `q4_k` or
/// `q4_k,tables=q6_k`; with `,always`, matrices of fewer bits are re-encoded too. A mix such as `q4_k_m` chooses the
/// types of embeddings and LM head itself, and quantizes neither position nor segment embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The weight type of matrices.
    pub matrices: WeightTarget,
    /// A mix, in which sensitive matrices get more bits than `matrices`.
    pub mix: Option<QuantMix>,
    /// The weight type of token and position embeddings and of the LM head.
    pub tables: Option<WeightTarget>,
    /// Whether matrices of fewer bits are re-encoded too.
    pub always: bool,
}

/// The replacement of a block type in matrices whose width is not a multiple of its block size.
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

/// Token, position and segment embeddings, and the LM head.
const TABLES: &[&str] = &["token_embd", "position_embd", "token_types", "output"];
/// The MoE router: small, and sensitive to rounding. It keeps its type.
const ROUTER: &str = "ffn_gate_inp";

impl Recipe {
    /// Returns the weight type of the matrix `name`, whose source has type `source` and rows of `columns`.
    pub(super) fn choose(
        &self,
        name: &str,
        source: BlockType,
        columns: usize,
        layout: &MixLayout,
    ) -> WeightTarget {
        let part = name.rsplit('.').nth(1).unwrap_or_default();
        if part == ROUTER {
            return WeightTarget::Block(source);
        }
        let table = TABLES.contains(&part);
        let bits = |target: WeightTarget| target.bits(columns);
        let mixed = self.mix.map(|mix| WeightTarget::Block(mix.choose(name, source, layout)));
        let wanted = match (table, self.tables.filter(|_| table).or(mixed)) {
            (_, Some(chosen)) => chosen,
            (true, None) if bits(self.matrices) < 8.0 => match self.matrices {
                WeightTarget::Block(_) => WeightTarget::Block(BlockType::Q8_0),
                WeightTarget::Row(_) => WeightTarget::Row(RowType::W8R),
            },
            _ => self.matrices,
        };
        let (wanted, source) = (fitting(wanted, columns), WeightTarget::Block(source));
        // A row type is preferred over a block type of the same bits: its matmuls are faster.
        let keeps = match wanted {
            WeightTarget::Block(_) => bits(source) < bits(wanted),
            WeightTarget::Row(_) => bits(source) + 0.25 < bits(wanted),
        };
        if keeps && !self.always { source } else { wanted }
    }
}

fn fitting(wanted: WeightTarget, columns: usize) -> WeightTarget {
    if wanted.row_bytes(columns).is_some() {
        return wanted;
    }
    let WeightTarget::Block(block) = wanted else {
        return fitting(WeightTarget::Block(BlockType::Q8_0), columns);
    };
    let other = FALLBACKS.iter().find(|(known, _)| *known == block).map(|&(_, other)| other);
    match other.filter(|other| other.row_bytes(columns).is_some() && other.codec().can_quantize()) {
        Some(other) => WeightTarget::Block(other),
        None => WeightTarget::Block(BlockType::F16),
    }
}

impl FromStr for Recipe {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mix = QuantMix::from_name(name);
        let matrices = mix.map_or_else(|| target(name), |mix| Ok(WeightTarget::Block(mix.base())))?;
        let mut recipe = Self { matrices, mix, tables: None, always: false };
        for part in parts {
            match part.strip_prefix("tables=") {
                Some(tables) => recipe.tables = Some(target(tables)?),
                None if part == "always" => recipe.always = true,
                None => {
                    let message = format!("expected TYPE[,tables=TYPE][,always], found '{text}'");
                    return Err(Error::argument("quant", message));
                }
            }
        }
        Ok(recipe)
    }
}

fn target(text: &str) -> Result<WeightTarget> {
    WeightTarget::from_name(text.trim()).ok_or_else(|| {
        let types = WeightTarget::all().map(|target| target.to_string());
        let known: Vec<_> = types.chain(QuantMix::names().map(str::to_owned)).collect();
        let name = text.trim();
        let readable = BlockType::ALL.iter().any(|ty| ty.name().eq_ignore_ascii_case(name));
        let what = if readable { "can be read but not written" } else { "is not a known weight type" };
        Error::argument("quant", format!("`{name}` {what}; expected one of {}", known.join(", ")))
    })
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mix {
            Some(mix) => f.write_str(mix.name())?,
            None => write!(f, "{}", self.matrices)?,
        }
        if let Some(tables) = self.tables {
            write!(f, ",tables={tables}")?;
        }
        if self.always { f.write_str(",always") } else { Ok(()) }
    }
}
