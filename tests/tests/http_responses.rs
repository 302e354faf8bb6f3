//! `/v1/responses`: the text of chat completions, events, stored conversations, and errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use serde_json::{Value, json};
use siskin_serve::{ApiKeys, ServerOptions};

use super::http::{Running, request, status};
use super::http_chat::{MISTRAL, THINKING, serve, serve_with, tools};

const PATH: &str = "/v1/responses";

fn body(more: &Value) -> Value {
    let mut body = json!({"model": "tiny", "input": "How is it?", "seed": 5, "max_output_tokens": 60});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn created(server: &Running, more: &Value) -> Value {
    let (status, response) = server.post(PATH, &body(more));
    assert_eq!(status, 200, "{response}");
    response
}

/// Returns the events of a stream, whose names are their types and whose numbers follow each other.
fn events(server: &Running, more: &Value) -> Vec<Value> {
    let mut body = body(more);
    body["stream"] = true.into();
    let response = server.exchange(&request("POST", PATH, body.to_string().as_bytes()));
    assert!(!response.contains("[DONE]"));
    let names: Vec<&str> = response.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let data = response.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(names.len(), events.len());
    for (index, (event, name)) in events.iter().zip(names).enumerate() {
        assert_eq!(event["type"], name);
        assert_eq!(event["sequence_number"], index);
    }
    events
}

fn get(server: &Running, path: &str) -> (u16, Value) {
    let response = server.exchange(&request("GET", path, b""));
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (status(head), serde_json::from_str(body).unwrap())
}

/// Returns a response without what differs each time.
fn comparable(response: &Value) -> Value {
    let mut response = response.clone();
    for key in ["id", "created_at", "completed_at", "usage"] {
        response.as_object_mut().unwrap().remove(key);
    }
    for item in response["output"].as_array_mut().unwrap() {
        item.as_object_mut().unwrap().remove("id");
        item.as_object_mut().unwrap().remove("call_id");
    }
    response
}

fn joined(events: &[Value], kind: &str) -> String {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .map(|event| event["delta"].as_str().unwrap())
        .collect()
}

#[test]
fn responses_are_those_of_chat_completions() {
    let server = serve("responses-thinking", THINKING);
    let response = created(
        &server,
        &json!({"instructions": "Be brief.", "metadata": {"a": "b"}, "max_output_tokens": 20, "ignore_eos": true}),
    );
    let chat = json!({
        "model": "tiny", "seed": 5, "max_tokens": 20, "ignore_eos": true,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is it?"}],
    });
    let (_, chat) = server.post("/v1/chat/completions", &chat);
    let message = &chat["choices"][0]["message"];
    let (mut text, mut reasoning) = (json!(""), Value::Null);
    for item in response["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "reasoning" => reasoning = item["content"][0]["text"].clone(),
            _ => text = item["content"][0]["text"].clone(),
        }
    }
    assert_eq!(reasoning, message["reasoning_content"]);
    assert_eq!(text, message["content"]);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(response["metadata"], json!({"a": "b"}));
    let usage = &response["usage"];
    assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(usage["output_tokens"], 20);
    assert!(usage["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn streams_have_the_parts_of_the_response() {
    let server = serve("responses-streamed", THINKING);
    let more = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2, "reasoning": {"effort": "none"}});
    let whole = created(&server, &more);
    let events = events(&server, &more);
    let last = events.last().unwrap();
    assert_eq!(events[0]["type"], "response.created");
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(comparable(&last["response"]), comparable(&whole));
    let content = &whole["output"][0]["content"][0];
    assert_eq!(joined(&events, "response.output_text.delta"), content["text"].as_str().unwrap());
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    let log_probabilities: Vec<Value> =
        deltas.flat_map(|event| event["logprobs"].as_array().unwrap().clone()).collect();
    let all = content["logprobs"].as_array().unwrap();
    assert!(log_probabilities.len() > 10 && all.starts_with(&log_probabilities));
    assert_eq!(all[0]["top_logprobs"].as_array().unwrap().len(), 2);
}

#[test]
fn calls_and_their_outputs_are_items() {
    let server = serve("responses-calls", MISTRAL);
    let mut tool = tools()[0]["function"].clone();
    tool["type"] = "function".into();
    let more = json!({
        "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false, "max_output_tokens": 300,
    });
    let whole = created(&server, &more);
    let call = &whole["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("get_weather")), "{whole}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["days"].is_u64(), "{arguments}");
    let events = events(&server, &more);
    assert_eq!(comparable(&events.last().unwrap()["response"]), comparable(&whole));
    let text = joined(&events, "response.function_call_arguments.delta");
    assert_eq!(text, call["arguments"].as_str().unwrap());

    // The whole conversation again, and the same by its stored part.
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "22 degrees"});
    let user = json!({"role": "user", "content": "How is it?"});
    let again = created(&server, &json!({"input": [user, call, output]}));
    let continued = created(&server, &json!({"input": [output], "previous_response_id": whole["id"]}));
    assert_eq!(again["output"][0]["content"], continued["output"][0]["content"]);
    assert_eq!(again["usage"]["input_tokens"], continued["usage"]["input_tokens"]);
    assert_eq!(continued["previous_response_id"], whole["id"]);
}

#[test]
fn responses_are_stored_for_their_clients() {
    let keys = ["one", "two"].map(|name| ApiKeys::generate(name, false).unwrap());
    let file = format!("{}\n{}\n", keys[0].entry, keys[1].entry);
    let options =
        ServerOptions { api_keys: Some(ApiKeys::parse(&file).unwrap().into()), ..ServerOptions::default() };
    let server = serve_with("responses-stored", THINKING, options);
    let send = |method: &str, path: &str, key: usize, body: &str| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             content-length: {}\r\n\r\n{body}",
            keys[key].key,
            body.len()
        );
        let response = server.exchange(head.as_bytes());
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (status(head), serde_json::from_str::<Value>(body).unwrap())
    };
    let input = json!(["a", "b", "c"].map(|text| json!({"role": "user", "content": text})));
    let (_, response) = send("POST", PATH, 0, &body(&json!({"input": input})).to_string());
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    assert_eq!(send("GET", &path, 0, ""), (200, response.clone()));
    assert_eq!(send("GET", &path, 1, "").0, 404);
    assert_eq!(send("GET", &format!("{path}?stream=true"), 0, "").0, 400);
    assert_eq!(send("POST", &format!("{path}/cancel"), 0, "").0, 400);
    let (_, items) = send("GET", &format!("{path}/input_items?limit=2"), 0, "");
    assert_eq!((items["data"][0]["content"].as_str(), items["has_more"].as_bool()), (Some("c"), Some(true)));
    let next = format!("{path}/input_items?order=desc&after={}", items["last_id"].as_str().unwrap());
    let (_, items) = send("GET", &next, 0, "");
    assert_eq!(items["data"].as_array().unwrap().len(), 1);
    assert_eq!(items["data"][0]["content"], "a");
    for query in ["limit=0", "limit=x", "order=up", "after=nothing"] {
        assert_eq!(send("GET", &format!("{path}/input_items?{query}"), 0, "").0, 400, "{query}");
    }
    assert_eq!(send("DELETE", &path, 1, "").0, 404);
    assert_eq!(send("DELETE", &path, 0, "").1["deleted"], true);
    assert_eq!(send("GET", &path, 0, "").0, 404);
    let (_, hidden) = send("POST", PATH, 0, &body(&json!({"store": false})).to_string());
    assert_eq!(send("GET", &format!("{PATH}/{}", hidden["id"].as_str().unwrap()), 0, "").0, 404);
}

#[test]
fn unsupported_fields_are_errors() {
    let server = serve("responses-errors", THINKING);
    for (more, param) in [
        (json!({"background": true}), "background"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"previous_response_id": "resp_none"}), "previous_response_id"),
        (json!({"input": []}), "input"),
        (json!({"input": [{"role": "user"}]}), "input[0].content"),
        (json!({"include": ["file_search_call.results"]}), "include"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"messages": []}), "messages"),
        (json!({"max_tokens": 5}), "max_tokens"),
        (json!({"text": {"verbosity": "low"}}), "text.verbosity"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format"),
        (json!({"text": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}}), "text.format"),
        (json!({"n": 2}), "n"),
        (json!({"metadata": [1]}), "metadata"),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"input": [{"role": "user", "content": "", "x": 1}]}), "input[0].x"),
        (json!({"conversation": "c"}), "conversation"),
        (json!({"model": "other"}), "model"),
    ] {
        let (status, response) = server.post(PATH, &body(&more));
        assert!(status == 400 || status == 404, "{more}: {status}");
        assert_eq!(response["error"]["param"], param, "{more}: {response}");
    }
    let (status, _) = get(&server, &format!("{PATH}/resp_none"));
    assert_eq!(status, 404);
}
