//! The Swift structs of options, and enums.

use super::declarations::Declarations;
use super::options::{Choice, Number, Options, Plain, Value};
use super::table::{ENUMS, EnumNames};
use super::words::{camel, fits, with_constants, wrap};
use super::{GENERATED, zero};

/// Generates the enums.
pub(super) fn enums(header: &Declarations) -> Result<String, String> {
    let mut text = format!("// {GENERATED}\nimport CSiskin\n");
    for names in ENUMS {
        let declared = header.find_enum(names.c)?;
        text.push_str(&format!("\n{}", docs(&with_names(&declared.docs)?, "")));
        text.push_str(&format!("public enum {}: Sendable, Hashable {{\n", names.swift));
        let mut cases = String::new();
        for member in &declared.members {
            let constant = member.name.strip_prefix(names.prefix).unwrap_or(&member.name);
            if names.null == Some(constant) {
                cases.push_str(&format!("        case nil: {}\n", member.name));
                continue;
            }
            let name = camel(&constant.to_lowercase());
            text.push_str(&format!("{}    case {name}\n", docs(&with_names(&member.docs)?, "    ")));
            cases.push_str(&format!("        case .{name}: {}\n", member.name));
        }
        let native = |about: &str| {
            format!(
                "    /// The constant in the C header{about}.\n    var native: {} {{\n        switch self {{\n{cases}        \
                 }}\n    }}\n}}\n",
                names.c
            )
        };
        text.push_str(&match names.null {
            None => format!("\n{}", native("")),
            Some(_) => {
                format!("}}\n\nextension {}? {{\n{}", names.swift, native("; `nil` means the default"))
            }
        });
    }
    Ok(text)
}

/// A stored property.
struct Stored {
    docs: String,
    name: String,
    kind: String,
    default: String,
}

/// Generates the file of a set of options.
pub(super) fn file(options: &Options, header: &Declarations) -> Result<String, String> {
    let set = options.set;
    let mut properties = Vec::new();
    for property in options.properties(|both| both.swift) {
        properties.push(match property {
            Ok(property) => stored(property.docs.to_owned(), property.declaration)?,
            Err(plain) => stored(with_names(&plain.docs)?, &declaration(plain, header)?)?,
        });
    }
    let foundation = properties.iter().any(|property| property.kind.starts_with("URL"));
    let mut text = format!("// {GENERATED}\nimport CSiskin\n");
    if foundation {
        text.push_str("import Foundation\n");
    }
    text.push_str(&format!("\n{}", docs(&format!("{} `nil` means the default.", set.summary), "")));
    text.push_str(&format!("public struct {}: {} {{\n", set.class, set.protocols));
    for Stored { docs: about, name, kind, .. } in &properties {
        text.push_str(&format!("{}    public var {name}: {kind}\n", docs(about, "    ")));
    }
    text.push_str("\n    /// Creates options.\n    public init(\n");
    let parameters: Vec<String> = properties
        .iter()
        .map(|Stored { name, kind, default, .. }| {
            let escaping = if kind.contains("->") && !kind.ends_with('?') { "@escaping " } else { "" };
            format!("        {name}: {escaping}{kind} = {default}")
        })
        .collect();
    text.push_str(&format!("{}\n    ) {{\n", parameters.join(",\n")));
    for Stored { name, .. } in &properties {
        text.push_str(&format!("        self.{name} = {name}\n"));
    }
    text.push_str("    }\n");
    if !set.creates_by_hand {
        text.push_str(&format!(
            "\n    /// Creates the native form of these options.\n    func makeNative() throws(SiskinError) -> NativeHandle \
             {{\n        let handle = NativeHandle(\n            try makeHandle {{ {0}_new(&$0) }},\n            \"{1}\",\n            \
             free: {{ {0}_free($0) }}\n        )\n        try handle.use {{ options throws(SiskinError) in try copy(to: \
             options) }}\n        return handle\n    }}\n",
            set.prefix, set.handle
        ));
    }
    text.push_str("\n    /// Sets the options that are not `nil`.\n");
    text.push_str("    func copy(to options: OpaquePointer) throws(SiskinError) {\n");
    for choice in &options.choices {
        match choice {
            Choice::Plain(plain) => text.push_str(&call(plain)),
            Choice::ByHand(by_hand) => {
                let Some(name) = by_hand.extension(set) else { continue };
                let reason = by_hand.reason;
                text.push_str(&format!(
                    "        // Written by hand, because {reason}.\n        try {name}(to: options)\n"
                ));
            }
        }
    }
    Ok(text + "    }\n}\n")
}

fn stored(docs: String, declaration: &str) -> Result<Stored, String> {
    let unknown = || format!("`{declaration}` is not `name: type = default`");
    let (name, rest) = declaration.split_once(": ").ok_or_else(unknown)?;
    let (kind, default) = rest.rsplit_once(" = ").ok_or_else(unknown)?;
    Ok(Stored { docs, name: name.to_owned(), kind: kind.to_owned(), default: default.to_owned() })
}

/// Returns the declaration of a property, with its default.
fn declaration(plain: &Plain, header: &Declarations) -> Result<String, String> {
    let name = &plain.name;
    let kind = match &plain.value {
        Value::Ids => return Ok(format!("{name}: [Int] = []")),
        Value::Texts => return Ok(format!("{name}: [String] = []")),
        Value::Enum(names) if names.null.is_none() => {
            let default = camel(&zero(header, names)?.to_lowercase());
            return Ok(format!("{name}: {} = .{default}", names.swift));
        }
        Value::Sampler { null_is_default: true } => return Ok(format!("{name}: Sampler = Sampler()")),
        Value::Bool | Value::Number { number: Number::Flag, .. } => "Bool",
        Value::Count { .. } | Value::Number { number: Number::Count, .. } => "Int",
        Value::Bits => "UInt64",
        Value::Float | Value::Number { .. } => "Double",
        Value::Enum(names) => names.swift,
        Value::Text => "String",
        Value::Sampler { .. } => "Sampler",
    };
    Ok(format!("{name}: {kind}? = nil"))
}

/// Returns the statements that set an option.
fn call(plain: &Plain) -> String {
    let Plain { name, function, .. } = plain;
    let check = |arguments: &str| format!("try check({function}(options, {arguments}))");
    let text = |text: &str| format!("try check(withUTF8({text}) {{ {function}(options, $0, $1) }})");
    let statement = match &plain.value {
        Value::Bool | Value::Bits => check(name),
        Value::Float => check(&format!("Float({name})")),
        Value::Count { .. } => check(&format!("try native({name}, \"{name}\")")),
        Value::Enum(_) => return line(&check(&format!("{name}.native"))),
        Value::Text => text(name),
        Value::Texts => return block(&format!("for text in {name}"), &[text("text")]),
        Value::Ids => {
            return block(
                "do",
                &[
                    "var numbers: [UInt32] = []".to_owned(),
                    format!("for number in {name} {{ numbers.append(try native(number, \"{name}\")) }}"),
                    check("numbers, numbers.count"),
                ],
            );
        }
        Value::Sampler { null_is_default } => {
            let head = if *null_is_default { "do".to_owned() } else { format!("if let {name}") };
            let sampler = format!("let native = try {name}.makeNative()");
            let call = check("native");
            let call = format!("try native.use {{ native throws(SiskinError) in {call} }}");
            return block(&head, &[sampler, call]);
        }
        Value::Number { constant, number, .. } => {
            let value = match number {
                Number::Count => format!("Double({name})"),
                Number::Flag => format!("{name} ? 1 : 0"),
                Number::Float => name.clone(),
            };
            check(&format!("{constant}, {value}"))
        }
    };
    block(&format!("if let {name}"), &[statement])
}

fn line(statement: &str) -> String {
    format!("        {statement}\n")
}

/// Returns a block, on one line if it fits.
fn block(head: &str, statements: &[String]) -> String {
    if let [statement] = statements {
        let line = line(&format!("{head} {{ {statement} }}"));
        if fits(line.trim_end()) {
            return line;
        }
    }
    let statements: String = statements.iter().map(|one| format!("            {one}\n")).collect();
    format!("        {head} {{\n{statements}        }}\n")
}

fn docs(text: &str, indent: &str) -> String {
    wrap(text, indent.len() + 4).iter().map(|line| format!("{indent}/// {line}\n")).collect()
}

/// Replaces the names of C constants with those of Swift.
fn with_names(docs: &str) -> Result<String, String> {
    with_constants(docs, |constant| {
        let name = |prefix: &str| Some(camel(&constant.strip_prefix(prefix)?.to_lowercase()));
        if let Some(error) = name("SISKIN_ERROR_") {
            return Some(format!("`SiskinError.Code.{error}`"));
        }
        let EnumNames { prefix, swift, .. } =
            ENUMS.iter().find(|names| constant.starts_with(names.prefix))?;
        Some(format!("`{swift}.{}`", name(prefix)?))
    })
}
