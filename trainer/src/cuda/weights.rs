//! The tensors of a program on a device.

use siskin::Result;

use super::device::Device;
use super::tape::{Argument, Place, Tape};
use super::{Precision, aligned};
use crate::parameters::{Gradients, Parameters};

/// Where the numbers of a tensor are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    /// As floats.
    pub(super) floats: Place,
    /// In the precision that products take: the same place where that is floats.
    pub(super) numbers: Place,
    /// The gradient, as floats; 0: it stays as it is.
    pub(super) gradient: Place,
    /// How many.
    pub(super) count: usize,
}

/// All tensors, by their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    pub(super) list: Vec<Weight>,
    precision: Precision,
}

impl Weights {
    /// Brings parameters to a device; those that `trains` names get gradients, zero at first.
    pub(super) fn new<D: Device>(
        device: &mut D,
        precision: Precision,
        parameters: &Parameters<f32>,
        trains: impl Fn(usize) -> bool,
    ) -> Result<Self> {
        let mut size = 0;
        let mut next = |bytes: usize| {
            size += aligned(bytes);
            (size - aligned(bytes)) as Place
        };
        let mut list: Vec<Weight> = Vec::with_capacity(parameters.list.len());
        for (index, parameter) in parameters.list.iter().enumerate() {
            let count = parameter.numbers.len();
            let floats = next(4 * count);
            let numbers = if precision == Precision::F32 { floats } else { next(precision.bytes() * count) };
            // Places are counted from 1 here, so that 0 is none.
            let gradient = if trains(index) { next(4 * count) + 1 } else { 0 };
            list.push(Weight { floats, numbers, gradient, count });
        }
        let base = device.allocate(size)?;
        let mut tape = Tape::new(precision);
        for weight in &mut list {
            weight.floats += base;
            weight.numbers += base;
            if weight.gradient > 0 {
                weight.gradient += base - 1;
                tape.clear(weight.gradient, 4 * weight.count);
            }
        }
        device.run(&tape)?;
        let weights = Self { list, precision };
        weights.write(device, parameters)?;
        Ok(weights)
    }

    /// Gives tensors the numbers of `parameters`.
    pub(super) fn write<D: Device>(&self, device: &mut D, parameters: &Parameters<f32>) -> Result<()> {
        let mut tape = Tape::new(self.precision);
        for (weight, parameter) in self.list.iter().zip(&parameters.list) {
            let bytes: Vec<u8> = parameter.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            device.write(weight.floats, &bytes)?;
            if weight.numbers != weight.floats {
                let arguments = [Argument::Place(weight.floats), Argument::Place(weight.numbers)];
                tape.numbers("from_floats", weight.count, &arguments);
            }
        }
        device.run(&tape)
    }

    /// Gives `parameters` the numbers of tensors.
    pub(super) fn read<D: Device>(&self, device: &mut D, parameters: &mut Parameters<f32>) -> Result<()> {
        for (weight, parameter) in self.list.iter().zip(&mut parameters.list) {
            read_floats(device, weight.floats, &mut parameter.numbers)?;
        }
        Ok(())
    }

    /// Gives `gradients` those of tensors.
    pub(super) fn read_gradients<D: Device>(
        &self,
        device: &mut D,
        gradients: &mut Gradients<f32>,
    ) -> Result<()> {
        for (weight, gradient) in self.list.iter().zip(&mut gradients.list) {
            if let Some(gradient) = gradient.as_mut().filter(|_| weight.gradient > 0) {
                read_floats(device, weight.gradient, gradient)?;
            }
        }
        Ok(())
    }
}

/// Reads floats.
pub(super) fn read_floats<D: Device>(device: &mut D, place: Place, out: &mut [f32]) -> Result<()> {
    let mut bytes = vec![0; 4 * out.len()];
    device.read(place, &mut bytes)?;
    for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *out = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(())
}
