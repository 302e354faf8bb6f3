//! Suggestions for options under the names that other programs give them.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Names of options in llama.cpp, Ollama, Transformers and vLLM, and ours.
const FOREIGN_NAMES: &[(&str, &str)] = &[
    ("ctx", "context"),
    ("ctx-size", "context"),
    ("num-ctx", "context"),
    ("max-model-len", "context"),
    ("n-predict", "max-tokens"),
    ("num-predict", "max-tokens"),
    ("max-new-tokens", "max-tokens"),
    ("max-length", "max-tokens"),
    ("system-prompt", "system"),
    ("cache-type-k", "kv"),
    ("kv-cache-dtype", "kv"),
    ("lora", "adapter"),
    ("keep", "attention-sinks"),
    ("sliding-window", "window"),
    ("num-beams", "beams"),
    ("beam-size", "beams"),
    ("num-return-sequences", "n-best"),
    ("do-sample", "sample"),
    ("quantize", "quant"),
    ("outfile", "output"),
    ("outtype", "dtype"),
    ("initial-prompt", "prompt"),
    ("truncate", "overflow"),
    ("truncation", "overflow"),
];

/// Names the option that was probably meant in an error about an unknown one.
pub(crate) fn explain(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = given.trim_start_matches('-');
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let known = FOREIGN_NAMES.iter().find(|(foreign, _)| *foreign == name);
    let mut arguments = std::env::args_os().skip(1).filter_map(|argument| argument.into_string().ok());
    let command = arguments.find(|argument| !argument.starts_with('-'));
    let has = |option: &str| command.as_deref().is_some_and(|command| crate::command_has(command, option));
    if let Some((_, ours)) = known.filter(|(_, ours)| has(ours)) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{ours}")));
    }
    if error.get(ContextKind::SuggestedArg).is_some() {
        // The advice to pass it as a value, after `--`.
        error.remove(ContextKind::Suggested);
    }
    error
}
