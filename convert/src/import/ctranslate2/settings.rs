//! Translates a model's shapes, scalars and configuration to the keys of Hugging Face configurations. Families read
//! their own hyperparameters; this adds what all have in common.

use super::{Ctranslate2Folder, DataType, ModelTopology, Names, VocabularyRole};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};
use siskin_graph::arch::{Ctranslate2Source, FamilyDescriptor};

/// Keys of `config.json` and their Hugging Face equivalents.
const RENAMED: &[(&str, &str)] =
    &[("suppress_ids", "suppress_tokens"), ("suppress_ids_begin", "begin_suppress_tokens")];
/// Tokens that `config.json` names, and the keys for their ids.
const TOKENS: &[(&str, &str)] = &[
    ("bos_token", "bos_token_id"),
    ("eos_token", "eos_token_id"),
    ("decoder_start_token", "decoder_start_token_id"),
];
/// Settings of an encoder or decoder that no family supports.
const FOREIGN: &[&str] = &["alibi", "scale_alibi", "rotary_dim", "parallel_residual"];

/// Reads the hyperparameters and checks that the family supports all settings.
pub(super) fn settings(
    folder: &Ctranslate2Folder,
    names: &Names,
    descriptor: &FamilyDescriptor,
    zero_start: bool,
) -> Result<Map<String, Value>> {
    let settings = ConversionSettings { folder, names, zero_start };
    let mut config = folder.config.clone();
    for (theirs, ours) in RENAMED {
        if let Some(ids) = config.remove(*theirs) {
            config.insert((*ours).to_owned(), ids);
        }
    }
    // Tensors of models with one side have names without it.
    let sides: &[(&str, &str)] = match names.layout() {
        ModelTopology::Encoder => &[("encoder", "")],
        ModelTopology::Decoder => &[("decoder", "")],
        _ => &[("encoder", "enc."), ("decoder", "dec.")],
    };
    sides.iter().try_for_each(|(side, stem)| check(&settings, side, stem, descriptor))?;
    config.extend((descriptor.ctranslate2.config)(&settings)?);
    settings.token_ids(&mut config);
    Ok(config)
}

struct ConversionSettings<'a> {
    folder: &'a Ctranslate2Folder,
    names: &'a Names,
    zero_start: bool,
}

impl Ctranslate2Source for ConversionSettings<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        self.folder.container.number(name)
    }

    fn is_flag(&self, name: &str) -> bool {
        let variable = self.folder.container.get(name);
        variable.is_none_or(|variable| variable.data_type == DataType::Int8)
    }

    fn has(&self, name: &str) -> bool {
        self.names.find(&self.folder.container, name).is_some()
    }

    fn shape(&self, name: &str) -> Result<(usize, usize)> {
        let matrix = self.names.matrix(&self.folder.container, name)?;
        Ok((matrix.rows, matrix.columns))
    }

    fn layers(&self, side: &str) -> usize {
        self.folder.layers(side)
    }

    fn epsilon(&self) -> Option<f64> {
        self.folder.config.get("layer_norm_epsilon").and_then(Value::as_f64)
    }

    fn starts_from_zero(&self) -> bool {
        self.zero_start
    }
}

/// Rejects settings of a side that the family's graph does not support. The names of its tensors start with `stem`.
fn check(
    source: &dyn Ctranslate2Source,
    side: &str,
    stem: &str,
    descriptor: &FamilyDescriptor,
) -> Result<()> {
    for name in FOREIGN {
        let location = format!("{side}/{name}");
        if source.number(&location).is_some_and(|value| value != 0.0) {
            let message = "not supported; convert the original model";
            return Err(Error::unsupported(location, message));
        }
    }
    let first = source.number(&format!("{side}/pre_norm")).is_none_or(|flag| flag != 0.0);
    if first != source.has(&format!("{stem}output_norm.weight")) {
        let message = "the norms are placed as in no supported family; convert the original model";
        return Err(Error::unsupported(format!("{side}/pre_norm"), message));
    }
    let usual = match descriptor.ctranslate2.scales_queries {
        true => (source.head_size(side, stem)? as f64).powf(-0.5),
        false => 1.0,
    };
    let scale = source.number(&format!("{side}/layer_0/self_attention/queries_scale"));
    let scale = scale.unwrap_or_else(|| (source.head_size(side, stem).unwrap_or(1) as f64).powf(-0.5));
    if (scale - usual).abs() > 1e-6 {
        let location = format!("{side}/layer_0/self_attention/queries_scale");
        return Err(Error::unsupported(
            location,
            format!("{scale}, but {} requires {usual}", descriptor.family.name),
        ));
    }
    Ok(())
}

impl ConversionSettings<'_> {
    /// Adds the ids of the tokens that the configuration names.
    fn token_ids(&self, config: &mut Map<String, Value>) {
        let roles = [VocabularyRole::Model, VocabularyRole::Shared, VocabularyRole::Target];
        let Some(tokens) = roles.into_iter().find_map(|role| self.folder.vocabulary(role)) else { return };
        for (name, key) in TOKENS {
            let id = config.get(*name).and_then(Value::as_str);
            let id = id.and_then(|text| tokens.tokens.iter().position(|token| token == text));
            if let Some(id) = id {
                config.entry(*key).or_insert_with(|| json!(id));
            }
        }
        if self.zero_start
            && let Some(last) = config.get("vocab_size").and_then(Value::as_u64)
        {
            config.insert("decoder_start_token_id".to_owned(), json!(last.saturating_sub(1)));
        }
    }
}
