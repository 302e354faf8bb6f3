//! The contrastive loss (InfoNCE) over the embeddings of a batch. Embeddings and their products are f32.

use siskin::Result;

use super::{DeviceLoss, DeviceOutputs, KernelArgument, Place, THREADS, TapeBuilder, add_results, whole};
use crate::batch::TrainingBatch;
use crate::cuda::Precision;
use crate::cuda::op::flag;
use crate::cuda::tape::{DeviceMatrix, TapeMatmul};
use crate::loss::{Contrastive, LossPooling, Targets, texts_of};

/// The places of a batch's tables.
struct Tables {
    /// Anchors first, then all other sequences.
    order: Place,
    /// The match of each anchor among the others.
    own: Place,
    anchors: usize,
    others: usize,
    pooled: Place,
    steep: Place,
    units: Place,
    gradient: Place,
    lengths: Place,
    scores: Place,
}

impl DeviceLoss for Contrastive {
    fn check(&self, batch: &TrainingBatch, targets: &Targets, [_, columns]: [usize; 2]) -> Result<()> {
        self.examples(batch, targets, columns).map(|_| ())
    }

    fn write_down(&self, work: &mut TapeBuilder<'_>, outputs: &DeviceOutputs<'_>) {
        let Ok((anchors, widths)) = self.examples(outputs.batch, outputs.targets, outputs.columns) else {
            return;
        };
        let (texts, columns) = (texts_of(outputs.batch), outputs.columns);
        let spans = work.sheet.whole("spans of texts", || {
            texts.spans.iter().flat_map(|span| [span.start as i32, span.end as i32]).collect()
        });
        let how = KernelArgument::Whole(match self.pooling {
            LossPooling::Mean => 0,
            LossPooling::First => 1,
            LossPooling::Last => 2,
        });
        let tables = tables(work, texts.spans.len(), columns, &anchors);
        let arguments = [
            &[outputs.place, spans].map(KernelArgument::Place)[..],
            &[how, KernelArgument::Place(tables.pooled), whole(columns), whole(outputs.stride)],
        ];
        let grid = [columns.div_ceil(256), texts.spans.len(), 1];
        let name = work.tape.named("pool_texts");
        work.tape.kernel(&name, grid, 256, 0, &arguments.concat());
        work.tape.clear(tables.steep, 4 * texts.spans.len() * columns);
        for &width in &widths {
            self.cut(work, outputs, &tables, [width, widths.len()]);
        }
        if outputs.back {
            let text_of =
                work.sheet.whole("texts of rows", || texts.rows.iter().map(|row| row.text as i32).collect());
            let arguments = [
                &[tables.steep, text_of, spans].map(KernelArgument::Place)[..],
                &[how, KernelArgument::Place(outputs.place)],
                &[outputs.rows, columns, outputs.stride].map(whole),
            ];
            work.tape.cells("unpool_texts", outputs.rows, columns, &arguments.concat());
        }
    }
}

fn tables(work: &mut TapeBuilder<'_>, texts: usize, columns: usize, anchors: &[usize]) -> Tables {
    let others = (0..texts).filter(|text| anchors.binary_search(text).is_err());
    let order: Vec<i32> = anchors.iter().copied().chain(others).map(|text| text as i32).collect();
    let others = texts - anchors.len();
    let order = work.sheet.whole("order of texts", || order);
    let own = work.sheet.whole("matches", || {
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
        steep: floats(texts * columns),
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
        work: &mut TapeBuilder<'_>,
        outputs: &DeviceOutputs<'_>,
        tables: &Tables,
        [width, cuts]: [usize; 2],
    ) {
        let Tables { order, own, anchors, others, pooled, steep, units, gradient, lengths, scores } = *tables;
        let (texts, columns) = (anchors + others, outputs.columns);
        let sizes = [texts, columns, width].map(whole);
        let arguments = [&[pooled, order, units, lengths].map(KernelArgument::Place)[..], &sizes].concat();
        work.tape.kernel("units_of_texts", [texts.div_ceil(8), 1, 1], 256, 0, &arguments);
        let table = |place: Place, stride: usize| DeviceMatrix { place, stride, turned: false };
        let turned = |matrix: DeviceMatrix| DeviceMatrix { turned: true, ..matrix };
        let product = |shape: [usize; 3], a: DeviceMatrix, b: DeviceMatrix, out: DeviceMatrix| TapeMatmul {
            precision: Precision::F32,
            shape,
            a,
            b,
            out,
            floats: true,
            add: false,
            bias: 0,
            before: 0,
            eights: None,
        };
        // The rows of the anchors, and after them those of the others.
        let halves = |place: Place| [place, place + (4 * anchors * width) as Place];
        let [left, right] = halves(units).map(|place| table(place, width));
        let all = table(scores, others);
        work.tape.multiply(product([anchors, others, width], left, turned(right), all));
        let arguments = [
            &[scores, own].map(KernelArgument::Place)[..],
            &[KernelArgument::Float(self.scale as f32), KernelArgument::Place(outputs.scale), whole(cuts)],
            &[KernelArgument::Place(outputs.results), whole(others), flag(outputs.back)],
        ];
        work.tape.kernel("contrastive_rows", [anchors, 1, 1], THREADS, 0, &arguments.concat());
        add_results(work, outputs, [anchors, cuts]);
        if !outputs.back {
            return;
        }
        let [of_left, of_right] = halves(gradient).map(|place| table(place, width));
        work.tape.multiply(product([anchors, width, others], all, right, of_left));
        work.tape.multiply(product([others, width, anchors], turned(all), left, of_right));
        let places = [units, gradient, lengths, order, steep].map(KernelArgument::Place);
        let arguments = [&places[..], &sizes].concat();
        work.tape.kernel("steep_of_texts", [texts.div_ceil(8), 1, 1], 256, 0, &arguments);
    }
}
