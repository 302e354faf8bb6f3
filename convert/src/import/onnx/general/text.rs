//! Runs language-model graphs on token ids, by the input and output names that exporters use.

use super::General;
use super::graph::GeneralGraph;
use siskin_backend::external_model::{ExternalModelInterface, NamedTensor, OutputMatrix, TensorElements};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::OutputHead;
use siskin_graph::arch::{ConfigReader, FamilyDescriptor, Topology};

/// Suffixes of class names, and the output rows of their models.
const CLASSES: &[(&str, OutputHead)] = &[
    ("ForMaskedLM", OutputHead::Token),
    ("ForPreTraining", OutputHead::Token),
    ("ForSequenceClassification", OutputHead::Class),
    ("ForTokenClassification", OutputHead::Label),
    ("ForQuestionAnswering", OutputHead::Span),
    ("ForCausalLM", OutputHead::Next),
    ("LMHeadModel", OutputHead::Next),
    ("ForConditionalGeneration", OutputHead::Next),
    ("MTModel", OutputHead::Next),
    ("Model", OutputHead::Hidden),
];
/// Default context length of a model without a configuration.
const USUAL_CONTEXT: usize = 512;
/// Default limit of the vocabulary size if it is unknown.
const MAX_IDS: usize = 1 << 24;
/// Decoder inputs are padded to a multiple of this many tokens, so that the graph is not optimized again for every
/// length.
const STEP: usize = 16;

/// Returns the token-level interface of a model of these graphs; empty if its inputs have other names.
pub(super) fn outline(general: &General, config: &ConfigReader) -> Result<ExternalModelInterface> {
    let main = &general.main;
    if !main.inputs.iter().all(|port| is_known(&port.name))
        || !main.inputs.iter().any(|port| is_ids(&port.name))
    {
        return Ok(ExternalModelInterface::default());
    }
    let context = config.count(&[
        "max_position_embeddings",
        "max_target_positions",
        "n_positions",
        "max_seq_len",
        "seq_length",
    ])?;
    let mut outline = ExternalModelInterface {
        vocabulary: config.count(&["vocab_size", "text_config/vocab_size"])?.unwrap_or(MAX_IDS),
        token_types: if main.takes("token_type_ids") {
            config.count(&["type_vocab_size"])?.unwrap_or(2)
        } else {
            0
        },
        context: fixed_length(main).or(context).unwrap_or(USUAL_CONTEXT),
        ..ExternalModelInterface::default()
    };
    let both = general.encoder.is_some() || main.takes("decoder_input_ids");
    let head = if both { OutputHead::Next } else { head(main, config) };
    // A trial run takes precedence over any description of the outputs.
    let tried: &[u32] = &[0, 1_u32.min((outline.vocabulary as u32).saturating_sub(1))];
    let memory = if both {
        let rows = read_whole(general, tried, &[], tried.len())?;
        outline.reads = Some(OutputHead::Hidden);
        (outline.columns, outline.hidden) = (rows.columns, Some(rows.columns));
        Some(rows)
    } else {
        None
    };
    if head == OutputHead::Next {
        let rows = scores(general, tried, memory.as_ref())?;
        outline.writes = true;
        outline.vocabulary = rows.columns;
        return Ok(outline);
    }
    outline.reads = Some(head);
    outline.columns = rows_of(general, tried, &[], head, tried.len())?.columns;
    outline.hidden = match head {
        OutputHead::Hidden => Some(outline.columns),
        _ if main.outputs.iter().any(|port| port.name == "last_hidden_state") => {
            Some(rows_of(general, tried, &[], OutputHead::Hidden, tried.len())?.columns)
        }
        _ => None,
    };
    Ok(outline)
}

fn is_ids(name: &str) -> bool {
    matches!(name, "input_ids" | "decoder_input_ids")
}

/// The input that marks tokens with global attention.
const GLOBAL: &str = "global_attention_mask";

fn is_known(name: &str) -> bool {
    const KNOWN: &[&str] = &[
        "attention_mask",
        "decoder_attention_mask",
        "token_type_ids",
        "position_ids",
        "encoder_hidden_states",
        "encoder_attention_mask",
        GLOBAL,
        "use_cache_branch",
        "cache_position",
    ];
    is_ids(name) || KNOWN.contains(&name) || is_past(name)
}

/// Returns true for inputs of the KV cache, which are always empty here.
fn is_past(name: &str) -> bool {
    name.starts_with("past_key_values") || name.starts_with("past.")
}

/// Returns the fixed length of the input ids, if the graph was exported for one.
fn fixed_length(runner: &GeneralGraph) -> Option<usize> {
    let port = runner.inputs.iter().find(|port| is_ids(&port.name))?;
    *port.shape.as_ref()?.get(1)?
}

/// Returns the kind of output rows of a model that is not an encoder–decoder.
fn head(main: &GeneralGraph, config: &ConfigReader) -> OutputHead {
    let class = config.get("architectures/0").or_else(|| config.get("architectures")?.get(0));
    let class = class.and_then(|class| class.as_str()).unwrap_or_default();
    let known = CLASSES.iter().find(|(ending, _)| class.ends_with(ending)).map(|(_, head)| *head);
    let has = |name: &str| main.outputs.iter().any(|port| port.name == name);
    let scores = main.outputs.iter().find(|port| port.name == "logits");
    match (known, scores.and_then(|port| port.shape.as_ref())) {
        _ if has("start_logits") && has("end_logits") => OutputHead::Span,
        (Some(OutputHead::Hidden) | None, _) if has("last_hidden_state") => OutputHead::Hidden,
        (Some(head), _) => head,
        _ if main.outputs.iter().any(|port| port.name.starts_with("present")) => OutputHead::Next,
        (None, Some(shape)) if shape.len() == 2 => OutputHead::Class,
        (None, Some(_)) if writes(config) => OutputHead::Next,
        (None, Some(_)) => OutputHead::Token,
        _ => OutputHead::Hidden,
    }
}

/// Returns true if the configuration is that of a generative family.
fn writes(config: &ConfigReader) -> bool {
    let family = config.word(&["model_type"]).ok().flatten().map(FamilyDescriptor::of_hugging_face);
    matches!(family, Some(Ok(found)) if matches!(found.family.topology, Topology::Decoder(_)))
}

/// Encodes a text, padded to `length` tokens that the attention mask hides; see
/// [`siskin_backend::external_model::ExternalModel::encode`].
pub(super) fn read(
    general: &General,
    ids: &[u32],
    token_types: &[u32],
    head: bool,
    length: usize,
) -> Result<OutputMatrix> {
    let reads = general.outline.reads.ok_or_else(not_text)?;
    if general.outline.writes {
        return read_whole(general, ids, token_types, length);
    }
    rows_of(general, ids, token_types, if head { reads } else { OutputHead::Hidden }, length)
}

/// Returns the decoder's input for a text: hidden states of the encoder, or the ids if the graph contains the encoder.
fn read_whole(general: &General, ids: &[u32], token_types: &[u32], length: usize) -> Result<OutputMatrix> {
    let Some(encoder) = &general.encoder else {
        return Ok(OutputMatrix { columns: 1, values: ids.iter().map(|&id| id as f32).collect() });
    };
    let outputs = encoder.run(&text_inputs(encoder, ids, token_types, None, length)?)?;
    rows(pick(&outputs, &["last_hidden_state", "encoder_hidden_states"])?, ids.len())
}

/// Returns the logits after each token.
pub(super) fn write(general: &General, ids: &[u32], memory: Option<&OutputMatrix>) -> Result<OutputMatrix> {
    if !general.outline.writes {
        return Err(not_text());
    }
    scores(general, ids, memory)
}

fn not_text() -> Error {
    Error::unsupported("model", "its inputs are not token ids; pass named tensors")
}

fn scores(general: &General, ids: &[u32], memory: Option<&OutputMatrix>) -> Result<OutputMatrix> {
    let main = &general.main;
    // Causal attention: no token attends to the padding after it.
    let length = ids.len().next_multiple_of(STEP);
    let outputs = main.run(&text_inputs(main, ids, &[], memory, length)?)?;
    rows(pick(&outputs, &["logits"])?, ids.len())
}

/// Returns one kind of output rows for a text.
fn rows_of(
    general: &General,
    ids: &[u32],
    token_types: &[u32],
    head: OutputHead,
    length: usize,
) -> Result<OutputMatrix> {
    let main = &general.main;
    let mut inputs = text_inputs(main, ids, token_types, None, length)?;
    // The first token has global attention if it gives the classes.
    if head == OutputHead::Class
        && let Some(NamedTensor { shape, numbers: TensorElements::Integers(seen), .. }) =
            inputs.iter_mut().find(|input| input.name == GLOBAL)
    {
        let length = shape.last().copied().unwrap_or(1).max(1);
        seen.iter_mut().step_by(length).for_each(|first| *first = 1);
    }
    let outputs = main.run(&inputs)?;
    match head {
        OutputHead::Span => {
            let (starts, ends) = (pick(&outputs, &["start_logits"])?, pick(&outputs, &["end_logits"])?);
            let (starts, ends) = (floats(starts)?, floats(ends)?);
            let pairs = starts.iter().zip(ends).take(ids.len()).flat_map(|(start, end)| [*start, *end]);
            Ok(OutputMatrix { columns: 2, values: pairs.collect() })
        }
        OutputHead::Hidden => rows(pick(&outputs, &["last_hidden_state"])?, ids.len()),
        _ => rows(pick(&outputs, &["logits"])?, ids.len()),
    }
}

/// Returns the first output with one of these names, otherwise the first float output.
fn pick<'a>(outputs: &'a [NamedTensor], names: &[&str]) -> Result<&'a NamedTensor> {
    let named = outputs.iter().find(|output| names.contains(&output.name.as_str()));
    let first = || outputs.iter().find(|output| matches!(output.numbers, TensorElements::Floats(_)));
    named
        .or_else(first)
        .ok_or_else(|| Error::new(ErrorKind::Missing, "output", "the graph has no float output"))
}

fn floats(tensor: &NamedTensor) -> Result<&[f32]> {
    match &tensor.numbers {
        TensorElements::Floats(values) => Ok(values),
        TensorElements::Integers(_) => {
            Err(Error::new(ErrorKind::Shape, format!("output {}", tensor.name), "not a float tensor"))
        }
    }
}

/// Returns the rows of an output's first sequence: one for each of `count` tokens, or one for the sequence.
fn rows(tensor: &NamedTensor, count: usize) -> Result<OutputMatrix> {
    let values = floats(tensor)?;
    let (columns, count) = match tensor.shape[..] {
        [_, tokens, columns] if tokens >= count => (columns, count),
        [_, columns] => (columns, 1),
        _ => {
            let message =
                format!("shape {:?}, expected [texts, tokens, columns] or [texts, columns]", tensor.shape);
            return Err(Error::new(ErrorKind::Shape, format!("output {}", tensor.name), message));
        }
    };
    let values = values.get(..columns * count).unwrap_or_default().to_vec();
    Ok(OutputMatrix { columns, values })
}

/// Returns every input of a graph for a text of `ids`, padded to `length` tokens if the graph accepts any length.
fn text_inputs(
    runner: &GeneralGraph,
    ids: &[u32],
    token_types: &[u32],
    memory: Option<&OutputMatrix>,
    length: usize,
) -> Result<Vec<NamedTensor>> {
    let length = fixed_length(runner).unwrap_or(length);
    if ids.len() > length {
        let message = format!("{} tokens; the graph was exported for {length}", ids.len());
        return Err(Error::new(ErrorKind::TooLong, "text", message));
    }
    let whole = runner.takes("decoder_input_ids") && runner.takes("input_ids");
    let padded = |values: &mut dyn Iterator<Item = i64>| -> Vec<i64> {
        values.chain(std::iter::repeat(0)).take(length).collect()
    };
    let mut inputs = Vec::new();
    for port in &runner.inputs {
        let batch = port.shape.as_ref().and_then(|shape| *shape.first()?).unwrap_or(1);
        let read = memory.map(|memory| memory.count()).unwrap_or(0);
        let ones = |count: usize| vec![1_i64; count];
        let numbers = match port.name.as_str() {
            "input_ids" | "attention_mask" if whole => {
                let ids = memory.map(|memory| memory.values.iter().map(|&id| id as i64).collect());
                if port.name == "input_ids" { ids.unwrap_or_default() } else { ones(read) }
            }
            name if is_ids(name) => padded(&mut ids.iter().map(|&id| i64::from(id))),
            "attention_mask" | "decoder_attention_mask" => padded(&mut ids.iter().map(|_| 1)),
            "token_type_ids" => padded(&mut token_types.iter().map(|&token_type| i64::from(token_type))),
            GLOBAL => vec![0; length],
            "position_ids" => (0..length as i64).collect(),
            "encoder_attention_mask" => ones(read),
            "use_cache_branch" | "cache_position" => {
                let count = if port.name == "cache_position" { length as i64 } else { 1 };
                let numbers = (0..count).collect::<Vec<i64>>();
                inputs.push(tensor(
                    port.name.clone(),
                    vec![numbers.len()],
                    TensorElements::Integers(numbers),
                ));
                continue;
            }
            "encoder_hidden_states" => {
                let memory =
                    memory.ok_or_else(|| Error::new(ErrorKind::State, "text", "no text was encoded"))?;
                let shape = vec![batch, read, memory.columns];
                inputs.push(tensor(
                    port.name.clone(),
                    shape,
                    TensorElements::Floats(memory.values.repeat(batch)),
                ));
                continue;
            }
            _ => {
                inputs.push(nothing(port)?);
                continue;
            }
        };
        let shape = vec![batch, numbers.len()];
        inputs.push(tensor(port.name.clone(), shape, TensorElements::Integers(numbers.repeat(batch))));
    }
    Ok(inputs)
}

fn tensor(name: String, shape: Vec<usize>, numbers: TensorElements) -> NamedTensor {
    NamedTensor { name, shape, numbers }
}

/// Returns an empty KV cache: [batch, heads, 0, columns].
fn nothing(port: &siskin_backend::external_model::PortInfo) -> Result<NamedTensor> {
    let shape = port.shape.as_deref().unwrap_or_default();
    let &[batch, heads, None, columns] = shape else {
        let message = "unknown input; pass named tensors";
        return Err(Error::unsupported(format!("input {}", port.name), message));
    };
    let (Some(heads), Some(columns)) = (heads, columns) else {
        let message = "no fixed number of heads and columns";
        return Err(Error::unsupported(format!("input {}", port.name), message));
    };
    let shape = vec![batch.unwrap_or(1), heads, 0, columns];
    Ok(tensor(port.name.clone(), shape, TensorElements::Floats(Vec::new())))
}
