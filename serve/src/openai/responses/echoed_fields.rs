//! The fields of a request that its response repeats.

use serde_json::{Map, Value, json};
use siskin::chat::ChatOptions;
use siskin_format::JsonFields;

use crate::error::ApiError;
use crate::openai::structured_output;

/// The maximum size of tools, and of the schema of the text, which each response repeats.
const MAX_TOOL_BYTES: usize = 256 << 10;

/// Fields that the response repeats.
pub(super) struct EchoedFields {
    tools: Vec<Value>,
    tool_choice: Value,
    parallel_tool_calls: bool,
    reasoning: Value,
    text: Value,
    metadata: Value,
}

impl EchoedFields {
    pub(super) fn take(fields: &mut JsonFields<'_>) -> Result<Self, ApiError> {
        let echoed = Self {
            tools: fields.take("tools")?.unwrap_or_default(),
            tool_choice: fields.take("tool_choice")?.unwrap_or_else(|| json!("auto")),
            parallel_tool_calls: fields.take("parallel_tool_calls")?.unwrap_or(true),
            reasoning: fields.take("reasoning")?.unwrap_or_else(|| json!({"effort": null, "summary": null})),
            text: fields.take("text")?.unwrap_or_else(|| json!({"format": {"type": "text"}})),
            metadata: fields.take("metadata")?.unwrap_or_else(|| json!({})),
        };
        for (name, value, known) in [
            ("reasoning", &echoed.reasoning, &["effort", "summary", "generate_summary"][..]),
            ("text", &echoed.text, &["format", "verbosity"]),
        ] {
            let object = value.as_object().ok_or_else(|| ApiError::invalid(name, "expected an object"))?;
            if let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) {
                return Err(ApiError::invalid(&format!("{name}.{unknown}"), "is not supported"));
            }
        }
        check_metadata(&echoed.metadata)?;
        let schemas = serde_json::to_string(&echoed.tools).map_or(0, |tools| tools.len());
        if schemas > MAX_TOOL_BYTES || echoed.text.to_string().len() > MAX_TOOL_BYTES {
            return Err(ApiError::invalid("tools", format!("more than {MAX_TOOL_BYTES} bytes of schemas")));
        }
        // The default of clients that send it always.
        if echoed.text.get("verbosity").is_some_and(|verbosity| verbosity != "medium") {
            return Err(ApiError::invalid("text.verbosity", "only `medium` is supported"));
        }
        for (index, tool) in echoed.tools.iter().enumerate() {
            let field = format!("tools[{index}].type");
            match tool["type"].as_str() {
                Some("function") => {}
                Some(other) => {
                    let message = format!("`{other}` is not supported; expected function");
                    return Err(ApiError::invalid(&field, message));
                }
                None => return Err(ApiError::invalid(&field, "missing")),
            }
        }
        Ok(echoed)
    }

    /// Returns what the fields mean for the chat template.
    pub(super) fn chat_options(&self) -> Result<ChatOptions, ApiError> {
        let in_response =
            |error: ApiError| error.renamed(|field| field.replace("response_format", "text.format"));
        let text = self.as_chat().to_string();
        let mut fields = JsonFields::read(&text)?;
        let output = structured_output::take(&mut fields).map_err(in_response)?;
        let mut options =
            ChatOptions { structured_output: output.map(|output| output.output), ..ChatOptions::default() };
        options.read_json(&mut fields)?;
        Ok(options)
    }

    /// Returns the fields of a chat completion with the same meaning.
    fn as_chat(&self) -> Value {
        let mut chat = json!({"parallel_tool_calls": self.parallel_tool_calls});
        if !self.tools.is_empty() {
            chat["tools"] = self
                .tools
                .iter()
                .map(|tool| json!({"type": "function", "function": without_type(tool)}))
                .collect();
            chat["tool_choice"] = match &self.tool_choice {
                Value::Object(choice) if choice.contains_key("name") => {
                    json!({"type": "function", "function": {"name": choice["name"]}})
                }
                other => other.clone(),
            };
        }
        if !self.reasoning["effort"].is_null() {
            chat["reasoning_effort"] = self.reasoning["effort"].clone();
        }
        if let Some(format) = self.text.get("format").filter(|format| !format.is_null()) {
            chat["response_format"] = match format["type"].as_str() {
                Some("json_schema") => json!({"type": "json_schema", "json_schema": without_type(format)}),
                _ => format.clone(),
            };
        }
        chat
    }

    pub(super) fn into_object(self) -> Map<String, Value> {
        let Self { tools, tool_choice, parallel_tool_calls, reasoning, text, metadata } = self;
        let object = json!({
            "tools": tools,
            "tool_choice": tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            "reasoning": reasoning,
            "text": text,
            "metadata": metadata,
            "truncation": "disabled",
            "background": false,
        });
        match object {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }
}

/// Checks that metadata are pairs of short strings, as in OpenAI's API.
fn check_metadata(metadata: &Value) -> Result<(), ApiError> {
    let is_valid = |(key, value): (&String, &Value)| {
        key.len() <= 64 && value.as_str().is_some_and(|value| value.chars().count() <= 512)
    };
    match metadata.as_object() {
        Some(pairs) if pairs.len() <= 16 && pairs.iter().all(is_valid) => Ok(()),
        _ => Err(ApiError::invalid(
            "metadata",
            "expected an object with at most 16 strings, of at most 512 characters and with keys of at most 64",
        )),
    }
}

fn without_type(value: &Value) -> Value {
    let mut object = value.clone();
    if let Some(object) = object.as_object_mut() {
        object.remove("type");
    }
    object
}
