//! Responses in every format, split at every position.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::call_parser::parameter_types;
use super::reasoning::ReasoningTags;
use super::response_parser::ResponseParser;
use super::template_traits::TemplateTraits;
use super::tool_format::{ToolFormat, detect};
use crate::ChatTemplate;
use crate::response_event::ResponseEvent;

const SCHEMA: &str = r#"{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
    "tags": {"type": "array"}}}"#;

/// A response in parts.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    reasoning: String,
    content: String,
    calls: Vec<(String, Option<String>, String)>,
}

fn parser(format: Option<&str>, is_reasoning: bool) -> ResponseParser {
    let format = format.map(|name| ToolFormat::named(name).expect("a format"));
    let types = parameter_types([("get_weather", SCHEMA)].into_iter());
    ResponseParser::new(format, types, ReasoningTags::before("<think>"), is_reasoning)
}

fn parts(mut parser: ResponseParser, texts: &[&str]) -> Parts {
    let mut parts = Parts::default();
    let mut events: Vec<ResponseEvent> = texts.iter().flat_map(|text| parser.push(text)).collect();
    events.extend(parser.finish());
    for event in events {
        match event {
            ResponseEvent::Reasoning(text) => parts.reasoning += &text,
            ResponseEvent::Content(text) => parts.content += &text,
            ResponseEvent::ToolCall { index, id, name } => {
                assert_eq!(index, parts.calls.len());
                parts.calls.push((name, id, String::new()));
            }
            ResponseEvent::ToolArguments { index, text } => {
                assert_eq!(index + 1, parts.calls.len());
                parts.calls[index].2 += &text;
            }
        }
    }
    parts
}

/// Parses a text whole, by characters, and in two parts; all have the same result.
fn parsed(format: Option<&str>, is_reasoning: bool, text: &str) -> Parts {
    let whole = parts(parser(format, is_reasoning), &[text]);
    let characters: Vec<&str> = text.split("").filter(|part| !part.is_empty()).collect();
    assert_eq!(parts(parser(format, is_reasoning), &characters), whole, "{format:?}: {text:?} by characters");
    for (at, _) in text.char_indices() {
        let split = [&text[..at], &text[at..]];
        assert_eq!(parts(parser(format, is_reasoning), &split), whole, "{format:?}: {split:?}");
    }
    whole
}

/// One call with text before it, and two calls, in every format; the arguments as they are written there.
const CALLS: [(&str, &str, &str); 15] = [
    (
        "hermes",
        "Hm.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\":  \"Pa\\\"}ris\", \"days\": 2}}\n</tool_call>",
        "Hm.",
    ),
    (
        "qwen_xml",
        "Hm.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nPa\"}ris\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        "Hm.",
    ),
    (
        "glm",
        "Hm.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Pa\"}ris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        "Hm.",
    ),
    (
        "glm_compact",
        "Hm.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Pa\"}ris</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>",
        "Hm.",
    ),
    ("mistral_named", "Hm.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Pa\\\"}ris\", \"days\": 2}", "Hm."),
    (
        "mistral",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa\\\"}ris\", \"days\": 2}, \"id\": \"abcdefghi\"}]",
        "",
    ),
    (
        "gemma",
        "Hm.<start_function_call>call:get_weather{city:<escape>Pa\"}ris<escape>,days:2}<end_function_call>",
        "Hm.",
    ),
    ("gemma4", "<|tool_call>call:get_weather{city:<|\"|>Pa\"}ris<|\"|>,days:2}<tool_call|>", ""),
    (
        "phi",
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa\\\"}ris\", \"days\": 2}}]<|/tool_call|>",
        "",
    ),
    (
        "deepseek",
        "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Pa\\\"}ris\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Hm.",
    ),
    (
        "kimi",
        "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Pa\\\"}ris\", \"days\": 2}<|tool_call_end|><|tool_calls_section_end|>",
        "Hm.",
    ),
    (
        "nemotron",
        "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa\\\"}ris\", \"days\": 2}}]</TOOLCALL>",
        "",
    ),
    (
        "apriel",
        "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa\\\"}ris\", \"days\": 2}, \"id\": 7}]</tool_calls>",
        "",
    ),
    (
        "llama3",
        "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Pa\\\"}ris\", \"days\": 2}}",
        "",
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Think <b>.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Pa\\\"}ris\", \"days\": 2}",
        "",
    ),
];

#[test]
fn calls_are_found_in_every_format() {
    for (format, text, content) in CALLS {
        let found = parsed(Some(format), false, text);
        let [(name, _, arguments)] = found.calls.as_slice() else { panic!("{format}: {found:?}") };
        assert_eq!((name.as_str(), found.content.as_str()), ("get_weather", content), "{format}");
        let arguments: Value =
            serde_json::from_str(arguments).unwrap_or_else(|_| panic!("{format}: {arguments}"));
        assert_eq!(arguments, json!({"city": "Pa\"}ris", "days": 2}), "{format}");
        assert_eq!(found.reasoning, if format == "harmony" { "Think <b>." } else { "" });
    }
}

#[test]
fn several_calls_have_their_ids_and_arguments() {
    let two = |begin: &str, end: &str, between: &str, call: fn(&str) -> String| {
        format!("{begin}{}{between}{}{end}", call("1"), call("2"))
    };
    let object = |number: &str| format!("{{\"name\": \"f{number}\", \"arguments\": {{\"a\": {number}}}}}");
    let named = |number: &str| format!("f{number}[CALL_ID]id{number}[ARGS]{{\"a\": {number}}}");
    let cases = [
        ("hermes", two("<tool_call>\n", "\n</tool_call>", "\n</tool_call>\n<tool_call>\n", object)),
        ("hermes", two("<tool_call>", "</tool_call>\n", "</tool_call><tool_call>", object)),
        ("mistral", two("[TOOL_CALLS][", "]", ", ", object)),
        ("mistral_named", two("[TOOL_CALLS]", "", "[TOOL_CALLS]", named)),
        (
            "gemma",
            two(
                "<start_function_call>",
                "<end_function_call>",
                "<end_function_call><start_function_call>",
                |number| format!("call:f{number}{{a:{number}}}"),
            ),
        ),
        (
            "qwen_xml",
            two("<tool_call>\n", "\n</tool_call>", "\n</tool_call>\n<tool_call>\n", |number| {
                format!("<function=f{number}>\n<parameter=a>\n{number}\n</parameter>\n</function>")
            }),
        ),
    ];
    for (format, text) in cases {
        let found = parsed(Some(format), false, &text);
        let names: Vec<&str> = found.calls.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!((names, found.content.as_str()), (vec!["f1", "f2"], ""), "{format}: {text}");
        assert_eq!(found.calls[1].2, "{\"a\": 2}", "{format}");
        if format == "mistral_named" {
            assert_eq!(found.calls[1].1.as_deref(), Some("id2"));
        }
    }
}

#[test]
fn arguments_are_verbatim() {
    for (arguments, want) in [
        ("{}", "{}"),
        ("{ \"a\" : [1,  {\"b\": null}] }", "{ \"a\" : [1,  {\"b\": null}] }"),
        ("\"{\\\"a\\\": 1}\"", "{\"a\": 1}"),
        ("null", "null"),
    ] {
        let text = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {arguments}}}</tool_call>");
        assert_eq!(parsed(Some("hermes"), false, &text).calls[0].2, want);
        let text = format!("<tool_call>{{\"arguments\": {arguments}, \"name\": \"f\"}}</tool_call>");
        assert_eq!(parsed(Some("hermes"), false, &text).calls[0].2, want);
    }
    let without = parsed(Some("hermes"), false, "<tool_call>{\"name\": \"f\"}</tool_call>");
    assert_eq!(without.calls, [("f".to_owned(), None, "{}".to_owned())]);
    let empty = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
    assert_eq!(parsed(Some("qwen_xml"), false, empty).calls[0].2, "{}");
    // A string stays a string, also if it looks like a number.
    let text = "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=tags>\n[\"a\"]\n\
                </parameter>\n<parameter=other>\nx <y>\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(
        parsed(Some("qwen_xml"), false, text).calls[0].2,
        "{\"city\": \"12\", \"tags\": [\"a\"], \"other\": \"x <y>\"}"
    );
}

#[test]
fn what_is_no_call_is_content() {
    for (format, text) in [
        ("hermes", "a < b, <tool> and <tool_cal"),
        ("hermes", "<tool_call>\nnot JSON</tool_call> more"),
        ("hermes", "<tool_call>"),
        ("hermes", "<tool_call>{"),
        ("hermes", "<tool_call>\n{\"x\": 1"),
        ("kimi", "<|tool_calls_section_begin|> hello"),
        ("glm", "<tool_call> is the tag GLM uses"),
        ("llama3", "{\"name\": \"Bob\", \"age\": 3}"),
        ("hermes", "<tool_call>\n{\"name\": 5}\n</tool_call>"),
        ("hermes", "<tool_call>\n{\"nam"),
        ("mistral_named", "[TOOL_CALLS]no arguments"),
        ("mistral", "[TOOL_CALLS]{\"a\": 1}"),
        ("qwen_xml", "<tool_call>\n<parameter=a>\n</tool_call>"),
        ("gemma", "<start_function_call>call me"),
        ("llama3", "{not a call}"),
        ("llama3", "A text with {\"name\": 1}"),
        ("harmony", "plain text"),
        ("hermes", "ends with space \n"),
    ] {
        let found = parsed(Some(format), false, text);
        assert_eq!((found.content.as_str(), found.calls.len()), (text, 0), "{format}");
    }
    let cut = parsed(Some("hermes"), false, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x");
    assert_eq!(cut.calls, [("f".to_owned(), None, "{\"a\": \"x".to_owned())]);
    assert_eq!(cut.content, "");
}

#[test]
fn reasoning_is_apart_from_content() {
    for (text, is_reasoning, reasoning, content) in [
        ("<think>\nI </thin\n</think>\n\nYes. ", false, "I </thin", "Yes. "),
        ("\n<think>I</think>Yes", false, "I", "Yes"),
        ("I\n\nam</think>\nYes", true, "I\n\nam", "Yes"),
        ("<think></think>Yes", false, "", "Yes"),
        ("<thin air", false, "", "<thin air"),
        ("Yes <think>no</think>", false, "", "Yes <think>no</think>"),
        ("I am cut", true, "I am cut", ""),
    ] {
        let found = parsed(None, is_reasoning, text);
        assert_eq!((found.reasoning.as_str(), found.content.as_str()), (reasoning, content), "{text:?}");
    }
    let both = "<think>a <tool_call> b</think>\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let found = parsed(Some("hermes"), false, both);
    assert_eq!(
        (found.reasoning.as_str(), found.content.as_str(), found.calls.len()),
        ("a <tool_call> b", "", 1)
    );
    let harmony = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b < c";
    let found = parsed(Some("harmony"), false, harmony);
    assert_eq!((found.reasoning.as_str(), found.content.as_str()), ("a", "b < c"));
}

#[test]
fn formats_are_detected() {
    for (call, want) in [
        ("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", Some("hermes")),
        ("<tool_call>\n<function=f>\n<parameter=a>", Some("qwen_xml")),
        ("[TOOL_CALLS]f[ARGS]{}", Some("mistral_named")),
        ("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", Some("mistral")),
        ("{\"name\": \"f\", \"parameters\": {}}", Some("llama3")),
        ("assistant to=functions.f<|channel|>commentary json<|message|>{}", Some("harmony")),
        ("Action: f", None),
    ] {
        assert_eq!(detect(call).map(|format| format.name), want, "{call}");
    }
}

#[test]
fn templates_have_their_formats() {
    for (file, format, reasoning, has_system_role) in [
        ("qwen2.5", Some("hermes"), false, true),
        ("qwen3", Some("hermes"), true, true),
        ("qwen-xml", Some("qwen_xml"), false, true),
        ("llama3-tools", Some("llama3"), false, true),
        ("mistral-v3", Some("mistral"), false, true),
        ("mistral-named", Some("mistral_named"), false, true),
        ("gemma-calls", Some("gemma"), false, true),
        ("phi-calls", Some("phi"), false, true),
        ("harmony", Some("harmony"), false, true),
        ("gemma2", None, false, false),
        ("smollm2", None, false, true),
    ] {
        let path = format!("{}/../../tests/data/templates/{file}.jinja", env!("CARGO_MANIFEST_DIR"));
        let template = ChatTemplate::new(&std::fs::read_to_string(path).unwrap()).unwrap();
        let traits = TemplateTraits::of(&template);
        assert_eq!(traits.format.map(|format| format.name), format, "{file}");
        assert_eq!(
            (traits.reasoning.is_some(), traits.has_system_role),
            (reasoning, has_system_role),
            "{file}"
        );
        assert_eq!(traits.has_system_tools, file == "phi-calls", "{file}");
    }
    let parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
    assert!(TemplateTraits::of(&ChatTemplate::new(parts).unwrap()).style.content_parts);
    let text = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\
                {\"arguments\": ' + c.function.arguments + '}{{ c.function.arguments + '' }}{% endfor %}{% endfor %}";
    assert!(TemplateTraits::of(&ChatTemplate::new(text).unwrap()).style.arguments_as_text);
}

#[test]
fn what_follows_a_call_is_content() {
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let found = parsed(Some("hermes"), false, &format!("{call}, and more"));
    assert_eq!((found.content.as_str(), found.calls.len()), (", and more", 1));
    let found = parsed(Some("hermes"), false, &format!("a <tool_call> b {call}"));
    assert_eq!((found.content.as_str(), found.calls.len()), ("a <tool_call> b", 1));
    // What is left of a call that was cut or is wrong is no content of its own.
    let cut = parsed(Some("qwen_xml"), false, "<tool_call>\n<function=f>\n<parameter=city>\nPari");
    assert_eq!((cut.content.as_str(), cut.calls.len()), ("", 1));
    for text in
        ["<|channel|>analysis", "<|channel|>final<|message|>a<|end|><|start|>assistant to=functions.f"]
    {
        assert!(!parsed(Some("harmony"), false, text).content.contains('<'), "{text}");
    }
}

/// Random texts of the parts of calls have the same parts however they are split.
#[test]
fn random_texts_do_not_depend_on_their_splits() {
    let mut state = 7_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit
    };
    let common = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        " ",
        "\n",
        "f",
        "é",
        "get_weather",
        "{\"name\": \"f\", \"arguments\": ",
        "{\"a\": 1}",
        "<",
        "call:f{",
        "a:1",
        "<think>",
        "</think>",
        "\\",
    ];
    for (name, ..) in CALLS {
        let format = ToolFormat::named(name).unwrap();
        let mut pieces = common.to_vec();
        pieces.extend(format.delimiters());
        pieces.extend(format.delimiters());
        for _ in 0..400 {
            let text: String = (0..2 + below(14)).map(|_| pieces[below(pieces.len())]).collect();
            let is_reasoning = below(4) == 0;
            let whole = parts(parser(Some(name), is_reasoning), &[&text]);
            let characters: Vec<&str> = text.split("").filter(|part| !part.is_empty()).collect();
            assert_eq!(parts(parser(Some(name), is_reasoning), &characters), whole, "{name}: {text:?}");
            let at = text.char_indices().nth(below(text.chars().count())).map_or(0, |(at, _)| at);
            let split = [&text[..at], &text[at..]];
            assert_eq!(parts(parser(Some(name), is_reasoning), &split), whole, "{name}: {split:?}");
        }
    }
}

/// The time of a long call that comes token by token grows with its length.
#[test]
fn long_calls_are_parsed_in_linear_time() {
    let start = Instant::now();
    let long = "1,".repeat(40_000);
    for (format, begin) in [
        ("gemma", "<start_function_call>call:f{a:["),
        ("qwen_xml", "<tool_call>\n<function=f>\n<parameter=city>\n"),
        ("qwen_xml", "<tool_call>\n<function="),
        ("hermes", "<tool_call>{\""),
        ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ["),
        ("mistral_named", "[TOOL_CALLS]"),
    ] {
        let mut parser = parser(Some(format), false);
        parser.push(begin);
        (0..long.len() / 2).for_each(|index| drop(parser.push(&long[2 * index..2 * index + 2])));
        parser.finish();
    }
    for is_reasoning in [false, true] {
        let mut parser = parser(Some("hermes"), is_reasoning);
        (0..80_000).for_each(|_| drop(parser.push("\n")));
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
