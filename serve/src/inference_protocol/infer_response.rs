//! Responses of `/infer`.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::infer_request::{InferRequest, RequestedTensor};
use super::tensor_data::OutputData;
use super::{HEADER_LENGTH, VERSION};
use crate::error::ApiError;
use crate::response::{self, Response};

/// A tensor that a model returns.
pub(super) struct OutputTensor {
    pub(super) name: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) data: OutputData,
}

/// Fails if a request asks for a tensor that the model does not return, or for one twice.
pub(super) fn check_outputs(outputs: &[RequestedTensor], names: &[&str]) -> Result<(), ApiError> {
    for (index, output) in outputs.iter().enumerate() {
        let field = format!("outputs[{index}].name");
        if !names.contains(&output.name.as_str()) {
            let message =
                format!("`{}` is not an output; expected one of: {}", output.name, names.join(", "));
            return Err(ApiError::invalid(&field, message));
        }
        if outputs[..index].iter().any(|other| other.name == output.name) {
            return Err(ApiError::invalid(&field, format!("`{}` is requested twice", output.name)));
        }
    }
    Ok(())
}

/// Returns the response with the tensors that a request asks for.
pub(super) fn write(model: &str, request: &InferRequest, tensors: &[OutputTensor]) -> Response {
    let (mut outputs, mut binary) = (Vec::new(), Vec::new());
    for tensor in tensors {
        let requested = request.outputs.iter().find(|output| output.name == tensor.name);
        if requested.is_none() && !request.outputs.is_empty() {
            continue;
        }
        let is_binary = requested.and_then(|output| output.is_binary).unwrap_or(request.is_binary);
        let OutputTensor { name, shape, data } = tensor;
        let mut output = json!({"name": name, "datatype": data.datatype(), "shape": shape});
        if is_binary {
            let bytes = data.to_bytes();
            output["parameters"] = json!({"binary_data_size": bytes.len()});
            binary.push(bytes);
        } else {
            output["data"] = data.to_json();
        }
        outputs.push(output);
    }
    let mut object = json!({"model_name": model, "model_version": VERSION, "outputs": outputs});
    if let Some(id) = &request.id {
        object["id"] = Value::from(id.as_str());
    }
    if binary.is_empty() {
        return response::json(StatusCode::OK, &object);
    }
    let mut bytes = object.to_string().into_bytes();
    let header_bytes = bytes.len();
    binary.iter().for_each(|tensor| bytes.extend_from_slice(tensor));
    let mut response = response::bytes(StatusCode::OK, "application/octet-stream", bytes.into());
    response.headers_mut().insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(header_bytes));
    response
}
