//! How models write tool calls. To add a format, add an entry to [`FORMATS`]; a new [`CallSyntax`] needs a parser here and a
//! grammar in `siskin::chat` as well, and the compiler names both places.

/// How a model writes tool calls.
#[derive(Debug)]
pub struct ToolFormat {
    /// Its name.
    pub name: &'static str,
    /// Texts that must all occur in a call as the template renders it.
    markers: &'static [&'static str],
    /// Around all calls of a response.
    pub section: Delimiters,
    /// Around each call, or around the list of all calls.
    pub call: Delimiters,
    /// Between two calls.
    pub separator: &'static str,
    /// What is between the delimiters of a call.
    pub syntax: CallSyntax,
    /// Whether a response may have several calls.
    pub is_parallel: bool,
    /// The length of the ids of calls, if the format limits it.
    pub id_length: Option<usize>,
}

/// The texts at the beginning and at the end of something; empty if there are none.
#[derive(Clone, Copy, Debug)]
pub struct Delimiters {
    /// The beginning.
    pub begin: &'static str,
    /// The end.
    pub end: &'static str,
}

/// What is between the delimiters of a call.
#[derive(Clone, Copy, Debug)]
pub enum CallSyntax {
    /// `{"name": NAME, "arguments": ARGUMENTS}`
    Object(CallKeys),
    /// A JSON list of such objects.
    List(CallKeys),
    /// NAME, a separator, ARGUMENTS
    Named(NamedCall),
    /// An element for each argument.
    Tagged(CallTags),
    /// `call:NAME{KEY:VALUE,…}`
    Gemma {
        /// Around strings.
        quote: &'static str,
    },
    /// OpenAI's Harmony: the header of a message names the tool, and its channel tells reasoning from content.
    Harmony,
}

/// The keys of a call's JSON object.
#[derive(Clone, Copy, Debug)]
pub struct CallKeys {
    /// The key of the tool's name.
    pub name: &'static str,
    /// The key of the arguments.
    pub arguments: &'static str,
}

/// The texts of a call that begins with the tool's name.
#[derive(Clone, Copy, Debug)]
pub struct NamedCall {
    /// Between name and arguments.
    pub separator: &'static str,
    /// Between the name and an id, before the separator; empty if there is none.
    pub id_marker: &'static str,
    /// Between the name and a number, before the separator; empty if there is none.
    pub number_marker: &'static str,
}

/// The texts around the name, keys and values of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallTags {
    /// Around the name.
    pub name: Delimiters,
    /// Around a key.
    pub key: Delimiters,
    /// Around a value.
    pub value: Delimiters,
    /// At the end of the call.
    pub end: &'static str,
}

const fn between(begin: &'static str, end: &'static str) -> Delimiters {
    Delimiters { begin, end }
}

const NONE: Delimiters = between("", "");
const ARGUMENTS: CallKeys = CallKeys { name: "name", arguments: "arguments" };

/// The format of models without one: their prompt explains it.
pub const DEFAULT_FORMAT: &ToolFormat = &HERMES;

const HERMES: ToolFormat = ToolFormat {
    name: "hermes",
    markers: &["<tool_call>", "\"arguments\""],
    section: NONE,
    call: between("<tool_call>\n", "\n</tool_call>"),
    separator: "\n",
    syntax: CallSyntax::Object(ARGUMENTS),
    is_parallel: true,
    id_length: None,
};

/// All formats. The first one whose markers all occur is a template's.
static FORMATS: [ToolFormat; 15] = [
    ToolFormat {
        name: "harmony",
        markers: &["<|channel|>", "to=functions."],
        call: between("to=functions.", "<|call|>"),
        separator: "",
        syntax: CallSyntax::Harmony,
        is_parallel: false,
        ..HERMES
    },
    ToolFormat {
        name: "qwen_xml",
        markers: &["<tool_call>", "<function=", "<parameter="],
        syntax: CallSyntax::Tagged(CallTags {
            name: between("<function=", ">\n"),
            key: between("<parameter=", ">\n"),
            value: between("", "\n</parameter>\n"),
            end: "</function>",
        }),
        ..HERMES
    },
    ToolFormat {
        name: "glm",
        markers: &["<tool_call>", "<arg_key>", "</arg_key>\n"],
        call: between("<tool_call>", "</tool_call>"),
        syntax: CallSyntax::Tagged(CallTags {
            name: between("", "\n"),
            key: between("<arg_key>", "</arg_key>\n"),
            value: between("<arg_value>", "</arg_value>\n"),
            end: "",
        }),
        ..HERMES
    },
    ToolFormat {
        name: "glm_compact",
        markers: &["<tool_call>", "<arg_key>"],
        call: between("<tool_call>", "</tool_call>"),
        separator: "",
        syntax: CallSyntax::Tagged(CallTags {
            name: NONE,
            key: between("<arg_key>", "</arg_key>"),
            value: between("<arg_value>", "</arg_value>"),
            end: "",
        }),
        ..HERMES
    },
    HERMES,
    ToolFormat {
        name: "mistral_named",
        markers: &["[TOOL_CALLS]", "[ARGS]"],
        call: between("[TOOL_CALLS]", ""),
        separator: "",
        syntax: CallSyntax::Named(NamedCall {
            separator: "[ARGS]",
            id_marker: "[CALL_ID]",
            number_marker: "",
        }),
        id_length: Some(9),
        ..HERMES
    },
    ToolFormat {
        name: "mistral",
        markers: &["[TOOL_CALLS]"],
        call: between("[TOOL_CALLS]", ""),
        separator: ", ",
        syntax: CallSyntax::List(ARGUMENTS),
        id_length: Some(9),
        ..HERMES
    },
    ToolFormat {
        name: "gemma",
        markers: &["<start_function_call>", "call:"],
        call: between("<start_function_call>", "<end_function_call>"),
        separator: "",
        syntax: CallSyntax::Gemma { quote: "<escape>" },
        ..HERMES
    },
    ToolFormat {
        name: "gemma4",
        markers: &["<|tool_call>", "call:"],
        call: between("<|tool_call>", "<tool_call|>"),
        separator: "",
        syntax: CallSyntax::Gemma { quote: "<|\"|>" },
        ..HERMES
    },
    ToolFormat {
        name: "phi",
        markers: &["<|tool_call|>"],
        call: between("<|tool_call|>", "<|/tool_call|>"),
        separator: ", ",
        syntax: CallSyntax::List(ARGUMENTS),
        ..HERMES
    },
    ToolFormat {
        name: "deepseek",
        markers: &["<｜tool▁call▁begin｜>probe_tool<｜tool▁sep｜>"],
        section: between("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        call: between("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        separator: "",
        syntax: CallSyntax::Named(NamedCall {
            separator: "<｜tool▁sep｜>",
            id_marker: "",
            number_marker: "",
        }),
        ..HERMES
    },
    ToolFormat {
        name: "kimi",
        markers: &["<|tool_call_begin|>functions.", "<|tool_call_argument_begin|>"],
        section: between("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        call: between("<|tool_call_begin|>functions.", "<|tool_call_end|>"),
        separator: "",
        syntax: CallSyntax::Named(NamedCall {
            separator: "<|tool_call_argument_begin|>",
            id_marker: "",
            number_marker: ":",
        }),
        ..HERMES
    },
    ToolFormat {
        name: "nemotron",
        markers: &["<TOOLCALL>["],
        call: between("<TOOLCALL>", "</TOOLCALL>"),
        separator: ", ",
        syntax: CallSyntax::List(ARGUMENTS),
        ..HERMES
    },
    ToolFormat {
        name: "apriel",
        markers: &["<tool_calls>["],
        call: between("<tool_calls>", "</tool_calls>"),
        separator: ", ",
        syntax: CallSyntax::List(ARGUMENTS),
        ..HERMES
    },
    ToolFormat {
        name: "llama3",
        markers: &["{\"name\": ", "\"parameters\": "],
        call: NONE,
        separator: "",
        syntax: CallSyntax::Object(CallKeys { name: "name", arguments: "parameters" }),
        is_parallel: false,
        ..HERMES
    },
];

/// Returns the format of a call that a template rendered.
pub(super) fn detect(call: &str) -> Option<&'static ToolFormat> {
    FORMATS.iter().find(|format| format.markers.iter().all(|marker| call.contains(marker)))
}

impl ToolFormat {
    /// Returns the format of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Returns the text that begins the first call of a response; empty if a response is a call from its start.
    pub fn trigger(&self) -> &'static str {
        let begin = if self.section.begin.is_empty() { self.call.begin } else { self.section.begin };
        begin.trim_end()
    }

    /// Returns the text after which a call is constrained: that of [`ToolFormat::trigger`] if it cannot be a part of
    /// other text.
    pub fn constraint_trigger(&self) -> &'static str {
        match self.syntax {
            CallSyntax::Harmony => "<|channel|>commentary to=functions.",
            _ => self.trigger(),
        }
    }

    /// Returns whether it is Harmony, which tells reasoning and content by channels instead of tags.
    pub fn is_harmony(&self) -> bool {
        matches!(self.syntax, CallSyntax::Harmony)
    }

    /// Returns whether all calls are one list.
    pub fn is_list(&self) -> bool {
        matches!(self.syntax, CallSyntax::List(_))
    }

    /// Returns the texts that a model may write with special tokens.
    pub fn delimiters(&self) -> Vec<&'static str> {
        let mut texts = vec![self.section.begin, self.section.end, self.call.begin, self.call.end];
        match self.syntax {
            CallSyntax::Object(_) => texts.push(PYTHON_TAG),
            CallSyntax::List(_) => {}
            CallSyntax::Named(call) => texts.extend([call.separator, call.id_marker, call.number_marker]),
            CallSyntax::Tagged(CallTags { name, key, value, end }) => {
                let delimiters = [name, key, value];
                texts.extend(delimiters.iter().flat_map(|delimiters| [delimiters.begin, delimiters.end]));
                texts.push(end);
            }
            CallSyntax::Gemma { quote } => texts.push(quote),
            CallSyntax::Harmony => texts.extend(super::harmony_tokens::MARKERS),
        }
        texts.retain(|text| !text.is_empty());
        texts
    }
}

/// What Llama writes before some calls.
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";
