//! Throttling of a model: the target of the app, and the state of the device.

use siskin::governor::{PowerState, ThermalState, ThrottleTarget};

use crate::arguments::SizedOutput;
use crate::error::{PendingError, siskin_error};
use crate::guard;
use crate::model::siskin_model;

/// How the computation of a model is throttled.
pub type siskin_throttle_mode = u32;
/// No throttling: the thermal and power states are recorded, but have no effect.
pub const SISKIN_THROTTLE_OFF: siskin_throttle_mode = 0;
/// As fast as the thermal and power states allow.
pub const SISKIN_THROTTLE_ADAPTIVE: siskin_throttle_mode = 1;
/// At most this many tokens per second for each sequence during decoding, with no more threads than that requires.
/// Prefill and encoding run as fast as the thermal and power states allow.
pub const SISKIN_THROTTLE_TOKENS_PER_SECOND: siskin_throttle_mode = 2;
/// Duty cycle: the fraction of the time spent computing, above 0, at most 1.
pub const SISKIN_THROTTLE_DUTY_CYCLE: siskin_throttle_mode = 3;
/// Background work: one thread, a quarter of the time.
pub const SISKIN_THROTTLE_BACKGROUND: siskin_throttle_mode = 4;

/// Throttling statistics. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_throttle_stats {
    /// `sizeof(siskin_throttle_stats)`.
    pub struct_size: usize,
    /// The number of forward passes of the model.
    pub passes: u64,
    /// The time spent in them.
    pub compute_nanoseconds: u64,
    /// The time spent waiting before them.
    pub wait_nanoseconds: u64,
    /// The number of threads used by the last pass; 0 before the first one.
    pub threads: u32,
    /// The current duty cycle.
    pub duty_cycle: f32,
}

/// Throttles all inference with the model. `value` is the number of tokens per second or the duty cycle; other modes
/// ignore it. Results do not depend on the mode. A waiting call can be canceled.
///
/// Threads: any, at any time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_set_throttle(
    model: *const siskin_model,
    mode: siskin_throttle_mode,
    value: f32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live.
    unsafe {
        guard::shared(model, |model| {
            let target = match mode {
                SISKIN_THROTTLE_OFF => ThrottleTarget::Off,
                SISKIN_THROTTLE_ADAPTIVE => ThrottleTarget::Adaptive,
                SISKIN_THROTTLE_TOKENS_PER_SECOND => ThrottleTarget::TokensPerSecond(value),
                SISKIN_THROTTLE_DUTY_CYCLE => ThrottleTarget::DutyCycle(value),
                SISKIN_THROTTLE_BACKGROUND => ThrottleTarget::Background,
                other => {
                    return Err(PendingError::argument(
                        "mode",
                        format!("{other} is not a siskin_throttle_mode"),
                    ));
                }
            };
            Ok(model.governor().set_target(target)?)
        })
    }
}

/// Sets the thermal state of the device, from 0 (not throttled) to 6 (shutting down), as in the thermal status of
/// Android's `PowerManager`; iOS's nominal, fair, serious and critical correspond to 0, 1, 3 and 4. When the device
/// cools down, the speed rises step by step.
///
/// Threads: any, at any time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_set_thermal_state(
    model: *const siskin_model,
    state: u32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live.
    unsafe {
        guard::shared(model, |model| {
            let thermal = ThermalState::ALL.get(state as usize).ok_or_else(|| {
                PendingError::argument(
                    "state",
                    format!("expected 0 to {}, got {state}", ThermalState::ALL.len() - 1),
                )
            })?;
            model.governor().set_thermal_state(*thermal);
            Ok(())
        })
    }
}

/// Sets the power state of the device: whether its power saving mode is on, whether it runs on battery, and the battery
/// level from 0 to 1; a negative level means unknown.
///
/// Threads: any, at any time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_set_power_state(
    model: *const siskin_model,
    power_saving: bool,
    on_battery: bool,
    battery_level: f32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live.
    unsafe {
        guard::shared(model, |model| {
            let battery = (battery_level >= 0.0).then_some(battery_level);
            model.governor().set_power_state(PowerState { saving: power_saving, on_battery, battery });
            Ok(())
        })
    }
}

/// Returns the throttling statistics.
///
/// Threads: any, at any time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_throttle_stats(
    model: *const siskin_model,
    out: *mut siskin_throttle_stats,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(model, |model| {
            let result = SizedOutput::new("out", out)?;
            let stats = model.governor().stats();
            let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            result.write(&siskin_throttle_stats {
                struct_size: 0,
                passes: stats.passes,
                compute_nanoseconds: nanoseconds(stats.worked),
                wait_nanoseconds: nanoseconds(stats.waited),
                threads: stats.threads as u32,
                duty_cycle: stats.duty,
            });
            Ok(())
        })
    }
}
