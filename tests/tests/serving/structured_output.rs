//! Structured output: what is generated is what was asked for, and has the tokens of a session in an engine, too.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use siskin::constraint::{StructuredOutput, TokenConstraint, TokenMask};
use siskin::file::File;
use siskin::sample::SamplerOptions;
use siskin::serving::{
    Engine, EngineOptions, GenerationEvent, GenerationRequest, PromptInput, ServedModelOptions, Speculation,
    StreamEnd,
};
use siskin::{
    ErrorKind, FinishReason, GenerateOptions, GenerationStep, Model, ModelOptions, Result, SessionOptions,
};

use super::{Hostile, Random};

const PERSON: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": false
}"#;

/// JSON, as the grammars of llama.cpp define it, with bounded strings.
const JSON_GBNF: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value){0,2} )? "}" ws
array  ::= "[" ws ( value ("," ws value){0,2} )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) ){0,8} "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]{1,4})? ws
ws     ::= | " " | "\n" [ \t]{0,4}
"#;

/// A model that knows all bytes.
fn shakespeare() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/shakespeare.siskin");
    Model::from_file(File::open(path).unwrap(), &ModelOptions { threads: 2, ..ModelOptions::default() })
        .unwrap()
}

fn request(output: StructuredOutput, seed: u64) -> GenerationRequest {
    let sampler = SamplerOptions {
        seed,
        temperature: if seed.is_multiple_of(3) { 0.0 } else { 1.0 },
        ..SamplerOptions::default()
    };
    GenerationRequest {
        sampler,
        structured_output: Some(output),
        max_tokens: 120,
        ..GenerationRequest::new(PromptInput::Text("KING:\nWhat say you of yourself, ".to_owned()))
    }
}

/// What was generated.
#[derive(Debug, PartialEq)]
struct Answer {
    text: String,
    tokens: Vec<u32>,
    reason: FinishReason,
}

/// Returns what a session generates.
fn alone(model: &Model, request: &GenerationRequest) -> Answer {
    let options =
        SessionOptions { context: 256, sampler: request.sampler.clone(), ..SessionOptions::default() };
    let mut session = model.session(options).unwrap();
    session.set_structured_output(request.structured_output.as_ref()).unwrap();
    let options = GenerateOptions { max_tokens: request.max_tokens, ..GenerateOptions::default() };
    let mut generation = session.begin_tokens(&request.prompt.tokens(model).unwrap(), options).unwrap();
    let (mut chunk, mut text, mut tokens) = (String::new(), String::new(), Vec::new());
    while let Some(step) = generation.step(&mut session, &mut chunk).unwrap() {
        text.push_str(&chunk);
        if let GenerationStep::Token(token) = step {
            tokens.push(token.id);
        }
    }
    Answer { text, tokens, reason: generation.finish_reason().unwrap() }
}

fn engine(model: &Model) -> (Engine, siskin::serving::ModelId) {
    let engine = Engine::new(EngineOptions { threads: 2, ..EngineOptions::default() }).unwrap();
    let session = SessionOptions { context: 256, ..SessionOptions::default() };
    let options = ServedModelOptions { session, ..ServedModelOptions::default() };
    let id = engine.add_model(model, &options).unwrap();
    (engine, id)
}

/// Returns what an engine generates for all requests at once.
fn together(model: &Model, requests: &[GenerationRequest]) -> Vec<Answer> {
    let (engine, id) = engine(model);
    let streams: Vec<_> =
        requests.iter().map(|request| engine.submit(id, request.clone()).unwrap()).collect();
    streams
        .into_iter()
        .map(|stream| {
            let (mut all, mut tokens) = (String::new(), Vec::new());
            for event in stream {
                match event {
                    GenerationEvent::Prompt { .. } => {}
                    GenerationEvent::Token { token, text, .. } => {
                        all.push_str(&text);
                        tokens.push(token.id);
                    }
                    GenerationEvent::End { text, end: StreamEnd::Finished(reason), .. } => {
                        return Answer { text: all + &text, tokens, reason };
                    }
                    GenerationEvent::End { end, .. } => panic!("{end:?}"),
                }
            }
            panic!("a stream ends with an event")
        })
        .collect()
}

fn outputs() -> [StructuredOutput; 6] {
    let choices = ["a king", "a kind man", "a knave", "a knave, sir", "no man"];
    [
        StructuredOutput::Choice(choices.map(str::to_owned).to_vec()),
        StructuredOutput::JsonSchema(PERSON.to_owned()),
        StructuredOutput::Regex(r"[A-Z][a-z]{2,10}, (king|queen) of [A-Z][a-z]{2,8}\.".to_owned()),
        StructuredOutput::Gbnf(JSON_GBNF.to_owned()),
        StructuredOutput::Lark("start: \"I am \" NAME\nNAME: /[a-z]{3,9}/ \"!\"{1,3}\n".to_owned()),
        StructuredOutput::JsonObject,
    ]
}

/// Returns whether a text is what was asked for.
fn is_valid(output: &StructuredOutput, text: &str) -> bool {
    let words = |text: &str| text.chars().all(|letter| letter.is_ascii_alphabetic());
    match output {
        StructuredOutput::Choice(choices) => choices.iter().any(|choice| choice == text),
        StructuredOutput::Regex(_) => {
            let parts = text.strip_suffix('.').and_then(|text| text.split_once(", "));
            parts.is_some_and(|(name, rest)| {
                let place = rest.strip_prefix("king of ").or(rest.strip_prefix("queen of "));
                words(name) && place.is_some_and(words)
            })
        }
        StructuredOutput::Lark(_) => text
            .strip_prefix("I am ")
            .is_some_and(|text| (4..=12).contains(&text.len()) && words(text.trim_end_matches('!'))),
        StructuredOutput::JsonSchema(_) => {
            let Ok(Value::Object(person)) = serde_json::from_str(text) else { return false };
            person.len() == 3
                && person["name"].as_str().is_some_and(|name| name.chars().count() <= 12)
                && person["age"].as_u64().is_some_and(|age| age <= 150)
                && person["tags"]
                    .as_array()
                    .is_some_and(|tags| tags.len() <= 3 && tags.iter().all(|tag| tag == "a" || tag == "b"))
        }
        _ => serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()),
    }
}

#[test]
fn texts_are_what_was_asked_for_alone_and_beside_others() {
    let model = shakespeare();
    let mut requests = Vec::new();
    for (index, output) in outputs().into_iter().enumerate() {
        for seed in 0..6 {
            let mut request = request(output.clone(), seed + 10 * index as u64);
            request.speculation = match seed % 3 {
                0 => Speculation::Off,
                1 => Speculation::Ngram,
                _ => Speculation::Custom(|| Box::new(Hostile(Random(3)))),
            };
            // Log-probabilities need the logits of forced tokens, which are the same.
            request.sampler.log_probabilities = seed.is_multiple_of(2);
            requests.push(request);
        }
    }
    let answers = together(&model, &requests);
    let mut complete = 0;
    for (request, answer) in requests.iter().zip(&answers) {
        assert_eq!(*answer, alone(&model, request), "{:?}", request.structured_output);
        let output = request.structured_output.as_ref().unwrap();
        if answer.reason == FinishReason::Eos {
            complete += 1;
            assert!(is_valid(output, &answer.text), "{}: {:?}", output.name(), answer.text);
        } else {
            // White space is bounded, but not short.
            assert!(
                !matches!(output, StructuredOutput::Choice(_) | StructuredOutput::Regex(_)),
                "{answer:?}"
            );
        }
    }
    assert!(complete >= requests.len() * 2 / 3, "only {complete} of {} are complete", requests.len());
}

#[test]
fn forced_tokens_take_no_pass_of_their_own() {
    let model = shakespeare();
    let (engine, id) = engine(&model);
    let long = "a rose by any other name would smell as sweet, and so would thorns, and so would thee";
    let output = StructuredOutput::Choice(vec![long.to_owned(), "nothing".to_owned()]);
    let mut request = request(output, 3);
    request.speculation = Speculation::Off;
    request.sampler.logit_bias = vec![(request.prompt.tokens(&model).unwrap()[0], f32::NEG_INFINITY)];
    let stream =
        engine.submit(id, GenerationRequest { sampler: SamplerOptions::greedy(), ..request }).unwrap();
    let tokens = stream.filter(|event| matches!(event, GenerationEvent::Token { .. })).count();
    let steps = engine.stats(id).unwrap().steps;
    assert!(tokens < 4 || steps * 2 < tokens as u64, "{tokens} tokens in {steps} passes");
    let forced = StructuredOutput::Choice(vec![long.to_owned()]);
    let (engine, id) = self::engine(&model);
    let answer = engine.submit(id, self::request(forced, 0)).unwrap().text().unwrap();
    assert_eq!(answer, long);
    assert_eq!(engine.stats(id).unwrap().steps, 1, "nothing but the prompt is processed");
}

#[test]
fn masks_are_those_of_single_tokens() {
    let model = shakespeare();
    let vocabulary = model.config().vocabulary;
    for output in outputs() {
        let mut constraint = model.constraint(&output).unwrap();
        let mut random = Random(11);
        for _ in 0..12 {
            if constraint.is_complete().unwrap() {
                break;
            }
            let mut mask = TokenMask::new(vocabulary);
            constraint.mask(&mut mask).unwrap();
            let allowed: Vec<u32> = (0..vocabulary as u32).filter(|&id| mask.allows(id)).collect();
            assert_eq!(mask.count(), allowed.len());
            for id in 0..vocabulary as u32 {
                assert_eq!(constraint.allows(id).unwrap(), mask.allows(id), "{}: token {id}", output.name());
            }
            let is_end = |id: &u32| model.end_ids().contains(id);
            let going_on: Vec<u32> = allowed.iter().copied().filter(|id| !is_end(id)).collect();
            let Some(&next) = going_on.get(random.next(going_on.len())) else { break };
            constraint.accept(next).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_enforced_is_an_error_that_names_it() {
    let model = shakespeare();
    let error = |output: StructuredOutput| model.constraint(&output).map(drop).unwrap_err();
    let schema = |text: &str| error(StructuredOutput::JsonSchema(text.to_owned()));
    assert_eq!(schema("{\"type\": ").kind(), ErrorKind::Argument);
    let unsupported = schema(r#"{"type": "array", "items": {}, "contains": {"type": "null"}}"#);
    assert_eq!(unsupported.kind(), ErrorKind::Unsupported);
    assert!(unsupported.to_string().contains("contains"), "{unsupported}");
    assert_eq!(schema(r##"{"$ref": "#/$defs/missing"}"##).location(), "json_schema");
    assert_eq!(error(StructuredOutput::Regex("(".to_owned())).location(), "regex");
    let lenient = schema(r#"{"type": "array", "uniqueItems": true, "x-guidance": {"lenient": true}}"#);
    assert!(lenient.to_string().contains("lenient"), "{lenient}");
    let end = model.tokenizer().unwrap().token_text(model.end_ids()[0]).unwrap();
    let end = String::from_utf8_lossy(end);
    assert_eq!(error(StructuredOutput::Lark(format!("start: \"a\" {end} \"b\""))).location(), "lark");
    assert_eq!(error(StructuredOutput::Lark("start: missing".to_owned())).location(), "lark");
    let gbnf = error(StructuredOutput::Gbnf("root ::= \"a\"\nx ::= [".to_owned()));
    assert!(gbnf.location().contains("gbnf") && gbnf.location().contains("line 2"), "{gbnf}");
    for choices in [vec![], vec![String::new()]] {
        assert_eq!(error(StructuredOutput::Choice(choices)).location(), "choice");
    }
    let huge = format!("{{\"const\": \"{}\"}}", "a".repeat(2 << 20));
    assert_eq!(schema(&huge).kind(), ErrorKind::Argument);
}

/// Returns the outcome of up to `steps` greedy tokens under a constraint.
fn drive(model: &Model, output: &StructuredOutput, steps: usize) -> Result<()> {
    let mut constraint = model.constraint(output)?;
    let mut random = Random(5);
    for _ in 0..steps {
        if constraint.is_complete()? {
            return Ok(());
        }
        let mut mask = TokenMask::new(model.config().vocabulary);
        constraint.mask(&mut mask)?;
        let is_usable = |id: &u32| mask.allows(*id) && !model.end_ids().contains(id);
        let allowed: Vec<u32> = (0..model.config().vocabulary as u32).filter(is_usable).collect();
        let Some(&next) = allowed.get(random.next(allowed.len())) else { return Ok(()) };
        constraint.accept(next)?;
    }
    Ok(())
}

#[test]
fn hostile_grammars_end_within_their_limits() {
    let model = shakespeare();
    let doubling: String = (1..60).map(|rule| format!("r{rule} ::= r{} r{}\n", rule + 1, rule + 1)).collect();
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let alternatives: Vec<String> = (0..3000).map(|index| format!("\"a{{0,{index}}}b\"")).collect();
    let chain = |link: &dyn Fn(usize) -> String| (0..9000).map(link).collect::<String>();
    let references = chain(&|index| format!("\"a{index}\": {{\"$ref\": \"#/$defs/a{}\"}}, ", index + 1));
    let hostile = [
        StructuredOutput::JsonSchema(format!(
            "{{\"$ref\": \"#/$defs/a0\", \"$defs\": {{{references}\"a9000\": {{\"type\": \"object\"}}}}}}"
        )),
        StructuredOutput::Gbnf(format!(
            "root ::= a0\n{}a9000 ::= \"y\"",
            chain(&|index| format!("a{index} ::= \"x\" a{}\n", index + 1))
        )),
        StructuredOutput::Gbnf(format!(
            "root ::= a0 | \"(\" root \")\"\n{}a9000 ::= \"y\"",
            chain(&|index| format!("a{index} ::= \"x\" a{} | \"z\" a{}\n", index + 1, index + 1))
        )),
        StructuredOutput::Lark(format!(
            "start: A0\n{}A9000: \"y\"",
            chain(&|index| format!("A{index}: \"x\" A{}\n", index + 1))
        )),
        StructuredOutput::Regex("a".repeat(400_000)),
        StructuredOutput::Gbnf("root ::= (((\"a\"{0,2000}){0,2000}){0,2000}){0,2000}".to_owned()),
        StructuredOutput::Gbnf(format!("root ::= r1\n{doubling}r60 ::= \"a\" | \"b\"")),
        StructuredOutput::Gbnf("root ::= root root | \"a\" | \"\"".to_owned()),
        StructuredOutput::Gbnf("root ::= a a a a a a a a\na ::= \"x\" a | a \"x\" | \"\"".to_owned()),
        StructuredOutput::Regex("(a|aa|aaa|aaaa|b?){1,900}c(a*b*c*){1,900}".to_owned()),
        StructuredOutput::Regex("(.*a.{20}|.*b.{20}|.*c.{20}){9}".to_owned()),
        StructuredOutput::Regex("(".repeat(20_000) + &")".repeat(20_000)),
        StructuredOutput::Lark(format!("start: {}", alternatives.join(" | "))),
        StructuredOutput::JsonSchema(nested(100_000)),
        StructuredOutput::JsonSchema(format!("{{\"const\": {}}}", nested(120))),
        StructuredOutput::JsonSchema(
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}"##.to_owned(),
        ),
        StructuredOutput::JsonSchema(
            r#"{"type": "string", "pattern": "^(a+)+(b+)+(c{1,500}){1,500}$", "minLength": 100000}"#
                .to_owned(),
        ),
    ];
    for (index, output) in hostile.iter().enumerate() {
        let start = Instant::now();
        let outcome = drive(&model, output, 24);
        let limit = Duration::from_secs(120);
        assert!(start.elapsed() < limit, "{index}: {:?}", start.elapsed());
        if let Err(error) = outcome {
            assert!(matches!(error.kind(), ErrorKind::Argument | ErrorKind::Unsupported), "{index}: {error}");
        }
    }
}

/// Allows each token once, and so many.
#[derive(Clone)]
struct Once {
    used: Vec<u32>,
    limit: usize,
    vocabulary: u32,
}

impl TokenConstraint for Once {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<()> {
        (0..self.vocabulary).filter(|id| !self.used.contains(id)).for_each(|id| mask.allow(id));
        Ok(())
    }

    fn allows(&mut self, token: u32) -> Result<bool> {
        Ok(!self.used.contains(&token))
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        self.used.push(token);
        Ok(())
    }

    fn is_complete(&mut self) -> Result<bool> {
        Ok(self.used.len() == self.limit)
    }

    fn fork(&self) -> Box<dyn TokenConstraint> {
        Box::new(self.clone())
    }
}

#[test]
fn constraints_of_the_caller_begin_anew_with_each_generation() {
    let model = shakespeare();
    // None ends the text.
    let used = model.end_ids().to_vec();
    let (limit, vocabulary) = (used.len() + 30, model.config().vocabulary as u32);
    let once = Once { used, limit, vocabulary };
    let output = StructuredOutput::Custom(Box::new(once));
    let mut session = model
        .session(SessionOptions { sampler: SamplerOptions::greedy(), ..SessionOptions::default() })
        .unwrap();
    session.set_structured_output(Some(&output)).unwrap();
    for _ in 0..2 {
        let mut generation = session.begin_tokens(&[5, 6, 7], GenerateOptions::default()).unwrap();
        let (mut text, mut tokens) = (String::new(), Vec::new());
        while let Some(step) = generation.step(&mut session, &mut text).unwrap() {
            if let GenerationStep::Token(token) = step {
                tokens.push(token.id);
            }
        }
        generation.finish(&mut session);
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 30, "{tokens:?}");
    }
}
