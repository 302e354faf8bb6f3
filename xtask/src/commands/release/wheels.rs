//! The Python wheels.

use super::{Part, files};
use crate::commands::python::{self, wheel};
use crate::shell::Result;
use std::path::Path;

pub(super) const PART: Part = Part { name: "wheels", need_tools, build, check };

fn need_tools() -> Result {
    python::need_tools()?;
    wheel::need_tools(&wheel::PLATFORMS)
}

fn build(to: &Path) -> Result {
    wheel::PLATFORMS.iter().try_for_each(|platform| wheel::build(platform, to).map(drop))
}

fn check(built: &Path) -> Result {
    for platform in &wheel::PLATFORMS {
        let file = files(built)?.into_iter().find(|file| platform.is_for(file));
        python::check_wheel(&file.ok_or("a wheel is missing")?, platform, true)?;
    }
    Ok(())
}
