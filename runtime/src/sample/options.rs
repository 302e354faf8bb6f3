//! How to choose tokens.

use crate::logits_processors::Rules;
use crate::{Error, Result};

/// The longest history a step may look back on.
const LONGEST_HISTORY: usize = 1 << 20;
/// The longest DRY sequence breaker, in tokens.
const LONGEST_BREAKER: usize = 32;

/// How to choose tokens. Steps that are off cost nothing.
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
    /// Where the random numbers start: the same seed, options and logits give the same tokens.
    pub seed: u64,
    /// What logits are divided by, after the other steps; 0 chooses the highest logit (greedy).
    pub temperature: f32,
    /// How far the temperature may move either way, from none for certain to most for flat
    /// distributions; 0 is off.
    pub dynamic_temperature_range: f32,
    /// The power to which the entropy's share is raised where the temperature moves.
    pub dynamic_temperature_exponent: f32,
    /// Keep this many of the highest logits; 0 is off.
    pub top_k: usize,
    /// Keep the fewest likeliest tokens that hold this share of the probability; 1 is off.
    pub top_p: f32,
    /// Keep the tokens at least this many times as likely as the likeliest; 0 is off.
    pub min_p: f32,
    /// Keep the tokens nearest to the expected surprise that hold this share; 1 is off.
    pub typical_p: f32,
    /// How often top choices are excluded; 0 is off.
    pub xtc_probability: f32,
    /// The probability from which a token is a top choice; above 0.5 is off.
    pub xtc_threshold: f32,
    /// What logits of tokens in the history are divided by (multiplied where negative); 1 is off.
    pub repetition_penalty: f32,
    /// Taken from a token's logit for every time it is in the history; 0 is off.
    pub frequency_penalty: f32,
    /// Taken from a token's logit when it is in the history; 0 is off.
    pub presence_penalty: f32,
    /// How many tokens the three penalties look back on; 0 is off.
    pub penalty_last_n: usize,
    /// The size of the penalty for continuing a repetition; 0 is off.
    pub dry_multiplier: f32,
    /// How much the penalty grows for each further repeated token.
    pub dry_base: f32,
    /// The length up to which repetitions may stay unpunished.
    pub dry_allowed_length: usize,
    /// How many tokens DRY looks back on; 0 is off.
    pub dry_last_n: usize,
    /// Token sequences that no repetition reaches across, such as the ones of a line break or a quote.
    pub dry_sequence_breakers: Vec<Vec<u32>>,
    /// Replace top-k, top-p, min-p, typical and XTC by Mirostat 2.
    pub mirostat: bool,
    /// Mirostat's target surprise, in bits.
    pub mirostat_tau: f32,
    /// How fast Mirostat moves towards its target.
    pub mirostat_eta: f32,
    /// Numbers added to single tokens' logits; minus infinity forbids the token.
    pub logit_bias: Vec<(u32, f32)>,
    /// What is forced, forbidden or punished by its place in the text.
    pub rules: Rules,
    /// Compute the chosen token's log-probability.
    pub log_probabilities: bool,
    /// Also report so many of the likeliest tokens with every choice, which turns
    /// `log_probabilities` on.
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
            rules: Rules::default(),
            log_probabilities: false,
            top_log_probabilities: 0,
        }
    }
}

impl SamplerOptions {
    /// Always the highest logit.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether every option is in its range.
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
            if length > LONGEST_HISTORY {
                let message = format!("is {length}; give at most {LONGEST_HISTORY} tokens");
                return Err(Error::argument(name, message));
            }
        }
        self.rules.validate()?;
        self.validate_lists()
    }

    fn validate_lists(&self) -> Result<()> {
        for (index, breaker) in self.dry_sequence_breakers.iter().enumerate() {
            if breaker.is_empty() || breaker.len() > LONGEST_BREAKER {
                let message = format!("has {} tokens; give 1 to {LONGEST_BREAKER}", breaker.len());
                return Err(Error::argument(format!("dry_sequence_breakers[{index}]"), message));
            }
        }
        for (index, (_, bias)) in self.logit_bias.iter().enumerate() {
            if bias.is_nan() || *bias == f32::INFINITY {
                let message =
                    format!("is {bias}; give a finite number, or minus infinity to forbid the token");
                return Err(Error::argument(format!("logit_bias[{index}]"), message));
            }
        }
        Ok(())
    }
}

fn out_of_range(name: &str, value: f32, lowest: f32, highest: f32) -> Error {
    let range = match (lowest, highest) {
        (f32::MIN, _) => "a finite number".to_owned(),
        (f32::MIN_POSITIVE, _) => "a finite number above 0".to_owned(),
        (_, f32::MAX) => format!("a finite number from {lowest}"),
        _ => format!("a number from {lowest} to {highest}"),
    };
    Error::argument(name, format!("is {value}; give {range}"))
}
