//! Self-tests: a fixed input whose outputs have the same bits on every machine. Comparing them with those that a file
//! records detects faulty memory, damaged files and wrong kernels.

use serde_json::{Value, json};
use siskin_format::file::SectionKind;

use crate::encoder::EncoderInput;
use crate::model::Model;
use crate::{CacheType, EncoderOptions, Error, OutputRows, Result, SessionOptions};

/// The number of tokens of the input.
const TOKENS: usize = 12;
/// The version of the section.
const VERSION: u32 = 1;

/// The outputs of a model for the fixed input, as the *goldens* section of a file records them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goldens {
    /// The type of the KV cache, on which bits depend.
    cache: String,
    /// The number of outputs.
    outputs: usize,
    /// The BLAKE3 hash of the outputs as little-endian f32.
    blake3: String,
}

/// The result of a self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// The outputs have the bits that they had when the file was written.
    Passed,
    /// They do not: memory, file or kernels are faulty.
    Failed,
}

impl Goldens {
    /// Computes them.
    pub fn compute(model: &Model) -> Result<Self> {
        Self::compute_with(model, None)
    }

    fn compute_with(model: &Model, cache: Option<CacheType>) -> Result<Self> {
        let cache = cache.unwrap_or_else(|| model.loaded().cache_types(None).persistent);
        let outputs = outputs(model, Some(cache))?;
        let mut hasher = blake3::Hasher::new();
        outputs.iter().for_each(|output| _ = hasher.update(&output.to_le_bytes()));
        Ok(Self {
            cache: CacheType::NAMES
                .iter()
                .find(|(of, _)| *of == cache)
                .map_or("", |(_, name)| name)
                .to_owned(),
            outputs: outputs.len(),
            blake3: hasher.finalize().to_hex().to_string(),
        })
    }

    /// Returns those that the model's file records; `None` if it records none, or those of a later version, or if the model
    /// computes something else than its file, since an adapter applies or layers are skipped.
    ///
    /// # Errors
    /// If the section is damaged.
    pub fn of(model: &Model) -> Result<Option<Self>> {
        if model.identity() != model.file().identity() || model.skipped().numbers().next().is_some() {
            return Ok(None);
        }
        let Some(section) = model.file().checked_section(SectionKind::Goldens)? else { return Ok(None) };
        let value: Value =
            serde_json::from_slice(&section).map_err(|error| Error::corrupt("goldens", error.to_string()))?;
        if value["version"] != VERSION {
            return Ok(None);
        }
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let outputs = value["outputs"].as_u64().and_then(|count| usize::try_from(count).ok());
        match (text("cache"), outputs, text("blake3")) {
            (Some(cache), Some(outputs), Some(blake3)) => {
                let is_known = CacheType::NAMES.iter().any(|(_, name)| *name == cache);
                Ok(is_known.then_some(Self { cache, outputs, blake3 }))
            }
            _ => Err(Error::corrupt("goldens", "expected cache, outputs and blake3")),
        }
    }

    /// Returns the bytes of the section.
    pub fn to_section(&self) -> Vec<u8> {
        let Self { cache, outputs, blake3 } = self;
        json!({"version": VERSION, "cache": cache, "outputs": outputs, "blake3": blake3})
            .to_string()
            .into_bytes()
    }

    /// Computes the outputs again, and compares them.
    pub fn check(&self, model: &Model) -> Result<SelfTest> {
        let cache = CacheType::NAMES.iter().find(|(_, name)| *name == self.cache).map(|(of, _)| *of);
        let cache = cache.ok_or_else(|| Error::corrupt("goldens.cache", "unknown"))?;
        Ok(if *self == Self::compute_with(model, Some(cache))? { SelfTest::Passed } else { SelfTest::Failed })
    }
}

/// Returns the outputs of a model for the fixed input: tokens, or features of audio.
pub fn outputs(model: &Model, cache: Option<CacheType>) -> Result<Vec<f32>> {
    let model_config = model.config();
    let vocabulary = model_config.vocabulary.max(1);
    let ids = |count: usize| -> Vec<u32> {
        (0..count).map(|index| ((1000 + 7919 * index) % vocabulary) as u32).collect()
    };
    let mut all = Vec::new();
    let text = match model_config.features {
        0 => EncoderInput::from(ids(TOKENS.min(model_config.encoder_context.max(1)))),
        bands => {
            let features = (0..2 * TOKENS * bands).map(|index| (index * 37 % 101) as f32 / 101.0 - 0.5);
            EncoderInput { features: features.collect(), ..EncoderInput::default() }
        }
    };
    if model.graphs().encoder.is_some() {
        let mut encoder = model.encoder(EncoderOptions { cache, ..EncoderOptions::default() })?;
        encoder.encode(std::slice::from_ref(&text), OutputRows::All, &mut |_, outputs| {
            outputs.rows().for_each(|row| all.extend_from_slice(row));
            Ok(())
        })?;
    }
    if model.graphs().decoder.is_some() {
        let context = TOKENS.min(model_config.context.max(1));
        let mut session = model.session(SessionOptions { context, cache, ..SessionOptions::default() })?;
        if model.graphs().encoder.is_some() {
            session.encode(&text)?;
        }
        session.score(&ids(context), &mut |_, logits| all.extend_from_slice(logits))?;
    }
    Ok(all)
}
