//! The facade lists what it re-exports by name: a module or a crate that it re-exported whole would make everything in
//! it public.

use super::{RustFile, Tree};

/// The root of the library that applications use.
const FACADE: &str = "runtime/siskin/src/lib.rs";

/// Returns the re-exports of other crates that are not types, traits, constants or functions by name.
pub fn facade_exports_items(tree: &Tree) -> Vec<String> {
    let Some(file) = tree.file(FACADE) else { return vec![format!("{FACADE}:1: is missing")] };
    breaches(&RustFile::new(file).shipped_code())
}

fn breaches((code, numbers): &(String, Vec<usize>)) -> Vec<String> {
    let mut breaches = Vec::new();
    for (start, _) in code.match_indices("pub use siskin_") {
        let end = code[start..].find(';').map_or(code.len(), |length| start + length);
        let path = code[start..end].trim_start_matches("pub use ");
        let leaves =
            path.split_once('{').map_or_else(|| path.rsplit("::").next().unwrap_or(path), |(_, list)| list);
        let leaves = leaves.trim_end().trim_end_matches('}').split(',').map(str::trim);
        for leaf in leaves.filter(|leaf| !leaf.is_empty() && !is_item(leaf)) {
            breaches.push(format!("{FACADE}:{}: `{leaf}` is not an item named one by one", numbers[start]));
        }
    }
    breaches
}

/// The functions among them. All other items begin with a capital letter.
const FUNCTIONS: [&str; 2] = ["append_no_follow", "open_no_follow"];

fn is_item(leaf: &str) -> bool {
    !leaf.contains(" as ")
        && (leaf.starts_with(|c: char| c.is_ascii_uppercase()) || FUNCTIONS.contains(&leaf))
}

#[cfg(test)]
mod tests {
    use super::breaches;

    fn count(code: &str) -> usize {
        breaches(&(code.to_owned(), vec![1; code.len()])).len()
    }

    #[test]
    fn whole_modules_and_crates_are_found() {
        assert_eq!(count("pub use siskin_graph as graph;"), 1);
        assert_eq!(count("pub use siskin_graph::arch;"), 1);
        assert_eq!(count("pub use siskin_backend::{governor, Observer};"), 1);
        assert_eq!(count("pub use siskin_graph::{\n    OutputHead,\n    StreamingWindow,\n};"), 0);
        assert_eq!(count("pub use siskin_format::file::{File, append_no_follow};"), 0);
    }
}
