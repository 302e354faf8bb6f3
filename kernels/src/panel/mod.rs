//! The packed panel layout.
