//! The Swift package maps every error and constant of the header, and its page shows programs that are compiled.

use siskin_tests::header::constants;
use siskin_tests::{arch_rules, paths};

/// Returns the texts of the Swift files below a folder.
fn swift(folder: &str) -> Vec<String> {
    let tree = arch_rules::Tree::read(&paths::root());
    let wanted = |path: &str| path.starts_with(folder) && path.ends_with(".swift");
    let texts: Vec<_> =
        tree.files.iter().filter(|file| wanted(&file.path)).map(|file| file.text.clone()).collect();
    assert!(!texts.is_empty(), "{folder} is not read");
    texts
}

fn read(path: &str) -> String {
    std::fs::read_to_string(paths::root().join(path)).expect("the file is there")
}

/// Returns the words of a text with this prefix.
fn words<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(move |word| word.starts_with(prefix))
}

#[test]
fn every_constant_has_its_place() {
    let sources = swift("ios/Sources/").join("\n");
    let header = read("ffi/include/siskin.h");
    let all = constants(&header);
    assert!(all.len() > 80, "the header is not read");
    let used: Vec<_> = words(&sources, "SISKIN_").collect();
    let missing = all.iter().filter(|(name, _)| !used.contains(name));
    let missing: Vec<_> = missing.map(|(name, number)| format!("{name}, which is {number}")).collect();
    arch_rules::assert_clean("Swift knows every constant of the header.", &missing);
}

#[test]
fn every_error_has_its_number() {
    let source = read("ios/Sources/Siskin/SiskinError.swift");
    let header = read("ffi/include/siskin.h");
    let mut wrong = Vec::new();
    for (name, number) in constants(&header).iter().filter(|(name, _)| name.starts_with("SISKIN_ERROR_")) {
        if !source.contains(&format!(", {name}),  // {number}\n")) {
            wrong.push(format!("{name} is not {number} in Swift"));
        }
    }
    arch_rules::assert_clean("Swift has every error of the header.", &wrong);
}

/// Only one file imports UIKit: the one with the observers of system notifications.
#[test]
fn the_handles_need_nothing_of_apples() {
    let tree = arch_rules::Tree::read(&paths::root());
    let sources = tree.files.iter().filter(|file| file.path.starts_with("ios/Sources/"));
    for file in sources.filter(|file| !file.path.ends_with("SystemObservers.swift")) {
        assert!(!file.text.contains("import UIKit"), "{} needs UIKit", file.path);
    }
}

#[test]
fn the_header_is_the_one_of_the_library() {
    assert_eq!(read("ios/Sources/CSiskin/include/siskin.h"), read("ffi/include/siskin.h"));
}

#[test]
fn programs_of_the_page_are_compiled() {
    let sources = swift("ios/");
    let page = read("docs/ios.md");
    let blocks: Vec<_> = page
        .split("```swift\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(code, _)| code)
        .collect();
    assert!(blocks.len() >= 4, "the page's programs are not read");
    for block in blocks {
        assert!(
            sources.iter().any(|source| source.contains(block)),
            "docs/ios.md shows what no file of ios/ has:\n{block}"
        );
    }
}
