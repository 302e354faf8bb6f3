//! Cargo features that decide what is linked.

use siskin_format::CargoFeature;

/// The feature of engines.
pub(crate) const ENGINE: CargoFeature = CargoFeature { name: "engine", is_there: cfg!(feature = "engine") };
