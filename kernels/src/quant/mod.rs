//! Block codecs of the GGUF quantization types.
//!
//! A codec defines how many weights a block holds, its size in bytes, how the bytes are converted to f32
//! values and, if there is an encoder, back. Decoding is bit-identical to the `gguf` Python package.
//!
//! To add a type: one file with a `CODEC`, one line in the list below, and golden blocks in `tests/data/codecs/`.

pub(crate) mod bit_fields;
pub mod codebooks;
mod grids;
pub mod row;
mod search;
mod two_level;

use crate::panel::PanelType;
use bit_fields::BlockFields;

/// Encodes one block: values, optional importance of each value, bytes of the block.
pub(crate) type Quantize = fn(&[f32], Option<&[f32]>, &mut [u8]);

/// Splits block number `slot` of a panel block into its fields.
pub(crate) type Split = fn(block: &[u8], slot: usize, parts: &mut BlockFields);

/// Writes block number `slot` of a panel block from its fields.
pub(crate) type Join = fn(parts: &BlockFields, slot: usize, block: &mut [u8]);

/// The codec of one block type.
pub struct BlockCodec {
    /// The name, as GGUF tools print it.
    pub name: &'static str,
    /// The ggml type number.
    pub gguf_id: u32,
    /// Weights per block.
    pub elements: usize,
    /// Bytes per block.
    pub bytes: usize,
    /// The panel type that holds these weights exactly.
    pub panel: PanelType,
    form: BlockForm,
    quantize: Option<Quantize>,
    join: Option<Join>,
}

/// How the bytes of a block are interpreted.
#[derive(Clone, Copy)]
pub(crate) enum BlockForm {
    /// Elements of a float format; the function converts any whole number of them.
    Float(fn(&[u8], &mut [f32])),
    /// Codes and scales; the function splits block number `slot` of a panel block into its fields.
    Integer(Split),
}

impl BlockCodec {
    /// Dequantizes one block; returns `false`, with nothing written, if a length does not match the type.
    pub fn dequantize(&self, block: &[u8], out: &mut [f32]) -> bool {
        block.len() == self.bytes && out.len() == self.elements && self.dequantize_blocks(block, out)
    }

    /// Quantizes one block, minimizing the squared error weighted by `weights` (all equal if `None`) within the
    /// search space. Returns `false`, with nothing written, if a length does not match the type or the type
    /// has no encoder.
    pub fn quantize(&self, values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) -> bool {
        values.len() == self.elements
            && block.len() == self.bytes
            && self.quantize_blocks(values, weights, block)
    }

    /// Returns whether the type has an encoder.
    pub fn can_quantize(&self) -> bool {
        self.quantize.is_some()
    }

    /// Returns whether [`unpack`](crate::panel::unpack) restores the blocks from panels.
    pub fn can_unpack(&self) -> bool {
        matches!(self.form, BlockForm::Float(_)) || self.join.is_some()
    }

    pub(crate) fn form(&self) -> BlockForm {
        self.form
    }

    /// Returns the inverse of `split`; `None` if the fields do not determine every bit of a block.
    pub(crate) fn join(&self) -> Option<Join> {
        self.join
    }

    fn dequantize_blocks(&self, blocks: &[u8], out: &mut [f32]) -> bool {
        match self.form {
            BlockForm::Float(convert) => convert(blocks, out),
            BlockForm::Integer(split) => {
                let meaning = self.panel.layout().meaning;
                let mut parts = BlockFields::ZERO;
                for (block, out) in blocks.chunks_exact(self.bytes).zip(out.chunks_exact_mut(self.elements)) {
                    split(block, 0, &mut parts);
                    meaning.evaluate(&parts, 0, &parts.codes[..self.elements], out);
                }
            }
        }
        true
    }

    fn quantize_blocks(&self, values: &[f32], weights: Option<&[f32]>, blocks: &mut [u8]) -> bool {
        let Some(quantize) = self.quantize else { return false };
        if weights.is_some_and(|weights| weights.len() != values.len()) {
            return false;
        }
        for (i, block) in blocks.chunks_exact_mut(self.bytes).enumerate() {
            let columns = i * self.elements..(i + 1) * self.elements;
            quantize(&values[columns.clone()], weights.map(|weights| &weights[columns]), block);
        }
        true
    }
}

macro_rules! block_types {
    ($($name:ident => $file:ident :: $codec:ident,)*) => {
        /// A GGUF quantization type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "the names of the format")]
        pub enum BlockType {
            $(#[doc = concat!("The type `", stringify!($name), "`.")] $name,)*
        }

        impl BlockType {
            /// All types.
            pub const ALL: &[BlockType] = &[$(BlockType::$name,)*];

            /// Returns the codec of the type.
            pub fn codec(self) -> &'static BlockCodec {
                static CODECS: &[BlockCodec] = &[$($file::$codec,)*];
                &CODECS[self as usize]
            }
        }
    };
}

macro_rules! files {
    ($($file:ident)*) => { $(mod $file;)* };
}

files! { float iq1 iq2 iq3 iq4_nl iq4_xs mxfp4 q2_k q3_k q4_0 q4_1 q4_k q5_0 q5_1 q5_k q6_k q8_0 tq1_0 tq2_0 }

block_types! {
    F32 => float::F32,
    F16 => float::F16,
    BF16 => float::BF16,
    Q4_0 => q4_0::CODEC,
    Q4_1 => q4_1::CODEC,
    Q5_0 => q5_0::CODEC,
    Q5_1 => q5_1::CODEC,
    Q8_0 => q8_0::CODEC,
    Q2_K => q2_k::CODEC,
    Q3_K => q3_k::CODEC,
    Q4_K => q4_k::CODEC,
    Q5_K => q5_k::CODEC,
    Q6_K => q6_k::CODEC,
    IQ1_S => iq1::SMALL,
    IQ1_M => iq1::MEDIUM,
    IQ2_XXS => iq2::TINY,
    IQ2_XS => iq2::EXTRA_SMALL,
    IQ2_S => iq2::SMALL,
    IQ3_XXS => iq3::TINY,
    IQ3_S => iq3::SMALL,
    IQ4_NL => iq4_nl::CODEC,
    IQ4_XS => iq4_xs::CODEC,
    MXFP4 => mxfp4::CODEC,
    TQ1_0 => tq1_0::CODEC,
    TQ2_0 => tq2_0::CODEC,
}

impl BlockType {
    /// Returns the type with a ggml type number.
    pub fn from_gguf(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.codec().gguf_id == id)
    }

    /// Returns the type with a name, such as `Q4_K`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.codec().name == name)
    }

    /// Returns the name, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.codec().name
    }

    /// Returns the bytes of a row of `k` weights; `None` if `k` is not a whole number of blocks or the size
    /// overflows.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        let codec = self.codec();
        if !k.is_multiple_of(codec.elements) {
            return None;
        }
        (k / codec.elements).checked_mul(codec.bytes)
    }

    /// Dequantizes a row into `out`; returns `false`, with nothing written, if the lengths do not match.
    pub fn dequantize_row(self, row: &[u8], out: &mut [f32]) -> bool {
        self.row_bytes(out.len()) == Some(row.len()) && self.codec().dequantize_blocks(row, out)
    }

    /// Quantizes a row, with errors weighted by `weights` (all equal if `None`); returns `false`, with nothing
    /// written, if the lengths do not match or the type has no encoder.
    pub fn quantize_row(self, values: &[f32], weights: Option<&[f32]>, row: &mut [u8]) -> bool {
        self.row_bytes(values.len()) == Some(row.len()) && self.codec().quantize_blocks(values, weights, row)
    }
}
