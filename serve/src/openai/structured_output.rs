//! The fields that say what a response must be.
//!
//! OpenAI's is `response_format`. vLLM's `structured_outputs` (and its older `guided_…` fields) and llama.cpp's
//! `json_schema` and `grammar` are accepted, too.

use serde::Deserialize;
use serde_json::value::RawValue;
use siskin::constraint::StructuredOutput;
use siskin_format::JsonFields;

use crate::error::ApiError;

/// `response_format`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseFormat<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    json_schema: Option<NamedSchema<'a>>,
}

/// `response_format.json_schema`. Schemas are enforced whether `strict` is set or not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSchema<'a> {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
}

/// `structured_outputs`: one of these.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StructuredOutputs<'a> {
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
    json_object: Option<bool>,
}

/// What a response must be, and the field that says so.
pub(super) struct RequestedOutput {
    pub(super) field: &'static str,
    pub(super) output: StructuredOutput,
}

/// Takes the fields; `None`: the response may be any text.
pub(super) fn take(fields: &mut JsonFields<'_>) -> Result<Option<RequestedOutput>, ApiError> {
    let format: Option<ResponseFormat<'_>> = fields.take("response_format")?;
    let outputs: Option<StructuredOutputs<'_>> = fields.take("structured_outputs")?;
    let guided = StructuredOutputs {
        json: fields.take("guided_json")?,
        regex: fields.take("guided_regex")?,
        choice: fields.take("guided_choice")?,
        grammar: fields.take("guided_grammar")?,
        json_object: None,
    };
    let plain = StructuredOutputs {
        json: fields.take("json_schema")?,
        grammar: fields.take("grammar")?,
        ..StructuredOutputs::default()
    };
    let mut found = Vec::new();
    let format = format.map(response_format).transpose()?.flatten();
    found.extend(format.map(|output| RequestedOutput { field: "response_format", output }));
    for (outputs, names) in [
        (outputs.unwrap_or_default(), ["structured_outputs"; 5]),
        (guided, ["guided_json", "", "guided_regex", "guided_choice", "guided_grammar"]),
        (plain, ["json_schema", "", "", "", "grammar"]),
    ] {
        found.extend(outputs.given(names));
    }
    match found.as_slice() {
        [] | [_] => Ok(found.pop()),
        [first, second, ..] if first.field == second.field => Err(ApiError::invalid(
            first.field,
            "expected exactly one of json, regex, choice, grammar, json_object",
        )),
        [first, second, ..] => {
            Err(ApiError::invalid(second.field, format!("cannot be combined with `{}`", first.field)))
        }
    }
}

fn response_format(format: ResponseFormat<'_>) -> Result<Option<StructuredOutput>, ApiError> {
    match format.kind.as_str() {
        "text" => Ok(None),
        "json_object" => Ok(Some(StructuredOutput::JsonObject)),
        "json_schema" => {
            let schema = format.json_schema.and_then(|named| named.schema);
            let schema =
                schema.ok_or_else(|| ApiError::invalid("response_format.json_schema.schema", "missing"))?;
            Ok(Some(StructuredOutput::JsonSchema(schema.get().to_owned())))
        }
        other => {
            let message = format!("`{other}` is not supported; expected text, json_object or json_schema");
            Err(ApiError::invalid("response_format", message))
        }
    }
}

impl StructuredOutputs<'_> {
    /// Returns those that are set, with the names of the fields.
    fn given(self, names: [&'static str; 5]) -> impl Iterator<Item = RequestedOutput> {
        let json = self.json.map(schema);
        let json_object = self.json_object.filter(|&is_on| is_on).map(|_| StructuredOutput::JsonObject);
        let regex = self.regex.map(StructuredOutput::Regex);
        let choice = self.choice.map(StructuredOutput::Choice);
        let grammar = self.grammar.filter(|grammar| !grammar.is_empty()).map(StructuredOutput::grammar);
        let given = [json, json_object, regex, choice, grammar].into_iter().zip(names);
        given.filter_map(|(output, field)| Some(RequestedOutput { field, output: output? }))
    }
}

/// A schema, or one in a string.
fn schema(value: &RawValue) -> StructuredOutput {
    let text = serde_json::from_str::<String>(value.get());
    StructuredOutput::JsonSchema(text.unwrap_or_else(|_| value.get().to_owned()))
}
