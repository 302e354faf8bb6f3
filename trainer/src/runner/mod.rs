//! Runs a program forward and backward on the CPU.

mod disjoint;
mod lm_head;
mod probe;
mod routers;

pub use probe::{NodeEvent, Phase, Probe};

use std::ops::Range;
use std::time::Instant;

use siskin_format::{Error, Result};
use siskin_graph::op::{Embed, EmbedPosition, EmbedSegment, Op};

use self::disjoint::split_disjoint;
pub use self::routers::RouterOptions;
use self::routers::RouterStatistics;
use crate::batch::TrainingBatch;
use crate::grad::{RuleBackward, RuleCall, rule};
use crate::loss::{Loss, LossSum, Targets};
use crate::parameters::{Gradients, Parameters};
use crate::program::{BatchBytes, Buffer, BufferLayout, Layouts, Program, Recompute, Schedule, ScheduleStep};
use crate::real::Real;

/// A program, its schedule, and the arena in which it runs.
pub struct Runner<T> {
    program: Program,
    schedule: Schedule,
    layouts: Layouts,
    forward: Schedule,
    forward_layouts: Layouts,
    arena: Vec<T>,
    scratch: lm_head::HeadScratch<T>,
    routers: RouterOptions,
}

/// Receives the output of the program, for a range of rows.
pub type OutputCallback<'a, T> = &'a mut dyn FnMut(Range<usize>, &[T]);

/// The training objective.
#[derive(Clone, Copy)]
pub struct TrainingObjective<'a, T> {
    /// The loss.
    pub loss: &'a dyn Loss<T>,
    /// The targets.
    pub targets: &'a Targets,
    /// The factor on gradients.
    pub scale: f64,
}

impl<T: Real> Runner<T> {
    /// Creates a runner that trains the weights for which `trains` returns true.
    pub fn new(program: Program, recompute: Recompute, trains: impl Fn(usize) -> bool) -> Result<Self> {
        let schedule = Schedule::new(&program, recompute, trains)?;
        let forward = Schedule::forward(&program)?;
        Ok(Self {
            program,
            schedule,
            layouts: Layouts::default(),
            forward,
            forward_layouts: Layouts::default(),
            arena: Vec::new(),
            scratch: lm_head::HeadScratch::default(),
            routers: RouterOptions::default(),
        })
    }

    /// Adds the auxiliary losses of routers to the gradients.
    #[must_use]
    pub fn with_routers(self, routers: RouterOptions) -> Self {
        Self { routers, ..self }
    }

    /// Returns the program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the bytes of the arena and of the head's scratch memory for a batch of this shape.
    pub fn memory(&self, batch: &TrainingBatch, parameters: &Parameters<T>) -> Result<BatchBytes> {
        let layout = BufferLayout::new(&self.program, &self.schedule, batch, parameters)?;
        let scratch = lm_head::HeadScratch::<T>::size(&self.program, batch);
        let bytes = size_of::<T>();
        Ok(BatchBytes { activations: bytes * layout.size, scratch: bytes * scratch })
    }

    /// Runs a batch forward and backward: accumulates the gradients of the goal, and returns the loss.
    pub fn run(
        &mut self,
        parameters: &Parameters<T>,
        batch: &TrainingBatch,
        goal: TrainingObjective<'_, T>,
        gradients: &mut Gradients<T>,
    ) -> Result<LossSum> {
        self.run_probed(parameters, batch, goal, gradients, None)
    }

    /// Like [`Self::run`], and passes each piece of work to `probe`.
    pub fn run_probed(
        &mut self,
        parameters: &Parameters<T>,
        batch: &TrainingBatch,
        goal: TrainingObjective<'_, T>,
        gradients: &mut Gradients<T>,
        probe: Option<&mut (dyn Probe<T> + '_)>,
    ) -> Result<LossSum> {
        let outcome = self.pass(parameters, batch, goal, Some(gradients), None, probe);
        match outcome {
            Err(error) if error.location() == lm_head::NOT_FINITE => {
                let found = self.find_non_finite(parameters, batch)?;
                let found =
                    found.unwrap_or_else(|| "only the output head produced NaN or infinity".to_owned());
                Err(Error::argument(lm_head::NOT_FINITE, found))
            }
            outcome => outcome,
        }
    }

    /// Runs a batch forward only and returns its loss. The output of the program is passed to `see`, a range of rows
    /// at a time.
    pub fn evaluate(
        &mut self,
        parameters: &Parameters<T>,
        batch: &TrainingBatch,
        goal: TrainingObjective<'_, T>,
        on_output: Option<OutputCallback<'_, T>>,
    ) -> Result<LossSum> {
        self.pass(parameters, batch, goal, None, on_output, None)
    }

    /// Returns the FLOPs of the matmuls of a step with this batch; recomputation does not count.
    pub fn flops(&self, parameters: &Parameters<T>, batch: &TrainingBatch) -> Result<f64> {
        self.flops_from(0, parameters, batch)
    }

    /// Like [`Self::work`], for the head alone.
    pub(crate) fn head_flops(&self, parameters: &Parameters<T>, batch: &TrainingBatch) -> Result<f64> {
        self.flops_from(self.program.head_start, parameters, batch)
    }

    fn flops_from(&self, first: usize, parameters: &Parameters<T>, batch: &TrainingBatch) -> Result<f64> {
        let program = &self.program;
        let mut sum = 0.0;
        for (number, node) in program.graph.nodes.iter().enumerate().skip(first) {
            let call = self.call(number, parameters, batch);
            sum += self.schedule.passes(program, number) * rule(&node.op)?.flops(&call);
        }
        Ok(sum)
    }

    /// Returns the [`RuleCall`] of a node over a batch.
    pub(crate) fn call<'a>(
        &'a self,
        number: usize,
        parameters: &'a Parameters<T>,
        batch: &'a TrainingBatch,
    ) -> RuleCall<'a, T> {
        let (program, node) = (&self.program, &self.program.graph.nodes[number]);
        RuleCall { program, node, batch, parameters, rows: program.row_count(node.output, batch) }
    }

    /// Returns the first operation before the head that produces NaN or infinity, and where; `None` if all values are
    /// finite.
    pub fn find_non_finite(
        &mut self,
        parameters: &Parameters<T>,
        batch: &TrainingBatch,
    ) -> Result<Option<String>> {
        let layout = self.forward_layouts.find(&self.program, &self.forward, batch, parameters)?;
        if self.arena.len() < layout.size {
            self.arena.resize(layout.size, T::ZERO);
        }
        let pass =
            Pass { program: &self.program, schedule: &self.forward, layout: &layout, batch, parameters };
        for (index, &step) in self.forward.steps.iter().enumerate() {
            let ScheduleStep::Forward { node, recomputed: again } = step else { continue };
            pass.forward(index, node, &mut self.arena, None)?;
            let made = &self.program.graph.nodes[node];
            let place = layout.place(Buffer::Value { value: made.output, recomputed: again });
            let bad = self.arena[place].iter().enumerate().find(|(_, number)| !number.is_finite());
            if let Some((index, number)) = bad {
                let columns = self.program.graph.values[made.output].columns;
                let (row, column) = (index / columns, index % columns);
                let title = self.program.title(node);
                return Ok(Some(format!("{title}, produced {number:?} in row {row}, column {column}")));
            }
        }
        Ok(None)
    }

    fn pass(
        &mut self,
        parameters: &Parameters<T>,
        batch: &TrainingBatch,
        goal: TrainingObjective<'_, T>,
        mut gradients: Option<&mut Gradients<T>>,
        mut on_output: Option<OutputCallback<'_, T>>,
        mut probe: Option<&mut (dyn Probe<T> + '_)>,
    ) -> Result<LossSum> {
        check(&self.program, batch)?;
        let (schedule, layouts) = match gradients {
            Some(_) => (&self.schedule, &mut self.layouts),
            None => (&self.forward, &mut self.forward_layouts),
        };
        let layout = layouts.find(&self.program, schedule, batch, parameters)?;
        if self.arena.len() < layout.size {
            self.arena.resize(layout.size, T::ZERO);
        }
        let mut sum = LossSum::default();
        let mut nothing = Gradients::default();
        let mut routers = gradients.as_ref().and_then(|_| RouterStatistics::new(self.routers));
        let weight = goal.loss.weight(batch, goal.targets);
        let pass = Pass { program: &self.program, schedule, layout: &layout, batch, parameters };
        for (index, &step) in schedule.steps.iter().enumerate() {
            layout.zeroed[index].iter().for_each(|place| self.arena[place.clone()].fill(T::ZERO));
            match step {
                ScheduleStep::Forward { node, recomputed: again } => {
                    pass.forward(index, node, &mut self.arena, probe.as_deref_mut())?;
                    if let Some(routers) = routers.as_mut().filter(|_| !again) {
                        pass.record_router(index, node, &self.arena, routers)?;
                    }
                }
                ScheduleStep::Backward { node } => {
                    let gradients = gradients.as_deref_mut().unwrap_or(&mut nothing);
                    pass.backward(index, node, &mut self.arena, gradients, probe.as_deref_mut())?;
                    if let Some(routers) = &routers {
                        pass.add_router(index, node, &mut self.arena, routers, goal.scale * weight)?;
                    }
                }
                ScheduleStep::Head => {
                    let back = gradients.as_deref_mut();
                    let on_output = on_output.take();
                    let probe = probe.as_deref_mut();
                    sum = pass.head(
                        goal,
                        &mut self.arena,
                        &mut self.scratch,
                        HeadOutputs { gradients: back, on_output, probe },
                    )?;
                }
            }
        }
        sum.router_loss = routers.map_or(0.0, |routers| routers.loss() * weight);
        Ok(sum)
    }
}

/// The optional outputs of the head besides the loss.
struct HeadOutputs<'a, 's, 'p, T> {
    gradients: Option<&'a mut Gradients<T>>,
    on_output: Option<OutputCallback<'s, T>>,
    probe: Option<&'a mut (dyn Probe<T> + 'p)>,
}

/// The shared state of a pass over the schedule.
struct Pass<'a, T> {
    program: &'a Program,
    schedule: &'a Schedule,
    layout: &'a BufferLayout,
    batch: &'a TrainingBatch,
    parameters: &'a Parameters<T>,
}

impl<'a, T: Real> Pass<'a, T> {
    fn call(&self, node: usize, rows: Option<usize>) -> RuleCall<'a, T> {
        let node = &self.program.graph.nodes[node];
        let rows = rows.unwrap_or_else(|| self.program.row_count(node.output, self.batch));
        RuleCall { program: self.program, node, batch: self.batch, parameters: self.parameters, rows }
    }

    fn forward(
        &self,
        step: usize,
        node: usize,
        arena: &mut [T],
        probe: Option<&mut (dyn Probe<T> + '_)>,
    ) -> Result<()> {
        let uses = &self.schedule.uses[step];
        let mut tables = StepBuffers::new(arena, self.layout, uses.all());
        let (out, kept) = (tables.take(uses.writes[0]), tables.take(uses.writes[1]));
        let inputs: Vec<&[T]> = uses.inputs.iter().map(|buffer| tables.read(*buffer)).collect();
        let call = self.call(node, None);
        let (out, kept) = (out.unwrap_or_default(), kept.unwrap_or_default());
        let begin = probe::now(probe.as_ref());
        rule(&call.node.op)?.forward(&call, &inputs, out, kept);
        if let (Some(probe), Some(begin)) = (probe, begin) {
            let again = matches!(self.schedule.steps[step], ScheduleStep::Forward { recomputed: true, .. });
            let phase = if again { Phase::Recompute } else { Phase::Forward };
            let (call, end) = (&call, Instant::now());
            probe.node(&NodeEvent { number: node, phase, call, inputs: &inputs, output: out, begin, end });
        }
        Ok(())
    }

    fn backward(
        &self,
        step: usize,
        node: usize,
        arena: &mut [T],
        gradients: &mut Gradients<T>,
        probe: Option<&mut (dyn Probe<T> + '_)>,
    ) -> Result<()> {
        let uses = &self.schedule.uses[step];
        let mut tables = StepBuffers::new(arena, self.layout, uses.all());
        // A value that is read twice by a node has one gradient; the second contribution is added afterwards.
        let mut second = vec![Vec::new(); uses.input_gradients.len()];
        let mut to: Vec<Option<&mut [T]>> = Vec::with_capacity(uses.input_gradients.len());
        for ((index, buffer), second) in uses.input_gradients.iter().enumerate().zip(&mut second) {
            let Some(buffer) = *buffer else {
                to.push(None);
                continue;
            };
            if uses.input_gradients[..index].contains(&Some(buffer)) {
                second.resize(self.layout.place(buffer).len(), T::ZERO);
                to.push(Some(second));
            } else {
                to.push(tables.take(buffer));
            }
        }
        let read = |buffer: Option<Buffer>| buffer.map_or(&[][..], |buffer| tables.read(buffer));
        let inputs: Vec<&[T]> = uses.inputs.iter().map(|buffer| tables.read(*buffer)).collect();
        let call = self.call(node, None);
        let back = RuleBackward {
            inputs: &inputs,
            output: read(uses.output),
            saved: read(uses.saved),
            gradient: read(uses.gradient),
            input_gradients: &mut to,
            weight_gradients: gradients,
        };
        let begin = probe::now(probe.as_ref());
        rule(&call.node.op)?.backward(&call, back);
        if let (Some(probe), Some(begin)) = (probe, begin) {
            let (phase, call, end) = (Phase::Backward, &call, Instant::now());
            probe.node(&NodeEvent { number: node, phase, call, inputs: &inputs, output: &[], begin, end });
        }
        for (buffer, second) in
            uses.input_gradients.iter().zip(second).filter(|(_, second)| !second.is_empty())
        {
            let place = buffer.map_or(0..0, |buffer| self.layout.place(buffer));
            arena[place].iter_mut().zip(second).for_each(|(to, from)| *to += from);
        }
        Ok(())
    }
}

impl<T: Real> Pass<'_, T> {
    /// Records the decisions of a router, if the node is one.
    fn record_router(
        &self,
        step: usize,
        node: usize,
        arena: &[T],
        routers: &mut RouterStatistics,
    ) -> Result<()> {
        let Some(router) = RouterStatistics::of(self.program, node) else { return Ok(()) };
        let uses = &self.schedule.uses[step];
        let [scores, routed] = [uses.inputs[0], uses.writes[0]].map(|buffer| self.layout.place(buffer));
        routers.record(router, &arena[scores], &arena[routed]);
        Ok(())
    }

    /// Adds the gradient of a router's auxiliary loss, if the node is a router.
    fn add_router(
        &self,
        step: usize,
        node: usize,
        arena: &mut [T],
        routers: &RouterStatistics,
        factor: f64,
    ) -> Result<()> {
        let Some(router) = RouterStatistics::of(self.program, node) else { return Ok(()) };
        let uses = &self.schedule.uses[step];
        let Some(to) = uses.input_gradients[0] else { return Ok(()) };
        let places = [uses.inputs[0], to].map(|buffer| self.layout.place(buffer));
        if let [Some(scores), Some(to)] = &mut split_disjoint(arena, &places)[..] {
            routers.add(router, scores, factor, to);
        }
        Ok(())
    }
}

/// The buffers of a step, as slices of the arena.
struct StepBuffers<'a, T> {
    pieces: Vec<(Buffer, Option<&'a mut [T]>)>,
}

impl<'a, T> StepBuffers<'a, T> {
    fn new(arena: &'a mut [T], layout: &BufferLayout, buffers: impl Iterator<Item = Buffer>) -> Self {
        let mut wanted: Vec<Buffer> = Vec::new();
        for buffer in buffers {
            if !wanted.contains(&buffer) {
                wanted.push(buffer);
            }
        }
        let places: Vec<_> = wanted.iter().map(|&buffer| layout.place(buffer)).collect();
        Self { pieces: wanted.into_iter().zip(split_disjoint(arena, &places)).collect() }
    }

    /// Returns a buffer for writing.
    fn take(&mut self, buffer: Buffer) -> Option<&'a mut [T]> {
        self.pieces.iter_mut().find(|(known, _)| *known == buffer)?.1.take()
    }

    fn read(&self, buffer: Buffer) -> &[T] {
        let found = self.pieces.iter().find(|(known, _)| *known == buffer);
        found.and_then(|(_, piece)| piece.as_deref()).unwrap_or(&[])
    }
}

/// Rejects token ids, token types and positions that are out of range of their tables.
pub(crate) fn check(program: &Program, batch: &TrainingBatch) -> Result<()> {
    for node in &program.graph.nodes {
        let texts = program.sequences(node.output, batch);
        let rows = texts.rows.iter();
        let (table, max, what) = if let Op::Embed(Embed { table }) = node.op {
            (table, rows.map(|row| row.token as usize).max(), "token")
        } else if let Op::EmbedSegment(EmbedSegment { table }) = node.op {
            (table, rows.map(|row| row.token_type as usize).max(), "token_type")
        } else if let Op::EmbedPosition(EmbedPosition { table, offset }) = node.op {
            (table, rows.map(|row| row.position + offset).max(), "position")
        } else {
            continue;
        };
        let limit = program.graph.weights[table].rows;
        if let Some(max) = max.filter(|&max| max >= limit) {
            let message = format!(
                "{what} {max} is out of range: {} has {limit} rows",
                program.graph.weights[table].name
            );
            return Err(Error::argument("batch", message));
        }
    }
    Ok(())
}
