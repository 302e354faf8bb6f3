//! Speech to text.

use std::path::PathBuf;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siskin::Error;
use siskin::audio::AudioSamples;
use siskin::speech::{TranscribeOptions, Transcriber};
use siskin_media::audio;

use crate::errors::IntoPyResult;
use crate::model::PyModel;
use crate::texts::dictionaries;

/// Reads a file, or samples of one channel.
fn samples(sound: &Bound<'_, PyAny>, sample_rate: u32) -> PyResult<AudioSamples> {
    let py = sound.py();
    if sound.cast::<numpy::PyUntypedArray>().is_ok() {
        let samples: PyReadonlyArray1<'_, f32> = sound
            .extract()
            .map_err(|_| PyTypeError::new_err("sound: expected an array of float32 with one dimension"))?;
        return Ok(AudioSamples { samples: samples.as_array().to_vec(), rate: sample_rate });
    }
    let path: PathBuf = sound.extract()?;
    let read = || {
        let location = path.display().to_string();
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&location, &error))?;
        audio::decode(bytes, audio::MAX_SAMPLES).map_err(|error| error.within(&location))
    };
    py.detach(read).into_py(py)
}

#[pymethods]
impl PyModel {
    /// Transcribes a sound file, or an array of samples in float32. Returns a dictionary with `text`, `language` and
    /// `segments`, as Whisper's reference implementation does.
    #[pyo3(signature = (sound, *, sample_rate = 16000, language = None, translate = false, timestamps = true, prompt = None,
        beams = 1, temperature_fallback = true))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn transcribe<'py>(
        &self,
        py: Python<'py>,
        sound: &Bound<'py, PyAny>,
        sample_rate: u32,
        language: Option<String>,
        translate: bool,
        timestamps: bool,
        prompt: Option<String>,
        beams: usize,
        temperature_fallback: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let sound = samples(sound, sample_rate)?;
        let options = TranscribeOptions {
            language,
            translate,
            timestamps,
            prompt,
            beams,
            temperature_fallback,
            ..TranscribeOptions::default()
        };
        let create = || Transcriber::new(&self.model, None);
        let transcript = self.transcriber.run(py, create, Transcriber::cancel_handle, |transcriber| {
            transcriber.transcribe(&sound, &options)
        })?;
        let result = PyDict::new(py);
        result.set_item("text", &transcript.text)?;
        result.set_item("language", &transcript.language)?;
        let segments = dictionaries(py, transcript.segments.iter().enumerate(), |entry, (id, segment)| {
            entry.set_item("id", id)?;
            entry.set_item("start", segment.start)?;
            entry.set_item("end", segment.end)?;
            entry.set_item("text", &segment.text)?;
            entry.set_item("tokens", &segment.ids)?;
            entry.set_item("avg_logprob", segment.log_probability)?;
            entry.set_item("no_speech_prob", segment.no_speech_probability)
        })?;
        result.set_item("segments", segments)?;
        Ok(result)
    }
}
