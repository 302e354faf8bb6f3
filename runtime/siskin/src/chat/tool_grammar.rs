//! Grammars of tool calls, in Lark.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::{Error, Result};
use siskin_chat_template::tools::{
    CallKeys, CallSyntax, CallTags, NamedCall, ParameterType, Tool, ToolFormat, harmony_tokens as harmony,
    parameter_type,
};
use siskin_tokenizer::{EncodeOptions, Tokenizer};

/// Builds the grammar of calls.
pub(super) struct ToolGrammar<'t> {
    pub(super) format: &'static ToolFormat,
    pub(super) tokenizer: &'t Tokenizer,
    pub(super) tools: &'t [&'t Tool],
    /// Whether several calls may follow each other.
    pub(super) is_parallel: bool,
}

/// Where a grammar begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrammarStart {
    /// At the beginning of the response, with white space.
    Response,
    /// After this text, the beginning of a call.
    After(&'static str),
}

/// White space before what a response must be.
const SPACE: &str = r"/[ \t\n]{0,8}/";
/// The rule for the content of a message in JSON, for responses that are either calls or that.
pub(super) const CONTENT_RULE: &str = "content";

impl ToolGrammar<'_> {
    /// Fails if the arguments of a tool are not listed in its schema, and the format has an element for each.
    pub(super) fn check(&self, tool: &Tool) -> Result<()> {
        let lists = matches!(self.format.syntax, CallSyntax::Tagged(_) | CallSyntax::Gemma { .. });
        let schema: Value = serde_json::from_str(tool.parameters()).unwrap_or_default();
        let elsewhere = ["$ref", "anyOf", "oneOf", "allOf"].iter().find(|key| schema.get(**key).is_some());
        match elsewhere.filter(|_| lists && schema.get("properties").is_none()) {
            Some(key) => {
                let message = format!("`{key}` at the top is not supported by the format of the model");
                Err(Error::unsupported("parameters", message))
            }
            None => Ok(()),
        }
    }

    /// Returns the grammar. With `content`, a schema, the response may be JSON that is valid under it instead.
    pub(super) fn lark(&self, start: GrammarStart, content: Option<&str>) -> String {
        let mut text = String::new();
        let calls = self.calls(start, &mut text);
        let calls = match start {
            GrammarStart::Response if !self.format.is_harmony() => {
                format!("{SPACE} {calls}")
            }
            GrammarStart::Response | GrammarStart::After(_) => calls,
        };
        let start = match content {
            Some(schema) => {
                let _ = writeln!(text, "{CONTENT_RULE}: {}", json(schema));
                match self.format.syntax {
                    CallSyntax::Harmony => format!("({calls}) | {}", self.harmony_content(&mut text)),
                    _ => format!("({calls}) | {SPACE} {CONTENT_RULE}"),
                }
            }
            None => calls,
        };
        format!("start: {start}\n{text}")
    }

    /// Returns the grammar of a response in Harmony's format whose content is JSON that is valid under a schema.
    pub(super) fn harmony_json(&self, schema: &str) -> String {
        let mut rules = format!("{CONTENT_RULE}: {}\n", json(schema));
        let content = self.harmony_content(&mut rules);
        format!("start: {content}\n{rules}")
    }

    /// Returns an expression for the calls; appends the rules that it needs.
    fn calls(&self, start: GrammarStart, rules: &mut String) -> String {
        let format = self.format;
        // Without a delimiter, the first text is that of the call itself.
        let skipped = match start {
            GrammarStart::After(before) if format.trigger().is_empty() => before,
            _ => "",
        };
        let names: Vec<String> = (0..self.tools.len()).map(|index| format!("body_{index}")).collect();
        for (tool, name) in self.tools.iter().zip(&names) {
            let body = self.body(tool, skipped, name, rules);
            let _ = writeln!(rules, "{name}: {body}");
        }
        let _ = writeln!(rules, "body: {}", names.join(" | "));
        if format.is_harmony() {
            return self.harmony(start, rules);
        }
        let is_list = format.is_list();
        let (open, close) = if is_list { ("[", "]") } else { ("", "") };
        let begin = format!("{}{}{open}", format.section.begin, format.call.begin);
        let first = match start {
            GrammarStart::Response => begin.as_str(),
            GrammarStart::After(before) => begin.strip_prefix(before).unwrap_or(&begin),
        };
        let end = format!("{close}{}{}", format.call.end, format.section.end);
        let is_parallel = self.is_parallel && format.is_parallel;
        let between = match is_list {
            true => format.separator.to_owned(),
            false => format!("{}{}{}", format.call.end, format.separator, format.call.begin),
        };
        let more = if is_parallel { format!("({} body)*", self.literal(&between)) } else { String::new() };
        format!("{} body {more} {}", self.literal(first), self.literal(&end))
    }

    /// Returns what is between the delimiters of a call.
    fn body(&self, tool: &Tool, skipped: &str, rule: &str, rules: &mut String) -> String {
        let name = tool.name();
        match self.format.syntax {
            CallSyntax::Object(keys) | CallSyntax::List(keys) => {
                let CallKeys { name: name_key, arguments } = keys;
                let name = Value::from(name);
                let before = format!("{{\"{name_key}\": {name}, \"{arguments}\": ");
                let before = self.literal(before.strip_prefix(skipped).unwrap_or(&before));
                format!("{before} {} \"}}\"", json(tool.parameters()))
            }
            CallSyntax::Named(NamedCall { separator, number_marker, .. }) => {
                let number = match number_marker {
                    "" => String::new(),
                    marker => format!("{} /[0-9]{{1,4}}/", self.literal(marker)),
                };
                let (name, separator) = (self.literal(name), self.literal(separator));
                format!("{name} {number} {separator} {}", json(tool.parameters()))
            }
            CallSyntax::Tagged(tags) => self.tagged(tool, tags, rule, rules),
            CallSyntax::Gemma { quote } => {
                let schema = serde_json::from_str(tool.parameters()).unwrap_or_default();
                let quote = self.literal(quote);
                let arguments = GemmaGrammar { quote }.object(&schema, rule, rules);
                format!("{} {arguments}", self.literal(&format!("call:{name}")))
            }
            CallSyntax::Harmony => {
                let message = self.literal(harmony::MESSAGE);
                let (channel, constrain) = (self.literal(harmony::CHANNEL), self.literal(harmony::CONSTRAIN));
                let header = format!("/ [ a-z]*/? (({channel} | {constrain}) /[ a-z]+/?)*");
                format!("{} {header} {message} {}", self.literal(name), json(tool.parameters()))
            }
        }
    }

    fn harmony(&self, start: GrammarStart, rules: &mut String) -> String {
        if start != GrammarStart::Response {
            return "body".to_owned();
        }
        let analysis = self.harmony_analysis(rules);
        let channel = self.literal(harmony::CHANNEL);
        format!("{analysis} (\" \" | {channel} \"commentary \") \"to=functions.\" body")
    }

    /// Returns an expression for optional reasoning in Harmony's format; appends its rule.
    fn harmony_analysis(&self, rules: &mut String) -> &'static str {
        let marker = |text| self.literal(text);
        let (channel, message) = (marker(harmony::CHANNEL), marker(harmony::MESSAGE));
        let (end, begin) = (marker(harmony::END), marker(harmony::START));
        let is_special = end.starts_with('<');
        let text = match is_special {
            true => format!("/(.|\\n)*/ {end}"),
            false => {
                let _ = writeln!(rules, "analysis_text: /[^<]*{}/", regex(harmony::END));
                "analysis_text".to_owned()
            }
        };
        let _ = writeln!(rules, "analysis: {channel} \"analysis\" {message} {text} {begin} \"assistant\"");
        "analysis?"
    }

    /// Returns an expression for the last message of a response in Harmony's format, JSON that is valid under a schema.
    fn harmony_content(&self, rules: &mut String) -> String {
        let analysis = self.harmony_analysis(rules);
        let (channel, message) = (self.literal(harmony::CHANNEL), self.literal(harmony::MESSAGE));
        format!("{analysis} {channel} \"final\" (\" \" /[ a-z]+/)? {message} {CONTENT_RULE}")
    }

    /// Returns the elements of a call's arguments, in the order of the schema's properties.
    fn tagged(&self, tool: &Tool, tags: CallTags, rule: &str, rules: &mut String) -> String {
        let schema: Value = serde_json::from_str(tool.parameters()).unwrap_or_default();
        let required = required(&schema);
        let mut body = self.literal(&format!("{}{}{}", tags.name.begin, tool.name(), tags.name.end));
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (index, (key, property)) in properties.enumerate() {
            let [key_begin, key_end, value_begin] =
                [tags.key.begin, tags.key.end, tags.value.begin].map(|text| self.literal(text));
            let begin = format!("{key_begin} {} {key_end} {value_begin}", quoted(key));
            let value = format!("{rule}_value_{index}");
            let end = match parameter_type(property) {
                ParameterType::Text if property["enum"].is_array() => {
                    let texts = property["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
                    let texts: Vec<String> = texts.map(quoted).collect();
                    let _ = writeln!(rules, "{value}: {}", texts.join(" | "));
                    self.literal(tags.value.end)
                }
                ParameterType::Text => {
                    let end = regex(tags.value.end);
                    let _ = writeln!(rules, "{value}[lazy]: /(.|\\n)*{end}/");
                    String::new()
                }
                ParameterType::Json => {
                    let _ = writeln!(
                        rules,
                        "{value}: {}",
                        json(&with_definitions(property, &schema).to_string())
                    );
                    self.literal(tags.value.end)
                }
            };
            let optional = if required.contains(key.as_str()) { "" } else { "?" };
            let _ = write!(body, " ({begin} {value} {end}){optional}");
        }
        format!("{body} {}", self.literal(tags.end))
    }

    /// Returns an expression for a text in which special tokens are recognized.
    fn literal(&self, text: &str) -> String {
        let options = EncodeOptions { add_special: false, parse_special: true };
        let tokens = self.tokenizer.encode(text, options).unwrap_or_default();
        let special = tokens.into_iter().filter(|&id| self.tokenizer.is_special(id));
        let (mut parts, mut rest) = (Vec::new(), text);
        for id in special {
            let token = self.tokenizer.token_text(id).ok().and_then(|text| std::str::from_utf8(text).ok());
            if let Some((before, after)) = token.and_then(|token| rest.split_once(token)) {
                parts.extend((!before.is_empty()).then(|| Value::from(before).to_string()));
                parts.push(format!("<[{id}]>"));
                rest = after;
            }
        }
        parts.extend((!rest.is_empty()).then(|| Value::from(rest).to_string()));
        if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") }
    }
}

/// The values of Gemma's calls: like JSON, but for strings, which are between special tokens, and keys, which have no
/// quotes.
struct GemmaGrammar {
    /// An expression for the delimiter of strings.
    quote: String,
}

impl GemmaGrammar {
    /// Returns an expression for an object with the properties of a schema, sorted as the template sorts them; appends its
    /// rules, whose names begin with `name`.
    fn object(&self, schema: &Value, name: &str, rules: &mut String) -> String {
        let required = required(schema);
        let mut properties: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
        properties.sort_by_key(|(key, _)| key.as_str());
        // The properties from one on, if others came before it and if not.
        let count = properties.len();
        let _ = writeln!(rules, "{name}_first_{count}: \"\"\n{name}_more_{count}: \"\"");
        for (index, (key, property)) in properties.iter().enumerate() {
            let value = self.value(property, &format!("{name}_{index}"), rules);
            let (key_text, next) = (quoted(&format!("{key}:")), index + 1);
            for (kind, separator) in [("first", ""), ("more", "\",\"")] {
                let skip = match required.contains(key.as_str()) {
                    true => String::new(),
                    false => format!(" | {name}_{kind}_{next}"),
                };
                let _ = writeln!(
                    rules,
                    "{name}_{kind}_{index}: {separator} {key_text} {value} {name}_more_{next}{skip}"
                );
            }
        }
        format!("\"{{\" {name}_first_0 \"}}\"")
    }

    fn value(&self, schema: &Value, name: &str, rules: &mut String) -> String {
        let texts: Option<Vec<&str>> =
            schema["enum"].as_array().and_then(|values| values.iter().map(Value::as_str).collect());
        if let Some(texts) = texts {
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            return format!("{} ({}) {}", self.quote, texts.join(" | "), self.quote);
        }
        match schema["type"].as_str() {
            Some("string") => self.string(rules),
            Some("integer" | "number" | "boolean" | "null") => json(&schema.to_string()),
            Some("object") if schema["properties"].is_object() => self.object(schema, name, rules),
            Some("array") if schema["items"].is_object() => {
                let item = self.value(&schema["items"], &format!("{name}_item"), rules);
                // A rule of its own, since it occurs twice.
                let _ = writeln!(rules, "{name}_items: {item}");
                format!("\"[\" ({name}_items (\",\" {name}_items)*)? \"]\"")
            }
            _ => self.any(rules),
        }
    }

    /// Returns the rule for strings.
    fn string(&self, rules: &mut String) -> String {
        const NAME: &str = "gemma_string";
        if !rules.contains("gemma_string: ") {
            let quote = &self.quote;
            let text = match quote.starts_with('<') {
                true => format!("/(.|\\n)*/ {quote}"),
                false => {
                    let end = regex(quote.trim_matches('"').replace("\\\"", "\"").as_str());
                    let _ = writeln!(rules, "gemma_text[lazy]: /(.|\\n)*{end}/");
                    "gemma_text".to_owned()
                }
            };
            let _ = writeln!(rules, "{NAME}: {quote} {text}");
        }
        NAME.to_owned()
    }

    /// Returns the rule for any value.
    fn any(&self, rules: &mut String) -> String {
        const NAME: &str = "gemma_value";
        if !rules.contains("gemma_value: ") {
            let string = self.string(rules);
            let number = json(r#"{"type": ["number", "boolean", "null"]}"#);
            let _ = writeln!(
                rules,
                "{NAME}: {string} | {number} | \"[\" ({NAME} (\",\" {NAME})*)? \"]\" \
                 | \"{{\" (gemma_pair (\",\" gemma_pair)*)? \"}}\"\n\
                 gemma_pair: /[A-Za-z_][A-Za-z0-9_]*/ \":\" {NAME}"
            );
        }
        NAME.to_owned()
    }
}

/// Returns a grammar for JSON that is valid under a schema, after white space.
pub(super) fn json_after_space(schema: &str) -> String {
    format!("start: {SPACE} {CONTENT_RULE}\n{CONTENT_RULE}: {}\n", json(schema))
}

fn json(schema: &str) -> String {
    let bounded = crate::constraint::bounded_schema(schema);
    format!("%json {}", bounded.as_deref().unwrap_or(schema))
}

/// Returns an expression for a text in which nothing has a meaning.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns the names of the properties that a schema requires.
fn required(schema: &Value) -> HashSet<&str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the schema of a property with the definitions of the whole schema, which it may refer to.
fn with_definitions(property: &Value, schema: &Value) -> Value {
    let mut property = property.clone();
    for key in ["$defs", "definitions"] {
        if let (Some(fields), Some(definitions)) = (property.as_object_mut(), schema.get(key)) {
            fields.entry(key).or_insert_with(|| definitions.clone());
        }
    }
    property
}

/// Returns a regular expression that matches a text.
fn regex(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => escaped.push_str("\\n"),
            letter if r"\.+*?()|[]{}^$/#&-~".contains(letter) => escaped.extend(['\\', letter]),
            letter => escaped.push(letter),
        }
    }
    escaped
}
