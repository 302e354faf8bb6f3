//! A family in GGUF files, as llama.cpp reads them.

use super::{ExportedModel, FamilyDescriptor, NamedValues};
use crate::arch::TensorRule;
use siskin_format::Result;

/// A family in GGUF files.
pub struct GgufConfig {
    /// The `general.architecture` values, the usual one first; empty if llama.cpp has none.
    pub architectures: &'static [&'static str],
    /// The tensor map, for tensors with other names or layouts only.
    pub rules: &'static [&'static [TensorRule]],
    /// The metadata keys, for models from formats that have other keys.
    pub keys: GgufKeys,
}

impl GgufConfig {
    /// A family that llama.cpp does not have.
    pub const NONE: Self = Self { architectures: &[], rules: &[], keys: GgufKeys::NONE };
}

/// The sliding windows that llama.cpp applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufWindows {
    /// None: it runs the model with full attention.
    None,
    /// Those of any layers.
    Any,
    /// Those of all layers except each *n*th.
    Periodic,
}

/// The metadata keys in which a configuration is written, and what llama.cpp makes of them.
#[derive(Clone, Copy)]
pub struct GgufKeys {
    /// The family as which llama.cpp runs the model, if it is another.
    pub runs_as: Option<&'static FamilyDescriptor>,
    /// The architecture for models with bidirectional attention.
    pub bidirectional: Option<&'static str>,
    /// Sliding windows.
    pub windows: GgufWindows,
    /// Whether llama.cpp requires a separate LM head.
    pub requires_output: bool,
    /// Whether llama.cpp derives the attention scale from other sizes.
    pub derives_scale: bool,
    /// The number of layers from which llama.cpp's mixes give the values of models with GQA more bits.
    pub many_layers: Option<usize>,
    /// Adds to the keys, of which one that is there already is replaced, and to the notes about what llama.cpp
    /// computes differently.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](siskin_format::ErrorKind::Unsupported) if llama.cpp cannot run the model.
    pub others: fn(&ExportedModel<'_>, &mut Vec<String>) -> Result<NamedValues>,
}

impl GgufKeys {
    /// No keys but those of all families.
    pub const NONE: Self = Self {
        runs_as: None,
        bidirectional: None,
        windows: GgufWindows::None,
        requires_output: false,
        derives_scale: false,
        many_layers: None,
        others: |_, _| Ok(Vec::new()),
    };
}

/// Returns the period of layers without a sliding window, where layers are numbered from `first`, or `None` if the
/// layers have no such period.
pub fn sliding_period(windows: &[Option<usize>], first: usize) -> Option<usize> {
    let fits = |period: &usize| {
        windows.iter().zip(first..).all(|(window, layer)| window.is_none() == layer.is_multiple_of(*period))
    };
    (1..=windows.len().max(6)).find(fits)
}
