//! Downloads by several processes: those that are killed at any moment are continued by the next one, and two at once download
//! a model once.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::server::{Response, Server};
use crate::{Folder, noise, pull, settings};

const URL: &str = "SISKIN_TEST_URL";
const HOME: &str = "SISKIN_TEST_HOME";

/// What the other processes do. Passes at once unless it is run by a test below.
#[test]
fn downloading_child() {
    if let (Ok(url), Ok(home)) = (std::env::var(URL), std::env::var(HOME)) {
        let server = Server::elsewhere(url.clone());
        pull(&settings(&server, home.as_ref()), &format!("{url}/tiny.gguf")).unwrap();
    }
}

/// Starts a process that downloads `tiny.gguf`.
fn start_download(server: &Server, home: &Folder) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::downloading_child"])
        .env(URL, &server.url)
        .env(HOME, &home.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_download_a_model_once() {
    let model = noise(3_000_000);
    let bytes = model.clone();
    // So slow that both processes have started before the end.
    let server = Server::start(move |request| Response {
        drip: Some((100_000, Duration::from_millis(20))),
        ..Response::file(request, &bytes).header("etag", "\"1\"")
    });
    let home = Folder::new();
    let mut children = [start_download(&server, &home), start_download(&server, &home)];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let [path] = files_named(&home.0.join("hub"), "tiny.gguf").try_into().unwrap();
    assert!(std::fs::read(path).unwrap() == model);
    // The request for the length brings one byte.
    assert_eq!(server.sent(), model.len() + 1);
}

#[test]
fn killed_downloads_are_continued() {
    let model = noise(3_000_000);
    let bytes = model.clone();
    // About a quarter of a second.
    let server = Server::start(move |request| Response {
        drip: Some((100_000, Duration::from_millis(8))),
        ..Response::file(request, &bytes).header("etag", "\"1\"")
    });
    let home = Folder::new();
    let snapshots = home.0.join("hub");
    let mut completed = 0;
    // Later each time: the last ones end by themselves.
    for step in 0..40 {
        let mut child = start_download(&server, &home);
        std::thread::sleep(Duration::from_millis(20 + step * 10));
        let _ = child.kill();
        let is_complete = child.wait().unwrap().success();
        completed += usize::from(is_complete);
        for path in files_named(&snapshots, "tiny.gguf") {
            assert!(std::fs::read(&path).unwrap() == model, "{} has its name too early", path.display());
        }
        if completed > 2 {
            break;
        }
        if is_complete {
            // Once more from the start, killed at other moments.
            std::fs::remove_dir_all(&home.0).unwrap();
            std::fs::create_dir_all(&home.0).unwrap();
        }
    }
    let path = pull(&settings(&server, &home.0), &format!("{}/tiny.gguf", server.url)).unwrap();
    assert!(std::fs::read(&path).unwrap() == model);
    // Three downloads and a part: what a process had not written yet is sent again, but no download as a whole.
    let sent = server.sent();
    assert!(sent < 8 * model.len(), "{sent} bytes were sent: parts are not kept");
    let blobs = files_named(&snapshots, "unverified.siskin-part");
    assert!(blobs.is_empty(), "{blobs:?}");
}

/// Returns the files of a name below a folder.
fn files_named(folder: &std::path::Path, name: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files_named(&path, name)),
            false if entry.file_name() == name && path.exists() => found.push(path),
            false => {}
        }
    }
    found
}
