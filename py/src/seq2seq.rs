//! Translation, summarization and other text-to-text tasks.

use pyo3::prelude::*;
use siskin::{Result, Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions};

use crate::errors::IntoPyResult;
use crate::model::PyModel;
use crate::texts::{results, texts};

impl PyModel {
    fn write<'py>(
        &self,
        py: Python<'py>,
        sources: &Bound<'py, PyAny>,
        options: Result<Seq2SeqGenerateOptions>,
        (beams, max_tokens): (Option<usize>, Option<usize>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let (texts, is_list) = texts(sources)?;
        let mut options = options.into_py(py)?;
        options.search.beams = beams.unwrap_or(options.search.beams);
        options.search.max_tokens = max_tokens.unwrap_or(options.search.max_tokens);
        let create =
            || self.model.seq2seq(Seq2SeqOptions { context: self.context, ..Seq2SeqOptions::default() });
        let generated = self
            .seq2seq
            .run(py, create, Seq2Seq::cancel_handle, |runner| runner.generate(&texts, &options))?;
        let best = generated.into_iter().map(|candidates| {
            let text = candidates.into_iter().next().map(|candidate| candidate.text).unwrap_or_default();
            Ok(text.into_pyobject(py)?.into_any())
        });
        results(py, best.collect::<PyResult<_>>()?, is_list)
    }
}

#[pymethods]
impl PyModel {
    /// Translates a text or several. Models of one direction need no languages.
    #[pyo3(signature = (texts, source = None, target = None, *, beams = None, max_tokens = None))]
    fn translate<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        source: Option<&str>,
        target: Option<&str>,
        beams: Option<usize>,
        max_tokens: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Seq2SeqGenerateOptions::translation(&self.model, source, target);
        self.write(py, texts, options, (beams, max_tokens))
    }

    /// Summarizes a text or several.
    #[pyo3(signature = (texts, *, beams = None, max_tokens = None))]
    fn summarize<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        beams: Option<usize>,
        max_tokens: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Seq2SeqGenerateOptions::summary(&self.model);
        self.write(py, texts, options, (beams, max_tokens))
    }

    /// Generates a text for a source text or several, with the options of the model's generation config.
    #[pyo3(signature = (texts, *, beams = None, max_tokens = None))]
    fn text_to_text<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        beams: Option<usize>,
        max_tokens: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Seq2SeqGenerateOptions::of(&self.model);
        self.write(py, texts, options, (beams, max_tokens))
    }
}
