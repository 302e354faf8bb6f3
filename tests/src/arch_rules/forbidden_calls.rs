//! Restricts calls to certain files: starting threads, reading the environment, printing, ending the process.

use super::{RustFile, Tree};

struct Rule {
    calls: &'static [&'static str],
    /// Folders or files in which the calls are allowed. A name without a slash allows any file of that name.
    places: &'static [&'static str],
    why: &'static str,
}

const RULES: [Rule; 6] = [
    Rule {
        calls: &["thread::spawn", "thread::Builder", "thread::scope"],
        places: &[
            "runtime/backend/src/thread_pool/",
            "runtime/scheduler/src/engine/mod.rs",
            "trainer/src/data/prefetch.rs",
            "runtime/siskin/src/constraint/grammar.rs",
            "trainer/src/run/checkpoint_thread.rs",
            "runtime/scheduler/src/prefix_cache/disk.rs",
            "cli/src/serve/stdio.rs",
            "hub/src/download.rs",
            "py/src/interrupt.rs",
            "cli/src/bench/engine.rs",
            "benches/src/",
            "tests/src/",
            "xtask/src/",
        ],
        why: "only the thread pool, the engine, the compiler of grammars, the data loader, the writers of checkpoints and cached prefixes, the reader of requests, downloads, interruptible calls of Python and the benchmark of sessions start threads",
    },
    Rule {
        calls: &["env::var", "env::var_os", "env::vars", "env::set_var", "env::remove_var"],
        places: &["env.rs", "build.rs"],
        why: "environment variables are declared and read in files `env.rs`, those of cargo builds in `build.rs`",
    },
    Rule {
        calls: &["println!", "print!", "eprintln!", "eprint!", "io::stdout", "io::stderr"],
        places: &[
            "cli/src/",
            "xtask/src/",
            "tests/src/",
            "benches/src/bin/",
            "examples/rust/src/",
            "build.rs",
        ],
        why: "a library prints nothing",
    },
    Rule {
        calls: &["process::exit", "process::abort"],
        places: &["cli/src/", "xtask/src/", "tests/src/bin/", "examples/rust/src/"],
        why: "a library never ends its host process",
    },
    Rule { calls: &["mem::transmute"], places: &[], why: "use a checked conversion" },
    Rule {
        calls: &["TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener"],
        places: &[
            "serve/src/agent_check.rs",
            "serve/src/listener.rs",
            "serve/src/load/client.rs",
            "serve/src/online_gate/haproxy.rs",
            "xtask/src/commands/bench_peers/servers.rs",
            "xtask/src/commands/deb/",
        ],
        why: "only the HTTP server, its load generator and the command of HAProxy have network code",
    },
];

/// Returns the paths and file names in the table of rules.
pub(super) fn places() -> Vec<String> {
    RULES.iter().flat_map(|rule| rule.places).map(|place| (*place).to_owned()).collect()
}

/// Returns calls outside their allowed files, in shipped code.
pub fn calls_in_their_place(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in tree.rust().filter(|file| !file.is_test()) {
        let file = RustFile::new(source);
        let name = file.path.rsplit('/').next().unwrap_or_default();
        for rule in &RULES {
            let home = |place: &str| match place.contains('/') {
                true => file.path.starts_with(place),
                false => name == place,
            };
            if rule.places.iter().any(|place| home(place)) {
                continue;
            }
            for (number, line) in file.shipped() {
                if let Some(call) = rule.calls.iter().find(|call| calls(&line.code, call)) {
                    breaches.push(format!("{}:{number}: `{call}`: {}", file.path, rule.why));
                }
            }
        }
    }
    breaches
}

/// Returns true if `call` occurs in `code` and is not part of a longer name.
fn calls(code: &str, call: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(call).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(inside)
            && !code[at + call.len()..].chars().next().is_some_and(inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_its_place() {
        let rows = [
            ("runtime/backend/src/a.rs", "std::thread::spawn(f);", 1),
            ("runtime/backend/src/thread_pool/mod.rs", "std::thread::Builder::new();", 0),
            ("runtime/backend/src/a.rs", "env::var(\"X\")", 1),
            ("runtime/src/env.rs", "env::var(\"X\")", 0),
            ("runtime/src/a.rs", "std::env::vars_os(); let v = env!(\"Y\");", 0),
            ("runtime/src/a.rs", "eprintln!(\"x\");", 1),
            ("runtime/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { println!(); } }", 0),
            ("cli/src/main.rs", "println!(\"x\");", 0),
        ];
        for (path, code, count) in rows {
            assert_eq!(
                calls_in_their_place(&Tree::from_files(&[(path, code)])).len(),
                count,
                "{path}: {code}"
            );
        }
    }
}
