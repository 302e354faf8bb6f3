//! Ollama's API: the results of the OpenAI API, in the form of Ollama, and errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use siskin_serve::ServerOptions;

use super::http::{Running, request};
use super::http_chat::{MISTRAL, THINKING, serve, serve_with, tools};
use super::http_tasks::{TEXTS, ok, open, server};

/// Returns the lines of a streamed response.
fn lines(server: &Running, path: &str, body: &Value) -> Vec<Value> {
    let response = server.exchange(&request("POST", path, body.to_string().as_bytes()));
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/x-ndjson"), "{head}");
    // The lines are in chunks, whose lengths are lines as well.
    body.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn with(mut body: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn question() -> Value {
    json!([{"role": "user", "content": "How is the weather?"}])
}

fn options(count: usize) -> Value {
    json!({"seed": 5, "num_predict": count, "temperature": 0.9, "top_p": 0.9, "num_thread": 4, "num_ctx": 4096})
}

/// The same for the OpenAI API.
fn sampling(count: usize) -> Value {
    json!({"model": "tiny", "seed": 5, "max_tokens": count, "temperature": 0.9, "top_p": 0.9})
}

fn get(server: &Running, path: &str) -> Value {
    let response = server.exchange(&request("GET", path, b""));
    serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Returns the concatenated texts of a field.
fn joined(lines: &[Value], pointer: &str) -> String {
    lines.iter().filter_map(|line| line.pointer(pointer)?.as_str()).collect()
}

#[test]
fn chats_have_the_responses_of_the_openai_api() {
    let server = serve("ollama-chat", MISTRAL);
    let openai = ok(
        &server,
        "/v1/chat/completions",
        &with(sampling(40), &json!({"messages": question(), "logprobs": true, "top_logprobs": 2})),
    );
    let choice = &openai["choices"][0];
    let body = json!({"model": "tiny:latest", "messages": question(), "options": options(40)});
    let more = json!({"stream": false, "logprobs": true, "top_logprobs": 2});
    let whole = ok(&server, "/api/chat", &with(body.clone(), &more));
    assert_eq!(whole["message"]["content"], choice["message"]["content"]);
    assert_eq!(whole["message"]["role"], "assistant");
    assert_eq!(whole["logprobs"], choice["logprobs"]["content"]);
    assert_eq!((&whole["done"], &whole["done_reason"]), (&json!(true), &choice["finish_reason"]));
    assert_eq!(whole["prompt_eval_count"], openai["usage"]["prompt_tokens"]);
    assert_eq!(whole["eval_count"], openai["usage"]["completion_tokens"]);
    let nanoseconds = |name: &str| whole[name].as_u64().unwrap();
    let parts = ["load_duration", "prompt_eval_duration", "eval_duration"].map(nanoseconds);
    assert!(parts.iter().all(|part| *part > 0), "{whole}");
    assert!(parts.iter().max().unwrap() <= &nanoseconds("total_duration"), "{whole}");
    let created = whole["created_at"].as_str().unwrap();
    assert!(created.starts_with("20") && created.ends_with('Z'), "{created}");

    let streamed = lines(&server, "/api/chat", &body);
    assert_eq!(joined(&streamed, "/message/content"), whole["message"]["content"].as_str().unwrap());
    let (last, others) = streamed.split_last().unwrap();
    assert!(others.iter().all(|line| line["done"] == false && line.get("done_reason").is_none()));
    assert_eq!((&last["done"], &last["eval_count"]), (&json!(true), &whole["eval_count"]));
}

#[test]
fn tools_are_called_with_objects() {
    let server = serve("ollama-tools", MISTRAL);
    // A tool is only called if the text says so, which that of a random model does not.
    let schema = json!({"enum": ["yes", "no"]});
    let body = json!({"model": "tiny", "messages": question(), "options": options(200), "stream": false});
    let answer = ok(&server, "/api/chat", &with(body.clone(), &json!({"format": schema})));
    assert!(["\"yes\"", "\"no\""].contains(&answer["message"]["content"].as_str().unwrap()), "{answer}");
    let call = |name: &str| json!({"function": {"name": name, "arguments": {"city": "Bern", "days": 2}}});
    let conversation = json!([
        question()[0],
        {"role": "assistant", "content": "", "tool_calls": [call("get_weather"), call("get_time")]},
        {"role": "tool", "tool_name": "get_time", "content": "12:00"},
        {"role": "tool", "tool_name": "get_weather", "content": "22 degrees"},
    ]);
    let after = with(body, &json!({"messages": conversation, "tools": tools(), "options": options(6)}));
    let response = ok(&server, "/api/chat", &after);
    let named = |id: &str, name: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "name": name, "content": text});
    let called = |id: &str, name: &str| {
        let arguments = "{\"city\": \"Bern\", \"days\": 2}";
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    };
    let same = json!([
        question()[0],
        {"role": "assistant", "tool_calls": [called("call00001", "get_weather"), called("call00002", "get_time")]},
        named("call00002", "get_time", "12:00"),
        named("call00001", "get_weather", "22 degrees"),
    ]);
    let same = with(sampling(6), &json!({"messages": same, "tools": tools()}));
    let same = ok(&server, "/v1/chat/completions", &same);
    assert_eq!(response["prompt_eval_count"], same["usage"]["prompt_tokens"]);
    assert_eq!(response["message"]["content"], same["choices"][0]["message"]["content"]);
}

/// A template that makes responses begin with a call.
const CALLING: &str = "{% if tools %}{{ tools | tojson }}{% endif %}\
    {% for message in messages %}{% if message.tool_calls %}\
    {% for call in message.tool_calls %}<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}\
    {% else %}[{{ message.role }}]{{ message.content }}{% endif %}{% endfor %}";

#[test]
fn calls_are_those_of_the_openai_api() {
    let server = serve("ollama-calls", CALLING);
    // With a schema and tools, a response is a call or of the schema: a seed is found that calls.
    let mut found = 0;
    for seed in 0..24 {
        let sampling = json!({"model": "tiny", "messages": question(), "tools": tools(), "seed": seed, "max_tokens": 300,
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1]}}}});
        let openai = ok(&server, "/v1/chat/completions", &sampling);
        let message = &openai["choices"][0]["message"];
        let Some(calls) = message.get("tool_calls").and_then(Value::as_array) else { continue };
        if openai["choices"][0]["finish_reason"] != "tool_calls" {
            continue;
        }
        found += 1;
        let body = json!({"model": "tiny", "messages": question(), "tools": tools(), "format": {"enum": [1]},
            "options": {"seed": seed, "num_predict": 300}});
        let streamed = lines(&server, "/api/chat", &body);
        let whole = ok(&server, "/api/chat", &with(body, &json!({"stream": false})));
        assert_eq!(whole["done_reason"], "stop", "{whole}");
        let own = whole["message"]["tool_calls"].as_array().unwrap();
        assert_eq!(own.len(), calls.len());
        for (own, call) in own.iter().zip(calls) {
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert_eq!(own["function"]["name"], call["function"]["name"]);
            assert_eq!(own["function"]["arguments"], arguments);
        }
        let functions = |message: &Value| -> Vec<Value> {
            let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
            calls.map(|call| call["function"].clone()).collect()
        };
        let all: Vec<Value> = streamed.iter().flat_map(|line| functions(&line["message"])).collect();
        assert_eq!(all, functions(&whole["message"]));
        if found == 2 {
            break;
        }
    }
    assert!(found > 0, "no seed calls a tool");
}

#[test]
fn reasoning_is_apart() {
    let server = serve("ollama-thinking", THINKING);
    let format = json!({"enum": ["yes", "no"]});
    let body = json!({"model": "tiny", "messages": question(), "options": options(60), "think": false,
        "stream": false, "format": format});
    let direct = ok(&server, "/api/chat", &body);
    assert!(direct["message"].get("thinking").is_none(), "{direct}");
    assert!(["\"yes\"", "\"no\""].contains(&direct["message"]["content"].as_str().unwrap()));
    for think in [json!(true), json!("low"), Value::Null] {
        let body = with(body.clone(), &json!({"think": think, "format": null}));
        let openai = with(sampling(60), &json!({"messages": question()}));
        let openai = ok(&server, "/v1/chat/completions", &openai);
        let message = ok(&server, "/api/chat", &body)["message"].clone();
        assert_eq!(message["thinking"], openai["choices"][0]["message"]["reasoning_content"]);
        let streamed = lines(&server, "/api/chat", &with(body.clone(), &json!({"stream": true})));
        assert_eq!(joined(&streamed, "/message/thinking"), message["thinking"].as_str().unwrap());
        let generated = json!({"model": "tiny", "prompt": "How is the weather?", "options": options(60), "stream": false});
        assert_eq!(ok(&server, "/api/generate", &generated)["thinking"], message["thinking"]);
    }
}

#[test]
fn prompts_are_continued() {
    let server = serve("ollama-generate", MISTRAL);
    let messages = json!([{"role": "system", "content": "Be brief."}, question()[0]]);
    let openai = ok(&server, "/v1/chat/completions", &with(sampling(30), &json!({"messages": messages})));
    let body = json!({"model": "tiny", "prompt": "How is the weather?", "options": options(30), "system": "Be brief."});
    let streamed = lines(&server, "/api/generate", &body);
    assert_eq!(joined(&streamed, "/response"), openai["choices"][0]["message"]["content"].as_str().unwrap());

    let openai = ok(&server, "/v1/completions", &with(sampling(30), &json!({"prompt": "Once upon"})));
    let raw =
        json!({"model": "tiny", "prompt": "Once upon", "options": options(30), "raw": true, "stream": false});
    let response = ok(&server, "/api/generate", &raw);
    assert_eq!(response["response"], openai["choices"][0]["text"]);
    // Without a template, every prompt is raw.
    let plain = serve("ollama-plain", None);
    let without = ok(&plain, "/api/generate", &with(raw, &json!({"raw": false})));
    assert_eq!(without["response"], response["response"]);
    let body = json!({"model": "tiny", "prompt": "a", "system": "b"});
    assert_eq!(plain.post("/api/generate", &body).0, 400);

    for (keep_alive, reason) in
        [(json!(0), "unload"), (json!("0s"), "unload"), (json!("5m"), "load"), (Value::Null, "load")]
    {
        let body = json!({"model": "tiny", "keep_alive": keep_alive});
        for path in ["/api/generate", "/api/chat"] {
            let response = ok(&server, path, &body);
            assert_eq!((&response["done"], &response["done_reason"]), (&json!(true), &json!(reason)));
        }
    }
}

#[test]
fn an_error_is_the_last_line_of_a_stream() {
    let options = ServerOptions { drain_timeout: Duration::from_millis(1), ..ServerOptions::default() };
    let server = serve_with("ollama-shutdown", None, options);
    let mut streams: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for (index, stream) in streams.iter_mut().enumerate() {
        let options = json!({"seed": index, "temperature": 0});
        let body = json!({"model": "tiny", "prompt": format!("Once {index}"), "options": options});
        stream.write_all(&request("POST", "/api/generate", body.to_string().as_bytes())).unwrap();
    }
    streams[0].read_exact(&mut [0; 200]).unwrap();
    server.shut_down();
    for stream in &mut streams {
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        let response = String::from_utf8_lossy(&response);
        // A response that has not begun is an error as a whole.
        let Some(last) = response.lines().rfind(|line| line.starts_with('{')) else { continue };
        let last: Value = serde_json::from_str(last).unwrap();
        assert!(last["done"] == true || last["error"] == "the server is shutting down", "{response}");
    }
}

#[test]
fn models_are_described() {
    let server = serve("ollama-models", THINKING);
    let tags = get(&server, "/api/tags");
    let model = &tags["models"][0];
    assert_eq!((&model["name"], &model["model"]), (&json!("tiny:latest"), &json!("tiny:latest")));
    assert_eq!(model["digest"].as_str().unwrap().len(), 64);
    assert!(model["size"].as_u64().unwrap() > 1000);
    assert_eq!(model["details"]["family"], "llama");
    let loaded = get(&server, "/api/ps");
    assert_eq!(loaded["models"][0]["digest"], model["digest"]);
    assert_eq!(loaded["models"][0]["context_length"], 4096);
    assert!(get(&server, "/api/version")["version"].is_string());
    for body in [json!({"model": "tiny"}), json!({"name": "tiny:latest"})] {
        let shown = ok(&server, "/api/show", &body);
        assert_eq!(shown["capabilities"], json!(["completion", "thinking"]));
        assert_eq!(shown["template"], THINKING);
        assert_eq!(shown["model_info"]["general.architecture"], "llama");
        assert_eq!(shown["details"], model["details"]);
    }
    let tools = serve("ollama-capabilities", MISTRAL);
    let shown = ok(&tools, "/api/show", &json!({"model": "tiny"}));
    assert_eq!(shown["capabilities"], json!(["completion", "tools"]));
}

#[test]
fn texts_are_embedded() {
    let server = server(vec![("encoder", open("golden-texts/bert-classes"))]);
    let openai = ok(&server, "/v1/embeddings", &json!({"model": "encoder", "input": TEXTS}));
    let response = ok(&server, "/api/embed", &json!({"model": "encoder", "input": TEXTS}));
    let embeddings = response["embeddings"].as_array().unwrap();
    assert_eq!(embeddings.len(), TEXTS.len());
    for (own, data) in embeddings.iter().zip(openai["data"].as_array().unwrap()) {
        assert_eq!(own, &data["embedding"]);
    }
    assert_eq!(response["prompt_eval_count"], openai["usage"]["prompt_tokens"]);
    let one = ok(&server, "/api/embeddings", &json!({"model": "encoder:latest", "prompt": TEXTS[0]}));
    assert_eq!(one["embedding"], embeddings[0]);
    let short = json!({"model": "encoder", "input": TEXTS[0], "dimensions": 4});
    assert_eq!(ok(&server, "/api/embed", &short)["embeddings"][0].as_array().unwrap().len(), 4);
    assert_eq!(ok(&server, "/api/embed", &json!({"model": "encoder", "input": ""}))["embeddings"], json!([]));
    // Texts that are too long are cut unless the request says otherwise.
    let long = vec!["w5"; 200].join(" ");
    ok(&server, "/api/embed", &json!({"model": "encoder", "input": long}));
    let (status, error) =
        server.post("/api/embed", &json!({"model": "encoder", "input": ["w5", long], "truncate": false}));
    assert_eq!(status, 400);
    assert!(error["error"].as_str().unwrap().contains("input[1]: "), "{error}");
    assert_eq!(ok(&server, "/api/show", &json!({"model": "encoder"}))["capabilities"], json!(["embedding"]));
    let chat = json!({"model": "encoder", "messages": question()});
    assert_eq!(server.post("/api/chat", &chat).0, 400);
}

#[test]
fn errors_name_the_field() {
    let server = serve("ollama-errors", MISTRAL);
    let generate = |more: Value| ("/api/generate", with(json!({"model": "tiny", "prompt": "a"}), &more));
    let chat = |more: Value| ("/api/chat", with(json!({"model": "tiny", "messages": question()}), &more));
    let option = |options: Value| generate(json!({"options": options}));
    let message = |message: Value| chat(json!({"messages": [message]}));
    for ((path, body), message) in [
        (generate(json!({"model": "other"})), "no model `other`"),
        (generate(json!({"model": ":latest"})), "no model `:latest`"),
        (("/api/generate", json!({"prompt": "a"})), "model: missing"),
        (generate(json!({"suffix": "b"})), "suffix: is not supported"),
        (generate(json!({"template": "b"})), "template: is not supported"),
        (generate(json!({"images": ["aGk="]})), "images: images are not supported"),
        (generate(json!({"context": [1, 2]})), "context: is not supported"),
        (generate(json!({"raw": true, "system": "b"})), "system: needs a chat template"),
        (generate(json!({"raw": true, "think": true})), "think: needs a chat template"),
        (generate(json!({"think": true})), "think: `tiny` does not support thinking"),
        (generate(json!({"think": "huge"})), "think: `huge` is not supported"),
        (generate(json!({"think": 5})), "think: expected true, false"),
        (generate(json!({"format": "xml"})), "format: expected `json` or a JSON schema"),
        (generate(json!({"format": {"contains": {}}})), "format: "),
        (generate(json!({"keep_alive": "soon"})), "keep_alive: `soon` is not a duration"),
        (generate(json!({"top_logprobs": 2})), "top_logprobs: requires `logprobs`"),
        (generate(json!({"shift": true})), "shift: is not supported"),
        (generate(json!({"bogus": 1})), "unknown field `bogus`"),
        (generate(json!({"prompt": "a".repeat(5000)})), "prompt: "),
        (option(json!({"num_ctx": 8192})), "options.num_ctx: 8192 exceeds the context of the server"),
        (option(json!({"temperature": -1})), "options.temperature: "),
        (option(json!({"temperature": "hot"})), "options.temperature: "),
        (option(json!({"repeat_penalty": -1})), "options.repeat_penalty: "),
        (option(json!({"repeat_last_n": 1u64 << 40})), "options.repeat_last_n: "),
        (option(json!({"mirostat": 1})), "options.mirostat: "),
        (option(json!({"tfs_z": 0.5})), "options.tfs_z: "),
        (option(json!({"stop": vec!["a"; 17]})), "options.stop: "),
        (option(json!({"bogus": 1})), "options.bogus: unknown field"),
        (option(json!([])), "options: expected a JSON object"),
        (message(json!({"role": "critic", "content": ""})), "messages[0].role: `critic`"),
        (message(json!({"content": "a"})), "messages[0].role: missing"),
        (message(json!({"role": "user", "images": ["aGk="]})), "messages[0].images: "),
        (message(json!({"role": "user", "bogus": 1})), "messages[0].bogus: unknown field"),
        (
            message(
                json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}),
            ),
            "messages[0].tool_calls[0].function.arguments: expected an object",
        ),
        (chat(json!({"tools": [{"type": "web_search"}]})), "tools[0].type"),
        (("/api/show", json!({})), "model: missing"),
        (("/api/show", json!({"model": "tiny", "system": "b"})), "system: is not supported"),
        (("/api/embed", json!({"model": "tiny", "input": "a"})), "model: `tiny` generates text"),
    ] {
        let (status, response) = server.post(path, &body);
        let text = response["error"].as_str().unwrap();
        assert!(text.contains(message), "{path} {body}: {text}");
        assert_eq!(status, if text.contains("no model") { 404 } else { 400 }, "{text}");
    }
    for (method, path, command) in [
        ("POST", "/api/pull", "siskin serve MODEL.gguf"),
        ("POST", "/api/push", "siskin export"),
        ("POST", "/api/create", "siskin convert"),
        ("POST", "/api/copy", "siskin serve COPY.gguf"),
        ("DELETE", "/api/delete", "siskin serve OTHER.gguf"),
    ] {
        let response = server.exchange(&request(method, path, br#"{"model": "x"}"#));
        assert!(response.starts_with("HTTP/1.1 501 ") && response.contains(command), "{response}");
    }
    let response = server.exchange(&request("GET", "/api/nothing", b""));
    let error: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(error["error"], "no route /api/nothing");
}
