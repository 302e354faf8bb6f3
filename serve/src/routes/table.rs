//! The routes: what each takes, what it returns, and which function answers it.

use std::pin::Pin;

use super::health;
use crate::admin;
use crate::call::Call;
use crate::error::{ApiError, ErrorFormat};
use crate::inference_protocol::{self, generate, infer, metadata, repository};
use crate::ollama;
use crate::openai::{audio, chat, completions, embeddings, model_list, responses};
use crate::page;
use crate::response::Response;
use crate::tasks::{classify, rerank, tag, tokens, translate};

/// The method of a route; a route with GET also answers HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteMethod {
    Get,
    Post,
    Delete,
}

/// Which clients may use a route, if the server has API keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// All, without a key.
    Public,
    /// Those with a key.
    Client,
    /// Those whose key allows them to change what the server does; none on servers without keys.
    Admin,
}

/// The body that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    None,
    /// JSON of the schema with this name.
    Json(&'static str),
    /// The same, or binary tensors behind JSON of this schema.
    JsonOrTensors(&'static str),
    /// A form with a file, of the schema with this name.
    Form(&'static str),
}

/// The maximum size of a JSON body in bytes.
const MAX_JSON_BYTES: usize = 4 << 20;
/// The maximum size of a form with a file in bytes: more than half an hour of speech.
const MAX_FORM_BYTES: usize = 64 << 20;

impl BodyKind {
    /// Returns the maximum size in bytes.
    pub(super) fn limit(self) -> usize {
        match self {
            Self::None => 0,
            Self::Json(_) | Self::JsonOrTensors(_) => MAX_JSON_BYTES,
            Self::Form(_) => MAX_FORM_BYTES,
        }
    }
}

/// What a route returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// JSON of the schema with this name.
    Json(&'static str),
    /// The same, or a stream of server-sent events with chunks of the second schema.
    JsonOrEvents(&'static str, &'static str),
    /// The same, or a stream of lines, each JSON of the second schema.
    JsonOrLines(&'static str, &'static str),
    /// Text of this media type.
    Text(&'static str),
    /// Server-sent events, whose data are of the schema with this name.
    Events(&'static str),
    /// JSON of the schema with this name, or binary tensors behind JSON of this schema, as the request says.
    JsonOrTensors(&'static str),
    /// JSON of the schema with this name, or text, as the request says.
    JsonOrText(&'static str),
    /// Always an error: what the route is for is not supported.
    NotImplemented,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>>;

/// A route.
#[derive(Clone, Copy)]
pub(super) struct HttpRoute {
    pub(super) method: RouteMethod,
    /// As in OpenAPI: `{model}` stands for a segment, or for the rest of the path if it is at its end.
    pub(super) path: &'static str,
    /// The parameters of the query.
    pub(super) query: &'static [&'static str],
    pub(super) summary: &'static str,
    pub(super) tag: &'static str,
    pub(super) access: Access,
    pub(super) body: BodyKind,
    pub(super) response: ResponseKind,
    pub(super) error_format: ErrorFormat,
    pub(super) handler: fn(Call) -> Answer,
}

impl RouteMethod {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

impl HttpRoute {
    const fn get(
        path: &'static str,
        tag: &'static str,
        summary: &'static str,
        handler: fn(Call) -> Answer,
    ) -> Self {
        let (method, access, body) = (RouteMethod::Get, Access::Client, BodyKind::None);
        let (response, error_format) = (ResponseKind::Json("Object"), ErrorFormat::OpenAi);
        Self { method, path, query: &[], summary, tag, access, body, response, error_format, handler }
    }

    const fn post(
        path: &'static str,
        tag: &'static str,
        summary: &'static str,
        handler: fn(Call) -> Answer,
    ) -> Self {
        Self { method: RouteMethod::Post, ..Self::get(path, tag, summary, handler) }
    }

    const fn delete(
        path: &'static str,
        tag: &'static str,
        summary: &'static str,
        handler: fn(Call) -> Answer,
    ) -> Self {
        Self { method: RouteMethod::Delete, ..Self::get(path, tag, summary, handler) }
    }

    /// Errors are objects with a message.
    const fn with_plain_errors(self) -> Self {
        Self { error_format: ErrorFormat::Message, ..self }
    }

    const fn not_implemented(self) -> Self {
        self.returns(ResponseKind::NotImplemented)
    }

    const fn with_query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn public(self) -> Self {
        Self { access: Access::Public, ..self }
    }

    const fn admin(self) -> Self {
        Self { access: Access::Admin, ..self }
    }

    const fn takes(self, body: BodyKind) -> Self {
        Self { body, ..self }
    }

    const fn returns(self, response: ResponseKind) -> Self {
        Self { response, ..self }
    }
}

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All routes.
pub(super) static ROUTES: &[HttpRoute] = &[
    HttpRoute::get("/", "operation", "A page to chat with the models", |call| Box::pin(page::answer(call)))
        .public()
        .returns(ResponseKind::Text("text/html")),
    HttpRoute::get("/v1/models", "OpenAI", "List the models", |call| Box::pin(model_list::list(call)))
        .returns(ResponseKind::Json("ModelList")),
    HttpRoute::get("/v1/models/{model}", "OpenAI", "Describe a model", |call| {
        Box::pin(model_list::card(call))
    })
    .returns(ResponseKind::Json("Model")),
    HttpRoute::post("/v1/chat/completions", "OpenAI", "Continue a conversation", |call| {
        Box::pin(chat::answer(call))
    })
    .takes(BodyKind::Json("ChatCompletionRequest"))
    .returns(ResponseKind::JsonOrEvents("ChatCompletion", "ChatCompletionChunk")),
    HttpRoute::post("/v1/completions", "OpenAI", "Continue texts", |call| {
        Box::pin(completions::answer(call))
    })
    .takes(BodyKind::Json("CompletionRequest"))
    .returns(ResponseKind::JsonOrEvents("Completion", "Completion")),
    HttpRoute::post("/v1/responses", "OpenAI", "Continue a conversation", |call| {
        Box::pin(responses::create(call))
    })
    .takes(BodyKind::Json("ResponseRequest"))
    .returns(ResponseKind::JsonOrEvents("Response", "ResponseEvent")),
    HttpRoute::get(
        "/v1/responses/{response}/input_items",
        "OpenAI",
        "List the input of a response",
        |call| Box::pin(responses::input_items(call)),
    )
    .with_query(&["limit", "order", "after"])
    .returns(ResponseKind::Json("ResponseItemList")),
    HttpRoute::post(
        "/v1/responses/{response}/cancel",
        "OpenAI",
        "Cancel a response in the background",
        |call| Box::pin(responses::cancel(call)),
    )
    .returns(ResponseKind::Json("Response")),
    HttpRoute::get("/v1/responses/{response}", "OpenAI", "Return a stored response", |call| {
        Box::pin(responses::retrieve(call))
    })
    .with_query(&["stream"])
    .returns(ResponseKind::Json("Response")),
    HttpRoute::delete("/v1/responses/{response}", "OpenAI", "Delete a stored response", |call| {
        Box::pin(responses::delete(call))
    })
    .returns(ResponseKind::Json("DeletedResponse")),
    HttpRoute::post("/v1/embeddings", "OpenAI", "Embed texts", |call| Box::pin(embeddings::answer(call)))
        .takes(BodyKind::Json("EmbeddingRequest"))
        .returns(ResponseKind::Json("EmbeddingList")),
    HttpRoute::post("/v1/audio/transcriptions", "OpenAI", "Transcribe speech", |call| {
        Box::pin(audio::transcriptions(call))
    })
    .takes(BodyKind::Form("TranscriptionRequest"))
    .returns(ResponseKind::JsonOrText("Transcription")),
    HttpRoute::post("/v1/audio/translations", "OpenAI", "Transcribe speech in English", |call| {
        Box::pin(audio::translations(call))
    })
    .takes(BodyKind::Form("SpeechTranslationRequest"))
    .returns(ResponseKind::JsonOrText("Transcription")),
    HttpRoute::post("/v1/rerank", "tasks", "Rank texts by relevance to a query", |call| {
        Box::pin(rerank::answer(call))
    })
    .takes(BodyKind::Json("RerankRequest"))
    .returns(ResponseKind::Json("RankedList")),
    HttpRoute::post("/v1/classify", "tasks", "Classify texts", |call| Box::pin(classify::answer(call)))
        .takes(BodyKind::Json("ClassifyRequest"))
        .returns(ResponseKind::Json("ClassList")),
    HttpRoute::post("/v1/tag", "tasks", "Find entities in texts", |call| Box::pin(tag::answer(call)))
        .takes(BodyKind::Json("TagRequest"))
        .returns(ResponseKind::Json("EntityList")),
    HttpRoute::post("/v1/translate", "tasks", "Translate texts", |call| Box::pin(translate::translate(call)))
        .takes(BodyKind::Json("TranslateRequest"))
        .returns(ResponseKind::Json("TextList")),
    HttpRoute::post("/v1/summarize", "tasks", "Summarize texts", |call| Box::pin(translate::summarize(call)))
        .takes(BodyKind::Json("SummarizeRequest"))
        .returns(ResponseKind::Json("TextList")),
    HttpRoute::post("/tokenize", "tasks", "Tokenize a text or a conversation", |call| {
        Box::pin(tokens::tokenize(call))
    })
    .takes(BodyKind::Json("TokenizeRequest"))
    .returns(ResponseKind::Json("TokenList")),
    HttpRoute::post("/detokenize", "tasks", "Return the text of tokens", |call| {
        Box::pin(tokens::detokenize(call))
    })
    .takes(BodyKind::Json("DetokenizeRequest"))
    .returns(ResponseKind::Json("DetokenizedText")),
    HttpRoute::get("/api/version", "Ollama", "The version of the server", |call| {
        Box::pin(ollama::model_list::version(call))
    })
    .public()
    .with_plain_errors(),
    HttpRoute::get("/api/tags", "Ollama", "List the models", |call| Box::pin(ollama::model_list::tags(call)))
        .returns(ResponseKind::Json("OllamaModelList"))
        .with_plain_errors(),
    HttpRoute::get("/api/ps", "Ollama", "List the loaded models", |call| {
        Box::pin(ollama::model_list::loaded(call))
    })
    .returns(ResponseKind::Json("OllamaModelList"))
    .with_plain_errors(),
    HttpRoute::post("/api/show", "Ollama", "Describe a model", |call| Box::pin(ollama::show::answer(call)))
        .takes(BodyKind::Json("OllamaShowRequest"))
        .returns(ResponseKind::Json("OllamaModelDescription"))
        .with_plain_errors(),
    HttpRoute::post("/api/generate", "Ollama", "Respond to a prompt", |call| {
        Box::pin(ollama::generate::answer(call))
    })
    .takes(BodyKind::Json("OllamaGenerateRequest"))
    .returns(ResponseKind::JsonOrLines("OllamaGenerateResponse", "OllamaGenerateResponse"))
    .with_plain_errors(),
    HttpRoute::post("/api/chat", "Ollama", "Continue a conversation", |call| {
        Box::pin(ollama::chat::answer(call))
    })
    .takes(BodyKind::Json("OllamaChatRequest"))
    .returns(ResponseKind::JsonOrLines("OllamaChatResponse", "OllamaChatResponse"))
    .with_plain_errors(),
    HttpRoute::post("/api/embed", "Ollama", "Embed texts", |call| Box::pin(ollama::embed::answer(call)))
        .takes(BodyKind::Json("OllamaEmbedRequest"))
        .returns(ResponseKind::Json("OllamaEmbeddings"))
        .with_plain_errors(),
    HttpRoute::post("/api/embeddings", "Ollama", "Embed a text", |call| {
        Box::pin(ollama::embed::answer_one(call))
    })
    .takes(BodyKind::Json("OllamaEmbeddingRequest"))
    .returns(ResponseKind::Json("OllamaEmbedding"))
    .with_plain_errors(),
    HttpRoute::post("/api/pull", "Ollama", "Not supported", |call| Box::pin(ollama::unsupported::pull(call)))
        .not_implemented()
        .with_plain_errors(),
    HttpRoute::post("/api/push", "Ollama", "Not supported", |call| Box::pin(ollama::unsupported::push(call)))
        .not_implemented()
        .with_plain_errors(),
    HttpRoute::post("/api/create", "Ollama", "Not supported", |call| {
        Box::pin(ollama::unsupported::create(call))
    })
    .not_implemented()
    .with_plain_errors(),
    HttpRoute::post("/api/copy", "Ollama", "Not supported", |call| Box::pin(ollama::unsupported::copy(call)))
        .not_implemented()
        .with_plain_errors(),
    HttpRoute::delete("/api/delete", "Ollama", "Not supported", |call| {
        Box::pin(ollama::unsupported::delete(call))
    })
    .not_implemented()
    .with_plain_errors(),
    HttpRoute::get("/v2", "inference", "Describe the server", |call| Box::pin(metadata::server(call)))
        .public()
        .with_plain_errors(),
    HttpRoute::get("/v2/health/live", "inference", "Whether the server answers", |call| {
        Box::pin(inference_protocol::health::live(call))
    })
    .public()
    .with_plain_errors(),
    HttpRoute::get("/v2/health/ready", "inference", "Whether the server takes requests", |call| {
        Box::pin(inference_protocol::health::ready(call))
    })
    .public()
    .with_plain_errors(),
    HttpRoute::get(
        "/v2/models/{model}/versions/{version}/ready",
        "inference",
        "Whether a model takes requests",
        |call| Box::pin(inference_protocol::health::model_ready(call)),
    )
    .with_plain_errors(),
    HttpRoute::get("/v2/models/{model}/versions/{version}", "inference", "Describe a model", |call| {
        Box::pin(metadata::model(call))
    })
    .returns(ResponseKind::Json("ModelMetadata"))
    .with_plain_errors(),
    HttpRoute::get("/v2/models/{model}/ready", "inference", "Whether a model takes requests", |call| {
        Box::pin(inference_protocol::health::model_ready(call))
    })
    .with_plain_errors(),
    HttpRoute::get("/v2/models/{model}", "inference", "Describe a model", |call| {
        Box::pin(metadata::model(call))
    })
    .returns(ResponseKind::Json("ModelMetadata"))
    .with_plain_errors(),
    HttpRoute::post("/v2/models/{model}/infer", "inference", "Run a model on tensors", |call| {
        Box::pin(infer::answer(call))
    })
    .takes(BodyKind::JsonOrTensors("InferRequest"))
    .returns(ResponseKind::JsonOrTensors("InferResponse"))
    .with_plain_errors(),
    HttpRoute::post(
        "/v2/models/{model}/versions/{version}/infer",
        "inference",
        "Run a model on tensors",
        |call| Box::pin(infer::answer(call)),
    )
    .takes(BodyKind::JsonOrTensors("InferRequest"))
    .returns(ResponseKind::JsonOrTensors("InferResponse"))
    .with_plain_errors(),
    HttpRoute::post("/v2/models/{model}/generate", "inference", "Continue a text", |call| {
        Box::pin(generate::answer(call))
    })
    .takes(BodyKind::Json("GenerateRequest"))
    .returns(ResponseKind::Json("GenerateResponse"))
    .with_plain_errors(),
    HttpRoute::post("/v2/models/{model}/generate_stream", "inference", "Continue a text in parts", |call| {
        Box::pin(generate::answer_streamed(call))
    })
    .takes(BodyKind::Json("GenerateRequest"))
    .returns(ResponseKind::Events("GenerateResponse"))
    .with_plain_errors(),
    HttpRoute::post("/v2/repository/index", "inference", "List the models", |call| {
        Box::pin(repository::index(call))
    })
    .takes(BodyKind::Json("RepositoryIndexRequest"))
    .returns(ResponseKind::Json("RepositoryIndex"))
    .with_plain_errors(),
    HttpRoute::post("/v2/repository/models/{model}/load", "inference", "Load a model", |call| {
        Box::pin(repository::load(call))
    })
    .admin()
    .takes(BodyKind::Json("LoadModelRequest"))
    .with_plain_errors(),
    HttpRoute::post("/v2/repository/models/{model}/unload", "inference", "Unload a model", |call| {
        Box::pin(repository::unload(call))
    })
    .admin()
    .takes(BodyKind::Json("UnloadModelRequest"))
    .with_plain_errors(),
    HttpRoute::get("/admin/models", "operation", "List the models that are loaded, or can be", |call| {
        Box::pin(admin::models(call))
    })
    .admin()
    .returns(ResponseKind::Json("ModelStatusList")),
    HttpRoute::post("/admin/models/{model}/load", "operation", "Load or replace a model", |call| {
        Box::pin(admin::load(call))
    })
    .admin()
    .takes(BodyKind::Json("LoadModelRequest"))
    .returns(ResponseKind::Json("ModelStatus")),
    HttpRoute::post("/admin/models/{model}/unload", "operation", "Unload a model", |call| {
        Box::pin(admin::unload(call))
    })
    .admin()
    .takes(BodyKind::Json("LoadModelRequest"))
    .returns(ResponseKind::Json("ModelStatus")),
    HttpRoute::post("/admin/drain", "operation", "Make load balancers send no more requests", |call| {
        Box::pin(admin::drain(call))
    })
    .admin()
    .returns(ResponseKind::Json("DrainState")),
    HttpRoute::post("/admin/resume", "operation", "Make load balancers send requests again", |call| {
        Box::pin(admin::resume(call))
    })
    .admin()
    .returns(ResponseKind::Json("DrainState")),
    HttpRoute::get("/health", "operation", "Whether the server takes requests", |call| {
        Box::pin(health::ready(call))
    })
    .public(),
    HttpRoute::get("/health/live", "operation", "Whether the server answers", |call| {
        Box::pin(health::live(call))
    })
    .public(),
    HttpRoute::get("/health/ready", "operation", "Whether the server takes requests", |call| {
        Box::pin(health::ready(call))
    })
    .public(),
    HttpRoute::get("/metrics", "operation", "Metrics for Prometheus", |call| Box::pin(health::metrics(call)))
        .returns(ResponseKind::Text(METRICS_TYPE)),
    HttpRoute::get("/version", "operation", "The version of the server", |call| {
        Box::pin(health::version(call))
    })
    .public(),
    HttpRoute::get("/openapi.json", "operation", "This description", |call| {
        Box::pin(health::description(call))
    })
    .public(),
];
