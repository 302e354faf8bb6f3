//! Generated text, in pieces.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::completion::Completion;
use crate::errors::IntoPyResult;
use crate::session::{Piece, PySession};

/// The pieces of a response, as they are generated. A loop that is left early ends the response there.
#[pyclass(frozen, module = "siskin", name = "TextStream")]
pub(crate) struct PyTextStream {
    session: Py<PySession>,
    turn: u64,
    /// The response, once it has ended.
    completion: OnceLock<Py<Completion>>,
}

impl PyTextStream {
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
impl PyTextStream {
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
        Some(self.completion.get()?.get().finish_reason())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for PyTextStream {
    fn drop(&mut self) {
        if self.completion.get().is_none() {
            // Another call has ended it otherwise.
            Python::attach(|py| self.close(py)).unwrap_or_default();
        }
    }
}
