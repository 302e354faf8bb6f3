//! Requests to `/infer`.

use serde_json::value::RawValue;
use siskin::{Error, Result};
use siskin_format::JsonFields;

use super::TEXT;
use super::tensor_data::{element_count, texts_from_bytes, texts_from_json};
use crate::error::ApiError;

const DATATYPE: &str = "BYTES";

/// A request.
#[derive(Debug, PartialEq)]
pub(super) struct InferRequest {
    pub(super) id: Option<String>,
    /// The model that the request names besides the path.
    pub(super) model_name: Option<String>,
    pub(super) texts: Vec<String>,
    /// The parameters of the request that are not about tensors: a JSON object.
    pub(super) parameters: String,
    /// The tensors to return; empty: all.
    pub(super) outputs: Vec<RequestedTensor>,
    /// Tensors are returned as bytes, unless they say otherwise.
    pub(super) is_binary: bool,
}

/// A tensor to return.
#[derive(Debug, PartialEq)]
pub(super) struct RequestedTensor {
    pub(super) name: String,
    pub(super) is_binary: Option<bool>,
}

impl InferRequest {
    /// Parses a body. `header_bytes`: the length of the JSON, which binary data follow; `None`: there are none.
    pub(super) fn parse(body: &[u8], header_bytes: Option<usize>) -> std::result::Result<Self, ApiError> {
        let (header, binary) =
            body.split_at_checked(header_bytes.unwrap_or(body.len())).ok_or_else(|| {
                ApiError::invalid(super::HEADER_LENGTH, format!("exceeds the body of {} bytes", body.len()))
            })?;
        let mut fields = crate::body::fields(header)?;
        let inputs: Vec<&RawValue> = fields.take_required("inputs")?;
        let texts = match inputs.as_slice() {
            [input] => text_input(input.get(), binary).map_err(|error| error.within_field("inputs[0]"))?,
            _ => {
                let message = format!("expected one tensor with the name `{TEXT}`, got {}", inputs.len());
                return Err(ApiError::invalid("inputs", message));
            }
        };
        let outputs: Vec<&RawValue> = fields.take("outputs")?.unwrap_or_default();
        let output = |(index, output): (usize, &&RawValue)| {
            RequestedTensor::parse(output.get())
                .map_err(|error| error.within_field(&format!("outputs[{index}]")))
        };
        let outputs = outputs.iter().enumerate().map(output).collect::<Result<_>>()?;
        let (id, model_name) = (fields.take("id")?, fields.take("model_name")?);
        let parameters: Option<&RawValue> = fields.take("parameters")?;
        fields.finish()?;
        let (is_binary, parameters) = request_parameters(parameters.map_or("{}", RawValue::get))
            .map_err(|error| error.within_field("parameters"))?;
        Ok(Self { id, model_name, texts, parameters, outputs, is_binary })
    }
}

/// Reads the body of a request, with binary data or without.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(body: &[u8]) {
    let header = body.iter().position(|byte| *byte == b'\n');
    for header_bytes in [None, header] {
        let _ = InferRequest::parse(body, header_bytes);
    }
}

/// Returns the texts of the input tensor. `binary`: all bytes behind the JSON.
fn text_input(json: &str, binary: &[u8]) -> Result<Vec<String>> {
    let mut fields = JsonFields::read(json)?;
    fields.ignore_null();
    let name: String = fields.take_required("name")?;
    if name != TEXT {
        return Err(Error::argument("name", format!("`{name}` is not an input; expected `{TEXT}`")));
    }
    let datatype: String = fields.take_required("datatype")?;
    if datatype != DATATYPE {
        return Err(Error::argument(
            "datatype",
            format!("`{datatype}` is not supported; expected {DATATYPE}"),
        ));
    }
    let shape: Vec<usize> = fields.take_required("shape")?;
    let data: Option<&RawValue> = fields.take("data")?;
    let parameters: Option<&RawValue> = fields.take("parameters")?;
    fields.finish()?;
    let size = parameters.map_or(Ok(None), |parameters| binary_size(parameters.get()));
    let size = size.map_err(|error| error.within_field("parameters"))?;
    if size.unwrap_or(0) != binary.len() {
        let message = format!("{} bytes, but {} follow the JSON", size.unwrap_or(0), binary.len());
        return Err(Error::argument("parameters.binary_data_size", message));
    }
    let texts = match (data, size) {
        (Some(data), None) => texts_from_json(data.get())?,
        (None, Some(_)) => texts_from_bytes(binary)?,
        (None, None) => return Err(Error::argument("data", "missing")),
        (Some(_), Some(_)) => return Err(Error::argument("data", "given both as JSON and as bytes")),
    };
    let count = element_count(&shape)?;
    match texts.len() == count {
        true => Ok(texts),
        false => {
            let message = format!("the shape {shape:?} has {count} elements, the data {}", texts.len());
            Err(Error::argument("shape", message))
        }
    }
}

fn binary_size(json: &str) -> Result<Option<usize>> {
    let mut fields = JsonFields::read(json)?;
    fields.ignore_null();
    let size = fields.take("binary_data_size")?;
    fields.finish()?;
    Ok(size)
}

/// Returns whether tensors are returned as bytes, and the other parameters.
fn request_parameters(json: &str) -> Result<(bool, String)> {
    let mut fields = JsonFields::read(json)?;
    fields.ignore_null();
    let is_binary = fields.take("binary_data_output")?.unwrap_or(false);
    let others: serde_json::Map<String, serde_json::Value> = fields.into_options()?;
    Ok((is_binary, serde_json::Value::Object(others).to_string()))
}

impl RequestedTensor {
    fn parse(json: &str) -> Result<Self> {
        let mut fields = JsonFields::read(json)?;
        fields.ignore_null();
        let name = fields.take_required("name")?;
        let parameters: Option<&RawValue> = fields.take("parameters")?;
        fields.finish()?;
        let is_binary = match parameters {
            None => None,
            Some(parameters) => {
                let read = || {
                    let mut fields = JsonFields::read(parameters.get())?;
                    fields.ignore_null();
                    let is_binary = fields.take("binary_data")?;
                    fields.finish().map(|()| is_binary)
                };
                read().map_err(|error| error.within_field("parameters"))?
            }
        };
        Ok(Self { name, is_binary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"id": "7", "inputs": [{"name": "text", "datatype": "BYTES", "shape": [2, 1],
        "data": [["a"], ["b"]]}], "outputs": [{"name": "text", "parameters": {"binary_data": true}}],
        "parameters": {"temperature": 0.5, "binary_data_output": true}}"#;

    /// Returns a request with binary data, and the length of its JSON.
    fn binary() -> (Vec<u8>, usize) {
        let json = r#"{"inputs": [{"name": "text", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 11}}]}"#;
        let mut bytes = json.as_bytes().to_vec();
        bytes.extend_from_slice(b"\x01\0\0\0a\x02\0\0\0bc");
        (bytes, json.len())
    }

    #[test]
    fn tensors_are_json_or_bytes() {
        let request = InferRequest::parse(JSON.as_bytes(), None).unwrap();
        assert_eq!(
            (request.id.as_deref(), &request.texts[..]),
            (Some("7"), &["a".to_owned(), "b".to_owned()][..])
        );
        assert_eq!(request.parameters, r#"{"temperature":0.5}"#);
        assert_eq!(request.outputs, [RequestedTensor { name: "text".to_owned(), is_binary: Some(true) }]);
        assert!(request.is_binary);
        let (bytes, header) = binary();
        assert_eq!(InferRequest::parse(&bytes, Some(header)).unwrap().texts, ["a", "bc"]);
        for wrong in
            [None, Some(0), Some(header - 1), Some(header + 1), Some(bytes.len() + 1), Some(usize::MAX)]
        {
            assert!(InferRequest::parse(&bytes, wrong).is_err(), "{wrong:?}");
        }
        for end in 0..bytes.len() {
            assert!(InferRequest::parse(&bytes[..end], Some(header.min(end))).is_err(), "{end}");
        }
    }

    #[test]
    fn any_bytes_are_a_request_or_an_error() {
        let (with_bytes, header) = binary();
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..40_000 {
            let mut bytes = if round % 2 == 0 { with_bytes.clone() } else { JSON.as_bytes().to_vec() };
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at] = b"[]{}\",:0-9e"[random(11)],
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, b"[{\"0\\"[random(5)]),
                }
            }
            let header = match random(4) {
                0 => None,
                1 => Some(random(bytes.len() + 2)),
                _ => Some(header),
            };
            if let Ok(request) = InferRequest::parse(&bytes, header) {
                assert!(request.texts.iter().map(String::len).sum::<usize>() <= bytes.len());
            }
        }
    }
}
