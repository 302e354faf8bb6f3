//! Equivalence check: compares our graph's outputs to the exported graph's.

use super::general::TRACT;
use super::{ExternalData, General, GraphRole, OnnxModel};
use crate::import::ModelSource;
use siskin_backend::context::{
    BatchEntry, Context, ContextOptions, DecoderLimits, OutputRows, SequenceInput,
};
use siskin_backend::external_model::ExternalModel;
use siskin_backend::loaded_model::{LoadedModel, ModelAdapters, ModelOptions};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::{AdapterSlot, OutputHead};
use siskin_kernels::ops::attention::CacheType;
use std::sync::Arc;

/// Maximum difference due to rounding, relative to the largest expected magnitude.
const CLOSE: f32 = 1e-3;
/// Token counts of the test inputs.
const LENGTHS: [usize; 4] = [11, 1, 5, 37];
/// Short inputs are also padded to this length with masked tokens. It is one of the lengths, so that the graph is
/// already optimized for it.
const FILLED: usize = 11;

/// The widest sliding window that the test inputs exceed.
const MAX_WINDOW: usize = 512;

/// Maximum bytes of a model as f32: the check holds the weights in memory twice.
const MAX_BYTES: u64 = 6 << 30;

/// The result of the check.
pub(super) enum Proof {
    /// Equal outputs.
    Same,
    /// Different outputs, and by how much.
    Other(String),
    /// Inconclusive: the graph did not run, and why.
    Impossible(String),
}

/// Runs both graphs on test inputs.
pub(super) fn prove(
    models: &[OnnxModel<'_>],
    stores: &mut [(GraphRole, ExternalData)],
    source: &dyn ModelSource,
) -> Result<Proof> {
    let tensors = models.iter().flat_map(|model| model.graph.all_tensors());
    let bytes = tensors.fold(0_u64, |sum, tensor| sum.saturating_add(tensor.count().saturating_mul(4)));
    if bytes > MAX_BYTES {
        return Ok(Proof::Impossible("it is too large for a trial run".to_owned()));
    }
    if (source.family().read_config)(source.config())?.features > 0 {
        return Ok(Proof::Impossible("audio models cannot be verified".to_owned()));
    }
    let general = match General::of_parts(models, stores, source.config().values()) {
        Ok(general) if general.interface().reads.is_some() || general.interface().writes => general,
        Ok(_) => return Ok(Proof::Other("its inputs do not have the names of token inputs".to_owned())),
        Err(error) if error.location() == TRACT => return Ok(Proof::Impossible(error.to_string())),
        Err(error) => return Ok(Proof::Other(error.to_string())),
    };
    let packed = crate::open::nameless(source);
    let ours = packed.and_then(|file| LoadedModel::new(file, ModelAdapters::None, &ModelOptions::default()));
    let ours = match ours {
        Ok(ours) => Arc::new(ours),
        Err(error)
            if matches!(error.kind(), ErrorKind::Shape | ErrorKind::Missing | ErrorKind::Unsupported) =>
        {
            return Ok(Proof::Other(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    match compare(&general, &ours) {
        Ok(worst) if worst <= CLOSE => Ok(Proof::Same),
        Ok(worst) => Ok(Proof::Other(format!(
            "its outputs differ from those of the family {} by {worst:.1e}",
            source.family().name
        ))),
        Err(error) if error.location() == TRACT => Ok(Proof::Impossible(error.to_string())),
        // The graph's inputs or outputs differ from the family's.
        Err(error) => Ok(Proof::Other(error.to_string())),
    }
}

/// Returns the maximum difference of the outputs over random inputs.
fn compare(general: &General, ours: &Arc<LoadedModel>) -> Result<f32> {
    let vocabulary = ours.config.vocabulary.max(1);
    let mut number = 0x2545_F491_4F6C_DD1D_u64;
    let mut worst = 0.0_f32;
    let model_config = &ours.config;
    let max = model_config.encoder_context.min(model_config.context).min(general.interface().context);
    // One input exceeds the sliding window.
    let windows = model_config.windows.iter().flatten().filter(|&&window| window <= MAX_WINDOW);
    let beyond = windows.max().map(|window| window + LENGTHS[0]);
    let mut lengths: Vec<usize> = LENGTHS.into_iter().chain(beyond).map(|length| length.min(max)).collect();
    lengths.dedup();
    for length in lengths {
        let mut token = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Small ids are special tokens, from which some models derive positions.
            let ordinary = vocabulary.saturating_sub(4).max(1);
            ((number >> 33) as usize % ordinary + (vocabulary - ordinary)) as u32
        };
        let ids: Vec<u32> = (0..length).map(|_| token()).collect();
        let written: Vec<u32> = (0..length).map(|_| token()).collect();
        worst = worst.max(compare_text(general, ours, &ids, &written)?);
    }
    Ok(worst)
}

fn compare_text(general: &General, ours: &Arc<LoadedModel>, ids: &[u32], written: &[u32]) -> Result<f32> {
    let outline = general.interface();
    let graphs = &ours.graphs;
    let token_type_ids: Vec<u32> = match outline.token_types.min(ours.config.token_types) {
        0 | 1 => Vec::new(),
        kinds => (0..ids.len()).map(|index| (index * kinds / ids.len()) as u32).collect(),
    };
    let text = Text { ids, token_type_ids: &token_type_ids, padding_token: None };
    let mut worst = 0.0_f32;
    let mut memory = None;
    if graphs.encoder.is_some() {
        let reads = outline.reads.ok_or_else(|| Error::unsupported("model", "it does not take text"))?;
        // A graph that was exported without its head returns hidden states.
        let head = reads != OutputHead::Hidden;
        let theirs = general.encode(ids, &token_type_ids, head)?;
        if graphs.decoder.is_none() || theirs.columns > 1 {
            let got = read(ours, text, head)?;
            let got = if theirs.count() == 1 { got.get(..theirs.columns).unwrap_or_default() } else { &got };
            worst = worst.max(difference(got, &theirs.values));
            if ids.len() < FILLED
                && FILLED <= ours.config.encoder_context
                && let Some(filled) = general.read_padded(ids, &token_type_ids, head, FILLED)?
            {
                // Padding is token 0, which a convolution may read after the last token.
                let beside = read(ours, Text { padding_token: Some(0), ..text }, head)?;
                let got = if filled.count() == 1 { beside.get(..filled.columns) } else { Some(&beside[..]) };
                worst = worst.max(difference(got.unwrap_or_default(), &filled.values));
            }
        }
        memory = Some(theirs);
    }
    if graphs.decoder.is_some() {
        let given = if memory.is_some() { written } else { ids };
        let theirs = general.decode(given, memory.as_ref())?;
        let got = write(ours, memory.is_some().then_some(text), given)?;
        worst = worst.max(difference(&got, &theirs.values));
    }
    Ok(worst)
}

/// A text for the encoder.
#[derive(Clone, Copy)]
struct Text<'a> {
    ids: &'a [u32],
    token_type_ids: &'a [u32],
    padding_token: Option<u32>,
}

impl<'a> Text<'a> {
    fn input(self, sequence: usize, outputs: OutputRows<'a>) -> SequenceInput<'a> {
        let Self { ids, token_type_ids, padding_token } = self;
        SequenceInput {
            sequence,
            tokens: ids,
            token_type_ids,
            outputs,
            features: &[],
            global_positions: &[],
            padding_token,
            adapter: AdapterSlot::MODEL,
        }
    }
}

/// Returns our encoder's output for a text.
fn read(ours: &Arc<LoadedModel>, text: Text<'_>, head: bool) -> Result<Vec<f32>> {
    let rows = text.ids.len() + usize::from(text.padding_token.is_some());
    let types = ours.cache_types(Some(CacheType::F32));
    let options = ContextOptions { with_head: head, ..ContextOptions::encoder(types, rows, rows) };
    let mut context = Context::new(Arc::clone(ours), &options, None)?;
    let sequence = context.create();
    context.encode(&[text.input(sequence, OutputRows::All)])?;
    Ok((0..text.ids.len()).flat_map(|row| context.output(row)).copied().collect())
}

/// Returns our decoder's logits.
fn write(ours: &Arc<LoadedModel>, text: Option<Text<'_>>, ids: &[u32]) -> Result<Vec<f32>> {
    let limits = DecoderLimits {
        context: ids.len(),
        batch: ids.len(),
        encoder_context: text.map_or(0, |text| text.ids.len()),
        cache: Some(CacheType::F32),
        window: None,
    };
    let options = ours.context_options(&limits, 1, ids.len())?;
    let mut context = Context::new(Arc::clone(ours), &options, None)?;
    let sequence = context.create();
    if let Some(text) = text {
        context.encode(&[text.input(sequence, OutputRows::None)])?;
    }
    context.set_expected_length(sequence, ids.len())?;
    context.forward(&[BatchEntry::new(sequence, ids, OutputRows::All)])?;
    Ok((0..ids.len()).flat_map(|row| context.output(row)).copied().collect())
}

/// Returns the largest difference relative to the largest expected magnitude; infinity if the lengths differ.
fn difference(got: &[f32], want: &[f32]) -> f32 {
    if got.len() != want.len() || got.iter().any(|number| !number.is_finite()) {
        return f32::INFINITY;
    }
    let finite = want.iter().filter(|number| number.is_finite());
    let largest = finite.fold(f32::MIN_POSITIVE, |largest, number| largest.max(number.abs()));
    let apart = got.iter().zip(want).map(|(got, want)| (got - want).abs() / largest);
    // NaN counts as an infinite difference.
    apart.fold(0.0, |max, apart| if apart.is_nan() { f32::INFINITY } else { apart.max(max) })
}
