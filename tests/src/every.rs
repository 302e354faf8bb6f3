//! Generates a C program that calls every function of the header with null arguments, with handles of other types, and
//! with only the right handle.

use std::fmt::Write;

/// A function of the header.
struct Function {
    name: String,
    /// Whether it returns an error.
    fails: bool,
    parameters: Vec<Parameter>,
}

/// A parameter of a function.
enum Parameter {
    /// A pointer to an opaque type of this name.
    Handle(String),
    /// A pointer that is written to.
    Out,
    /// Text or numbers that are read.
    Input,
    /// A number, a callback, or a callback's user data.
    Plain,
}

/// The code that creates a handle, by type name.
const HANDLES: [(&str, &str); 11] = [
    ("siskin_strings", "OK(siskin_strings_new(&siskin_strings_));"),
    ("siskin_sampler", "OK(siskin_sampler_new(&siskin_sampler_));"),
    ("siskin_model", "siskin_model_ = open_model(arguments, \"translates\");"),
    ("siskin_model_options", "OK(siskin_model_options_new(&siskin_model_options_));"),
    ("siskin_session_options", "OK(siskin_session_options_new(&siskin_session_options_));"),
    ("siskin_session", "siskin_session_ = greedy(siskin_model_, 2);"),
    ("siskin_cancel_handle", "OK(siskin_session_cancel_handle(siskin_session_, &siskin_cancel_handle_));"),
    ("siskin_encoder", "OK(siskin_encoder_new(siskin_model_, false, 0, 0, &siskin_encoder_));"),
    ("siskin_seq2seq_options", "OK(siskin_seq2seq_options_new(siskin_model_, &siskin_seq2seq_options_));"),
    ("siskin_seq2seq", "OK(siskin_seq2seq_new(siskin_model_, 0, 0, &siskin_seq2seq_));"),
    // Speech models are too large for this test.
    ("siskin_transcriber", ""),
];

/// A function that accepts null arguments.
const NEEDS_NOTHING: &str = "siskin_log_set";

/// Returns the program.
pub fn program(header: &str) -> String {
    let mut calls = String::new();
    for function in functions(header) {
        let Function { name, fails, parameters } = &function;
        let call = |choose: &dyn Fn(&Parameter) -> String| {
            format!("{name}({})", parameters.iter().map(choose).collect::<Vec<_>>().join(", "))
        };
        let takes =
            |parameter: &Parameter| matches!(parameter, Parameter::Handle(kind) if kind != "siskin_error");
        let nothing = call(&|_| "0".to_owned());
        let wrong = call(&|parameter| match parameter {
            Parameter::Handle(kind) if kind == "siskin_strings" => "(void *)siskin_sampler_".to_owned(),
            Parameter::Handle(_) => "(void *)siskin_strings_".to_owned(),
            Parameter::Out => "(void *)room".to_owned(),
            Parameter::Input => "(void *)input".to_owned(),
            Parameter::Plain => "0".to_owned(),
        });
        let right = call(&|parameter| match parameter {
            Parameter::Handle(kind) if kind != "siskin_error" => format!("{kind}_"),
            _ => "0".to_owned(),
        });
        // Writing into a string always succeeds.
        let _ = match (*fails, parameters.iter().any(takes)) {
            (true, _) if name == NEEDS_NOTHING => writeln!(calls, "    OK({nothing});"),
            (true, false) => writeln!(calls, "    FAILS(SISKIN_ERROR_NULL, {nothing});"),
            (true, true) => writeln!(
                calls,
                "    FAILS(SISKIN_ERROR_NULL, {nothing});\n    FAILS(SISKIN_ERROR_HANDLE, {wrong});\n    \
                 siskin_error_free({right});"
            ),
            (false, true) => writeln!(calls, "    {nothing};\n    {wrong};"),
            (false, false) if parameters.is_empty() => writeln!(calls, "    (void){nothing};"),
            (false, false) => writeln!(calls, "    (void){nothing};\n    (void){wrong};"),
        };
    }
    let declare = |(kind, _): &(&str, &str)| format!("    {kind} *{kind}_ = NULL;\n");
    let make = |(_, make): &(&str, &str)| format!("    {make}\n");
    let free = |(kind, _): &(&str, &str)| format!("    {kind}_free({kind}_);\n");
    format!(
        "// Generated from the header by tests/src/every.rs.\n#include \"check.h\"\n\n\
         int main(int count, char **arguments) {{\n    CHECK(count == 2);\n    \
         static uint64_t room[512];\n    static const char input[8] = \"a\";\n    room[0] = sizeof room;\n\
         {}{}{calls}{}    puts(\"every: ok\");\n    return 0;\n}}\n",
        HANDLES.iter().map(declare).collect::<String>(),
        HANDLES.iter().map(make).collect::<String>(),
        HANDLES.iter().map(free).collect::<String>(),
    )
}

fn functions(header: &str) -> Vec<Function> {
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//") && !line.starts_with('#'));
    let code = code.collect::<Vec<_>>().join(" ");
    code.split(';').filter_map(function).collect()
}

fn function(declaration: &str) -> Option<Function> {
    let declaration = declaration.trim();
    let (before, rest) = declaration.split_once('(')?;
    let name = before.rsplit([' ', '*']).next()?;
    let is_plain = !declaration.contains("typedef") && name.starts_with("siskin_");
    let parameters = rest.strip_suffix(')').filter(|_| is_plain)?.split(',');
    let parameters = parameters.map(str::trim).filter(|text| *text != "void").map(parameter).collect();
    Some(Function { name: name.to_owned(), fails: before.contains("siskin_error *"), parameters })
}

fn parameter(text: &str) -> Parameter {
    let stars = text.matches('*').count();
    let kind = text.trim_start_matches("const ").split([' ', '*']).next().unwrap_or_default();
    let is_opaque = kind == "siskin_error" || HANDLES.iter().any(|(known, _)| *known == kind);
    match stars {
        0 => Parameter::Plain,
        1 if is_opaque => Parameter::Handle(kind.to_owned()),
        1 if text.starts_with("const") => Parameter::Input,
        1 if kind == "void" => Parameter::Plain,
        _ => Parameter::Out,
    }
}
