//! A model file: nodes, tensors, inputs and outputs, read in place.
//!
//! Parsing is total and uses a small multiple of the file's size: lists are counted before they are allocated. Nodes
//! are in topological order: every node uses only values that precede it.

use super::tensor::OnnxTensor;
use super::wire::{Wire, count, entry, fields};
use siskin_format::{Error, ErrorKind, Result};
use std::collections::HashSet;

/// Maximum nesting depth of graphs in node attributes.
const MAX_DEPTH: usize = 8;
/// Maximum number of nodes, tensors and attributes of a file.
const MAX_PARTS: usize = 1 << 21;
/// The metadata key under which our exports store the configuration.
pub(crate) const SETTINGS: &str = "siskin.config";
/// The size limit of a protobuf message.
const MAX_MESSAGE_BYTES: usize = i32::MAX as usize;

/// A parsed file.
#[derive(Clone, Debug)]
pub struct OnnxModel<'a> {
    /// The version of the standard operator set.
    pub opset: u64,
    /// The tool that wrote the file.
    pub producer: &'a str,
    /// Names of functions defined in the file.
    pub functions: Vec<&'a str>,
    /// The configuration that our exports store with the graph; empty in other files.
    pub settings: &'a str,
    /// The graph.
    pub graph: OnnxGraph<'a>,
}

/// A graph.
#[derive(Clone, Debug, Default)]
pub struct OnnxGraph<'a> {
    /// The nodes, in topological order.
    pub nodes: Vec<OnnxNode<'a>>,
    /// The initializers.
    pub tensors: Vec<OnnxTensor<'a>>,
    /// The inputs. Older exporters list `tensors` here too.
    pub inputs: Vec<OnnxPort<'a>>,
    /// The outputs.
    pub outputs: Vec<OnnxPort<'a>>,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct OnnxNode<'a> {
    /// Its name, which often contains the module path.
    pub name: &'a str,
    /// The operator.
    pub operator: &'a str,
    /// The operator's domain; empty for the standard.
    pub domain: &'a str,
    /// The input values; an empty name is an omitted input.
    pub inputs: Vec<&'a str>,
    /// The output values.
    pub outputs: Vec<&'a str>,
    /// Its attributes.
    pub attributes: Vec<OnnxAttribute<'a>>,
    /// The module scopes from the outermost on, as newer exporters record them.
    pub scopes: &'a str,
}

/// An attribute of a node.
#[derive(Clone, Debug)]
pub struct OnnxAttribute<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: Setting<'a>,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum Setting<'a> {
    /// A float.
    Float(f32),
    /// An integer.
    Integer(i64),
    /// A string.
    Text(&'a [u8]),
    /// A tensor.
    Tensor(OnnxTensor<'a>),
    /// A graph.
    Graph(Box<OnnxGraph<'a>>),
    /// A list of floats.
    Floats(Vec<f32>),
    /// A list of integers.
    Integers(Vec<i64>),
    /// A list of strings.
    Texts(Vec<&'a [u8]>),
    /// Any other type.
    Other,
}

/// A dimension of an input or output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnnxDimension<'a> {
    /// A fixed size.
    Fixed(u64),
    /// A dynamic size; equal names mean equal sizes.
    Named(&'a str),
    /// Unknown.
    Unknown,
}

/// An input or output.
#[derive(Clone, Debug)]
pub struct OnnxPort<'a> {
    /// Its name.
    pub name: &'a str,
    /// The element type id; 0 if it is not a tensor.
    pub kind: u64,
    /// Its shape; `None` if the rank is unknown.
    pub shape: Option<Vec<OnnxDimension<'a>>>,
}

impl<'a> OnnxNode<'a> {
    /// Returns the value of an attribute.
    pub fn setting(&self, name: &str) -> Option<&Setting<'a>> {
        self.attributes.iter().find(|attribute| attribute.name == name).map(|attribute| &attribute.value)
    }

    /// Returns an integer attribute.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.setting(name) {
            Some(Setting::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    /// Iterates over the graphs among the attributes.
    pub fn graphs(&self) -> impl Iterator<Item = &OnnxGraph<'a>> {
        self.attributes.iter().filter_map(|attribute| match &attribute.value {
            Setting::Graph(graph) => Some(&**graph),
            _ => None,
        })
    }
}

impl<'a> OnnxGraph<'a> {
    /// Returns all nodes, including those of nested graphs.
    pub fn all_nodes(&self) -> Vec<&OnnxNode<'a>> {
        let mut all = Vec::new();
        self.collect(&mut |graph| all.extend(&graph.nodes));
        all
    }

    /// Returns all initializers and constant tensors.
    pub fn all_tensors(&self) -> Vec<&OnnxTensor<'a>> {
        let mut all = Vec::new();
        self.collect(&mut |graph| all.extend(&graph.tensors));
        all
    }

    fn collect<'b>(&'b self, each: &mut dyn FnMut(&'b OnnxGraph<'a>)) {
        each(self);
        for graph in self.nodes.iter().flat_map(OnnxNode::graphs) {
            graph.collect(each);
        }
    }
}

impl<'a> OnnxModel<'a> {
    /// Parses a whole file. Total on any bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(Error::corrupt("file", "longer than 2 GiB, the limit of ONNX files"));
        }
        let mut model =
            Self { opset: 0, producer: "", functions: Vec::new(), settings: "", graph: OnnxGraph::default() };
        let mut parts = MAX_PARTS;
        let mut graph = None;
        for field in fields(bytes, "file") {
            match field? {
                (2, wire) => model.producer = wire.text("producer_name")?,
                (7, wire) => graph = Some(wire.bytes("graph")?),
                (8, wire) => model.operators(wire)?,
                (14, wire) => {
                    let (key, value) = entry(wire.bytes("metadata_props")?)?;
                    if key == SETTINGS {
                        model.settings = value;
                    }
                }
                (25, wire) => {
                    take(&mut parts, 1)?;
                    for field in fields(wire.bytes("functions")?, "functions") {
                        if let (1, name) = field? {
                            model.functions.push(name.text("functions.name")?);
                        }
                    }
                }
                _ => {}
            }
        }
        let graph =
            graph.ok_or_else(|| Error::new(ErrorKind::Missing, "graph", "missing; is it an ONNX model?"))?;
        if model.opset == 0 {
            let message = "missing operator set version";
            return Err(Error::new(ErrorKind::Missing, "opset_import", message));
        }
        model.graph = OnnxGraph::parse(graph, 0, &mut parts).map_err(|error| error.within("graph"))?;
        check_order(&model.graph, &mut HashSet::new()).map_err(|error| error.within("graph"))?;
        Ok(model)
    }

    fn operators(&mut self, wire: Wire<'a>) -> Result<()> {
        let (mut domain, mut version) = ("", 0);
        for field in fields(wire.bytes("opset_import")?, "opset_import") {
            match field? {
                (1, wire) => domain = wire.text("opset_import.domain")?,
                (2, wire) => version = wire.number("opset_import.version")?,
                _ => {}
            }
        }
        if domain.is_empty() || domain == "ai.onnx" {
            self.opset = version;
        }
        Ok(())
    }
}

/// Subtracts `count` from the remaining budget of parts.
fn take(parts: &mut usize, count: usize) -> Result<()> {
    *parts = parts
        .checked_sub(count)
        .ok_or_else(|| Error::corrupt("", format!("more than {MAX_PARTS} nodes, tensors and attributes")))?;
    Ok(())
}

impl<'a> OnnxGraph<'a> {
    fn parse(bytes: &'a [u8], depth: usize, parts: &mut usize) -> Result<Self> {
        if depth > MAX_DEPTH {
            let message = format!("nested more than {MAX_DEPTH} levels deep");
            return Err(Error::corrupt("graphs within nodes", message));
        }
        let [nodes, tensors, inputs, outputs] = [1, 5, 11, 12].map(|number| count(bytes, number));
        take(parts, nodes + tensors + inputs + outputs)?;
        let mut graph = Self {
            nodes: Vec::with_capacity(nodes),
            tensors: Vec::with_capacity(tensors),
            inputs: Vec::with_capacity(inputs),
            outputs: Vec::with_capacity(outputs),
        };
        for field in fields(bytes, "fields") {
            match field? {
                (1, wire) => {
                    let index = graph.nodes.len();
                    let node = wire.bytes("node").and_then(|bytes| OnnxNode::parse(bytes, depth, parts));
                    graph.nodes.push(node.map_err(|error| error.within(&format!("node[{index}]")))?);
                }
                (5, wire) => {
                    let index = graph.tensors.len();
                    let tensor = wire.bytes("initializer").and_then(OnnxTensor::parse);
                    graph
                        .tensors
                        .push(tensor.map_err(|error| error.within(&format!("initializer[{index}]")))?);
                }
                (11, wire) => graph.inputs.push(OnnxPort::parse(wire.bytes("input")?)?),
                (12, wire) => graph.outputs.push(OnnxPort::parse(wire.bytes("output")?)?),
                (15, _) => {
                    return Err(Error::unsupported("sparse_initializer", "sparse tensors are not supported"));
                }
                _ => {}
            }
        }
        Ok(graph)
    }
}

impl<'a> OnnxNode<'a> {
    fn parse(bytes: &'a [u8], depth: usize, parts: &mut usize) -> Result<Self> {
        let attributes = count(bytes, 5);
        take(parts, attributes)?;
        let mut node = Self {
            inputs: Vec::with_capacity(count(bytes, 1)),
            outputs: Vec::with_capacity(count(bytes, 2)),
            attributes: Vec::with_capacity(attributes),
            ..Self::default()
        };
        for field in fields(bytes, "fields") {
            match field? {
                (1, wire) => node.inputs.push(wire.text("input")?),
                (2, wire) => node.outputs.push(wire.text("output")?),
                (3, wire) => node.name = wire.text("name")?,
                (4, wire) => node.operator = wire.text("op_type")?,
                (5, wire) => {
                    let attribute = OnnxAttribute::parse(wire.bytes("attribute")?, depth, parts);
                    let index = node.attributes.len();
                    node.attributes
                        .push(attribute.map_err(|error| error.within(&format!("attribute[{index}]")))?);
                }
                (7, wire) => node.domain = wire.text("domain")?,
                (9, wire) => {
                    let (key, value) = entry(wire.bytes("metadata_props")?)?;
                    if key == "pkg.torch.onnx.name_scopes" {
                        node.scopes = value;
                    }
                }
                _ => {}
            }
        }
        match node.operator.is_empty() || node.outputs.is_empty() {
            true => Err(Error::corrupt("", "a node without an operator or an output")),
            false => Ok(node),
        }
    }
}

impl<'a> OnnxAttribute<'a> {
    fn parse(bytes: &'a [u8], depth: usize, parts: &mut usize) -> Result<Self> {
        let mut attribute = Self { name: "", value: Setting::Other };
        let (mut floats, mut integers, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let mut kind = None;
        for field in fields(bytes, "fields") {
            match field? {
                (1, wire) => attribute.name = wire.text("name")?,
                (2, Wire::Four(bits)) => attribute.value = Setting::Float(f32::from_bits(bits)),
                (3, wire) => attribute.value = Setting::Integer(wire.number("i")? as i64),
                (4, wire) => attribute.value = Setting::Text(wire.bytes("s")?),
                (5, wire) => attribute.value = Setting::Tensor(OnnxTensor::parse(wire.bytes("t")?)?),
                (6, wire) => {
                    let graph = OnnxGraph::parse(wire.bytes("g")?, depth + 1, parts)?;
                    attribute.value = Setting::Graph(Box::new(graph));
                }
                (7, Wire::Four(bits)) => floats.push(f32::from_bits(bits)),
                (7, Wire::Bytes(bytes)) => {
                    floats.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                }
                (8, wire) => wire.numbers("ints", &mut |number| integers.push(number as i64))?,
                (9, wire) => texts.push(wire.bytes("strings")?),
                (20, wire) => kind = Some(wire.number("type")?),
                (10 | 11 | 22 | 23, _) => {
                    return Err(Error::unsupported(
                        attribute.name,
                        "lists of tensors or graphs are not supported",
                    ));
                }
                _ => {}
            }
        }
        // An empty list is not encoded in protobuf.
        match kind {
            Some(6) => attribute.value = Setting::Floats(floats),
            Some(7) => attribute.value = Setting::Integers(integers),
            Some(8) => attribute.value = Setting::Texts(texts),
            // Writers may omit zero values.
            Some(1) if matches!(attribute.value, Setting::Other) => attribute.value = Setting::Float(0.0),
            Some(2) if matches!(attribute.value, Setting::Other) => attribute.value = Setting::Integer(0),
            Some(3) if matches!(attribute.value, Setting::Other) => attribute.value = Setting::Text(&[]),
            None if !floats.is_empty() => attribute.value = Setting::Floats(floats),
            None if !integers.is_empty() => attribute.value = Setting::Integers(integers),
            None if !texts.is_empty() => attribute.value = Setting::Texts(texts),
            _ => {}
        }
        Ok(attribute)
    }
}

impl<'a> OnnxPort<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut port = Self { name: "", kind: 0, shape: None };
        for field in fields(bytes, "value") {
            match field? {
                (1, wire) => port.name = wire.text("value.name")?,
                (2, wire) => {
                    for field in fields(wire.bytes("value.type")?, "value.type") {
                        if let (1, wire) = field? {
                            port.tensor_type(wire.bytes("value.type.tensor_type")?)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(port)
    }

    fn tensor_type(&mut self, bytes: &'a [u8]) -> Result<()> {
        for field in fields(bytes, "value.type") {
            match field? {
                (1, wire) => self.kind = wire.number("value.type.elem_type")?,
                (2, wire) => {
                    let bytes = wire.bytes("value.type.shape")?;
                    let mut sizes = Vec::with_capacity(count(bytes, 1));
                    for field in fields(bytes, "value.type.shape") {
                        if let (1, wire) = field? {
                            sizes.push(OnnxDimension::parse(wire.bytes("value.type.shape.dim")?)?);
                        }
                    }
                    self.shape = Some(sizes);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'a> OnnxDimension<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut size = Self::Unknown;
        for field in fields(bytes, "value.type.shape.dim") {
            match field? {
                (1, wire) => size = Self::Fixed(wire.number("value.type.shape.dim.value")?),
                (2, wire) => {
                    let name = wire.text("value.type.shape.dim.param")?;
                    size = if name.is_empty() { Self::Unknown } else { Self::Named(name) };
                }
                _ => {}
            }
        }
        Ok(size)
    }
}

/// Checks that every node uses only preceding values, and that no value is defined twice.
fn check_order<'a>(graph: &OnnxGraph<'a>, known: &mut HashSet<&'a str>) -> Result<()> {
    let before: Vec<&str> = graph
        .tensors
        .iter()
        .map(|tensor| tensor.name)
        .chain(graph.inputs.iter().map(|port| port.name))
        .filter(|name| known.insert(*name))
        .collect();
    let mut made = Vec::with_capacity(graph.nodes.len());
    for (index, node) in graph.nodes.iter().enumerate() {
        let location = || format!("node[{index}] ({})", node.operator.chars().take(40).collect::<String>());
        if let Some(unknown) = node.inputs.iter().find(|name| !name.is_empty() && !known.contains(*name)) {
            let message = format!("uses `{}`, which no earlier node produces", short(unknown));
            return Err(Error::corrupt(location(), message));
        }
        for inner in node.graphs() {
            check_order(inner, known).map_err(|error| error.within(&location()))?;
        }
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if !known.insert(*output) {
                return Err(Error::corrupt(
                    location(),
                    format!("produces `{}` a second time", short(output)),
                ));
            }
            made.push(*output);
        }
    }
    if let Some(port) = graph.outputs.iter().find(|port| !known.contains(port.name)) {
        return Err(Error::corrupt("output", format!("no node produces `{}`", short(port.name))));
    }
    for name in before.into_iter().chain(made) {
        known.remove(name);
    }
    Ok(())
}

/// Truncates a name from a file for messages.
pub(super) fn short(name: &str) -> String {
    name.chars().take(80).collect()
}
