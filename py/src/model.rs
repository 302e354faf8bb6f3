//! A model, and what all models have.

use std::sync::Mutex;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siskin::speech::Transcriber;
use siskin::tokenizer::{DecodeOptions, EncodeOptions};
use siskin::{CancelHandle, Encoder, Error, ErrorKind, Model, Result, Seq2Seq, Session, SessionOptions};

use crate::errors::IntoPyResult;
use crate::generation_options::GenerationOptions;
use crate::interrupt;
use crate::locks::lock;
use crate::model_engine::ModelEngine;
use crate::responses::{messages, respond};
use crate::session::{IdleSession, PySession, ResponsePrompt};

/// An open model. Which of its methods work depends on what it was trained for.
#[pyclass(frozen, module = "siskin", name = "Model")]
pub(crate) struct PyModel {
    pub(crate) model: Model,
    name: String,
    /// The maximum length of sessions; 0: the default.
    pub(crate) context: usize,
    pub(crate) encoder: Slot<Encoder>,
    pub(crate) classifier: Slot<Encoder>,
    pub(crate) seq2seq: Slot<Seq2Seq>,
    pub(crate) transcriber: Slot<Transcriber>,
    pub(crate) engine: Mutex<Option<ModelEngine>>,
    scorer: Slot<Session>,
    /// The session of `chat`, whose KV cache the next conversation may continue.
    chat: IdleSession,
}

/// A runner that is created when it is first used.
pub(crate) struct Slot<T> {
    runner: Mutex<Option<T>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { runner: Mutex::new(None) }
    }
}

impl<T: Send> Slot<T> {
    /// Runs `work` with the runner, without the GIL; Ctrl-C cancels it by the handle that `cancel` returns.
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        create: impl FnOnce() -> Result<T> + Send,
        cancel: fn(&T) -> CancelHandle,
        work: impl FnOnce(&mut T) -> Result<R> + Send,
    ) -> PyResult<R> {
        let prepare = |slot: &mut Option<T>| {
            Ok(cancel(match slot {
                Some(runner) => runner,
                empty => empty.insert(create()?),
            }))
        };
        interrupt::run_locked(py, &self.runner, prepare, |slot| match slot {
            Some(runner) => work(runner),
            // `prepare` has created it.
            None => Err(Error::canceled("call")),
        })
    }
}

impl PyModel {
    pub(crate) fn new(model: Model, name: String, context: usize) -> Self {
        Self {
            model,
            name,
            context,
            encoder: Slot::default(),
            classifier: Slot::default(),
            seq2seq: Slot::default(),
            transcriber: Slot::default(),
            engine: Mutex::new(None),
            scorer: Slot::default(),
            chat: IdleSession::default(),
        }
    }

    fn session_options(&self) -> SessionOptions {
        SessionOptions { context: self.context, ..SessionOptions::default() }
    }

    /// Takes the session of `chat`, or a new one while that is in use.
    fn chat_session<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySession>> {
        let idle = lock(&self.chat).take();
        if let Some(session) = idle {
            return Ok(session.into_bound(py));
        }
        let session = py.detach(|| self.model.session(self.session_options())).into_py(py)?;
        Bound::new(py, PySession::new(session, 0))
    }

    fn score<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Session) -> Result<T> + Send,
    ) -> PyResult<T> {
        let create = || self.model.session(self.session_options());
        self.scorer.run(py, create, Session::cancel_handle, work)
    }
}

#[pymethods]
impl PyModel {
    /// Responds to a message, or to a conversation in OpenAI's form. What it has in common with the conversation before is not
    /// recomputed. With `stream=True`, returns an iterator over pieces of text.
    #[pyo3(signature = (messages, *, system = None, stream = false, **options))]
    fn chat(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        system: Option<&str>,
        stream: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let options = GenerationOptions::read(options)?;
        let conversation = ResponsePrompt::Conversation(self::messages(messages, system)?);
        respond(&self.chat_session(py)?, options, conversation, (stream, Some(&self.chat)))
    }

    /// Returns a session: a conversation that grows. `forks` is how many forks of it can exist at the same time.
    #[pyo3(signature = (*, system = None, context = None, forks = 1))]
    fn session(
        &self,
        py: Python<'_>,
        system: Option<&str>,
        context: Option<usize>,
        forks: usize,
    ) -> PyResult<PySession> {
        let context = context.unwrap_or(self.context);
        let options = SessionOptions { context, forks, ..SessionOptions::default() };
        let mut session = py.detach(|| self.model.session(options)).into_py(py)?;
        if let Some(system) = system {
            session.add_message("system", system);
        }
        Ok(PySession::new(session, forks))
    }

    /// The tokens of a text.
    #[pyo3(signature = (text, *, add_special_tokens = true, parse_special = false))]
    fn encode(
        &self,
        py: Python<'_>,
        text: &str,
        add_special_tokens: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let options = EncodeOptions { add_special: add_special_tokens, parse_special };
        py.detach(|| self.model.tokenizer()?.encode(text, options)).into_py(py)
    }

    /// The text of tokens.
    #[pyo3(signature = (tokens, *, skip_special_tokens = true))]
    fn decode(&self, py: Python<'_>, tokens: Vec<u32>, skip_special_tokens: bool) -> PyResult<String> {
        let options = DecodeOptions { skip_special: skip_special_tokens };
        let bytes = py.detach(|| self.model.tokenizer()?.decode(&tokens, options)).into_py(py)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The logits after each token, in the rows of an array.
    fn logits<'py>(&self, py: Python<'py>, tokens: Vec<u32>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let columns = self.model.config().vocabulary;
        let flat = self.score(py, |session| {
            session.reset();
            let length = session.context_length();
            if tokens.len() > length {
                let message = format!("{} tokens exceed the context of {length}", tokens.len());
                return Err(Error::new(ErrorKind::TooLong, "tokens", message));
            }
            let (mut flat, count) = (Vec::new(), tokens.len().saturating_mul(columns));
            flat.try_reserve_exact(count).map_err(|_| {
                Error::new(ErrorKind::Memory, "tokens", format!("cannot allocate {count} logits"))
            })?;
            session.score(&tokens, &mut |_, logits| flat.extend_from_slice(logits))?;
            Ok(flat)
        })?;
        PyArray1::from_vec(py, flat).reshape([tokens.len(), columns])
    }

    /// The log-likelihood of a continuation after a context, and whether greedy decoding would generate it. Both are texts, or
    /// both are lists of tokens.
    fn log_likelihood(
        &self,
        py: Python<'_>,
        context: &Bound<'_, PyAny>,
        continuation: &Bound<'_, PyAny>,
    ) -> PyResult<(f64, bool)> {
        let pair = match (context.extract::<String>(), continuation.extract::<String>()) {
            (Ok(context), Ok(continuation)) => self.split(&context, &continuation).into_py(py)?,
            _ => (context.extract()?, continuation.extract()?),
        };
        let scores = self.log_likelihoods(py, vec![pair])?;
        Ok(scores.first().copied().unwrap_or((0.0, true)))
    }

    /// The same for many pairs of lists of tokens, in order. Shared prefixes are computed once.
    fn log_likelihoods(
        &self,
        py: Python<'_>,
        pairs: Vec<(Vec<u32>, Vec<u32>)>,
    ) -> PyResult<Vec<(f64, bool)>> {
        let vocabulary = self.model.config().vocabulary;
        self.score(py, |session| crate::score::log_likelihoods(session, &pairs, vocabulary))
    }

    /// The name that it was loaded by.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Its family, such as `llama` or `bert`.
    #[getter]
    fn family(&self) -> &'static str {
        self.model.family()
    }

    /// The number of threads that compute.
    #[getter]
    fn threads(&self) -> usize {
        self.model.threads()
    }

    /// The context that it was trained for, in tokens.
    #[getter]
    fn context_length(&self) -> usize {
        self.model.config().context
    }

    /// The size of its vocabulary.
    #[getter]
    fn vocabulary_size(&self) -> usize {
        self.model.config().vocabulary
    }

    /// The length of an embedding.
    #[getter]
    fn embedding_dimensions(&self) -> usize {
        self.model.config().width
    }

    /// The token that begins a text (BOS), if the tokenizer has one.
    #[getter]
    fn bos_token(&self) -> Option<u32> {
        self.model.tokenizer().ok()?.bos()
    }

    /// The token that ends a text (EOS), if the tokenizer has one.
    #[getter]
    fn eos_token(&self) -> Option<u32> {
        self.model.tokenizer().ok()?.eos()
    }

    /// All tokens that end a text.
    #[getter]
    fn end_tokens(&self) -> Vec<u32> {
        self.model.end_ids().to_vec()
    }

    /// The kernels in use.
    #[getter]
    fn kernels(&self) -> Vec<&'static str> {
        self.model.kernels()
    }

    /// Remarks about the model, such as parts of it that are not supported.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.model.notes().to_vec()
    }

    fn __repr__(&self) -> String {
        format!("<siskin.Model {:?}, family {:?}>", self.name, self.family())
    }
}

impl PyModel {
    /// Returns the tokens that a context and the same with its continuation begin with, and the others of the latter.
    fn split(&self, context: &str, continuation: &str) -> Result<(Vec<u32>, Vec<u32>)> {
        let tokenizer = self.model.tokenizer()?;
        let options = EncodeOptions { add_special: true, parse_special: false };
        let before = tokenizer.encode(context, options)?;
        let mut all = tokenizer.encode(&format!("{context}{continuation}"), options)?;
        let shared = before.iter().zip(&all).take_while(|(a, b)| a == b).count();
        let rest = all.split_off(shared);
        Ok((all, rest))
    }
}
