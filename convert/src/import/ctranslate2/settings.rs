//! Translates a model's shapes, scalars and configuration to the keys of Hugging Face configurations.

use super::{Ctranslate2Folder, Names, VocabularyRole};
use serde_json::{Map, Value, json};
use siskin::{Error, ErrorKind, Result};

/// Activations by their id in `model.bin`, with their Hugging Face names.
const ACTIVATIONS: &[(u32, &str)] = &[(0, "relu"), (1, "gelu_new"), (2, "silu"), (3, "gelu")];
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

/// Reads the hyper-parameters and checks that the family supports all settings.
pub(super) fn settings(
    folder: &Ctranslate2Folder,
    names: &Names,
    family: &str,
    zero_start: bool,
) -> Result<Map<String, Value>> {
    let facts = ConversionSettings { folder, names };
    let mut config = folder.config.clone();
    for (theirs, ours) in RENAMED {
        if let Some(ids) = config.remove(*theirs) {
            config.insert((*ours).to_owned(), ids);
        }
    }
    let sides: &[&str] = if family == "bert" { &["encoder"] } else { &["encoder", "decoder"] };
    sides.iter().try_for_each(|side| facts.check(side, family))?;
    let own = match family {
        "bert" => facts.encoder()?,
        "t5" => facts.t5()?,
        _ => facts.pair(family, zero_start)?,
    };
    config.extend(own);
    facts.token_ids(&mut config, zero_start);
    Ok(config)
}

struct ConversionSettings<'a> {
    folder: &'a Ctranslate2Folder,
    names: &'a Names,
}

impl ConversionSettings<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        self.folder.container.number(name)
    }

    fn has(&self, name: &str) -> bool {
        self.names.find(&self.folder.container, name).is_some()
    }

    /// Returns the rows and columns of a tensor.
    fn shape(&self, name: &str) -> Result<(usize, usize)> {
        let matrix = self.names.matrix(&self.folder.container, name)?;
        Ok((matrix.rows, matrix.columns))
    }

    fn rows(&self, name: &str) -> Result<usize> {
        self.shape(name).map(|shape| shape.0)
    }

    fn heads(&self, side: &str) -> Result<usize> {
        let place = format!("{side}/num_heads");
        let heads = self.number(&place).filter(|heads| (1.0..=4096.0).contains(heads));
        heads
            .map(|heads| heads as usize)
            .ok_or_else(|| Error::new(ErrorKind::Missing, &place, "model.bin has no valid number of heads"))
    }

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

    /// Refuses settings that the family's graph does not support.
    fn check(&self, side: &str, family: &str) -> Result<()> {
        for name in FOREIGN {
            let place = format!("{side}/{name}");
            if self.number(&place).is_some_and(|value| value != 0.0) {
                let message = "not supported; convert the original model";
                return Err(Error::unsupported(place, message));
            }
        }
        let first = self.number(&format!("{side}/pre_norm")).is_none_or(|flag| flag != 0.0);
        let stem = if family == "bert" { "" } else { &format!("{}.", &side[..3]) };
        if first != self.has(&format!("{stem}output_norm.weight")) {
            let message = "the norms are placed as in no supported family; convert the original model";
            return Err(Error::unsupported(format!("{side}/pre_norm"), message));
        }
        let usual = if family == "t5" { 1.0 } else { (self.head_size(side, stem)? as f64).powf(-0.5) };
        let scale = self.number(&format!("{side}/layer_0/self_attention/queries_scale"));
        let scale = scale.unwrap_or_else(|| (self.head_size(side, stem).unwrap_or(1) as f64).powf(-0.5));
        if (scale - usual).abs() > 1e-6 {
            let place = format!("{side}/layer_0/self_attention/queries_scale");
            return Err(Error::unsupported(place, format!("is {scale}, but {family} has {usual}")));
        }
        Ok(())
    }

    fn head_size(&self, side: &str, stem: &str) -> Result<usize> {
        Ok(self.rows(&format!("{stem}blk.0.attn_q.weight"))? / self.heads(side)?)
    }

    /// Returns the epsilon of norms, or `None` if the configuration uses CTranslate2's default.
    fn epsilon(&self) -> Option<f64> {
        self.folder.config.get("layer_norm_epsilon").and_then(Value::as_f64)
    }

    /// Returns true if embeddings are scaled by the square root of the hidden size, which must be the same on all
    /// sides.
    fn scaled_embeddings(&self, width: usize, sides: &[&str]) -> Result<bool> {
        let root = (width as f64).sqrt();
        let of_side = |side: &&str| {
            let place = format!("{side}/scale_embeddings");
            let is_flag = self
                .folder
                .container
                .get(&place)
                .is_none_or(|variable| variable.data_type == super::DataType::Int8);
            match self.number(&place) {
                None => Ok(true),
                Some(flag) if is_flag => Ok(flag != 0.0),
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

    /// Returns the settings of BART and similar models, or of Whisper.
    fn pair(&self, family: &str, zero_start: bool) -> Result<Map<String, Value>> {
        if self.epsilon().is_some_and(|epsilon| (epsilon - 1e-5).abs() > 1e-9) {
            let message = "this family has 1e-5";
            return Err(Error::unsupported("config.json: layer_norm_epsilon", message));
        }
        let (tokens, width) = self.shape("token_embd.weight")?;
        if self.has("dec.token_embd.weight") && self.rows("dec.token_embd.weight")? != tokens {
            let message = "encoder and decoder vocabularies differ in size";
            return Err(Error::unsupported("decoder/embeddings", message));
        }
        let mut config = self.sides(width, tokens + usize::from(zero_start))?;
        let positions = |side: &str| {
            self.rows(&format!("{side}.position_embd.weight")).map_err(|_| {
                let message = "positions that are not in model.bin are not supported";
                Error::unsupported(format!("{side}.position_embd"), message)
            })
        };
        let (read, written) = (positions("enc")?, positions("dec")?);
        if family == "whisper" {
            let (_, kernel) = self.shape("enc.conv1.weight")?;
            config.insert("max_source_positions".to_owned(), json!(read));
            config.insert("max_target_positions".to_owned(), json!(written));
            config.insert("num_mel_bins".to_owned(), json!(kernel / 3));
            if self.scaled_embeddings(width, &["decoder"])? {
                return Err(Error::unsupported("decoder/scale_embeddings", "Whisper's are not scaled"));
            }
        } else {
            if read != written {
                let message = format!("has {written} positions, but the encoder has {read}");
                return Err(Error::unsupported("decoder/position_encodings", message));
            }
            config.insert("max_position_embeddings".to_owned(), json!(read));
            let scaled = self.scaled_embeddings(width, &["encoder", "decoder"])?;
            config.insert("scale_embedding".to_owned(), json!(scaled));
        }
        let activation = self.one_activation(if family == "whisper" { "gelu" } else { "relu" })?;
        config.insert("activation_function".to_owned(), json!(activation));
        // Positions start at the first row for both, regardless of the original model.
        let model_type = if family == "whisper" { "whisper" } else { "marian" };
        config.insert("model_type".to_owned(), json!(model_type));
        Ok(config)
    }

    fn t5(&self) -> Result<Map<String, Value>> {
        if self.has("dec.token_embd.weight") {
            let message = "T5 shares one embedding table";
            return Err(Error::unsupported("decoder/embeddings", message));
        }
        let (tokens, width) = self.shape("token_embd.weight")?;
        if self.scaled_embeddings(width, &["encoder", "decoder"])? {
            return Err(Error::unsupported("encoder/scale_embeddings", "T5's are not scaled"));
        }
        let mut config = self.sides(width, tokens)?;
        let distance = |side: &str| {
            self.number(&format!("{side}/layer_0/self_attention/relative_attention_max_distance"))
        };
        if distance("encoder") != distance("decoder") {
            let place = "decoder/layer_0/self_attention/relative_attention_max_distance";
            return Err(Error::unsupported(place, "differs from the encoder's"));
        }
        let activation = self.one_activation("relu")?;
        let gate = if self.has("dec.blk.0.ffn_gate.weight") { "gated-" } else { "" };
        let proj = match (gate, activation) {
            ("gated-", "gelu_new") => "gated-gelu".to_owned(),
            ("gated-", "gelu") => {
                return Err(Error::unsupported(
                    "decoder/activation",
                    "a gate with exact GELU is not supported",
                ));
            }
            _ => format!("{gate}{activation}"),
        };
        config.extend(object(json!({
            "d_kv": self.head_size("decoder", "dec.")?,
            "relative_attention_num_buckets": self.rows("dec.blk.0.attn_rel_b.weight")?,
            "relative_attention_max_distance": distance("decoder"),
            "layer_norm_epsilon": self.epsilon().unwrap_or(1e-6),
            "feed_forward_proj": proj,
            "scale_decoder_outputs": self.scaled_outputs(width)?,
            "model_type": "t5",
        })));
        Ok(config)
    }

    /// Returns true if hidden states are divided by the square root of the hidden size before the LM head.
    fn scaled_outputs(&self, width: usize) -> Result<bool> {
        match self.number("decoder/scale_outputs") {
            None => Ok(false),
            Some(factor) if (factor - (width as f64).powf(-0.5)).abs() < 1e-6 => Ok(true),
            Some(factor) if (factor - 1.0).abs() < 1e-6 => Ok(false),
            Some(factor) => Err(Error::unsupported(
                "decoder/scale_outputs",
                format!("a factor of {factor} is not supported"),
            )),
        }
    }

    /// Returns the settings that the encoder and the decoder have in common.
    fn sides(&self, width: usize, tokens: usize) -> Result<Map<String, Value>> {
        Ok(object(json!({
            "d_model": width,
            "vocab_size": tokens,
            "encoder_layers": self.folder.layers("encoder"),
            "decoder_layers": self.folder.layers("decoder"),
            "encoder_attention_heads": self.heads("encoder")?,
            "decoder_attention_heads": self.heads("decoder")?,
            "encoder_ffn_dim": self.rows("enc.blk.0.ffn_up.weight")?,
            "decoder_ffn_dim": self.rows("dec.blk.0.ffn_up.weight")?,
        })))
    }

    /// Returns the settings of BERT and similar models.
    fn encoder(&self) -> Result<Map<String, Value>> {
        let (tokens, width) = self.shape("token_embd.weight")?;
        let positions = self.rows("position_embd.weight").map_err(|_| {
            let message = "positions that are not in model.bin are not supported";
            Error::unsupported("encoder/position_encodings", message)
        })?;
        if self.scaled_embeddings(width, &["encoder"])? || self.has("blk.0.ffn_gate.weight") {
            let message = "scaled embeddings and gates are not BERT's; convert the original model";
            return Err(Error::unsupported("encoder", message));
        }
        let segments = if self.has("token_types.weight") { self.rows("token_types.weight")? } else { 0 };
        Ok(object(json!({
            "hidden_size": width,
            "vocab_size": tokens,
            "num_hidden_layers": self.folder.layers("encoder"),
            "num_attention_heads": self.heads("encoder")?,
            "intermediate_size": self.rows("blk.0.ffn_up.weight")?,
            "max_position_embeddings": positions,
            "type_vocab_size": segments,
            "layer_norm_eps": self.epsilon().unwrap_or(1e-5),
            "hidden_act": self.activation("encoder", "relu")?,
            "model_type": "bert",
        })))
    }

    /// Adds the ids of the tokens that the configuration names.
    fn token_ids(&self, config: &mut Map<String, Value>, zero_start: bool) {
        let roles = [VocabularyRole::Model, VocabularyRole::Shared, VocabularyRole::Target];
        let Some(tokens) = roles.into_iter().find_map(|role| self.folder.vocabulary(role)) else { return };
        for (name, key) in TOKENS {
            let id = config.get(*name).and_then(Value::as_str);
            let id = id.and_then(|text| tokens.tokens.iter().position(|token| token == text));
            if let Some(id) = id {
                config.entry(*key).or_insert_with(|| json!(id));
            }
        }
        if zero_start && let Some(last) = config.get("vocab_size").and_then(Value::as_u64) {
            config.insert("decoder_start_token_id".to_owned(), json!(last.saturating_sub(1)));
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
