//! The compiler: syntax tree to instructions, with a table of the alternatives that can start with each character.

use super::class::Class;
use super::parse::{Anchor, Greed, RegexNode, parse};
use siskin_format::{Error, Result};

const MAX_PATTERN_BYTES: usize = 16 * 1024;
const MAX_INSTRUCTIONS: usize = 8192;
const MAX_ALTERNATIVES: usize = 32;

/// An instruction of the matcher.
#[derive(Clone, Debug)]
pub(super) enum RegexInstruction {
    /// Matches one character of the class.
    One(u16),
    /// Matches as many characters of the class as possible, from `min` to `max`.
    Run { class: u16, min: u32, max: u32, possessive: bool },
    /// Tries `first`, and on failure `second`.
    Split { first: u32, second: u32 },
    /// Continues at another instruction.
    Jump(u32),
    /// Asserts that the next character is (or is not) in the class; false for positive assertions at the end of the
    /// text.
    LookClass { class: u16, negative: bool },
    /// Asserts that the previous character is (or is not) in the class.
    BehindClass { class: u16, negative: bool },
    /// Asserts that the following instructions match (or do not match) here; continues at `end`.
    Look { negative: bool, end: u32 },
    /// Matches the following instructions without backtracking into them; continues at `end`.
    Atomic { end: u32 },
    /// Asserts an anchor.
    Anchor(Anchor),
    /// The pattern, or the part of it, has matched.
    Accept,
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(in super::super) struct Pattern {
    pub(super) instructions: Vec<RegexInstruction>,
    pub(super) classes: Vec<Class>,
    /// The first instruction of each top-level alternative.
    pub(super) starts: Vec<u32>,
    /// For each code point below 256, a bit set of the alternatives that can start with it.
    pub(super) low_starts: Box<[u32; 256]>,
    /// For each general category, a bit set of the alternatives that can start with a character of it above 255.
    pub(super) high_starts: [u32; 30],
    /// For each alternative, the class of the unbounded run that it starts with.
    pub(super) leading_runs: Vec<Option<u16>>,
}

impl Pattern {
    /// Compiles `pattern`; unsupported syntax is [`siskin_format::ErrorKind::Unsupported`].
    pub(in super::super) fn new(pattern: &str) -> Result<Self> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(Error::unsupported("pattern", format!("longer than {MAX_PATTERN_BYTES} bytes")));
        }
        let tree = parse(pattern)?;
        let mut options = match tree {
            RegexNode::Either(options) => options,
            node => vec![node],
        };
        if options.len() > MAX_ALTERNATIVES {
            let rest = options.split_off(MAX_ALTERNATIVES - 1);
            options.push(RegexNode::Either(rest));
        }
        let mut compiler = Compiler { pattern, instructions: Vec::new(), classes: Vec::new() };
        let mut starts = Vec::new();
        for option in &options {
            starts.push(compiler.position());
            compiler.emit(option)?;
            compiler.push(RegexInstruction::Accept)?;
        }
        let (mut low_starts, mut high_starts) = (Box::new([0; 256]), [0; 30]);
        for (bit, option) in options.iter().enumerate() {
            let first = First::of(option);
            for (point, mask) in low_starts.iter_mut().enumerate() {
                *mask |= u32::from(first.empty || first.low[point >> 6] >> (point & 63) & 1 == 1) << bit;
            }
            for (category, mask) in high_starts.iter_mut().enumerate() {
                *mask |= u32::from(first.empty || first.high >> category & 1 == 1) << bit;
            }
        }
        let leading_runs = starts.iter().map(|&start| compiler.leading_run(start)).collect();
        let Compiler { instructions, classes, .. } = compiler;
        Ok(Self { instructions, classes, starts, low_starts, high_starts, leading_runs })
    }
}

/// The characters that a node can start with, and whether it can match the empty string.
struct First {
    low: [u64; 4],
    high: u32,
    empty: bool,
}

impl First {
    const NOTHING: Self = Self { low: [0; 4], high: 0, empty: true };

    fn of(node: &RegexNode) -> Self {
        match node {
            RegexNode::Class(class) => Self { low: class.low(), high: class.high_categories(), empty: false },
            RegexNode::Sequence(nodes) => {
                let mut all = Self::NOTHING;
                for node in nodes {
                    let first = Self::of(node);
                    all.include(&first);
                    all.empty = first.empty;
                    if !all.empty {
                        break;
                    }
                }
                all
            }
            RegexNode::Either(options) => {
                let mut all = Self { empty: false, ..Self::NOTHING };
                for option in options {
                    let first = Self::of(option);
                    all.include(&first);
                    all.empty |= first.empty;
                }
                all
            }
            RegexNode::Repeat { node, min, .. } => {
                let first = Self::of(node);
                Self { empty: first.empty || *min == 0, ..first }
            }
            RegexNode::Atomic(node) => Self::of(node),
            RegexNode::Look { .. } | RegexNode::Behind { .. } | RegexNode::Anchor(_) => Self::NOTHING,
        }
    }

    fn include(&mut self, other: &Self) {
        self.low.iter_mut().zip(other.low).for_each(|(mine, theirs)| *mine |= theirs);
        self.high |= other.high;
    }
}

struct Compiler<'a> {
    pattern: &'a str,
    instructions: Vec<RegexInstruction>,
    classes: Vec<Class>,
}

impl Compiler<'_> {
    fn position(&self) -> u32 {
        self.instructions.len() as u32
    }

    fn push(&mut self, instruction: RegexInstruction) -> Result<usize> {
        if self.instructions.len() >= MAX_INSTRUCTIONS {
            return Err(self.reject("the pattern expands to too many steps"));
        }
        self.instructions.push(instruction);
        Ok(self.instructions.len() - 1)
    }

    fn reject(&self, what: &str) -> Error {
        Error::unsupported(format!("pattern {:?}", self.pattern), what)
    }

    fn class(&mut self, class: &Class) -> u16 {
        let found = self.classes.iter().position(|known| known == class);
        found.unwrap_or_else(|| {
            self.classes.push(class.clone());
            self.classes.len() - 1
        }) as u16
    }

    fn leading_run(&self, start: u32) -> Option<u16> {
        match self.instructions.get(start as usize) {
            Some(&RegexInstruction::Run { class, min: 0 | 1, max: u32::MAX, .. }) => Some(class),
            _ => None,
        }
    }

    fn emit(&mut self, node: &RegexNode) -> Result<()> {
        match node {
            RegexNode::Class(class) => {
                let class = self.class(class);
                self.push(RegexInstruction::One(class))?;
            }
            RegexNode::Sequence(nodes) => nodes.iter().try_for_each(|node| self.emit(node))?,
            RegexNode::Either(options) => self.emit_either(options)?,
            RegexNode::Repeat { node, min, max, greed } => self.emit_repeat(node, *min, *max, *greed)?,
            RegexNode::Look { node, negative } => {
                if let RegexNode::Class(class) = &**node {
                    let class = self.class(class);
                    self.push(RegexInstruction::LookClass { class, negative: *negative })?;
                } else {
                    let at = self.push(RegexInstruction::Accept)?;
                    self.emit(node)?;
                    self.push(RegexInstruction::Accept)?;
                    self.instructions[at] =
                        RegexInstruction::Look { negative: *negative, end: self.position() };
                }
            }
            RegexNode::Behind { class, negative } => {
                let class = self.class(class);
                self.push(RegexInstruction::BehindClass { class, negative: *negative })?;
            }
            RegexNode::Atomic(node) => self.emit_atomic(|compiler| compiler.emit(node))?,
            RegexNode::Anchor(anchor) => {
                self.push(RegexInstruction::Anchor(*anchor))?;
            }
        }
        Ok(())
    }

    fn emit_atomic(&mut self, inner: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let at = self.push(RegexInstruction::Accept)?;
        inner(self)?;
        self.push(RegexInstruction::Accept)?;
        self.instructions[at] = RegexInstruction::Atomic { end: self.position() };
        Ok(())
    }

    fn emit_either(&mut self, options: &[RegexNode]) -> Result<()> {
        let mut jumps = Vec::new();
        for (index, option) in options.iter().enumerate() {
            if index + 1 == options.len() {
                self.emit(option)?;
                break;
            }
            let split = self.push(RegexInstruction::Accept)?;
            self.emit(option)?;
            jumps.push(self.push(RegexInstruction::Accept)?);
            self.instructions[split] =
                RegexInstruction::Split { first: split as u32 + 1, second: self.position() };
        }
        let end = self.position();
        jumps.into_iter().for_each(|at| self.instructions[at] = RegexInstruction::Jump(end));
        Ok(())
    }

    fn emit_repeat(&mut self, node: &RegexNode, min: u32, max: Option<u32>, greed: Greed) -> Result<()> {
        if let RegexNode::Class(class) = node
            && greed != Greed::Lazy
        {
            let class = self.class(class);
            let (max, possessive) = (max.unwrap_or(u32::MAX), greed == Greed::Possessive);
            self.push(RegexInstruction::Run { class, min, max, possessive })?;
            return Ok(());
        }
        if greed == Greed::Possessive {
            return self.emit_atomic(|compiler| compiler.emit_repeat(node, min, max, Greed::Greedy));
        }
        for _ in 0..min {
            self.emit(node)?;
        }
        match max {
            None => self.emit_loop(node, greed),
            Some(max) => self.emit_options(node, max - min, greed),
        }
    }

    fn emit_loop(&mut self, node: &RegexNode, greed: Greed) -> Result<()> {
        if First::of(node).empty {
            return Err(self.reject("an endless repeat of something that may be empty is not supported"));
        }
        let split = self.push(RegexInstruction::Accept)?;
        self.emit(node)?;
        self.push(RegexInstruction::Jump(split as u32))?;
        self.instructions[split] = self.choice(split, greed);
        Ok(())
    }

    fn emit_options(&mut self, node: &RegexNode, count: u32, greed: Greed) -> Result<()> {
        let mut splits = Vec::new();
        for _ in 0..count {
            splits.push(self.push(RegexInstruction::Accept)?);
            self.emit(node)?;
        }
        splits.into_iter().for_each(|at| self.instructions[at] = self.choice(at, greed));
        Ok(())
    }

    /// Returns a split between the instruction after `split` and the next one to be emitted, in the order of `greed`.
    fn choice(&self, split: usize, greed: Greed) -> RegexInstruction {
        let (inside, outside) = (split as u32 + 1, self.position());
        match greed {
            Greed::Lazy => RegexInstruction::Split { first: outside, second: inside },
            _ => RegexInstruction::Split { first: inside, second: outside },
        }
    }
}
