//! Options of generations, given as keyword arguments.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siskin::GenerateOptions;
use siskin::chat::ChatOptions;
use siskin::constraint::StructuredOutput;
use siskin::sample::SamplerOptions;
use siskin::serving::{GenerationRequest, PromptInput};

use crate::errors::IntoPyResult;
use crate::json::to_json;
use crate::texts::texts;

/// Chat options, by the names that OpenAI's API and other servers give them. The first ones concern a whole conversation,
/// the others the template.
const CHAT: [&str; 6] = [
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_budget",
    "reasoning_effort",
    "chat_template_kwargs",
];
const CONVERSATION: usize = 4;
/// The other options.
const OTHERS: [&str; 30] = [
    "max_tokens",
    "parse_special",
    "stop",
    "json_schema",
    "json_object",
    "regex",
    "choices",
    "grammar",
    "seed",
    "temperature",
    "dynamic_temperature_range",
    "dynamic_temperature_exponent",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "penalty_last_n",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_last_n",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "logit_bias",
];

/// What a generation needs besides its prompt.
pub(crate) struct GenerationOptions {
    pub(crate) sampler: SamplerOptions,
    pub(crate) generate: GenerateOptions,
    pub(crate) stop: Vec<String>,
    pub(crate) chat: ChatOptions,
    pub(crate) structured_output: Option<StructuredOutput>,
    /// The chat options that were given.
    given: Vec<&'static str>,
}

impl GenerationOptions {
    /// Reads keyword arguments.
    pub(crate) fn read(arguments: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self {
            sampler: SamplerOptions::default(),
            generate: GenerateOptions::default(),
            stop: Vec::new(),
            chat: ChatOptions::default(),
            structured_output: None,
            given: Vec::new(),
        };
        let Some(arguments) = arguments else { return Ok(options) };
        let chat = PyDict::new(arguments.py());
        for (name, value) in arguments {
            let name: String = name.extract()?;
            if let Some(known) = CHAT.iter().find(|known| **known == name) {
                if !value.is_none() {
                    chat.set_item(known, value)?;
                    options.given.push(known);
                }
                continue;
            }
            if !OTHERS.contains(&name.as_str()) {
                return Err(unexpected(&name));
            }
            if !value.is_none() {
                options.set(&name, &value).map_err(|error| named(arguments.py(), &name, &error))?;
            }
        }
        options.chat.set_json(&to_json(&chat)?).into_py(arguments.py())?;
        options.chat.structured_output.clone_from(&options.structured_output);
        Ok(options)
    }

    /// Fails if options were given that concern a whole conversation.
    pub(crate) fn reject_chat_options(&self, reason: &str) -> PyResult<()> {
        match self.given.iter().find(|name| CHAT[..CONVERSATION].contains(name)) {
            Some(name) => Err(PyTypeError::new_err(format!("{name}: {reason}"))),
            None => Ok(()),
        }
    }

    /// Sets one of [`OTHERS`].
    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let output = match name {
            "max_tokens" => return value.extract().map(|count| self.generate.max_tokens = count),
            "parse_special" => return value.extract().map(|parses| self.generate.parse_special = parses),
            "stop" => return texts(value).map(|(stop, _)| self.stop = stop),
            "json_schema" => StructuredOutput::JsonSchema(to_json(value)?),
            "json_object" if !value.extract::<bool>()? => return Ok(()),
            "json_object" => StructuredOutput::JsonObject,
            "regex" => StructuredOutput::Regex(value.extract()?),
            "choices" => StructuredOutput::Choice(value.extract()?),
            "grammar" => StructuredOutput::grammar(value.extract()?),
            _ => return self.set_sampler(name, value),
        };
        match self.structured_output.replace(output) {
            None => Ok(()),
            Some(_) => Err(PyTypeError::new_err("expected one structured output, got several")),
        }
    }

    fn set_sampler(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let sampler = &mut self.sampler;
        match name {
            "seed" => sampler.seed = value.extract()?,
            "temperature" => sampler.temperature = value.extract()?,
            "dynamic_temperature_range" => sampler.dynamic_temperature_range = value.extract()?,
            "dynamic_temperature_exponent" => sampler.dynamic_temperature_exponent = value.extract()?,
            "top_k" => sampler.top_k = value.extract()?,
            "top_p" => sampler.top_p = value.extract()?,
            "min_p" => sampler.min_p = value.extract()?,
            "typical_p" => sampler.typical_p = value.extract()?,
            "xtc_probability" => sampler.xtc_probability = value.extract()?,
            "xtc_threshold" => sampler.xtc_threshold = value.extract()?,
            "repetition_penalty" => sampler.repetition_penalty = value.extract()?,
            "frequency_penalty" => sampler.frequency_penalty = value.extract()?,
            "presence_penalty" => sampler.presence_penalty = value.extract()?,
            "penalty_last_n" => sampler.penalty_last_n = value.extract()?,
            "dry_multiplier" => sampler.dry_multiplier = value.extract()?,
            "dry_base" => sampler.dry_base = value.extract()?,
            "dry_allowed_length" => sampler.dry_allowed_length = value.extract()?,
            "dry_last_n" => sampler.dry_last_n = value.extract()?,
            "mirostat" => sampler.mirostat = value.extract()?,
            "mirostat_tau" => sampler.mirostat_tau = value.extract()?,
            "mirostat_eta" => sampler.mirostat_eta = value.extract()?,
            "logit_bias" => {
                sampler.logit_bias = value.extract::<Vec<(u32, f32)>>().or_else(|_| pairs(value))?
            }
            _ => return Err(unexpected(name)),
        }
        Ok(())
    }

    /// Returns a request with these options.
    pub(crate) fn request(&self, prompt: PromptInput) -> GenerationRequest {
        GenerationRequest {
            max_tokens: self.generate.max_tokens,
            sampler: self.sampler.clone(),
            stop: self.stop.clone(),
            structured_output: self.structured_output.clone(),
            ..GenerationRequest::new(prompt)
        }
    }
}

fn unexpected(name: &str) -> PyErr {
    PyTypeError::new_err(format!("unexpected keyword argument '{name}'"))
}

/// Returns an exception of the same class that names the option.
fn named(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    let message = format!("{name}: {}", error.value(py));
    match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(message),
        false => PyValueError::new_err(message),
    }
}

/// Reads a dictionary of biases by token.
fn pairs(value: &Bound<'_, PyAny>) -> PyResult<Vec<(u32, f32)>> {
    value.cast::<PyDict>()?.iter().map(|(token, bias)| Ok((token.extract()?, bias.extract()?))).collect()
}
