//! Where models come from.

pub(crate) mod pypi;
