//! Keys and values of cached embeddings.

use siskin_kernels::ops::attention::CacheType;

use super::{Key, options};
use crate::encoder::EmbedOptions;
use crate::model::Model;

/// Returns the key of the embedding of `text`.
pub(crate) fn embedding_key(model: &Model, kind: CacheType, options: &EmbedOptions, text: &str) -> Key {
    let model = Key::of_model(model, options.adapter);
    let options = options::of_embedding(kind, options);
    Key::of("embed", &[model.bytes(), &options, text.as_bytes()])
}

/// Decodes a value to f32; `None` if it does not consist of `columns` finite values.
pub(crate) fn numbers_of(value: &[u8], columns: usize) -> Option<Vec<f32>> {
    let (numbers, rest) = value.as_chunks();
    let numbers: Vec<f32> = numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let good = rest.is_empty() && numbers.len() == columns && numbers.iter().all(|x| x.is_finite());
    good.then_some(numbers)
}
