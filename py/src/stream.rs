//! Generated text, in pieces or whole.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use siskin::template::Message;

use crate::errors::IntoPyResult;
use crate::json::from_json;
use crate::session::{Piece, PySession};

/// The response to a prompt.
#[pyclass(frozen, module = "siskin")]
pub(crate) struct Completion {
    /// The text.
    #[pyo3(get)]
    text: String,
    /// Why it ended: `eos`, `stop`, `length` or `context`.
    #[pyo3(get)]
    finish_reason: &'static str,
    /// The number of generated tokens.
    #[pyo3(get)]
    tokens: usize,
    message: Message,
}

impl Completion {
    pub(crate) fn new(
        text: String,
        finish_reason: &'static str,
        tokens: usize,
        message: Option<Message>,
    ) -> Self {
        let message = message.unwrap_or_else(|| Message::new("assistant", text.as_str()));
        Self { text, finish_reason, tokens, message }
    }
}

#[pymethods]
impl Completion {
    /// What the model thought before it responded; `None` if it did not.
    #[getter]
    fn reasoning(&self) -> Option<&str> {
        self.message.reasoning_content.as_deref()
    }

    /// The assistant's message in OpenAI's form, with its tool calls.
    #[getter]
    fn message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.message.to_json().to_string())
    }

    /// The tool calls in OpenAI's form.
    #[getter]
    fn tool_calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.message(py)?.call_method1("get", ("tool_calls", PyList::empty(py)))
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        let Self { text, finish_reason, tokens, .. } = self;
        format!("Completion(text={text:?}, finish_reason={finish_reason:?}, tokens={tokens})")
    }
}

/// The pieces of a response, as they are generated. A loop that is left early ends the response there.
#[pyclass(frozen, module = "siskin")]
pub(crate) struct TextStream {
    session: Py<PySession>,
    turn: u64,
    /// The response, once it has ended.
    completion: OnceLock<Py<Completion>>,
}

impl TextStream {
    pub(crate) fn new(session: Py<PySession>, turn: u64) -> Self {
        Self { session, turn, completion: OnceLock::new() }
    }

    /// Ends the response, unless it has ended.
    fn end(&self, py: Python<'_>) -> PyResult<&Py<Completion>> {
        if let Some(completion) = self.completion.get() {
            return Ok(completion);
        }
        let session = self.session.get();
        let completion = py.detach(|| session.end_turn(self.turn)).into_py(py)?;
        let completion = Py::new(py, completion)?;
        Ok(self.completion.get_or_init(|| completion))
    }
}

#[pymethods]
impl TextStream {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        while self.completion.get().is_none() {
            py.check_signals()?;
            let session = self.session.get();
            match py.detach(|| session.step(self.turn)).into_py(py)? {
                Piece::Text(text) if text.is_empty() => {}
                Piece::Text(text) => return Ok(Some(text)),
                Piece::End(text) => {
                    self.end(py)?;
                    return Ok(Some(text).filter(|text| !text.is_empty()));
                }
            }
        }
        Ok(None)
    }

    /// Ends the response: what was generated so far becomes a part of the conversation.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py).map(drop)
    }

    /// Generates the rest, and returns the whole response.
    fn completion(&self, py: Python<'_>) -> PyResult<Py<Completion>> {
        while self.__next__(py)?.is_some() {}
        Ok(self.end(py)?.clone_ref(py))
    }

    /// Why the response ended; `None` until it has.
    #[getter]
    fn finish_reason(&self) -> Option<&'static str> {
        Some(self.completion.get()?.get().finish_reason)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for TextStream {
    fn drop(&mut self) {
        if self.completion.get().is_none() {
            // Another call has ended it otherwise.
            Python::attach(|py| self.close(py)).unwrap_or_default();
        }
    }
}
