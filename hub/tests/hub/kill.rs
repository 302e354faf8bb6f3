//! Downloads whose process is killed at any moment are continued by the next one.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server::{Response, Server};
use crate::{Folder, noise, pull, settings};

const URL: &str = "SISKIN_TEST_URL";
const HOME: &str = "SISKIN_TEST_HOME";

/// What the killed process does. Passes at once unless it is run by the test below.
#[test]
fn downloading_child() {
    if let (Ok(url), Ok(home)) = (std::env::var(URL), std::env::var(HOME)) {
        let server = Server::elsewhere(url.clone());
        pull(&settings(&server, home.as_ref()), &format!("{url}/tiny.gguf")).unwrap();
    }
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
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::downloading_child"])
            .env(URL, &server.url)
            .env(HOME, &home.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let snapshots = home.0.join("hub");
    let mut completed = 0;
    // Later each time: the last ones end by themselves.
    for step in 0..40 {
        let mut child = start();
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
