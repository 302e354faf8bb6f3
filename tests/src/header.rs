//! Generates the C header and derived files from the sources of `siskin-ffi`.

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

use crate::paths;

/// The header, relative to the workspace root.
pub const HEADER: &str = "ffi/include/siskin.h";
/// The list of all functions, relative to the workspace root.
pub const EXPORTS: &str = "ffi/exports.txt";

/// The chapters of the header, each generated from one file, in the order of dependencies.
const CHAPTERS: &[(&str, &str)] = &[
    ("version", "Versions"),
    ("error", "Errors"),
    ("callback", "Callback arguments"),
    ("log", "Logging"),
    ("stop", "Cancellation"),
    ("memory", "Memory"),
    ("model_options", "Model options"),
    ("model", "Models"),
    ("governor", "Throttling"),
    ("sampler", "Sampling"),
    ("session_options", "Session options"),
    ("session", "Sessions"),
    ("session_state", "Session state"),
    ("strings", "Batches of texts"),
    ("predictions", "Predictions of encoders"),
    ("encoder", "Encoders"),
    ("seq2seq_options", "Options of sequence-to-sequence generation"),
    ("writer", "Writers"),
    ("transcriber", "Transcribers"),
];

/// Types that are not used by any function of their own chapter.
const SHARED: &[&str] = &["siskin_release", "siskin_memory", "siskin_found"];

const PREFACE: &str = include_str!("header.txt");

/// Generates the header.
///
/// # Panics
/// If a source is missing or gives no header: they are part of the repository.
pub fn generated() -> String {
    let chapters: Vec<(&str, String)> =
        CHAPTERS.iter().map(|(file, title)| (*title, without_safety(&fragment(file)))).collect();
    let opaque = |line: &&str| line.starts_with("typedef struct") && !line.contains('{');
    let mut forward: Vec<&str> = chapters.iter().flat_map(|(_, text)| text.lines()).filter(opaque).collect();
    forward.sort_unstable();
    forward.dedup();
    let mut body = format!("{}\n", forward.join("\n"));
    for (title, text) in &chapters {
        let line = "-".repeat(100 - title.len());
        body.push_str(&format!("\n// {title} {line}\n\n{}\n", text.trim()));
    }
    PREFACE.replace("@BODY@", body.trim_end())
}

/// Returns the functions that the header declares, sorted by name.
pub fn functions(header: &str) -> Vec<String> {
    let code = header.lines().filter(|line| !line.starts_with("//") && !line.starts_with('#'));
    let mut names: Vec<String> = code.filter_map(function).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Returns the function whose declaration starts in a line: its name precedes the first parenthesis.
fn function(line: &str) -> Option<&str> {
    let (before, _) = line.split_once('(')?;
    let name = before.rsplit([' ', '*']).next()?;
    (name.starts_with("siskin_") && !line.starts_with([' ', '\t']) && !line.starts_with("typedef"))
        .then_some(name)
}

/// Generates the part of the header for one file.
fn fragment(file: &str) -> String {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        no_includes: true,
        documentation_style: DocumentationStyle::Cxx,
        usize_is_size_t: true,
        line_length: 110,
        tab_width: 4,
        ..Config::default()
    };
    // Types that functions of other chapters use.
    config.export.include = SHARED.iter().map(|name| (*name).to_owned()).collect();
    config.function.must_use = Some("SISKIN_NODISCARD".to_owned());
    let source = paths::root().join("ffi/src").join(format!("{file}.rs"));
    let made =
        Builder::new().with_src(&source).with_config(config).generate().expect("the sources make a header");
    let mut text = Vec::new();
    made.write(&mut text);
    String::from_utf8(text).expect("headers are text")
}

/// Removes the parts of Rust documentation that do not apply to C: everything from `# Safety` on.
fn without_safety(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        inside = line.starts_with("///") && (inside || line.trim_start_matches('/').trim() == "# Safety");
        if !inside {
            lines.push(line);
            continue;
        }
        while lines.last().is_some_and(|last| last.trim() == "///") {
            lines.pop();
        }
    }
    lines.iter().map(|line| plain(line.trim_end())).collect::<Vec<_>>().join("\n")
}

/// Converts a line to plain C, with the typedef names of types.
fn plain(line: &str) -> String {
    let line = line.replace('…', "...").replace('−', "-");
    if line.starts_with("typedef") { line } else { line.replace("struct siskin_", "siskin_") }
}
