//! Embedding settings of a sentence-transformers folder: pooling, dense layers and truncation.

use super::map::map;
use super::read::{MAX_VALUES, read};
use super::safetensors;
use serde_json::{Map, Value, json};
use siskin_format::Result;
use siskin_format::file::parse_json;
use siskin_format::{Error, ErrorKind};
use siskin_graph::Pooling;
use siskin_kernels::quant::BlockType;
use std::path::{Path, PathBuf};

/// sentence-transformers' pooling modes, one key each, and ours.
pub(crate) const WAYS: &[(&str, Pooling)] = &[
    ("pooling_mode_cls_token", Pooling::First),
    ("pooling_mode_lasttoken", Pooling::Last),
    ("pooling_mode_max_tokens", Pooling::Max),
    ("pooling_mode_weightedmean_tokens", Pooling::Weighted),
    ("pooling_mode_mean_tokens", Pooling::Mean),
];

/// The names of pooling modes in newer files, under one key.
const NAMES: &[(&str, Pooling)] = &[
    ("cls", Pooling::First),
    ("lasttoken", Pooling::Last),
    ("max", Pooling::Max),
    ("weightedmean", Pooling::Weighted),
    ("mean", Pooling::Mean),
];

/// Maximum number of elements of a dense layer's matrix.
pub(super) const MAX_NUMBERS: u64 = 1 << 28;

/// sentence-transformers' activation functions, and our settings for them.
pub(crate) const ACTIVATIONS: &[(&str, &str)] = &[
    ("torch.nn.modules.linear.Identity", "identity"),
    ("torch.nn.modules.activation.Tanh", "tanh"),
    ("torch.nn.modules.activation.ReLU", "relu"),
];

/// Returns the settings for the configuration key `sentence_transformers`, or `None` if the folder has none.
pub(super) fn settings(folder: &Path) -> Result<Option<Value>> {
    let Some(modules) = read(&folder.join("modules.json"), "modules.json")? else { return Ok(None) };
    let modules: Vec<Value> = parse_json(&modules, "modules.json", MAX_VALUES)?;
    let mut settings = Map::new();
    let (mut normalize, mut dense) = (false, Vec::new());
    for (index, module) in modules.iter().enumerate() {
        let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type").rsplit('.').next().unwrap_or_default();
        let pooled = settings.contains_key("pooling");
        match kind {
            "Transformer" if index == 0 => {}
            "Pooling" if !pooled => {
                let (way, with_prompt) = pooling(folder, text("path"))?;
                settings.insert("pooling".to_owned(), way.into());
                if !with_prompt {
                    settings.insert("include_prompt".to_owned(), false.into());
                }
            }
            "Dense" if pooled && !normalize => dense.push(layer(folder, text("path"))?),
            "Normalize" if pooled || modules.len() == 2 => normalize = true,
            "Transformer" | "Pooling" | "Dense" | "Normalize" => {
                let message = format!("a module of type '{kind}' at position {index} is not supported");
                return Err(Error::unsupported("modules.json", message));
            }
            other => {
                return Err(Error::unsupported(
                    "modules.json",
                    format!("a module of type '{other}' is not supported"),
                ));
            }
        }
    }
    settings.insert("normalize".to_owned(), normalize.into());
    if !dense.is_empty() {
        settings.insert("dense".to_owned(), dense.into());
    }
    if let Some(max_tokens) = reading(folder)? {
        settings.insert("most_tokens".to_owned(), max_tokens.into());
    }
    if let Some(mut config) = object(folder, "config_sentence_transformers.json")? {
        for key in ["prompts", "default_prompt_name"] {
            if let Some(value) = config.remove(key).filter(|value| !value.is_null()) {
                settings.insert(key.to_owned(), value);
            }
        }
    }
    Ok(Some(json!(settings)))
}

/// Returns the maximum number of tokens of a text, if the folder states it.
fn reading(folder: &Path) -> Result<Option<u64>> {
    let file = "sentence_bert_config.json";
    let Some(model) = object(folder, file)? else { return Ok(None) };
    if model.get("do_lower_case") == Some(&Value::Bool(true)) && !lowers(folder)? {
        let message =
            "true, but the tokenizer does not lowercase: add the normalizer Lowercase to tokenizer.json";
        return Err(Error::unsupported(format!("{file}: do_lower_case"), message));
    }
    match model.get("max_seq_length") {
        None | Some(Value::Null) => Ok(None),
        Some(max_tokens) => {
            max_tokens.as_u64().filter(|&max_tokens| max_tokens > 0).map(Some).ok_or_else(|| {
                Error::corrupt(
                    format!("{file}: max_seq_length"),
                    format!("{max_tokens} is not a valid number of tokens"),
                )
            })
        }
    }
}

/// Returns true if the tokenizer itself converts to lower case.
fn lowers(folder: &Path) -> Result<bool> {
    fn does(normalizer: &Value) -> bool {
        match normalizer.get("type").and_then(Value::as_str) {
            Some("Lowercase") => true,
            Some("BertNormalizer") => normalizer.get("lowercase") != Some(&Value::Bool(false)),
            Some("Sequence") => normalizer
                .get("normalizers")
                .and_then(Value::as_array)
                .is_some_and(|all| all.iter().any(does)),
            _ => false,
        }
    }
    let tokenizer = object(folder, "tokenizer.json")?;
    Ok(tokenizer.and_then(|tokenizer| tokenizer.get("normalizer").map(does)).unwrap_or_default())
}

/// Returns the settings of a dense layer after pooling.
fn layer(folder: &Path, path: &str) -> Result<Value> {
    let (_, config) = module(folder, path)?;
    let location = || format!("{path}/config.json");
    let size =
        |key: &str| config.get(key).and_then(Value::as_u64).filter(|size| (1..=MAX_NUMBERS).contains(size));
    let (Some(inputs), Some(outputs)) = (size("in_features"), size("out_features")) else {
        return Err(Error::corrupt(location(), "missing number of features"));
    };
    let own = |key: &str, usual: &str| config.get(key).is_none_or(|name| name.is_null() || name == usual);
    if !own("module_input_name", "sentence_embedding") || !own("module_output_name", "sentence_embedding") {
        return Err(Error::unsupported(
            location(),
            "a dense layer that is not for sentence embeddings is not supported",
        ));
    }
    if !matches!(config.get("use_residual"), None | Some(Value::Bool(false))) {
        return Err(Error::unsupported(location(), "a residual connection (use_residual) is not supported"));
    }
    let word = match config.get("activation_function") {
        None => "torch.nn.modules.activation.Tanh",
        Some(word) => word.as_str().unwrap_or_default(),
    };
    let activation = ACTIVATIONS.iter().find(|(name, _)| *name == word).map(|(_, ours)| *ours);
    let activation = activation
        .ok_or_else(|| Error::unsupported(location(), format!("the activation '{word}' is not supported")))?;
    let bias = config.get("bias") != Some(&Value::Bool(false));
    Ok(json!({"path": path, "inputs": inputs, "outputs": outputs, "activation": activation, "bias": bias}))
}

/// Returns the weights of the dense layers after pooling, under their names in `.siskin` files.
pub(super) fn numbers(folder: &Path, settings: Option<&Value>) -> Result<Vec<(String, Vec<f32>)>> {
    let layers = settings.and_then(|settings| settings.get("dense")).and_then(Value::as_array);
    let mut all = Vec::new();
    for (index, layer) in layers.into_iter().flatten().enumerate() {
        let path = layer.get("path").and_then(Value::as_str).unwrap_or_default();
        let location = format!("{path}/model.safetensors");
        let file = module(folder, path)?.0.join("model.safetensors");
        if !file.is_file() {
            let message = "missing from the folder, and other weight files are not supported: save the \
                           layer as safetensors";
            return Err(Error::new(ErrorKind::Missing, location, message));
        }
        let tensors = safetensors::parse(map(&file)?).map_err(|error| error.within(&location))?;
        let size = |key: &str| layer.get(key).and_then(Value::as_u64).unwrap_or_default();
        let (inputs, outputs) = (size("inputs"), size("outputs"));
        let has_bias = layer.get("bias") != Some(&Value::Bool(false));
        for (name, shape) in [("weight", vec![outputs, inputs]), ("bias", vec![outputs])] {
            let location = format!("{location}: linear.{name}");
            match tensors.get(&format!("linear.{name}")) {
                Some(tensor) if tensor.shape != shape => {
                    let message = format!("shape {:?}, expected {shape:?}", tensor.shape);
                    return Err(Error::new(ErrorKind::Shape, location, message));
                }
                Some(_) if name == "bias" && !has_bias => {
                    let message = format!("exists, although {path}/config.json has no bias");
                    return Err(Error::corrupt(location, message));
                }
                Some(tensor) => all.push((format!("sentence.{index}.{name}"), floats(tensor, &location)?)),
                None if name == "weight" || has_bias => {
                    return Err(Error::new(ErrorKind::Missing, location, "missing"));
                }
                None => {}
            }
        }
    }
    Ok(all)
}

fn floats(tensor: &safetensors::SafetensorsTensor, location: &str) -> Result<Vec<f32>> {
    let block = [BlockType::F32, BlockType::F16, BlockType::BF16]
        .into_iter()
        .find(|block| block.name() == tensor.dtype);
    let unread =
        || Error::unsupported(location, format!("weights of type {} are not supported", tensor.dtype));
    let block = block.ok_or_else(unread)?;
    let mut numbers = vec![0.0; tensor.data.len() / block.codec().bytes];
    match block.dequantize_row(&tensor.data, &mut numbers) {
        true if numbers.iter().all(|number| number.is_finite()) => Ok(numbers),
        true => Err(Error::corrupt(location, "contains NaN or infinity")),
        false => Err(unread()),
    }
}

/// Returns a module's folder and its configuration.
fn module(folder: &Path, path: &str) -> Result<(PathBuf, Map<String, Value>)> {
    let inside = path.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && !path.is_empty();
    let folder = folder.join(if inside { path } else { "" });
    let config = if inside { object(&folder, "config.json")? } else { None };
    let missing = || Error::new(ErrorKind::Missing, format!("{path}/config.json"), "missing from the folder");
    Ok((folder, config.ok_or_else(missing)?))
}

/// Returns the pooling mode, and whether prompt tokens are included.
fn pooling(folder: &Path, path: &str) -> Result<(&'static str, bool)> {
    let location = format!("{path}/config.json");
    let (_, config) = module(folder, path)?;
    let with_prompt = config.get("include_prompt") != Some(&Value::Bool(false));
    let is_on = |key: &str| config.get(key) == Some(&Value::Bool(true));
    let flagged = || WAYS.iter().filter(|(key, _)| is_on(key)).map(|(_, way)| *way);
    let way = match config.get("pooling_mode") {
        Some(named) => way_of(named),
        None if is_on("pooling_mode_mean_sqrt_len_tokens") => None,
        // If all flags are off, sentence-transformers uses the mean.
        None if flagged().next().is_none() => Some(Pooling::Mean),
        None => flagged().next().filter(|_| flagged().count() == 1),
    };
    let known = Pooling::NAMES.iter().find(|(known, _)| Some(*known) == way).map(|(_, name)| *name);
    let unknown = || {
        let ways: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        Error::unsupported(location, format!("expected one pooling mode, found: {}", ways.join(", ")))
    };
    Ok((known.ok_or_else(unknown)?, with_prompt))
}

/// Returns the pooling mode of a name, or of a list of one name.
fn way_of(named: &Value) -> Option<Pooling> {
    let name = match named.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => named,
    };
    NAMES.iter().find(|(known, _)| name == known).map(|(_, way)| *way)
}

fn object(folder: &Path, name: &str) -> Result<Option<Map<String, Value>>> {
    let bytes = read(&folder.join(name), name)?;
    bytes.map(|bytes| parse_json(&bytes, name, MAX_VALUES)).transpose()
}
