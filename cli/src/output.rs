//! Terminal output: text, JSON, errors with hints, progress bars.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use siskin::{Error, ErrorKind, Result};
use siskin_convert::ProgressSink;
use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Returns the exit code for an error. `docs/cli.md` lists the codes.
pub(crate) fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Argument => 2,
        ErrorKind::Corrupt
        | ErrorKind::Unsupported
        | ErrorKind::Version
        | ErrorKind::Missing
        | ErrorKind::Shape
        | ErrorKind::Integrity => 3,
        ErrorKind::TooLong | ErrorKind::Memory => 4,
        // 128 + SIGINT, as in shells.
        ErrorKind::Canceled => 130,
        _ => 1,
    }
}

/// What hints may name.
pub(crate) struct HintContext<'a> {
    /// Returns true if the command has an option.
    pub(crate) has: &'a dyn Fn(&str) -> bool,
    /// The context length of the model, if --context is lower.
    pub(crate) larger_context: Option<usize>,
}

/// Returns a hint for the error.
fn hint(error: &Error, to: &HintContext<'_>) -> Option<Cow<'static, str>> {
    let has = to.has;
    if error.kind() == ErrorKind::TooLong && error.location() != "context" && !has("depth") {
        return Some(match to.larger_context.filter(|_| has("context")) {
            Some(longest) => {
                format!("shorten the text, or raise --context (the model supports up to {longest})").into()
            }
            None if has("overflow") && !has("context") => {
                "shorten the text, or set --overflow truncate".into()
            }
            None => "shorten the text".into(),
        });
    }
    fixed_hint(error, has).map(Cow::Borrowed)
}

/// Returns a hint that depends on nothing but the kind of the error and the options of the command.
fn fixed_hint(error: &Error, has: &dyn Fn(&str) -> bool) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::Io if error.location().contains("://") && !has("workload") => {
            "check the network, HTTPS_PROXY, and that the name is right"
        }
        ErrorKind::Io if has("workload") => "check the URL, and that the server is running",
        ErrorKind::Io if has("port") && error.location().contains(':') => {
            "another program may use the port; choose another with --port"
        }
        ErrorKind::Io => "check that the path exists and that you have permission to access it",
        // Another kind of file.
        ErrorKind::Corrupt if error.location().ends_with("magic") => return None,
        ErrorKind::Corrupt => "the file may be incomplete: check its size, or download it again",
        ErrorKind::Version => "a newer siskin wrote this file: convert the model again, or update siskin",
        // Of `bench`, whose text is made up.
        ErrorKind::TooLong if has("depth") => "reduce --prompt, --depth or --generate",
        ErrorKind::TooLong if has("context") => "reduce --context",
        ErrorKind::TooLong => "shorten the text",
        ErrorKind::Memory if has("find-batch-size") && error.location().ends_with("batch.max_tokens") => {
            "train a smaller model or adapters, free memory, or raise --memory-limit"
        }
        ErrorKind::Memory if has("find-batch-size") => {
            "lower `batch.max_tokens` in the config, or set `recompute`"
        }
        ErrorKind::Memory if has("kv-memory") && error.location() == "kv_budget" => {
            "raise --kv-memory, reduce --context, or set --kv int8"
        }
        ErrorKind::Memory if has("context") => {
            "reduce --context, or quantize the model to fewer bits (`siskin convert --quant`)"
        }
        ErrorKind::Memory if has("batch-size") => {
            "reduce --batch-size, or quantize the model to fewer bits (`siskin convert --quant`)"
        }
        ErrorKind::Memory => "quantize the model to fewer bits (`siskin convert --quant`)",
        ErrorKind::Template => "try `siskin run --raw`, which uses no chat template",
        _ => return None,
    })
}

/// Options whose fields in the library have the names of Transformers.
const OPTION_OF_FIELD: &[(&str, &str)] = &[
    ("num_beam_groups", "beam-groups"),
    ("num_return_sequences", "n-best"),
    ("min_new_tokens", "min-tokens"),
];

/// Returns the option of the command that an error is about: the library names fields such as `top_p`.
fn option(error: &Error, has: &dyn Fn(&str) -> bool) -> Option<String> {
    let field = error.location();
    let renamed = OPTION_OF_FIELD.iter().find(|(name, _)| *name == field);
    let option = renamed.map_or_else(|| field.replace('_', "-"), |(_, option)| (*option).to_owned());
    let about_value = matches!(error.kind(), ErrorKind::Argument | ErrorKind::TooLong);
    (about_value && has(&option)).then_some(option)
}

/// Prints the error and returns its exit code. Hints only name options that the command has.
pub(crate) fn fail(error: &Error, to: &HintContext<'_>) -> ExitCode {
    if error.location() == CLOSED_PIPE {
        return ExitCode::SUCCESS;
    }
    // A closed standard error cannot be reported.
    let _ = match option(error, to.has) {
        Some(option) => writeln!(std::io::stderr(), "error: --{option}: {}", error.message()),
        None => writeln!(std::io::stderr(), "error: {error}"),
    };
    if let Some(hint) = hint(error, to) {
        let _ = writeln!(std::io::stderr(), "hint: {hint}");
    }
    ExitCode::from(exit_code(error.kind()))
}

/// The location of an error for a closed pipe, such as one to `head`, which is not a failure.
const CLOSED_PIPE: &str = "stdout (closed by its reader)";
/// The location of other errors of standard output.
const STDOUT: &str = "stdout";

/// Returns true for an error of standard output: nothing more can be printed.
pub(crate) fn is_of_stdout(error: &Error) -> bool {
    error.location() == CLOSED_PIPE || error.location() == STDOUT
}

/// Returns the name that is most similar to `text`, if one is similar enough to be meant.
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.into_iter().map(|name| (strsim::damerau_levenshtein(text, name), name));
    // Extensions are equal by chance.
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).chars().count();
    let limit = |name: &str| stem(text).min(stem(name)) / 3;
    distances.filter(|(distance, name)| *distance <= limit(name)).min().map(|(_, name)| name)
}

/// Prints a warning to standard error; the result remains valid.
pub(crate) fn warn(text: impl std::fmt::Display) {
    to_stderr(format!("warning: {text}"));
}

/// Writes text to standard output and flushes.
pub(crate) fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Error::io(CLOSED_PIPE, &error),
        _ => Error::io(STDOUT, &error),
    })
}

/// Writes a line to standard output.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<()> {
    write(&format!("{text}\n"))
}

/// Writes a JSON value to standard output, on one line.
pub(crate) fn json(value: &Value) -> Result<()> {
    line(value)
}

/// Writes the entries of an object one per line, or as one JSON line.
pub(crate) fn report(entries: Vec<(&str, Value)>, as_json: bool) -> Result<()> {
    if as_json {
        return json(&entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    }
    let width = entries.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    entries.iter().try_for_each(|(name, value)| line(format!("{name:<width$}  {}", text(value))))
}

/// Formats a value for reading: strings without quotes, lists with commas.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Prints a line to standard error. A closed standard error cannot be reported.
pub(crate) fn to_stderr(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a note to standard error, unless --quiet is given.
pub(crate) fn note(quiet: bool, text: impl std::fmt::Display) {
    if !quiet {
        to_stderr(text);
    }
}

/// Formats bytes in a suitable unit.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

/// Returns a rate per second.
pub(crate) fn rate(count: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Rounds for a report.
pub(crate) fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// A progress bar on standard error, if it is a terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    /// Whether notes are not shown.
    quiet: bool,
}

impl Bar {
    /// A bar that counts bytes.
    pub(crate) fn new(quiet: bool) -> Self {
        let counts = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        Self::with(quiet, counts)
    }

    /// A bar that counts seconds of audio.
    pub(crate) fn of_seconds(quiet: bool) -> Self {
        Self::with(quiet, "{wide_bar} {pos}/{len} s {eta}")
    }

    /// A bar that counts texts; without a total it only counts.
    pub(crate) fn of_texts(quiet: bool, total: Option<u64>) -> Self {
        let counts = if total.is_some() { "{wide_bar} {percent} % {eta}" } else { "{pos} texts {elapsed}" };
        let bar = Self::with(quiet, counts);
        bar.bar.set_length(total.unwrap_or(0));
        bar
    }

    fn with(quiet: bool, template: &str) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), quiet };
        }
        let style = ProgressStyle::with_template(template);
        let bar = ProgressBar::new(0);
        let bar = match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self { bar, quiet }
    }

    pub(crate) fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl ProgressSink for Bar {
    fn total(&self, bytes: u64) {
        self.bar.set_length(bytes);
    }

    fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn message(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    fn note(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| to_stderr(format!("note: {text}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_options_that_the_command_has() {
        for (kind, options, words) in [
            (ErrorKind::TooLong, &["context", "overflow"][..], "--context"),
            (ErrorKind::TooLong, &["overflow"], "--overflow"),
            (ErrorKind::Memory, &["context", "batch-size"], "--context"),
            (ErrorKind::Memory, &["batch-size"], "--batch-size"),
        ] {
            let hint = |options: &[&str]| {
                let to = HintContext { has: &|option| options.contains(&option), larger_context: Some(512) };
                hint(&Error::new(kind, "", ""), &to).unwrap()
            };
            assert!(hint(options).contains(words), "{}", hint(options));
            let others = ["--context", "--overflow", "--batch-size"].iter().filter(|other| **other != words);
            assert!(others.clone().all(|other| !hint(options).contains(other)), "{}", hint(options));
            assert!(others.chain([&words]).all(|option| !hint(&[]).contains(option)), "{}", hint(&[]));
        }
    }

    #[test]
    fn hints_only_raise_a_context_below_that_of_the_model() {
        let hint = |larger_context| {
            let to = HintContext { has: &|option| option == "context", larger_context };
            hint(&Error::new(ErrorKind::TooLong, "tokens", ""), &to).unwrap()
        };
        assert_eq!(hint(None), "shorten the text");
        assert!(hint(Some(4096)).contains("--context (the model supports up to 4096)"));
    }

    #[test]
    fn hints_for_training_are_about_the_config() {
        let to = HintContext { has: &|option| option == "find-batch-size", larger_context: None };
        for (location, words) in [("batch.max_tokens", "--memory-limit"), ("device", "`recompute`")] {
            let hint = hint(&Error::new(ErrorKind::Memory, location, ""), &to).unwrap();
            assert!(hint.contains(words) && !hint.contains("convert"), "{hint}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        for (text, names, expected) in [
            ("nope.toml", &["e.toml"][..], None),
            ("a.toml", &["b.toml"], None),
            ("shakespear", &["shakespeare"], Some("shakespeare")),
            ("smollm-q4.gguf", &["smollm2-q4.gguf", "other.gguf"], Some("smollm2-q4.gguf")),
            ("sved", &["save", "load"], None),
            ("svae", &["save", "load"], Some("save")),
        ] {
            assert_eq!(nearest(text, names.iter().copied()), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_options_that_the_command_has() {
        let option = |kind, location| option(&Error::new(kind, location, ""), &|option| option == "top-p");
        assert_eq!(option(ErrorKind::Argument, "top_p").as_deref(), Some("top-p"));
        assert_eq!(option(ErrorKind::Argument, "top_k"), None);
        assert_eq!(option(ErrorKind::Corrupt, "top_p"), None);
    }

    #[test]
    fn codes_follow_the_groups() {
        for kind in ErrorKind::ALL {
            let code = exit_code(*kind);
            match kind.code() {
                101..=106 => assert_eq!(code, 3, "{kind:?}"),
                200 => assert_eq!(code, 2),
                201 | 400 => assert_eq!(code, 4, "{kind:?}"),
                301 => assert_eq!(code, 130, "{kind:?}"),
                _ => assert_eq!(code, 1, "{kind:?}"),
            }
        }
    }
}
