//! What is put on top of an encoder: scores of tokens, classes, labels or answers, as far as the source has them.

use super::{Config, ModelConfig, blocks, model_config};
use crate::Result;
use crate::graph::{ActivationKind, Builder, Graph, Head, ValueId};

/// Endings of the names of classes that have a head.
const ASKED: &[(&str, Head)] = &[
    ("ForSequenceClassification", Head::Class),
    ("ForTokenClassification", Head::Label),
    ("ForQuestionAnswering", Head::Span),
    ("ForMaskedLM", Head::Token),
    ("ForPreTraining", Head::Token),
];

/// Where heads differ from family to family.
pub(super) struct Heads {
    /// Between the two products of the head for classes; `None`: tanh.
    pub class_activation: Option<ActivationKind>,
    /// In the head for tokens.
    pub token_activation: ActivationKind,
    /// Columns of the token table.
    pub embedding: usize,
    /// Columns that the head for tokens has besides, with a matrix of their own.
    pub rest: usize,
    /// What classes, labels and answers are made of.
    pub base: Base,
}

/// What the scores of classes, labels and answers are made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// The hidden states; of classes a product and a function of them.
    Hidden,
    /// What the head for tokens makes of the hidden states before its scores.
    Tokens,
    /// The same of the mean over the text for classes.
    MeanTokens,
}

impl Heads {
    /// Closes the graph of an encoder whose last hidden states are `x`, with the head that the source has.
    pub(super) fn finish(
        &self,
        config: &Config,
        h: &ModelConfig,
        mut b: Builder<'_>,
        x: ValueId,
    ) -> Result<Graph> {
        let hidden = b.pick(x);
        let classes = classes(config)?;
        let last_exit = b.exits().iter().find(|exit| exit.hidden == x).map(|exit| exit.output);
        let head = self.choose(config, &b, last_exit.is_some());
        let output = match head {
            Head::Class => match last_exit.filter(|_| !self.has_classes(&b)) {
                Some(output) => output,
                None if self.base == Base::Hidden => {
                    self.classes(h, &mut b, hidden, "cls", "cls.output", classes)
                }
                None => {
                    let x =
                        if self.base == Base::MeanTokens { blocks::mean_of_text(&mut b, h, x) } else { x };
                    let picked = b.pick(x);
                    let before = self.before_scores(h, &mut b, picked);
                    b.linear(before, "cls.output", classes)
                }
            },
            Head::Label => {
                let before = self.base_of(h, &mut b, hidden);
                b.linear(before, "labels", classes)
            }
            Head::Span => {
                let before = self.base_of(h, &mut b, hidden);
                let before = self.block_before_answers(config, h, &mut b, before)?;
                b.linear(before, "answer", 2)
            }
            Head::Token => self.tokens(h, &mut b, hidden),
            _ => hidden,
        };
        Ok(b.finish_with(head, hidden, output))
    }

    /// The head that the configuration names, where the source has it, or the first one that the source has. What a
    /// model was trained with before may have left tensors of other heads.
    fn choose(&self, config: &Config, b: &Builder<'_>, exits: bool) -> Head {
        let has = |head: &Head| match head {
            Head::Class => exits || self.has_classes(b),
            Head::Label => b.has("labels.weight"),
            Head::Span => b.has("answer.weight"),
            _ => b.has("tokens.weight"),
        };
        let architectures = config.architectures();
        let named = |ending: &str| architectures.iter().any(|name| name.ends_with(ending));
        let asked = ASKED.iter().filter(|(ending, _)| named(ending)).map(|(_, head)| *head);
        let usual = [Head::Class, Head::Label, Head::Span, Head::Token];
        asked.chain(usual).find(has).unwrap_or(Head::Hidden)
    }

    fn has_classes(&self, b: &Builder<'_>) -> bool {
        let before = if self.base == Base::Hidden { "cls.weight" } else { "tokens.weight" };
        b.has("cls.output.weight") && b.has(before)
    }

    fn base_of(&self, h: &ModelConfig, b: &mut Builder<'_>, hidden: ValueId) -> ValueId {
        if self.base == Base::Hidden { hidden } else { self.before_scores(h, b, hidden) }
    }

    /// A feed-forward block, a sum and a norm, where the source has them before its answers.
    fn block_before_answers(
        &self,
        config: &Config,
        h: &ModelConfig,
        b: &mut Builder<'_>,
        hidden: ValueId,
    ) -> Result<ValueId> {
        if !b.has("answer_up.weight") {
            return Ok(hidden);
        }
        let up = b.linear(hidden, "answer_up", h.feed_forward);
        let up = b.activate(model_config::activation(config, ActivationKind::Gelu)?, up);
        let down = b.linear(up, "answer_down", h.width);
        let sum = b.add(hidden, down);
        Ok(b.layer_norm(sum, "answer_norm", h.epsilon))
    }

    /// Lets texts leave after each of the layers that gave `states`, as far as the source has heads for it: with
    /// products of their own before the scores, or with that of the head for classes.
    pub(super) fn exits(
        &self,
        config: &Config,
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
                let hidden = b.pick(state);
                let output = self.classes(h, b, hidden, pooled, &output, classes(config)?);
                b.exit(layer + 1, state, output);
            }
        }
        Ok(())
    }

    /// Scores of classes: a product, a function, a product.
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

    /// A product, a function and a norm.
    fn before_scores(&self, h: &ModelConfig, b: &mut Builder<'_>, hidden: ValueId) -> ValueId {
        let x = b.linear(hidden, "tokens", self.embedding + self.rest);
        let x = b.activate(self.token_activation, x);
        b.layer_norm(x, "tokens_norm", h.epsilon)
    }

    /// What stands before the scores, then the token table or a matrix of its own.
    fn tokens(&self, h: &ModelConfig, b: &mut Builder<'_>, hidden: ValueId) -> ValueId {
        let x = self.before_scores(h, b, hidden);
        let weight = if b.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        // Where both are there and differ, the bias beside the matrix has nothing to do with it.
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

/// How many classes or labels there are.
pub(super) fn classes(config: &Config) -> Result<usize> {
    Ok(config.entries("id2label")?.or(config.count(&["num_labels"])?).unwrap_or(2))
}
