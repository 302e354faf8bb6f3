//! `--device`: where a model runs.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use siskin::{Backend, DeviceKind, Result};

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// A device that every build has.
    Kind(DeviceKind),
    /// The NVIDIA GPU with this index.
    Cuda(usize),
}

impl Default for DeviceArg {
    fn default() -> Self {
        Self::Kind(DeviceKind::Auto)
    }
}

impl std::fmt::Display for DeviceArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind(kind) => f.write_str(name_and_help(*kind).0),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

const CUDA: &str = "cuda";

fn name_and_help(kind: DeviceKind) -> (&'static str, &'static str) {
    match kind {
        DeviceKind::Auto => ("auto", "The fastest device that this build supports"),
        DeviceKind::Cpu => ("cpu", "Optimized kernels for this CPU"),
        DeviceKind::Reference => ("reference", "Scalar reference implementation, slow"),
    }
}

impl DeviceArg {
    /// Returns the choice among the devices that every build has.
    pub(crate) fn kind(self) -> DeviceKind {
        match self {
            Self::Kind(kind) => kind,
            Self::Cuda(_) => DeviceKind::Auto,
        }
    }

    /// Opens the device if it has a backend of another crate.
    ///
    /// # Errors
    /// If there is no such device, or this build does not support it.
    pub(crate) fn backend(self) -> Result<Option<&'static (dyn Backend + Sync)>> {
        match self {
            Self::Kind(_) => Ok(None),
            Self::Cuda(index) => cuda(index).map(Some),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<&'static (dyn Backend + Sync)> {
    let backend =
        siskin_cuda_backend::CudaBackend::shared(index).map_err(|error| error.within("--device"))?;
    Ok(backend)
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize) -> Result<&'static (dyn Backend + Sync)> {
    let message = "this build does not support CUDA; build with `--features cuda`, or use --device cpu";
    Err(siskin::Error::unsupported("--device", message))
}

/// Parses a device: a name, or `cuda:N` for GPU N.
#[derive(Clone)]
pub(crate) struct DeviceParser;

impl DeviceParser {
    fn names() -> impl Iterator<Item = PossibleValue> {
        let kinds = DeviceKind::ALL.iter().map(|kind| {
            let (name, help) = name_and_help(*kind);
            PossibleValue::new(name).help(help)
        });
        kinds.chain([PossibleValue::new(CUDA).help("The first NVIDIA GPU; cuda:N is GPU N, from 0")])
    }
}

impl TypedValueParser for DeviceParser {
    type Value = DeviceArg;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<DeviceArg, clap::Error> {
        let index = value.to_str().and_then(|text| text.strip_prefix(CUDA)?.strip_prefix(':')?.parse().ok());
        if let Some(index) = index {
            return Ok(DeviceArg::Cuda(index));
        }
        let name = PossibleValuesParser::new(Self::names()).parse_ref(command, argument, value)?;
        let kind = DeviceKind::ALL.iter().find(|kind| name_and_help(**kind).0 == name);
        Ok(kind.map_or(DeviceArg::Cuda(0), |kind| DeviceArg::Kind(*kind)))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Self::names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names_and_gpus_an_index() {
        let parse =
            |text: &str| DeviceParser.parse_ref(&clap::Command::new("siskin"), None, OsStr::new(text)).ok();
        assert_eq!(parse("reference"), Some(DeviceArg::Kind(DeviceKind::Reference)));
        assert_eq!((parse("cuda"), parse("cuda:3")), (Some(DeviceArg::Cuda(0)), Some(DeviceArg::Cuda(3))));
        assert_eq!((parse("cuda:"), parse("gpu"), parse("cuda:-1")), (None, None, None));
        assert_eq!(
            [DeviceArg::default(), DeviceArg::Cuda(2)].map(|device| device.to_string()),
            ["auto", "cuda:2"]
        );
    }
}
