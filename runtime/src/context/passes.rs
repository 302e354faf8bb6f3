//! The graphs that a context runs.

use std::sync::Arc;

use super::{ContextOptions, early_exit};
use crate::Result;
use crate::backend::{GraphPass, GraphSide};
use crate::graph::Attention;
use crate::model::Inner;

/// The passes of a context: its encoder and its decoder, and the encoder split at its exits if early exit is enabled.
pub(super) struct Passes {
    pub list: Arc<[GraphPass]>,
    encoder: Option<usize>,
    decoder: Option<usize>,
    /// The numbers of the passes between exits.
    pub segments: Vec<early_exit::ExitSegment>,
}

impl Passes {
    pub(super) fn new(model: &Inner, options: &ContextOptions) -> Result<Self> {
        let ContextOptions { cache, window, wanted, read, head, exits } = *options;
        let mut list = Vec::new();
        let mut add = |pass: GraphPass| {
            list.push(GraphPass { outputs: pass.outputs.min(pass.rows), ..pass });
            list.len() - 1
        };
        let encoder = model.graphs.encoder.as_ref().map(|graph| {
            let graph = if head { graph.clone() } else { graph.without_head() };
            let graph = if cache.batch > 0 { graph } else { graph.without_cross_attention() };
            let (rows, positions) = (cache.text, cache.text);
            add(GraphPass { graph, side: GraphSide::Encoder, rows, outputs: read, positions })
        });
        // An encoder-only context does not need the decoder.
        let decoder = model.graphs.decoder.as_ref().filter(|_| cache.batch > 0).map(|graph| {
            let graph =
                window.map_or_else(|| graph.clone(), |window| graph.within(window.recent, window.first));
            let (rows, positions) = (cache.batch, cache.context);
            add(GraphPass { graph, side: GraphSide::Decoder, rows, outputs: wanted, positions })
        });
        let segments = match &model.graphs.encoder {
            Some(graph) if exits => {
                early_exit::ExitSegment::all(graph, model.hyper.layers, (cache.text, read), &mut add)?
            }
            _ => Vec::new(),
        };
        Ok(Self { list: list.into(), encoder, decoder, segments })
    }

    /// Returns the number of the pass of a whole side, if there is one.
    pub(super) fn number(&self, side: GraphSide) -> Option<usize> {
        match side {
            GraphSide::Encoder => self.encoder,
            GraphSide::Decoder => self.decoder,
        }
    }

    /// Returns the passes of whole sides.
    pub(super) fn whole(&self) -> impl Iterator<Item = &GraphPass> {
        [self.encoder, self.decoder].into_iter().flatten().map(|number| &self.list[number])
    }

    pub(super) fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.whole().flat_map(|pass| pass.graph.attentions())
    }

    /// Returns the recurrent states of all graphs, each with its size in words.
    pub(super) fn states(&self) -> impl Iterator<Item = (usize, usize)> {
        self.whole().flat_map(|pass| pass.graph.states())
    }
}
