//! Sampling options.

use siskin::sample::SamplerOptions;

use crate::arguments::{truth, whole};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle};

/// Sampling options. Null stands for the defaults. Freed with `siskin_sampler_free`.
pub struct siskin_sampler {
    _opaque: [u8; 0],
}

impl Handle for siskin_sampler {
    type Inner = SamplerOptions;
    type Remote = ();
    const MAGIC: [u8; 8] = *b"SISKsamp";
    const NAME: &'static str = "sampler";
}

/// Temperature: the divisor of the logits; 0: greedy. Default: 0.8.
pub const SISKIN_SAMPLER_TEMPERATURE: u32 = 1;
/// Top-k: keep this many of the most probable tokens; 0 is off. Default: 40.
pub const SISKIN_SAMPLER_TOP_K: u32 = 2;
/// Top-p: keep the fewest most probable tokens whose probabilities sum to this; 1 is off. Default: 0.95.
pub const SISKIN_SAMPLER_TOP_P: u32 = 3;
/// Min-p: keep tokens with at least this fraction of the most probable token's probability; 0 is off. Default: 0.05.
pub const SISKIN_SAMPLER_MIN_P: u32 = 4;
/// Locally typical sampling: keep the tokens nearest to the expected surprise up to this probability mass; 1 is off.
pub const SISKIN_SAMPLER_TYPICAL_P: u32 = 5;
/// XTC: the probability with which top choices are excluded; 0 is off.
pub const SISKIN_SAMPLER_XTC_PROBABILITY: u32 = 6;
/// XTC: the probability from which a token is a top choice.
pub const SISKIN_SAMPLER_XTC_THRESHOLD: u32 = 7;
/// Dynamic temperature: how far the temperature may move in either direction; 0 is off.
pub const SISKIN_SAMPLER_DYNAMIC_RANGE: u32 = 8;
/// Dynamic temperature: the exponent of the normalized entropy.
pub const SISKIN_SAMPLER_DYNAMIC_EXPONENT: u32 = 9;
/// Repetition penalty: the divisor of logits of tokens in the history; 1 is off.
pub const SISKIN_SAMPLER_REPETITION_PENALTY: u32 = 10;
/// Frequency penalty: subtracted from a logit for each occurrence of its token in the history; 0 is off.
pub const SISKIN_SAMPLER_FREQUENCY_PENALTY: u32 = 11;
/// Presence penalty: subtracted from a logit if its token is in the history; 0 is off.
pub const SISKIN_SAMPLER_PRESENCE_PENALTY: u32 = 12;
/// The number of past tokens that the three penalties consider.
pub const SISKIN_SAMPLER_PENALTY_LAST: u32 = 13;
/// DRY: the scale of the penalty for continuing a repetition; 0 is off.
pub const SISKIN_SAMPLER_DRY_MULTIPLIER: u32 = 14;
/// DRY: the factor by which the penalty grows for each further repeated token.
pub const SISKIN_SAMPLER_DRY_BASE: u32 = 15;
/// DRY: the length up to which repetitions are not penalized.
pub const SISKIN_SAMPLER_DRY_ALLOWED: u32 = 16;
/// DRY: the number of past tokens that are considered.
pub const SISKIN_SAMPLER_DRY_LAST: u32 = 17;
/// 1: Mirostat 2 instead of top-k, top-p, min-p, typical and XTC.
pub const SISKIN_SAMPLER_MIROSTAT: u32 = 18;
/// Mirostat: the target surprise, in bits.
pub const SISKIN_SAMPLER_MIROSTAT_TAU: u32 = 19;
/// Mirostat: the learning rate.
pub const SISKIN_SAMPLER_MIROSTAT_ETA: u32 = 20;
/// 1: report the log-probability of each token.
pub const SISKIN_SAMPLER_LOG_PROBABILITIES: u32 = 21;
/// Also report the log-probabilities of this many of the most probable tokens.
pub const SISKIN_SAMPLER_TOP_LOG_PROBABILITIES: u32 = 22;

fn set(sampler: &mut SamplerOptions, option: u32, value: f64) -> Outcome {
    let count = || whole("value", value);
    let number = match option {
        SISKIN_SAMPLER_TEMPERATURE => &mut sampler.temperature,
        SISKIN_SAMPLER_TOP_P => &mut sampler.top_p,
        SISKIN_SAMPLER_MIN_P => &mut sampler.min_p,
        SISKIN_SAMPLER_TYPICAL_P => &mut sampler.typical_p,
        SISKIN_SAMPLER_XTC_PROBABILITY => &mut sampler.xtc_probability,
        SISKIN_SAMPLER_XTC_THRESHOLD => &mut sampler.xtc_threshold,
        SISKIN_SAMPLER_DYNAMIC_RANGE => &mut sampler.dynamic_temperature_range,
        SISKIN_SAMPLER_DYNAMIC_EXPONENT => &mut sampler.dynamic_temperature_exponent,
        SISKIN_SAMPLER_REPETITION_PENALTY => &mut sampler.repetition_penalty,
        SISKIN_SAMPLER_FREQUENCY_PENALTY => &mut sampler.frequency_penalty,
        SISKIN_SAMPLER_PRESENCE_PENALTY => &mut sampler.presence_penalty,
        SISKIN_SAMPLER_DRY_MULTIPLIER => &mut sampler.dry_multiplier,
        SISKIN_SAMPLER_DRY_BASE => &mut sampler.dry_base,
        SISKIN_SAMPLER_MIROSTAT_TAU => &mut sampler.mirostat_tau,
        SISKIN_SAMPLER_MIROSTAT_ETA => &mut sampler.mirostat_eta,
        SISKIN_SAMPLER_MIROSTAT => return truth("value", value).map(|on| sampler.mirostat = on),
        SISKIN_SAMPLER_LOG_PROBABILITIES => {
            return truth("value", value).map(|on| sampler.log_probabilities = on);
        }
        SISKIN_SAMPLER_TOP_K => return count().map(|count| sampler.top_k = count),
        SISKIN_SAMPLER_PENALTY_LAST => return count().map(|count| sampler.penalty_last_n = count),
        SISKIN_SAMPLER_DRY_ALLOWED => return count().map(|count| sampler.dry_allowed_length = count),
        SISKIN_SAMPLER_DRY_LAST => return count().map(|count| sampler.dry_last_n = count),
        SISKIN_SAMPLER_TOP_LOG_PROBABILITIES => {
            return count().map(|count| sampler.top_log_probabilities = count);
        }
        other => {
            return Err(PendingError::argument("option", format!("{other} is not one of SISKIN_SAMPLER_…")));
        }
    };
    *number = value as f32;
    Ok(())
}

/// Creates the default sampling options.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_new(out: *mut *mut siskin_sampler) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::made(out, || Ok((SamplerOptions::default(), ()))) }
}

/// Sets one of `SISKIN_SAMPLER_…`. A value out of its range is rejected.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_set(
    sampler: *mut siskin_sampler,
    option: u32,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(sampler, |sampler, ()| {
            let mut changed = sampler.clone();
            set(&mut changed, option, value)?;
            changed.validate()?;
            *sampler = changed;
            Ok(())
        })
    }
}

/// Sets the random seed: the same seed, options, model and prompt give the same text on every machine.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_set_seed(
    sampler: *mut siskin_sampler,
    seed: u64,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(sampler, |sampler, ()| {
            sampler.seed = seed;
            Ok(())
        })
    }
}

/// Adds a bias to the logit of a token; negative infinity forbids it.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_add_bias(
    sampler: *mut siskin_sampler,
    token: u32,
    bias: f32,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(sampler, |sampler, ()| {
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(PendingError::argument(
                    "bias",
                    format!("is {bias}; give a number, or minus infinity"),
                ));
            }
            sampler.logit_bias.push((token, bias));
            Ok(())
        })
    }
}

/// Frees it. Null is ignored.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_free(sampler: *mut siskin_sampler) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(sampler) }
}
