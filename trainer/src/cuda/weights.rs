//! The tensors of a program on a device.

use std::borrow::Cow;

use siskin_cuda::ops::DeviceWeight;
use siskin_device::{CommandList, Device, DevicePtr, KernelArgument, Precision, aligned};
use siskin_format::{Error, Result};
use siskin_graph::{Node, WeightRole};

use super::block_type;
use super::fp8::{Fp8LinearScaling, Fp8Matmuls};
use crate::parameters::{ForwardWeights, Gradients, Parameter, Parameters};
use crate::program::{Program, WeightBytes};
use crate::qat::QuantizationAware;

/// All tensors, by index.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceWeights {
    /// The values that forward passes read. The f32 values of trained tensors are those that the optimizer updates;
    /// the others are rounded from them.
    pub(super) list: Vec<DeviceWeight>,
    /// The gradients, as f32; 0: not trained.
    pub(super) gradients: Vec<DevicePtr>,
    /// The scaling state of fp8 matmuls, if any.
    pub(super) fp8: Option<Fp8Matmuls>,
    precision: Precision,
}

impl DeviceWeights {
    /// Copies parameters to a device; those for which `trains` returns true get gradients, initially zero. Frozen
    /// matrices that only matmuls read (`products`) have no f32 copy. Packed matrices are unpacked in chunks.
    pub(super) fn new(
        device: &mut dyn Device,
        precision: Precision,
        parameters: &Parameters<f32>,
        products: &[bool],
        trains: impl Fn(usize) -> bool,
    ) -> Result<Self> {
        let mut size = 0;
        // Places are counted from 1 here, since 0 means none.
        let mut next = |bytes: usize| {
            size += aligned(bytes);
            (size - aligned(bytes)) as DevicePtr + 1
        };
        let mut list: Vec<DeviceWeight> = Vec::with_capacity(parameters.list.len());
        let mut gradients = Vec::with_capacity(parameters.list.len());
        for (index, parameter) in parameters.list.iter().enumerate() {
            let &Parameter { rows, columns, .. } = parameter;
            let count = rows * columns;
            let stays = parameter.role == WeightRole::Matrix && products[index] && !trains(index);
            let mut weight = DeviceWeight { f32: 0, compute: 0, rows, columns };
            if precision == Precision::F32 || !stays {
                weight.f32 = next(4 * count);
            }
            let rounded = matches!(parameter.forward, ForwardWeights::Rounded { .. });
            weight.compute = match precision == Precision::F32 && !rounded {
                true => weight.f32,
                false => next(precision.bytes() * count),
            };
            gradients.push(if trains(index) { next(4 * count) } else { 0 });
            list.push(weight);
        }
        let base = device.allocate(size)?;
        let mut commands = CommandList::new(precision);
        for (weight, gradient) in list.iter_mut().zip(&mut gradients) {
            for place in [&mut weight.f32, &mut weight.compute, &mut *gradient] {
                *place = if *place > 0 { *place - 1 + base } else { 0 };
            }
        }
        let weights = Self { list, gradients, fp8: None, precision };
        weights.clear_gradients(&mut commands);
        device.run(&commands)?;
        weights.send(device, parameters, |_, _| true)?;
        Ok(weights)
    }

    /// Iterates over the trained tensors.
    pub(super) fn trained(&self) -> impl Iterator<Item = TrainedWeight> + '_ {
        let all = self.list.iter().zip(&self.gradients).enumerate();
        let all = all.map(|(index, (&values, &gradient))| TrainedWeight { index, values, gradient });
        all.filter(|weight| weight.gradient > 0)
    }

    /// Appends zeroing all gradients.
    pub(super) fn clear_gradients(&self, commands: &mut CommandList) {
        self.trained().for_each(|weight| commands.clear(weight.gradient, 4 * weight.values.count()));
    }

    /// Returns the scaling of a node's matmul in fp8; `None` without fp8. `records_amax`: whether its tensors' amax is
    /// recorded.
    pub(super) fn fp8_scaling(&self, node: &Node, records_amax: bool) -> Option<Fp8LinearScaling> {
        self.fp8.as_ref()?.of(node, records_amax)
    }

    /// Returns the bytes of all tensors, and of their gradients.
    pub(super) fn bytes(&self) -> WeightBytes {
        let mut sums = WeightBytes::default();
        for (weight, &gradient) in self.list.iter().zip(&self.gradients) {
            let table =
                |place: DevicePtr, bytes: usize| if place > 0 { aligned(bytes * weight.count()) } else { 0 };
            sums.parameters += table(weight.f32, 4);
            if weight.compute != weight.f32 {
                sums.parameters += table(weight.compute, self.precision.bytes());
            }
            sums.gradients += table(gradient, 4);
        }
        sums
    }

    /// Replaces the values of tensors by `parameters`; frozen matrices are unchanged.
    pub(super) fn write(&self, device: &mut dyn Device, parameters: &Parameters<f32>) -> Result<()> {
        self.send(device, parameters, |index, parameter| self.may_change(index, parameter))
    }

    fn send(
        &self,
        device: &mut dyn Device,
        parameters: &Parameters<f32>,
        which: impl Fn(usize, &Parameter<f32>) -> bool,
    ) -> Result<()> {
        let all = parameters.list.iter().enumerate();
        let chosen: Vec<_> = all.filter(|(index, parameter)| which(*index, parameter)).collect();
        let largest = |parameter: &Parameter<f32>| parameter.parts().map(|rows| rows.len()).max();
        let without = chosen.iter().filter(|(index, _)| self.list[*index].f32 == 0);
        let staging_bytes =
            without.map(|(_, parameter)| 4 * largest(parameter).unwrap_or(0) * parameter.columns).max();
        let staging = staging_bytes.map(|bytes| device.allocate(bytes)).transpose()?;
        for (index, parameter) in chosen {
            let weight = self.list[index];
            for rows in parameter.parts() {
                let start = rows.start * parameter.columns;
                let is_rounded = matches!(parameter.forward, ForwardWeights::Rounded { .. });
                // The trained values are those before rounding.
                let numbers = if is_rounded && self.gradients[index] > 0 {
                    Cow::Borrowed(&parameter.numbers[start..rows.end * parameter.columns])
                } else {
                    parameter.part(rows)
                };
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                let floats = match weight.f32 {
                    0 => staging.unwrap_or_default(),
                    place => place + 4 * start as DevicePtr,
                };
                device.write(floats, &bytes)?;
                if weight.compute != weight.f32 {
                    let to = weight.compute + (self.precision.bytes() * start) as DevicePtr;
                    let mut commands = CommandList::new(self.precision);
                    commands.elementwise(
                        "cast_from_f32",
                        numbers.len(),
                        &[floats, to].map(KernelArgument::Ptr),
                    );
                    device.run(&commands)?;
                }
            }
        }
        staging.map_or(Ok(()), |place| device.free(place))
    }

    /// Copies the values of tensors to `parameters`; frozen matrices are unchanged.
    pub(super) fn read(&self, device: &mut dyn Device, parameters: &mut Parameters<f32>) -> Result<()> {
        for (index, parameter) in parameters.list.iter_mut().enumerate() {
            if self.may_change(index, parameter) {
                read_floats(device, self.list[index].f32, &mut parameter.numbers)?;
            }
        }
        Ok(())
    }

    /// Rounds the copies that matmuls read of trained tensors (quantization-aware training).
    pub(super) fn round(
        &self,
        device: &mut dyn Device,
        rounding: &QuantizationAware,
        program: &Program,
    ) -> Result<()> {
        for &number in rounding.weights() {
            let weight = self.list[number];
            if self.gradients[number] == 0 {
                continue;
            }
            if weight.compute == weight.f32 {
                let name = &program.graph.weights[number].name;
                let message = format!("{name} was not rounded when it was uploaded");
                return Err(Error::argument("quantize", message));
            }
            let mut numbers = vec![0.0; weight.count()];
            read_floats(device, weight.f32, &mut numbers)?;
            let numbers = rounding.rounded(&numbers, program.graph.weights[number].columns);
            let mut bytes = vec![0; numbers.len() * self.precision.bytes()];
            block_type(self.precision).quantize_row(&numbers, None, &mut bytes);
            device.write(weight.compute, &bytes)?;
        }
        Ok(())
    }

    /// Copies gradients to `gradients`.
    pub(super) fn read_gradients(
        &self,
        device: &mut dyn Device,
        gradients: &mut Gradients<f32>,
    ) -> Result<()> {
        for (&place, gradient) in self.gradients.iter().zip(&mut gradients.list) {
            if let Some(gradient) = gradient.as_mut().filter(|_| place > 0) {
                read_floats(device, place, gradient)?;
            }
        }
        Ok(())
    }

    /// Returns true if the values of a tensor may change: vectors that are not trained may be derived from others.
    fn may_change(&self, index: usize, parameter: &Parameter<f32>) -> bool {
        let trains_or_derived = self.gradients[index] > 0 || parameter.role == WeightRole::Vector;
        self.list[index].f32 > 0 && trains_or_derived
    }
}

/// A trained tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrainedWeight {
    pub(super) index: usize,
    pub(super) values: DeviceWeight,
    /// The gradient, as f32.
    pub(super) gradient: DevicePtr,
}

/// Reads f32 values.
pub(super) fn read_floats(device: &mut dyn Device, place: DevicePtr, out: &mut [f32]) -> Result<()> {
    let mut bytes = vec![0; 4 * out.len()];
    device.read(place, &mut bytes)?;
    for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *out = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(())
}
