//! GBNF, the grammar format of llama.cpp, as Lark.
//!
//! Rules that do not contain themselves become terminals, which the lexer matches as a whole; the others stay rules of
//! the parser. Terminals match as much text as they can.

mod lark;
mod parser;

use crate::Result;

/// An expression of a grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    /// A text, which may be empty.
    Literal(String),
    /// One character: of some ranges, or of none of them.
    Class { is_negated: bool, ranges: Vec<(char, char)> },
    /// A rule, by index.
    Rule(usize),
    /// One after the other.
    Sequence(Vec<Expression>),
    /// Any of these.
    Choice(Vec<Expression>),
    /// Repetitions: at least and at most so many.
    Repeat { item: Box<Expression>, least: u32, most: Option<u32> },
}

/// The rules of a grammar; the first one is its start.
#[derive(Debug, PartialEq, Eq)]
struct Grammar {
    rules: Vec<Expression>,
}

/// Translates a grammar.
///
/// # Errors
/// [`ErrorKind::Argument`](crate::ErrorKind::Argument) with the line of a syntax error, and for references to rules that
/// do not exist.
pub(super) fn gbnf_to_lark(text: &str) -> Result<String> {
    Ok(lark::write(&parser::parse(text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lark(text: &str) -> String {
        gbnf_to_lark(text).unwrap()
    }

    fn error(text: &str) -> String {
        gbnf_to_lark(text).unwrap_err().to_string()
    }

    #[test]
    fn a_grammar_without_recursion_is_one_terminal() {
        let text =
            lark("root ::= item (\",\" item){0,3} # a list\nitem ::= [a-z]+ | \"\\\"\" [^\"]* \"\\\"\"\n");
        let expected = "start: T0\nT0: T1 (/,/ T1){0,3}\nT1: /[a-z]/+ | /\\x{22}/ /[^\\x{22}]/* /\\x{22}/\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn recursive_rules_stay_rules_and_their_regular_parts_become_terminals() {
        let text = lark(
            "root ::= value\nvalue ::= \"[\" ws (value (\",\" ws value)*)? \"]\" | [0-9]+\nws ::= [ \\n]*",
        );
        assert!(text.starts_with("start: r0\nr0: r1\n"), "{text}");
        assert!(text.contains("r1: /\\x{5b}/ T2 (r1 (/,/ T2 r1)*)? /\\x{5d}/ | T3\n"), "{text}");
        assert!(text.contains("T3: /[0-9]/+\n"), "{text}");
    }

    #[test]
    fn alternatives_may_be_empty_and_span_lines() {
        let text = lark("root ::= (\n  \"a\" |\n  \"b\"\n) | \"c\" |\n  \"\"\n");
        assert_eq!(text, "start: T0\nT0: /a/ | /b/ | /c/ | \"\"\n");
    }

    #[test]
    fn escapes_are_those_of_llama_cpp() {
        let text = lark(r#"root ::= "\x41\u00e9\U0001F600\n\\" [\x00-\x1F\]\-] ."#);
        let expected = "start: T0\nT0: /A\\x{e9}\\x{1f600}\\x{a}\\x{5c}/ \
                        /[\\x{0}-\\x{1f}\\x{5d}\\x{2d}]/ /[\\x{0}-\\x{10ffff}]/\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn errors_name_the_line() {
        assert!(
            error("root ::= \"a\"\nb ::= [z-a]").contains("line 2"),
            "{}",
            error("root ::= \"a\"\nb ::= [z-a]")
        );
        assert!(error("root ::= x").contains("`x`"));
        assert!(error("a ::= \"b\"").contains("`root`"));
        assert!(error("root ::= \"a").contains("line 1"));
        assert!(error("root ::= \"a\"{3,2}").contains("line 1"));
        assert!(error("root ::= <think>").contains("line 1"));
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(error(&deep).contains("nested"));
        let left = "root ::= root \"a\" | \"b\"\nroot ::= \"c\"";
        assert!(error(left).contains("line 2"), "a rule is defined twice");
    }
}
