//! Operations: aliases, health and circuit breaking, load shedding, quality and drift monitoring.

pub(crate) mod aliases;
pub(crate) mod breaker;
pub(crate) mod degradation;
pub(crate) mod drift;
pub(crate) mod health;
mod operation_log;
pub(crate) mod quality;
pub(crate) mod traffic_share;

pub use drift::{BaselinePrompt, DriftBaseline};
pub use operation_log::OperationLog;
