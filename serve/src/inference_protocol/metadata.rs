//! `GET /v2` and `GET /v2/models/NAME`.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{EMBEDDING, LABEL, SCORE, TEXT, TensorOutputs, VERSION, model_in_path};
use crate::call::Call;
use crate::error::ApiError;
use crate::response::{self, Response};

/// Describes the server.
pub(crate) async fn server(_: Call) -> Result<Response, ApiError> {
    let object = json!({
        "name": "siskin",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data", "parameters", "generate"],
    });
    Ok(response::json(StatusCode::OK, &object))
}

/// Describes a model.
pub(crate) async fn model(call: Call) -> Result<Response, ApiError> {
    let model = model_in_path(&call)?;
    let outputs = TensorOutputs::of(&model);
    let inputs = if outputs == TensorOutputs::None { Vec::new() } else { vec![tensor(TEXT)] };
    let object = json!({
        "name": model.name,
        "versions": [VERSION],
        "platform": "siskin",
        "inputs": inputs,
        "outputs": outputs.names().iter().map(|name| tensor(name)).collect::<Vec<_>>(),
    });
    Ok(response::json(StatusCode::OK, &object))
}

fn tensor(name: &str) -> Value {
    let (datatype, shape): (&str, &[i64]) = match name {
        EMBEDDING => ("FP32", &[-1, -1]),
        SCORE => ("FP32", &[-1]),
        LABEL | TEXT => ("BYTES", &[-1]),
        _ => ("", &[]),
    };
    json!({"name": name, "datatype": datatype, "shape": shape})
}
