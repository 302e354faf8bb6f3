//! What the grammars of tool calls allow is what the parsers read.

#![cfg(feature = "grammar")]

use std::sync::Arc;

use serde_json::Value;
use siskin_format::file::Bytes;
use siskin_tokenizer::{EncodeOptions, ModelKind, TokenKind, Tokenizer, Vocabulary, VocabularyToken};

use super::{ChatOptions, ConstraintSource, ResponseEvent, ResponseParser, Tool, ToolChoice};
use crate::constraint::{ConstraintCompiler, StructuredOutput, TokenMask};
use siskin_chat_template::tools::{CallSyntax, ReasoningTags, ToolFormat, parameter_types};

const FORMATS: [&str; 15] = [
    "harmony",
    "qwen_xml",
    "glm",
    "glm_compact",
    "hermes",
    "mistral_named",
    "mistral",
    "gemma",
    "gemma4",
    "phi",
    "deepseek",
    "kimi",
    "nemotron",
    "apriel",
    "llama3",
];

/// The kinds of tokens that delimiters can be; `None`: they are text.
const KINDS: [Option<TokenKind>; 3] = [None, Some(TokenKind::Control), Some(TokenKind::UserDefined)];
const SPECIAL: [Option<TokenKind>; 1] = [Some(TokenKind::Control)];

/// Bytes, an end token, and the delimiters of a format as special tokens or as ordinary ones.
fn tokenizer(format: &ToolFormat, kind: Option<TokenKind>) -> Arc<Tokenizer> {
    let bytes = (0..=255_u8).map(|byte| VocabularyToken::new(vec![byte], TokenKind::Normal));
    let mut tokens: Vec<_> = bytes.chain([VocabularyToken::new("<|im_end|>", TokenKind::Control)]).collect();
    if let Some(kind) = kind {
        let mut texts = format.delimiters();
        texts.extend(["<think>", "</think>"]);
        texts.sort_unstable();
        texts.dedup();
        tokens.extend(
            texts.iter().filter(|text| text.trim().len() > 2).map(|text| VocabularyToken::new(*text, kind)),
        );
    }
    let mut vocabulary = Vocabulary::new(ModelKind::Bpe, tokens);
    vocabulary.byte_level = true;
    vocabulary.ends = vec![256];
    Arc::new(Tokenizer::open(Bytes::new(vocabulary.write().unwrap())).unwrap())
}

fn tools() -> Vec<Tool> {
    let schema = r#"{"type": "object", "properties": {"city": {"enum": ["Paris", "Bern"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 99}, "deep": {"type": "object",
        "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": false}},
        "required": ["city"], "additionalProperties": false}"#;
    vec![
        Tool::new("get_weather", "Returns the weather.", schema).unwrap(),
        Tool::new("stop", "", r#"{"type": "object", "properties": {}, "additionalProperties": false}"#)
            .unwrap(),
    ]
}

/// A pseudorandom number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// Generates a random text that begins with `start` and that a constraint allows.
fn walk(
    output: &StructuredOutput,
    tokenizer: &Arc<Tokenizer>,
    start: &str,
    random: &mut Random,
) -> Option<String> {
    let count = tokenizer.vocabulary_size() as usize;
    let mut constraint = ConstraintCompiler::default().compile(output, tokenizer, count).unwrap();
    let mut mask = TokenMask::new(count);
    let (mut text, mut is_over, mut forced) = (Vec::new(), false, Vec::new());
    let options = EncodeOptions { add_special: false, parse_special: true };
    let mut next = tokenizer.encode(start, options).unwrap().into_iter();
    for step in 0..800 {
        if constraint.is_complete().unwrap() {
            is_over = true;
            break;
        }
        mask.clear();
        constraint.mask(&mut mask).unwrap();
        let allowed: Vec<u32> = (0..count as u32).filter(|&id| mask.allows(id)).collect();
        // The mask and the check of single tokens agree.
        if step % 61 == 0 {
            for id in 0..count as u32 {
                assert_eq!(constraint.allows(id).unwrap(), mask.allows(id), "{id} after {text:?}");
            }
        }
        if forced.is_empty() && random.below(2) == 0 {
            constraint.forced(&mut forced).unwrap();
            forced.reverse();
        }
        let end = allowed.contains(&256) && random.below(2) == 0;
        let id = match next.next() {
            Some(id) => id,
            None if !forced.is_empty() => forced.pop().unwrap(),
            None if end => 256,
            None => allowed[random.below(allowed.len())],
        };
        assert!(mask.allows(id), "{id} after {:?}", String::from_utf8_lossy(&text));
        if id == 256 {
            is_over = true;
            break;
        }
        constraint.accept(id).unwrap();
        tokenizer.piece_into(id, true, &mut text).unwrap();
    }
    is_over.then(|| String::from_utf8_lossy(&text).into_owned())
}

fn calls(format: &'static ToolFormat, options: &ChatOptions, text: &str) -> Vec<(String, Value)> {
    let types = options.tools.iter().map(|tool| (tool.name(), tool.parameters()));
    let tags = ReasoningTags::before("<think>");
    let mut parser = ResponseParser::new(Some(format), parameter_types(types), tags, false);
    let mut events = parser.push(text);
    events.extend(parser.finish());
    let mut calls: Vec<(String, String)> = Vec::new();
    for event in events {
        match event {
            ResponseEvent::ToolCall { name, .. } => calls.push((name, String::new())),
            ResponseEvent::ToolArguments { text, .. } => calls.last_mut().unwrap().1 += &text,
            ResponseEvent::Reasoning(_) | ResponseEvent::Content(_) => {}
        }
    }
    let parsed = |(name, arguments): (String, String)| {
        let value = serde_json::from_str(&arguments).unwrap_or_else(|_| panic!("{arguments} in {text}"));
        (name, value)
    };
    calls.into_iter().map(parsed).collect()
}

fn check(name: &str, found: &[(String, Value)], text: &str) {
    for (tool, arguments) in found {
        let arguments = arguments.as_object().unwrap_or_else(|| panic!("{name}: {text}"));
        match tool.as_str() {
            "stop" => assert!(arguments.is_empty(), "{name}: {text}"),
            "get_weather" => {
                assert!(["Paris", "Bern"].contains(&arguments["city"].as_str().unwrap()), "{name}: {text}");
                assert!(
                    arguments.get("days").is_none_or(|days| days.as_u64().is_some_and(|days| days < 100))
                );
                assert!(arguments.get("deep").is_none_or(|deep| deep["on"].is_boolean()), "{name}: {text}");
            }
            other => panic!("{name}: {other} in {text}"),
        }
    }
}

/// Generates texts for options in every format, with its delimiters as tokens of these kinds or as text, and checks the
/// calls in them.
fn generated(
    options: &ChatOptions,
    reasoning: Option<ReasoningTags>,
    kinds: &[Option<TokenKind>],
    start: fn(&ToolFormat) -> String,
) {
    for name in FORMATS {
        let format = ToolFormat::named(name).unwrap();
        // Has no tags around reasoning.
        if reasoning.is_some() && matches!(format.syntax, CallSyntax::Harmony) {
            continue;
        }
        for (seed, kind) in kinds.iter().enumerate() {
            let tokenizer = tokenizer(format, *kind);
            let source = ConstraintSource { tokenizer: &tokenizer, compile: &|_| Ok(()) };
            let output = options.output(&source, Some(format), (reasoning, false)).unwrap().unwrap();
            let mut random = Random(seed as u64 + 7);
            let mut finished = 0;
            for _ in 0..4 {
                if finished > 0 {
                    break;
                }
                let Some(text) = walk(&output, &tokenizer, &start(format), &mut random) else { continue };
                let found = calls(format, options, &text);
                assert!(!found.is_empty(), "{name}: no call in {text:?}");
                assert!(options.parallel_tool_calls || found.len() == 1, "{name}: {text:?}");
                check(name, &found, &text);
                finished += 1;
            }
            assert!(finished > 0, "{name}: all were cut");
        }
    }
}

#[test]
fn required_calls_are_valid() {
    for parallel_tool_calls in [false, true] {
        let tool_choice = ToolChoice::Required;
        let options =
            ChatOptions { tools: tools(), tool_choice, parallel_tool_calls, ..ChatOptions::default() };
        generated(&options, None, if parallel_tool_calls { &SPECIAL } else { &KINDS }, |_| String::new());
    }
    let named = ToolChoice::Named("stop".to_owned());
    let options = ChatOptions { tools: tools(), tool_choice: named, ..ChatOptions::default() };
    generated(&options, None, &SPECIAL, |_| String::new());
}

#[test]
fn triggered_calls_are_valid() {
    for parallel_tool_calls in [false, true] {
        let options = ChatOptions { tools: tools(), parallel_tool_calls, ..ChatOptions::default() };
        generated(&options, None, if parallel_tool_calls { &SPECIAL } else { &KINDS }, |format| match format
            .trigger()
        {
            "" => super::WHOLE_TRIGGER.to_owned(),
            trigger if format.name == "harmony" => format!("<|channel|>commentary {trigger}"),
            trigger => format!("I will call.\n{trigger}"),
        });
    }
}

#[test]
fn calls_follow_reasoning() {
    let tool_choice = ToolChoice::Required;
    let options = ChatOptions { tools: tools(), tool_choice, ..ChatOptions::default() };
    let tags = ReasoningTags::before("<think>");
    generated(&options, tags, &SPECIAL, |_| "<think>a <b></think>".to_owned());
    generated(&options, tags, &SPECIAL, |_| String::new());
}

#[test]
fn reasoning_ends_with_its_budget() {
    let format = ToolFormat::named("hermes").unwrap();
    for kind in [None, Some(TokenKind::Control)] {
        let tokenizer = tokenizer(format, kind);
        let source = ConstraintSource { tokenizer: &tokenizer, compile: &|_| Ok(()) };
        for (budget, output) in
            [(0, None), (5, None), (5, Some(StructuredOutput::Regex("[ab]{3}".to_owned())))]
        {
            let is_free = output.is_none();
            let options = ChatOptions {
                reasoning_budget: Some(budget),
                structured_output: output,
                ..ChatOptions::default()
            };
            let tags = ReasoningTags::before("<think>");
            let output = options.output(&source, None, (tags, true)).unwrap().unwrap();
            let text = walk(&output, &tokenizer, "", &mut Random(3)).unwrap();
            let (thought, rest) = text.split_once("</think>").unwrap_or((&text, ""));
            assert!(thought.chars().count() <= budget, "{text:?}");
            assert!(
                is_free || rest.len() == 3 && rest.chars().all(|letter| "ab".contains(letter)),
                "{text:?}"
            );
        }
    }
}

#[test]
fn content_or_calls_are_valid() {
    let schema = r#"{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}"#;
    let structured_output = Some(StructuredOutput::JsonSchema(schema.to_owned()));
    let options = ChatOptions { tools: tools(), structured_output, ..ChatOptions::default() };
    let format = ToolFormat::named("hermes").unwrap();
    let tokenizer = tokenizer(format, None);
    let source = ConstraintSource { tokenizer: &tokenizer, compile: &|_| Ok(()) };
    let output = options.output(&source, Some(format), (None, false)).unwrap().unwrap();
    let content = walk(&output, &tokenizer, "{", &mut Random(5)).unwrap();
    assert!(serde_json::from_str::<Value>(&content).unwrap()["ok"].is_boolean());
    let text = walk(&output, &tokenizer, "<", &mut Random(5)).unwrap();
    assert!(!calls(format, &options, &text).is_empty(), "{text}");
}

#[test]
fn impossible_choices_are_errors() {
    let format = ToolFormat::named("hermes").unwrap();
    let tokenizer = tokenizer(format, None);
    let source = ConstraintSource { tokenizer: &tokenizer, compile: &|_| Ok(()) };
    let output = |options: ChatOptions| options.output(&source, Some(format), (None, false));
    let required = ToolChoice::Required;
    let missing = output(ChatOptions { tool_choice: required.clone(), ..ChatOptions::default() });
    assert_eq!(missing.unwrap_err().location(), "tool_choice");
    let unknown = ToolChoice::Named("f".to_owned());
    let unknown = output(ChatOptions { tools: tools(), tool_choice: unknown, ..ChatOptions::default() });
    assert!(unknown.unwrap_err().to_string().contains("no tool `f`"));
    let both = ChatOptions {
        tools: tools(),
        tool_choice: required,
        structured_output: Some(StructuredOutput::JsonObject),
        ..ChatOptions::default()
    };
    assert!(output(both).is_ok(), "a required call comes before the content");
    let budget = ChatOptions { reasoning_budget: Some(3), ..ChatOptions::default() };
    assert_eq!(output(budget).unwrap_err().location(), "reasoning_budget");
    for (json, place) in [
        (r#"{"type": "web_search"}"#, "type"),
        (r#"{"type": "function", "function": {"name": "a b"}}"#, "function.name"),
        (r#"{"type": "function", "function": {"name": "f", "parameters": 5}}"#, "function.parameters"),
        (r#"{"type": "function", "function": {"name": "f", "more": 5}}"#, "function.more"),
    ] {
        assert_eq!(Tool::from_json(json).unwrap_err().location(), place, "{json}");
    }
}

#[test]
fn grammars_of_nested_schemas_are_short() {
    let mut schema = r#"{"type": "string"}"#.to_owned();
    for _ in 0..40 {
        schema = format!(r#"{{"type": "array", "items": {schema}}}"#);
    }
    let schema = format!(
        r#"{{"type": "object", "properties": {{"a": {schema}, "<|im_end|>": {{"enum": ["<|im_end|>"]}}}}}}"#
    );
    let tools = vec![Tool::new("f", "", &schema).unwrap()];
    let options = ChatOptions { tools, tool_choice: ToolChoice::Required, ..ChatOptions::default() };
    for name in ["gemma", "qwen_xml"] {
        let format = ToolFormat::named(name).unwrap();
        let tokenizer = tokenizer(format, None);
        let source = ConstraintSource { tokenizer: &tokenizer, compile: &|_| Ok(()) };
        let output = options.output(&source, Some(format), (None, false)).unwrap();
        let Some(StructuredOutput::Lark(grammar)) = output else { panic!("{output:?}") };
        assert!(grammar.len() < 1 << 15, "{name}: {}", grammar.len());
        // Texts of a client are no special tokens.
        assert!(!grammar.contains("<[256]>") && grammar.contains("\"<|im_end|>\""), "{name}: {grammar}");
    }
    // Arguments that the schema does not list cannot be elements.
    let tools =
        vec![Tool::new("f", "", r##"{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}"##).unwrap()];
    let options = ChatOptions { tools, tool_choice: ToolChoice::Required, ..ChatOptions::default() };
    let format = ToolFormat::named("qwen_xml").unwrap();
    let tokenizer = tokenizer(format, None);
    let source = ConstraintSource { tokenizer: &tokenizer, compile: &|_| Ok(()) };
    let error = options.output(&source, Some(format), (None, false)).unwrap_err();
    assert_eq!(error.location(), "tools[0].function.parameters");
}
