//! Whole forward passes through `siskin-cuda` alone, as a backend for inference would lower them: a graph, weights and
//! sequences, without a program of the trainer.

use siskin::file::File;
use siskin_cuda::ops::{self, DeviceWeight, KernelLimits, OpCall, OpTensors, RowSequences};
use siskin_cuda::{BatchTables, CommandBuilder, OpScratch};
use siskin_device::{CommandList, Device as _, DevicePtr, Precision};
use siskin_graph::arch::{ConfigReader, Family};
use siskin_graph::{BatchSequences, Graph, pass};
use siskin_tests::cuda::{TestDevice, decode, encode};
use siskin_tests::golden;
use siskin_trainer::Parameters;

use super::common::device;

/// Builds the graph of a decoder, with the passes of the runtime.
fn graph(file: &File) -> Graph {
    let metadata = file.metadata();
    let family = Family::named(&metadata.architecture).unwrap();
    let config = ConfigReader::new(metadata.config.clone());
    let (_, graphs) = family.build(&config, &|name| file.tensor(name).is_some()).unwrap();
    pass::all(&graphs.decoder.unwrap())
}

/// A graph, its weights on a device, and the places of its values for a batch.
struct ForwardPass<'a> {
    precision: Precision,
    graph: &'a Graph,
    batch: &'a BatchSequences,
    weights: Vec<DeviceWeight>,
    values: Vec<DevicePtr>,
    saved: DevicePtr,
}

impl<'a> ForwardPass<'a> {
    fn new(
        device: &mut TestDevice,
        precision: Precision,
        graph: &'a Graph,
        batch: &'a BatchSequences,
        parameters: &Parameters<f32>,
    ) -> Self {
        let capabilities = device.capabilities();
        let limits = KernelLimits { precision, shared_memory: capabilities.shared_memory };
        ops::check(graph, limits).unwrap();
        let mut write = |bytes: &[u8]| {
            let place = device.allocate(bytes.len()).unwrap();
            device.write(place, bytes).unwrap();
            place
        };
        let pairs = graph.weights.iter().zip(&parameters.list);
        let weights = pairs.map(|(weight, parameter)| DeviceWeight {
            f32: write(&encode(Precision::F32, &parameter.numbers)),
            compute: write(&encode(precision, &parameter.numbers)),
            rows: weight.rows,
            columns: weight.columns,
        });
        let weights = weights.collect();
        let rows = batch.row_counts();
        let bytes = graph.values.iter().map(|value| rows.of(value.rows) * value.columns * precision.bytes());
        let values = bytes.map(|bytes| device.allocate(bytes).unwrap()).collect();
        let saved = graph.nodes.iter().map(|node| ops::saved_len(node, batch.rows.len())).max();
        let saved = device.allocate(4 * saved.unwrap_or(0)).unwrap();
        Self { precision, graph, batch, weights, values, saved }
    }

    /// Lowers all nodes; batch tables and scratch memory are at these places.
    fn lower(&self, tables: DevicePtr, scratch: DevicePtr) -> (CommandList, BatchTables, OpScratch) {
        let mut commands = CommandList::new(self.precision);
        let (mut tables, mut scratch) = (BatchTables::new(tables), OpScratch::new(scratch));
        let mut work = CommandBuilder { commands: &mut commands, tables: &mut tables, scratch: &mut scratch };
        let sequences = RowSequences { name: "decoder", batch: self.batch };
        for node in &self.graph.nodes {
            let shape = self.graph.values[node.output];
            let call = OpCall {
                graph: self.graph,
                node,
                weights: &self.weights,
                queries: sequences,
                keys: sequences,
                rows: self.batch.row_counts().of(shape.rows),
                stride: shape.columns,
            };
            let inputs: Vec<DevicePtr> = node.inputs.iter().map(|&input| self.values[input]).collect();
            let tensors = OpTensors { inputs: &inputs, out: self.values[node.output], saved: self.saved };
            ops::forward(&mut work, &call, tensors);
        }
        (commands, tables, scratch)
    }

    /// Returns the output.
    fn run(&self, device: &mut TestDevice) -> Vec<f32> {
        let (_, tables, scratch) = self.lower(0, 0);
        let [tables_at, scratch_at] =
            [tables.bytes().len(), scratch.max_bytes()].map(|bytes| device.allocate(bytes).unwrap());
        let (commands, tables, _) = self.lower(tables_at, scratch_at);
        device.write(tables_at, tables.bytes()).unwrap();
        device.run(&commands).unwrap();
        let shape = self.graph.values[self.graph.output];
        let count = self.batch.row_counts().of(shape.rows) * shape.columns;
        let mut bytes = vec![0; count * self.precision.bytes()];
        device.read(self.values[self.graph.output], &mut bytes).unwrap();
        decode(self.precision, &bytes)
    }
}

#[test]
fn logits_of_decoders_match_pytorch() {
    let mut report = String::new();
    for name in ["llama", "gpt2", "mixtral", "qwen3-next"] {
        let golden = golden::load(name);
        let graph = graph(&golden.file);
        let parameters = Parameters::<f32>::read(&graph.weights, &golden.file).unwrap();
        let mut batch = BatchSequences::default();
        golden.ids.iter().for_each(|ids| batch.push(ids, &[]));
        batch.output_all();
        for (precision, limit) in [(Precision::F32, 1e-4), (Precision::Bf16, 0.05)] {
            let Some(mut device) = device() else { return };
            let pass = ForwardPass::new(&mut device, precision, &graph, &batch, &parameters);
            let error = golden::relative_error(&pass.run(&mut device), &golden.logits.concat());
            if error > limit {
                report += &format!("{name} {precision:?}: {error:.1e}\n");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}
