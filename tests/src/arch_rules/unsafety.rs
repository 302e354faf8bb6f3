//! Restricts `unsafe` to the files of one list, and requires a safety comment for each use.

use super::rust::word_positions;
use super::{RustFile, Tree};

const LIST: &str = "tests/arch_rules/unsafe.txt";

/// Returns unsafe code outside the list or without a safety comment, and stale entries of the list.
pub fn unsafe_listed(tree: &Tree) -> Vec<String> {
    let listed = tree.list(LIST);
    let mut breaches = Vec::new();
    let mut used = Vec::new();
    for source in tree.rust() {
        let file = RustFile::new(source);
        for (index, line) in file.lines.iter().enumerate() {
            for at in word_positions(&line.code, "unsafe") {
                if used.last() != Some(&file.path) {
                    used.push(file.path);
                }
                let place = format!("{}:{}", file.path, index + 1);
                if !listed.iter().any(|path| path == file.path) {
                    breaches.push(format!("{place}: unsafe code outside {LIST}"));
                } else if let Some(need) = missing_reason(&file, index, &line.code[at + "unsafe".len()..]) {
                    breaches.push(format!("{place}: {need}"));
                }
            }
        }
    }
    let stale = listed.iter().filter(|path| !used.contains(&path.as_str()));
    breaches.extend(stale.map(|path| format!("{LIST}:1: `{path}` has no unsafe code any more")));
    breaches
}

/// Returns the requirement that the comments at the use of `unsafe` in line `index` do not meet; `rest` is the code
/// after the word.
fn missing_reason(file: &RustFile<'_>, index: usize, rest: &str) -> Option<&'static str> {
    let rest = rest.trim_start();
    let block = rest.is_empty() || rest.starts_with('{') || rest.starts_with("impl");
    let function = rest.starts_with("fn ") || (rest.starts_with("extern") && rest.contains("fn "));
    let public = file.lines[index].code.trim_start().starts_with("pub");
    if block && !explained(file, index, &["SAFETY:"]) {
        return Some("an unsafe block or impl needs a comment `SAFETY:` above it");
    }
    if function && public && !explained(file, index, &["# Safety", "SAFETY:"]) {
        return Some("a public unsafe function needs a `# Safety` section");
    }
    None
}

/// Returns true if one of `words` occurs in the line's comment, or in the comments above its statement.
fn explained(file: &RustFile<'_>, index: usize, words: &[&str]) -> bool {
    let says = |at: usize| words.iter().any(|word| file.lines[at].comment.contains(word));
    if says(index) {
        return true;
    }
    let mut in_comment = false;
    for at in (0..index).rev() {
        let code = file.lines[at].code.trim();
        if code.is_empty() && !file.lines[at].comment.is_empty() {
            in_comment = true;
            if says(at) {
                return true;
            }
            continue;
        }
        let attribute = code.starts_with("#[");
        let unfinished = !code.is_empty() && !code.ends_with([';', '{', '}', ',']);
        if in_comment || !(attribute || unfinished) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(code: &str, list: &str) -> Vec<String> {
        unsafe_listed(&Tree::from_files(&[("runtime/src/a.rs", code), (LIST, list)]))
    }

    #[test]
    fn unsafe_needs_the_list_and_a_reason() {
        let explained = "// SAFETY: p is valid.\nlet x =\n    unsafe { *p };";
        assert_eq!(breaches(explained, "runtime/src/a.rs # map"), Vec::<String>::new());
        assert_eq!(breaches(explained, "").len(), 1);
        assert_eq!(breaches("// About p.\nunsafe { *p };", "runtime/src/a.rs").len(), 1);
        let far = "// SAFETY: p is valid.\nf();\nunsafe { *p };";
        assert_eq!(breaches(far, "runtime/src/a.rs").len(), 1);
    }

    #[test]
    fn public_functions_document_their_contract() {
        assert_eq!(breaches("pub unsafe fn f() {}", "runtime/src/a.rs").len(), 1);
        let documented = "/// # Safety\n/// p is valid.\n#[inline]\npub unsafe fn f() {}";
        assert_eq!(breaches(documented, "runtime/src/a.rs"), Vec::<String>::new());
    }

    #[test]
    fn stale_entries_and_words_in_text_are_told_apart() {
        assert_eq!(breaches("let a = \"unsafe\"; // unsafe", "runtime/src/a.rs").len(), 1);
        assert_eq!(breaches("#![forbid(unsafe_code)]", ""), Vec::<String>::new());
    }
}
