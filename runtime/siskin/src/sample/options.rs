//! Options for the sampler.

use crate::logits_processors::LogitsProcessorOptions;
use crate::{Error, Result};

/// The maximum number of past tokens that a step uses.
const MAX_HISTORY_TOKENS: usize = 1 << 20;
/// The maximum length of a DRY sequence breaker, in tokens.
const MAX_BREAKER_TOKENS: usize = 32;

/// Options for the sampler. Steps that are off cost nothing.
///
/// ```
/// use siskin::sample::SamplerOptions;
///
/// let options = SamplerOptions { temperature: 0.6, top_p: 0.9, seed: 7, ..SamplerOptions::default() };
/// options.validate()?;
/// # Ok::<(), siskin::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// The seed of the random number generator: the same seed, options and logits give the same tokens.
    pub seed: u64,
    /// The divisor of the logits, applied after the other steps; 0 selects the highest logit (greedy).
    pub temperature: f32,
    /// How far dynamic temperature moves either way: down at zero entropy, up at maximum entropy; 0 disables it.
    pub dynamic_temperature_range: f32,
    /// The exponent of the normalized entropy in dynamic temperature.
    pub dynamic_temperature_exponent: f32,
    /// Keeps this many of the highest logits; 0 disables it.
    pub top_k: usize,
    /// Keeps the smallest set of most likely tokens whose cumulative probability reaches this; 1 disables it.
    pub top_p: f32,
    /// Keeps tokens with at least this fraction of the highest probability; 0 disables it.
    pub min_p: f32,
    /// Keeps the tokens whose surprisal is nearest to the entropy, up to this probability mass; 1 disables it.
    pub typical_p: f32,
    /// The probability with which XTC excludes top choices; 0 disables it.
    pub xtc_probability: f32,
    /// The minimum probability of a top choice for XTC; above 0.5 disables it.
    pub xtc_threshold: f32,
    /// The divisor of logits of tokens in the history (a factor if they are negative); 1 disables it.
    pub repetition_penalty: f32,
    /// Subtracted from a token's logit for every occurrence in the history; 0 disables it.
    pub frequency_penalty: f32,
    /// Subtracted from a token's logit if it occurs in the history; 0 disables it.
    pub presence_penalty: f32,
    /// The length of the history of the three penalties, in tokens; 0 disables it.
    pub penalty_last_n: usize,
    /// The multiplier of the DRY penalty for continuing a repetition; 0 disables it.
    pub dry_multiplier: f32,
    /// The base of the DRY penalty, which grows by this factor with each further repeated token.
    pub dry_base: f32,
    /// The length up to which DRY does not penalize repetitions.
    pub dry_allowed_length: usize,
    /// The length of the history of DRY, in tokens; 0 disables it.
    pub dry_last_n: usize,
    /// Token sequences that DRY does not match across, such as those of a line break or a quote.
    pub dry_sequence_breakers: Vec<Vec<u32>>,
    /// Replaces top-k, top-p, min-p, typical and XTC by Mirostat 2.
    pub mirostat: bool,
    /// The target surprisal of Mirostat, in bits.
    pub mirostat_tau: f32,
    /// The learning rate of Mirostat.
    pub mirostat_eta: f32,
    /// Values added to the logits of single tokens; negative infinity forbids the token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Logits processors: tokens that are forced, forbidden or penalized depending on the text.
    pub logits_processors: LogitsProcessorOptions,
    /// Computes the log-probability of the sampled token.
    pub log_probabilities: bool,
    /// Also reports this many of the most likely tokens at every step, which turns `log_probabilities` on.
    pub top_log_probabilities: usize,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            temperature: 0.8,
            dynamic_temperature_range: 0.0,
            dynamic_temperature_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: 64,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_last_n: 4096,
            dry_sequence_breakers: Vec::new(),
            mirostat: false,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            logit_bias: Vec::new(),
            logits_processors: LogitsProcessorOptions::default(),
            log_probabilities: false,
            top_log_probabilities: 0,
        }
    }
}

impl SamplerOptions {
    /// Returns options that always select the highest logit.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks that every option is in its range.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), whose place is the option's name.
    pub fn validate(&self) -> Result<()> {
        let limit = f32::MAX;
        let ranges = [
            ("temperature", self.temperature, 0.0, limit),
            ("dynamic_temperature_range", self.dynamic_temperature_range, 0.0, limit),
            ("dynamic_temperature_exponent", self.dynamic_temperature_exponent, 0.0, limit),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("typical_p", self.typical_p, 0.0, 1.0),
            ("xtc_probability", self.xtc_probability, 0.0, 1.0),
            ("xtc_threshold", self.xtc_threshold, 0.0, 1.0),
            ("repetition_penalty", self.repetition_penalty, f32::MIN_POSITIVE, limit),
            ("frequency_penalty", self.frequency_penalty, -limit, limit),
            ("presence_penalty", self.presence_penalty, -limit, limit),
            ("dry_multiplier", self.dry_multiplier, 0.0, limit),
            ("dry_base", self.dry_base, 1.0, limit),
            ("mirostat_tau", self.mirostat_tau, 0.0, limit),
            ("mirostat_eta", self.mirostat_eta, 0.0, limit),
        ];
        for (name, value, lowest, highest) in ranges {
            if !(lowest..=highest).contains(&value) {
                return Err(out_of_range(name, value, lowest, highest));
            }
        }
        for (name, length) in [("penalty_last_n", self.penalty_last_n), ("dry_last_n", self.dry_last_n)] {
            if length > MAX_HISTORY_TOKENS {
                let message = format!("expected at most {MAX_HISTORY_TOKENS} tokens, got {length}");
                return Err(Error::argument(name, message));
            }
        }
        self.logits_processors.validate()?;
        self.validate_lists()
    }

    fn validate_lists(&self) -> Result<()> {
        for (index, breaker) in self.dry_sequence_breakers.iter().enumerate() {
            if breaker.is_empty() || breaker.len() > MAX_BREAKER_TOKENS {
                let message = format!("expected 1 to {MAX_BREAKER_TOKENS} tokens, got {}", breaker.len());
                return Err(Error::argument(format!("dry_sequence_breakers[{index}]"), message));
            }
        }
        for (index, (_, bias)) in self.logit_bias.iter().enumerate() {
            if bias.is_nan() || *bias == f32::INFINITY {
                let message =
                    format!("expected a finite number, or minus infinity to forbid the token, got {bias}");
                return Err(Error::argument(format!("logit_bias[{index}]"), message));
            }
        }
        Ok(())
    }
}

fn out_of_range(name: &str, value: f32, lowest: f32, highest: f32) -> Error {
    let range = match (lowest, highest) {
        (_, f32::MAX) if !value.is_finite() => "a finite number".to_owned(),
        (f32::MIN, _) => "a finite number".to_owned(),
        (f32::MIN_POSITIVE, _) => "a positive number".to_owned(),
        (0.0, f32::MAX) => "a non-negative number".to_owned(),
        (_, f32::MAX) => format!("a number of at least {lowest}"),
        _ => format!("a number from {lowest} to {highest}"),
    };
    Error::argument(name, format!("expected {range}, got {value}"))
}
