//! Tools that a model may call.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use siskin_format::{Error, JsonFields, Result};

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    name: String,
    /// The JSON Schema of the arguments.
    parameters: String,
    is_strict: bool,
    /// What the chat template gets: JSON in OpenAI's form.
    definition: String,
}

/// Which tools the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Any number of them, or none.
    #[default]
    Auto,
    /// None. The prompt does not mention them.
    None,
    /// At least one.
    Required,
    /// The one with this name.
    Named(String),
}

/// `tool_choice`, if it names a tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedChoice {
    #[serde(rename = "type")]
    kind: String,
    function: NamedFunction,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedFunction {
    name: String,
}

impl ToolChoice {
    /// Parses `"none"`, `"auto"`, `"required"`, or `{"type": "function", "function": {"name": …}}`.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument), located at `tool_choice`.
    pub fn from_json(json: &str) -> Result<Self> {
        const EXPECTED: &str =
            "expected none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": …}}";
        if let Ok(name) = serde_json::from_str::<String>(json) {
            return match name.as_str() {
                "none" => Ok(Self::None),
                "auto" => Ok(Self::Auto),
                "required" => Ok(Self::Required),
                other => {
                    Err(Error::argument("tool_choice", format!("`{other}` is not supported; {EXPECTED}")))
                }
            };
        }
        match serde_json::from_str::<NamedChoice>(json) {
            Ok(choice) if choice.kind == "function" => Ok(Self::Named(choice.function.name)),
            _ => Err(Error::argument("tool_choice", EXPECTED)),
        }
    }
}

/// The schema of a tool without parameters.
const NO_PARAMETERS: &str = r#"{"type": "object", "properties": {}, "additionalProperties": false}"#;
/// The key for options of the compiler of grammars, which could weaken the schema.
const LLGUIDANCE_OPTIONS: &str = "x-guidance";
/// The maximum number of bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 1 << 17;
/// The maximum number of bytes of a tool's name.
const MAX_NAME_BYTES: usize = 256;

impl Tool {
    /// Creates a tool from its name, its description, and the JSON Schema of its arguments, an object.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument) if the name or the schema is invalid.
    pub fn new(name: &str, description: &str, parameters: &str) -> Result<Self> {
        check_schema(parameters)?;
        let function = vec![
            ("name", Value::from(name).to_string()),
            ("description", Value::from(description).to_string()),
            ("parameters", parameters.to_owned()),
        ];
        Self::from_function(name, parameters.to_owned(), false, &function)
    }

    /// Parses `{"type": "function", "function": {"name": …, "description": …, "parameters": …, "strict": …}}`.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument), located at the field.
    pub fn from_json(json: &str) -> Result<Self> {
        let mut fields = JsonFields::read(json)?;
        let kind: String = fields.take_required("type")?;
        if kind != "function" {
            let message = format!("`{kind}` is not supported; expected function");
            return Err(Error::argument("type", message));
        }
        let function: &RawValue = fields.take_required("function")?;
        fields.finish()?;
        Self::from_function_json(function.get()).map_err(|error| error.within_field("function"))
    }

    /// Parses a JSON list of tools; see [`Tool::from_json`].
    ///
    /// # Errors
    /// As [`Tool::from_json`]; the location names the tool.
    pub fn list_from_json(json: &str) -> Result<Vec<Self>> {
        let list: Vec<&RawValue> =
            serde_json::from_str(json).map_err(|error| Error::argument("tools", error.to_string()))?;
        let tool = |(index, json): (usize, &&RawValue)| {
            Self::from_json(json.get()).map_err(|error| error.within_field(&format!("tools[{index}]")))
        };
        list.iter().enumerate().map(tool).collect()
    }

    fn from_function_json(json: &str) -> Result<Self> {
        let mut fields = JsonFields::read(json)?;
        fields.ignore_null();
        let name: String = fields.take_required("name")?;
        let description: Option<&RawValue> = fields.take("description")?;
        let parameters: Option<&RawValue> = fields.take("parameters")?;
        let returns: Option<&RawValue> = fields.take("return")?;
        let is_strict = fields.take("strict")?.unwrap_or(false);
        fields.finish()?;
        let schema = parameters.map_or(NO_PARAMETERS, RawValue::get).to_owned();
        check_schema(&schema)?;
        // Templates of some models fail without a description or parameters.
        let mut entries = vec![
            ("name", Value::from(name.as_str()).to_string()),
            ("description", description.map_or("\"\"", RawValue::get).to_owned()),
            ("parameters", schema.clone()),
        ];
        entries.extend(returns.map(|returns| ("return", returns.get().to_owned())));
        Self::from_function(&name, schema, is_strict, &entries)
    }

    fn from_function(
        name: &str,
        parameters: String,
        is_strict: bool,
        entries: &[(&str, String)],
    ) -> Result<Self> {
        let is_valid = |letter: char| letter.is_alphanumeric() || "_-.:/".contains(letter);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_valid) {
            let message = "expected letters, digits, and any of `_-.:/`, 256 bytes at most";
            return Err(Error::argument("name", message));
        }
        let entries: Vec<String> = entries.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
        let definition = format!(r#"{{"type": "function", "function": {{{}}}}}"#, entries.join(", "));
        Ok(Self { name: name.to_owned(), parameters, is_strict, definition })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the JSON Schema of the arguments.
    pub fn parameters(&self) -> &str {
        &self.parameters
    }

    /// Returns whether the arguments must be valid under the schema, also where the model decides whether to call the
    /// tool.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the definition in OpenAI's form.
    pub fn definition(&self) -> &str {
        &self.definition
    }
}

fn check_schema(schema: &str) -> Result<()> {
    if schema.len() > MAX_SCHEMA_BYTES {
        let message = format!("{} bytes long; at most {MAX_SCHEMA_BYTES} are supported", schema.len());
        return Err(Error::argument("parameters", message));
    }
    let value: Value =
        serde_json::from_str(schema).map_err(|error| Error::argument("parameters", error.to_string()))?;
    if !value.is_object() {
        return Err(Error::argument("parameters", "expected a JSON Schema, which is an object"));
    }
    if value.get(LLGUIDANCE_OPTIONS).is_some() {
        let message = format!("`{LLGUIDANCE_OPTIONS}` is not supported in the schemas of tools");
        return Err(Error::unsupported("parameters", message));
    }
    Ok(())
}
