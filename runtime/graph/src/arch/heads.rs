//! Heads of encoders: masked LM, sequence classification, token classification or question answering, as the source has
//! them.

use super::{ConfigReader, ModelConfig, blocks, model_config};
use crate::{ActivationFunction, Builder, Graph, OutputHead, ValueId};
use siskin_format::Result;

/// Suffixes of `architectures` entries and their heads.
const ASKED: &[(&str, OutputHead)] = &[
    ("ForSequenceClassification", OutputHead::Class),
    ("ForTokenClassification", OutputHead::Label),
    ("ForQuestionAnswering", OutputHead::Span),
    ("ForMaskedLM", OutputHead::Token),
    ("ForPreTraining", OutputHead::Token),
];

/// Differences between families in their heads.
pub(super) struct Heads {
    /// The activation between the two linear layers of the classification head; `None`: tanh.
    pub class_activation: Option<ActivationFunction>,
    /// The activation of the masked-LM head.
    pub token_activation: ActivationFunction,
    /// Columns of the embedding table.
    pub embedding: usize,
    /// Additional columns of the masked-LM head, with a matrix of their own.
    pub rest: usize,
    /// The input of the other heads.
    pub base: HeadInput,
}

/// The input of the classification, token classification and question answering heads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadInput {
    /// The hidden states; for classification followed by a pooler (linear layer and activation).
    Hidden,
    /// The masked-LM head's transform of the hidden states.
    Tokens,
    /// The same; for classification, of the mean over the sequence.
    MeanTokens,
}

impl Heads {
    /// Finishes the graph of an encoder with the last hidden states `x`, with the head that the source has.
    pub(super) fn finish(
        &self,
        config: &ConfigReader,
        h: &ModelConfig,
        mut b: Builder<'_>,
        x: ValueId,
    ) -> Result<Graph> {
        let hidden = b.select_outputs(x);
        let classes = classes(config)?;
        let last_exit = b.exits().iter().find(|exit| exit.hidden == x).map(|exit| exit.output);
        let head = self.choose(config, &b, last_exit.is_some());
        let output = match head {
            OutputHead::Class => match last_exit.filter(|_| !self.has_classes(&b)) {
                Some(output) => output,
                None if self.base == HeadInput::Hidden => {
                    self.classes(h, &mut b, hidden, "cls", "cls.output", classes)
                }
                None => {
                    let x = if self.base == HeadInput::MeanTokens {
                        blocks::mean_of_text(&mut b, h, x)
                    } else {
                        x
                    };
                    let picked = b.select_outputs(x);
                    let before = self.before_scores(h, &mut b, picked);
                    b.linear(before, "cls.output", classes)
                }
            },
            OutputHead::Label => {
                let before = self.base_of(h, &mut b, hidden);
                b.linear(before, "labels", classes)
            }
            OutputHead::Span => {
                let before = self.base_of(h, &mut b, hidden);
                let before = self.block_before_answers(config, h, &mut b, before)?;
                b.linear(before, "answer", 2)
            }
            OutputHead::Token => self.tokens(h, &mut b, hidden),
            OutputHead::Hidden | OutputHead::Next => hidden,
        };
        Ok(b.finish_with(head, hidden, output))
    }

    /// Chooses the head that the configuration names if the source has it, or else the first one that the source has.
    /// Earlier training may have left tensors of other heads.
    fn choose(&self, config: &ConfigReader, b: &Builder<'_>, exits: bool) -> OutputHead {
        let has = |head: &OutputHead| match head {
            OutputHead::Class => exits || self.has_classes(b),
            OutputHead::Label => b.has("labels.weight"),
            OutputHead::Span => b.has("answer.weight"),
            OutputHead::Hidden | OutputHead::Next | OutputHead::Token => b.has("tokens.weight"),
        };
        let architectures = config.architectures();
        let named = |ending: &str| architectures.iter().any(|name| name.ends_with(ending));
        let asked = ASKED.iter().filter(|(ending, _)| named(ending)).map(|(_, head)| *head);
        let usual = [OutputHead::Class, OutputHead::Label, OutputHead::Span, OutputHead::Token];
        asked.chain(usual).find(has).unwrap_or(OutputHead::Hidden)
    }

    fn has_classes(&self, b: &Builder<'_>) -> bool {
        let before = if self.base == HeadInput::Hidden { "cls.weight" } else { "tokens.weight" };
        b.has("cls.output.weight") && b.has(before)
    }

    fn base_of(&self, h: &ModelConfig, b: &mut Builder<'_>, hidden: ValueId) -> ValueId {
        if self.base == HeadInput::Hidden { hidden } else { self.before_scores(h, b, hidden) }
    }

    /// The MLP, residual and norm before the question answering head, if the source has them.
    fn block_before_answers(
        &self,
        config: &ConfigReader,
        h: &ModelConfig,
        b: &mut Builder<'_>,
        hidden: ValueId,
    ) -> Result<ValueId> {
        if !b.has("answer_up.weight") {
            return Ok(hidden);
        }
        let up = b.linear(hidden, "answer_up", h.feed_forward);
        let up = b.activate(model_config::activation(config, ActivationFunction::Gelu)?, up);
        let down = b.linear(up, "answer_down", h.width);
        let sum = b.add(hidden, down);
        Ok(b.layer_norm(sum, "answer_norm", h.epsilon))
    }

    /// Adds an early exit after each of the layers with the outputs `states` for which the source has a head: with a
    /// pooler of its own, or with that of the classification head.
    pub(super) fn exits(
        &self,
        config: &ConfigReader,
        h: &ModelConfig,
        b: &mut Builder<'_>,
        states: &[ValueId],
    ) -> Result<()> {
        for (layer, &state) in states.iter().enumerate() {
            let own = format!("exit.{layer}.cls");
            let (pooled, output) = match b.has(&format!("{own}.weight")) {
                true => (own.as_str(), format!("exit.{layer}.output")),
                false => ("cls", format!("exit.{layer}.shared_output")),
            };
            if b.has(&format!("{output}.weight")) && b.has(&format!("{pooled}.weight")) {
                let hidden = b.select_outputs(state);
                let output = self.classes(h, b, hidden, pooled, &output, classes(config)?);
                b.exit(layer + 1, state, output);
            }
        }
        Ok(())
    }

    /// The classification head: linear, activation, linear.
    fn classes(
        &self,
        h: &ModelConfig,
        b: &mut Builder<'_>,
        hidden: ValueId,
        pooled: &str,
        output: &str,
        classes: usize,
    ) -> ValueId {
        let pooled = b.linear(hidden, pooled, h.width);
        let pooled = match self.class_activation {
            Some(kind) => b.activate(kind, pooled),
            None => b.softcap(pooled, Some(1.0)),
        };
        b.linear(pooled, output, classes)
    }

    /// The masked-LM transform: linear, activation, norm.
    fn before_scores(&self, h: &ModelConfig, b: &mut Builder<'_>, hidden: ValueId) -> ValueId {
        let x = b.linear(hidden, "tokens", self.embedding + self.rest);
        let x = b.activate(self.token_activation, x);
        b.layer_norm(x, "tokens_norm", h.epsilon)
    }

    /// The masked-LM head: transform, then tied embeddings or a matrix of its own.
    fn tokens(&self, h: &ModelConfig, b: &mut Builder<'_>, hidden: ValueId) -> ValueId {
        let x = self.before_scores(h, b, hidden);
        let weight = if b.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        // If both biases exist and differ, `output_bias` is not used.
        let bias = if b.has("output.bias") { "output.bias" } else { "output_bias" };
        if self.rest == 0 {
            return b.linear_of(x, weight, bias, h.vocabulary);
        }
        let (first, rest) = (b.slice(x, 0, self.embedding), b.slice(x, self.embedding, self.rest));
        let first = b.linear_of(first, weight, bias, h.vocabulary);
        let rest = b.linear(rest, "output_rest", h.vocabulary);
        b.add(first, rest)
    }
}

/// Returns the number of classes or labels.
pub(super) fn classes(config: &ConfigReader) -> Result<usize> {
    Ok(config.entries("id2label")?.or(config.count(&["num_labels"])?).unwrap_or(2))
}
