//! The Open Inference Protocol: the results of the library and of the OpenAI API as tensors, and errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use serde_json::{Value, json};
use siskin::encoder::OverflowMode;
use siskin::{EncoderOptions, Seq2SeqOptions};

use super::http::{Running, request};
use super::http_chat::serve;
use super::http_tasks::{TEXTS, ok, open, server, translator};

fn get(server: &Running, path: &str) -> (u16, Value) {
    let response = server.exchange(&request("GET", path, b""));
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

fn tensor(texts: &[&str]) -> Value {
    json!({"name": "text", "datatype": "BYTES", "shape": [texts.len()], "data": texts})
}

fn infer(texts: &[&str], parameters: &Value) -> Value {
    json!({"id": "7", "inputs": [tensor(texts)], "parameters": parameters})
}

/// Returns the numbers of a tensor.
fn numbers(tensor: &Value) -> Vec<f32> {
    tensor["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

/// Sends texts as bytes, and returns the JSON and the bytes of the response.
fn binary(server: &Running, path: &str, texts: &[&str], more: &Value) -> (Value, Vec<u8>) {
    let mut data = Vec::new();
    for text in texts {
        data.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        data.extend(text.bytes());
    }
    let mut header = json!({"inputs": [{
        "name": "text", "datatype": "BYTES", "shape": [texts.len(), 1],
        "parameters": {"binary_data_size": data.len()},
    }]});
    for (key, value) in more.as_object().unwrap() {
        header[key] = value.clone();
    }
    let header = header.to_string();
    let mut bytes = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ninference-header-content-length: {}\r\n\
         content-length: {}\r\n\r\n{header}",
        header.len(),
        header.len() + data.len()
    )
    .into_bytes();
    bytes.extend(data);
    let response = server.exchange_bytes(&bytes);
    let end = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(response[..end].to_vec()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response));
    let length = head.lines().find_map(|line| line.strip_prefix("inference-header-content-length: "));
    let (json, data) = response[end..].split_at(length.unwrap().parse().unwrap());
    (serde_json::from_slice(json).unwrap(), data.to_vec())
}

#[test]
fn servers_and_models_are_described() {
    let models = vec![("classes", open("golden-texts/bert-classes")), ("translator", translator())];
    let server = server(models);
    let (status, metadata) = get(&server, "/v2");
    assert_eq!((status, &metadata["name"]), (200, &json!("siskin")));
    assert!(metadata["extensions"].as_array().unwrap().contains(&json!("binary_tensor_data")));
    assert_eq!(get(&server, "/v2/health/live"), (200, json!({"live": true})));
    assert_eq!(get(&server, "/v2/health/ready"), (200, json!({"ready": true})));
    for path in ["/v2/models/classes", "/v2/models/classes/versions/1"] {
        let (_, model) = get(&server, path);
        let names: Vec<_> =
            model["outputs"].as_array().unwrap().iter().map(|tensor| &tensor["name"]).collect();
        assert_eq!(names, ["label", "score"]);
        assert_eq!(model["inputs"], json!([{"name": "text", "datatype": "BYTES", "shape": [-1]}]));
        assert_eq!(get(&server, &format!("{path}/ready")).0, 200);
    }
    assert_eq!(get(&server, "/v2/models/translator").1["outputs"][0]["name"], "text");
    for path in ["/v2/models/other", "/v2/models/other/ready", "/v2/models/classes/versions/2"] {
        let (status, error) = get(&server, path);
        assert!(status == 404 && error["error"].is_string(), "{error}");
    }
    let index = ok(&server, "/v2/repository/index", &json!({}));
    assert_eq!(index[1], json!({"name": "translator", "version": "1", "state": "READY", "reason": ""}));
}

#[test]
fn encoders_return_tensors() {
    let (classes, labels) = (open("golden-texts/bert-classes"), open("golden-texts/bert-labels"));
    let server = server(vec![("classes", classes.clone()), ("encoder", labels)]);
    let mut encoder = classes.encoder(EncoderOptions::default()).unwrap();
    let expected = encoder.classify(&TEXTS, OverflowMode::Error).unwrap();
    let response = ok(&server, "/v2/models/classes/infer", &infer(&TEXTS, &json!({})));
    assert_eq!((&response["id"], &response["model_version"]), (&json!("7"), &json!("1")));
    let labels: Vec<_> = expected.iter().map(|classes| classes[0].label.clone()).collect();
    let scores: Vec<_> = expected.iter().map(|classes| classes[0].probability).collect();
    let outputs = &response["outputs"];
    assert_eq!(outputs[0], json!({"name": "label", "datatype": "BYTES", "shape": [3], "data": labels}));
    assert_eq!((numbers(&outputs[1]), &outputs[1]["shape"]), (scores.clone(), &json!([3])));
    let some = json!({"inputs": [tensor(&TEXTS)], "outputs": [{"name": "score"}]});
    let some = ok(&server, "/v2/models/classes/versions/1/infer", &some);
    assert_eq!(some["outputs"], json!([outputs[1]]));

    let openai = ok(&server, "/v1/embeddings", &json!({"model": "encoder", "input": TEXTS}));
    let vectors = openai["data"].as_array().unwrap();
    let vectors: Vec<f32> = vectors
        .iter()
        .flat_map(|data| data["embedding"].as_array().unwrap())
        .map(|number| number.as_f64().unwrap() as f32)
        .collect();
    let response = ok(&server, "/v2/models/encoder/infer", &infer(&TEXTS, &json!({})));
    let embedding = &response["outputs"][0];
    assert_eq!((numbers(embedding), &embedding["name"]), (vectors.clone(), &json!("embedding")));
    assert_eq!(embedding["shape"], json!([3, vectors.len() / 3]));

    // The same as bytes.
    let all = json!({"parameters": {"binary_data_output": true}});
    let (header, bytes) = binary(&server, "/v2/models/encoder/infer", &TEXTS, &all);
    assert_eq!(header["outputs"][0]["parameters"]["binary_data_size"], bytes.len());
    let floats: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(floats, vectors);
    let mixed = json!({"outputs": [
        {"name": "score", "parameters": {"binary_data": false}}, {"name": "label", "parameters": {"binary_data": true}},
    ]});
    let (header, bytes) = binary(&server, "/v2/models/classes/infer", &TEXTS, &mixed);
    let lengths: usize = labels.iter().map(|label| 4 + label.len()).sum();
    assert_eq!(bytes.len(), lengths);
    assert_eq!(bytes[4..4 + labels[0].len()], *labels[0].as_bytes());
    assert_eq!(numbers(&header["outputs"][1]), scores);
}

#[test]
fn decoders_continue_texts() {
    let server = serve("inference-text", None);
    let sampling = json!({"max_tokens": 20, "seed": 3, "temperature": 0.9});
    let prompts = ["Once", "Twice upon"];
    let mut body = sampling.clone();
    (body["model"], body["prompt"]) = ("tiny".into(), prompts.into());
    let openai = ok(&server, "/v1/completions", &body);
    let expected: Vec<_> = (0..2).map(|index| openai["choices"][index]["text"].clone()).collect();
    let response = ok(&server, "/v2/models/tiny/infer", &infer(&prompts, &sampling));
    assert_eq!(response["outputs"][0]["data"], json!(expected));

    let body = json!({"id": "a", "text_input": prompts[0], "parameters": sampling});
    let whole = ok(&server, "/v2/models/tiny/generate", &body);
    assert_eq!((&whole["text_output"], &whole["id"]), (&expected[0], &json!("a")));
    assert_eq!(whole["finish_reason"], "length");
    let streamed =
        server.exchange(&request("POST", "/v2/models/tiny/generate_stream", body.to_string().as_bytes()));
    let events = streamed.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
    let text: String = events.iter().filter_map(|event| event["text_output"].as_str()).collect();
    assert_eq!(text, whole["text_output"]);
    assert_eq!(events.last().unwrap()["finish_reason"], "length");
}

#[test]
fn texts_are_made_from_texts() {
    let model = translator();
    let server = server(vec![("translator", model.clone())]);
    let inputs = ["t9 t10", "t11"];
    let expected = model.seq2seq(Seq2SeqOptions::default()).unwrap().translate(&inputs, "de", "en").unwrap();
    let expected: Vec<_> = expected.iter().map(|candidates| candidates[0].text.clone()).collect();
    let languages = json!({"source_language": "de", "target_language": "en"});
    let response = ok(&server, "/v2/models/translator/infer", &infer(&inputs, &languages));
    assert_eq!(response["outputs"][0]["data"], json!(expected));
}

#[test]
fn errors_name_the_field() {
    let server = server(vec![("classes", open("golden-texts/bert-classes")), ("translator", translator())]);
    let input = |key: &str, value: Value| {
        let mut input = tensor(&["w5"]);
        input[key] = value;
        json!({"inputs": [input]})
    };
    let long = vec!["w5"; 200].join(" ");
    for (body, message) in [
        (json!({}), "inputs: missing"),
        (json!({"inputs": []}), "inputs: expected one tensor with the name `text`, got 0"),
        (json!({"inputs": [tensor(&["w5"]), tensor(&["w5"])]}), "inputs: expected one tensor"),
        (input("name", json!("tokens")), "inputs[0].name: `tokens` is not an input"),
        (input("datatype", json!("INT64")), "inputs[0].datatype: `INT64` is not supported"),
        (input("shape", json!([2])), "inputs[0].shape: the shape [2] has 2 elements, the data 1"),
        (input("shape", json!([])), "inputs[0].shape: expected 1 to 8 sizes"),
        (input("shape", json!([-1])), "inputs[0].shape: "),
        (input("data", json!([1])), "inputs[0].data: expected texts"),
        (input("data", Value::Null), "inputs[0].data: missing"),
        (input("bogus", json!(1)), "inputs[0].bogus: unknown field"),
        (
            input("parameters", json!({"binary_data_size": 4})),
            "inputs[0].parameters.binary_data_size: 4 bytes",
        ),
        (
            input("parameters", json!({"shared_memory_region": "a"})),
            "inputs[0].parameters.shared_memory_region",
        ),
        (json!({"inputs": [tensor(&[])]}), "inputs[0].data: expected 1 to 1024 texts"),
        (json!({"inputs": [tensor(&["w5", &long])]}), "inputs[0].data[1]: "),
        (
            json!({"inputs": [tensor(&["w5"])], "outputs": [{"name": "text"}]}),
            "outputs[0].name: `text` is not an output; expected one of: label, score",
        ),
        (
            json!({"inputs": [tensor(&["w5"])], "outputs": [{"name": "score"}, {"name": "score"}]}),
            "outputs[1].name: `score` is requested twice",
        ),
        (
            json!({"inputs": [tensor(&["w5"])], "outputs": [{"name": "score", "parameters": {"classification": 2}}]}),
            "outputs[0].parameters.classification: unknown field",
        ),
        (json!({"inputs": [tensor(&["w5"])], "model_name": "other"}), "model_name: `other` is not the model"),
        (infer(&["w5"], &json!({"max_tokens": 5})), "parameters.max_tokens: unknown field"),
        (infer(&["w5"], &json!({"truncate": 5})), "parameters.truncate: "),
        (infer(&["w5"], &json!([])), "parameters: expected a JSON object"),
        (json!({"inputs": [tensor(&["w5"])], "bogus": 1}), "bogus: unknown field"),
    ] {
        let (status, response) = server.post("/v2/models/classes/infer", &body);
        let text = response["error"].as_str().unwrap();
        assert!(status == 400 && text.contains(message), "{body}: {text}");
    }
    let beams = infer(&["t9"], &json!({"num_beams": 99}));
    let (_, error) = server.post("/v2/models/translator/infer", &beams);
    assert_eq!(error["error"], "parameters.num_beams: expected 1 to 16");
    let (status, error) = server.post("/v2/models/other/infer", &infer(&["w5"], &json!({})));
    assert!(status == 404 && error["error"].as_str().unwrap().contains("no model `other`"), "{error}");
    let (status, error) = server.post("/v2/models/classes/generate", &json!({"text_input": "a"}));
    assert!(status == 400 && error["error"].as_str().unwrap().contains("is an encoder"), "{error}");
    assert_eq!(server.post("/v2/models/classes/versions/2/infer", &infer(&["w5"], &json!({}))).0, 404);

    let decoder = serve("inference-errors", None);
    for (body, message) in [
        (json!({}), "text_input: missing"),
        (json!({"text_input": "a", "bogus": 1}), "bogus: unknown field"),
        (json!({"text_input": "a", "parameters": {"bogus": 1}}), "parameters.bogus: unknown field"),
        (json!({"text_input": "a", "parameters": {"stream": true}}), "parameters.stream: differs"),
        (json!({"text_input": "a", "parameters": {"n": 2}}), "parameters.n: is not supported"),
        (json!({"text_input": "a", "parameters": {"priority": 1}}), "parameters.priority: is not supported"),
        (json!({"text_input": "a", "parameters": {"temperature": -1}}), "parameters.temperature: "),
        (json!({"text_input": "a", "parameters": 5}), "parameters: expected a JSON object"),
        (json!({"text_input": "a".repeat(5000)}), "text_input: "),
    ] {
        let (status, response) = decoder.post("/v2/models/tiny/generate", &body);
        let text = response["error"].as_str().unwrap();
        assert!(status == 400 && text.contains(message), "{body}: {text}");
    }
}
