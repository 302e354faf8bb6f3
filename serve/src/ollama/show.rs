//! `POST /api/show`.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use siskin_format::JsonFields;

use super::find;
use super::request::can_think;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::models::{ModelTask, RegisteredModel};
use crate::response::{self, Response};
use crate::time::rfc3339;

/// Describes a model.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let older: Option<String> = fields.take("name")?;
    let name: Option<String> = fields.take("model")?;
    let name = name.or(older).ok_or_else(|| ApiError::invalid("model", "missing"))?;
    reject_unsupported(&mut fields)?;
    fields.finish()?;
    let model = find(&call, &name)?;
    // The traits of a template are found by rendering it.
    let describe = move || description(&model);
    let object = call.state.run_blocking(describe).await??;
    Ok(response::json(StatusCode::OK, &object))
}

/// Rejects fields that would replace those of the model, unless they are empty.
fn reject_unsupported(fields: &mut JsonFields<'_>) -> Result<(), ApiError> {
    for name in ["system", "template"] {
        let text: Option<String> = fields.take(name)?;
        if text.is_some_and(|text| !text.is_empty()) {
            return Err(ApiError::invalid(name, "is not supported"));
        }
    }
    let options: Option<Map<String, Value>> = fields.take("options")?;
    if options.is_some_and(|options| !options.is_empty()) {
        return Err(ApiError::invalid("options", "is not supported"));
    }
    match fields.take("verbose")?.unwrap_or(false) {
        true => Err(ApiError::invalid("verbose", "is not supported")),
        false => Ok(()),
    }
}

fn description(model: &RegisteredModel) -> siskin::Result<Value> {
    let template = model.model.template()?;
    let mut object = json!({
        "modelfile": "",
        "parameters": "",
        "template": template.as_ref().map_or("", |template| template.source()),
        "details": details(model),
        "model_info": model_info(model),
        "capabilities": capabilities(model)?,
        "modified_at": rfc3339(model.created, 0),
    });
    if let Some(license) = &model.model.file().metadata().license {
        object["license"] = license.as_str().into();
    }
    Ok(object)
}

/// Returns what a model can do, in Ollama's words.
fn capabilities(model: &RegisteredModel) -> siskin::Result<Vec<&'static str>> {
    match model.task {
        ModelTask::Decoder(_) => {
            let template = model.model.template()?;
            let has_tools = template.is_some_and(|template| template.traits().format.is_some());
            let all = [("completion", true), ("tools", has_tools), ("thinking", can_think(&model.model)?)];
            Ok(all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect())
        }
        ModelTask::Encoder(..) => Ok(vec!["embedding"]),
        ModelTask::Seq2Seq(_) | ModelTask::Speech(_) => Ok(Vec::new()),
    }
}

/// Returns the details of a model.
pub(super) fn details(model: &RegisteredModel) -> Value {
    let file = model.model.file();
    let format = file.metadata().provenance.get("format").and_then(Value::as_str).unwrap_or("siskin");
    let family = model.model.family();
    json!({
        "parent_model": model.parent.as_deref().unwrap_or_default(),
        "format": format,
        "family": family,
        "families": [family],
        "parameter_size": rounded(parameters(model)),
        "quantization_level": weight_type(model),
    })
}

fn parameters(model: &RegisteredModel) -> usize {
    model.model.file().tensors().iter().map(|tensor| tensor.rows * tensor.columns).sum()
}

/// Returns the type of most weights.
fn weight_type(model: &RegisteredModel) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tensor in model.model.file().tensors() {
        *counts.entry(tensor.panel.name()).or_default() += tensor.rows * tensor.columns;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or_else(String::new, |(name, _)| name.to_uppercase())
}

/// Returns a number of parameters as Ollama writes it, such as `134.5M`.
fn rounded(count: usize) -> String {
    let thousand = 1000.0;
    let (mut number, mut units) = (count as f64, ["", "K", "M", "B"].into_iter());
    let mut unit = units.next().unwrap_or_default();
    while number >= thousand {
        let Some(next) = units.next() else { break };
        (number, unit) = (number / thousand, next);
    }
    if unit.is_empty() { count.to_string() } else { format!("{number:.1}{unit}") }
}

/// Returns the hyperparameters under the names of GGUF.
fn model_info(model: &RegisteredModel) -> Value {
    let config = model.model.config();
    let family = model.model.family();
    let mut info = Map::new();
    info.insert("general.architecture".to_owned(), family.into());
    info.insert("general.parameter_count".to_owned(), parameters(model).into());
    if let Some(name) = &model.model.file().metadata().name {
        info.insert("general.name".to_owned(), name.as_str().into());
    }
    for (key, value) in [
        ("context_length", config.context),
        ("embedding_length", config.width),
        ("block_count", config.layers),
        ("feed_forward_length", config.feed_forward),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head_size),
        ("vocab_size", config.vocabulary),
    ] {
        info.insert(format!("{family}.{key}"), value.into());
    }
    info.into()
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn parameters_are_rounded() {
        let all = [7, 1_500, 134_515_008, 7_200_000_000, 1_000_000_000_000].map(rounded);
        assert_eq!(all, ["7", "1.5K", "134.5M", "7.2B", "1000.0B"]);
    }
}
