//! Conversations and texts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use numpy::PyArray1;
use pyo3::prelude::*;
use siskin::chat::{MessageReader, ResponseEvent};
use siskin::constraint::StructuredOutput;
use siskin::template::Message;
use siskin::{CancelHandle, Error, ErrorKind, GenerateOptions, Generation, Result, Session};

use crate::completion::Completion;
use crate::errors::exception;
use crate::generation_options::GenerationOptions;
use crate::interrupt;
use crate::json::from_json;
use crate::locks::lock;

/// A conversation or a text, with its KV cache.
#[pyclass(frozen, module = "siskin", name = "Session")]
pub(crate) struct PySession {
    state: Mutex<SessionState>,
    cancel: CancelHandle,
    forks: Arc<Forks>,
    is_fork: bool,
}

/// A session between two conversations.
pub(crate) type IdleSession = Arc<Mutex<Option<Py<PySession>>>>;

/// The forks of a session.
struct Forks {
    /// How many the KV cache has room for.
    limit: usize,
    count: AtomicUsize,
}

impl Drop for PySession {
    fn drop(&mut self) {
        if self.is_fork {
            self.forks.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

struct SessionState {
    session: Session,
    /// The response that was begun last.
    turn: Option<Turn>,
    turns: u64,
}

/// A response.
struct Turn {
    number: u64,
    /// `None` after its end.
    generation: Option<Generation>,
    reader: Option<MessageReader>,
    text: String,
    finish_reason: Option<&'static str>,
    tokens: usize,
}

/// A piece of a response.
pub(crate) enum Piece {
    /// The next text, which may be empty.
    Text(String),
    /// The last text.
    End(String),
}

impl PySession {
    /// Creates a session that was opened for a number of forks.
    pub(crate) fn new(session: Session, forks: usize) -> Self {
        let forks = Arc::new(Forks { limit: forks, count: AtomicUsize::new(0) });
        Self::with_forks(session, forks, false)
    }

    fn with_forks(session: Session, forks: Arc<Forks>, is_fork: bool) -> Self {
        let cancel = session.cancel_handle();
        let state = Mutex::new(SessionState { session, turn: None, turns: 0 });
        Self { state, cancel, forks, is_fork }
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        lock(&self.state)
    }

    fn run_state<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut SessionState) -> Result<T> + Send,
    ) -> PyResult<T> {
        interrupt::run_locked(py, &self.state, |state| Ok(state.session.cancel_handle()), work)
    }

    /// Runs `work`. A response that is being generated ends before.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Session) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.run_state(py, |state| {
            state.end_turn();
            state.turn = None;
            work(&mut state.session)
        })
    }

    /// Begins a response.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        options: GenerationOptions,
        prompt: ResponsePrompt,
    ) -> PyResult<u64> {
        self.run_state(py, |state| state.begin(options, prompt))
    }

    /// Generates the next piece of a response.
    pub(crate) fn step(&self, turn: u64) -> Result<Piece> {
        self.lock().step(turn)
    }

    /// Ends a response where it is, unless it has ended, and returns it.
    pub(crate) fn end_turn(&self, turn: u64) -> Result<Completion> {
        let mut state = self.lock();
        state.turn_of(turn)?;
        state.end_turn();
        state.completion(turn)
    }
}

/// What a response is to.
pub(crate) enum ResponsePrompt {
    /// The next message of the session's conversation, or with `raw`, text to continue.
    Next(String),
    /// A whole conversation.
    Conversation(Vec<Message>),
}

impl SessionState {
    fn begin(&mut self, options: GenerationOptions, prompt: ResponsePrompt) -> Result<u64> {
        self.end_turn();
        let GenerationOptions { sampler, generate, stop, chat, structured_output, .. } = options;
        let breakers = siskin::SessionOptions::default().dry_breakers;
        self.session.set_sampler(sampler, breakers)?;
        self.session.set_stop(stop)?;
        let (generation, reader) = match prompt {
            ResponsePrompt::Conversation(messages) => {
                let (generation, parser) = self.session.chat(&messages, &chat, generate)?;
                (generation, Some(MessageReader::new(parser)))
            }
            ResponsePrompt::Next(text) => {
                self.session.set_template_options(chat.template);
                (self.next(&text, generate, structured_output.as_ref())?, None)
            }
        };
        self.turns += 1;
        self.turn = Some(Turn {
            number: self.turns,
            generation: Some(generation),
            reader,
            text: String::new(),
            finish_reason: None,
            tokens: 0,
        });
        Ok(self.turns)
    }

    fn next(
        &mut self,
        text: &str,
        options: GenerateOptions,
        structured_output: Option<&StructuredOutput>,
    ) -> Result<Generation> {
        self.session.set_structured_output(structured_output)?;
        self.session.begin(text, options)
    }

    fn turn_of(&mut self, number: u64) -> Result<&mut Turn> {
        let turn = self.turn.as_mut().filter(|turn| turn.number == number);
        turn.ok_or_else(|| {
            let message = "another call has used the session, which ended this response";
            Error::new(ErrorKind::State, "stream", message)
        })
    }

    fn step(&mut self, number: u64) -> Result<Piece> {
        self.turn_of(number)?;
        let Self { session, turn: Some(turn), .. } = self else { return Ok(Piece::End(String::new())) };
        let Some(generation) = &mut turn.generation else { return Ok(Piece::End(String::new())) };
        let mut text = String::new();
        let step = match generation.step(session, &mut text) {
            Ok(step) => step,
            Err(error) => {
                self.end_turn();
                return Err(error);
            }
        };
        turn.tokens = generation.tokens();
        let content = turn.read(&text);
        if step.is_some() {
            return Ok(Piece::Text(content));
        }
        turn.finish_reason = generation_end(turn.generation.as_ref());
        let rest = turn.finish(session);
        Ok(Piece::End(content + &rest))
    }

    fn completion(&mut self, number: u64) -> Result<Completion> {
        let turn = self.turn_of(number)?;
        let message = turn.reader.as_ref().map(|reader| reader.message().clone());
        let finish_reason = turn.finish_reason.unwrap_or("canceled");
        Ok(Completion::new(turn.text.clone(), finish_reason, turn.tokens, message))
    }

    /// Ends the response that was begun last, unless it has ended.
    fn end_turn(&mut self) {
        let Self { session, turn: Some(turn), .. } = self else { return };
        let mut text = String::new();
        if let Some(generation) = &mut turn.generation {
            generation.rest(&mut text);
            turn.read(&text);
            turn.finish(session);
        }
    }
}

fn generation_end(generation: Option<&Generation>) -> Option<&'static str> {
    Some(generation?.finish_reason()?.name())
}

impl Turn {
    /// Reads generated text, and returns the part of it that is content.
    fn read(&mut self, text: &str) -> String {
        self.take(|reader, each| reader.push(text, each)).unwrap_or_else(|| {
            self.text.push_str(text);
            text.to_owned()
        })
    }

    /// Leaves the response in the session as the assistant's message. Returns content that was held back.
    fn finish(&mut self, session: &mut Session) -> String {
        if let Some(generation) = self.generation.take() {
            generation.finish(session);
        }
        self.take(|reader, each| reader.finish(each)).unwrap_or_default()
    }

    /// Returns the content among the events of the reader; `None` without one.
    fn take(
        &mut self,
        read: impl FnOnce(&mut MessageReader, &mut dyn FnMut(&ResponseEvent)),
    ) -> Option<String> {
        let mut content = String::new();
        let reader = self.reader.as_mut()?;
        read(reader, &mut |event| {
            if let ResponseEvent::Content(text) = event {
                content.push_str(text);
            }
        });
        self.text.push_str(&content);
        Some(content)
    }
}

#[pymethods]
impl PySession {
    /// Adds a message to the conversation, such as the system's.
    fn add_message(&self, py: Python<'_>, role: &str, content: &str) -> PyResult<()> {
        self.run(py, |session| {
            session.add_message(role, content);
            Ok(())
        })
    }

    /// The messages of the conversation, in OpenAI's form.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let list = |state: &mut SessionState| {
            Ok(state.session.messages().map(|message| message.to_json().to_string()).collect::<Vec<_>>())
        };
        self.run_state(py, list)?.iter().map(|message| from_json(py, message)).collect()
    }

    /// Appends tokens.
    fn prefill(&self, py: Python<'_>, tokens: Vec<u32>) -> PyResult<()> {
        self.run(py, |session| session.prefill(&tokens))
    }

    /// The logits after the last token.
    fn logits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let logits = self.run(py, |session| match session.position() {
            0 => Err(Error::new(ErrorKind::State, "logits", "the session has no tokens; prefill some first")),
            _ => Ok(session.logits().to_vec()),
        })?;
        Ok(PyArray1::from_vec(py, logits))
    }

    /// Appends a text, and returns its log-likelihood given what is there, and the number of its tokens.
    #[pyo3(signature = (text, *, parse_special = false))]
    fn log_likelihood(&self, py: Python<'_>, text: &str, parse_special: bool) -> PyResult<(f64, usize)> {
        let score = self.run(py, |session| session.score_text(text, parse_special))?;
        Ok((score.log_probability, score.tokens))
    }

    /// Returns a session with the same conversation, which shares the KV cache of what both have in common. A session has as
    /// many forks as it was opened for.
    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let Forks { limit, ref count } = *self.forks;
        let add = |forks: usize| (forks < limit).then_some(forks + 1);
        if count.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_err() {
            let message = format!("the session was opened for {limit} forks; open it with a larger `forks`");
            return Err(exception(py, &Error::new(ErrorKind::State, "fork", message)));
        }
        match self.run(py, |session| session.fork()) {
            Ok(session) => Ok(Self::with_forks(session, Arc::clone(&self.forks), true)),
            Err(error) => {
                count.fetch_sub(1, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    /// Removes all tokens and messages.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |session| {
            session.reset();
            Ok(())
        })
    }

    /// Removes all but the first tokens, and all messages. The logits are those after the last token that is left.
    fn truncate(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        self.run(py, |session| session.rewind(length))
    }

    /// Writes the session to a file, with its KV cache.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |session| session.save_to(path))
    }

    /// Reads a session that was saved with the same model and options.
    fn restore(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |session| session.restore_from(path))
    }

    /// Ends a response that is being generated, or a call that another thread is in. Without one, it has no effect.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// The number of tokens.
    #[getter]
    fn position(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().session.position())
    }

    /// The maximum number of tokens.
    #[getter]
    fn context_length(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().session.context_length())
    }
}
