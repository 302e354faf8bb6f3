//! Chat completions with tools and reasoning, of tiny models whose text is random.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::Path;

use serde_json::{Value, json};
use siskin::{Model, ModelOptions};
use siskin_serve::{ServedModel, ServerOptions};
use siskin_tests::chat_model::{self, ChatModel};

use super::http::{Running, request};

/// Token 2 is the end token of the configuration.
const SPECIAL: [&str; 5] = ["<think>", "</think>", "</s>", "[TOOL_CALLS]", "[ARGS]"];

/// In the manner of Mistral: tools, calls and results between special tokens.
pub(super) const MISTRAL: &str = "{% if tools %}{{ tools | tojson }}{% endif %}\
    {% for message in messages %}{% if message.tool_calls %}\
    {% for call in message.tool_calls %}{% if call.id | length != 9 %}{{ raise_exception('id') }}{% endif %}\
    [TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}</s>\
    {% else %}[{{ message.role }}]{{ message.content }}{% endif %}{% endfor %}";

/// Without tools; responses begin with reasoning.
pub(super) const THINKING: &str = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% if enable_thinking is defined and not enable_thinking %}\
    <think></think>{% else %}<think>{% endif %}{% endif %}";

pub(super) fn serve(name: &str, template: impl Into<Option<&'static str>>) -> Running {
    serve_with(name, template, ServerOptions::default())
}

pub(super) fn serve_with(
    name: &str,
    template: impl Into<Option<&'static str>>,
    server: ServerOptions,
) -> Running {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("http-chat-{name}"));
    let model = ChatModel {
        source: "golden/llama",
        tokenizer: chat_model::byte_tokenizer(&SPECIAL),
        template: template.into(),
        max_positions: Some(4096),
    };
    let path = chat_model::pack(&folder, name, &model).unwrap();
    let options = ModelOptions { threads: 1, ..ModelOptions::default() };
    let model = Model::from_file(siskin::file::File::open(path).unwrap(), &options).unwrap();
    let mut served = ServedModel::new("tiny", model);
    served.options.session.context = 4096;
    Running::serve(server, served)
}

pub(super) fn tools() -> Value {
    let parameters = json!({
        "type": "object", "properties": {"city": {"enum": ["Paris", "Bern"]}, "days": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["city", "days"], "additionalProperties": false
    });
    let function = json!({"name": "get_weather", "description": "The weather.", "parameters": parameters});
    json!([{"type": "function", "function": function}])
}

fn chat(messages: &Value, more: &Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": messages, "seed": 5, "max_tokens": 200});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn question() -> Value {
    json!([{"role": "user", "content": "How is the weather?"}])
}

/// Returns the message of a response.
fn message(server: &Running, body: &Value) -> (Value, String) {
    let (status, response) = server.post("/v1/chat/completions", body);
    assert_eq!(status, 200, "{response}");
    let choice = &response["choices"][0];
    (choice["message"].clone(), choice["finish_reason"].as_str().unwrap().to_owned())
}

/// Returns the message that the deltas of a stream make.
fn streamed(server: &Running, body: &Value) -> (Value, String) {
    let mut body = body.clone();
    body["stream"] = true.into();
    let response = server.exchange(&request("POST", "/v1/chat/completions", body.to_string().as_bytes()));
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    let (mut reason, mut calls) = (String::new(), Vec::<Value>::new());
    let add = |to: &mut Value, text: &Value| {
        *to = format!("{}{}", to.as_str().unwrap_or(""), text.as_str().unwrap()).into()
    };
    for line in
        response.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|line| *line != "[DONE]")
    {
        let chunk: Value = serde_json::from_str(line).unwrap();
        let choice = &chunk["choices"][0];
        let delta = choice["delta"].as_object().unwrap();
        for key in ["content", "reasoning_content"] {
            if let Some(text) = delta.get(key).filter(|text| *text != "") {
                add(&mut message[key], text);
            }
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == calls.len() {
                let mut first = call.clone();
                first.as_object_mut().unwrap().remove("index");
                calls.push(first);
            } else {
                add(&mut calls[index]["function"]["arguments"], &call["function"]["arguments"]);
            }
        }
        if let Some(text) = choice["finish_reason"].as_str() {
            text.clone_into(&mut reason);
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    (message, reason)
}

fn check_calls(message: &Value, reason: &str) {
    assert_eq!(reason, "tool_calls", "{message}");
    assert_eq!(message["content"], Value::Null);
    for call in message["tool_calls"].as_array().unwrap() {
        assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("get_weather")));
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(["Paris", "Bern"].contains(&arguments["city"].as_str().unwrap()), "{arguments}");
        assert!(arguments["days"].as_u64().unwrap() < 100, "{arguments}");
    }
}

#[test]
fn tools_are_called_in_the_format_of_the_template() {
    let server = serve("mistral", MISTRAL);
    for parallel in [false, true] {
        let options = json!({"tools": tools(), "tool_choice": "required", "parallel_tool_calls": parallel, "max_tokens": 900});
        let body = chat(&question(), &options);
        let (whole, reason) = message(&server, &body);
        if parallel && reason == "length" {
            continue;
        }
        check_calls(&whole, &reason);
        let id = whole["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.len() == 9 && id.chars().all(|letter| letter.is_ascii_alphanumeric()), "{id}");
        let (mut stream, stream_reason) = streamed(&server, &body);
        // Ids are those of a response.
        stream["tool_calls"][0]["id"] = id.into();
        if !parallel {
            assert_eq!((&stream, stream_reason.as_str()), (&whole, "tool_calls"));
        }
        // The result is appended to the conversation.
        let result = json!({"role": "tool", "tool_call_id": id, "content": "22 degrees"});
        let messages = json!([question()[0], whole, result]);
        let next = chat(&messages, &json!({"tools": tools(), "tool_choice": "none", "max_tokens": 5}));
        assert_eq!(message(&server, &next).1, "length");
    }
}

#[test]
fn the_prompt_has_tools_unless_none_may_be_called() {
    for (name, template) in [("prompt-native", MISTRAL), ("prompt-text", THINKING)] {
        let server = serve(name, template);
        let tokens = |more: &Value| {
            let (status, body) = server.post("/v1/chat/completions", &chat(&question(), more));
            assert_eq!(status, 200, "{body}");
            body["usage"]["prompt_tokens"].as_u64().unwrap()
        };
        let without = tokens(&json!({"max_tokens": 1}));
        assert_eq!(tokens(&json!({"max_tokens": 1, "tools": tools(), "tool_choice": "none"})), without);
        assert!(tokens(&json!({"max_tokens": 1, "tools": tools()})) > without + 100, "{name}");
    }
}

#[test]
fn templates_without_tools_get_them_as_text() {
    let server =
        serve("text", "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}");
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    let options = json!({"tools": tools(), "tool_choice": named, "parallel_tool_calls": false});
    let (whole, reason) = message(&server, &chat(&question(), &options));
    check_calls(&whole, &reason);
    assert!(whole["tool_calls"][0]["id"].as_str().unwrap().starts_with("call_"));
}

#[test]
fn reasoning_has_a_budget_and_a_field_of_its_own() {
    let server = serve("thinking", THINKING);
    let schema =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["yes", "no"]}}});
    let options = json!({"reasoning_budget": 12, "response_format": schema});
    let body = chat(&question(), &options);
    let (whole, reason) = message(&server, &body);
    assert_eq!(reason, "stop", "{whole}");
    assert!(["\"yes\"", "\"no\""].contains(&whole["content"].as_str().unwrap()), "{whole}");
    assert!(whole["reasoning_content"].as_str().unwrap().chars().count() <= 12, "{whole}");
    assert_eq!(streamed(&server, &body).0, whole);
    let off = json!({"reasoning_effort": "none", "response_format": options["response_format"]});
    let (direct, _) = message(&server, &chat(&question(), &off));
    assert_eq!(direct.get("reasoning_content"), None);
    assert!(["\"yes\"", "\"no\""].contains(&direct["content"].as_str().unwrap()), "{direct}");
}

#[test]
fn errors_name_the_field() {
    let server = serve("errors", MISTRAL);
    let call = |arguments: &str| json!([{"role": "assistant", "tool_calls": [{"id": "123456789", "type": arguments, "function": {"name": "f", "arguments": "{}"}}]}]);
    for (messages, more, param) in [
        (question(), json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (
            question(),
            json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}),
            "tools[0].function.name",
        ),
        (question(), json!({"tools": tools(), "tool_choice": "some"}), "tool_choice"),
        (question(), json!({"tool_choice": "required"}), "tool_choice"),
        (
            question(),
            json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            "tool_choice",
        ),
        (question(), json!({"tools": [tools()[0], tools()[0]]}), "tools"),
        (question(), json!({"reasoning_effort": "huge"}), "reasoning_effort"),
        (call("custom"), json!({}), "messages[0].tool_calls[0].type"),
        (json!([{"role": "assistant"}]), json!({}), "messages[0].content"),
        (json!([{"role": "user", "content": [{"type": "image_url"}]}]), json!({}), "messages[0].content"),
    ] {
        let (status, body) = server.post("/v1/chat/completions", &chat(&messages, &more));
        assert_eq!((status, &body["error"]["param"]), (400, &json!(param)), "{body}");
    }
}
