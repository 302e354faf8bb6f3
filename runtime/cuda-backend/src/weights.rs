//! The weights of a model in device memory: panels as they are in the file, and vectors.

use std::collections::HashMap;

use siskin_backend::{ModelPart, ModelWeights, WeightSource, Weights};
use siskin_device::DevicePtr;
use siskin_format::{Error, Result};
use siskin_graph::WeightId;
use siskin_kernels::panel::PanelType;

use crate::memory::{DeviceMemory, SharedDevice};

/// A matrix on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadedMatrix {
    pub panels: DevicePtr,
    pub panel: PanelType,
    /// The bytes of a panel.
    pub panel_bytes: usize,
    pub rows: usize,
    pub columns: usize,
}

/// A weight on the device.
#[derive(Clone, Copy, Debug)]
enum DeviceWeight {
    Matrix(UploadedMatrix),
    Vector(DevicePtr, usize),
}

/// The weights of a graph, indexed by [`WeightId`].
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadedWeights(Vec<DeviceWeight>);

impl UploadedWeights {
    pub(crate) fn matrix(&self, id: WeightId) -> Result<UploadedMatrix> {
        match self.0.get(id) {
            Some(DeviceWeight::Matrix(matrix)) => Ok(*matrix),
            _ => Err(Error::argument("graph", format!("weight {id} is not a matrix"))),
        }
    }

    /// Returns the address of a vector; 0 if there is none.
    pub(crate) fn vector(&self, id: Option<WeightId>) -> DevicePtr {
        match id.and_then(|id| self.0.get(id)) {
            Some(DeviceWeight::Vector(ptr, _)) => *ptr,
            _ => 0,
        }
    }

    /// Returns the length of a vector.
    pub(crate) fn vector_len(&self, id: WeightId) -> usize {
        match self.0.get(id) {
            Some(DeviceWeight::Vector(_, length)) => *length,
            _ => 0,
        }
    }
}

/// The weights of all graphs of a model, on the host as they are mapped and on the device.
pub(crate) struct UploadedModel {
    pub(crate) host: ModelWeights,
    encoder: UploadedWeights,
    decoder: UploadedWeights,
    memory: Vec<DeviceMemory>,
}

impl UploadedModel {
    pub(crate) fn new(device: &SharedDevice, source: &WeightSource<'_>) -> Result<Self> {
        let host = ModelWeights::bind(source)?;
        let mut upload = Upload { device, known: HashMap::new(), memory: Vec::new() };
        let count =
            |graph: &Option<siskin_graph::Graph>| graph.as_ref().map_or(0, |graph| graph.weights.len());
        let encoder = upload.weights(&host.encoder, count(&source.graphs.encoder))?;
        let decoder = upload.weights(&host.decoder, count(&source.graphs.decoder))?;
        let memory = upload.memory;
        Ok(Self { host, encoder, decoder, memory })
    }

    pub(crate) fn of(&self, part: ModelPart) -> &UploadedWeights {
        match part {
            ModelPart::Encoder => &self.encoder,
            ModelPart::Decoder => &self.decoder,
        }
    }

    /// Returns the bytes in device memory.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.bytes).sum()
    }
}

struct Upload<'a> {
    device: &'a SharedDevice,
    /// Uploaded host memory, such as an embedding table that is the LM head too.
    known: HashMap<(usize, usize), DevicePtr>,
    memory: Vec<DeviceMemory>,
}

impl Upload<'_> {
    fn weights(&mut self, host: &Weights, count: usize) -> Result<UploadedWeights> {
        (0..count).map(|id| self.weight(host, id)).collect::<Result<_>>().map(UploadedWeights)
    }

    fn weight(&mut self, host: &Weights, id: WeightId) -> Result<DeviceWeight> {
        let Some(tensor) = host.matrix(id) else {
            let vector = host.vector(Some(id));
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            return Ok(DeviceWeight::Vector(self.place(&bytes)?, vector.len()));
        };
        let key = (tensor.data.as_ptr() as usize, tensor.data.len());
        let panels = match self.known.get(&key) {
            Some(ptr) => *ptr,
            None => {
                let ptr = self.place(&tensor.data)?;
                self.known.insert(key, ptr);
                ptr
            }
        };
        let panel_bytes = tensor.panel.panel_bytes(tensor.columns).unwrap_or(0);
        let (panel, rows, columns) = (tensor.panel, tensor.rows, tensor.columns);
        Ok(DeviceWeight::Matrix(UploadedMatrix { panels, panel, panel_bytes, rows, columns }))
    }

    fn place(&mut self, bytes: &[u8]) -> Result<DevicePtr> {
        let memory = self.device.upload(bytes)?;
        let ptr = memory.ptr;
        self.memory.push(memory);
        Ok(ptr)
    }
}
