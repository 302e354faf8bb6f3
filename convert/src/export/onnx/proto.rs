//! The protobuf messages of ONNX that a model needs, in wire format.

/// ONNX element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Float = 1,
    Int64 = 7,
    Bool = 9,
    Half = 10,
    Brain = 16,
}

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct ProtoWriter(Vec<u8>);

/// Writes an integer as a varint: groups of seven bits, the lowest first.
pub(super) fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

impl ProtoWriter {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn number(mut self, field: u32, number: i64) -> Self {
        varint(u64::from(field) << 3, &mut self.0);
        varint(number as u64, &mut self.0);
        self
    }

    pub(super) fn float(mut self, field: u32, number: f32) -> Self {
        varint(u64::from(field) << 3 | 5, &mut self.0);
        self.0.extend(number.to_le_bytes());
        self
    }

    /// Appends the tag and length of `length` bytes that the caller writes after this message.
    pub(super) fn head(mut self, field: u32, length: u64) -> Self {
        varint(u64::from(field) << 3 | 2, &mut self.0);
        varint(length, &mut self.0);
        self
    }

    /// Appends the bytes of another message.
    pub(super) fn then(mut self, other: &ProtoWriter) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    pub(super) fn data(self, field: u32, data: &[u8]) -> Self {
        let mut message = self.head(field, data.len() as u64);
        message.0.extend_from_slice(data);
        message
    }

    pub(super) fn text(self, field: u32, text: &str) -> Self {
        self.data(field, text.as_bytes())
    }

    pub(super) fn message(self, field: u32, message: &ProtoWriter) -> Self {
        self.data(field, &message.0)
    }

    pub(super) fn texts<'a>(self, field: u32, texts: impl IntoIterator<Item = &'a str>) -> Self {
        texts.into_iter().fold(self, |message, text| message.text(field, text))
    }

    pub(super) fn numbers(self, field: u32, numbers: &[i64]) -> Self {
        numbers.iter().fold(self, |message, &number| message.number(field, number))
    }
}

/// An attribute of a node.
pub(super) enum AttributeValue<'a> {
    Float(&'a str, f32),
    Int(&'a str, i64),
    Ints(&'a str, &'a [i64]),
}

impl AttributeValue<'_> {
    fn message(&self) -> ProtoWriter {
        let named = |name: &str, kind: i64| ProtoWriter::default().text(1, name).number(20, kind);
        match *self {
            AttributeValue::Float(name, number) => named(name, 1).float(2, number),
            AttributeValue::Int(name, number) => named(name, 2).number(3, number),
            AttributeValue::Ints(name, numbers) => named(name, 7).numbers(8, numbers),
        }
    }
}

/// Builds a `NodeProto`.
pub(super) fn node(
    op: &str,
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[AttributeValue<'_>],
) -> ProtoWriter {
    let message = ProtoWriter::default()
        .texts(1, inputs.iter().copied())
        .texts(2, outputs.iter().copied())
        .text(3, name)
        .text(4, op);
    attributes.iter().fold(message, |message, attribute| message.message(5, &attribute.message()))
}

/// A dimension of an input or output.
#[derive(Clone, Debug)]
pub(super) enum Dimension {
    Known(usize),
    Named(&'static str),
}

/// Builds the `ValueInfoProto` of a tensor.
pub(super) fn value(name: &str, element: Element, sizes: &[Dimension]) -> ProtoWriter {
    let shape = sizes.iter().fold(ProtoWriter::default(), |shape, size| {
        let size = match size {
            Dimension::Known(size) => ProtoWriter::default().number(1, *size as i64),
            Dimension::Named(name) => ProtoWriter::default().text(2, name),
        };
        shape.message(1, &size)
    });
    let tensor = ProtoWriter::default().number(1, element as i64).message(2, &shape);
    ProtoWriter::default().text(1, name).message(2, &ProtoWriter::default().message(1, &tensor))
}

/// Builds a `TensorProto` without its data.
pub(super) fn tensor(name: &str, element: Element, sizes: &[usize]) -> ProtoWriter {
    let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
    ProtoWriter::default().numbers(1, &sizes).number(2, element as i64).text(8, name)
}

/// Builds a `StringStringEntryProto`.
pub(super) fn entry(key: &str, value: &str) -> ProtoWriter {
    ProtoWriter::default().text(1, key).text(2, value)
}
