//! Parts that a build may leave out.
//!
//! No code is different without them: a part that is left out refuses at its doors, and what only those lead to is
//! dropped when the library is built.

use crate::{Error, Result};

/// A feature of this crate.
pub(crate) struct Part {
    name: &'static str,
    is_there: bool,
}

pub(crate) const TEMPLATES: Part = Part { name: "templates", is_there: cfg!(feature = "templates") };
pub(crate) const AUDIO: Part = Part { name: "audio", is_there: cfg!(feature = "audio") };

impl Part {
    /// Goes on where the part is there. Inlined, so that nothing stays of what follows where it is not.
    #[inline(always)]
    pub(crate) fn need(self) -> Result<()> {
        match self.is_there {
            true => Ok(()),
            false => Err(self.missing()),
        }
    }

    #[cold]
    fn missing(self) -> Error {
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
        assert!(Part { name: "wings", is_there: true }.need().is_ok());
        let error = Part { name: "wings", is_there: false }.need().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`wings`"), "{error}");
    }
}
