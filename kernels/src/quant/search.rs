//! Searches for the scales with the least error.
