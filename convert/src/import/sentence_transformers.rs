//! What a folder of sentence-transformers says beside the model: how texts become vectors.

use super::read::{MOST_VALUES, read};
use serde_json::{Map, Value, json};
use siskin::Result;
use siskin::encoder::Pooling;
use siskin::file::parse_json;
use siskin::{Error, ErrorKind};
use std::path::Path;

/// What their files call each way of pooling, and what we do.
pub(crate) const WAYS: &[(&str, Pooling)] = &[
    ("pooling_mode_cls_token", Pooling::First),
    ("pooling_mode_lasttoken", Pooling::Last),
    ("pooling_mode_max_tokens", Pooling::Max),
    ("pooling_mode_weightedmean_tokens", Pooling::Weighted),
    ("pooling_mode_mean_tokens", Pooling::Mean),
];

/// The settings for the configuration key `sentence_transformers`; nothing where the folder has none.
pub(super) fn settings(folder: &Path) -> Result<Option<Value>> {
    let Some(modules) = read(&folder.join("modules.json"), "modules.json")? else { return Ok(None) };
    let modules: Vec<Value> = parse_json(&modules, "modules.json", MOST_VALUES)?;
    let mut settings = Map::new();
    settings.insert("normalise".to_owned(), false.into());
    for module in &modules {
        let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type").rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Normalize" => {
                settings.insert("normalise".to_owned(), true.into());
            }
            "Pooling" => {
                settings.insert("pooling".to_owned(), pooling(folder, text("path"))?.into());
            }
            other => {
                return Err(Error::unsupported("modules.json", format!("a module of type '{other}'")));
            }
        }
    }
    if let Some(model) = object(folder, "sentence_bert_config.json")? {
        settings.insert("most_tokens".to_owned(), model.get("max_seq_length").cloned().unwrap_or_default());
    }
    let prompts = object(folder, "config_sentence_transformers.json")?;
    if let Some(prompts) = prompts.and_then(|mut config| config.remove("prompts")) {
        settings.insert("prompts".to_owned(), prompts);
    }
    Ok(Some(json!(settings)))
}

fn pooling(folder: &Path, path: &str) -> Result<&'static str> {
    let inside = path.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && !path.is_empty();
    let place = format!("{path}/config.json");
    let config = if inside { object(&folder.join(path), "config.json")? } else { None };
    let config = config.ok_or_else(|| Error::new(ErrorKind::Missing, &place, "is not in the folder"))?;
    let is_on = |key: &str| config.get(key) == Some(&Value::Bool(true));
    if is_on("pooling_mode_mean_sqrt_len_tokens") {
        return Err(Error::unsupported(place, "sums over the root of the length"));
    }
    let mut ways = WAYS.iter().filter(|(key, _)| is_on(key));
    match (ways.next(), ways.next()) {
        (Some((_, way)), None) => {
            Ok(Pooling::NAMES.iter().find(|(known, _)| known == way).map_or("mean", |(_, name)| *name))
        }
        _ => Err(Error::unsupported(place, "other than one way of pooling")),
    }
}

fn object(folder: &Path, name: &str) -> Result<Option<Map<String, Value>>> {
    let bytes = read(&folder.join(name), name)?;
    bytes.map(|bytes| parse_json(&bytes, name, MOST_VALUES)).transpose()
}
