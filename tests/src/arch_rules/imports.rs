//! Allowed imports between the modules of a crate, and paths that a folder's code must not use.
//!
//! What a crate may depend on is in `crates.rs`.

use super::rust::word_positions;
use super::{RustFile, Tree};

/// A folder of source, and the layers of its modules, lowest first. A module may use those of its own layer and of lower
/// ones.
type Layers = (&'static str, &'static [&'static [&'static str]]);

/// The crates whose modules are in layers. Every module must be listed.
const LAYERS: [Layers; 3] = [
    (
        "runtime/graph/src",
        &[
            &[
                "attention_mask",
                "batch",
                "builder",
                "graph",
                "types",
                "key_runs",
                "op",
                "pass",
                "pooling",
                "rope",
                "window",
            ],
            &["arch"],
            &["adapter"],
        ],
    ),
    (
        "runtime/backend/src",
        &[
            &["fair_mutex"],
            &["cancel", "external_model", "governor", "observer", "thread_pool"],
            &[
                "batch",
                "block_table",
                "moe_routing",
                "backend",
                "kv_storage",
                "position_bias",
                "state",
                "weights",
            ],
            &["plan"],
            &["cpu", "external", "reference"],
            &["loaded_model"],
            &["context"],
        ],
    ),
    (
        "runtime/siskin/src",
        &[
            &["constraint", "features", "text"],
            &["model"],
            &["logits_processors", "sample"],
            &["beam_search"],
            &["encoder"],
            &["session"],
            &["chat", "self_test", "seq2seq", "serving"],
            &["result_cache", "speech"],
        ],
    ),
];

/// Imports from a higher layer that are left: an encoder looks embeddings up.
const UPWARD: [(&str, &str); 1] = [("encoder", "result_cache")];

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
    ("runtime", "std::net", "the runtime has no network code"),
    ("runtime/graph/src", "siskin_kernels::ops", "graphs do not use kernels"),
    ("runtime/graph/src", "siskin_kernels::simd", "graphs do not use kernels"),
    ("runtime/tokenizer/src", "siskin_kernels", "text processing does not use kernels"),
    ("runtime/chat-template/src", "siskin_kernels", "text processing does not use kernels"),
    ("runtime/backend/src", "siskin_tokenizer", "backends know tokens, not texts"),
    ("convert/src", "siskin", "importing and exporting need no sessions"),
    ("trainer/src", "siskin", "training needs no sessions"),
];

/// Returns the modules and folders in the tables.
pub(super) fn folders() -> Vec<String> {
    let modules = LAYERS.iter().flat_map(|(folder, layers)| {
        layers.iter().copied().flatten().map(move |module| format!("{folder}/{module}"))
    });
    modules.chain(FOREIGN.iter().map(|(folder, ..)| (*folder).to_owned())).collect()
}

fn layer(layers: &[&[&str]], module: &str) -> Option<usize> {
    layers.iter().position(|layer| layer.contains(&module))
}

/// Returns why `module` may not use `used`; `None` if it may.
fn rejection(layers: &[&[&str]], module: &str, used: &str) -> Option<String> {
    let (Some(own), Some(other)) = (layer(layers, module), layer(layers, used)) else {
        // Names that are no modules are items of `lib.rs`.
        return None;
    };
    (own < other && !UPWARD.contains(&(module, used)))
        .then(|| format!("`{module}` is in a lower layer than `{used}`"))
}

/// Returns disallowed imports inside the runtime and the kernels.
pub fn module_directions(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in tree.rust().filter(|file| !file.is_test()) {
        let file = RustFile::new(source);
        let (code, numbers) = file.shipped_code();
        for (folder, layers) in LAYERS {
            let Some(module) = file.path.strip_prefix(&format!("{folder}/")) else { continue };
            let own = modules(module);
            let Some(first) = own.first() else { continue };
            if layer(layers, first).is_none() {
                breaches.push(format!("{}:1: `{first}` is in no layer; add it to {LIST}", file.path));
            }
            for (at, used) in top_level_uses(&code, &own) {
                if let Some(why) = rejection(layers, first, &used) {
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
pub(super) fn modules(path: &str) -> Vec<String> {
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
        module_directions(&Tree::from_files(&[(path, code)]))
    }

    #[test]
    fn an_import_against_the_direction_is_found_in_every_spelling() {
        for code in [
            "use crate::context::Context;",
            "use crate::{\n    batch::Batch,\n    context::{Context, Resources},\n};",
            "use super::super::context::Context;",
            "fn f() { crate::context::run() }",
        ] {
            assert_eq!(breaches("runtime/backend/src/cpu/matmul.rs", code).len(), 1, "{code}");
        }
        assert_eq!(breaches("runtime/graph/src/types.rs", "use crate::arch::Family;").len(), 1);
        assert_eq!(breaches("runtime/graph/src/arch/mod.rs", "use super::adapter;").len(), 1);
        assert_eq!(breaches("runtime/siskin/src/model.rs", "use crate::session::Session;").len(), 1);
    }

    #[test]
    fn modules_of_no_layer_are_found() {
        assert_eq!(breaches("runtime/backend/src/scheduler/mod.rs", "").len(), 1);
        assert_eq!(breaches("runtime/siskin/src/lib.rs", "pub use scheduler::Engine;"), Vec::<String>::new());
    }

    #[test]
    fn tests_comments_and_allowed_imports_are_free() {
        let code = "// crate::context\nuse crate::batch::Batch;\n#[cfg(test)]\nmod tests { use crate::context::Context; }\n";
        assert_eq!(breaches("runtime/backend/src/reference/mod.rs", code), Vec::<String>::new());
        assert_eq!(
            breaches("runtime/backend/src/cpu/mod.rs", "use crate::state::mix;"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn kernels_name_nothing_above_them() {
        assert_eq!(breaches("kernels/src/a.rs", "use siskin::Error;").len(), 1);
        assert_eq!(breaches("kernels/src/a.rs", "use std::{thread, arch};").len(), 1);
        assert_eq!(breaches("kernels/src/a.rs", "extern crate alloc;").len(), 1);
        assert_eq!(breaches("kernels/src/a.rs", "let alloc = 3; use core::arch;"), Vec::<String>::new());
        assert_eq!(breaches("runtime/graph/src/arch/bert.rs", "use siskin_kernels::{ops, quant};").len(), 1);
    }
}
