//! Operation: which models get requests, and what the server does when there are too many.

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
