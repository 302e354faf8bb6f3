//! A family in ONNX models.

/// Names of tensors in ONNX models that are neither those of the Hugging Face model nor derived from them.
#[derive(Clone, Copy, Debug)]
pub struct OnnxNames {
    /// Endings of names, and the Hugging Face names of these tensors.
    pub endings: &'static [(&'static str, &'static str)],
}

impl OnnxNames {
    /// All names are those of the Hugging Face model.
    pub const NONE: Self = Self { endings: &[] };

    /// Exporters name the token embeddings that encoder and decoder share by one of their users.
    pub const SHARED_EMBEDDINGS: Self = Self { endings: &[("embed_tokens.weight", "shared.weight")] };
}
