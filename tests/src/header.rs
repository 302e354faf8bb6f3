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
    ("cancel_handle", "Cancellation"),
    ("memory_usage", "Memory usage"),
    ("model_options", "Model options"),
    ("model", "Models"),
    ("governor", "Throttling"),
    ("sampler", "Sampling"),
    ("session_options", "Session options"),
    ("session", "Sessions"),
    ("session_state", "Session state"),
    ("structured_output", "Structured output"),
    ("chat", "Tools and reasoning"),
    ("strings", "Lists of strings"),
    ("predictions", "Predictions"),
    ("encoder", "Encoders"),
    ("seq2seq_options", "Seq2seq options"),
    ("seq2seq", "Seq2seq"),
    ("transcriber", "Transcribers"),
    ("engine_options", "Engine options"),
    ("request_options", "Request options"),
    ("generation", "Generations"),
    ("engine", "Engines"),
];

/// Types that no function of their own chapter uses.
const SHARED: &[&str] =
    &["siskin_release_function", "siskin_memory_usage", "siskin_prediction", "siskin_capability"];

const PREFACE: &str = include_str!("header.txt");

/// Generates the header.
///
/// # Panics
/// If a source is missing or gives no header: they are part of the repository.
pub fn generated() -> String {
    let chapters: Vec<(&str, String)> =
        CHAPTERS.iter().map(|(file, title)| (*title, chapter(file))).collect();
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

/// Returns the enum constants that the header declares, and their values, in order.
pub fn constants(header: &str) -> Vec<(&str, u32)> {
    let members =
        header.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(',')?.split_once(" = "));
    let members = members.filter(|(name, _)| name.starts_with("SISKIN_"));
    members.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

/// Generates the chapter of one file.
fn chapter(file: &str) -> String {
    let source = std::fs::read_to_string(source(file)).expect("a chapter has a source");
    with_enums(&without_safety(&fragment(file)), &source)
}

fn source(file: &str) -> std::path::PathBuf {
    paths::root().join("ffi/src").join(format!("{file}.rs"))
}

/// Turns constants of integer types into enums, which begin the chapter.
///
/// In Rust they are integers, since C code may pass values that are not in an enum. A constant belongs to the enum that
/// is its type in the source.
fn with_enums(text: &str, source: &str) -> String {
    let type_of = |constant: &str| {
        let line = source.lines().find_map(|line| line.strip_prefix(&format!("pub const {constant}: ")))?;
        line.split_once(" = ").map(|(name, _)| name).filter(|name| name.starts_with("siskin_"))
    };
    let (mut enums, mut constants, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for block in text.split("\n\n").map(str::trim) {
        let (docs, code) = block.rsplit_once('\n').unwrap_or(("", block));
        let constant = code.strip_prefix("#define ").and_then(|code| code.split_once(' '));
        let alias = code.strip_prefix("typedef uint32_t ").and_then(|code| code.strip_suffix(';'));
        match (constant.map(|(name, value)| (name, value, type_of(name))), alias) {
            (Some((name, value, Some(kind))), _) => constants.push((kind, docs, name, value)),
            (_, Some(name)) => enums.push((name, docs)),
            _ => rest.push(block.to_owned()),
        }
    }
    let declared = enums.into_iter().map(|(name, docs)| {
        let mut text = format!("{docs}\ntypedef enum {name} {{\n");
        for (_, docs, constant, value) in constants.iter().filter(|(kind, ..)| *kind == name) {
            docs.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
            text.push_str(&format!("    {constant} = {value},\n"));
        }
        text + &format!("}} {name};")
    });
    declared.chain(rest).collect::<Vec<_>>().join("\n\n")
}

/// Generates the declarations of one file.
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
    let made = Builder::new()
        .with_src(source(file))
        .with_config(config)
        .generate()
        .expect("the sources make a header");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_become_enums_of_their_types() {
        let source =
            "pub type siskin_a = u32;\npub const SISKIN_A_X: siskin_a = 1;\npub const SISKIN_B: u32 = 2;\n";
        let text =
            "/// X.\n#define SISKIN_A_X 1\n\n#define SISKIN_B 2\n\n/// A.\ntypedef uint32_t siskin_a;\n";
        let header = with_enums(text, source);
        let expected = "/// A.\ntypedef enum siskin_a {\n    /// X.\n    SISKIN_A_X = 1,\n} siskin_a;\n\n#define SISKIN_B 2";
        assert_eq!(header, expected);
        assert_eq!(constants(&header), [("SISKIN_A_X", 1)]);
    }
}
