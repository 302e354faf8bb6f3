//! Errors as Python exceptions: the classes of `siskin._errors`, with the kind's number, the location and the message.

use pyo3::prelude::*;
use siskin::Error;

/// Returns the exception for an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let create = || {
        let create = py.import("siskin._errors")?.getattr("of_code")?;
        create.call1((error.kind().code(), error.location(), error.message()))
    };
    create().map_or_else(|failure| failure, PyErr::from_value)
}

/// Converts the error of a result.
pub(crate) trait IntoPyResult<T> {
    fn into_py(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPyResult<T> for siskin::Result<T> {
    fn into_py(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
