//! Sample generations during training, for the report.

use siskin_format::Result;
use siskin_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};

use super::config::RunConfig;
use super::host_trainer::HostTrainer;
use crate::batch::TrainingBatch;
use crate::loss::{CrossEntropy, Targets};
use crate::program::Side;
use crate::random::Random;
use crate::report::Sample;
use crate::runner::TrainingObjective;

/// The name of the random stream of sampling.
const SAMPLES: u64 = 0x7361_6d70_6c65;

/// Generates samples with the parameters of the host. All sequences run through the training graph, from the beginning
/// for each token (no KV cache): for few short texts that takes less than a step, and needs neither a file nor a second
/// copy of the parameters.
pub(super) fn generate(
    host: &mut HostTrainer,
    config: &RunConfig,
    tokenizer: &Tokenizer,
    step: u64,
) -> Result<Vec<Sample>> {
    let options = &config.report;
    let start = tokenizer.bos().or(tokenizer.eos());
    let encode = |prompt: &String| {
        let mut ids = tokenizer.encode(prompt, EncodeOptions { add_special: true, parse_special: false })?;
        if ids.is_empty() {
            ids.extend(start);
        }
        Ok(ids)
    };
    let mut texts = options.prompts.iter().map(encode).collect::<Result<Vec<_>>>()?;
    let prompt_lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
    let longest = host.runner.program().max_positions(Side::Decoder).unwrap_or(usize::MAX);
    let ended = |text: &Vec<u32>| text.last().is_some_and(|last| tokenizer.end_ids().contains(last));
    let mut going: Vec<usize> = (0..texts.len()).filter(|&text| !texts[text].is_empty()).collect();
    for count in 0..options.max_new_tokens {
        going.retain(|&text| texts[text].len() < longest && (count == 0 || !ended(&texts[text])));
        if going.is_empty() {
            break;
        }
        let mut batch = TrainingBatch::default();
        for &text in &going {
            batch.decoder.push(&texts[text], &[]);
            batch.decoder.output_rows.push(batch.decoder.rows.len() - 1);
        }
        // All targets have weight zero: only the scores are needed.
        let targets =
            Targets { ids: vec![0; going.len()], weights: vec![0.0; going.len()], ..Targets::default() };
        let goal = TrainingObjective { loss: &CrossEntropy::default(), targets: &targets, scale: 1.0 };
        let mut scores = Vec::new();
        let mut see = |_, numbers: &[f32]| scores.extend_from_slice(numbers);
        host.runner.evaluate(&host.parameters, &batch, goal, Some(&mut see))?;
        let columns = scores.len() / going.len();
        for (&text, scores) in going.iter().zip(scores.chunks(columns.max(1))) {
            let name = [SAMPLES, step, text as u64, count as u64];
            let unit = Random::new(config.seed, &name).unit();
            // Embedding tables may have more rows than the vocabulary has tokens.
            let known = scores.len().min(tokenizer.vocabulary_size() as usize);
            texts[text].push(choose(&scores[..known], options.temperature, unit));
        }
    }
    let sample = |(prompt, (text, prompt_length)): (&String, (&Vec<u32>, &usize))| {
        let bytes = tokenizer.decode(&text[*prompt_length..], DecodeOptions { skip_special: true })?;
        Ok(Sample { prompt: prompt.clone(), text: String::from_utf8_lossy(&bytes).into_owned() })
    };
    options.prompts.iter().zip(texts.iter().zip(&prompt_lengths)).map(sample).collect()
}

/// Samples a token id from the softmax of the scores, by inversion; `unit` is uniform in 0 to 1.
fn choose(scores: &[f32], temperature: f64, unit: f64) -> u32 {
    let likeliest = (0..scores.len()).reduce(|best, id| if scores[id] > scores[best] { id } else { best });
    let best = likeliest.unwrap_or(0);
    if temperature == 0.0 {
        return best as u32;
    }
    let unnormalized = |score: &f32| (f64::from(score - scores[best]) / temperature).exp();
    let mut left = unit * scores.iter().map(unnormalized).sum::<f64>();
    for (id, score) in scores.iter().enumerate() {
        left -= unnormalized(score);
        if left < 0.0 {
            return id as u32;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_sampled_by_their_probabilities() {
        let scores = [0.0, (3.0_f32).ln(), f32::NEG_INFINITY, 0.0];
        let draw = |temperature, unit| choose(&scores, temperature, unit);
        assert_eq!([draw(0.0, 0.0), draw(0.0, 0.99)], [1, 1]);
        assert_eq!([0.0, 0.19, 0.21, 0.79, 0.81, 0.999].map(|unit| draw(1.0, unit)), [0, 0, 1, 1, 3, 3]);
        assert_eq!(draw(0.1, 0.01), 1, "less freely, the likeliest has nearly all");
    }
}
