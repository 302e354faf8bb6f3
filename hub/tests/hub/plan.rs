//! What a pull would download.

use serde_json::{Value, json};
use siskin_format::Error;
use siskin_hub::{Hub, HubSettings, PullPlan};

use crate::hugging_face::{COMMIT, repository};
use crate::server::{Request, Response, Server};
use crate::{Folder, noise, pull, settings};

const MIB: usize = 1 << 20;

/// Plans a pull that needs `head` bytes to know what a file is.
fn plan(settings: &HubSettings, name: &str, head: usize) -> Result<PullPlan, Error> {
    Hub::new(settings.clone()).plan(&name.parse()?, &mut |bytes| bytes.len() < head)
}

/// Adds fields to the description of a repository.
fn described(request: &Request, response: Response, fields: &[(&str, Value)]) -> Response {
    if !request.path.starts_with("/api/") {
        return response;
    }
    let mut description: Value = serde_json::from_slice(&response.body).unwrap();
    for (key, value) in fields {
        description[*key] = value.clone();
    }
    Response::new(200, description.to_string())
}

#[test]
fn the_head_of_a_file_is_kept_for_its_pull() {
    const BYTES: usize = 5_000_000;
    let server = repository(&[("README.md", 10), ("tiny-q8_0.gguf", BYTES)], |request, response| {
        described(request, response, &[("cardData", json!({"license": "apache-2.0"}))])
    });
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let first = plan(&settings, "hf:org/tiny", MIB + 1).unwrap();
    assert_eq!(first.pinned.unwrap().to_string(), format!("hf:org/tiny@{COMMIT}"));
    assert_eq!((first.license.as_deref(), first.path, first.cached_bytes), (Some("apache-2.0"), None, 0));
    let files: Vec<_> = first.files.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
    assert_eq!(files, [("tiny-q8_0.gguf", BYTES as u64)]);
    let head = first.head.unwrap();
    assert!(head.bytes == noise(BYTES)[..2 * MIB] && head.file_bytes == BYTES as u64);
    assert_eq!(server.count("/resolve/"), 2, "one mebibyte, and another one");
    let second = plan(&settings, "hf:org/tiny", 1).unwrap();
    assert_eq!((second.cached_bytes, second.head.unwrap().bytes.len()), (2 * MIB as u64, MIB));
    assert_eq!(server.count("/resolve/"), 2, "what has arrived is not asked for again");
    let path = pull(&settings, "hf:org/tiny").unwrap();
    assert!(std::fs::read(&path).unwrap() == noise(BYTES));
    let descriptions = server.count("/api/") * 1000;
    assert!(server.sent() <= BYTES + descriptions, "{} bytes were sent", server.sent());
    // The file of another model of the cache.
    let whole = server.count("/resolve/");
    let named = plan(&settings, "hf:org/tiny:q8_0", MIB + 1).unwrap();
    assert_eq!((named.cached_bytes, named.head.unwrap().bytes.len()), (BYTES as u64, 2 * MIB));
    assert_eq!(server.count("/resolve/"), whole);
    // From the cache, without a request.
    let requests = server.count("");
    let cached = plan(&HubSettings { offline: true, ..settings }, "hf:org/tiny", MIB).unwrap();
    assert_eq!((cached.cached_bytes, cached.bytes(), cached.head), (BYTES as u64, BYTES as u64, None));
    assert_eq!((cached.path, server.count("")), (Some(path), requests));
}

#[test]
fn licenses_are_those_of_the_source() {
    for (fields, license) in [
        (vec![("tags", json!(["gguf", "license:mit"]))], Some("mit")),
        (vec![("cardData", json!({"license": ["mit", "gpl-3.0"]}))], Some("mit, gpl-3.0")),
        (vec![("cardData", json!({"license": "a\u{1b}[2J"}))], None),
        (vec![("cardData", json!("x")), ("tags", json!({"a": 1}))], None),
        (vec![], None),
    ] {
        let server = repository(&[("config.json", 20), ("model.safetensors", 3000)], {
            move |request, response| described(request, response, &fields)
        });
        let home = Folder::new();
        let plan = plan(&settings(&server, &home.0), "hf:org/tiny", 1).unwrap();
        assert_eq!((plan.license.as_deref(), plan.bytes(), plan.head), (license, 3020, None));
    }
}

/// Files without a head: there, the plan has their sizes alone.
#[test]
fn a_head_needs_ranges_and_has_an_end() {
    let server = Server::start(|_| Response::new(200, noise(3 * MIB)).header("etag", "\"1\""));
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let name = format!("{}/tiny.gguf", server.url);
    let whole = plan(&settings, &name, 1).unwrap();
    assert_eq!((whole.bytes(), whole.head), (3 * MIB as u64, None));
    let server = Server::start(|request| Response::file(request, &noise(3 * MIB)).header("etag", "\"1\""));
    let name = format!("{}/tiny.gguf", server.url);
    assert_eq!(plan(&settings, &name, usize::MAX).unwrap().head, None);
    assert_eq!(plan(&settings, &name, 3 * MIB).unwrap().head.unwrap().bytes.len(), 3 * MIB);
    assert!(plan(&settings, "./missing.gguf", 1).is_err());
}

/// Sizes that no disk has room for are reported, not allocated.
#[test]
fn sizes_may_be_any() {
    let server = repository(&[("a.gguf", 5000)], |request, response| {
        let huge =
            |path: &str| json!({"rfilename": path, "lfs": {"sha256": "0".repeat(64), "size": u64::MAX}});
        let parts = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"];
        described(request, response, &[("siblings", json!(parts.map(huge)))])
    });
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    assert_eq!(plan(&settings, "hf:org/tiny", 1).unwrap().bytes(), u64::MAX);
    assert!(pull(&settings, "hf:org/tiny").is_err());
}
