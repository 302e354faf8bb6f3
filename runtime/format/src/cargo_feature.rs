//! Cargo features that a build may leave out.
//!
//! Without them the rest of the code is unchanged: the entry points of a missing feature return an error, and the
//! linker drops the code that only they reach.

use crate::Error;

/// A cargo feature of a crate.
pub struct CargoFeature {
    /// The name that users build with.
    pub name: &'static str,
    /// Whether the build has it.
    pub is_there: bool,
}

impl CargoFeature {
    /// Returns the error for a missing feature. Callers must branch on `is_there` itself: through a `Result` the
    /// compiler cannot prove that the code after it is unreachable.
    #[cold]
    pub fn missing(&self) -> Error {
        Error::unsupported(
            "library",
            format!("built without the feature `{0}`; build it with `{0}`", self.name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_part_that_is_left_out_says_so() {
        let error = CargoFeature { name: "wings", is_there: false }.missing();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`wings`"), "{error}");
    }
}
