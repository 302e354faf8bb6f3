//! The auxiliary losses of MoE routers on a device: forward accumulates statistics over all layers of a side, from
//! which backward computes gradients.

use siskin_device::{Device, DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_format::Result;
use siskin_graph::{Routing, op};

use crate::batch::TrainingBatch;
use crate::program::{Program, Side};
use crate::runner::RouterOptions;
use siskin_cuda::{CommandBuilder, int};

const THREADS: usize = 256;

/// The weights of the auxiliary losses, and the places of the router statistics.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouterLosses {
    options: RouterOptions,
    /// Those of both sides, each for up to `max_experts` experts.
    sums: DevicePtr,
    max_experts: usize,
}

/// The factors on the loss of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossFactors {
    /// On gradients.
    pub(super) scale: f64,
    /// The total weight of the targets.
    pub(super) weight: f64,
}

/// What a router has decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouterRows {
    pub(super) rows: usize,
    pub(super) scores: DevicePtr,
    pub(super) routed: DevicePtr,
}

/// The gradient of a router's scores, which is accumulated into.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouterGradient {
    pub(super) rows: usize,
    pub(super) scores: DevicePtr,
    pub(super) gradient: DevicePtr,
}

/// Returns the routing of a node, and its side.
fn of(program: &Program, node: usize) -> Option<(Routing, Side)> {
    let node = &program.graph.nodes[node];
    Some((node.op.downcast_ref::<op::Route>()?.routing, program.sides[node.output]))
}

impl RouterLosses {
    /// Allocates the statistics; `None` without auxiliary losses or without routers.
    pub(super) fn new(
        device: &mut dyn Device,
        program: &Program,
        options: RouterOptions,
    ) -> Result<Option<Self>> {
        let all = (0..program.graph.nodes.len()).filter_map(|node| of(program, node));
        let Some(max_experts) = all.map(|(routing, _)| routing.experts).max() else { return Ok(None) };
        if options == RouterOptions::default() {
            return Ok(None);
        }
        let own = Self { options, sums: 0, max_experts };
        Ok(Some(Self { sums: device.allocate(own.bytes())?, ..own }))
    }

    /// Returns the bytes of the statistics: choices and probabilities of each expert, and the squares.
    fn bytes(&self) -> usize {
        2 * 8 * (2 * self.max_experts + 1)
    }

    fn sums_of(&self, side: Side) -> DevicePtr {
        let first = match side {
            Side::Encoder => 0,
            Side::Decoder => self.bytes() / 2,
        };
        self.sums + first as DevicePtr
    }

    /// Writes the host values of a batch with the total weight `weight` and the gradient scale `scale`.
    fn write_arguments(
        &self,
        work: &mut CommandBuilder<'_>,
        LossFactors { scale, weight }: LossFactors,
    ) -> KernelArgument {
        let scalars = [self.options.aux_loss_coef, self.options.z_loss_coef, scale * weight, weight];
        let bytes = || scalars.into_iter().flat_map(f64::to_le_bytes).collect();
        KernelArgument::Ptr(work.tables.table("routers", bytes))
    }

    /// Starts a batch.
    pub(super) fn begin(&self, work: &mut CommandBuilder<'_>) {
        work.commands.clear(self.sums, self.bytes());
    }

    /// Accumulates the decisions of a router, if the node is one.
    pub(super) fn accumulate(
        &self,
        work: &mut CommandBuilder<'_>,
        program: &Program,
        node: usize,
        RouterRows { rows, scores, routed }: RouterRows,
    ) {
        let Some((routing, side)) = of(program, node) else { return };
        let left = logarithms(work, scores, MatrixShape { rows, columns: routing.experts });
        let places = [scores, routed, left, self.sums_of(side)].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[rows, routing.experts, routing.top_k].map(int)].concat();
        let name = work.commands.kernel_name("router_sums");
        work.commands.kernel(&name, GridSize::linear(routing.experts + 1), THREADS, 0, &arguments);
    }

    /// Adds the losses of both sides to an f64.
    pub(super) fn add_loss(
        &self,
        work: &mut CommandBuilder<'_>,
        program: &Program,
        batch: &TrainingBatch,
        factors: LossFactors,
        to: DevicePtr,
    ) {
        let scalars = self.write_arguments(work, factors);
        for side in [Side::Encoder, Side::Decoder] {
            let Some((experts, rows)) = shape(program, batch, side) else { continue };
            let arguments = [
                scalars,
                KernelArgument::Ptr(self.sums_of(side)),
                KernelArgument::Long(rows as i64),
                int(experts),
                KernelArgument::Ptr(to),
            ];
            work.commands.kernel("router_loss", GridSize::linear(1), THREADS, 0, &arguments);
        }
    }

    /// Adds the gradient of that loss to the gradient of a router's scores, if the node is a router.
    pub(super) fn add(
        &self,
        work: &mut CommandBuilder<'_>,
        program: &Program,
        batch: &TrainingBatch,
        node: usize,
        factors: LossFactors,
        RouterGradient { rows, scores, gradient: to }: RouterGradient,
    ) {
        let Some((routing, side)) = of(program, node) else { return };
        let Some((experts, all)) = shape(program, batch, side) else { return };
        let scalars = self.write_arguments(work, factors);
        let left = logarithms(work, scores, MatrixShape { rows, columns: routing.experts });
        let arguments = [
            &[scores, left].map(KernelArgument::Ptr)[..],
            &[scalars, KernelArgument::Ptr(self.sums_of(side)), KernelArgument::Ptr(to)],
            &[KernelArgument::Long(all as i64), int(rows), int(experts)],
        ];
        let name = work.commands.kernel_name("router_backward");
        work.commands.kernel(
            &name,
            GridSize::linear(rows.div_ceil(THREADS)),
            THREADS,
            0,
            &arguments.concat(),
        );
    }
}

/// Returns the experts of a side, and the total rows of its routers, layer by layer; `None` without rows or routers.
fn shape(program: &Program, batch: &TrainingBatch, side: Side) -> Option<(usize, usize)> {
    let all = (0..program.graph.nodes.len()).filter_map(|node| Some((node, of(program, node)?)));
    let own = all.filter(|(_, (_, own))| *own == side);
    let rows = |node: usize| program.row_count(program.graph.nodes[node].output, batch);
    let (experts, rows) =
        own.fold((0, 0), |(_, sum), (node, (routing, _))| (routing.experts, sum + rows(node)));
    (rows > 0).then_some((experts, rows))
}

/// Computes the log-sum-exp of scores, row by row.
fn logarithms(
    work: &mut CommandBuilder<'_>,
    scores: DevicePtr,
    MatrixShape { rows, columns: experts }: MatrixShape,
) -> DevicePtr {
    work.scratch.clear();
    let left = work.scratch.floats(rows);
    let arguments = [&[scores, left].map(KernelArgument::Ptr)[..], &[rows, experts].map(int)].concat();
    let name = work.commands.kernel_name("router_log_sum_exp");
    work.commands.kernel(&name, GridSize::linear(rows.div_ceil(THREADS)), THREADS, 0, &arguments);
    left
}
