//! Options of generations, given as keyword arguments.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use siskin::GenerateOptions;
use siskin::chat::ChatOptions;
use siskin::constraint::StructuredOutput;
use siskin::sample::SamplerOptions;
use siskin::serving::{GenerationRequest, PromptInput};

use crate::errors::IntoPyResult;
use crate::json::to_json;

/// Chat options, by the names that OpenAI's API and other servers give them.
const CHAT: [&str; 6] = [
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "reasoning_budget",
    "chat_template_kwargs",
];

/// What a generation needs besides its prompt.
pub(crate) struct GenerationOptions {
    pub(crate) sampler: SamplerOptions,
    pub(crate) generate: GenerateOptions,
    pub(crate) stop: Vec<String>,
    pub(crate) chat: ChatOptions,
    pub(crate) structured_output: Option<StructuredOutput>,
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
        };
        let Some(arguments) = arguments else { return Ok(options) };
        let chat = PyDict::new(arguments.py());
        for (name, value) in arguments {
            let name: String = name.extract()?;
            let is_default = value.is_none();
            if CHAT.contains(&name.as_str()) {
                chat.set_item(name, value)?;
            } else if !is_default
                && !options.read_one(&name, &value)?
                && !options.read_sampler(&name, &value)?
            {
                return Err(PyTypeError::new_err(format!("unexpected keyword argument '{name}'")));
            }
        }
        options.chat.set_json(&to_json(&chat)?).into_py(arguments.py())?;
        options.chat.structured_output.clone_from(&options.structured_output);
        Ok(options)
    }

    /// Reads an option; false if the name is another one.
    fn read_one(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        match name {
            "max_tokens" => self.generate.max_tokens = value.extract()?,
            "parse_special" => self.generate.parse_special = value.extract()?,
            "stop" => self.stop = strings(value)?,
            "json_schema" => self.structured_output = Some(StructuredOutput::JsonSchema(to_json(value)?)),
            "json_object" => {
                self.structured_output = value.extract::<bool>()?.then_some(StructuredOutput::JsonObject);
            }
            "regex" => self.structured_output = Some(StructuredOutput::Regex(value.extract()?)),
            "choices" => self.structured_output = Some(StructuredOutput::Choice(value.extract()?)),
            "grammar" => self.structured_output = Some(StructuredOutput::grammar(value.extract()?)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn read_sampler(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
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
            _ => return Ok(false),
        }
        Ok(true)
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

/// Reads a text or a list of texts.
fn strings(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match value.is_instance_of::<PyString>() {
        true => Ok(vec![value.extract()?]),
        false => value.extract(),
    }
}

/// Reads a dictionary of biases by token.
fn pairs(value: &Bound<'_, PyAny>) -> PyResult<Vec<(u32, f32)>> {
    value.cast::<PyDict>()?.iter().map(|(token, bias)| Ok((token.extract()?, bias.extract()?))).collect()
}
