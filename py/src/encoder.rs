//! Embeddings, classes, entities, rankings, answers and masked words.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siskin::encoder::{EmbedOptions, MaskPrediction, OverflowMode, Prompt};
use siskin::{Encoder, EncoderOptions, Error, Result};

use crate::errors::IntoPyResult;
use crate::model::PyModel;
use crate::texts::{dictionaries, results};

/// The tokens that windows of long texts have in common.
const OVERLAP: usize = 64;

fn overflow(name: &str) -> Result<OverflowMode> {
    match name {
        "error" => Ok(OverflowMode::Error),
        "truncate" => Ok(OverflowMode::Truncate),
        "window" => Ok(OverflowMode::Window { overlap: OVERLAP }),
        other => {
            let message = format!("unknown mode `{other}`; expected error, truncate or window");
            Err(Error::argument("overflow", message))
        }
    }
}

impl PyModel {
    /// Runs `work` with the encoder: for embeddings without a head, which the model may have.
    fn run_encoder<T: Send>(
        &self,
        py: Python<'_>,
        with_head: bool,
        work: impl FnOnce(&mut Encoder) -> Result<T> + Send,
    ) -> PyResult<T> {
        let slot = if with_head { &self.classifier } else { &self.encoder };
        let options = EncoderOptions { head: with_head, ..EncoderOptions::default() };
        slot.run(py, || self.model.encoder(options), Encoder::cancel_handle, work)
    }

    /// Returns a prompt by its name, which is empty for none.
    fn prompt(&self, name: &str) -> Result<Prompt> {
        match name {
            "" => Ok(Prompt::None),
            name => Prompt::named(&self.model, name),
        }
    }
}

#[pymethods]
impl PyModel {
    /// Returns the embedding of a text, or the embeddings of several in the rows of an array. `prompt` is the name of one of
    /// the model's prompts, or empty for none.
    #[pyo3(signature = (texts, *, normalize = None, prompt = None, dimensions = 0, overflow = "error"))]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        normalize: Option<bool>,
        prompt: Option<&str>,
        dimensions: usize,
        overflow: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (texts, is_list) = crate::texts::texts(texts)?;
        let default = EmbedOptions::of(&self.model).into_py(py)?;
        let options = EmbedOptions {
            normalize: normalize.unwrap_or(default.normalize),
            dimensions,
            overflow: self::overflow(overflow).into_py(py)?,
            prompt: prompt.map_or(Ok(default.prompt), |name| self.prompt(name)).into_py(py)?,
            ..default
        };
        let (count, flat, columns) = self.run_encoder(py, false, |encoder| {
            let vectors = encoder.embed(&texts, &options)?;
            let columns = vectors.first().map_or(encoder.embedding_dimensions(), Vec::len);
            Ok((vectors.len(), vectors.concat(), columns))
        })?;
        let flat = PyArray1::from_vec(py, flat);
        match is_list {
            true => Ok(flat.reshape([count, columns])?.into_any()),
            false => Ok(flat.into_any()),
        }
    }

    /// Classifies a text or several: labels with their probabilities, the most likely first.
    #[pyo3(signature = (texts, *, overflow = "error"))]
    fn classify<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        overflow: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (texts, is_list) = crate::texts::texts(texts)?;
        let overflow = self::overflow(overflow).into_py(py)?;
        let classes = self.run_encoder(py, true, |encoder| encoder.classify(&texts, overflow))?;
        let all = classes.into_iter().map(|classes| {
            dictionaries(py, classes, |result, class| {
                result.set_item("label", class.label)?;
                result.set_item("score", class.probability)
            })
        });
        results(py, all.collect::<PyResult<_>>()?, is_list)
    }

    /// Finds entities in a text or several. `start` and `end` are positions in the text.
    #[pyo3(signature = (texts, *, overflow = "error"))]
    fn tag<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        overflow: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (texts, is_list) = crate::texts::texts(texts)?;
        let overflow = self::overflow(overflow).into_py(py)?;
        let entities = self.run_encoder(py, true, |encoder| encoder.tag(&texts, overflow))?;
        let all = texts.iter().zip(entities).map(|(text, entities)| {
            dictionaries(py, entities, |result, entity| {
                result.set_item("entity", entity.label)?;
                result.set_item("score", entity.probability)?;
                set_span(result, text, entity.start, entity.end)?;
                result.set_item("word", text.get(entity.start..entity.end).unwrap_or_default())
            })
        });
        results(py, all.collect::<PyResult<_>>()?, is_list)
    }

    /// Returns how relevant each text is to a query: a score in the order of the texts.
    #[pyo3(signature = (query, texts, *, overflow = "error"))]
    fn rerank(
        &self,
        py: Python<'_>,
        query: &str,
        texts: &Bound<'_, PyAny>,
        overflow: &str,
    ) -> PyResult<Vec<f32>> {
        let (texts, is_list) = crate::texts::texts(texts)?;
        if !is_list {
            return Err(PyTypeError::new_err("texts: expected several texts, not one"));
        }
        let overflow = self::overflow(overflow).into_py(py)?;
        self.run_encoder(py, true, |encoder| encoder.rerank(query, &texts, overflow))
    }

    /// Finds the answer to a question in a text.
    #[pyo3(signature = (question, text, *, overflow = "error"))]
    fn answer<'py>(
        &self,
        py: Python<'py>,
        question: &str,
        text: &str,
        overflow: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let overflow = self::overflow(overflow).into_py(py)?;
        let span = self.run_encoder(py, true, |encoder| encoder.answer(question, text, overflow))?;
        let result = PyDict::new(py);
        result.set_item("score", span.probability)?;
        set_span(&result, text, span.start, span.end)?;
        result.set_item("answer", text.get(span.start..span.end).unwrap_or_default())?;
        Ok(result)
    }

    /// Predicts the words that the mask tokens of a text stand for: a list for each of them, the most likely first.
    #[pyo3(signature = (text, *, count = 5))]
    fn fill_mask<'py>(&self, py: Python<'py>, text: &str, count: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let masks = self.run_encoder(py, true, |encoder| encoder.fill_mask(text, count))?;
        let words = |words: Vec<MaskPrediction>| {
            dictionaries(py, words, |result, word| {
                result.set_item("token", word.id)?;
                result.set_item("token_str", word.text)?;
                result.set_item("score", word.probability)
            })
        };
        masks.into_iter().map(words).collect()
    }
}

/// Sets the span of bytes `start..end` as positions of characters, which Python counts.
fn set_span(result: &Bound<'_, PyDict>, text: &str, start: usize, end: usize) -> PyResult<()> {
    let characters = |end: usize| text.get(..end).map_or(end, |text| text.chars().count());
    result.set_item("start", characters(start))?;
    result.set_item("end", characters(end))
}
