//! Positions of tokens, and what depends on them: RoPE and routing.

use super::lower::GraphLowering;
use super::proto::{AttributeValue, Element};
use siskin_graph::{RopeScaling, RopeScalingMethod, RopeTable, Routing};

impl GraphLowering<'_, '_> {
    fn once(&mut self, word: &str, make: impl FnOnce(&mut Self) -> String) -> String {
        if let Some(value) = self.cached_values.get(word) {
            return value.clone();
        }
        let value = make(self);
        self.cached_values.insert(word.to_owned(), value.clone());
        value
    }

    /// Returns the position of each token in its sequence: padding is not counted.
    pub(super) fn positions(&mut self) -> String {
        self.once("positions", |side| match side.inputs.mask.clone() {
            Some(mask) => {
                let axis = side.nodes.int(1);
                let count = side.nodes.add("CumSum", &[&mask, &axis]);
                let count = side.moved(&count, -1);
                let zero = side.nodes.int(0);
                side.nodes.add("Max", &[&count, &zero])
            }
            None => {
                let length = side.length();
                let (zero, one) = (side.nodes.int(0), side.nodes.int(1));
                let range = side.nodes.add("Range", &[&zero, &length, &one]);
                side.nodes.unsqueeze(&range, &[0])
            }
        })
    }

    /// Returns the number of rows of a sequence. A row covers several audio frames if the graph has strided
    /// convolutions.
    fn length(&mut self) -> String {
        let rows = self.inputs.rows.clone();
        let shape = self.nodes.add("Shape", &[&rows]);
        let stride = self.graph.frames_per_row() as i64;
        let axis = self.nodes.int(if stride > 0 { 2 } else { 1 });
        let length = self.nodes.gather(&shape, &axis, 0);
        if stride < 2 {
            return length;
        }
        let length = self.moved(&length, stride - 1);
        let stride = self.nodes.int(stride);
        self.nodes.add("Div", &[&length, &stride])
    }

    /// Adds a constant to integers.
    pub(super) fn moved(&mut self, x: &str, by: i64) -> String {
        if by == 0 {
            return x.to_owned();
        }
        let by = self.nodes.int(by);
        self.nodes.add("Add", &[x, &by])
    }

    /// Returns key position minus query position: batch × 1 × queries × keys.
    pub(super) fn distances(&mut self) -> String {
        self.once("distances", |side| {
            let positions = side.positions();
            let keys = side.nodes.unsqueeze(&positions, &[1, 2]);
            let queries = side.nodes.unsqueeze(&positions, &[1, 3]);
            side.nodes.add("Sub", &[&keys, &queries])
        })
    }

    /// Returns the cosines and sines of a RoPE table at each position.
    fn cos_sin(&mut self, rope: usize, offset: usize) -> (String, String) {
        let mut turn = |op: &str| {
            self.once(&format!("{op} {rope} {offset}"), |side| {
                let table = side.graph.ropes[rope].clone();
                let angles = side.once(&format!("angles {rope} {offset}"), |side| {
                    let positions = side.positions();
                    let positions = side.moved(&positions, offset as i64);
                    let positions = side.nodes.cast(&positions, Element::Float);
                    let positions = side.nodes.unsqueeze(&positions, &[2]);
                    let frequencies = side.frequencies(&table);
                    side.nodes.add("Mul", &[&positions, &frequencies])
                });
                let turned = side.nodes.add(op, &[&angles]);
                side.nodes.times(&turned, table.magnitude)
            })
        };
        (turn("Cos"), turn("Sin"))
    }

    /// Returns the frequencies of a RoPE table, for each sequence those of its length.
    fn frequencies(&mut self, table: &RopeTable) -> String {
        let usual = self.nodes.floats(&[table.frequencies.len()], &table.frequencies);
        let Some(RopeScaling { length, method: RopeScalingMethod::LongRope(long) }) = &table.scaling else {
            return usual;
        };
        let long = self.nodes.floats(&[long.len()], long);
        let positions = self.positions();
        let axes = [AttributeValue::Ints("axes", &[1]), AttributeValue::Int("keepdims", 1)];
        let last = self.nodes.with("ReduceMax", &[&positions], &axes);
        let max = self.nodes.int(*length as i64 - 1);
        let is_long = self.nodes.add("Greater", &[&last, &max]);
        let is_long = self.nodes.unsqueeze(&is_long, &[2]);
        self.nodes.add("Where", &[&is_long, &long, &usual])
    }

    /// Returns sines, then cosines.
    pub(super) fn sines(&mut self, rope: usize, offset: usize) -> String {
        let (cosines, sines) = self.cos_sin(rope, offset);
        self.nodes.concat(&[&sines, &cosines], -1)
    }

    /// Rotates the pairs of each head by their angles.
    pub(super) fn rotate(&mut self, x: &str, rope: usize, head_size: i64, columns: i64) -> String {
        let pairs = self.graph.ropes[rope].frequencies.len() as i64;
        let turn = |name: &str, side: &mut Self| {
            let (cosines, sines) = side.cos_sin(rope, 0);
            let turned = if name == "cosines" { cosines } else { sines };
            side.once(&format!("{name} {rope} of heads"), |side| side.nodes.unsqueeze(&turned, &[2]))
        };
        let (cosines, sines) = (turn("cosines", self), turn("sines", self));
        let nodes = &mut *self.nodes;
        let heads = nodes.reshape(x, &[0, 0, -1, head_size]);
        let first = nodes.slice(&heads, -1, 0, pairs, 1);
        let second = nodes.slice(&heads, -1, pairs, 2 * pairs, 1);
        let product = |nodes: &mut super::nodes::Nodes, a: &str, b: &str| nodes.add("Mul", &[a, b]);
        let (a, b) = (product(nodes, &first, &cosines), product(nodes, &second, &sines));
        let (c, d) = (product(nodes, &second, &cosines), product(nodes, &first, &sines));
        let (left, right) = (nodes.add("Sub", &[&a, &b]), nodes.add("Add", &[&c, &d]));
        let turned = if 2 * pairs < head_size {
            let rest = nodes.slice(&heads, -1, 2 * pairs, head_size, 1);
            nodes.concat(&[&left, &right, &rest], -1)
        } else {
            nodes.concat(&[&left, &right], -1)
        };
        nodes.reshape(&turned, &[0, 0, columns])
    }

    /// Returns the weight of every expert for each row, zero for experts that are not selected.
    pub(super) fn route(&mut self, scores: &str, routing: &Routing) -> String {
        let axis = [AttributeValue::Int("axis", -1)];
        let likely = self.nodes.with("Softmax", &[scores], &axis);
        let chosen = self.nodes.ints(&[routing.top_k as i64]);
        let (values, indices) = self.nodes.two("TopK", &[&likely, &chosen], &axis);
        let values = if routing.normalize {
            let axes = self.nodes.ints(&[-1]);
            let sum = self.nodes.add("ReduceSum", &[&values, &axes]);
            self.nodes.add("Div", &[&values, &sum])
        } else {
            values
        };
        let zero = self.nodes.float(0.0);
        let zeros = self.nodes.add("Mul", &[&likely, &zero]);
        let shares = self.nodes.with("ScatterElements", &[&zeros, &indices, &values], &axis);
        match routing.capacity {
            Some(capacity) => self.limit_to_capacity(&shares, capacity),
            None => shares,
        }
    }

    /// Limits the rows of a sequence that an expert takes to its capacity.
    fn limit_to_capacity(&mut self, shares: &str, capacity: usize) -> String {
        let zero = self.nodes.float(0.0);
        let taken = self.nodes.add("Greater", &[shares, &zero]);
        let mut taken = self.nodes.cast(&taken, Element::Float);
        if let Some(mask) = self.inputs.mask.clone() {
            let mask = self.nodes.cast(&mask, Element::Float);
            let mask = self.nodes.unsqueeze(&mask, &[2]);
            taken = self.nodes.add("Mul", &[&taken, &mask]);
        }
        let axis = self.nodes.int(1);
        let count = self.nodes.add("CumSum", &[&taken, &axis]);
        let capacity = self.nodes.float(capacity as f32);
        let fits = self.nodes.add("LessOrEqual", &[&count, &capacity]);
        let fits = self.nodes.cast(&fits, Element::Float);
        self.nodes.add("Mul", &[shares, &fits])
    }
}
