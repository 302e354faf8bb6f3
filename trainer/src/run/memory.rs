//! The resources of a run: its memory, the batch size that fits, and the peak throughput of the machine.

use siskin_format::{Error, ErrorKind, Result};

use super::Run;
use crate::ema::ExponentialMovingAverage;
use crate::program::MemoryByPart;

/// The maximum number of rows of a batch that is tried.
const MAX_TOKENS: usize = 1 << 20;
/// The fraction of free memory that batches may use; the system and the driver need the rest.
const SHARE: f64 = 0.95;

impl Run {
    /// Returns the memory of the run, by part, for its longest batch; for a run on a device, the device memory.
    pub fn memory(&self) -> Result<MemoryByPart> {
        self.memory_with(self.config.batch.max_tokens)
    }

    /// Like [`Self::memory`], with another `batch.rows`.
    pub fn memory_with(&self, rows: usize) -> Result<MemoryByPart> {
        let step = self.setup.largest_batch(&self.config, rows)?;
        let (batch, weights) = match &self.device {
            Some(device) => (device.memory(&step)?, device.resident_bytes()),
            None => {
                (self.host.runner.memory(&step.batch, &self.host.parameters)?, self.host.resident_bytes())
            }
        };
        Ok(MemoryByPart {
            parameters: weights.parameters,
            gradients: weights.gradients,
            optimizer: self.host.optimizer.bytes()
                + self.host.ema.as_ref().map_or(0, ExponentialMovingAverage::bytes),
            activations: batch.activations,
            scratch: batch.scratch,
        })
    }

    /// Returns the largest `batch.rows` whose run takes at most `limit` bytes, and the memory it takes. The default
    /// limit is the free memory. The result is verified by running a batch.
    pub fn find_batch_size(&mut self, limit: Option<usize>) -> Result<(usize, MemoryByPart)> {
        let free = match limit {
            Some(_) => None,
            None => Some((SHARE * self.free_memory()? as f64) as usize),
        };
        let fits = |run: &Self, rows: usize| -> Result<bool> {
            let parts = run.memory_with(rows)?;
            // Weights, gradients and optimizer states are allocated already.
            let batch = parts.activations + parts.scratch;
            Ok(limit.is_none_or(|limit| parts.total() <= limit) && free.is_none_or(|free| batch <= free))
        };
        let (mut rows, mut too_many) = (0, MAX_TOKENS);
        while too_many - rows > 1.max(rows / 64) {
            let middle = rows + (too_many - rows) / 2;
            if fits(self, middle)? { rows = middle } else { too_many = middle }
        }
        while rows > 0 {
            match self.try_batch(rows) {
                Ok(()) => return Ok((rows, self.memory_with(rows)?)),
                Err(error) if error.kind() == ErrorKind::Memory => rows -= rows.div_ceil(16),
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Memory,
            "batch.max_tokens",
            "even a batch of one token does not fit in memory",
        ))
    }

    /// Returns the peak FLOP/s of the training device; 0 if unknown.
    pub fn peak_flops(&mut self) -> Result<f64> {
        match &mut self.device {
            Some(device) => Ok(device.peak_flops()?.unwrap_or(0.0)),
            None => Ok(crate::ceiling()),
        }
    }

    /// Runs forward and backward on the longest batch, and restores the state.
    fn try_batch(&mut self, rows: usize) -> Result<()> {
        let step = self.setup.largest_batch(&self.config, rows)?;
        match &mut self.device {
            Some(device) => device.pass(&step, 1.0, &mut self.host.gradients)?,
            None => self.host.pass(&step, None)?,
        };
        self.host.gradients.clear();
        Ok(())
    }

    /// Returns the number of free bytes.
    fn free_memory(&self) -> Result<usize> {
        let unknown = || {
            let message = "cannot be determined on this system; pass a memory limit";
            Error::unsupported("free memory", message)
        };
        match &self.device {
            Some(device) => device.free_bytes()?.ok_or_else(unknown),
            None => free_host_memory().ok_or_else(unknown),
        }
    }
}

/// Returns the bytes that processes can allocate without swapping.
fn free_host_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn free_memory_is_detected() {
        assert!(super::free_host_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
