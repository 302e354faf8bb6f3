//! The JNI functions of options, in C.

use super::options::{Argument, Form, Kind, Native, Options};
use super::words::fits;
use super::{GENERATED, LICENSE};

const ABOUT: &str = "//
// JNI functions of options: the constructors, setters and destructors of their handles.
#include \"bridge.h\"
#include <stdlib.h>
";

/// Generates the file.
pub(super) fn file(all: &[Options]) -> String {
    let mut text = format!("// {LICENSE}\n//\n// {GENERATED}\n{ABOUT}");
    let mut tables = String::new();
    for options in all {
        let stem = options.set.prefix.trim_start_matches("siskin_");
        let mut rows = String::new();
        for native in &options.natives {
            text.push_str(&format!("\n{}", function(options.set.prefix, native)));
            let signature = signature(native);
            rows.push_str(&format!(
                "    METHOD(\"{}\", \"{signature}\", {}),\n",
                native.kotlin,
                c_name(native)
            ));
        }
        text.push_str(&format!("\nstatic const JNINativeMethod {}[] = {{\n{rows}}};\n", stem.to_uppercase()));
        let class = options.native_class();
        tables.push_str(&format!("    {{\"ai/siskin/{class}\", {0}, LENGTH({0})}},\n", stem.to_uppercase()));
    }
    text + &format!(
        "\nconst struct natives natives_options[] = {{\n{tables}}};\n\nconst size_t natives_options_count = \
         LENGTH(natives_options);\n"
    )
}

fn c_name(native: &Native) -> &str {
    native.c.trim_start_matches("siskin_")
}

fn signature(native: &Native) -> String {
    let arguments: String = native.arguments.iter().map(|one| types(one.kind).1).collect();
    match native.form {
        Form::Creates => format!("({arguments})J"),
        Form::Changes => format!("(J{arguments})V"),
        Form::Frees => "(J)V".to_owned(),
    }
}

/// Returns the JNI type, its letter in signatures, and the Kotlin type.
pub(super) fn types(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Bool => ("jboolean", "Z", "Boolean"),
        Kind::U32 | Kind::Size | Kind::Enum => ("jint", "I", "Int"),
        Kind::U64 | Kind::Handle => ("jlong", "J", "Long"),
        Kind::F32 => ("jfloat", "F", "Float"),
        Kind::F64 => ("jdouble", "D", "Double"),
        Kind::Text => ("jbyteArray", "[B", "ByteArray"),
        Kind::Ids => ("jintArray", "[I", "IntArray"),
    }
}

fn function(handle: &str, native: &Native) -> String {
    let creates = native.form == Form::Creates;
    if native.form == Form::Frees {
        let name = c_name(native);
        return format!(
            "static void {name}(UNUSED_ENV, CLASS, jlong handle) {{\n    {}(HANDLE({handle}, handle));\n}}\n",
            native.c
        );
    }
    let mut parameters = vec!["JNIEnv *env".to_owned(), "CLASS".to_owned()];
    if !creates {
        parameters.push("jlong handle".to_owned());
    }
    parameters.extend(
        native.arguments.iter().map(|argument| format!("{} {}", types(argument.kind).0, argument.name)),
    );
    let mut values: Vec<String> = native.arguments.iter().map(value).collect();
    match creates {
        true => values.push("&out".to_owned()),
        false => values.insert(0, format!("HANDLE({handle}, handle)")),
    }
    let call = list(&format!("throw_if_error(env, {}(", native.c), &values, "));");
    let body = native.arguments.iter().rev().fold(call, |body, argument| with_memory(argument, &body));
    let head = format!("static {} {}(", if creates { "jlong" } else { "void" }, c_name(native));
    let head = list(&head, &parameters, ") {");
    let (before, after) = match creates {
        true => (format!("    {handle} *out = NULL;\n"), "    return (jlong)(intptr_t)out;\n"),
        false => (String::new(), ""),
    };
    format!("{head}\n{before}{}{after}}}\n", indented(&body))
}

/// Returns the value of an argument in C.
fn value(argument: &Argument) -> String {
    let Argument { name, kind, c } = argument;
    match kind {
        Kind::Bool | Kind::F32 | Kind::F64 => name.clone(),
        Kind::U32 | Kind::Enum => format!("(uint32_t){name}"),
        Kind::U64 => format!("(uint64_t){name}"),
        Kind::Size => format!("(size_t){name}"),
        Kind::Text => format!("{name}_bytes.data, {name}_bytes.length"),
        Kind::Ids => format!("{name}_ids, {name}_count"),
        Kind::Handle => format!("HANDLE(const {c}, {name})"),
    }
}

/// Surrounds a statement with the copy of an array, which is freed after it.
fn with_memory(argument: &Argument, body: &str) -> String {
    let name = &argument.name;
    let (declarations, read, free) = match argument.kind {
        Kind::Text => (
            format!("struct bytes {name}_bytes;"),
            format!("read_bytes(env, {name}, &{name}_bytes)"),
            format!("free_bytes(&{name}_bytes);"),
        ),
        Kind::Ids => (
            format!("uint32_t *{name}_ids;\nsize_t {name}_count;"),
            format!("read_ids(env, {name}, &{name}_ids, &{name}_count)"),
            format!("free({name}_ids);"),
        ),
        _ => return body.to_owned(),
    };
    format!("{declarations}\nif ({read}) {{\n{}    {free}\n}}", indented(body))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// Returns a call or a declaration, with one value on each line if one line is too long.
fn list(before: &str, values: &[String], after: &str) -> String {
    let line = format!("{before}{}{after}", values.join(", "));
    // The body of a function is indented at least once.
    if fits(&format!("        {line}")) {
        return line;
    }
    format!("{before}\n    {}{after}", values.join(",\n    "))
}
