//! Wrappers of the C header in other languages use only names that exist, cover all of it, and their generated files are
//! current. Their other guarantees are tested in `wrapper_android.rs` and `wrapper_ios.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_tests::{header, paths, wrappers};
use std::collections::BTreeSet;
use std::path::Path;

/// A wrapper: its folder, and its file extensions.
struct Wrapper {
    folder: &'static str,
    endings: &'static [&'static str],
}

const WRAPPERS: [Wrapper; 2] = [
    Wrapper { folder: "android", endings: &["c", "h", "kt"] },
    Wrapper { folder: "ios", endings: &["swift"] },
];

/// Names with the header's prefix that are not in the header: the Kotlin package's library, and the definitions of its
/// C bridge.
const OWN: [&str; 3] = ["siskin_jni", "SISKIN_BRIDGE_H", "SISKIN_TESTING"];

fn read(path: &str) -> String {
    let path = paths::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns whole words of letters, digits and underscores that begin with `prefix`.
fn words<'t>(text: &'t str, prefix: &str) -> BTreeSet<&'t str> {
    text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric())
        .filter(|word| word.starts_with(prefix))
        .collect()
}

/// Appends everything in a folder except its tests.
fn gather(folder: &Path, endings: &[&str], text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["test", "Tests", "build", ".build", "include"].contains(&name) {
            gather(&path, endings, text);
        } else if path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)) {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

impl Wrapper {
    fn text(&self) -> String {
        let mut text = String::new();
        gather(&paths::root().join(self.folder), self.endings, &mut text);
        text
    }
}

/// Generating fails if a function is not wrapped and has no reason, or if an option has no rule.
#[test]
fn generated_files_are_current() {
    let advice = "run `cargo xtask header --bless`";
    let files = wrappers::generated(&header::generated()).unwrap_or_else(|error| panic!("{error}"));
    for file in &files {
        assert!(read(&file.path) == file.text, "{} is not what ffi/src makes: {advice}", file.path);
    }
    for folder in wrappers::FOLDERS {
        for entry in std::fs::read_dir(paths::root().join(folder)).unwrap() {
            let path = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
            assert!(files.iter().any(|file| file.path == path), "{path} is not generated: {advice}");
        }
    }
}

#[test]
fn every_name_of_the_library_is_in_the_header() {
    let header = read("ffi/include/siskin.h");
    for prefix in ["siskin_", "SISKIN_"] {
        let known = words(&header, prefix);
        for wrapper in &WRAPPERS {
            let text = wrapper.text();
            let unknown: Vec<_> =
                words(&text, prefix).difference(&known).filter(|name| !OWN.contains(name)).copied().collect();
            assert!(unknown.is_empty(), "{}/ names {unknown:?}, which the header has not", wrapper.folder);
        }
    }
}

#[test]
fn words_are_whole() {
    assert_eq!(words("siskin_a(siskin_ab, xsiskin_c)", "siskin_"), BTreeSet::from(["siskin_a", "siskin_ab"]));
}
