//! Responses of sessions, as streams or whole.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use siskin::template::Message;

use crate::errors::IntoPyResult;
use crate::generation_options::GenerationOptions;
use crate::json::to_json;
use crate::session::{IdleSession, PySession, ResponsePrompt};
use crate::stream::PyTextStream;

/// Returns the messages of a conversation: a text is that of the user.
pub(crate) fn messages(prompt: &Bound<'_, PyAny>, system: Option<&str>) -> PyResult<Vec<Message>> {
    let mut messages: Vec<Message> = system.map(|text| Message::new("system", text)).into_iter().collect();
    if prompt.is_instance_of::<PyString>() {
        messages.push(Message::new("user", prompt.extract::<String>()?));
        return Ok(messages);
    }
    if prompt.is_instance_of::<PyDict>() || prompt.try_iter().is_err() {
        return Err(PyTypeError::new_err("messages: expected a text or a list of messages"));
    }
    let json = to_json(prompt)?;
    messages.extend(Message::list_from_json("messages", &json).into_py(prompt.py())?);
    Ok(messages)
}

/// Returns a stream, or the whole response. After it, the session is `idle`, if that is given.
pub(crate) fn respond(
    session: &Bound<'_, PySession>,
    options: GenerationOptions,
    prompt: ResponsePrompt,
    (stream, idle): (bool, Option<&IdleSession>),
) -> PyResult<Py<PyAny>> {
    let py = session.py();
    let turn = session.get().begin(py, options, prompt)?;
    let pieces = Bound::new(py, PyTextStream::new(session.clone().unbind(), turn, idle.cloned()))?;
    match stream {
        true => Ok(pieces.into_any().unbind()),
        false => Ok(pieces.call_method0("completion")?.unbind()),
    }
}

#[pymethods]
impl PySession {
    /// Responds to the next message of the conversation; with `raw=True`, continues a text.
    #[pyo3(signature = (prompt, *, stream = false, raw = false, **options))]
    fn ask(
        this: &Bound<'_, Self>,
        prompt: String,
        stream: bool,
        raw: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let mut options = GenerationOptions::read(options)?;
        options.generate.raw = raw;
        options.reject_chat_options("need the whole conversation; use `chat`")?;
        respond(this, options, ResponsePrompt::Next(prompt), (stream, None))
    }

    /// Responds to a whole conversation, which replaces that of the session. What both begin with is not recomputed.
    #[pyo3(signature = (messages, *, stream = false, **options))]
    fn chat(
        this: &Bound<'_, Self>,
        messages: &Bound<'_, PyAny>,
        stream: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let conversation = ResponsePrompt::Conversation(self::messages(messages, None)?);
        respond(this, GenerationOptions::read(options)?, conversation, (stream, None))
    }
}
