//! Generated text, in pieces.

use std::sync::{Mutex, OnceLock};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::completion::Completion;
use crate::errors::IntoPyResult;
use crate::locks::lock;
use crate::session::{IdleSession, Piece, PySession};

/// The pieces of a response, as they are generated. A loop that is left early ends the response there.
#[pyclass(frozen, module = "siskin", name = "TextStream")]
pub(crate) struct PyTextStream {
    session: Py<PySession>,
    turn: u64,
    /// The response, once it has ended.
    completion: OnceLock<Py<Completion>>,
    /// Where the session goes then.
    idle: Mutex<Option<IdleSession>>,
}

impl PyTextStream {
    pub(crate) fn new(session: Py<PySession>, turn: u64, idle: Option<IdleSession>) -> Self {
        Self { session, turn, completion: OnceLock::new(), idle: Mutex::new(idle) }
    }

    /// Returns the session for the next conversation.
    fn release(&self, py: Python<'_>) {
        let idle = lock(&self.idle).take();
        if let Some(idle) = idle {
            let replaced = lock(&idle).replace(self.session.clone_ref(py));
            drop(replaced);
        }
    }

    /// Ends the response where it is, without running Python code.
    fn end_turn(&self, py: Python<'_>) -> siskin::Result<Completion> {
        let session = self.session.get();
        let ended = py.detach(|| session.end_turn(self.turn));
        self.release(py);
        ended
    }

    /// Ends the response, unless it has ended.
    fn end(&self, py: Python<'_>) -> PyResult<&Py<Completion>> {
        if let Some(completion) = self.completion.get() {
            return Ok(completion);
        }
        let completion = Py::new(py, self.end_turn(py).into_py(py)?)?;
        Ok(self.completion.get_or_init(|| completion))
    }
}

#[pymethods]
impl PyTextStream {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        while self.completion.get().is_none() {
            py.check_signals()?;
            let session = self.session.get();
            let step = py.detach(|| session.step(self.turn));
            if step.is_err() {
                self.release(py);
            }
            match step.into_py(py)? {
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

    /// Ends the response, unless it has ended: what was generated so far becomes a part of the conversation.
    fn close(&self, py: Python<'_>) {
        // If another call has ended the response, nothing is left to do.
        let _ = self.end(py);
    }

    /// Generates the rest, and returns the whole response.
    fn completion(&self, py: Python<'_>) -> PyResult<Py<Completion>> {
        while self.__next__(py)?.is_some() {}
        Ok(self.end(py)?.clone_ref(py))
    }

    /// Why the response ended; `None` until it has.
    #[getter]
    fn finish_reason(&self) -> Option<&'static str> {
        Some(self.completion.get()?.get().finish_reason())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

impl Drop for PyTextStream {
    fn drop(&mut self) {
        if self.completion.get().is_none() {
            // An exception may be pending: no Python code may run.
            let _ = Python::attach(|py| self.end_turn(py));
        }
    }
}
