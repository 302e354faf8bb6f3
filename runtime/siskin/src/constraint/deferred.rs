//! Free text before a constraint, such as reasoning, or text in which a tool call may begin.

use std::sync::Arc;

use super::token_table::{TokenTable, encode_inside};
use super::{DeferredOutput, TokenConstraint, TokenMask};
use crate::{Error, Result};

/// Allows any text up to a trigger, and what another constraint allows after it.
#[derive(Clone)]
pub(super) struct Deferred {
    rules: Arc<DeferredRules>,
    /// What follows the trigger, before its first token; `None`: any text.
    initial: Option<Box<dyn TokenConstraint>>,
    /// The same, after what was generated.
    current: Option<Box<dyn TokenConstraint>>,
    phase: DeferredPhase,
}

struct DeferredRules {
    table: Arc<TokenTable>,
    /// The beginning of the free text.
    begin: Option<String>,
    /// The special tokens in it.
    begin_special: Vec<u32>,
    trigger: Arc<Trigger>,
    may_end: bool,
    repeats: bool,
    only_at_start: bool,
    max_tokens: Option<usize>,
}

#[derive(Clone, Copy)]
enum DeferredPhase {
    /// So many bytes of the free text's beginning were generated. As long as `current` allows the same text, it is not
    /// known which of both it is.
    Opening { matched: usize, current_allows: bool },
    /// The last `matched` bytes are the beginning of the trigger; the free text has `tokens` tokens.
    Free { matched: usize, tokens: usize },
    /// After the trigger.
    Constrained,
    /// No trigger can follow.
    Unconstrained,
}

impl Deferred {
    /// Creates a constraint with `then` after the trigger.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the trigger or the beginning of the free text is empty.
    pub(super) fn new(
        output: &DeferredOutput,
        then: Option<Box<dyn TokenConstraint>>,
        trigger: Arc<Trigger>,
        table: Arc<TokenTable>,
    ) -> Result<Self> {
        if output.begin.as_deref() == Some("") {
            return Err(Error::argument("begin", "expected a text that is not empty"));
        }
        let rules = DeferredRules {
            trigger,
            begin_special: output.begin.as_deref().map_or(Vec::new(), |begin| table.special_in(begin)),
            begin: output.begin.clone(),
            may_end: output.may_end,
            repeats: output.repeats,
            only_at_start: output.only_at_start,
            max_tokens: output.max_tokens,
            table,
        };
        let phase = match rules.begin {
            Some(_) => DeferredPhase::Opening { matched: 0, current_allows: true },
            None => DeferredPhase::Free { matched: 0, tokens: 0 },
        };
        Ok(Self { rules: Arc::new(rules), current: then.clone(), initial: then, phase })
    }

    fn is_end(&self, token: u32) -> bool {
        self.rules.table.tokenizer.end_ids().contains(&token)
    }

    /// Returns the rest of the free text's beginning.
    fn rest_of_begin(&self, matched: usize) -> &[u8] {
        self.rules.begin.as_deref().map_or(&[], |begin| &begin.as_bytes()[matched..])
    }

    /// Returns whether the free text is as long as it may get.
    fn is_exhausted(&self) -> bool {
        match self.phase {
            DeferredPhase::Free { tokens, .. } => self.rules.max_tokens.is_some_and(|max| tokens >= max),
            _ => false,
        }
    }

    fn current_allows(&mut self, token: u32) -> Result<bool> {
        self.current.as_mut().map_or(Ok(true), |current| current.allows(token))
    }

    /// Appends the bytes of a token to the free text.
    fn accept_free(&mut self, bytes: &[u8], matched: usize, tokens: usize) -> Result<()> {
        let is_space = matched == 0 && bytes.iter().all(u8::is_ascii_whitespace);
        if self.rules.only_at_start && is_space {
            self.phase = DeferredPhase::Free { matched, tokens: tokens + 1 };
            return Ok(());
        }
        let before = matched;
        let (matched, rest) = self.rules.trigger.advance(before, bytes);
        match rest {
            Some(rest) => {
                self.phase = DeferredPhase::Constrained;
                self.accept_text(&bytes[bytes.len() - rest..])
            }
            None if self.rules.only_at_start && matched != before + bytes.len() => {
                self.phase = DeferredPhase::Unconstrained;
                Ok(())
            }
            None => {
                self.phase = DeferredPhase::Free { matched, tokens: tokens + 1 };
                Ok(())
            }
        }
    }

    /// Appends the rest of a token, which begins before the constraint.
    fn accept_text(&mut self, text: &[u8]) -> Result<()> {
        let table = Arc::clone(&self.rules.table);
        for token in table.greedy_tokens(text) {
            let token =
                token.ok_or_else(|| Error::argument("token", "the constraint does not allow its end"))?;
            self.accept_constrained(token)?;
        }
        Ok(())
    }

    fn accept_constrained(&mut self, token: u32) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.accept(token)?;
        if self.rules.repeats && current.is_complete()? {
            self.current.clone_from(&self.initial);
            self.phase = DeferredPhase::Free { matched: 0, tokens: 0 };
        }
        Ok(())
    }

    /// Returns the token that must follow in a free text that has its maximum length.
    fn forced_token(&self) -> Option<u32> {
        let mut tokens = Vec::new();
        if self.is_exhausted() {
            self.forced_trigger(&mut tokens);
        }
        tokens.first().copied()
    }

    fn forced_trigger(&self, tokens: &mut Vec<u32>) {
        if let DeferredPhase::Free { matched, .. } = self.phase {
            let trigger = &self.rules.trigger;
            let whole = (matched == 0).then_some(trigger.token).flatten();
            let rest = || encode_inside(&self.rules.table.tokenizer, trigger.text.get(matched..)?);
            match whole {
                Some(token) => tokens.push(token),
                None => tokens.extend(rest().unwrap_or_default()),
            }
        }
    }
}

impl TokenConstraint for Deferred {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<()> {
        if let Some(token) = self.forced_token() {
            mask.allow(token);
            return Ok(());
        }
        let rules = Arc::clone(&self.rules);
        match self.phase {
            DeferredPhase::Opening { matched, current_allows } => {
                match &mut self.current {
                    Some(current) if current_allows => current.mask(mask)?,
                    None if current_allows => mask.allow_all(),
                    _ => {}
                }
                let rest = self.rest_of_begin(matched);
                rules.table.for_prefixes(rest, |id| mask.allow(id));
                let is_next = |id: &&u32| rest.starts_with(&rules.table.visible(**id));
                rules.begin_special.iter().filter(is_next).for_each(|&id| mask.allow(id));
            }
            DeferredPhase::Free { matched, .. } => {
                mask.allow_all();
                if !rules.may_end {
                    rules.table.tokenizer.end_ids().iter().for_each(|&id| mask.forbid(id));
                }
                for &token in &rules.trigger.straddling {
                    let bytes = rules.table.visible(token);
                    if rules.trigger.advance(matched, &bytes).1.is_some() && !self.allows(token)? {
                        mask.forbid(token);
                    }
                }
            }
            DeferredPhase::Constrained => match &mut self.current {
                Some(current) => current.mask(mask)?,
                None => mask.allow_all(),
            },
            DeferredPhase::Unconstrained => mask.allow_all(),
        }
        Ok(())
    }

    fn allows(&mut self, token: u32) -> Result<bool> {
        if let Some(forced) = self.forced_token() {
            return Ok(token == forced);
        }
        match self.phase {
            DeferredPhase::Opening { matched, current_allows } => {
                let bytes = self.rules.table.visible(token);
                if !bytes.is_empty() && !self.is_end(token) && self.rest_of_begin(matched).starts_with(&bytes)
                {
                    return Ok(true);
                }
                Ok(current_allows && self.current_allows(token)?)
            }
            DeferredPhase::Free { .. } if self.is_end(token) => Ok(self.rules.may_end),
            DeferredPhase::Free { matched, .. } => {
                let rules = Arc::clone(&self.rules);
                let bytes = rules.table.visible(token);
                match rules.trigger.advance(matched, &bytes).1 {
                    Some(rest) if rest > 0 && self.current.is_some() => {
                        let mut after = Self { phase: DeferredPhase::Constrained, ..self.clone() };
                        Ok(after.accept_text(&bytes[bytes.len() - rest..]).is_ok())
                    }
                    _ => Ok(true),
                }
            }
            DeferredPhase::Constrained => self.current_allows(token),
            DeferredPhase::Unconstrained => Ok(true),
        }
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        if matches!(self.phase, DeferredPhase::Constrained) {
            return self.accept_constrained(token);
        }
        if !self.allows(token)? {
            return Err(Error::argument(
                "token",
                format!("the constraint does not allow token {token} here"),
            ));
        }
        if self.is_end(token) {
            return Ok(());
        }
        let bytes = self.rules.table.visible(token).into_owned();
        match self.phase {
            DeferredPhase::Opening { matched, current_allows } => {
                let is_free = self.current.is_none();
                // Parsers skip white space before the beginning.
                if is_free && matched == 0 && bytes.iter().all(u8::is_ascii_whitespace) {
                    return Ok(());
                }
                let rest = self.rest_of_begin(matched);
                if is_free && bytes.len() > rest.len() && bytes.starts_with(rest) {
                    let after = bytes[rest.len()..].to_vec();
                    return self.accept_free(&after, 0, 0);
                }
                let opens = !bytes.is_empty() && rest.starts_with(&bytes);
                let is_open = opens && rest.len() == bytes.len();
                let current_allows = current_allows && self.current_allows(token)?;
                if current_allows {
                    self.accept_constrained(token)?;
                }
                self.phase = match (opens, is_open) {
                    (_, true) => {
                        self.current.clone_from(&self.initial);
                        DeferredPhase::Free { matched: 0, tokens: 0 }
                    }
                    (true, false) => {
                        DeferredPhase::Opening { matched: matched + bytes.len(), current_allows }
                    }
                    (false, _) if matches!(self.phase, DeferredPhase::Free { .. }) => self.phase,
                    (false, _) => DeferredPhase::Constrained,
                };
                Ok(())
            }
            DeferredPhase::Free { matched, tokens } => self.accept_free(&bytes, matched, tokens),
            DeferredPhase::Constrained => self.accept_constrained(token),
            DeferredPhase::Unconstrained => Ok(()),
        }
    }

    fn is_complete(&mut self) -> Result<bool> {
        match (self.phase, &mut self.current) {
            (DeferredPhase::Constrained, Some(current)) => current.is_complete(),
            _ => Ok(false),
        }
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<()> {
        if self.is_exhausted() {
            self.forced_trigger(tokens);
            return Ok(());
        }
        match (self.phase, &mut self.current) {
            (DeferredPhase::Constrained, Some(current)) => current.forced(tokens),
            _ => Ok(()),
        }
    }

    fn fork(&self) -> Box<dyn TokenConstraint> {
        Box::new(self.clone())
    }
}

/// A text to look for in the text of tokens.
pub(super) struct Trigger {
    text: String,
    /// The token that is the whole trigger.
    token: Option<u32>,
    /// For each number of matched bytes, how many stay matched if the next byte does not match (Knuth, Morris and Pratt).
    failures: Vec<usize>,
    /// The tokens that can complete the trigger and have more text after it.
    straddling: Vec<u32>,
}

impl Trigger {
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the text is empty.
    pub(super) fn new(text: &str, table: &TokenTable) -> Result<Self> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(Error::argument("trigger", "expected a text that is not empty"));
        }
        let mut failures = vec![0; bytes.len() + 1];
        let mut matched = 0;
        for at in 1..bytes.len() {
            while matched > 0 && bytes[at] != bytes[matched] {
                matched = failures[matched];
            }
            matched += usize::from(bytes[at] == bytes[matched]);
            failures[at + 1] = matched;
        }
        let token = table.special(text).or_else(|| table.find(bytes));
        let mut trigger = Self { text: text.to_owned(), token, failures, straddling: Vec::new() };
        let may_straddle = |id: &u32| {
            let token = table.token(*id);
            let completes = |matched| trigger.advance(matched, &token).1.is_some_and(|rest| rest > 0);
            token.len() > 1 && (0..bytes.len()).any(completes)
        };
        trigger.straddling = (0..table.vocabulary_size as u32).filter(may_straddle).collect();
        Ok(trigger)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns how many bytes are matched after `text`, and how many bytes follow the trigger if it is complete.
    fn advance(&self, mut matched: usize, text: &[u8]) -> (usize, Option<usize>) {
        let trigger = self.text.as_bytes();
        for (at, byte) in text.iter().enumerate() {
            while matched > 0 && *byte != trigger[matched] {
                matched = self.failures[matched];
            }
            matched += usize::from(*byte == trigger[matched]);
            if matched == trigger.len() {
                return (0, Some(text.len() - at - 1));
            }
        }
        (matched, None)
    }
}
