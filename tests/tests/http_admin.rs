//! The HTTP server while an operator loads, replaces and unloads models, and drains it.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use siskin::{CpuFeatures, DeviceKind, Error, Model, ModelOptions, Result};
use siskin_serve::{ApiKeys, ModelRepository, NewApiKey, OperationLog, ServedModel, ServerOptions};
use siskin_tests::golden::{load, model};
use siskin_tests::random_adapters;
use siskin_tests::temp_folder::TempFolder;

use super::http::{Running, completion, status, tiny};
use super::http_rollout::wait_until;
use super::http_tasks::{TEXTS, open, translator};

/// Models that tests put there and replace.
#[derive(Clone, Debug, Default)]
struct TestRepository(Arc<Mutex<BTreeMap<String, Model>>>);

impl TestRepository {
    fn put(&self, name: &str, model: &Model) {
        self.0.lock().unwrap().insert(name.to_owned(), model.clone());
    }
}

impl ModelRepository for TestRepository {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.0.lock().unwrap().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> Result<ServedModel> {
        let model = self.0.lock().unwrap().get(name).cloned();
        let model = model.ok_or_else(|| Error::argument(name, "not there"))?;
        // The server knows it by the name that it asked for.
        Ok(ServedModel::new("other name", model))
    }
}

/// A server with a repository, an admin key, and one for the model `tiny` alone.
struct Fixture {
    server: Running,
    repository: TestRepository,
    admin: NewApiKey,
    client: NewApiKey,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new(options: ServerOptions, served: Vec<ServedModel>) -> Self {
        let admin = ApiKeys::generate("operator", true).unwrap();
        let client = ApiKeys::generate("client", false).unwrap();
        let keys = ApiKeys::parse(&format!("{}{}models = ['tiny']\n", admin.entry, client.entry)).unwrap();
        let (repository, messages) = (TestRepository::default(), Arc::<Mutex<Vec<String>>>::default());
        let log = Arc::clone(&messages);
        let options = ServerOptions {
            api_keys: Some(Arc::new(keys)),
            repository: Some(Arc::new(repository.clone())),
            operation_log: Some(OperationLog::new(move |message| {
                log.lock().unwrap().push(message.to_owned())
            })),
            agent_check: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            ..options
        };
        Self { server: Running::serve_all(options, served), repository, admin, client, messages }
    }

    fn head(&self, key: &str, method: &str, path: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: {key}\r\n\
             content-length: {length}\r\n\r\n"
        )
    }

    fn exchange(&self, key: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = format!("{}{body}", self.head(key, method, path, body.len()));
        let response = self.server.exchange(request.as_bytes());
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (status(head), serde_json::from_str(body).unwrap())
    }

    fn admin(&self, path: &str) -> (u16, Value) {
        self.exchange(&self.admin.key, "POST", path, "")
    }

    /// Sends a request that must succeed.
    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, response) = self.exchange(&self.admin.key, "POST", path, &body.to_string());
        assert_eq!(status, 200, "{response}");
        response
    }

    fn complete(&self, name: &str) -> (u16, Value) {
        let body = with_model(name, completion(&[1, 2, 3], 1, 4));
        self.exchange(&self.admin.key, "POST", "/v1/completions", &body.to_string())
    }

    /// The states of all models, by name.
    fn states(&self) -> BTreeMap<String, String> {
        let (status, list) = self.exchange(&self.admin.key, "GET", "/admin/models", "");
        assert_eq!(status, 200, "{list}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let models = list["models"].as_array().unwrap();
        models.iter().map(|model| (text(&model["name"]), text(&model["state"]))).collect()
    }

    /// Starts a long response, and returns its connection.
    fn start_long(&self, name: &str) -> TcpStream {
        let mut body = completion(&[1, 2, 3], 1, 100);
        (body["model"], body["stream"], body["n"]) = (name.into(), true.into(), 16.into());
        body["prompt"] = json!([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]);
        let (mut stream, body) = (self.server.connect(), body.to_string());
        let head = self.head(&self.admin.key, "POST", "/v1/completions", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
        stream
    }
}

fn second() -> Model {
    model(&load("gpt2").file, DeviceKind::Cpu, 1, CpuFeatures::NONE)
}

fn with_model(name: &str, mut body: Value) -> Value {
    body["model"] = name.into();
    body
}

fn message(error: &Value) -> &str {
    error["error"]["message"].as_str().or_else(|| error["error"].as_str()).unwrap()
}

#[test]
fn models_are_loaded_replaced_and_unloaded_while_requests_run() {
    let test = Fixture::new(ServerOptions::default(), vec![ServedModel::new("tiny", tiny())]);
    test.repository.put("tiny", &tiny());
    test.repository.put("next", &second());
    let (loaded, unloaded) = ("loaded".to_owned(), "unloaded".to_owned());
    let expected = |tiny: &str, next: &str| {
        BTreeMap::from([("tiny".to_owned(), tiny.to_owned()), ("next".to_owned(), next.to_owned())])
    };
    assert_eq!(test.states(), expected(&loaded, &unloaded));
    assert_eq!(test.complete("next").0, 404);
    let (code, state) = test.admin("/admin/models/next/load");
    assert_eq!((code, &state["state"]), (200, &json!("loaded")), "{state}");
    assert_eq!(test.complete("next").0, 200);
    let (_, first) = test.complete("tiny");

    // The same file again: nothing happens.
    let (code, again) = test.admin("/admin/models/tiny/load");
    assert_eq!(
        (code, &test.complete("tiny").1["system_fingerprint"]),
        (200, &first["system_fingerprint"]),
        "{again}"
    );

    // Another file under the name: what runs ends with the old one.
    let mut long = test.start_long("tiny");
    test.repository.put("tiny", &second());
    let (code, state) = test.admin("/admin/models/tiny/load");
    assert_eq!(code, 200, "{state}");
    let mut response = String::new();
    long.read_to_string(&mut response).unwrap();
    let old = first["system_fingerprint"].as_str().unwrap();
    assert!(response.contains("data: [DONE]") && response.contains(old), "the request ends with its model");
    let (_, replaced) = test.complete("tiny");
    assert_ne!(replaced["system_fingerprint"], first["system_fingerprint"]);
    assert_eq!(replaced["system_fingerprint"], test.complete("next").1["system_fingerprint"]);

    let mut long = test.start_long("tiny");
    let (code, state) = test.admin("/admin/models/tiny/unload");
    assert_eq!((code, &state["state"]), (200, &json!("unloaded")), "{state}");
    let mut response = String::new();
    long.read_to_string(&mut response).unwrap();
    assert!(response.contains("data: [DONE]"), "the request ends before its model is unloaded");
    assert_eq!((test.complete("tiny").0, test.complete("next").0), (404, 200));
    assert_eq!(test.states(), expected(&unloaded, &loaded));
    let (code, error) = test.admin("/admin/models/tiny/unload");
    assert!(code == 404 && message(&error).contains("no model `tiny`"), "{error}");
    let (code, error) = test.admin("/admin/models/bogus/load");
    assert!(code == 404 && message(&error).contains("expected one of: next, tiny"), "{error}");

    // The way of the Open Inference Protocol.
    let index = test.post("/v2/repository/index", &json!({}));
    assert_eq!(
        index[1],
        json!({"name": "tiny", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"})
    );
    assert_eq!(test.post("/v2/repository/index", &json!({"ready": true})).as_array().unwrap().len(), 1);
    assert_eq!(test.post("/v2/repository/models/tiny/load", &json!({})), json!({}));
    assert_eq!(test.complete("tiny").0, 200);
    test.post("/v2/repository/models/tiny/unload", &json!({"parameters": {"unload_dependents": false}}));
    assert_eq!(test.complete("tiny").0, 404);
    let messages = test.messages.lock().unwrap().join("\n");
    assert!(messages.contains("model tiny was unloaded (key operator)"), "{messages}");
}

#[test]
fn unloading_frees_the_memory_budget() {
    let probe = Fixture::new(ServerOptions::default(), vec![ServedModel::new("tiny", tiny())]);
    let memory = |test: &Fixture| {
        let head = test.head(&test.admin.key, "GET", "/metrics", 0);
        let page = test.server.exchange(head.as_bytes());
        let line = page.lines().find(|line| line.starts_with("siskin_engine_memory_reserved_bytes")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let bytes = memory(&probe);
    drop(probe);
    let options = ServerOptions { memory_budget: Some(bytes), ..ServerOptions::default() };
    let test = Fixture::new(options, vec![ServedModel::new("tiny", tiny())]);
    test.repository.put("tiny", &tiny());
    test.repository.put("other", &tiny());
    let (code, error) = test.admin("/admin/models/other/load");
    assert!(code == 503 && message(&error).contains("model other"), "{error}");
    assert_eq!((test.complete("other").0, test.complete("tiny").0), (404, 200));
    for _ in 0..3 {
        for (from, to) in [("tiny", "other"), ("other", "tiny")] {
            assert_eq!(test.admin(&format!("/admin/models/{from}/unload")).0, 200);
            assert_eq!(memory(&test), 0);
            let (code, state) = test.admin(&format!("/admin/models/{to}/load"));
            assert_eq!(code, 200, "{state}");
            assert_eq!(test.complete(to).0, 200);
        }
    }
    assert_eq!(memory(&test), bytes);
}

#[test]
fn all_kinds_of_models_are_loaded_and_unloaded() {
    let test = Fixture::new(ServerOptions::default(), Vec::new());
    test.repository.put("classes", &open("golden-texts/bert-classes"));
    test.repository.put("translator", &translator());
    for _ in 0..2 {
        for name in ["classes", "translator"] {
            let (code, state) = test.admin(&format!("/admin/models/{name}/load"));
            assert_eq!(code, 200, "{state}");
        }
        let embed = json!({"model": "classes", "input": TEXTS});
        assert_eq!(test.post("/v1/embeddings", &embed)["data"].as_array().unwrap().len(), TEXTS.len());
        test.post("/v1/classify", &embed);
        let translate = json!({"input": TEXTS, "source_language": "de", "target_language": "en"});
        test.post("/v1/translate", &with_model("translator", translate));
        for name in ["classes", "translator"] {
            assert_eq!(test.admin(&format!("/admin/models/{name}/unload")).0, 200);
        }
        assert_eq!(test.exchange(&test.admin.key, "POST", "/v1/embeddings", &embed.to_string()).0, 404);
    }
}

#[test]
fn what_is_in_use_is_not_unloaded() {
    let folder = TempFolder::new("http-admin-aliases");
    let aliases = folder.path().join("aliases.toml");
    std::fs::write(&aliases, "chat = 'tiny'").unwrap();
    let options = ServerOptions {
        aliases: Some(aliases.clone()),
        fallback: Some("small".to_owned()),
        ..ServerOptions::default()
    };
    let served = ["tiny", "small"].map(|name| ServedModel::new(name, tiny()));
    let test = Fixture::new(options, served.into());
    test.repository.put("chat", &tiny());
    for (path, expected) in [
        ("/admin/models/tiny/unload", "the alias `chat`"),
        ("/admin/models/small/unload", "is the fallback"),
        ("/admin/models/chat/load", "is an alias"),
    ] {
        let (code, error) = test.admin(path);
        assert!(code == 409 && message(&error).contains(expected), "{error}");
    }
    // An alias may stand for a model that is loaded later.
    test.repository.put("later", &tiny());
    std::fs::write(&aliases, "chat = 'tiny'\nsoon = 'later'").unwrap();
    assert_eq!(test.admin("/admin/models/later/load").0, 200);
    wait_until("the alias is not there", || test.complete("soon").0 == 200);
    std::fs::write(&aliases, "").unwrap();
    wait_until("the alias is not removed", || test.admin("/admin/models/tiny/unload").0 == 200);
    assert_eq!(test.admin("/admin/models/chat/load").0, 200);
}

/// An adapter is not a model that could be replaced.
#[test]
fn adapters_keep_their_names() {
    let file = load("llama").file;
    let adapters = random_adapters::adapters(&file);
    let model = Model::with_adapters(file, &adapters, &ModelOptions { threads: 1, ..Default::default() });
    let model = model.unwrap();
    let small = adapters[0].name.as_str();
    let test = Fixture::new(ServerOptions::default(), vec![ServedModel::new("tiny", model.clone())]);
    test.repository.put(small, &second());
    test.repository.put("other", &model);
    for name in [small, "other"] {
        let (code, error) = test.admin(&format!("/admin/models/{name}/load"));
        assert!(code == 409 && message(&error).contains("is named `"), "{error}");
    }
    let (code, error) = test.admin(&format!("/admin/models/{small}/unload"));
    assert!(code == 409 && message(&error).contains("is an adapter of `tiny`"), "{error}");
    assert_eq!((test.complete("tiny").0, test.complete(small).0), (200, 200));
    assert_eq!(test.admin("/admin/models/tiny/unload").0, 200);
    assert_eq!((test.complete("tiny").0, test.complete(small).0), (404, 404));
}

#[test]
fn operators_need_a_key_of_their_own() {
    let test = Fixture::new(ServerOptions::default(), vec![ServedModel::new("tiny", tiny())]);
    test.repository.put("secret", &second());
    for (method, path) in [
        ("GET", "/admin/models"),
        ("POST", "/admin/models/tiny/unload"),
        ("POST", "/admin/models/secret/load"),
        ("POST", "/admin/drain"),
        ("POST", "/v2/repository/models/tiny/unload"),
    ] {
        let (code, error) = test.exchange(&test.client.key, method, path, "");
        assert!(code == 403 && message(&error).contains("--admin"), "{path}: {error}");
        assert_eq!(test.exchange("sk-siskin-0", method, path, "").0, 401, "{path}");
    }
    let (code, index) = test.exchange(&test.client.key, "POST", "/v2/repository/index", "");
    assert!(code == 200 && !index.to_string().contains("secret"), "{index}");
    assert_eq!(test.complete("tiny").0, 200);
    let open = Running::serve(ServerOptions::default(), ServedModel::new("tiny", tiny()));
    let (code, error) = open.post("/admin/models/tiny/unload", &json!({}));
    assert!(code == 403, "servers without keys have no operator: {error}");
}

#[test]
fn a_drained_server_answers_what_arrives() {
    let test = Fixture::new(ServerOptions::default(), vec![ServedModel::new("tiny", tiny())]);
    let agent_check = || {
        let mut line = String::new();
        TcpStream::connect(test.server.agent_check.unwrap()).unwrap().read_to_string(&mut line).unwrap();
        line
    };
    let is_ready = || test.exchange("", "GET", "/health/ready", "").0;
    assert_eq!((is_ready(), agent_check().as_str()), (200, "up 100%\n"));
    assert_eq!(test.admin("/admin/drain"), (200, json!({"draining": true})));
    assert_eq!((is_ready(), agent_check().as_str()), (503, "up 0%\n"));
    assert_eq!(test.complete("tiny").0, 200);
    assert_eq!(test.admin("/admin/resume"), (200, json!({"draining": false})));
    assert_eq!((is_ready(), agent_check().as_str()), (200, "up 100%\n"));
}
