//! The syntax tree of a template. Repetition at one level is a list, so that depth comes from nesting alone.

use std::sync::Arc;

use super::value::TemplateValue;

/// A name, as an index into the template's list of names.
pub(super) type Symbol = u32;

#[derive(Debug)]
pub(super) enum Expression {
    Constant(TemplateValue),
    Name(Symbol),
    List(Vec<Expression>),
    Tuple(Vec<Expression>),
    Map(Vec<(Expression, Expression)>),
    /// A value with its postfix operations, from left to right.
    Steps(Box<Expression>, Vec<Postfix>),
    /// Operators of equal precedence, from left to right.
    Arithmetic(Box<Expression>, Vec<(Operator, Expression)>),
    Concatenation(Vec<Expression>),
    Comparison(Box<Expression>, Vec<(Comparison, Expression)>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    Positive(Box<Expression>),
    /// The test, the value if it is true, and the value if it is false.
    Conditional(Box<(Expression, Expression, Option<Expression>)>),
}

#[derive(Debug)]
pub(super) enum Postfix {
    Attribute(Arc<str>),
    Index(Expression),
    Slice(Box<[Option<Expression>; 3]>),
    Call(CallArguments),
    Filter(Arc<str>, CallArguments),
    /// The name, whether it is negated, and the arguments.
    Test(Arc<str>, bool, CallArguments),
}

#[derive(Debug, Default)]
pub(super) struct CallArguments {
    pub(super) positional: Vec<Expression>,
    pub(super) keyword: Vec<(Arc<str>, Expression)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

/// The target of an assignment.
#[derive(Debug)]
pub(super) enum AssignTarget {
    Name(Symbol),
    /// A namespace and its attribute.
    Attribute(Symbol, Arc<str>),
    Names(Vec<AssignTarget>),
}

#[derive(Debug)]
pub(super) struct Statement {
    pub(super) line: u32,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) enum Action {
    Text(Box<str>),
    Emit(Expression),
    Set(AssignTarget, Expression),
    /// The target, the filters, and the body whose output is assigned.
    SetBlock(AssignTarget, Vec<Postfix>, Vec<Statement>),
    If(Vec<(Expression, Vec<Statement>)>, Vec<Statement>),
    For(Box<ForLoop>),
    Macro(Symbol, Arc<MacroDefinition>),
    /// The macro call, and its `caller`.
    Call(Expression, Arc<MacroDefinition>),
    Filter(Vec<Postfix>, Vec<Statement>),
    With(Vec<(AssignTarget, Expression)>, Vec<Statement>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct ForLoop {
    pub(super) target: AssignTarget,
    pub(super) iterable: Expression,
    pub(super) filter: Option<Expression>,
    pub(super) body: Vec<Statement>,
    pub(super) otherwise: Vec<Statement>,
}

/// A parameter and its default.
pub(super) type Parameter = (Symbol, Arc<str>, Option<Expression>);

#[derive(Debug)]
pub(super) struct MacroDefinition {
    pub(super) name: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Vec<Statement>,
}
