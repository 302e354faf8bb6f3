//! The pace of a model: what the app requests, and the state of the device.

use siskin::governor::{PowerState, ThermalState, ThrottleTarget};

use crate::arguments::SizedOutput;
use crate::error::{PendingError, siskin_error};
use crate::guard;
use crate::model::siskin_model;

/// No throttling: heat and power are recorded, but nothing is slowed down.
pub const SISKIN_PACE_OFF: u32 = 0;
/// As fast as heat and power allow.
pub const SISKIN_PACE_FULL: u32 = 1;
/// A fixed number of tokens per second for each sequence, with no more threads than that takes.
pub const SISKIN_PACE_TOKENS: u32 = 2;
/// The duty cycle: the fraction of the time spent computing, above 0, at most 1.
pub const SISKIN_PACE_DUTY: u32 = 3;
/// Background work: one thread, a quarter of the time.
pub const SISKIN_PACE_BACKGROUND: u32 = 4;

/// Statistics of throttled computation. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_pace_stats {
    /// `sizeof(siskin_pace_stats)`.
    pub struct_size: usize,
    /// Forward passes of the model.
    pub passes: u64,
    /// The time spent in them.
    pub worked_nanoseconds: u64,
    /// The time spent waiting before them.
    pub waited_nanoseconds: u64,
    /// Threads of the last pass; 0 before the first one.
    pub threads: u32,
    /// The current duty cycle.
    pub duty: f32,
}

/// Sets the pace of all computation with the model, `SISKIN_PACE_…`; `value` is the parameter of the pace, if it has
/// one. Results do not depend on it. A call that is waiting can be stopped like any other.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_set_pace(
    model: *const siskin_model,
    pace: u32,
    value: f32,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let target = match pace {
                SISKIN_PACE_OFF => ThrottleTarget::Off,
                SISKIN_PACE_FULL => ThrottleTarget::Full,
                SISKIN_PACE_TOKENS => ThrottleTarget::TokensPerSecond(value),
                SISKIN_PACE_DUTY => ThrottleTarget::DutyCycle(value),
                SISKIN_PACE_BACKGROUND => ThrottleTarget::Background,
                other => {
                    return Err(PendingError::argument(
                        "pace",
                        format!("{other} is not one of SISKIN_PACE_…"),
                    ));
                }
            };
            Ok(model.governor().set_target(target)?)
        })
    }
}

/// Sets the thermal state of the device, from 0 to 6 as in Android's thermal status; iOS's nominal, fair, serious and
/// critical are 0, 1, 3 and 4. When the device cools down, the pace rises step by step.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_set_heat(model: *const siskin_model, level: u32) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let thermal = ThermalState::ALL.get(level as usize).ok_or_else(|| {
                PendingError::argument(
                    "level",
                    format!("{level}; the hottest is {}", ThermalState::ALL.len() - 1),
                )
            })?;
            model.governor().set_thermal_state(*thermal);
            Ok(())
        })
    }
}

/// Sets the power state of the device: whether power saving is on, whether it runs on battery, and the battery level
/// from 0 to 1, negative if unknown.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_set_power(
    model: *const siskin_model,
    saving: bool,
    on_battery: bool,
    battery: f32,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let battery = (battery >= 0.0).then_some(battery);
            model.governor().set_power_state(PowerState { saving, on_battery, battery });
            Ok(())
        })
    }
}

/// Returns the statistics of throttled computation.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_pace_stats(
    model: *const siskin_model,
    out: *mut siskin_pace_stats,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let frame = SizedOutput::new("out", out)?;
            let stats = model.governor().stats();
            let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            frame.fill(&siskin_pace_stats {
                struct_size: 0,
                passes: stats.passes,
                worked_nanoseconds: nanoseconds(stats.worked),
                waited_nanoseconds: nanoseconds(stats.waited),
                threads: stats.threads as u32,
                duty: stats.duty,
            });
            Ok(())
        })
    }
}
