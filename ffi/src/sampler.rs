//! How tokens are chosen.

use siskin::sample::SamplerOptions;

use crate::arguments::{truth, whole};
use crate::error::{Failure, Outcome, siskin_error};
use crate::guard::{self, Handle};

/// How tokens are chosen. Null stands for the usual way. Freed with `siskin_sampler_free`.
pub struct siskin_sampler {
    _opaque: [u8; 0],
}

impl Handle for siskin_sampler {
    type Inner = SamplerOptions;
    type Remote = ();
    const MAGIC: [u8; 8] = *b"SISKsamp";
    const NAME: &'static str = "sampler";
}

/// What logits are divided by; 0: always the likeliest token. Usually 0.8.
pub const SISKIN_SAMPLER_TEMPERATURE: u32 = 1;
/// Keep so many of the likeliest tokens; 0 is off. Usually 40.
pub const SISKIN_SAMPLER_TOP_K: u32 = 2;
/// Keep the fewest likeliest tokens with this share of the probability; 1 is off. Usually 0.95.
pub const SISKIN_SAMPLER_TOP_P: u32 = 3;
/// Keep tokens at least so many times as likely as the likeliest; 0 is off. Usually 0.05.
pub const SISKIN_SAMPLER_MIN_P: u32 = 4;
/// Keep the tokens nearest to the expected surprise with this share; 1 is off.
pub const SISKIN_SAMPLER_TYPICAL_P: u32 = 5;
/// How often top choices are excluded; 0 is off.
pub const SISKIN_SAMPLER_XTC_PROBABILITY: u32 = 6;
/// The probability from which a token is a top choice.
pub const SISKIN_SAMPLER_XTC_THRESHOLD: u32 = 7;
/// How far the temperature may move either way; 0 is off.
pub const SISKIN_SAMPLER_DYNAMIC_RANGE: u32 = 8;
/// The power to which the entropy's share is raised where the temperature moves.
pub const SISKIN_SAMPLER_DYNAMIC_EXPONENT: u32 = 9;
/// What logits of tokens in the history are divided by; 1 is off.
pub const SISKIN_SAMPLER_REPETITION_PENALTY: u32 = 10;
/// Taken from a logit for every time that its token is in the history; 0 is off.
pub const SISKIN_SAMPLER_FREQUENCY_PENALTY: u32 = 11;
/// Taken from a logit when its token is in the history; 0 is off.
pub const SISKIN_SAMPLER_PRESENCE_PENALTY: u32 = 12;
/// How many tokens the three penalties look back on.
pub const SISKIN_SAMPLER_PENALTY_LAST: u32 = 13;
/// The size of the penalty for continuing a repetition (DRY); 0 is off.
pub const SISKIN_SAMPLER_DRY_MULTIPLIER: u32 = 14;
/// How much that grows for each further repeated token.
pub const SISKIN_SAMPLER_DRY_BASE: u32 = 15;
/// The length up to which repetitions stay unpunished.
pub const SISKIN_SAMPLER_DRY_ALLOWED: u32 = 16;
/// How many tokens DRY looks back on.
pub const SISKIN_SAMPLER_DRY_LAST: u32 = 17;
/// 1: Mirostat 2 in the place of top-k, top-p, min-p, typical and XTC.
pub const SISKIN_SAMPLER_MIROSTAT: u32 = 18;
/// Mirostat's target surprise, in bits.
pub const SISKIN_SAMPLER_MIROSTAT_TAU: u32 = 19;
/// How fast Mirostat moves towards its target.
pub const SISKIN_SAMPLER_MIROSTAT_ETA: u32 = 20;
/// 1: report the logarithm of each token's probability.
pub const SISKIN_SAMPLER_LOG_PROBABILITIES: u32 = 21;
/// Report so many of the likeliest tokens as well.
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
        other => return Err(Failure::argument("option", format!("{other} is not one of SISKIN_SAMPLER_…"))),
    };
    *number = value as f32;
    Ok(())
}

/// Makes the usual way to choose.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_new(out: *mut *mut siskin_sampler) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { guard::made(out, || Ok((SamplerOptions::default(), ()))) }
}

/// Sets one of `SISKIN_SAMPLER_…`. A value out of its range is refused.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_set(
    sampler: *mut siskin_sampler,
    option: u32,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
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

/// Where random numbers start: the same seed, options, model and prompt give the same text on every machine.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_set_seed(
    sampler: *mut siskin_sampler,
    seed: u64,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(sampler, |sampler, ()| {
            sampler.seed = seed;
            Ok(())
        })
    }
}

/// Adds a number to the logit of a token; minus infinity forbids it.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_add_bias(
    sampler: *mut siskin_sampler,
    token: u32,
    bias: f32,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(sampler, |sampler, ()| {
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(Failure::argument(
                    "bias",
                    format!("is {bias}; give a number, or minus infinity"),
                ));
            }
            sampler.logit_bias.push((token, bias));
            Ok(())
        })
    }
}

/// Frees it. Null is nothing.
///
/// # Safety
/// Pointers are good, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_sampler_free(sampler: *mut siskin_sampler) {
    // SAFETY: the caller's promise.
    unsafe { guard::free(sampler) }
}
