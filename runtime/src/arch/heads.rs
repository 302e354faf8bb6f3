//! What is put on top of an encoder: scores of tokens, classes, labels or answers, as far as the source has them.

use super::{Config, Hyper};
use crate::Result;
use crate::graph::{ActivationKind, Builder, Graph, Head, ValueId};

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
}

impl Heads {
    /// Closes the graph of an encoder whose last hidden states are `x`, with the head that the source has.
    pub(super) fn finish(&self, config: &Config, h: &Hyper, mut b: Builder<'_>, x: ValueId) -> Result<Graph> {
        let hidden = b.pick(x);
        let classes = classes(config)?;
        let last_exit = b.exits().iter().find(|exit| exit.hidden == x).map(|exit| exit.output);
        let (head, output) = if b.has("cls.output.weight") && b.has("cls.weight") {
            (Head::Class, self.classes(h, &mut b, hidden, "cls", "cls.output", classes))
        } else if let Some(output) = last_exit {
            (Head::Class, output)
        } else if b.has("labels.weight") {
            (Head::Label, b.linear(hidden, "labels", classes))
        } else if b.has("answer.weight") {
            (Head::Span, b.linear(hidden, "answer", 2))
        } else if b.has("tokens.weight") {
            (Head::Token, self.tokens(h, &mut b, hidden))
        } else {
            (Head::Hidden, hidden)
        };
        Ok(b.finish_with(head, hidden, output))
    }

    /// Lets texts leave after each of the layers that gave `states`, as far as the source has heads for it: with
    /// products of their own before the scores, or with that of the head for classes.
    pub(super) fn exits(
        &self,
        config: &Config,
        h: &Hyper,
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
        h: &Hyper,
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

    /// A product, a function and a norm, then the token table or a matrix of its own.
    fn tokens(&self, h: &Hyper, b: &mut Builder<'_>, hidden: ValueId) -> ValueId {
        let x = b.linear(hidden, "tokens", self.embedding + self.rest);
        let x = b.activate(self.token_activation, x);
        let x = b.layer_norm(x, "tokens_norm", h.epsilon);
        let weight = if b.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        let bias = if b.has("output_bias") { "output_bias" } else { "output.bias" };
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
