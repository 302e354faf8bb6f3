//! `POST /v1/rerank`, as in the APIs of Cohere and Jina.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{check_count, run, take_overflow};
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::generation::unique_id;
use crate::response::{self, Response};

/// A text, or an object with one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, or an object with the field `text`")]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    let query: String = fields.take_required("query")?;
    let documents: Vec<Document> = fields.take_required("documents")?;
    check_count("documents", documents.len())?;
    let texts: Vec<String> = documents.into_iter().map(Document::into_text).collect();
    let top_n: Option<usize> = fields.take("top_n")?;
    let returns_documents = fields.take("return_documents")?.unwrap_or(false);
    let overflow = take_overflow(&mut fields)?;
    fields.ignore(&["user"]);
    fields.finish()?;
    let rank = move |encoder: &mut siskin::Encoder| {
        let before = encoder.work().rows;
        let scores = encoder.rerank(&query, &texts, overflow)?;
        Ok((scores, texts, encoder.work().rows - before))
    };
    let (scores, texts, tokens) = run(&call, &model, model.heads()?, "documents", rank).await?;
    model.metrics.record_prompt(tokens);
    call.client.count_tokens(tokens);
    let mut ranked: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    ranked.sort_by(|one, other| other.1.total_cmp(&one.1));
    ranked.truncate(top_n.unwrap_or(usize::MAX));
    let result = |&(index, score): &(usize, f32)| {
        let mut result = json!({"index": index, "relevance_score": logistic(score)});
        if returns_documents {
            result["document"] = json!({"text": texts[index]});
        }
        result
    };
    let results: Vec<Value> = ranked.iter().map(result).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let object = json!({"id": unique_id("rerank-"), "model": model.name, "results": results, "usage": usage});
    Ok(response::json(StatusCode::OK, &object))
}

/// Returns a score between zero and one, in the order of the model's own.
fn logistic(score: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(score)).exp())
}
