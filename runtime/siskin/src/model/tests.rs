//! External models.

use std::sync::Arc;

use siskin_backend::external_model::{
    ExternalModel, ExternalModelInterface, GENERAL, NamedTensor, OutputMatrix, PortInfo,
};

use crate::OutputHead;
use crate::encoder::{EncoderInput, EncoderOptions};
use crate::file::{File, Metadata};
use crate::{
    CacheType, CpuFeatures, DeviceKind, ErrorKind, Model, ModelOptions, OutputRows, Result, SessionOptions,
    StreamingWindow,
};
use siskin_format::file::FileWriter;

/// A test model. The score of a token: its count so far, plus ten times its count in the encoded sequence.
struct Counts;

impl ExternalModel for Counts {
    fn interface(&self) -> ExternalModelInterface {
        ExternalModelInterface {
            reads: Some(OutputHead::Hidden),
            columns: 2,
            hidden: Some(2),
            writes: true,
            vocabulary: 4,
            token_types: 2,
            context: 8,
        }
    }

    fn note(&self) -> String {
        "counts".to_owned()
    }

    fn encode(&self, ids: &[u32], token_types: &[u32], _: bool) -> Result<OutputMatrix> {
        let pairs = ids.iter().zip(token_types).flat_map(|(id, token_type)| [*id as f32, *token_type as f32]);
        Ok(OutputMatrix { columns: 2, values: pairs.collect() })
    }

    fn decode(&self, ids: &[u32], memory: Option<&OutputMatrix>) -> Result<OutputMatrix> {
        let read: Vec<f32> = memory.map(|rows| rows.values.iter().step_by(2).copied().collect()).unwrap();
        let mut values = Vec::new();
        for end in 1..=ids.len() {
            values.extend((0..4).map(|token| {
                let written = ids[..end].iter().filter(|&&id| id == token).count();
                (written + 10 * read.iter().filter(|&&id| id == token as f32).count()) as f32
            }));
        }
        Ok(OutputMatrix { columns: 4, values })
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
    Model::from_external_model(file, Arc::new(Counts), &ModelOptions::default()).unwrap()
}

#[test]
fn sessions_write_on_and_forks_go_their_own_way() {
    let model = model();
    assert_eq!(model.notes(), ["counts"]);
    let mut session = model.session(SessionOptions { batch: 2, ..SessionOptions::default() }).unwrap();
    assert_eq!(session.prefill(&[1]).unwrap_err().kind(), ErrorKind::State);
    session.encode(&EncoderInput::from(vec![3, 3, 1])).unwrap();
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
    assert_eq!(session.prefill(&[0]).unwrap_err().kind(), ErrorKind::Canceled);
    session.prefill(&[0]).unwrap();
    assert_eq!(session.logits()[0], 3.0);
}

#[test]
fn what_an_engine_cannot_heed_is_rejected_or_told() {
    let open = |options: &ModelOptions| {
        let file = model().file().clone();
        Model::from_external_model(file, Arc::new(Counts), options)
    };
    let usual = ModelOptions::default();
    for (place, options) in [
        ("device", ModelOptions { device: DeviceKind::Reference, ..usual }),
        ("cpu_features", ModelOptions { disabled_cpu_features: CpuFeatures::AVX2, ..usual }),
    ] {
        let error = open(&options).err().unwrap();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Unsupported, place));
    }
    let notes = open(&ModelOptions { threads: 3, ..usual }).unwrap().notes().to_vec();
    assert_eq!(notes, ["counts", "computes with one thread, not 3"]);
    let cache = Some(CacheType::Int8);
    let session = model().session(SessionOptions { cache, ..SessionOptions::default() }).err().unwrap();
    let encoder = model().encoder(EncoderOptions { cache, ..EncoderOptions::default() }).err().unwrap();
    let window = Some(StreamingWindow { window: 2, sinks: 0 });
    let seen = model().session(SessionOptions { window, ..SessionOptions::default() }).err().unwrap();
    assert_eq!([session.location(), encoder.location(), seen.location()], ["cache", "cache", "window"]);
}

#[test]
fn encoders_read_in_any_order() {
    let mut encoder = model().encoder(EncoderOptions::default()).unwrap();
    assert_eq!((encoder.head(), encoder.columns()), (OutputHead::Hidden, 2));
    let texts = [
        EncoderInput::from(vec![1]),
        EncoderInput { ids: vec![2, 3], token_type_ids: vec![0, 1], ..EncoderInput::default() },
    ];
    let mut rows = vec![Vec::new(); 2];
    encoder
        .encode(&texts, OutputRows::All, &mut |index, outputs| {
            rows[index] = outputs.rows().flatten().copied().collect();
            Ok(())
        })
        .unwrap();
    assert_eq!(rows, [vec![1.0, 0.0], vec![2.0, 0.0, 3.0, 1.0]]);
}
