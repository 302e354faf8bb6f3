//! Streaming text: whole characters only, stop strings.
