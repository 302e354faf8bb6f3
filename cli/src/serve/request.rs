//! Request parsing.

use super::base64;
use crate::embed::VectorArgs;
use crate::fill_mask;
use crate::options::SamplerArgs;
use crate::text_generation::SearchArgs;
use crate::texts::{OVERLAP, OverflowArgs, WholeOverflow};
use crate::transcribe::TranscriptionArgs;
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use siskin::encoder::OverflowMode;
use siskin::template::{Message, RenderOptions, TemplateData};
use siskin::{Error, ErrorKind, Result};
use siskin_format::JsonFields;
use std::collections::BTreeMap;

/// The client's id of a request: a string or an integer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Id {
    Text(String),
    Number(i64),
}

/// Maximum length of an id in bytes: every reply repeats it.
const MAX_ID_BYTES: usize = 256;

impl<'a> Deserialize<'a> for Id {
    fn deserialize<D: Deserializer<'a>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Id;
            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(to, "a string of at most {MAX_ID_BYTES} bytes or a 64-bit integer")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Id, E> {
                if text.len() > MAX_ID_BYTES {
                    return Err(E::invalid_length(text.len(), &self));
                }
                Ok(Id::Text(text.to_owned()))
            }
            fn visit_i64<E>(self, number: i64) -> std::result::Result<Id, E> {
                Ok(Id::Number(number))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> std::result::Result<Id, E> {
                i64::try_from(number).map(Id::Number).map_err(E::custom)
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A valid request.
pub(super) struct Request {
    pub(super) id: Option<Id>,
    pub(super) ask: RequestKind,
}

/// An invalid request.
pub(super) struct RejectedRequest {
    pub(super) id: Option<Id>,
    pub(super) error: Error,
}

impl RejectedRequest {
    /// Adds the line number to the error of a request without an id.
    pub(super) fn on_line(self, number: usize) -> Self {
        match self.id {
            None => Self { error: self.error.within(&format!("line {number}")), ..self },
            Some(_) => self,
        }
    }
}

/// A parsed line.
pub(super) enum ParsedLine {
    Request(Box<Request>),
    /// Cancel the requests with this id.
    Cancel(Id),
}

/// Text generation options.
pub(super) struct TextRequest {
    pub(super) max_tokens: usize,
    pub(super) stop: Vec<String>,
    pub(super) sampler: SamplerArgs,
}

/// The task of a request.
pub(super) enum RequestKind {
    Chat { messages: Vec<Message>, template: Box<RenderOptions>, text: TextRequest },
    Prompt { prompt: String, special: bool, text: TextRequest },
    Embed { texts: Vec<String>, vectors: VectorArgs, long: OverflowMode },
    Rerank { texts: Vec<String>, query: String, long: OverflowMode },
    Classify { texts: Vec<String>, long: OverflowMode },
    Tag { texts: Vec<String>, long: OverflowMode },
    Answer { texts: Vec<String>, question: String, long: OverflowMode },
    FillMask { texts: Vec<String>, top_k: usize },
    Write { texts: Vec<String>, task: RequestTask, search: Box<SearchArgs>, long: OverflowMode },
    Transcribe { sound: Vec<u8>, options: TranscriptionArgs },
    Stats,
}

/// Seq2seq tasks and text continuation.
pub(super) enum RequestTask {
    Generate,
    Translate { from: Option<String>, to: Option<String> },
    Summarize,
}

type Reader = fn(&str, JsonFields<'_>) -> Result<RequestKind>;

/// The field that identifies each kind of request. If several are present the first wins: the others may be options.
const KINDS: [(&str, Reader); 13] = [
    ("chat", chat),
    ("embed", embed),
    ("rerank", rerank),
    ("classify", classify),
    ("tag", tag),
    ("answer", answer),
    ("fill_mask", fill_mask),
    ("transcribe", transcribe),
    ("generate", write),
    ("translate", write),
    ("summarize", write),
    ("prompt", prompt),
    ("stats", stats),
];

/// Maximum number of texts of a request: all results are held in memory at once.
const MAX_TEXTS: usize = 4096;

impl Request {
    pub(super) fn read(line: &str) -> std::result::Result<ParsedLine, RejectedRequest> {
        let rejected = |error| RejectedRequest { id: None, error };
        let mut fields = JsonFields::read(line).map_err(rejected)?;
        let id: Option<Id> = fields.take("id").map_err(rejected)?;
        Self::of(&id, fields).map_err(|error| RejectedRequest { id, error })
    }

    fn of(id: &Option<Id>, mut fields: JsonFields<'_>) -> Result<ParsedLine> {
        if fields.has("cancel") && !KINDS.iter().any(|(name, _)| fields.has(name)) {
            let canceled = fields.take_required("cancel")?;
            fields.finish()?;
            return match id {
                None => Ok(ParsedLine::Cancel(canceled)),
                Some(_) => Err(Error::argument("id", "`cancel` gets no response; remove `id`")),
            };
        }
        let kind = KINDS.iter().find(|(name, _)| fields.has(name)).ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            Error::argument(
                "request",
                format!("no task specified; expected one of {}, cancel", names.join(", ")),
            )
        })?;
        let ask = kind.1(kind.0, fields)?;
        Ok(ParsedLine::Request(Box::new(Self { id: id.clone(), ask })))
    }
}

/// A text, or a list of texts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Takes one text or a list of texts.
fn texts(name: &str, fields: &mut JsonFields<'_>) -> Result<Vec<String>> {
    let texts = match fields.take_required(name)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    };
    match texts.len() {
        0 => Err(Error::argument(name, "must contain at least one text")),
        1..=MAX_TEXTS => Ok(texts),
        count => {
            let message =
                format!("{count} texts exceed the limit of {MAX_TEXTS} per request; split the request");
            Err(Error::new(ErrorKind::TooLong, name, message))
        }
    }
}

fn overflow(fields: &mut JsonFields<'_>, overlap: usize) -> Result<OverflowMode> {
    fields.take_options::<OverflowArgs>(&["overflow", "overlap"])?.mode(overlap)
}

fn chat(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let messages: &RawValue = fields.take_required(name)?;
    let messages = Message::list_from_json(name, messages.get())?;
    if messages.is_empty() {
        return Err(Error::argument(name, "must contain at least one message"));
    }
    let template = Box::new(template(&mut fields)?);
    Ok(RequestKind::Chat { messages, template, text: text(fields)? })
}

/// Takes the variables of the chat template.
fn template(fields: &mut JsonFields<'_>) -> Result<RenderOptions> {
    let extra: BTreeMap<String, TemplateData> = fields.take("chat_template_kwargs")?.unwrap_or_default();
    if extra.contains_key("messages") {
        let message = "`messages` cannot be set here; pass them in `chat`";
        return Err(Error::argument("chat_template_kwargs", message));
    }
    Ok(RenderOptions {
        tools: list("tools", fields)?,
        documents: list("documents", fields)?,
        extra: extra.into_iter().collect(),
        ..RenderOptions::default()
    })
}

fn list(name: &str, fields: &mut JsonFields<'_>) -> Result<Option<TemplateData>> {
    let list: Option<TemplateData> = fields.take(name)?;
    match list.as_ref().is_some_and(|list| !list.is_list()) {
        true => Err(Error::argument(name, "not a list")),
        false => Ok(list),
    }
}

fn prompt(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let (prompt, special): (String, _) =
        (fields.take_required(name)?, fields.take("parse_special")?.unwrap_or_default());
    if prompt.is_empty() {
        return Err(Error::argument(name, "must not be empty"));
    }
    Ok(RequestKind::Prompt { prompt, special, text: text(fields)? })
}

fn text(mut fields: JsonFields<'_>) -> Result<TextRequest> {
    let max_tokens = fields.take("max_tokens")?.unwrap_or(usize::MAX);
    let stop = fields.take("stop")?.unwrap_or_default();
    let sampler: SamplerArgs = fields.into_options()?;
    sampler.options()?;
    Ok(TextRequest { max_tokens, stop, sampler })
}

fn embed(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let (texts, long) = (texts(name, &mut fields)?, overflow(&mut fields, OVERLAP)?);
    Ok(RequestKind::Embed { texts, long, vectors: fields.into_options()? })
}

fn rerank(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let (texts, query) = (texts(name, &mut fields)?, fields.take_required("query")?);
    let long = fields.take::<WholeOverflow>("overflow")?.unwrap_or_default().mode();
    fields.finish()?;
    Ok(RequestKind::Rerank { texts, query, long })
}

fn classify(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let texts = texts(name, &mut fields)?;
    let long = fields.take::<WholeOverflow>("overflow")?.unwrap_or_default().mode();
    fields.finish()?;
    Ok(RequestKind::Classify { texts, long })
}

fn tag(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let (texts, long) = (texts(name, &mut fields)?, overflow(&mut fields, OVERLAP)?);
    fields.finish()?;
    Ok(RequestKind::Tag { texts, long })
}

fn answer(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let (texts, question) = (texts(name, &mut fields)?, fields.take_required("question")?);
    let long = overflow(&mut fields, OVERLAP)?;
    fields.finish()?;
    Ok(RequestKind::Answer { texts, question, long })
}

fn fill_mask(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let (texts, top_k) = (texts(name, &mut fields)?, fields.take("top_k")?.unwrap_or(fill_mask::TOP_K));
    fields.finish()?;
    Ok(RequestKind::FillMask { texts, top_k })
}

fn write(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let (texts, long) = (texts(name, &mut fields)?, overflow(&mut fields, 0)?);
    let task = match name {
        "translate" => RequestTask::Translate { from: fields.take("from")?, to: fields.take("to")? },
        "summarize" => RequestTask::Summarize,
        _ => RequestTask::Generate,
    };
    Ok(RequestKind::Write { texts, task, search: Box::new(fields.into_options()?), long })
}

fn transcribe(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let sound: String = fields.take_required(name)?;
    Ok(RequestKind::Transcribe { sound: base64::decode(&sound)?, options: fields.into_options()? })
}

fn stats(name: &str, mut fields: JsonFields<'_>) -> Result<RequestKind> {
    let wanted: bool = fields.take_required(name)?;
    fields.finish()?;
    match wanted {
        true => Ok(RequestKind::Stats),
        false => Err(Error::new(ErrorKind::Argument, name, "must be true")),
    }
}
