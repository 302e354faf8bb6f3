//! `POST /v1/tag`: entities in texts, such as names and places.

use hyper::StatusCode;
use serde_json::{Value, json};
use siskin::encoder::{Entity, OverflowMode};

use super::{run, take_texts};
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::generation::unique_id;
use crate::response::{self, Response};

/// The number of tokens that windows of long texts share.
const OVERLAP: usize = 32;

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    let texts = take_texts(&mut fields, "input")?;
    fields.ignore(&["user"]);
    fields.finish()?;
    let tag = move |encoder: &mut siskin::Encoder| {
        let before = encoder.work().rows;
        let entities = encoder.tag(&texts, OverflowMode::Window { overlap: OVERLAP })?;
        Ok((texts, entities, encoder.work().rows - before))
    };
    let (texts, all, tokens) = run(&call, &model, model.heads()?, "input", tag).await?;
    model.metrics.record_prompt(tokens);
    call.client.count_tokens(tokens);
    let object = |(index, (text, entities)): (usize, (&String, &Vec<Entity>))| json!({"index": index, "entities": entity_objects(text, entities)});
    let data: Vec<Value> = texts.iter().zip(&all).enumerate().map(object).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let list =
        json!({"id": unique_id("tag-"), "object": "list", "model": model.name, "data": data, "usage": usage});
    Ok(response::json(StatusCode::OK, &list))
}

/// Returns the entities of a text, which are in its order, with their places in characters, as languages other than Rust count.
fn entity_objects(text: &str, entities: &[Entity]) -> Vec<Value> {
    let (mut byte, mut character) = (0, 0);
    let mut characters = |end: usize| {
        character += text.get(byte..end).map_or(0, |between| between.chars().count());
        byte = byte.max(end);
        character
    };
    let object = |entity: &Entity| {
        let (start, end) = (characters(entity.start), characters(entity.end));
        json!({
            "label": entity.label,
            "score": entity.probability,
            "text": text.get(entity.start..entity.end),
            "start": start,
            "end": end,
        })
    };
    entities.iter().map(object).collect()
}
