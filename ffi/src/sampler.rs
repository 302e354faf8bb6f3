//! Sampling options.

use siskin::sample::SamplerOptions;

use crate::arguments::{boolean, integer};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle};

/// Sampling options. Null selects the defaults. Freed with `siskin_sampler_free`.
pub struct siskin_sampler {
    _opaque: [u8; 0],
}

impl Handle for siskin_sampler {
    type Inner = SamplerOptions;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKsamp";
    const NAME: &'static str = "sampler";
}

/// A sampling option.
pub type siskin_sampler_option = u32;
/// Temperature: logits are divided by it; 0 means greedy decoding. Default: 0.8.
pub const SISKIN_SAMPLER_TEMPERATURE: siskin_sampler_option = 1;
/// Top-k: keep this many of the most probable tokens; 0 disables it. Default: 40.
pub const SISKIN_SAMPLER_TOP_K: siskin_sampler_option = 2;
/// Top-p: keep the smallest set of most probable tokens whose cumulative probability reaches this; 1 disables it.
/// Default: 0.95.
pub const SISKIN_SAMPLER_TOP_P: siskin_sampler_option = 3;
/// Min-p: keep tokens with at least this fraction of the most probable token's probability; 0 disables it. Default:
/// 0.05.
pub const SISKIN_SAMPLER_MIN_P: siskin_sampler_option = 4;
/// Locally typical sampling: keep the tokens whose surprisal is nearest to the entropy, up to this probability
/// mass; 1 disables it.
pub const SISKIN_SAMPLER_TYPICAL_P: siskin_sampler_option = 5;
/// XTC: the probability with which top choices are excluded; 0 disables it.
pub const SISKIN_SAMPLER_XTC_PROBABILITY: siskin_sampler_option = 6;
/// XTC: the minimum probability of a top choice.
pub const SISKIN_SAMPLER_XTC_THRESHOLD: siskin_sampler_option = 7;
/// Dynamic temperature: how far the temperature may move in either direction; 0 disables it.
pub const SISKIN_SAMPLER_DYNAMIC_TEMPERATURE_RANGE: siskin_sampler_option = 8;
/// Dynamic temperature: the exponent of the normalized entropy.
pub const SISKIN_SAMPLER_DYNAMIC_TEMPERATURE_EXPONENT: siskin_sampler_option = 9;
/// Repetition penalty: positive logits of past tokens are divided by this, negative ones multiplied; 1 disables it.
pub const SISKIN_SAMPLER_REPETITION_PENALTY: siskin_sampler_option = 10;
/// Frequency penalty: subtracted from a logit for each past occurrence of its token; 0 disables it.
pub const SISKIN_SAMPLER_FREQUENCY_PENALTY: siskin_sampler_option = 11;
/// Presence penalty: subtracted from the logits of past tokens; 0 disables it.
pub const SISKIN_SAMPLER_PRESENCE_PENALTY: siskin_sampler_option = 12;
/// The number of past tokens that the three penalties consider.
pub const SISKIN_SAMPLER_PENALTY_LAST_N: siskin_sampler_option = 13;
/// DRY: the scale of the penalty for continuing a repetition; 0 disables it.
pub const SISKIN_SAMPLER_DRY_MULTIPLIER: siskin_sampler_option = 14;
/// DRY: the factor by which the penalty grows for each further repeated token.
pub const SISKIN_SAMPLER_DRY_BASE: siskin_sampler_option = 15;
/// DRY: the length up to which repetitions are not penalized.
pub const SISKIN_SAMPLER_DRY_ALLOWED_LENGTH: siskin_sampler_option = 16;
/// DRY: the number of past tokens that are considered.
pub const SISKIN_SAMPLER_DRY_LAST_N: siskin_sampler_option = 17;
/// Whether to use Mirostat 2 instead of top-k, top-p, min-p, locally typical sampling and XTC (0 or 1). Default 0.
pub const SISKIN_SAMPLER_MIROSTAT: siskin_sampler_option = 18;
/// Mirostat: the target surprisal, in bits.
pub const SISKIN_SAMPLER_MIROSTAT_TAU: siskin_sampler_option = 19;
/// Mirostat: the learning rate.
pub const SISKIN_SAMPLER_MIROSTAT_ETA: siskin_sampler_option = 20;
/// Whether to report the log-probability of each token (0 or 1). Default 0.
pub const SISKIN_SAMPLER_LOG_PROBABILITIES: siskin_sampler_option = 21;
/// The number of most probable tokens whose log-probabilities are also reported.
pub const SISKIN_SAMPLER_TOP_LOG_PROBABILITIES: siskin_sampler_option = 22;

fn set(sampler: &mut SamplerOptions, option: siskin_sampler_option, value: f64) -> Outcome {
    match option {
        SISKIN_SAMPLER_TEMPERATURE => sampler.temperature = value as f32,
        SISKIN_SAMPLER_TOP_K => sampler.top_k = integer("value", value)?,
        SISKIN_SAMPLER_TOP_P => sampler.top_p = value as f32,
        SISKIN_SAMPLER_MIN_P => sampler.min_p = value as f32,
        SISKIN_SAMPLER_TYPICAL_P => sampler.typical_p = value as f32,
        SISKIN_SAMPLER_XTC_PROBABILITY => sampler.xtc_probability = value as f32,
        SISKIN_SAMPLER_XTC_THRESHOLD => sampler.xtc_threshold = value as f32,
        SISKIN_SAMPLER_DYNAMIC_TEMPERATURE_RANGE => sampler.dynamic_temperature_range = value as f32,
        SISKIN_SAMPLER_DYNAMIC_TEMPERATURE_EXPONENT => sampler.dynamic_temperature_exponent = value as f32,
        SISKIN_SAMPLER_REPETITION_PENALTY => sampler.repetition_penalty = value as f32,
        SISKIN_SAMPLER_FREQUENCY_PENALTY => sampler.frequency_penalty = value as f32,
        SISKIN_SAMPLER_PRESENCE_PENALTY => sampler.presence_penalty = value as f32,
        SISKIN_SAMPLER_PENALTY_LAST_N => sampler.penalty_last_n = integer("value", value)?,
        SISKIN_SAMPLER_DRY_MULTIPLIER => sampler.dry_multiplier = value as f32,
        SISKIN_SAMPLER_DRY_BASE => sampler.dry_base = value as f32,
        SISKIN_SAMPLER_DRY_ALLOWED_LENGTH => sampler.dry_allowed_length = integer("value", value)?,
        SISKIN_SAMPLER_DRY_LAST_N => sampler.dry_last_n = integer("value", value)?,
        SISKIN_SAMPLER_MIROSTAT => sampler.mirostat = boolean("value", value)?,
        SISKIN_SAMPLER_MIROSTAT_TAU => sampler.mirostat_tau = value as f32,
        SISKIN_SAMPLER_MIROSTAT_ETA => sampler.mirostat_eta = value as f32,
        SISKIN_SAMPLER_LOG_PROBABILITIES => sampler.log_probabilities = boolean("value", value)?,
        SISKIN_SAMPLER_TOP_LOG_PROBABILITIES => sampler.top_log_probabilities = integer("value", value)?,
        other => {
            return Err(PendingError::argument("option", format!("{other} is not a siskin_sampler_option")));
        }
    }
    Ok(())
}

/// Creates the default sampling options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_new(out: *mut *mut siskin_sampler) -> *mut siskin_error {
    // SAFETY: pointer contract: `out` is null or writable.
    unsafe { guard::create(out, || Ok((SamplerOptions::default(), ()))) }
}

/// Sets an option. Options that are counts or flags take integers. A value that is out of range is rejected.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_set(
    sampler: *mut siskin_sampler,
    option: siskin_sampler_option,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `sampler` is null or live.
    unsafe {
        guard::exclusive(sampler, |sampler, ()| {
            let mut changed = sampler.clone();
            set(&mut changed, option, value)?;
            changed.validate()?;
            *sampler = changed;
            Ok(())
        })
    }
}

/// Sets the seed of the random number generator. The same seed, options, model and prompt give the same text on every
/// machine.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_set_seed(
    sampler: *mut siskin_sampler,
    seed: u64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `sampler` is null or live.
    unsafe {
        guard::exclusive(sampler, |sampler, ()| {
            sampler.seed = seed;
            Ok(())
        })
    }
}

/// Adds a bias to the logit of a token; negative infinity forbids the token.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_add_bias(
    sampler: *mut siskin_sampler,
    token: u32,
    bias: f32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `sampler` is null or live.
    unsafe {
        guard::exclusive(sampler, |sampler, ()| {
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(PendingError::argument(
                    "bias",
                    format!("expected a number or negative infinity, got {bias}"),
                ));
            }
            sampler.logit_bias.push((token, bias));
            Ok(())
        })
    }
}

/// Frees sampling options. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_free(sampler: *mut siskin_sampler) {
    // SAFETY: pointer contract: `sampler` is null or live, and not used afterwards.
    unsafe { guard::free(sampler) }
}
