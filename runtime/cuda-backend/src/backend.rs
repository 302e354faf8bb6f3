//! The backend and its modules.

use std::sync::Arc;

use siskin_backend::kv_storage::KvStorageLayout;
use siskin_backend::{Backend, Capabilities, Executable, ExecutionLimits, MemoryUse, Module, WeightSource};
use siskin_device::Device;
use siskin_format::Result;
use siskin_kernels::ops::attention::CacheType;

use crate::executable::{CudaExecutable, MemoryPlan};
use crate::memory::SharedDevice;
use crate::weights::UploadedModel;

/// A device that runs models with the CUDA kernels.
pub struct CudaBackend {
    device: SharedDevice,
}

impl CudaBackend {
    /// Creates a backend on a device that has the kernels of `siskin-cuda`.
    pub fn new(device: impl Device + Send + 'static) -> Self {
        Self { device: SharedDevice::new(device) }
    }

    /// Returns the GPU with this index, from 0, which all models of the process share. It is opened once.
    ///
    /// # Errors
    /// As `CudaDevice::open`.
    #[cfg(feature = "driver")]
    pub fn shared(index: usize) -> Result<&'static Self> {
        use std::collections::BTreeMap;
        use std::sync::{Mutex, PoisonError};

        static OPEN: Mutex<BTreeMap<usize, &'static CudaBackend>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = open.get(&index) {
            return Ok(backend);
        }
        let backend: &'static Self = Box::leak(Box::new(Self::new(siskin_cuda::CudaDevice::open(index)?)));
        open.insert(index, backend);
        Ok(backend)
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kv_cache: true, layer_skipping: true, cpu_features: false }
    }

    fn load(&self, source: &WeightSource<'_>) -> Result<Arc<dyn Module>> {
        let model = Arc::new(UploadedModel::new(&self.device, source)?);
        Ok(Arc::new(CudaModule { device: self.device.clone(), model }))
    }
}

/// A model on a device.
struct CudaModule {
    device: SharedDevice,
    model: Arc<UploadedModel>,
}

impl Module for CudaModule {
    fn threads(&self) -> usize {
        1
    }

    fn kernels(&self) -> Vec<&'static str> {
        vec!["cuda"]
    }

    fn batch_tokens(&self) -> usize {
        1024
    }

    fn cache_type(&self) -> CacheType {
        self.model.host.cache_type()
    }

    fn block_bytes(&self, limits: &ExecutionLimits) -> Result<Vec<usize>> {
        Ok(KvStorageLayout::new(&limits.passes, &limits.block_layout)?.block_bytes())
    }

    fn memory_requirements(&self, limits: &ExecutionLimits) -> Result<MemoryUse> {
        let layout = KvStorageLayout::new(&limits.passes, &limits.block_layout)?;
        let activations = MemoryPlan::new(&self.model, limits)?.bytes() + self.model.bytes();
        Ok(MemoryUse { activations, kv_cache: layout.bytes(&limits.block_layout) })
    }

    fn create_executable(&self, limits: &ExecutionLimits) -> Result<Box<dyn Executable>> {
        Ok(Box::new(CudaExecutable::new(&self.device, &self.model, limits)?))
    }
}
