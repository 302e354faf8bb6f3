//! Finds import cycles between the modules of a crate.
//!
//! The modules of one folder must not import each other in a cycle: neither its files nor its folders, each folder
//! standing for everything in it. Paths from `crate::` and `super::` are followed through the `use` declarations of
//! the modules that they name, so that a re-export hides nothing. What a file and the `mod.rs` above it take from each
//! other is not a cycle: a folder may have its interface and the list of its parts in its `mod.rs`.

use super::rust::word_positions;
use super::{RustFile, Tree, manifests};
use std::collections::{BTreeMap, BTreeSet};

/// Accepted cycles: the folder, the modules in it that import each other, and why. A cycle that is gone must leave
/// this table.
const ALLOWED: [(&str, &[&str], &str); 12] = [
    (
        "cli/src/chat",
        &["commands", "input"],
        "the input completes commands, and `/edit` gives a message to the input",
    ),
    (
        "convert/src",
        &["cache", "calibrate", "export", "import", "open", "pack"],
        "an import packs a model to verify it, an export reads one, and calibration opens one",
    ),
    (
        "convert/src/import/onnx",
        &["general", "source", "verify"],
        "a model is imported as a known family only if it computes what the general model computes",
    ),
    ("kernels/src", &["panel", "quant"], "a block type has its panel type, and a panel type its block type"),
    (
        "kernels/src/ops/matmul",
        &["avx2", "broadcast"],
        "AVX2 matmuls use forms that are generic over AVX2's products",
    ),
    (
        "kernels/src/ops/matmul",
        &["formats", "row_types", "run", "simd", "tile", "unpacked"],
        "the trait of instruction sets has the generic bodies as its default methods",
    ),
    (
        "runtime/backend/src",
        &["backend", "batch", "block_table", "position_bias", "weights"],
        "the interface names what backends are given, and that names the interface",
    ),
    (
        "runtime/chat-template/src",
        &["ast", "value"],
        "constants are values, and macros are values with a body",
    ),
    (
        "runtime/chat-template/src",
        &["checks", "filters", "sequences"],
        "`map`, `select` and `is filter` call filters and tests by name",
    ),
    (
        "runtime/siskin/src",
        &["encoder", "result_cache", "session"],
        "encoders look embeddings up, and the cache finds prompts by their embedding",
    ),
    (
        "trainer/src",
        &["grad", "parameters", "program", "qat"],
        "the memory plan and the schedule of a program ask the backward rules what they keep",
    ),
    ("trainer/src/cuda", &["fp8", "weights"], "the table of weights knows which are in fp8"),
];

/// Where the table is.
const LIST: &str = "tests/src/arch_rules/import_cycles.rs";

/// The module path inside a crate; empty for `lib.rs`.
type Module = Vec<String>;

/// A module of a crate and the paths that its code names, with their lines.
struct Source<'a> {
    path: &'a str,
    code: String,
    numbers: Vec<usize>,
    /// Names that `use` declarations bring into the module, and their full paths.
    imports: BTreeMap<String, Vec<String>>,
}

/// The modules of a crate.
struct Crate<'a> {
    modules: BTreeMap<Module, Source<'a>>,
}

/// For each importing module of a folder, the modules it imports, each with a place where it does.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Returns import cycles that are not accepted, and accepted ones that no longer exist.
pub fn import_cycles(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut known = Vec::new();
    for manifest in manifests(tree) {
        let folder = format!("{}/src", manifest.folder());
        for (parent, edges) in Crate::read(tree, &folder).edges() {
            let at: Vec<_> = std::iter::once(folder.clone()).chain(parent).collect();
            let at = at.join("/");
            for members in cycles(&edges) {
                let members: Vec<&str> = members.iter().map(String::as_str).collect();
                known.push((at.clone(), members.join(" ")));
                if !ALLOWED.iter().any(|(folder, modules, _)| *folder == at && *modules == members) {
                    breaches.push(spelled_out(&at, &members, &edges));
                }
            }
        }
    }
    let stale = ALLOWED
        .iter()
        .filter(|(folder, modules, _)| !known.contains(&((*folder).to_owned(), modules.join(" "))));
    breaches.extend(stale.map(|(folder, modules, _)| {
        format!(
            "{LIST}:1: {} in `{folder}` no longer form a cycle; change or remove the entry",
            modules.join(", ")
        )
    }));
    breaches
}

/// Describes a cycle by the shortest way around from its first module, with a place for each import.
fn spelled_out(folder: &str, members: &[&str], edges: &Edges) -> String {
    let way = shortest_cycle(members, edges);
    let steps: Vec<String> = way
        .windows(2)
        .map(|pair| {
            let place = edges.get(pair[0]).and_then(|to| to.get(pair[1])).map_or("", String::as_str);
            format!("`{}` imports `{}` ({place})", pair[0], pair[1])
        })
        .collect();
    let all =
        if members.len() + 1 > way.len() { format!("; all: {}", members.join(", ")) } else { String::new() };
    format!("{folder}:1: import cycle: {}{all}", steps.join(", "))
}

/// Returns the shortest way from a member back to itself.
fn shortest_cycle<'a>(members: &[&'a str], edges: &'a Edges) -> Vec<&'a str> {
    let mut best: Vec<&str> = Vec::new();
    for start in members {
        let mut queue = std::collections::VecDeque::from([vec![*start]]);
        let mut seen = BTreeSet::new();
        'search: while let Some(way) = queue.pop_front() {
            let last = way.last().copied().unwrap_or_default();
            for next in edges.get(last).into_iter().flat_map(BTreeMap::keys) {
                let longer: Vec<&str> = way.iter().copied().chain([next.as_str()]).collect();
                if next == start {
                    if best.is_empty() || longer.len() < best.len() {
                        best = longer;
                    }
                    break 'search;
                }
                if members.contains(&next.as_str()) && seen.insert(next) {
                    queue.push_back(longer);
                }
            }
        }
    }
    best
}

/// Returns the sets of modules that reach each other, sorted.
fn cycles(edges: &Edges) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|start| {
            let (mut seen, mut stack) = (BTreeSet::new(), vec![start]);
            while let Some(at) = stack.pop() {
                stack.extend(
                    edges.get(at).into_iter().flat_map(BTreeMap::keys).filter(|next| seen.insert(*next)),
                );
            }
            (start, seen)
        })
        .collect();
    let reaches = |a: &String, b: &String| reach.get(a).is_some_and(|seen| seen.contains(b));
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for start in edges.keys().filter(|start| reaches(start, start)) {
        let own = edges.keys().filter(|other| reaches(start, other) && reaches(other, start));
        found.insert(own.cloned().collect());
    }
    found.into_iter().collect()
}

impl<'a> Crate<'a> {
    /// Reads the shipped code under `folder`. Programs beside the library are crates of their own.
    fn read(tree: &'a Tree, folder: &str) -> Self {
        let mut modules = BTreeMap::new();
        for file in tree.rust().filter(|file| !file.is_test()) {
            let inner = file.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            let Some(inner) = inner.filter(|inner| !inner.starts_with("bin/")) else { continue };
            let (code, numbers) = RustFile::new(file).shipped_code();
            let source = Source { path: &file.path, code, numbers, imports: BTreeMap::new() };
            modules.insert(super::imports::modules(inner), source);
        }
        let mut read = Self { modules };
        let imports: Vec<_> = read
            .modules
            .iter()
            .map(|(module, source)| (module.clone(), read.imports(module, source)))
            .collect();
        for (module, imports) in imports {
            if let Some(source) = read.modules.get_mut(&module) {
                source.imports = imports;
            }
        }
        read
    }

    /// Returns the names that the `use` declarations of a module bring in.
    fn imports(&self, module: &Module, source: &Source<'_>) -> BTreeMap<String, Vec<String>> {
        let mut names = BTreeMap::new();
        for at in word_positions(&source.code, "use") {
            let rest = source.code[at + 3..].trim_start();
            for (_, path, name) in paths(rest.split(';').next().unwrap_or_default(), 0) {
                if let Some(path) = self.absolute(module, &path) {
                    names.insert(name, path);
                }
            }
        }
        names
    }

    /// Returns `path` from the root of the crate; `None` for paths into other crates.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let (mut at, mut rest) = (module.clone(), path);
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                at.push(first.to_owned());
                self.modules.get(&at)?;
                at.pop();
            }
        }
        at.extend(rest.iter().cloned());
        Some(at)
    }

    /// Returns the module that has the item at `path`, looking through `use` declarations.
    fn home(&self, path: &[String], depth: usize) -> Module {
        let mut at = Module::new();
        for (index, name) in path.iter().enumerate() {
            let mut next = at.clone();
            next.push(name.clone());
            if self.modules.contains_key(&next) {
                at = next;
                continue;
            }
            if let Some(target) = self.modules.get(&at).and_then(|source| source.imports.get(name))
                && depth < 8
                && *target != path[..=index]
            {
                let full: Vec<String> = target.iter().chain(&path[index + 1..]).cloned().collect();
                return self.home(&full, depth + 1);
            }
            break;
        }
        at
    }

    /// Returns the imports between the modules of each folder.
    fn edges(&self) -> BTreeMap<Module, Edges> {
        let mut folders: BTreeMap<Module, Edges> = BTreeMap::new();
        for (module, source) in &self.modules {
            for (at, path) in self.used(module, source) {
                let home = self.home(&path, 0);
                let common = module.iter().zip(&home).take_while(|(a, b)| a == b).count();
                // A file and the folder it is in are no cycle.
                let (Some(from), Some(to)) = (module.get(common), home.get(common)) else { continue };
                let place = format!("{}:{}", source.path, source.numbers.get(at).copied().unwrap_or(1));
                let edges = folders.entry(module[..common].to_vec()).or_default();
                edges.entry(from.clone()).or_default().entry(to.clone()).or_insert(place);
                edges.entry(to.clone()).or_default();
            }
        }
        folders
    }

    /// Returns the paths into the crate that a module names, with their positions.
    fn used(&self, module: &Module, source: &Source<'_>) -> Vec<(usize, Vec<String>)> {
        let code = &source.code;
        let mut found = Vec::new();
        let mut add = |at: usize| {
            let all = paths(&code[at..], at);
            found.extend(
                all.into_iter().filter_map(|(at, path, _)| Some((at, self.absolute(module, &path)?))),
            );
        };
        for word in ["crate", "super"] {
            for at in word_positions(code, word) {
                let before = code[..at].trim_end();
                let is_scope = before.ends_with("(in")
                    || before.ends_with("pub(")
                    || before.ends_with('(') && code[at + 5..].starts_with(')');
                if !is_scope && !before.ends_with("::") {
                    add(at);
                }
            }
        }
        // Modules that a `use` brought in, as in `ops::matmul::run`.
        for (name, path) in &source.imports {
            for at in word_positions(code, name) {
                if code[at + name.len()..].starts_with("::") && !code[..at].ends_with("::") {
                    found.extend(
                        paths(&code[at..], at)
                            .into_iter()
                            .map(|(at, used, _)| (at, path.iter().chain(&used[1..]).cloned().collect())),
                    );
                }
            }
        }
        found
    }
}

/// Returns the paths that start at the beginning of `text`, one for each leaf of a braced group, with their positions
/// from `base` on and the name that a `use` gives each of them.
fn paths(text: &str, base: usize) -> Vec<(usize, Vec<String>, String)> {
    let mut found = Vec::new();
    leaves(text, base, &[], &mut found);
    found
}

/// Reads one path or group, and returns the length of what it read.
fn leaves(
    text: &str,
    base: usize,
    prefix: &[String],
    found: &mut Vec<(usize, Vec<String>, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        if text[at..].starts_with('{') {
            return at + group(&text[at..], base + at, &path, found);
        }
        let name: String = text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let start = at;
        at += name.len();
        if name == "self" && !path.is_empty() {
            // `a::{self}` is `a`.
        } else if !name.is_empty() {
            path.push(name);
        }
        if !text[at..].starts_with("::") {
            let last = path.last().cloned().unwrap_or_default();
            let renamed = text[at..].trim_start().strip_prefix("as ").map(str::trim_start);
            let name = renamed
                .map_or(last, |rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            found.push((base + start, path, name));
            return at;
        }
        at += 2;
    }
}

/// Reads a braced group of paths, and returns its length.
fn group(text: &str, base: usize, prefix: &[String], found: &mut Vec<(usize, Vec<String>, String)>) -> usize {
    let mut at = 1;
    loop {
        at += text[at..].len() - text[at..].trim_start_matches(|c: char| c.is_whitespace() || c == ',').len();
        if at >= text.len() || text[at..].starts_with('}') {
            return (at + 1).min(text.len());
        }
        at += leaves(&text[at..], base + at, prefix, found);
        // A name after `as`, or `*`.
        at += text[at..].find([',', '}']).unwrap_or(text.len() - at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: (&str, &str) = ("a/Cargo.toml", "[package]\nname = \"siskin-a\"\n");

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = [MANIFEST].iter().chain(files).copied().collect();
        import_cycles(&Tree::from_files(&files)).into_iter().filter(|line| !line.starts_with(LIST)).collect()
    }

    #[test]
    fn cycles_are_found_in_every_spelling() {
        let b = ("a/src/b.rs", "use crate::c::C;\npub struct B;\n");
        for code in [
            "use crate::b::B;",
            "use super::b::B;",
            "use crate::{\n    x::X,\n    b::{self, B as Other},\n};",
            "fn f() -> super::b::B { B }",
            "use crate::B;",
            "use super::B;",
        ] {
            let cycle =
                found(&[("a/src/lib.rs", "mod b;\nmod c;\npub use b::B;\n"), b, ("a/src/c.rs", code)]);
            assert_eq!(cycle.len(), 1, "{code}: {cycle:?}");
            assert!(
                cycle[0].starts_with(
                    "a/src:1: import cycle: `b` imports `c` (a/src/b.rs:1), `c` imports `b` (a/src/c.rs:"
                ),
                "{cycle:?}"
            );
        }
    }

    #[test]
    fn cycles_of_folders_are_found_at_every_level() {
        let files = [
            ("a/src/lib.rs", ""),
            ("a/src/ops/mod.rs", ""),
            ("a/src/ops/b/mod.rs", "use super::c;\nfn f() { c::deep::f() }\n"),
            ("a/src/ops/b/x.rs", ""),
            ("a/src/ops/c/mod.rs", ""),
            ("a/src/ops/c/deep.rs", "use crate::ops;\nfn f() { ops::b::x::g() }\n"),
        ];
        let cycle = found(&files);
        assert_eq!(cycle.len(), 1, "{cycle:?}");
        assert!(cycle[0].starts_with("a/src/ops:1: import cycle: `b` imports `c`"), "{cycle:?}");
    }

    #[test]
    fn parents_tests_and_scopes_are_no_cycles() {
        let files = [
            ("a/src/lib.rs", "mod b;\nuse b::x;\n"),
            ("a/src/b/mod.rs", "use x::X;\npub struct B;\n"),
            ("a/src/b/x.rs", "use super::B;\npub(in crate::b) struct X;\npub(crate) struct Y;\n"),
            ("a/src/c.rs", "use crate::b::B;\n"),
            ("a/src/b/y.rs", "// crate::c\n#[cfg(test)]\nmod tests { use crate::c::C; }\n"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
