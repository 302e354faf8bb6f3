//! What stands on the C header in other languages knows all of it, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_tests::paths;
use std::collections::BTreeSet;
use std::path::Path;

/// A wrapper: its folder, the file of its errors, and the endings of what is written in it.
struct Wrapper {
    folder: &'static str,
    errors: &'static str,
    endings: &'static [&'static str],
}

const WRAPPERS: [Wrapper; 2] = [
    Wrapper {
        folder: "android",
        errors: "android/src/main/kotlin/ai/siskin/SiskinException.kt",
        endings: &["c", "h", "kt"],
    },
    Wrapper { folder: "ios", errors: "ios/Sources/Siskin/SiskinError.swift", endings: &["swift"] },
];

/// What begins like a name of the header and is none: the Kotlin package's library, and what its bridge in C defines.
const OWN: [&str; 3] = ["siskin_jni", "SISKIN_BRIDGE_H", "SISKIN_TESTING"];

fn read(path: &str) -> String {
    let path = paths::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whole words of letters, digits and underscores that begin with `prefix`.
fn words<'t>(text: &'t str, prefix: &str) -> BTreeSet<&'t str> {
    text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric())
        .filter(|word| word.starts_with(prefix))
        .collect()
}

/// Everything that is written in a folder but its tests.
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

    /// Functions that it has no use for, each with a reason.
    fn left_out(&self) -> Vec<String> {
        let list = read(&format!("{}/not-wrapped.txt", self.folder));
        let names = list.lines().map(|line| {
            let (name, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
            assert!(!reason.trim().is_empty(), "{name} is left out without a reason");
            name.to_owned()
        });
        names.collect()
    }
}

#[test]
fn every_function_is_reached_or_left_out_with_a_reason() {
    let exports = read("ffi/exports.txt");
    for wrapper in &WRAPPERS {
        let text = wrapper.text();
        let (reached, left_out) = (words(&text, "siskin_"), wrapper.left_out());
        let is_left_out = |name: &str| left_out.iter().any(|left| left == name);
        let forgotten: Vec<_> =
            exports.lines().filter(|name| !reached.contains(name) && !is_left_out(name)).collect();
        assert!(forgotten.is_empty(), "{}/ does not reach {forgotten:?}", wrapper.folder);
        let stale: Vec<_> = left_out
            .iter()
            .filter(|name| reached.contains(name.as_str()) || exports.lines().all(|known| known != *name))
            .collect();
        assert!(
            stale.is_empty(),
            "{}/not-wrapped.txt lists what is reached or is not there: {stale:?}",
            wrapper.folder
        );
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
fn every_error_is_told_apart() {
    let header = read("ffi/include/siskin.h");
    let codes: Vec<_> = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define SISKIN_ERROR_")?.split_once(' '))
        .collect();
    assert!(codes.len() > 20, "the header has {} errors", codes.len());
    for wrapper in &WRAPPERS {
        let errors = read(wrapper.errors);
        for (name, number) in &codes {
            let name = format!("SISKIN_ERROR_{name}");
            let told = errors.lines().any(|line| {
                words(line, "SISKIN_ERROR_").contains(name.as_str()) && words(line, number).contains(number)
            });
            assert!(told, "{} does not know {name}, {number}", wrapper.errors);
        }
    }
}

#[test]
fn words_are_whole() {
    assert_eq!(words("siskin_a(siskin_ab, xsiskin_c)", "siskin_"), BTreeSet::from(["siskin_a", "siskin_ab"]));
}
