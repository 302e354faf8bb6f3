//! Python values as JSON, in which the runtime takes messages, tools and schemas.

use pyo3::prelude::*;

/// Returns the JSON of a value, or the value itself if it is a text.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.extract() {
        Ok(text) => Ok(text),
        Err(_) => value.py().import("json")?.call_method1("dumps", (value,))?.extract(),
    }
}

/// Returns the Python value of a JSON text.
pub(crate) fn from_json<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (text,))
}
