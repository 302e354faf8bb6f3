//! What the static command is built for, and with.

use crate::shell::{Result, WITHOUT_TRACT};
use crate::systems::OWN;

/// An architecture: its name in file names, and the compiler's target.
pub(super) struct Architecture {
    pub(super) name: &'static str,
    pub(super) target: &'static str,
}

pub(super) const ARCHITECTURES: [Architecture; 2] = [
    Architecture { name: "amd64", target: "x86_64-unknown-linux-musl" },
    Architecture { name: "arm64", target: "aarch64-unknown-linux-musl" },
];
/// TLS in `serve` and all audio formats; as in the Debian packages, without tract, which is too large for boards.
pub(super) const FEATURES: [&str; 2] = [WITHOUT_TRACT, "--features=tls,audio-formats"];

/// Returns the architecture of this machine.
pub(super) fn own() -> Result<&'static Architecture> {
    let own = |architecture: &&Architecture| architecture.name == OWN;
    ARCHITECTURES.iter().find(own).ok_or_else(|| "releases are built on amd64 and arm64 machines".to_owned())
}
