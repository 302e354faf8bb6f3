//! Parts that a build may leave out.
//!
//! No code is different without them: a part that is left out refuses at its doors, and what only those lead to is
//! dropped when the library is built.

use crate::Error;

/// A feature of this crate.
pub(crate) struct Part {
    name: &'static str,
    pub(crate) is_there: bool,
}

pub(crate) const TEMPLATES: Part = Part { name: "templates", is_there: cfg!(feature = "templates") };
pub(crate) const AUDIO: Part = Part { name: "audio", is_there: cfg!(feature = "audio") };

impl Part {
    /// What is said where the part is not there. Whoever asks looks at `is_there` itself: through a `Result`, the
    /// compiler no longer sees that nothing follows.
    #[cold]
    pub(crate) fn missing(&self) -> Error {
        Error::unsupported(
            "library",
            format!("was built without the feature `{0}`; build it with `{0}`", self.name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_part_that_is_left_out_says_so() {
        let error = Part { name: "wings", is_there: false }.missing();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`wings`"), "{error}");
    }
}
