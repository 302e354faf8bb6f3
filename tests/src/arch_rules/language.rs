//! Checks the language of code and documents: phrases, and names of types.

use super::rust::word_positions;
use super::{RustFile, Tree};
use std::collections::BTreeMap;

/// The list of phrases, which is exempt from itself.
const PHRASES: &str = "tests/arch_rules/idioms.txt";
/// Files whose text is data, or that quote what the rules forbid.
const EXEMPT: [&str; 4] =
    ["tests/src/arch_rules/language.rs", "tests/data/", "CONTRIBUTING.md", "docs/glossary.md"];
/// Texts that are data: sentences that models and tokenizers read.
const DATA: [&str; 3] = [
    "tests/golden-scripts/make_embeddings.py",
    "tests/tests/real_models.rs",
    "xtask/src/commands/deb/boot.rs",
];
/// Names that several types may have: the options of a command, and the results and errors of a crate.
const COMMON: [&str; 4] = ["Args", "Options", "Error", "Result"];

/// Returns the exempt files and folders.
pub(super) fn exempt_paths() -> Vec<String> {
    EXEMPT.iter().chain(&DATA).chain([&PHRASES]).map(|path| (*path).to_owned()).collect()
}

/// Returns the places of listed phrases.
pub fn phrases_absent(tree: &Tree) -> Vec<String> {
    let list = tree.file(PHRASES).map_or("", |file| &file.text);
    let phrases: Vec<&str> = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut breaches = Vec::new();
    let exempt = |path: &str| EXEMPT.iter().chain(&DATA).any(|start| path.starts_with(start));
    // Other text files are lists and outputs.
    let read = |path: &str| !path.ends_with(".txt") && !exempt(path);
    for file in tree.files.iter().filter(|file| read(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let line = line.to_lowercase();
            for phrase in phrases.iter().filter(|phrase| word_positions(&line, phrase).next().is_some()) {
                breaches.push(format!("{}:{}: `{phrase}`: use the term of the field", file.path, index + 1));
            }
        }
    }
    breaches
}

/// Returns the types with any `pub` visibility whose name another such type has.
pub fn type_names_unique(tree: &Tree) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in tree.rust() {
        for (number, line) in RustFile::new(file).shipped() {
            if let Some(name) = type_name(&line.code).filter(|name| !COMMON.contains(name)) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{number}", file.path));
            }
        }
    }
    let double = places.iter().filter(|(_, places)| places.len() > 1);
    double.map(|(name, places)| format!("{}: `{name}` is also a type in {}", places[0], places[1])).collect()
}

/// Returns the name of the type that a line defines with a `pub` visibility.
fn type_name(code: &str) -> Option<&str> {
    let rest = code.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let (keyword, rest) = rest.split_once(' ')?;
    let name = ["struct", "enum", "trait", "union"].contains(&keyword).then_some(rest)?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn phrases_are_found_as_whole_words() {
        let files = [(PHRASES, "# a list\nmend\nis no file\n"), ("docs/a.md", "Amend it.\nMend it.\n")];
        assert_eq!(
            phrases_absent(&Tree::from_files(&files)),
            ["docs/a.md:2: `mend`: use the term of the field"]
        );
        let code =
            [(PHRASES, "is no file\n"), ("a.rs", "// It is no file.\n"), ("tests/data/a.md", "is no file")];
        assert_eq!(phrases_absent(&Tree::from_files(&code)).len(), 1);
    }

    #[test]
    fn types_of_one_name_are_found() {
        let files = [
            ("a/src/lib.rs", "pub struct Part {\n}\npub(crate) enum Args {}\nstruct Own;\n"),
            ("b/src/lib.rs", "pub(super) trait Part {}\npub struct Args;\nstruct Own;\n"),
        ];
        assert_eq!(
            type_names_unique(&Tree::from_files(&files)),
            ["a/src/lib.rs:1: `Part` is also a type in b/src/lib.rs:1"]
        );
    }
}
