//! The losses of routers on a device: what all layers of a side chose is summed up forth, and known when gradients are made.

use siskin::Result;
use siskin::graph::{Op, Routing};

use super::device::Device;
use super::op::{Work, whole};
use super::tape::{Argument, Place};
use crate::batch::Batch;
use crate::program::{Program, Side};
use crate::runner::RouterOptions;

const THREADS: usize = 256;

/// What is asked of routers, and where their sums are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routers {
    options: RouterOptions,
    /// Those of both sides, each with room for `most` experts.
    sums: Place,
    most: usize,
}

/// The routing of a node, and its side.
fn of(program: &Program, node: usize) -> Option<(Routing, Side)> {
    match program.nodes[node].op {
        Op::Route(routing) => Some((routing, program.values[program.nodes[node].output].side)),
        _ => None,
    }
}

impl Routers {
    /// None where nothing is asked of routers, or there are none.
    pub(super) fn new<D: Device>(
        device: &mut D,
        program: &Program,
        options: RouterOptions,
    ) -> Result<Option<Self>> {
        let all = (0..program.nodes.len()).filter_map(|node| of(program, node));
        let Some(most) = all.map(|(routing, _)| routing.experts).max() else { return Ok(None) };
        if options == RouterOptions::default() {
            return Ok(None);
        }
        let own = Self { options, sums: 0, most };
        Ok(Some(Self { sums: device.allocate(own.bytes())?, ..own }))
    }

    /// Of the sums: choices and probabilities of each expert, and the squares.
    fn bytes(&self) -> usize {
        2 * 8 * (2 * self.most + 1)
    }

    fn sums_of(&self, side: Side) -> Place {
        let first = match side {
            Side::Reader => 0,
            Side::Writer => self.bytes() / 2,
        };
        self.sums + first as Place
    }

    /// What the host says of a batch that counts `weight`, whose gradients are scaled.
    fn said(&self, work: &mut Work<'_>, [scale, weight]: [f64; 2]) -> Argument {
        let said = [self.options.balance, self.options.z, scale * weight, weight];
        let bytes = || said.into_iter().flat_map(f64::to_le_bytes).collect();
        Argument::Place(work.sheet.table("routers", bytes))
    }

    /// Begins a batch.
    pub(super) fn begin(&self, work: &mut Work<'_>) {
        work.tape.clear(self.sums, self.bytes());
    }

    /// Takes in what a router did, where the node is one.
    pub(super) fn see(&self, work: &mut Work<'_>, program: &Program, node: usize, call: (usize, [Place; 2])) {
        let Some((routing, side)) = of(program, node) else { return };
        let (rows, [scores, routed]) = call;
        let left = logarithms(work, scores, [rows, routing.experts]);
        let places = [scores, routed, left, self.sums_of(side)].map(Argument::Place);
        let arguments = [&places[..], &[rows, routing.experts, routing.chosen].map(whole)].concat();
        let name = work.tape.named("router_sums");
        work.tape.kernel(&name, [routing.experts + 1, 1, 1], THREADS, 0, &arguments);
    }

    /// Adds the losses of all sides to a double.
    pub(super) fn add_loss(
        &self,
        work: &mut Work<'_>,
        (program, batch): (&Program, &Batch),
        factors: [f64; 2],
        to: Place,
    ) {
        let said = self.said(work, factors);
        for side in [Side::Reader, Side::Writer] {
            let Some((experts, rows)) = shape(program, batch, side) else { continue };
            let arguments = [
                said,
                Argument::Place(self.sums_of(side)),
                Argument::Long(rows as i64),
                whole(experts),
                Argument::Place(to),
            ];
            work.tape.kernel("router_loss", [1, 1, 1], THREADS, 0, &arguments);
        }
    }

    /// Adds the gradient of that loss to the gradient of a router's scores, where the node is one.
    pub(super) fn add(
        &self,
        work: &mut Work<'_>,
        (program, batch): (&Program, &Batch),
        node: usize,
        factors: [f64; 2],
        (rows, [scores, to]): (usize, [Place; 2]),
    ) {
        let Some((routing, side)) = of(program, node) else { return };
        let Some((experts, all)) = shape(program, batch, side) else { return };
        let said = self.said(work, factors);
        let left = logarithms(work, scores, [rows, routing.experts]);
        let arguments = [
            &[scores, left].map(Argument::Place)[..],
            &[said, Argument::Place(self.sums_of(side)), Argument::Place(to)],
            &[Argument::Long(all as i64), whole(rows), whole(experts)],
        ];
        let name = work.tape.named("router_back");
        work.tape.kernel(&name, [rows.div_ceil(THREADS), 1, 1], THREADS, 0, &arguments.concat());
    }
}

/// The experts of a side, and the rows that go through its routers, layer by layer; none where it has no rows or none.
fn shape(program: &Program, batch: &Batch, side: Side) -> Option<(usize, usize)> {
    let all = (0..program.nodes.len()).filter_map(|node| Some((node, of(program, node)?)));
    let own = all.filter(|(_, (_, own))| *own == side);
    let rows = |node: usize| program.values[program.nodes[node].output].row_count(batch);
    let (experts, rows) =
        own.fold((0, 0), |(_, sum), (node, (routing, _))| (routing.experts, sum + rows(node)));
    (rows > 0).then_some((experts, rows))
}

/// The logarithms of the sums of exponentials, row by row.
fn logarithms(work: &mut Work<'_>, scores: Place, [rows, experts]: [usize; 2]) -> Place {
    work.scratch.clear();
    let left = work.scratch.floats(rows);
    let arguments = [&[scores, left].map(Argument::Place)[..], &[rows, experts].map(whole)].concat();
    let name = work.tape.named("router_logarithms");
    work.tape.kernel(&name, [rows.div_ceil(THREADS), 1, 1], THREADS, 0, &arguments);
    left
}
