//! The committed C header is the generated one, and declares every function of the library.

use siskin_tests::{arch_rules, header, paths};

fn committed(path: &str) -> String {
    std::fs::read_to_string(paths::root().join(path)).unwrap_or_default()
}

#[test]
fn the_header_is_the_committed_one() {
    let advice = "the C interface changed: if it is meant, run `cargo xtask header --bless`";
    assert!(committed(header::HEADER) == header::generated(), "{advice}");
}

#[test]
fn no_function_is_forgotten() {
    let tree = arch_rules::Tree::read(&paths::root());
    let sources =
        tree.rust().filter(|file| file.path.starts_with("ffi/src/") && file.path != "ffi/src/testing.rs");
    let lines = sources.flat_map(|file| file.text.lines());
    let named = lines
        .filter_map(|line| line.split_once("extern \"C\" fn siskin_"))
        .map(|(_, rest)| format!("siskin_{}", rest.split('(').next().unwrap_or_default()));
    let mut named: Vec<String> = named.collect();
    named.sort_unstable();
    assert_eq!(named, header::functions(&committed(header::HEADER)));
    assert_eq!(named.join("\n") + "\n", committed(header::EXPORTS), "run `cargo xtask header --bless`");
    assert!(named.len() > 80);
}

#[test]
fn documentation_speaks_of_nothing_that_is_not_there() {
    let (header, guide) = (committed(header::HEADER), committed("docs/abi.md"));
    let words = guide.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let unknown =
        words.filter(|word| word.to_ascii_lowercase().starts_with("siskin_") && !word.ends_with('_'));
    let unknown: Vec<&str> = unknown.filter(|word| !header.contains(word)).collect();
    assert_eq!(unknown, Vec::<&str>::new());
}

#[test]
fn the_programs_are_those_that_are_run() {
    let guide = committed("docs/abi.md");
    let shown: Vec<_> = guide.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(shown, [committed("examples/c/chat.c"), committed("examples/c/two_chats.c")]);
}
