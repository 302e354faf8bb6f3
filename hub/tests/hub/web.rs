//! Models of web servers and OCI registries, aliases, and the list of the cache.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use siskin_format::{Error, ErrorKind};
use siskin_hub::{Alias, Hub, HubSettings};

use crate::server::{Request, Response, Server};
use crate::{Folder, hex, noise, pull, settings};

fn add_alias(settings: &HubSettings, name: &str, model: &str) -> Result<Alias, Error> {
    Hub::new(settings.clone()).add_alias(name, &model.parse()?, &mut |_, _| ControlFlow::Continue(()))
}

/// A server with a file that has an entity tag.
fn web(model: Vec<u8>, change: impl Fn(&Request, Response) -> Response + Send + Sync + 'static) -> Server {
    Server::start(move |request| match request.path.as_str() {
        "/a/tiny.gguf" => change(request, Response::file(request, &model).header("etag", "\"1\"")),
        _ => Response::new(404, ""),
    })
}

#[test]
fn files_of_web_servers_are_downloaded_once() {
    let model = noise(1_000_000);
    let server = web(model.clone(), |_, response| response);
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let name = format!("{}/a/tiny.gguf", server.url);
    let path = pull(&settings, &name).unwrap();
    assert!(path.ends_with("tiny.gguf") && std::fs::read(&path).unwrap() == model, "{}", path.display());
    let requests = server.count("");
    assert_eq!(pull(&HubSettings { offline: true, ..settings.clone() }, &name).unwrap(), path);
    assert_eq!(server.count(""), requests);
    for wrong in ["/a/tiny.zip", "/a/", ""] {
        assert_eq!(
            pull(&settings, &format!("{}{wrong}", server.url)).unwrap_err().kind(),
            ErrorKind::Argument
        );
    }
    let missing = pull(&settings, &format!("{}/b.gguf", server.url)).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Missing, "{missing}");
}

#[test]
fn a_file_that_changes_is_not_mixed() {
    let (model, other) = (noise(40_000_000), vec![7; 40_000_000]);
    let count = AtomicUsize::new(0);
    let server = web(model, move |request, response| match count.fetch_add(1, Ordering::Relaxed) {
        0..2 => response,
        _ => Response::file(request, &other).header("etag", "\"2\""),
    });
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let name = format!("{}/a/tiny.gguf", server.url);
    let error = pull(&settings, &name).unwrap_err();
    assert!(error.kind() == ErrorKind::Integrity && error.message().contains("has changed"), "{error}");
    // The parts of the first file do not become parts of the second.
    assert!(std::fs::read(pull(&settings, &name).unwrap()).unwrap().iter().all(|byte| *byte == 7));
}

/// Without an entity tag, nothing says that two ranges are of the same file.
#[test]
fn files_without_an_entity_tag_come_in_one_piece() {
    let model = noise(40_000_000);
    let bytes = model.clone();
    let server = Server::start(move |request| Response::file(request, &bytes).header("etag", "W/\"weak\""));
    let home = Folder::new();
    let path = pull(&settings(&server, &home.0), &format!("{}/tiny.gguf", server.url)).unwrap();
    assert!(std::fs::read(path).unwrap() == model);
    assert_eq!(server.count("tiny.gguf"), 2, "its length, and all of it");
}

#[test]
fn a_server_without_ranges_sends_a_file_once() {
    let model = noise(60_000_000);
    let bytes = model.clone();
    let server = Server::start(move |_| Response::new(200, bytes.as_slice()).header("etag", "\"1\""));
    let home = Folder::new();
    // A presigned URL, longer than a file name may be.
    let url = format!("{}/tiny.gguf?signature={}", server.url, "0".repeat(400));
    let settings = settings(&server, &home.0);
    let path = pull(&settings, &url).unwrap();
    assert!(std::fs::read(&path).unwrap() == model);
    assert!(server.count("tiny.gguf") <= 5, "each connection asks once");
    assert_eq!(pull(&HubSettings { offline: true, ..settings }, &url).unwrap(), path);
}

#[test]
fn what_a_failed_download_left_is_removed() {
    let server = web(Vec::new(), |_, response| response);
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let hub = Hub::new(settings.clone());
    let folder = home.0.join("hub").join(server.url.replace("://", "--").replace(':', "--")).join("blobs");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["unverified.siskin-part", "unverified.siskin-journal"] {
        std::fs::write(folder.join(name), [0; 1000]).unwrap();
    }
    assert_eq!(hub.remove(&format!("{}/a/tiny.gguf", server.url).parse().unwrap()).unwrap(), 2000);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn aliases_mean_the_bytes_of_their_first_pull() {
    let model = noise(100_000);
    let server = web(model.clone(), |_, response| response);
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let name = format!("{}/a/tiny.gguf", server.url);
    let alias = add_alias(&settings, "tiny", &name).unwrap();
    assert_eq!(alias.sha256.unwrap().to_string(), hex(&model));
    let path = pull(&settings, "tiny").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), model);
    let hub = Hub::new(settings.clone());
    assert!(hub.aliases().unwrap().contains(&alias));
    let list = hub.list();
    assert_eq!((list.len(), &list[0].path, list[0].bytes), (1, &path, 100_000));
    assert_eq!(list[0].name.to_string(), name);

    // The server has other bytes now.
    assert_eq!(hub.remove(&"tiny".parse().unwrap()).unwrap(), 100_000);
    assert!(!path.exists() && hub.list().is_empty());
    drop(server);
    let other = web(noise(5000), |_, response| response);
    let table = home.0.join("aliases.toml");
    let text = std::fs::read_to_string(&table).unwrap();
    let moved = text.replace(&name, &format!("{}/a/tiny.gguf", other.url));
    std::fs::write(&table, moved).unwrap();
    let error = pull(&settings, "tiny").unwrap_err();
    assert!(error.kind() == ErrorKind::Integrity && error.message().contains(&hex(&model)), "{error}");
    assert_eq!(hub.remove(&"pypi:other".parse().unwrap()).unwrap_err().kind(), ErrorKind::Missing);
    for wrong in ["a/b", "-a", ""] {
        assert!(add_alias(&settings, wrong, &name).is_err());
    }
    assert_eq!(add_alias(&settings, "path", "./a.gguf").unwrap_err().kind(), ErrorKind::Argument);
    hub.remove_alias("tiny").unwrap();
    let error = pull(&settings, "tiny").unwrap_err();
    assert!(error.kind() == ErrorKind::Missing && error.message().contains("siskin list"), "{error}");
}

/// A registry with one artifact, whose clients need a token that anyone gets.
fn registry(manifest: String, blob: Vec<u8>) -> Server {
    Server::start(move |request| {
        let host = request.headers.get("host").cloned().unwrap_or_default();
        let token = request.headers.get("authorization").map(String::as_str);
        let (digest, blob_digest) = (hex(manifest.as_bytes()), hex(&blob));
        match request.path.as_str() {
            "/token?scope=repository%3Aai%2Ftiny%3Apull&service=registry" => {
                Response::new(200, json!({"token": "secret"}).to_string())
            }
            _ if token != Some("Bearer secret") => {
                let header = format!("Bearer realm=\"http://{host}/token\",service=\"registry\"");
                Response::new(401, "").header("www-authenticate", header)
            }
            "/v2/ai/tiny/manifests/latest" => Response::new(200, manifest.as_str()),
            path if path == format!("/v2/ai/tiny/manifests/sha256:{digest}") => {
                Response::new(200, manifest.as_str())
            }
            path if path == format!("/v2/ai/tiny/manifests/sha256:{}", "0".repeat(64)) => {
                Response::new(200, manifest.as_str())
            }
            path if path == format!("/v2/ai/tiny/blobs/sha256:{blob_digest}") => {
                Response::file(request, &blob)
            }
            _ => Response::new(404, ""),
        }
    })
}

#[test]
fn artifacts_of_registries_are_verified() {
    let blob = noise(300_000);
    let layer = |media_type: &str, title: Option<&str>| {
        let annotations = title.map(|title| json!({"org.opencontainers.image.title": title}));
        json!({"mediaType": media_type, "digest": format!("sha256:{}", hex(&blob)), "size": blob.len(),
            "annotations": annotations.unwrap_or_else(|| json!({}))})
    };
    let license =
        json!({"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:0", "size": 1});
    for (layers, file) in [
        (vec![license.clone(), layer("application/vnd.ollama.image.model", None)], "model.gguf"),
        (vec![layer("application/vnd.docker.ai.gguf.v3", None)], "model.gguf"),
        (vec![layer("application/octet-stream", Some("a/b.siskin")), license], "a/b.siskin"),
    ] {
        let manifest = json!({"schemaVersion": 2, "layers": layers}).to_string();
        let digest = hex(manifest.as_bytes());
        let server = registry(manifest, blob.clone());
        let home = Folder::new();
        let settings = settings(&server, &home.0);
        let host = server.url.strip_prefix("http://").unwrap();
        let path = pull(&settings, &format!("oci:{host}/ai/tiny")).unwrap();
        assert!(path.ends_with(file) && std::fs::read(&path).unwrap() == blob, "{}", path.display());
        let requests = server.count("");
        let pinned = format!("oci:{host}/ai/tiny@sha256:{digest}");
        assert_eq!(pull(&settings, &pinned).unwrap(), path);
        assert_eq!(pull(&settings, &format!("oci:{host}/ai/tiny:latest")).unwrap(), path);
        assert_eq!(server.count(""), requests);
        assert_eq!(Hub::new(settings.clone()).list()[0].name.to_string(), pinned);
        let wrong = format!("oci:{host}/ai/tiny@sha256:{}", "0".repeat(64));
        let error = pull(&settings, &wrong).unwrap_err();
        assert!(error.kind() == ErrorKind::Integrity && error.message().contains(&digest), "{error}");
        assert_eq!(
            pull(&settings, &format!("oci:{host}/ai/tiny:other")).unwrap_err().kind(),
            ErrorKind::Missing
        );
    }
}
