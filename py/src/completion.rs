//! Responses that are complete.

use pyo3::prelude::*;
use pyo3::types::PyList;
use siskin::template::Message;

use crate::json::from_json;

/// The response to a prompt.
#[pyclass(frozen, module = "siskin")]
pub(crate) struct Completion {
    /// The text.
    #[pyo3(get)]
    text: String,
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
    /// Why it ended: `eos`, `stop`, `length`, `context`, or `canceled` if its stream was closed.
    #[getter]
    pub(crate) fn finish_reason(&self) -> &'static str {
        self.finish_reason
    }

    /// The reasoning before the answer, if there is any.
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
