//! Arguments that are a text or several, and results to match.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// Returns the texts, and whether they are several.
pub(crate) fn texts(value: &Bound<'_, PyAny>) -> PyResult<(Vec<String>, bool)> {
    match value.is_instance_of::<PyString>() {
        true => Ok((vec![value.extract()?], false)),
        false => Ok((value.try_iter()?.map(|text| text?.extract()).collect::<PyResult<_>>()?, true)),
    }
}

/// Returns a list of the results, or that of the only text.
pub(crate) fn results<'py>(
    py: Python<'py>,
    mut results: Vec<Bound<'py, PyAny>>,
    is_list: bool,
) -> PyResult<Bound<'py, PyAny>> {
    match (is_list, results.pop()) {
        (false, Some(result)) => Ok(result),
        (_, last) => Ok(PyList::new(py, results.into_iter().chain(last))?.into_any()),
    }
}

/// Returns a list of dictionaries, one for each item.
pub(crate) fn dictionaries<'py, T>(
    py: Python<'py>,
    items: impl IntoIterator<Item = T>,
    fill: impl Fn(&Bound<'py, PyDict>, T) -> PyResult<()>,
) -> PyResult<Bound<'py, PyAny>> {
    let dictionary = |item| {
        let dictionary = PyDict::new(py);
        fill(&dictionary, item).map(|()| dictionary)
    };
    let all: Vec<_> = items.into_iter().map(dictionary).collect::<PyResult<_>>()?;
    Ok(PyList::new(py, all)?.into_any())
}
