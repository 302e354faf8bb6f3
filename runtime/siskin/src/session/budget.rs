//! Checks a memory budget before anything is allocated.

use crate::{Error, ErrorKind, Result};

/// The context length that is suggested instead of one that exceeds the budget is a multiple of this.
const STEP: usize = 64;

/// Rejects a context of `wanted` tokens that costs more than `budget` bytes, and names the longest that fits.
pub(super) fn check(budget: usize, wanted: usize, cost: &dyn Fn(usize) -> Result<usize>) -> Result<()> {
    let needed = cost(wanted)?;
    if needed <= budget {
        return Ok(());
    }
    let (mut fits, mut too_many) = (0, wanted.div_ceil(STEP));
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        match cost(middle * STEP)? <= budget {
            true => fits = middle,
            false => too_many = middle,
        }
    }
    let advice = match fits * STEP {
        0 => format!("even {STEP} tokens do not fit; use a smaller batch or a larger budget"),
        tokens => format!("a context of {tokens} tokens fits"),
    };
    let message = format!("{wanted} tokens need {needed} bytes, but the budget is {budget}; {advice}");
    Err(Error::new(ErrorKind::Memory, "budget", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_names_the_longest_context_that_fits() {
        let cost = |tokens: usize| Ok(1000 + 10 * tokens);
        assert!(check(3560, 256, &cost).is_ok());
        let error = check(3559, 256, &cost).unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Memory, "budget"));
        assert!(error.message().contains("a context of 192 tokens fits"), "{error}");
        assert!(check(1639, 256, &cost).unwrap_err().message().contains("even 64"), "{error}");
    }
}
