//! `POST /v1/classify`.

use hyper::StatusCode;
use serde_json::{Value, json};
use siskin::encoder::{OverflowMode, Scored};

use super::{run, take_overflow, take_texts};
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::generation::unique_id;
use crate::models::RegisteredModel;
use crate::response::{self, Response};

/// Returns the classes of each of `texts`, the field `input` of the request, and the number of their tokens.
pub(crate) async fn classify(
    call: &Call,
    model: &RegisteredModel,
    (input, texts): (&'static str, Vec<String>),
    overflow: OverflowMode,
) -> Result<(Vec<Vec<Scored>>, usize), ApiError> {
    let classify = move |encoder: &mut siskin::Encoder| {
        let before = encoder.work().rows;
        let classes = encoder.classify(&texts, overflow)?;
        Ok((classes, encoder.work().rows - before))
    };
    let (classes, tokens) = run(call, model, model.heads()?, input, classify).await?;
    model.metrics.record_prompt(tokens);
    call.client.count_tokens(tokens);
    Ok((classes, tokens))
}

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    let texts = take_texts(&mut fields, "input")?;
    let overflow = take_overflow(&mut fields)?;
    fields.ignore(&["user"]);
    fields.finish()?;
    let (all, tokens) = classify(&call, &model, ("input", texts), overflow).await?;
    let data: Vec<Value> = all.iter().enumerate().map(|(index, classes)| object(index, classes)).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let list = json!({"id": unique_id("classify-"), "object": "list", "model": model.name, "data": data, "usage": usage});
    Ok(response::json(StatusCode::OK, &list))
}

fn object(index: usize, classes: &[Scored]) -> Value {
    let class = |scored: &Scored| json!({"label": scored.label, "score": scored.probability});
    let list: Vec<Value> = classes.iter().map(class).collect();
    let best = classes.first();
    json!({
        "index": index,
        "label": best.map(|best| &best.label),
        "score": best.map(|best| best.probability),
        "classes": list,
    })
}
