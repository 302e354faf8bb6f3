//! The contrastive loss (InfoNCE) over the embeddings of a batch. Embeddings and their products are f32.

use siskin_device::{
    DeviceMatrix, DevicePtr, GemmShape, GridSize, KernelArgument, MatmulCommand, MatrixShape, Precision,
};
use siskin_format::Result;

use super::{DeviceLoss, DeviceOutputs, THREADS, add_results};
use crate::batch::TrainingBatch;
use crate::loss::{Contrastive, ContrastiveExamples, LossPooling, Targets, texts_of};
use siskin_cuda::{CommandBuilder, flag, int};

/// The places of a batch's tables.
struct Tables {
    /// Anchors first, then all other sequences.
    order: DevicePtr,
    /// The match of each anchor among the others.
    own: DevicePtr,
    anchors: usize,
    others: usize,
    pooled: DevicePtr,
    pooled_gradient: DevicePtr,
    units: DevicePtr,
    gradient: DevicePtr,
    lengths: DevicePtr,
    scores: DevicePtr,
}

impl DeviceLoss for Contrastive {
    fn check(&self, batch: &TrainingBatch, targets: &Targets, shape: MatrixShape) -> Result<()> {
        self.examples(batch, targets, shape.columns).map(|_| ())
    }

    fn record(&self, work: &mut CommandBuilder<'_>, outputs: &DeviceOutputs<'_>) {
        let Ok(examples) = self.examples(outputs.batch, outputs.targets, outputs.columns) else { return };
        let ContrastiveExamples { anchors, widths } = examples;
        let (texts, columns) = (texts_of(outputs.batch), outputs.columns);
        let spans = work.tables.ints("spans of texts", || {
            texts.spans().flat_map(|span| [span.start as i32, span.end as i32]).collect()
        });
        let how = KernelArgument::Int(match self.pooling {
            LossPooling::Mean => 0,
            LossPooling::Cls => 1,
            LossPooling::Last => 2,
        });
        let tables = tables(work, texts.sequences.len(), columns, &anchors);
        let arguments = [
            &[outputs.place, spans].map(KernelArgument::Ptr)[..],
            &[how, KernelArgument::Ptr(tables.pooled), int(columns), int(outputs.stride)],
        ];
        let grid = GridSize::new(columns.div_ceil(256), texts.sequences.len(), 1);
        let name = work.commands.kernel_name("pool_sequences");
        work.commands.kernel(&name, grid, 256, 0, &arguments.concat());
        work.commands.clear(tables.pooled_gradient, 4 * texts.sequences.len() * columns);
        for &width in &widths {
            self.cut(work, outputs, &tables, width, widths.len());
        }
        if outputs.back {
            let text_of = work
                .tables
                .ints("sequences of rows", || texts.rows.iter().map(|row| row.sequence as i32).collect());
            let arguments = [
                &[tables.pooled_gradient, text_of, spans].map(KernelArgument::Ptr)[..],
                &[how, KernelArgument::Ptr(outputs.place)],
                &[outputs.rows, columns, outputs.stride].map(int),
            ];
            work.commands.elementwise_2d("unpool_sequences", outputs.rows, columns, &arguments.concat());
        }
    }
}

fn tables(work: &mut CommandBuilder<'_>, texts: usize, columns: usize, anchors: &[usize]) -> Tables {
    let others = (0..texts).filter(|text| anchors.binary_search(text).is_err());
    let order: Vec<i32> = anchors.iter().copied().chain(others).map(|text| text as i32).collect();
    let others = texts - anchors.len();
    let order = work.tables.ints("order of texts", || order);
    let own = work.tables.ints("matches", || {
        let mut own: Vec<i32> = anchors.iter().enumerate().map(|(row, text)| (text - row) as i32).collect();
        own.resize(texts, 0);
        own
    });
    let mut floats = |count: usize| work.scratch.floats(count);
    Tables {
        order,
        own,
        anchors: anchors.len(),
        others,
        pooled: floats(texts * columns),
        pooled_gradient: floats(texts * columns),
        units: floats(texts * columns),
        gradient: floats(texts * columns),
        lengths: floats(texts),
        scores: floats(anchors.len() * others),
    }
}

impl Contrastive {
    /// Computes the loss of embeddings truncated to `width` columns, one of `cuts` widths; adds the gradient of the
    /// embeddings.
    fn cut(
        &self,
        work: &mut CommandBuilder<'_>,
        outputs: &DeviceOutputs<'_>,
        tables: &Tables,
        width: usize,
        cuts: usize,
    ) {
        let Tables { order, own, anchors, others, pooled, pooled_gradient, units, gradient, lengths, scores } =
            *tables;
        let (texts, columns) = (anchors + others, outputs.columns);
        let sizes = [texts, columns, width].map(int);
        let arguments = [&[pooled, order, units, lengths].map(KernelArgument::Ptr)[..], &sizes].concat();
        work.commands.kernel("normalize_embeddings", GridSize::linear(texts.div_ceil(8)), 256, 0, &arguments);
        let table = |place: DevicePtr, stride: usize| DeviceMatrix { ptr: place, stride, transposed: false };
        let transpose = |matrix: DeviceMatrix| DeviceMatrix { transposed: true, ..matrix };
        let product = |shape: GemmShape, a: DeviceMatrix, b: DeviceMatrix, out: DeviceMatrix| MatmulCommand {
            f32_output: true,
            ..MatmulCommand::new(Precision::F32, shape, a, b, out)
        };
        // The rows of the anchors, and after them those of the others.
        let halves = |place: DevicePtr| [place, place + (4 * anchors * width) as DevicePtr];
        let [left, right] = halves(units).map(|place| table(place, width));
        let all = table(scores, others);
        work.commands.matmul(product(
            GemmShape { m: anchors, n: others, k: width },
            left,
            transpose(right),
            all,
        ));
        let arguments = [
            &[scores, own].map(KernelArgument::Ptr)[..],
            &[KernelArgument::Float(self.scale as f32), KernelArgument::Ptr(outputs.scale), int(cuts)],
            &[KernelArgument::Ptr(outputs.results), int(others), flag(outputs.back)],
        ];
        work.commands.kernel("contrastive_rows", GridSize::linear(anchors), THREADS, 0, &arguments.concat());
        add_results(work, outputs, anchors, cuts);
        if !outputs.back {
            return;
        }
        let [of_left, of_right] = halves(gradient).map(|place| table(place, width));
        work.commands.matmul(product(GemmShape { m: anchors, n: width, k: others }, all, right, of_left));
        work.commands.matmul(product(
            GemmShape { m: others, n: width, k: anchors },
            transpose(all),
            left,
            of_right,
        ));
        let places = [units, gradient, lengths, order, pooled_gradient].map(KernelArgument::Ptr);
        let arguments = [&places[..], &sizes].concat();
        work.commands.kernel("embedding_gradients", GridSize::linear(texts.div_ceil(8)), 256, 0, &arguments);
    }
}
