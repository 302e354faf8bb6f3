//! Routes that change the models of Ollama: those of this server are given when it starts.

use hyper::StatusCode;

use crate::call::Call;
use crate::error::ApiError;
use crate::response::Response;

fn unsupported(message: &str) -> Result<Response, ApiError> {
    Err(ApiError::rejected(StatusCode::NOT_IMPLEMENTED, message))
}

pub(crate) async fn pull(_: Call) -> Result<Response, ApiError> {
    unsupported("the server does not download models; restart it with the file: siskin serve MODEL.gguf")
}

pub(crate) async fn push(_: Call) -> Result<Response, ApiError> {
    unsupported(
        "the server does not upload models; write the file to upload: siskin export MODEL --output FILE.gguf",
    )
}

pub(crate) async fn create(_: Call) -> Result<Response, ApiError> {
    unsupported(
        "the server does not create models; create one and restart the server with it: siskin convert SOURCE \
         --output MODEL.siskin",
    )
}

pub(crate) async fn copy(_: Call) -> Result<Response, ApiError> {
    unsupported(
        "the server does not copy models; copy the file and restart the server: siskin serve COPY.gguf",
    )
}

pub(crate) async fn delete(_: Call) -> Result<Response, ApiError> {
    unsupported("the server does not delete models; restart it without the model: siskin serve OTHER.gguf")
}
