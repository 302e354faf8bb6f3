//! External models: models that another library computes instead of our graph, behind the same sessions, contexts and
//! encoders.

use siskin_format::{Error, Result};
use siskin_graph::arch::{Family, Graphs, ModelConfig, Tasks, Topology};
use siskin_graph::{Graph, OutputHead, RowKind, ValueShape};

/// The elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorElements {
    /// f32.
    Floats(Vec<f32>),
    /// Integers; booleans are 0 or 1.
    Integers(Vec<i64>),
}

/// An input or output tensor of an external model.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// The name of the input or output.
    pub name: String,
    /// The dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The elements.
    pub numbers: TensorElements,
}

/// The description of an input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions; `None` for a dynamic dimension. `None` as a whole if unknown.
    pub shape: Option<Vec<Option<usize>>>,
    /// Whether its elements are integers.
    pub integers: bool,
}

/// Rows of equal length: one for each token, or one for a whole sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputMatrix {
    /// Columns per row.
    pub columns: usize,
    /// The values in row-major order.
    pub values: Vec<f32>,
}

impl OutputMatrix {
    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Returns the row of token `index`, or the only row if there is one for the whole sequence.
    pub fn row(&self, index: usize) -> Option<&[f32]> {
        let index = if self.count() == 1 { 0 } else { index };
        self.values.get(index.checked_mul(self.columns)?..)?.get(..self.columns)
    }
}

/// What an external model computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExternalModelInterface {
    /// The meaning of the encoder's output rows; `None` if the model has no encoder.
    pub reads: Option<OutputHead>,
    /// Columns of these rows.
    pub columns: usize,
    /// Columns of the hidden states, if the model outputs them too.
    pub hidden: Option<usize>,
    /// Whether it has a decoder; a seq2seq model if it has an encoder as well.
    pub writes: bool,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// The number of token type ids; 0 if the model has no token types.
    pub token_types: usize,
    /// The maximum sequence length in tokens.
    pub context: usize,
}

/// An external model. `siskin::Model::from_external_model` creates a model from it.
pub trait ExternalModel: Send + Sync {
    /// Describes the model; must return the same on every call.
    fn interface(&self) -> ExternalModelInterface;

    /// Returns a sentence on how the model runs, for the user.
    fn note(&self) -> String;

    /// Encodes a sequence: returns the rows of its head, or its hidden states.
    fn encode(&self, ids: &[u32], token_types: &[u32], head: bool) -> Result<OutputMatrix>;

    /// Returns the logits of the token after each of `ids`, with cross-attention to `memory` if given.
    fn decode(&self, ids: &[u32], memory: Option<&OutputMatrix>) -> Result<OutputMatrix>;

    /// Describes the inputs.
    fn inputs(&self) -> Vec<PortInfo>;

    /// Describes the outputs.
    fn outputs(&self) -> Vec<PortInfo>;

    /// Computes all outputs from all inputs.
    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>>;
}

/// The architecture name of a file without tensors, for an external model.
pub const GENERAL: &str = "general";

/// The placeholder family of external models.
pub static FAMILY: Family = Family {
    name: GENERAL,
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |_| Err(Error::unsupported("architecture", "runs on an external backend")),
    topology: Topology::Encoder(|_, _, b| Ok(b.finish(0))),
};

/// Returns hyperparameters and empty graphs that match an outline.
pub fn shape(outline: &ExternalModelInterface) -> (ModelConfig, Graphs) {
    let context = outline.context.clamp(1, 1 << 26);
    let model_config = ModelConfig {
        width: outline.hidden.unwrap_or(0),
        layers: 0,
        heads: 1,
        kv_heads: 1,
        head_size: 2,
        feed_forward: 0,
        vocabulary: outline.vocabulary,
        token_types: outline.token_types,
        context,
        encoder_context: context,
        features: 0,
        epsilon: 0.0,
        windows: Vec::new(),
        state: Default::default(),
        projected_positions: 0,
    };
    let graph = |head: OutputHead, columns: usize| {
        let value = |columns| ValueShape { rows: RowKind::Outputs, columns };
        let values = vec![value(outline.hidden.unwrap_or(0)), value(columns)];
        let output = usize::from(head != OutputHead::Hidden);
        Graph { values, output, hidden: 0, head, ..Graph::default() }
    };
    let encoder = outline.reads.map(|head| graph(head, outline.columns));
    let decoder = outline.writes.then(|| graph(OutputHead::Next, outline.vocabulary));
    (model_config, Graphs { encoder, decoder })
}
