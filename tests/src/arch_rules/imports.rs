//! Allowed imports between modules of the runtime, and paths that the kernels must not use.

use super::rust::word_positions;
use super::{RustFile, Tree};

/// The layers of the runtime, lowest first: the modules `runtime/src/<module>`. A module may use those of its own layer
/// and of lower ones.
const LAYERS: [&[&str]; 12] = [
    &["error"],
    &["audio", "cancel", "features", "governor", "text", "thread_pool"],
    // Families are graphs and lists of tensors: they use no kernel, buffer or device.
    &["graph"],
    &["arch"],
    &["file"],
    &["tokenizer"],
    &["template"],
    &["adapter", "external_backend"],
    &["backend"],
    &["loaded_model"],
    &["context"],
    &[
        "beam_search",
        "encoder",
        "logits_processors",
        "model",
        "result_cache",
        "sample",
        "seq2seq",
        "session",
        "speech",
    ],
];

/// Where the layers are listed.
const LIST: &str = "tests/src/arch_rules/imports.rs";

/// Paths that a folder's code must not use, and why.
const FOREIGN: [(&str, &str, &str); 16] = [
    ("kernels/src", "siskin", "kernels do not depend on the runtime"),
    ("kernels/src", "alloc", "kernels allocate nothing"),
    ("kernels/src", "std::thread", "kernels start no threads"),
    ("kernels/src", "std::fs", "kernels are pure compute"),
    ("kernels/src", "std::io", "kernels are pure compute"),
    ("kernels/src", "std::env", "kernels are pure compute"),
    ("kernels/src", "std::vec", "kernels allocate nothing"),
    ("kernels/src", "std::collections", "kernels allocate nothing"),
    ("runtime/src", "std::net", "the runtime has no network code"),
    ("runtime/src", "siskin_convert", "the runtime does not depend on the converter"),
    ("runtime/src/arch", "siskin_kernels::ops", "families do not use kernels"),
    ("runtime/src/arch", "siskin_kernels::simd", "families do not use kernels"),
    ("runtime/src/graph", "siskin_kernels::ops", "graphs do not use kernels"),
    ("runtime/src/graph", "siskin_kernels::simd", "graphs do not use kernels"),
    ("runtime/src/tokenizer", "siskin_kernels", "text processing does not use kernels"),
    ("runtime/src/template", "siskin_kernels", "text processing does not use kernels"),
];

/// Returns the modules and folders in the tables.
pub(super) fn folders() -> Vec<String> {
    let modules = LAYERS.iter().copied().flatten().map(|module| format!("runtime/src/{module}"));
    modules.chain(FOREIGN.iter().map(|(folder, ..)| (*folder).to_owned())).collect()
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns why `module` may not use `used`; `None` if it may.
fn refusal(module: &str, used: &str) -> Option<String> {
    let (Some(own), Some(other)) = (layer(module), layer(used)) else {
        // Names that are no modules are items of `lib.rs`.
        return None;
    };
    (own < other).then(|| format!("`{module}` is in a lower layer than `{used}`"))
}

/// Returns disallowed imports inside the runtime and the kernels.
pub fn module_directions(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in tree.rust().filter(|file| !file.is_test()) {
        let file = RustFile::new(source);
        let (code, numbers) = file.shipped_code();
        if let Some(module) = file.path.strip_prefix("runtime/src/") {
            let own = modules(module);
            let Some(first) = own.first() else { continue };
            if layer(first).is_none() {
                breaches.push(format!("{}:1: `{first}` is in no layer; add it to {LIST}", file.path));
            }
            for (at, used) in top_level_uses(&code, &own) {
                if let Some(why) = refusal(first, &used) {
                    breaches.push(format!("{}:{}: {why}", file.path, numbers[at]));
                }
            }
        }
        for (folder, path, why) in FOREIGN {
            if file.path.starts_with(&format!("{folder}/")) {
                let found = foreign_positions(&code, path);
                breaches.extend(
                    found.map(|at| format!("{}:{}: `{path}` is used: {why}", file.path, numbers[at])),
                );
            }
        }
    }
    breaches
}

/// Returns the positions of `path`, with `a::b` also as `a::{…, b, …}`.
fn foreign_positions<'a>(code: &'a str, path: &'a str) -> Box<dyn Iterator<Item = usize> + 'a> {
    let Some((head, last)) = path.split_once("::") else {
        return Box::new(word_positions(code, path).filter(move |at| {
            let (before, after) = (&code[..*at], &code[*at + path.len()..]);
            let path_follows = after.trim_start().starts_with("::");
            let imported = before.ends_with("use ") || before.ends_with("extern crate ");
            !before.ends_with("::") && (path_follows || imported)
        }));
    };
    Box::new(
        word_positions(code, head)
            .flat_map(move |at| {
                heads(code, at + head.len()).into_iter().filter(move |(_, name)| name == last)
            })
            .map(|(at, _)| at),
    )
}

/// Returns the module path of a file: `arch/llama.rs` is `[arch, llama]`, `arch/mod.rs` is `[arch]`.
fn modules(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// Returns the top-level modules of the crate that `code` in module `own` uses, with their positions.
fn top_level_uses(code: &str, own: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in word_positions(code, "crate") {
        found.extend(heads(code, at + "crate".len()));
    }
    // `super`, repeated once for each level of the own module, reaches the top.
    let climb = vec!["super"; own.len()].join("::");
    if !own.is_empty() {
        for (at, _) in code.match_indices(&climb) {
            if !code[..at].ends_with("::") {
                found.extend(heads(code, at + climb.len()));
            }
        }
    }
    found
}

/// Returns the first names after the `::` that follows `at`: one name, or those of a braced group.
fn heads(code: &str, at: usize) -> Vec<(usize, String)> {
    let Some(rest) = code[at..].strip_prefix("::") else { return Vec::new() };
    let start = at + 2;
    let name = |from: usize| {
        let text: String = code[from..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        (!text.is_empty()).then_some((from, text))
    };
    if !rest.starts_with('{') {
        return name(start).into_iter().collect();
    }
    let (mut found, mut depth, mut fresh) = (Vec::new(), 0, false);
    for (offset, c) in rest.char_indices() {
        match c {
            '{' => (depth, fresh) = (depth + 1, depth == 0),
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if c.is_whitespace() => {}
            _ if fresh => {
                found.extend(name(start + offset));
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, code: &str) -> Vec<String> {
        module_directions(&Tree::made(&[(path, code)]))
    }

    #[test]
    fn an_import_against_the_direction_is_found_in_every_spelling() {
        for code in [
            "use crate::backend::Cpu;",
            "use crate::{\n    graph::Graph,\n    backend::{Cpu, Step},\n};",
            "use super::super::backend::Cpu;",
            "fn f() { crate::backend::run() }",
        ] {
            assert_eq!(breaches("runtime/src/arch/llama.rs", code).len(), 1, "{code}");
        }
        assert_eq!(breaches("runtime/src/error.rs", "use crate::file::Bytes;").len(), 1);
        assert_eq!(breaches("runtime/src/arch/mod.rs", "use super::backend;").len(), 1);
        assert_eq!(breaches("runtime/src/context/mod.rs", "use crate::session::Session;").len(), 1);
    }

    #[test]
    fn modules_of_no_layer_are_found() {
        assert_eq!(breaches("runtime/src/scheduler/mod.rs", "").len(), 1);
        assert_eq!(breaches("runtime/src/lib.rs", "pub use scheduler::Engine;"), Vec::<String>::new());
    }

    #[test]
    fn tests_comments_and_allowed_imports_are_free() {
        let code = "// crate::backend\nuse crate::graph::Graph;\n#[cfg(test)]\nmod tests { use crate::backend::Cpu; }\n";
        assert_eq!(breaches("runtime/src/arch/llama.rs", code), Vec::<String>::new());
        assert_eq!(breaches("runtime/src/backend/cpu.rs", "use crate::graph::Op;"), Vec::<String>::new());
    }

    #[test]
    fn kernels_name_nothing_above_them() {
        assert_eq!(breaches("kernels/src/a.rs", "use siskin::Error;").len(), 1);
        assert_eq!(breaches("kernels/src/a.rs", "use std::{thread, arch};").len(), 1);
        assert_eq!(breaches("kernels/src/a.rs", "extern crate alloc;").len(), 1);
        assert_eq!(breaches("kernels/src/a.rs", "let alloc = 3; use core::arch;"), Vec::<String>::new());
        assert_eq!(breaches("runtime/src/arch/a.rs", "use siskin_kernels::{ops, quant};").len(), 1);
    }
}
