//! External backends: models that another library computes instead of our graph, behind the same sessions, contexts and
//! encoders.

use crate::arch::{
    Ctranslate2Config, Family, GgufConfig, Graphs, HuggingFaceConfig, Initialization, ModelConfig, OnnxNames,
    Tasks, TokenizerDefaults, Topology,
};
use crate::graph::{Graph, OutputHead, RowKind, ValueShape};
use crate::{Error, Result};

/// The elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorElements {
    /// f32.
    Floats(Vec<f32>),
    /// Integers; booleans are 0 or 1.
    Integers(Vec<i64>),
}

/// An input or output tensor of an external backend.
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
pub struct RowCount {
    /// Columns per row.
    pub columns: usize,
    /// The values in row-major order.
    pub values: Vec<f32>,
}

impl RowCount {
    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Returns the row of token `index`, or the only row if there is one for the whole sequence.
    pub(crate) fn row(&self, index: usize) -> Option<&[f32]> {
        let index = if self.count() == 1 { 0 } else { index };
        self.values.get(index.checked_mul(self.columns)?..)?.get(..self.columns)
    }
}

/// What an external model computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendInterface {
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
    /// The number of segment ids; 0 if the model has no segments.
    pub segments: usize,
    /// The maximum sequence length in tokens.
    pub context: usize,
}

/// An external backend. [`Model::from_backend`](crate::Model::from_backend) creates a model from it.
pub trait ExternalBackend: Send + Sync {
    /// Describes the model; must return the same on every call.
    fn interface(&self) -> BackendInterface;

    /// Returns a sentence on how the model runs, for the user.
    fn note(&self) -> String;

    /// Encodes a sequence: returns the rows of its head, or its hidden states.
    fn encode(&self, ids: &[u32], segments: &[u32], head: bool) -> Result<RowCount>;

    /// Returns the logits of the token after each of `ids`, with cross-attention to `memory` if given.
    fn decode(&self, ids: &[u32], memory: Option<&RowCount>) -> Result<RowCount>;

    /// Describes the inputs.
    fn inputs(&self) -> Vec<PortInfo>;

    /// Describes the outputs.
    fn outputs(&self) -> Vec<PortInfo>;

    /// Computes all outputs from all inputs.
    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>>;
}

/// The architecture name of a file without tensors, for a model that an external backend computes.
pub const GENERAL: &str = "general";

/// The placeholder family of external models.
pub(crate) static FAMILY: Family = Family {
    name: GENERAL,
    hugging_face: HuggingFaceConfig::NONE,
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    tasks: Tasks::NONE,
    initialization: Initialization::NONE,
    hyper: |_| Err(Error::unsupported("architecture", "runs on an external backend")),
    form: Topology::Encoder(|_, _, b| Ok(b.finish(0))),
};

/// Returns hyper-parameters and empty graphs that match an outline.
pub(crate) fn shape(outline: &BackendInterface) -> (ModelConfig, Graphs) {
    let context = outline.context.clamp(1, 1 << 26);
    let hyper = ModelConfig {
        width: outline.hidden.unwrap_or(0),
        layers: 0,
        heads: 1,
        kv_heads: 1,
        head_size: 2,
        feed_forward: 0,
        vocabulary: outline.vocabulary,
        segments: outline.segments,
        context,
        text: context,
        features: 0,
        epsilon: 0.0,
        windows: Vec::new(),
        state: Default::default(),
        mixed: 0,
    };
    let graph = |head: OutputHead, columns: usize| {
        let value = |columns| ValueShape { rows: RowKind::Outputs, columns };
        let values = vec![value(outline.hidden.unwrap_or(0)), value(columns)];
        let output = usize::from(head != OutputHead::Hidden);
        Graph { values, output, hidden: 0, head, ..Graph::default() }
    };
    let encoder = outline.reads.map(|head| graph(head, outline.columns));
    let decoder = outline.writes.then(|| graph(OutputHead::Next, outline.vocabulary));
    (hyper, Graphs { encoder, decoder })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::encoder::{EncoderOptions, Tokens};
    use crate::file::{File, FileWriter, Metadata};
    use crate::{
        CacheType, CpuFeatures, DeviceKind, ErrorKind, Model, ModelOptions, OutputRows, SessionOptions,
        Window,
    };

    /// A test model. The score of a token: its count so far, plus ten times its count in the encoded sequence.
    struct Counts;

    impl ExternalBackend for Counts {
        fn interface(&self) -> BackendInterface {
            BackendInterface {
                reads: Some(OutputHead::Hidden),
                columns: 2,
                hidden: Some(2),
                writes: true,
                vocabulary: 4,
                segments: 2,
                context: 8,
            }
        }

        fn note(&self) -> String {
            "counts".to_owned()
        }

        fn encode(&self, ids: &[u32], segments: &[u32], _: bool) -> Result<RowCount> {
            let pairs = ids.iter().zip(segments).flat_map(|(id, segment)| [*id as f32, *segment as f32]);
            Ok(RowCount { columns: 2, values: pairs.collect() })
        }

        fn decode(&self, ids: &[u32], memory: Option<&RowCount>) -> Result<RowCount> {
            let read: Vec<f32> = memory.map(|rows| rows.values.iter().step_by(2).copied().collect()).unwrap();
            let mut values = Vec::new();
            for end in 1..=ids.len() {
                values.extend((0..4).map(|token| {
                    let written = ids[..end].iter().filter(|&&id| id == token).count();
                    (written + 10 * read.iter().filter(|&&id| id == token as f32).count()) as f32
                }));
            }
            Ok(RowCount { columns: 4, values })
        }

        fn inputs(&self) -> Vec<PortInfo> {
            Vec::new()
        }

        fn outputs(&self) -> Vec<PortInfo> {
            Vec::new()
        }

        fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
            Ok(inputs.to_vec())
        }
    }

    fn model() -> Model {
        let writer = FileWriter::new(std::io::Cursor::new(Vec::new())).unwrap();
        let metadata = Metadata { architecture: GENERAL.to_owned(), ..Metadata::default() };
        let file = File::from_bytes(writer.finish(&metadata).unwrap().into_inner()).unwrap();
        Model::from_backend(file, Arc::new(Counts), &ModelOptions::default()).unwrap()
    }

    #[test]
    fn sessions_write_on_and_forks_go_their_own_way() {
        let model = model();
        assert_eq!(model.notes(), ["counts"]);
        let mut session = model.session(SessionOptions { batch: 2, ..SessionOptions::default() }).unwrap();
        assert_eq!(session.prefill(&[1]).unwrap_err().kind(), ErrorKind::State);
        session.read(&Tokens::from(vec![3, 3, 1])).unwrap();
        session.prefill(&[1, 2, 1]).unwrap();
        assert_eq!(session.logits(), [0.0, 12.0, 1.0, 20.0]);
        let mut fork = session.fork().unwrap();
        fork.prefill(&[0]).unwrap();
        session.truncate(1).unwrap();
        session.prefill(&[2]).unwrap();
        assert_eq!(fork.logits(), [1.0, 12.0, 1.0, 20.0]);
        assert_eq!(session.logits(), [0.0, 11.0, 1.0, 20.0]);
        let mut scores = Vec::new();
        session.score(&[0, 0], &mut |index, row| scores.push((index, row[0]))).unwrap();
        assert_eq!(scores, [(0, 1.0), (1, 2.0)]);
        assert_eq!(session.prefill(&[4]).unwrap_err().kind(), ErrorKind::Argument);
        assert_eq!(session.prefill(&[0; 8]).unwrap_err().kind(), ErrorKind::TooLong);
        session.cancel_handle().cancel();
        assert_eq!(session.prefill(&[0]).unwrap_err().kind(), ErrorKind::Cancelled);
        session.prefill(&[0]).unwrap();
        assert_eq!(session.logits()[0], 3.0);
    }

    #[test]
    fn what_an_engine_cannot_heed_is_refused_or_told() {
        let open = |options: &ModelOptions| {
            let file = model().file().clone();
            Model::from_backend(file, Arc::new(Counts), options)
        };
        let usual = ModelOptions::default();
        for (place, options) in [
            ("device", ModelOptions { device: DeviceKind::Reference, ..usual }),
            ("cpu_features", ModelOptions { without: CpuFeatures::AVX2, ..usual }),
        ] {
            let error = open(&options).err().unwrap();
            assert_eq!((error.kind(), error.place()), (ErrorKind::Unsupported, place));
        }
        let notes = open(&ModelOptions { threads: 3, ..usual }).unwrap().notes().to_vec();
        assert_eq!(notes, ["counts", "computes with one thread, not 3"]);
        let cache = Some(CacheType::Int8);
        let session = model().session(SessionOptions { cache, ..SessionOptions::default() }).err().unwrap();
        let encoder = model().encoder(EncoderOptions { cache, ..EncoderOptions::default() }).err().unwrap();
        let window = Some(Window { recent: 2, first: 0 });
        let seen = model().session(SessionOptions { window, ..SessionOptions::default() }).err().unwrap();
        assert_eq!([session.place(), encoder.place(), seen.place()], ["cache", "cache", "window"]);
    }

    #[test]
    fn encoders_read_in_any_order() {
        let mut encoder = model().encoder(EncoderOptions::default()).unwrap();
        assert_eq!((encoder.head(), encoder.columns()), (OutputHead::Hidden, 2));
        let texts =
            [Tokens::from(vec![1]), Tokens { ids: vec![2, 3], segments: vec![0, 1], ..Tokens::default() }];
        let mut rows = vec![Vec::new(); 2];
        encoder
            .read(&texts, OutputRows::All, &mut |index, outputs| {
                rows[index] = outputs.rows().flatten().copied().collect();
                Ok(())
            })
            .unwrap();
        assert_eq!(rows, [vec![1.0, 0.0], vec![2.0, 0.0, 3.0, 1.0]]);
    }
}
