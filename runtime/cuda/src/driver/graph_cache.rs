//! Captured graphs of command lists.

use cudarc::driver::{result as driver, sys};
use siskin_device::CommandList;
use siskin_format::Result;

use super::context::CudaStream;
use super::libraries::check;

/// The maximum number of cached lists.
const MAX_GRAPHS: usize = 32;

/// Lists that were run before; the first is the least recently used.
#[derive(Default)]
pub(super) struct GraphCache {
    entries: Vec<CachedList>,
}

/// A list that was run before.
struct CachedList {
    commands: CommandList,
    state: CaptureState,
}

/// The CUDA graph of a list.
enum CaptureState {
    /// The list was run once.
    NotCaptured,
    /// It was run twice and could not be captured: it is enqueued command by command.
    Uncapturable,
    /// It was captured.
    Captured(CapturedGraph),
}

/// An instantiated graph, destroyed on drop. Work that it launched must be done by then.
pub(super) struct CapturedGraph(sys::CUgraphExec);

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: the graph was created by the driver; all work that it launched is done, or the device is lost.
        let _ = unsafe { driver::graph::exec_destroy(self.0) };
    }
}

impl CapturedGraph {
    /// Captures what `enqueue` enqueues on a stream.
    pub(super) fn capture(stream: &CudaStream, enqueue: impl FnOnce() -> Result<()>) -> Result<Self> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives; nothing synchronizes with it during the capture.
        check("record", unsafe { driver::stream::begin_capture(stream.0, mode) })?;
        let enqueued = enqueue();
        // SAFETY: the capture was begun above, and is ended whatever happened in between.
        let graph = check("record", unsafe { driver::stream::end_capture(stream.0) })?;
        let flags = sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        // SAFETY: the graph was just returned, and is not used after this.
        unsafe {
            let ready =
                enqueued.and_then(|()| check("capture a graph", driver::graph::instantiate(graph, flags)));
            let _ = driver::graph::destroy(graph);
            ready.map(Self)
        }
    }

    /// Launches the graph.
    pub(super) fn launch(&self, stream: &CudaStream) -> Result<()> {
        // SAFETY: the graph was created for this stream's device, from memory that is still allocated.
        check("launch a graph", unsafe { driver::graph::launch(self.0, stream.0) })
    }
}

impl GraphCache {
    /// Looks up a list, makes it the most recently used, and returns true if it is to be captured: when it is run for
    /// the second time.
    pub(super) fn look_up(&mut self, commands: &CommandList, stream: &CudaStream) -> Result<bool> {
        let Some(known) = self.entries.iter().position(|entry| entry.commands == *commands) else {
            if self.entries.len() == MAX_GRAPHS {
                self.evict(1, stream)?;
            }
            let state = CaptureState::NotCaptured;
            self.entries.push(CachedList { commands: commands.clone(), state });
            return Ok(false);
        };
        self.entries[known..].rotate_left(1);
        let newest = self.entries.last().map(|entry| &entry.state);
        Ok(matches!(newest, Some(CaptureState::NotCaptured)))
    }

    /// Stores the graph of the list that was looked up last. A failure that is not one of capturing occurs again when
    /// the commands are enqueued, and is reported then.
    pub(super) fn set_captured(&mut self, captured: Result<CapturedGraph>) {
        if let Some(entry) = self.entries.last_mut() {
            entry.state = captured.map_or(CaptureState::Uncapturable, CaptureState::Captured);
        }
    }

    /// Returns the graph of the list that was looked up last, if it was captured.
    pub(super) fn newest(&self) -> Option<&CapturedGraph> {
        match &self.entries.last()?.state {
            CaptureState::Captured(graph) => Some(graph),
            CaptureState::NotCaptured | CaptureState::Uncapturable => None,
        }
    }

    /// Evicts all lists.
    pub(super) fn clear(&mut self, stream: &CudaStream) -> Result<()> {
        self.evict(self.entries.len(), stream)
    }

    /// Evicts the `count` least recently used lists.
    fn evict(&mut self, count: usize, stream: &CudaStream) -> Result<()> {
        let captured = |entry: &CachedList| matches!(entry.state, CaptureState::Captured(_));
        let outcome = if self.entries[..count].iter().any(captured) { stream.synchronize() } else { Ok(()) };
        self.entries.drain(..count);
        outcome
    }
}
