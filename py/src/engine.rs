//! Many prompts at once: continuous batching.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use siskin::serving::{GenerationEvent, GenerationStream, PromptInput, StreamEnd};
use siskin::template::Message;
use siskin::{Error, Result};

use crate::completion::Completion;
use crate::encoder::{results, texts};
use crate::errors::IntoPyResult;
use crate::generation_options::GenerationOptions;
use crate::locks::lock;
use crate::model::PyModel;
use crate::model_engine::ModelEngine;

/// How many prompts are in the engine at the same time.
const WINDOW: usize = 32;

impl PyModel {
    fn engine(&self) -> Result<ModelEngine> {
        let mut slot = lock(&self.engine);
        if let Some(engine) = &*slot {
            return Ok(engine.clone());
        }
        Ok(slot.insert(ModelEngine::new(&self.model, self.context, WINDOW)?).clone())
    }
}

/// A response that is being generated.
struct Response {
    stream: GenerationStream,
    text: String,
    tokens: usize,
}

impl Response {
    /// Waits for the next event, and returns the response after the last one.
    fn step(&mut self) -> Result<Option<Completion>> {
        match self.stream.next_event() {
            Some(GenerationEvent::Token { text, .. }) => {
                self.text.push_str(&text);
                self.tokens += 1;
                Ok(None)
            }
            Some(GenerationEvent::End { text, end, .. }) => {
                self.text.push_str(&text);
                match end {
                    StreamEnd::Finished(reason) => {
                        let text = std::mem::take(&mut self.text);
                        Ok(Some(Completion::new(text, reason.name(), self.tokens, None)))
                    }
                    StreamEnd::Failed(error) => Err(error),
                    _ => Err(Error::canceled("request")),
                }
            }
            Some(GenerationEvent::Prompt { .. }) => Ok(None),
            None => Err(Error::canceled("request")),
        }
    }
}

#[pymethods]
impl PyModel {
    /// Continues a text, or several in one batch; with `chat=True`, responds to messages. Each has the tokens that it would
    /// have alone.
    #[pyo3(signature = (prompts, *, chat = false, **options))]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompts: &Bound<'py, PyAny>,
        chat: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (prompts, is_list) = texts(prompts)?;
        let options = GenerationOptions::read(options)?;
        let engine = py.detach(|| self.engine()).into_py(py)?;
        let request = |prompt: &String| {
            let input = match (chat, options.generate.parse_special) {
                (true, _) => PromptInput::Messages(
                    vec![Message::new("user", prompt.as_str())],
                    options.chat.template.clone(),
                ),
                (false, true) => PromptInput::TextWithSpecialTokens(prompt.clone()),
                (false, false) => PromptInput::Text(prompt.clone()),
            };
            let stream = engine.engine.submit(engine.model, options.request(input))?;
            Ok(Response { stream, text: String::new(), tokens: 0 })
        };
        let mut waiting = prompts.iter();
        let mut running: std::collections::VecDeque<Response> = std::collections::VecDeque::new();
        let mut completions = Vec::new();
        loop {
            for prompt in waiting.by_ref().take(WINDOW - running.len()) {
                running.push_back(py.detach(|| request(prompt)).into_py(py)?);
            }
            let Some(first) = running.front_mut() else { break };
            // The others run in the same passes. Dropping them cancels them.
            py.check_signals()?;
            if let Some(completion) = py.detach(|| first.step()).into_py(py)? {
                completions.push(Bound::new(py, completion)?.into_any());
                running.pop_front();
            }
        }
        results(py, completions, is_list)
    }
}
