//! The blocks of the KV cache in device memory, in the layout of the CPU's blocks.

use siskin_backend::block_table::{BlockCopy, BlockId, BlockLayout};
use siskin_backend::kv_storage::KvStorageLayout;
use siskin_backend::{BlockFormat, BlockStorage};
use siskin_device::{CommandList, DevicePtr, GridSize, KernelArgument, Precision};
use siskin_format::Result;

use crate::memory::{DeviceMemory, SharedDevice};

/// Threads of a block that copies.
const THREADS: usize = 256;

/// The blocks of all groups.
pub(crate) struct DeviceBlocks {
    device: SharedDevice,
    pub(crate) layout: KvStorageLayout,
    pools: Vec<DeviceMemory>,
}

impl DeviceBlocks {
    /// Allocates all blocks, filled with zeros.
    pub(crate) fn new(device: &SharedDevice, layout: KvStorageLayout, blocks: &BlockLayout) -> Result<Self> {
        let mut pools = Vec::with_capacity(blocks.groups.len());
        for (bytes, group) in layout.block_bytes().into_iter().zip(&blocks.groups) {
            let pool = device.allocate(bytes.saturating_mul(group.block_count))?;
            let mut clear = CommandList::new(Precision::F32);
            clear.clear(pool.ptr, pool.bytes);
            device.lock().run_uncaptured(&clear)?;
            pools.push(pool);
        }
        Ok(Self { device: device.clone(), layout, pools })
    }

    /// Returns the number of multiprocessors of the device.
    pub(crate) fn multiprocessors(&self) -> usize {
        self.device.lock().capabilities().multiprocessors
    }

    /// Iterates over the addresses of the first block of each group.
    pub(crate) fn pools(&self) -> impl Iterator<Item = DevicePtr> {
        self.pools.iter().map(|pool| pool.ptr)
    }

    fn place(&self, group: usize, block: BlockId) -> DevicePtr {
        self.pools[group].ptr + 4 * (self.layout.block_words(group) * block as usize) as DevicePtr
    }
}

impl BlockStorage for DeviceBlocks {
    fn bytes(&self) -> usize {
        self.pools.iter().map(|pool| pool.bytes).sum()
    }

    fn copy(&mut self, BlockCopy { group, from, to }: BlockCopy) -> Result<()> {
        let words = self.layout.block_words(group);
        let mut commands = CommandList::new(Precision::F32);
        let arguments = [
            KernelArgument::Ptr(self.pools[group].ptr),
            KernelArgument::Long(words as i64),
            KernelArgument::Int(from as i32),
            KernelArgument::Int(to as i32),
        ];
        let grid = GridSize::linear(words.div_ceil(4 * THREADS).clamp(1, 256));
        commands.kernel("kv_copy_block", grid, THREADS, 0, &arguments);
        self.device.lock().run_uncaptured(&commands)
    }

    fn format(&self, group: usize) -> Result<BlockFormat> {
        Ok(self.layout.format(group))
    }

    fn export(&self, group: usize, block: BlockId, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + 4 * self.layout.block_words(group), 0);
        self.device.lock().read(self.place(group, block), &mut out[start..])
    }

    fn import(&mut self, group: usize, block: BlockId, words: &[[u8; 4]]) -> Result<()> {
        self.device.lock().write(self.place(group, block), words.as_flattened())
    }
}
