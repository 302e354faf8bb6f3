//! Python values as JSON, in which the runtime takes messages, tools and schemas.

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Returns the JSON of a value; a text is JSON already.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.is_instance_of::<PyString>() {
        true => value.extract(),
        false => value.py().import("json")?.call_method1("dumps", (value,))?.extract(),
    }
}

/// Returns the Python value of a JSON text.
pub(crate) fn from_json<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (text,))
}
