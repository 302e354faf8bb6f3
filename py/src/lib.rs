//! The Python package `siskin`, distributed as `siskin-ai`: the classes and functions of its module `_siskin`.
//!
//! Calls that compute release the GIL, and end when Ctrl-C is pressed: within a token while text is generated, and within
//! a batch otherwise.

mod completion;
mod encoder;
mod engine;
mod errors;
mod generation_options;
mod interrupt;
mod json;
mod locks;
mod model;
mod model_engine;
mod open;
mod progress;
mod responses;
mod score;
mod seq2seq;
mod session;
mod speech;
mod stream;
mod texts;
mod train;

use pyo3::prelude::*;

/// The compiled part of the package.
#[pymodule(gil_used = false)]
fn _siskin(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::PyModel>()?;
    module.add_class::<session::PySession>()?;
    module.add_class::<stream::PyTextStream>()?;
    module.add_class::<completion::Completion>()?;
    module.add_function(wrap_pyfunction!(open::load, module)?)?;
    module.add_function(wrap_pyfunction!(open::pull, module)?)?;
    module.add_function(wrap_pyfunction!(open::convert, module)?)?;
    module.add_function(wrap_pyfunction!(train::train, module)?)
}
