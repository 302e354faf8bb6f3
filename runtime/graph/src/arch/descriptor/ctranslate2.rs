//! A family in CTranslate2 folders. The names of variables belong to the specification and not to the family.

use super::HasTensor;
use serde_json::{Map, Value, json};
use siskin_format::{Error, ErrorKind, Result};

/// A family in CTranslate2 folders.
#[derive(Clone, Copy)]
pub struct Ctranslate2Config {
    /// The specification of its models; empty if CTranslate2 does not have the family.
    pub specification: &'static str,
    /// Returns true for the models of this specification that are of the family, by the tensors that they have.
    pub recognizes: fn(HasTensor<'_>) -> bool,
    /// Whether queries are divided by the square root of the head size.
    pub scales_queries: bool,
    /// Reads the hyperparameters, under the keys of Hugging Face.
    pub config: fn(&dyn Ctranslate2Source) -> Result<Map<String, Value>>,
}

impl Ctranslate2Config {
    /// A family that is not opened from CTranslate2 folders.
    pub const NONE: Self = Self {
        specification: "",
        recognizes: |_| false,
        scales_queries: true,
        config: |_| Err(Error::unsupported("model.bin", "the family is not read from CTranslate2 folders")),
    };
}

/// Activations by their id in `model.bin`, with their Hugging Face names.
const ACTIVATIONS: &[(u32, &str)] = &[(0, "relu"), (1, "gelu_new"), (2, "silu"), (3, "gelu")];

/// A CTranslate2 model. Tensors have their names in `.siskin` files, scalars those of `model.bin`.
pub trait Ctranslate2Source {
    /// Returns a scalar.
    fn number(&self, name: &str) -> Option<f64>;

    /// Returns true if a scalar is a boolean, or missing.
    fn is_flag(&self, name: &str) -> bool;

    /// Returns true if the model has the tensor.
    fn has(&self, name: &str) -> bool;

    /// Returns the rows and columns of a tensor.
    fn shape(&self, name: &str) -> Result<(usize, usize)>;

    /// Returns the number of layers of the `encoder` or the `decoder`.
    fn layers(&self, side: &str) -> usize;

    /// Returns the epsilon of norms, or `None` if the configuration uses CTranslate2's default.
    fn epsilon(&self) -> Option<f64>;

    /// Returns true if generated sequences start with an additional token with a zero embedding.
    fn starts_from_zero(&self) -> bool;

    /// Returns the rows of a tensor.
    fn rows(&self, name: &str) -> Result<usize> {
        self.shape(name).map(|shape| shape.0)
    }

    /// Returns the number of heads of the `encoder` or the `decoder`.
    fn heads(&self, side: &str) -> Result<usize> {
        let place = format!("{side}/num_heads");
        let heads = self.number(&place).filter(|heads| (1.0..=4096.0).contains(heads));
        heads
            .map(|heads| heads as usize)
            .ok_or_else(|| Error::new(ErrorKind::Missing, &place, "model.bin has no valid number of heads"))
    }

    /// Returns the head size of a side, whose tensors' names start with `stem`.
    fn head_size(&self, side: &str, stem: &str) -> Result<usize> {
        Ok(self.rows(&format!("{stem}blk.0.attn_q.weight"))? / self.heads(side)?)
    }

    /// Returns the activation of a side.
    fn activation(&self, side: &str, default: &'static str) -> Result<&'static str> {
        let place = format!("{side}/activation");
        let Some(number) = self.number(&place) else { return Ok(default) };
        let known = ACTIVATIONS.iter().find(|(known, _)| f64::from(*known) == number);
        known
            .map(|(_, name)| *name)
            .ok_or_else(|| Error::unsupported(place, format!("activation {number} is not supported")))
    }

    /// Returns the activation, which must be the same on both sides.
    fn one_activation(&self, default: &'static str) -> Result<&'static str> {
        let (read, written) = (self.activation("encoder", default)?, self.activation("decoder", default)?);
        // Whisper's encoder has no setting of its own.
        match self.number("encoder/activation") {
            Some(_) if read != written => {
                let message = format!("{written}, but the encoder has {read}");
                Err(Error::unsupported("decoder/activation", message))
            }
            _ => Ok(written),
        }
    }

    /// Returns true if embeddings are scaled by the square root of the hidden size, which must be the same on all
    /// sides.
    fn scaled_embeddings(&self, width: usize, sides: &[&str]) -> Result<bool> {
        let root = (width as f64).sqrt();
        let of_side = |side: &&str| {
            let place = format!("{side}/scale_embeddings");
            match self.number(&place) {
                None => Ok(true),
                Some(flag) if self.is_flag(&place) => Ok(flag != 0.0),
                Some(factor) if (factor - 1.0).abs() < 1e-6 => Ok(false),
                Some(factor) if (factor - root).abs() < 1e-3 => Ok(true),
                Some(factor) => Err(Error::unsupported(
                    place,
                    format!("a factor of {factor} for width {width} is not supported"),
                )),
            }
        };
        let flags = sides.iter().map(of_side).collect::<Result<Vec<_>>>()?;
        match flags.as_slice() {
            [first, rest @ ..] if rest.iter().all(|flag| flag == first) => Ok(*first),
            _ => Err(Error::unsupported("decoder/scale_embeddings", "differs from the encoder's")),
        }
    }
}

/// Returns the sizes of an encoder–decoder model.
pub(in crate::arch) fn sequence_to_sequence_sizes(
    source: &dyn Ctranslate2Source,
    width: usize,
    tokens: usize,
) -> Result<Map<String, Value>> {
    Ok(object(json!({
        "d_model": width,
        "vocab_size": tokens,
        "encoder_layers": source.layers("encoder"),
        "decoder_layers": source.layers("decoder"),
        "encoder_attention_heads": source.heads("encoder")?,
        "decoder_attention_heads": source.heads("decoder")?,
        "encoder_ffn_dim": source.rows("enc.blk.0.ffn_up.weight")?,
        "decoder_ffn_dim": source.rows("dec.blk.0.ffn_up.weight")?,
    })))
}

/// Returns the entries of a JSON object.
pub(in crate::arch) fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(object) = value { object } else { Map::new() }
}
