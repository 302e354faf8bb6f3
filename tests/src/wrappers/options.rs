//! The options of a set, derived from the functions of the header.

use super::declarations::{Declarations, Enum, Function, Parameter};
use super::table::{ByHand, Caller, ENUMS, EnumNames, OptionSet, Property};
use super::words::{camel, sentence};

/// The type of an argument, which may be two parameters in C.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Bool,
    U32,
    U64,
    Size,
    F32,
    F64,
    /// An enum, which JNI passes as a number.
    Enum,
    /// A pointer to bytes and their number.
    Text,
    /// A pointer to 32-bit numbers and their number.
    Ids,
    /// A borrowed handle.
    Handle,
}

/// An argument of a function, after the handle.
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The C type, without `const` and `*`.
    pub(super) c: String,
}

/// A function whose arguments JNI can pass.
pub(super) struct Native {
    /// The name in C.
    pub(super) c: String,
    /// The name in Kotlin.
    pub(super) kotlin: String,
    pub(super) arguments: Vec<Argument>,
    pub(super) form: Form,
}

/// What a function does with its handle.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    Creates,
    Changes,
    Frees,
}

/// An option with a simple value.
pub(super) struct Plain {
    /// The C function.
    pub(super) function: String,
    /// The function in Kotlin.
    pub(super) kotlin: String,
    /// The property, in both languages.
    pub(super) name: String,
    pub(super) value: Value,
    /// The documentation of the property, with names of C constants.
    pub(super) docs: String,
}

/// The value of an option.
pub(super) enum Value {
    Bool,
    /// An integer from 0, or from 1 where 0 is the default, which has no value here.
    Count {
        is_long: bool,
        zero_is_default: bool,
    },
    /// 64 bits without a meaning as a number.
    Bits,
    Float,
    Enum(&'static EnumNames),
    Text,
    Ids,
    /// Texts that are added one by one.
    Texts,
    /// Sampling options; `null_is_default`: an object with defaults is the same as none.
    Sampler {
        null_is_default: bool,
    },
    /// A constant of the enum of numeric options, its value, and its type.
    Number {
        constant: String,
        code: u32,
        number: Number,
    },
}

/// The type of a numeric option.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Number {
    Count,
    Flag,
    Float,
}

/// An option of a set.
pub(super) enum Choice {
    Plain(Plain),
    ByHand(&'static ByHand),
}

/// A set of options with its functions.
pub(super) struct Options {
    pub(super) set: &'static OptionSet,
    pub(super) natives: Vec<Native>,
    pub(super) choices: Vec<Choice>,
}

impl Options {
    /// Derives the options of a set. Fails if a function of the set has no rule and is not in the table.
    pub(super) fn derive(
        set: &'static OptionSet,
        header: &Declarations,
        sources: &str,
    ) -> Result<Self, String> {
        let (mut natives, mut choices) = (Vec::new(), Vec::new());
        let mut used = Vec::new();
        for function in header.functions.iter().filter(|function| belongs(set, &function.name)) {
            let by_hand = set.by_hand.iter().find(|one| one.function == function.name);
            if !by_hand.is_some_and(|one| one.jni) {
                natives.push(native(set, function, header)?);
            }
            if let Some(by_hand) = by_hand {
                used.push(by_hand.function);
                choices.push(Choice::ByHand(by_hand));
            } else if set.numbers.is_some() && function.name == format!("{}_set", set.prefix) {
                let numbers = header.find_enum(set.numbers.unwrap_or_default())?;
                choices.extend(number_options(function, numbers, sources)?);
            } else if let Some(native) = natives.last().filter(|native| native.form == Form::Changes) {
                choices.push(Choice::Plain(plain(set, function, native)?));
            }
        }
        match set.by_hand.iter().find(|one| !used.contains(&one.function)) {
            Some(stale) => Err(format!("tests/src/wrappers/table.rs: the header has no {}", stale.function)),
            None => Ok(Self { set, natives, choices }),
        }
    }

    /// Returns the properties that are declared in the table, and the options between them, in order.
    pub(super) fn properties(
        &self,
        of: impl Fn(&super::table::Properties) -> &'static [Property],
    ) -> Vec<Result<&'static Property, &Plain>> {
        let first = of(&self.set.properties).iter().map(Ok);
        let rest = self.choices.iter().flat_map(|choice| match choice {
            Choice::Plain(plain) => vec![Err(plain)],
            Choice::ByHand(by_hand) => of(&by_hand.properties).iter().map(Ok).collect(),
        });
        first.chain(rest).collect()
    }
}

impl ByHand {
    /// The name of the extension that converts the option: `copyAdapter` for `..._set_adapter`.
    pub(super) fn extension(&self, set: &OptionSet) -> Option<String> {
        let option = option_name(set, self.function);
        (self.caller == Caller::Extension).then(|| camel(&format!("copy_{option}")))
    }
}

/// Returns true if a function is one of the set.
fn belongs(set: &OptionSet, function: &str) -> bool {
    let Some(rest) = function.strip_prefix(set.prefix).and_then(|rest| rest.strip_prefix('_')) else {
        return false;
    };
    let is_setter = rest == "set" || rest.starts_with("set_") || rest.starts_with("add_");
    !set.is_object || is_setter
}

/// Returns the name of the option that a function sets, in C.
fn option_name<'f>(set: &OptionSet, function: &'f str) -> &'f str {
    let rest = function.strip_prefix(set.prefix).unwrap_or(function);
    rest.strip_prefix("_set_").or_else(|| rest.strip_prefix("_add_")).unwrap_or(rest)
}

/// Derives how JNI passes the arguments of a function.
fn native(set: &OptionSet, function: &Function, header: &Declarations) -> Result<Native, String> {
    let handle = format!("{}*", set.prefix);
    let out = format!("{}**", set.prefix);
    let rest = function.name.strip_prefix(&format!("{}_", set.prefix)).unwrap_or_default();
    let parameters = function.parameters.as_slice();
    let (form, parameters, kotlin) = match parameters {
        [parameters @ .., last] if last.kind == out => {
            let name = rest.strip_prefix("new").unwrap_or(rest);
            (Form::Creates, parameters, camel(&format!("create{name}")))
        }
        [first] if first.kind == handle && rest == "free" => (Form::Frees, &[][..], camel(rest)),
        [first, parameters @ ..] if first.kind == handle => (Form::Changes, parameters, camel(rest)),
        _ => return Err(format!("{}: {ADVICE}", function.name)),
    };
    let arguments = arguments(&function.name, parameters, header)?;
    Ok(Native { c: function.name.clone(), kotlin, arguments, form })
}

const ADVICE: &str = "the parameters have no rule; add it to tests/src/wrappers/options.rs, or the function to the \
    table beside it as one that is converted by hand";

fn arguments(
    function: &str,
    mut parameters: &[Parameter],
    header: &Declarations,
) -> Result<Vec<Argument>, String> {
    let mut arguments = Vec::new();
    while let [first, rest @ ..] = parameters {
        let is_size = |one: &&Parameter| one.kind == "size_t";
        let (kind, taken) = match first.kind.as_str() {
            "bool" => (Kind::Bool, 1),
            "uint32_t" => (Kind::U32, 1),
            "uint64_t" => (Kind::U64, 1),
            "size_t" => (Kind::Size, 1),
            "float" => (Kind::F32, 1),
            "double" => (Kind::F64, 1),
            "const char*" if rest.first().is_some_and(|one| is_size(&one)) => (Kind::Text, 2),
            "const uint32_t*" if rest.first().is_some_and(|one| is_size(&one)) => (Kind::Ids, 2),
            kind if header.find_enum(kind).is_ok() => (Kind::Enum, 1),
            kind if kind.starts_with("const siskin_") && kind.ends_with('*') => (Kind::Handle, 1),
            _ => return Err(format!("{function}: parameter `{}`: {ADVICE}", first.name)),
        };
        let c = first.kind.trim_start_matches("const ").trim_end_matches('*').to_owned();
        arguments.push(Argument { name: first.name.clone(), kind, c });
        parameters = &parameters[taken..];
    }
    Ok(arguments)
}

/// Derives an option from a function with one argument.
fn plain(set: &OptionSet, function: &Function, native: &Native) -> Result<Plain, String> {
    let option = option_name(set, &function.name);
    let is_list = function.name.starts_with(&format!("{}_add_", set.prefix));
    let [argument] = native.arguments.as_slice() else {
        return Err(format!("{}: not one value; {ADVICE}", function.name));
    };
    let zero_is_default = function.docs.contains("0 (the default)");
    let value = match argument.kind {
        Kind::Text if is_list => Value::Texts,
        _ if is_list => return Err(format!("{}: not a list of texts; {ADVICE}", function.name)),
        Kind::Bool => Value::Bool,
        Kind::U32 | Kind::Size => Value::Count { is_long: false, zero_is_default },
        Kind::U64 if argument.name == "bytes" => Value::Count { is_long: true, zero_is_default },
        Kind::U64 => Value::Bits,
        Kind::F32 | Kind::F64 => Value::Float,
        Kind::Text => Value::Text,
        Kind::Ids => Value::Ids,
        Kind::Enum => Value::Enum(ENUMS.iter().find(|one| one.c == argument.c).ok_or_else(|| {
            format!("{}: {} has no names in tests/src/wrappers/table.rs", function.name, argument.c)
        })?),
        Kind::Handle if argument.c == "siskin_sampler" => {
            Value::Sampler { null_is_default: function.docs.contains("Null (the default)") }
        }
        Kind::Handle => return Err(format!("{}: {ADVICE}", function.name)),
    };
    let (name, docs) = match is_list {
        true => (camel(&format!("{option}s")), list_docs(option, function)?),
        false => (camel(option), setter_docs(function)),
    };
    Ok(Plain { function: function.name.clone(), kotlin: native.kotlin.clone(), name, value, docs })
}

/// Turns the documentation of a setter into that of a property.
fn setter_docs(function: &Function) -> String {
    let docs = function.docs.strip_prefix("Sets ").unwrap_or(&function.docs);
    let docs = docs
        .replace(". An empty string (the default) means ", ". Default: ")
        .replace(". 0 (the default) means ", ". Default: ")
        .replace(" Null (the default) means the default sampling options.", "");
    sentence(&docs.replace(", which are copied", ""))
}

/// Turns `Adds a stop string: …` into `Stop strings: …`.
fn list_docs(option: &str, function: &Function) -> Result<String, String> {
    let words = option.replace('_', " ");
    let rest = function.docs.strip_prefix(&format!("Adds a {words}: "));
    let rest = rest
        .ok_or_else(|| format!("{}: the documentation must begin with `Adds a {words}: `", function.name))?;
    Ok(sentence(&format!("{words}s: {rest}")))
}

/// Derives options from the constants of an enum.
fn number_options(function: &Function, numbers: &Enum, sources: &str) -> Result<Vec<Choice>, String> {
    let prefix = common_prefix(numbers);
    let option = |member: &super::declarations::Member| {
        let number = number_type(&member.name, sources)?;
        let docs = match number {
            Number::Flag => flag_docs(&member.docs).ok_or_else(|| {
                format!("{}: the documentation must be `Whether to … (0 or 1). Default 0.`", member.name)
            })?,
            _ => member.docs.clone(),
        };
        let name = camel(&member.name[prefix.len()..].to_lowercase());
        let value = Value::Number { constant: member.name.clone(), code: member.value, number };
        Ok(Choice::Plain(Plain {
            function: function.name.clone(),
            kotlin: "set".to_owned(),
            name,
            value,
            docs,
        }))
    };
    numbers.members.iter().map(option).collect()
}

/// Turns `Whether to translate (0 or 1). Default 0.` into `Whether to translate. Default: no.`
fn flag_docs(docs: &str) -> Option<String> {
    let docs = docs.strip_suffix(" (0 or 1). Default 0.").filter(|docs| docs.starts_with("Whether "))?;
    Some(format!("{docs}. Default: no."))
}

/// Returns the words that all constants of an enum begin with, and the `_` after them.
fn common_prefix(numbers: &Enum) -> String {
    let first = numbers.members.first().map_or("", |member| member.name.as_str());
    let is_common = |at: &usize| numbers.members.iter().all(|one| one.name.starts_with(&first[..=*at]));
    let ends: Vec<usize> = first.match_indices('_').map(|(at, _)| at).filter(is_common).collect();
    first[..ends.last().map_or(0, |at| at + 1)].to_owned()
}

/// Returns the type of a numeric option: its arm in `set` says how the double is converted.
fn number_type(constant: &str, sources: &str) -> Result<Number, String> {
    let arm = sources.split(&format!("{constant} => ")).nth(1);
    let end = |arm: &str| if arm.starts_with('{') { "}\n" } else { ",\n" };
    let arm = arm.and_then(|rest| rest.split(end(rest)).next()).unwrap_or_default();
    let conversions = [
        ("integer(", Number::Count),
        ("boolean(", Number::Flag),
        ("number(", Number::Float),
        ("value as f32", Number::Float),
    ];
    let found: Vec<_> = conversions.iter().filter(|(call, _)| arm.contains(call)).collect();
    match found.as_slice() {
        [(_, number)] => Ok(*number),
        _ => Err(format!("{constant}: its match arm in ffi/src converts its value in no known way: `{arm}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::SETS;
    use super::*;

    /// Derives the options of sessions from the declaration of one setter.
    fn derive(setter: &str) -> Result<Options, String> {
        let set = SETS.iter().find(|set| set.prefix == "siskin_session_options").unwrap();
        let window = "siskin_error *siskin_session_options_set_window(siskin_session_options *options, size_t recent, size_t sinks);";
        let header = Declarations::parse(&format!("{window}\n\n{setter}\n")).unwrap();
        Options::derive(set, &header, "")
    }

    #[test]
    fn a_setter_becomes_a_property() {
        let setter = "/// Sets the number of tokens. 0 (the default) means all.\nsiskin_error \
            *siskin_session_options_set_max_tokens(siskin_session_options *options, size_t tokens);";
        let options = derive(setter).unwrap();
        let Some(Choice::Plain(plain)) = options.choices.last() else { panic!("not a plain option") };
        assert_eq!(
            (plain.name.as_str(), plain.docs.as_str()),
            ("maxTokens", "The number of tokens. Default: all.")
        );
        assert!(matches!(plain.value, Value::Count { is_long: false, zero_is_default: true }));
    }

    #[test]
    fn unknown_shapes_are_rejected() {
        for arguments in
            ["siskin_progress_function function, void *user", "const char *text", "size_t a, size_t b"]
        {
            let setter = format!(
                "siskin_error *siskin_session_options_set_x(siskin_session_options *options, {arguments});"
            );
            let error = derive(&setter).err().unwrap_or_default();
            assert!(error.starts_with("siskin_session_options_set_x: "), "{arguments}: {error}");
        }
        let list = "/// Another beginning.\nsiskin_error *siskin_session_options_add_x(siskin_session_options *options, \
            const char *text, size_t length);";
        assert!(derive(list).err().unwrap_or_default().contains("must begin with `Adds a x: `"));
    }

    #[test]
    fn numbers_have_the_type_of_their_conversion() {
        let sources = "A => x = integer(\"value\", value)?,\nB => y = value as f32,\nC => z = value,\n";
        assert!(matches!(number_type("A", sources), Ok(Number::Count)));
        assert!(matches!(number_type("B", sources), Ok(Number::Float)));
        assert!(number_type("C", sources).is_err() && number_type("D", sources).is_err());
        assert_eq!(
            flag_docs("Whether to do it (0 or 1). Default 0.").as_deref(),
            Some("Whether to do it. Default: no.")
        );
    }
}
