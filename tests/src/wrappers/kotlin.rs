//! The Kotlin classes of options, their native methods, and enums.

use super::declarations::Declarations;
use super::jni::types;
use super::options::{Choice, Form, Number, Options, Plain, Value};
use super::table::{ENUMS, EnumNames};
use super::words::{camel, capital, with_constants, wrap};
use super::{GENERATED, LICENSE};

fn head() -> String {
    format!("// {LICENSE}\n// {GENERATED}\npackage ai.siskin\n")
}

/// Generates the enums.
pub(super) fn enums(header: &Declarations) -> Result<String, String> {
    let mut text = head();
    for names in ENUMS {
        let declared = header.find_enum(names.c)?;
        text.push_str(&format!("\n{}", kdoc(&with_names(&declared.docs)?, "")));
        text.push_str(&format!(
            "public enum class {}(\n    /** The native constant. */\n    internal val code: Int,\n) {{\n",
            names.kotlin
        ));
        let members: Vec<String> = declared
            .members
            .iter()
            .filter(|member| member.name.strip_prefix(names.prefix) != names.null)
            .map(|member| {
                let name = member.name.strip_prefix(names.prefix).unwrap_or(&member.name);
                Ok(format!("{}    {name}({}),\n", kdoc(&with_names(&member.docs)?, "    "), member.value))
            })
            .collect::<Result<_, String>>()?;
        text.push_str(&format!("{}}}\n", members.join("\n")));
    }
    Ok(text)
}

/// Generates the file of a set of options.
pub(super) fn file(options: &Options, header: &Declarations) -> Result<String, String> {
    let set = options.set;
    let mut text = head();
    text.push_str(&format!("\n{}", kdoc(&format!("{} `null` means the default.", set.summary), "")));
    text.push_str(&format!("public class {} {{\n", set.class));
    for property in options.properties(|both| both.kotlin) {
        let (docs, declaration) = match property {
            Ok(property) => (property.docs.to_owned(), property.declaration.to_owned()),
            Err(plain) => (with_names(&plain.docs)?, declaration(plain, header)?),
        };
        text.push_str(&format!("{}    public var {declaration}\n\n", kdoc(&docs, "    ")));
    }
    let class = options.native_class();
    if !set.creates_by_hand {
        text.push_str(&format!(
            "    internal fun <T> withNative(use: (Long) -> T): T =\n        useNative({class}.create(), {class}::free) {{ \
             options ->\n            copyTo(options)\n            use(options)\n        }}\n\n"
        ));
    }
    text.push_str(
        "    /** Sets the options that are not `null`. */\n    internal fun copyTo(options: Long) {\n",
    );
    for choice in &options.choices {
        match choice {
            Choice::Plain(plain) => text.push_str(&format!("        {}\n", call(class.as_str(), plain))),
            Choice::ByHand(by_hand) => {
                let Some(name) = by_hand.extension(set) else { continue };
                let reason = by_hand.reason;
                text.push_str(&format!(
                    "        // Written by hand, because {reason}.\n        {name}(options)\n"
                ));
            }
        }
    }
    text.push_str(&format!("    }}\n\n{}}}\n\ninternal object {class} {{\n", companion(options)));
    let externals: Vec<String> = options.natives.iter().map(external).collect();
    text.push_str(&format!("{}}}\n", externals.join("\n")));
    Ok(text.replace("    }\n\n}\n", "    }\n}\n"))
}

/// A companion, to which files beside this one add static functions.
fn companion(options: &Options) -> &'static str {
    if options.set.prefix == "siskin_sampler" { SAMPLER_COMPANION } else { "" }
}

const SAMPLER_COMPANION: &str = "    /** Presets. */
    public companion object {
        /** Greedy decoding: always the most probable token. */
        @JvmStatic
        public fun greedy(): Sampler = Sampler().apply { temperature = 0.0 }
    }
";

fn external(native: &super::options::Native) -> String {
    let handle = (native.form != Form::Creates).then(|| "options: Long".to_owned());
    let arguments = native
        .arguments
        .iter()
        .map(|argument| format!("{}: {}", camel(&argument.name), types(argument.kind).2));
    let parameters: Vec<String> = handle.into_iter().chain(arguments).collect();
    let result = if native.form == Form::Creates { ": Long" } else { "" };
    format!("    @JvmStatic external fun {}({}){result}\n", native.kotlin, parameters.join(", "))
}

/// Returns the declaration of a property, with its default.
fn declaration(plain: &Plain, header: &Declarations) -> Result<String, String> {
    let name = &plain.name;
    let kind = match &plain.value {
        Value::Ids => return Ok(format!("{name}: List<Int> = emptyList()")),
        Value::Texts => return Ok(format!("{name}: List<String> = emptyList()")),
        Value::Enum(names) if names.null.is_none() => {
            let default = super::zero(header, names)?;
            return Ok(format!("{name}: {0} = {0}.{default}", names.kotlin));
        }
        Value::Bool | Value::Number { number: Number::Flag, .. } => "Boolean",
        Value::Count { is_long: false, .. } | Value::Number { number: Number::Count, .. } => "Int",
        Value::Count { .. } | Value::Bits => "Long",
        Value::Float | Value::Number { .. } => "Double",
        Value::Enum(names) => names.kotlin,
        Value::Text => "String",
        Value::Sampler { .. } => "Sampler",
    };
    Ok(format!("{name}: {kind}? = null"))
}

/// Returns the statement that sets an option.
fn call(class: &str, plain: &Plain) -> String {
    let Plain { name, kotlin, .. } = plain;
    let set = format!("{class}.{kotlin}(options, ");
    match &plain.value {
        Value::Bool | Value::Bits | Value::Float => format!("{name}?.let {{ {set}it) }}"),
        Value::Count { zero_is_default, .. } => {
            let checked = if *zero_is_default { "positive" } else { "nonNegative" };
            format!("{name}?.let {{ {set}{checked}(\"{name}\", it)) }}")
        }
        Value::Enum(EnumNames { null: None, .. }) => format!("{set}{name}.code)"),
        Value::Enum(_) => format!("{name}?.let {{ {set}it.code) }}"),
        Value::Text => format!("{name}?.let {{ {set}it.encodeToByteArray()) }}"),
        Value::Texts => format!("{name}.forEach {{ {set}it.encodeToByteArray()) }}"),
        Value::Ids => {
            format!("{set}IntArray({name}.size) {{ nonNegative(\"{name}\", {name}[it]) }})")
        }
        Value::Sampler { .. } => format!("{name}?.withNative {{ {set}it) }}"),
        Value::Number { code, number, .. } => {
            let value = match number {
                Number::Count => "it.toDouble()",
                Number::Flag => "if (it) 1.0 else 0.0",
                Number::Float => "it",
            };
            format!("{name}?.let {{ {set}{code}, {value}) }}")
        }
    }
}

/// Returns a comment of KDoc.
fn kdoc(docs: &str, indent: &str) -> String {
    let line = format!("{indent}/** {docs} */\n");
    if line.chars().count() <= 121 {
        return line;
    }
    let lines = wrap(docs, indent.len() + 3);
    let lines: String = lines.iter().map(|line| format!("{indent} * {line}\n")).collect();
    format!("{indent}/**\n{lines}{indent} */\n")
}

/// Replaces the names of C constants with links to those of Kotlin.
fn with_names(docs: &str) -> Result<String, String> {
    with_constants(docs, |constant| {
        if let Some(error) = constant.strip_prefix("SISKIN_ERROR_") {
            return Some(format!("[SiskinException.{}]", capital(&camel(&error.to_lowercase()))));
        }
        let names = ENUMS.iter().find(|names| constant.starts_with(names.prefix))?;
        Some(format!("[{}.{}]", names.kotlin, constant.strip_prefix(names.prefix)?))
    })
}
