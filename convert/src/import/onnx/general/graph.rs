//! One graph in tract: optimized for the shapes of its inputs, and run.
//!
//! tract is not hardened against untrusted files and may panic on them. Such panics are caught, become errors and print
//! nothing to standard error. A graph may require large tensors: where shapes follow from those of the inputs, they are
//! bounded before the graph runs.

use super::proto;
use crate::import::onnx::model::{OnnxNode, Setting, short};
use crate::import::onnx::tensor::MAX_DIMENSIONS;
use crate::import::onnx::{ExternalData, OnnxDimension, OnnxModel};
use siskin_backend::external_model::{NamedTensor, PortInfo, TensorElements};
use siskin_format::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Arc, Mutex, Once, PoisonError};
use tract_onnx::prelude::{
    DatumType, Framework, InferenceFact, InferenceModel, InferenceModelExt, IntoRunnable, IntoTValue, TValue,
    Tensor, TractResult, TypedModel, TypedRunnableModel,
};
use tract_onnx::tract_hir::infer::Factoid;

/// The error location of tract's limitations.
pub(in crate::import::onnx) const TRACT: &str = "graph";
/// Maximum number of optimized forms of a graph that are kept, by input shapes.
const MAX_FORMS: usize = 16;

/// Maximum bytes of one tensor inside a graph.
const MAX_BYTES: u64 = 4 << 30;

/// A graph that is optimized for fixed input shapes.
type Form = (Vec<Vec<usize>>, Arc<TypedRunnableModel>);

/// A graph.
pub(super) struct GeneralGraph {
    pub(super) inputs: Vec<PortInfo>,
    pub(super) outputs: Vec<PortInfo>,
    model: InferenceModel,
    /// The most recently used form is last.
    forms: Mutex<Vec<Form>>,
}

impl GeneralGraph {
    pub(super) fn new(model: &OnnxModel<'_>, store: &mut ExternalData) -> Result<Self> {
        check_operators(model)?;
        let proto = proto::model(model, store)?;
        let inference = guarded("reading the graph", || tract_onnx::onnx().model_for_proto_model(&proto))?;
        let given: std::collections::HashSet<_> =
            model.graph.tensors.iter().map(|tensor| tensor.name).collect();
        let inputs = model.graph.inputs.iter().filter(|port| !given.contains(port.name));
        Ok(Self {
            inputs: inputs.map(port).collect(),
            outputs: model.graph.outputs.iter().map(port).collect(),
            model: inference,
            forms: Mutex::default(),
        })
    }

    /// Returns true if there is an input of this name.
    pub(super) fn takes(&self, name: &str) -> bool {
        self.inputs.iter().any(|port| port.name == name)
    }

    /// Computes all outputs from all inputs.
    pub(super) fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
        let inputs = self.inputs.iter().map(|port| self.input(port, inputs)).collect::<Result<Vec<_>>>()?;
        let shapes: Vec<_> = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let form = self.form(shapes, &inputs)?;
        let values = inputs.into_iter().map(IntoTValue::into_tvalue).collect();
        let outputs = guarded("running the graph", || form.run(values))?;
        self.outputs.iter().zip(outputs).map(|(port, value)| output(&port.name, &value)).collect()
    }

    fn input(&self, port: &PortInfo, inputs: &[NamedTensor]) -> Result<Tensor> {
        let given = inputs.iter().find(|input| input.name == port.name).ok_or_else(|| {
            let message = format!("missing; expected shape {}", shape_text(port));
            Error::new(ErrorKind::Missing, format!("input {}", port.name), message)
        })?;
        let fits = port.shape.as_ref().is_none_or(|shape| {
            let fits = |(size, wanted): (&usize, &Option<usize>)| wanted.is_none_or(|wanted| wanted == *size);
            shape.len() == given.shape.len() && given.shape.iter().zip(shape).all(fits)
        });
        let count = given.shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        let length = match &given.numbers {
            TensorElements::Floats(numbers) => numbers.len(),
            TensorElements::Integers(numbers) => numbers.len(),
        };
        if !fits || count != Some(length) {
            let message =
                format!("{length} values of shape {:?}; expected {}", given.shape, shape_text(port));
            return Err(Error::new(ErrorKind::Shape, format!("input {}", port.name), message));
        }
        let index = self.inputs.iter().position(|other| other.name == port.name).unwrap_or(0);
        guarded("taking an input", || {
            let tensor = match &given.numbers {
                TensorElements::Floats(numbers) => Tensor::from_shape(&given.shape, numbers)?,
                TensorElements::Integers(numbers) => Tensor::from_shape(&given.shape, numbers)?,
            };
            let wanted = self.model.input_fact(index)?.datum_type.concretize().unwrap_or(tensor.datum_type());
            Ok(tensor.cast_to_dt(wanted)?.into_owned())
        })
    }

    /// Returns the graph optimized for inputs of these shapes.
    fn form(&self, shapes: Vec<Vec<usize>>, inputs: &[Tensor]) -> Result<Arc<TypedRunnableModel>> {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = forms.iter().position(|(known, _)| *known == shapes) {
            let known = forms.remove(at);
            let form = Arc::clone(&known.1);
            forms.push(known);
            return Ok(form);
        }
        let made = guarded("optimizing the graph", || {
            let mut model = self.model.clone();
            for (index, input) in inputs.iter().enumerate() {
                let fact = InferenceFact::dt_shape_from_tensor(input);
                model = model.with_input_fact(index, fact)?;
            }
            model.into_typed()
        })?;
        check_sizes(&made)?;
        let made = guarded("optimizing the graph", || made.into_optimized()?.into_runnable())?;
        if forms.len() == MAX_FORMS {
            forms.remove(0);
        }
        forms.push((shapes, Arc::clone(&made)));
        Ok(made)
    }
}

/// Returns an error if a tensor of the graph exceeds the size limit. Shapes that depend on computed values are unknown
/// before the graph runs.
fn check_sizes(model: &TypedModel) -> Result<()> {
    for node in model.nodes() {
        for outlet in &node.outputs {
            let Some(shape) = outlet.fact.shape.as_concrete() else { continue };
            let size = outlet.fact.datum_type.size_of() as u64;
            let bytes = shape.iter().try_fold(size, |product, &size| product.checked_mul(size as u64));
            if bytes.is_none_or(|bytes| bytes > MAX_BYTES) {
                let message = format!("a tensor of shape {shape:?} is too large; use smaller inputs");
                return Err(Error::new(ErrorKind::Memory, short(&node.name), message));
            }
        }
    }
    Ok(())
}

/// Returns an error if an operator is unsupported.
fn check_operators(model: &OnnxModel<'_>) -> Result<()> {
    let known = tract_onnx::onnx().op_register.0;
    for node in model.graph.all_nodes() {
        let own = match node.domain {
            "" | "ai.onnx" | "ai.onnx.ml" => false,
            // ONNX Runtime's `Attention` differs from the standard operator of the same name.
            "com.microsoft" => node.operator == "Attention",
            _ => true,
        };
        if own || !known.contains_key(node.operator) {
            let (operator, domain) = (short(node.operator), short(node.domain));
            let whose = if own { format!(" of {domain}") } else { String::new() };
            return Err(Error::unsupported(
                short(node.name),
                format!("the operator {operator}{whose} is not supported"),
            ));
        }
        check_settings(node)?;
    }
    Ok(())
}

/// Rejects settings that tract handles incorrectly: recurrent layers in reverse direction only, and out-of-range axes,
/// up to which it would loop.
fn check_settings(node: &OnnxNode<'_>) -> Result<()> {
    for attribute in &node.attributes {
        match (attribute.name, &attribute.value) {
            ("direction", Setting::Text(b"reverse")) => {
                let message = format!("{} with direction=reverse is not supported", short(node.operator));
                return Err(Error::unsupported(short(node.name), message));
            }
            ("axis", Setting::Integer(axis)) if !AXES.contains(axis) => {
                return Err(Error::corrupt(short(node.name), format!("axis {axis} is out of range")));
            }
            ("axes", Setting::Integers(axes)) => {
                if let Some(axis) = axes.iter().find(|axis| !AXES.contains(axis)) {
                    return Err(Error::corrupt(short(node.name), format!("axis {axis} is out of range")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Valid axes of a tensor, counted from either end.
const AXES: std::ops::Range<i64> = -(MAX_DIMENSIONS as i64)..MAX_DIMENSIONS as i64;

thread_local! {
    /// Whether panics of this thread are caught and returned as errors.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that prints nothing for panics that become errors. Panics of other threads and other code are
/// reported as before.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(quieted(before));
    });
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

fn quieted(before: Hook) -> Hook {
    Box::new(move |panic| {
        if !GUARDED.get() {
            before(panic);
        }
    })
}

/// Runs a call of tract and converts its errors and panics.
fn guarded<T>(what: &str, work: impl FnOnce() -> TractResult<T>) -> Result<T> {
    // A thread that is already panicking cannot change the hook; then the message is printed.
    if !std::thread::panicking() {
        hush();
    }
    let before = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    match outcome {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            let text: String = format!("{error:#}").chars().take(400).collect();
            Err(Error::unsupported(TRACT, format!("{what} in tract: {text}")))
        }
        Err(_) => Err(Error::unsupported(TRACT, format!("{what} in tract panicked; is the file complete?"))),
    }
}

fn port(port: &crate::import::onnx::OnnxPort<'_>) -> PortInfo {
    let size = |size: &OnnxDimension<'_>| match size {
        OnnxDimension::Fixed(size) => usize::try_from(*size).ok(),
        OnnxDimension::Named(_) | OnnxDimension::Unknown => None,
    };
    let floats = matches!(port.kind, 1 | 10 | 11 | 16);
    let shape = port.shape.as_ref().map(|sizes| sizes.iter().map(size).collect());
    PortInfo { name: port.name.to_owned(), shape, integers: !floats }
}

fn shape_text(port: &PortInfo) -> String {
    let size = |size: &Option<usize>| size.map_or_else(|| "any".to_owned(), |size| size.to_string());
    match &port.shape {
        Some(sizes) => format!("[{}]", sizes.iter().map(size).collect::<Vec<_>>().join(", ")),
        None => "any".to_owned(),
    }
}

fn output(name: &str, value: &TValue) -> Result<NamedTensor> {
    let floats = matches!(value.datum_type(), DatumType::F16 | DatumType::F32 | DatumType::F64);
    let numbers = guarded("converting an output", || {
        Ok(if floats {
            let values = value.cast_to::<f32>()?;
            TensorElements::Floats(values.to_plain_array_view::<f32>()?.iter().copied().collect())
        } else {
            let values = value.cast_to::<i64>()?;
            TensorElements::Integers(values.to_plain_array_view::<i64>()?.iter().copied().collect())
        })
    })?;
    Ok(NamedTensor { name: name.to_owned(), shape: value.shape().to_vec(), numbers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn panics_of_tract_become_errors_and_others_are_told() {
        static TOLD: AtomicUsize = AtomicUsize::new(0);
        guarded("doing nothing", || Ok(())).unwrap();
        let installed = std::panic::take_hook();
        std::panic::set_hook(quieted(Box::new(|panic| {
            let own = panic.payload().downcast_ref::<&str>() == Some(&"made for a test");
            TOLD.fetch_add(usize::from(own), Ordering::Relaxed);
        })));
        let error = guarded("running the graph", || -> TractResult<()> { panic!("made for a test") });
        let caught = TOLD.load(Ordering::Relaxed);
        let others = std::thread::spawn(|| panic!("made for a test")).join();
        std::panic::set_hook(installed);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(others.is_err());
        assert_eq!((caught, TOLD.load(Ordering::Relaxed)), (0, 1));
    }
}
