//! Many prompts at once: continuous batching.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use siskin::chat::MessageReader;
use siskin::serving::{GenerationEvent, GenerationStream, PromptInput, RequestCanceler, StreamEnd};
use siskin::template::Message;
use siskin::{CancelHandle, Error, Result};

use crate::completion::Completion;
use crate::generation_options::GenerationOptions;
use crate::interrupt;
use crate::locks::lock;
use crate::model::PyModel;
use crate::model_engine::ModelEngine;
use crate::texts::results;

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
    /// Splits the text of a chat.
    reader: Option<MessageReader>,
}

impl Response {
    /// Waits for the end.
    fn complete(mut self) -> Result<Completion> {
        loop {
            match self.stream.next_event() {
                Some(GenerationEvent::Token { text, .. }) => {
                    self.push(&text);
                    self.tokens += 1;
                }
                Some(GenerationEvent::End { text, end, .. }) => {
                    self.push(&text);
                    return match end {
                        StreamEnd::Finished(reason) => Ok(self.completion(reason.name())),
                        StreamEnd::Failed(error) => Err(error),
                        _ => Err(Error::canceled("request")),
                    };
                }
                Some(GenerationEvent::Prompt { .. }) => {}
                None => return Err(Error::canceled("request")),
            }
        }
    }

    fn push(&mut self, text: &str) {
        match &mut self.reader {
            Some(reader) => reader.push(text, &mut |_| {}),
            None => self.text.push_str(text),
        }
    }

    fn completion(self, finish_reason: &'static str) -> Completion {
        let message = self.reader.map(|mut reader| {
            reader.finish(&mut |_| {});
            reader.message().clone()
        });
        let text = message.as_ref().map_or(self.text, |message| message.text().into_owned());
        Completion::new(text, finish_reason, self.tokens, message)
    }
}

/// A prompt of a batch.
enum BatchPrompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// Returns the prompts, each a text or tokens, and whether they are several.
fn batch_prompts(value: &Bound<'_, PyAny>) -> PyResult<(Vec<BatchPrompt>, bool)> {
    if value.is_instance_of::<PyString>() {
        return Ok((vec![BatchPrompt::Text(value.extract()?)], false));
    }
    let prompt = |prompt: Bound<'_, PyAny>| match prompt.is_instance_of::<PyString>() {
        true => Ok(BatchPrompt::Text(prompt.extract()?)),
        false => Ok(BatchPrompt::Tokens(prompt.extract()?)),
    };
    Ok((value.try_iter()?.map(|item| prompt(item?)).collect::<PyResult<_>>()?, true))
}

impl PyModel {
    fn submit(
        &self,
        engine: &ModelEngine,
        prompt: BatchPrompt,
        options: &GenerationOptions,
        is_chat: bool,
    ) -> Result<Response> {
        let mut reader = None;
        let request = match (prompt, is_chat) {
            (BatchPrompt::Tokens(tokens), _) => options.request(PromptInput::Tokens(tokens)),
            (BatchPrompt::Text(text), true) => {
                let chat = self.model.chat(&[Message::new("user", text)], &options.chat)?;
                reader = Some(MessageReader::new(chat.parser()));
                let mut request = options.request(PromptInput::Tokens(Vec::new()));
                request.set_chat(&chat);
                request
            }
            (BatchPrompt::Text(text), false) if options.generate.parse_special => {
                options.request(PromptInput::TextWithSpecialTokens(text))
            }
            (BatchPrompt::Text(text), false) => options.request(PromptInput::Text(text)),
        };
        let stream = engine.engine.submit(engine.model, request)?;
        Ok(Response { stream, text: String::new(), tokens: 0, reader })
    }
}

#[pymethods]
impl PyModel {
    /// Continues a text, or several in one batch, each a text or a list of tokens; with `chat=True`, responds to messages. The
    /// tokens of each are independent of the batch.
    #[pyo3(signature = (prompts, *, chat = false, **options))]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompts: &Bound<'py, PyAny>,
        chat: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (prompts, is_list) = batch_prompts(prompts)?;
        let options = GenerationOptions::read(options)?;
        if !chat {
            options.reject_chat_options("only for chats; pass chat=True")?;
        }
        let running: Arc<Mutex<Vec<RequestCanceler>>> = Arc::default();
        let cancelers = Arc::clone(&running);
        let cancel = CancelHandle::with_notify(Arc::new(move || {
            lock(&cancelers).iter().for_each(RequestCanceler::cancel);
        }));
        let work = || {
            let engine = self.engine()?;
            let (mut waiting, mut completions) = (prompts.into_iter(), Vec::new());
            let mut responses = VecDeque::new();
            loop {
                for prompt in waiting.by_ref().take(WINDOW - responses.len()) {
                    let response = self.submit(&engine, prompt, &options, chat)?;
                    lock(&running).push(response.stream.handle().canceler());
                    responses.push_back(response);
                }
                if cancel.is_canceled() {
                    return Err(Error::canceled("generate"));
                }
                // The others run in the same passes.
                let Some(first) = responses.pop_front() else { return Ok(completions) };
                completions.push(first.complete()?);
                lock(&running).remove(0);
            }
        };
        let completions: Vec<Completion> = interrupt::run(py, &cancel, work)?;
        let objects = completions.into_iter().map(|done| Ok(Bound::new(py, done)?.into_any()));
        results(py, objects.collect::<PyResult<_>>()?, is_list)
    }
}
