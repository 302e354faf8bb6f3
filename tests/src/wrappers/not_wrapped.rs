//! The functions of the header that a wrapper does not call: computed from its sources, with reasons from the table.

use super::declarations::Declarations;
use super::table::{NOT_WRAPPED, NotWrapped};
use super::{FOLDERS, GeneratedFile, text_below};
use std::collections::HashSet;

/// A wrapper: its list, its sources, and its reasons.
struct Wrapper {
    list: &'static str,
    folder: &'static str,
    extension: &'static str,
    reason: fn(&NotWrapped) -> &'static str,
}

const WRAPPERS: [Wrapper; 2] = [
    Wrapper {
        list: "android/not-wrapped.txt",
        folder: "android/src/main/cpp",
        extension: "c",
        reason: |one| one.kotlin,
    },
    Wrapper {
        list: "ios/not-wrapped.txt",
        folder: "ios/Sources",
        extension: "swift",
        reason: |one| one.swift,
    },
];

/// Generates the lists.
pub(super) fn lists(header: &Declarations, files: &[GeneratedFile]) -> Result<Vec<GeneratedFile>, String> {
    WRAPPERS.iter().map(|wrapper| list(wrapper, header, files)).collect()
}

fn list(wrapper: &Wrapper, header: &Declarations, files: &[GeneratedFile]) -> Result<GeneratedFile, String> {
    let mut text = text_below(wrapper.folder, &[wrapper.extension], &FOLDERS)?;
    let generated = files.iter().filter(|file| file.path.starts_with(wrapper.folder));
    generated.for_each(|file| text.push_str(&file.text));
    let called: HashSet<&str> = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).collect();
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for function in &header.functions {
        let name = function.name.as_str();
        let row = NOT_WRAPPED.iter().find(|row| row.function == name);
        match (called.contains(name), row.map_or("", wrapper.reason)) {
            (false, "") => wrong.push(format!("{name} is not called, and no reason is given")),
            (false, reason) => lines.push(format!("{name}: {reason}")),
            (true, "") => {}
            (true, _) => wrong.push(format!("{name} is called, but a reason is given why it is not")),
        }
    }
    let is_known = |row: &&NotWrapped| header.functions.iter().any(|function| function.name == row.function);
    let stale = NOT_WRAPPED.iter().filter(|row| !is_known(row));
    wrong.extend(stale.map(|row| format!("{} is not in the header", row.function)));
    if !wrong.is_empty() {
        let folder = wrapper.folder;
        return Err(format!(
            "{folder}: {}\nreasons are in tests/src/wrappers/table.rs",
            wrong.join(&format!("\n{folder}: "))
        ));
    }
    lines.sort_unstable();
    Ok(GeneratedFile { path: wrapper.list.to_owned(), text: lines.join("\n") + "\n" })
}
