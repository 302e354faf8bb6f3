//! What the generator cannot derive from the C header: names, conversions written by hand, and functions that are not
//! wrapped, each with its reason.

/// A set of options, which becomes a class in Kotlin and a struct in Swift.
pub(super) struct OptionSet {
    /// The prefix of its functions.
    pub(super) prefix: &'static str,
    /// The name of the class and the struct.
    pub(super) class: &'static str,
    /// The first sentence of its documentation.
    pub(super) summary: &'static str,
    /// What the handle is called in errors of Swift.
    pub(super) handle: &'static str,
    /// The enum of options that take a number, if `<prefix>_set` exists.
    pub(super) numbers: Option<&'static str>,
    /// The handle is the object itself, which has other functions too: only its setters are generated.
    pub(super) is_object: bool,
    /// Kotlin and Swift create the handle by hand, since that takes arguments.
    pub(super) creates_by_hand: bool,
    /// The protocols of the Swift struct.
    pub(super) protocols: &'static str,
    /// Properties before those of the functions, declared here and used by code that is written by hand.
    pub(super) properties: Properties,
    pub(super) by_hand: &'static [ByHand],
}

/// The properties of both languages.
pub(super) struct Properties {
    pub(super) kotlin: &'static [Property],
    pub(super) swift: &'static [Property],
}

const NO_PROPERTIES: Properties = Properties { kotlin: &[], swift: &[] };

/// A property that has no rule: its declaration without `public var`, with the default, and its documentation.
pub(super) struct Property {
    pub(super) declaration: &'static str,
    pub(super) docs: &'static str,
}

/// Who calls a function whose conversion is written by hand.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Caller {
    /// The generated code calls `copy<Option>`, an extension in a file beside the generated one.
    Extension,
    /// Code that is written by hand, at the time that it needs.
    Other,
}

/// A function whose conversion from properties is written by hand.
pub(super) struct ByHand {
    pub(super) function: &'static str,
    pub(super) reason: &'static str,
    pub(super) properties: Properties,
    pub(super) caller: Caller,
    /// The JNI function is written by hand too.
    pub(super) jni: bool,
}

/// An enum that is generated in both languages.
pub(super) struct EnumNames {
    pub(super) c: &'static str,
    /// The prefix of its constants.
    pub(super) prefix: &'static str,
    pub(super) kotlin: &'static str,
    pub(super) swift: &'static str,
    /// The constant without its prefix that is `null` and `nil`.
    pub(super) null: Option<&'static str>,
}

pub(super) const ENUMS: &[EnumNames] = &[
    EnumNames { c: "siskin_device", prefix: "SISKIN_DEVICE_", kotlin: "Device", swift: "Device", null: None },
    EnumNames {
        c: "siskin_kv_cache_type",
        prefix: "SISKIN_KV_CACHE_",
        kotlin: "KvCacheType",
        swift: "KVCacheType",
        null: Some("AUTO"),
    },
    EnumNames {
        c: "siskin_trim_level",
        prefix: "SISKIN_TRIM_",
        kotlin: "TrimLevel",
        swift: "TrimLevel",
        null: None,
    },
    EnumNames {
        c: "siskin_priority",
        prefix: "SISKIN_PRIORITY_",
        kotlin: "Priority",
        swift: "Priority",
        null: None,
    },
    EnumNames {
        c: "siskin_speculation",
        prefix: "SISKIN_SPECULATION_",
        kotlin: "Speculation",
        swift: "Speculation",
        null: None,
    },
];

pub(super) const SETS: &[OptionSet] =
    &[MODEL, SAMPLER, SESSION, SEQ2SEQ, TRANSCRIBER, ENGINE, SERVED_MODEL, REQUEST];

const MODEL: OptionSet = OptionSet {
    prefix: "siskin_model_options",
    class: "ModelOptions",
    summary: "Options for opening a model.",
    handle: "model options",
    numbers: None,
    is_object: false,
    creates_by_hand: true,
    protocols: "Sendable",
    properties: NO_PROPERTIES,
    by_hand: &[
        ByHand {
            function: "siskin_model_options_set_disabled_cpu_features",
            reason: "it is a list, whose names are joined with commas",
            properties: Properties {
                kotlin: &[Property {
                    declaration: "disabledCpuFeatures: List<String> = emptyList()",
                    docs: "CPU features to disable, such as `avx512`. Results are bit-identical.",
                }],
                swift: &[Property {
                    declaration: "disabledCPUFeatures: [String] = []",
                    docs: "CPU features to disable, such as `dotprod`. Results are bit-identical.",
                }],
            },
            caller: Caller::Extension,
            jni: false,
        },
        ByHand {
            function: "siskin_model_options_set_adapter",
            reason: "it is two options, a file and whether to check its base",
            properties: Properties {
                kotlin: &[
                    Property {
                        declaration: "adapter: String? = null",
                        docs: "The path of a LoRA or DoRA adapter: a file written by `siskin train`, or a PEFT folder.",
                    },
                    Property {
                        declaration: "allowAnyBase: Boolean = false",
                        docs: "Whether to accept an adapter that was trained on different base weights.",
                    },
                ],
                swift: &[
                    Property {
                        declaration: "adapter: URL? = nil",
                        docs: "A LoRA or DoRA adapter: a file written by `siskin train`, or a PEFT folder.",
                    },
                    Property {
                        declaration: "allowAnyBase: Bool = false",
                        docs: "Whether to accept an adapter that was trained on different base weights.",
                    },
                ],
            },
            caller: Caller::Extension,
            jni: false,
        },
        ByHand {
            function: "siskin_model_options_add_adapter",
            reason: "it is a map, which is converted together with the adapter of the whole model",
            properties: Properties {
                kotlin: &[Property {
                    declaration: "adapters: Map<String, String> = emptyMap()",
                    docs: "The paths of adapters by name, of which each session chooses one by its name; not together \
                        with [adapter].",
                }],
                swift: &[Property {
                    declaration: "adapters: [String: URL] = [:]",
                    docs: "Adapters by name, of which each session chooses one by its name; not together with `adapter`.",
                }],
            },
            caller: Caller::Other,
            jni: false,
        },
        ByHand {
            function: "siskin_model_options_set_cache_mode",
            reason: "it is converted together with the cache folder",
            properties: Properties {
                kotlin: &[
                    Property {
                        declaration: "usePackedCache: Boolean = true",
                        docs: "Whether the packed copy of a non-`.siskin` model is kept in [packedCacheFolder]. Otherwise \
                            the model is packed each time it is opened.",
                    },
                    Property {
                        declaration: "packedCacheFolder: String? = null",
                        docs: "The packed cache folder, which is created if it does not exist. Default: the user's \
                            cache folder, which apps do not have: set a folder in `Context.getCacheDir()`.",
                    },
                ],
                swift: &[Property {
                    declaration: "packedCache: PackedCache = .userCache",
                    docs: "Where the packed copy of a non-`.siskin` model is kept.",
                }],
            },
            caller: Caller::Extension,
            jni: false,
        },
        ByHand {
            function: "siskin_model_options_set_cache_folder",
            reason: "it is converted together with the cache mode",
            properties: NO_PROPERTIES,
            caller: Caller::Other,
            jni: false,
        },
        ByHand {
            function: "siskin_model_options_set_progress",
            reason: "it is a callback, which also polls for cancellation",
            properties: Properties {
                kotlin: &[Property {
                    declaration: "progressListener: ProgressListener? = null",
                    docs: "Receives progress while a non-`.siskin` model is packed.",
                }],
                swift: &[Property {
                    declaration: "onProgress: (@Sendable (_ written: Int, _ total: Int?) -> Bool)? = nil",
                    docs: "Reports packing progress: the number of bytes written so far, and the total number of bytes, \
                        `nil` while it is unknown. Returns whether to continue. It is called from library threads, \
                        and must not use this package.",
                }],
            },
            caller: Caller::Other,
            jni: true,
        },
    ],
};

const SAMPLER: OptionSet = OptionSet {
    prefix: "siskin_sampler",
    class: "Sampler",
    summary: "Sampling options. A value out of range is rejected when the options are used.",
    handle: "sampler",
    numbers: Some("siskin_sampler_option"),
    is_object: false,
    creates_by_hand: false,
    protocols: "Sendable, Hashable",
    properties: NO_PROPERTIES,
    by_hand: &[ByHand {
        function: "siskin_sampler_add_bias",
        reason: "it is a map",
        properties: Properties {
            kotlin: &[Property {
                declaration: "logitBias: Map<Int, Float> = emptyMap()",
                docs: "Logit biases by token id; negative infinity forbids a token.",
            }],
            swift: &[Property {
                declaration: "logitBias: [UInt32: Float] = [:]",
                docs: "Logit biases by token id; negative infinity forbids a token.",
            }],
        },
        caller: Caller::Extension,
        jni: false,
    }],
};

const SESSION: OptionSet = OptionSet {
    prefix: "siskin_session_options",
    class: "SessionOptions",
    summary: "Options for a session.",
    handle: "session options",
    numbers: None,
    is_object: false,
    creates_by_hand: false,
    protocols: "Sendable, Hashable",
    properties: NO_PROPERTIES,
    by_hand: &[ByHand {
        function: "siskin_session_options_set_window",
        reason: "it is two numbers: two properties in Kotlin, a struct in Swift",
        properties: Properties {
            kotlin: &[
                Property {
                    declaration: "slidingWindow: Int? = null",
                    docs: "Sliding window: attention is limited to this many of the newest tokens, and to [attentionSinks] \
                        of the oldest. Default: the model's own attention mask.",
                },
                Property {
                    declaration: "attentionSinks: Int? = null",
                    docs: "Attention sinks: how many of the oldest tokens remain visible in addition to [slidingWindow]. Default: \
                        none, unlike `siskin --attention-sinks`, whose default is 4.",
                },
            ],
            swift: &[Property {
                declaration: "window: SlidingWindow? = nil",
                docs: "Limits attention to a sliding window, so that the KV cache is smaller. Default: the model's \
                    own attention mask.",
            }],
        },
        caller: Caller::Extension,
        jni: false,
    }],
};

const SEQ2SEQ: OptionSet = OptionSet {
    prefix: "siskin_seq2seq_options",
    class: "Seq2SeqOptions",
    summary: "Options for sequence-to-sequence generation, whose defaults are those of the model's configuration for the \
        task.",
    handle: "seq2seq options",
    numbers: Some("siskin_seq2seq_option"),
    is_object: false,
    creates_by_hand: true,
    protocols: "Sendable, Hashable",
    properties: Properties {
        kotlin: &[Property {
            declaration: "task: Seq2SeqTask? = null",
            docs: "The task. Default: the input is passed to the model as it is, after [prefix].",
        }],
        swift: &[Property { declaration: "task: Seq2SeqTask = .default", docs: "The task." }],
    },
    by_hand: &[ByHand {
        function: "siskin_seq2seq_options_set_overflow",
        reason: "one case of the mode has a value",
        properties: Properties {
            kotlin: &[Property {
                declaration: "onOverflow: OverflowMode? = null",
                docs: "What happens to texts with more tokens than the model supports. Windows end at sentence boundaries.",
            }],
            swift: &[Property {
                declaration: "onOverflow: OverflowMode? = nil",
                docs: "How texts with more tokens than the model accepts are handled. Windows end at sentence boundaries.",
            }],
        },
        caller: Caller::Extension,
        jni: false,
    }],
};

const TRANSCRIBER: OptionSet = OptionSet {
    prefix: "siskin_transcriber",
    class: "TranscriberOptions",
    summary: "Options for a transcriber.",
    handle: "transcriber",
    numbers: Some("siskin_transcribe_option"),
    is_object: true,
    creates_by_hand: true,
    protocols: "Sendable, Hashable",
    properties: NO_PROPERTIES,
    by_hand: &[ByHand {
        function: "siskin_transcriber_set_segment_function",
        reason: "it is a callback, which each call has as an argument",
        properties: NO_PROPERTIES,
        caller: Caller::Other,
        jni: true,
    }],
};

const ENGINE: OptionSet = OptionSet {
    prefix: "siskin_engine_options",
    class: "EngineOptions",
    summary: "Options for an engine.",
    handle: "engine options",
    numbers: None,
    is_object: false,
    creates_by_hand: false,
    protocols: "Sendable, Hashable",
    properties: NO_PROPERTIES,
    by_hand: &[],
};

const SERVED_MODEL: OptionSet = OptionSet {
    prefix: "siskin_served_model_options",
    class: "ServedModelOptions",
    summary: "Options for a model of an engine.",
    handle: "served model options",
    numbers: None,
    is_object: false,
    creates_by_hand: false,
    protocols: "Sendable",
    properties: NO_PROPERTIES,
    by_hand: &[ByHand {
        function: "siskin_served_model_options_set_draft_model",
        reason: "it is a model",
        properties: Properties {
            kotlin: &[Property {
                declaration: "draftModel: Model? = null",
                docs: "The draft model, which drafts tokens that the model then verifies in one pass: a smaller model with \
                    the same tokenizer, or the same one opened with skipped layers. It changes no token.",
            }],
            swift: &[Property {
                declaration: "draftModel: Model? = nil",
                docs: "The draft model, which drafts tokens that the model then verifies in one pass: a smaller model with \
                    the same tokenizer, or the same one opened with skipped layers. It changes no token.",
            }],
        },
        caller: Caller::Extension,
        jni: false,
    }],
};

const REQUEST: OptionSet = OptionSet {
    prefix: "siskin_request_options",
    class: "RequestOptions",
    summary: "Options for a request to an engine.",
    handle: "request options",
    numbers: None,
    is_object: false,
    creates_by_hand: false,
    protocols: "Sendable, Hashable",
    properties: NO_PROPERTIES,
    by_hand: &[ByHand {
        function: "siskin_request_options_set_structured_output",
        reason: "it is a kind and its definition",
        properties: Properties {
            kotlin: &[Property {
                declaration: "structuredOutput: StructuredOutput? = null",
                docs: "What the response must be. Default: any text.",
            }],
            swift: &[Property {
                declaration: "structuredOutput: StructuredOutput? = nil",
                docs: "What the response must be. Default: any text.",
            }],
        },
        caller: Caller::Extension,
        jni: false,
    }],
};

/// A function that a wrapper does not call, with the reason in each language; empty: the language calls it.
pub(super) struct NotWrapped {
    pub(super) function: &'static str,
    pub(super) kotlin: &'static str,
    pub(super) swift: &'static str,
}

const KOTLIN_CANCELS: &str =
    "`cancel()` and `close()` use `siskin_cancel_handle_cancel`, which can be undone";
const SWIFT_CANCELS: &str =
    "`cancel()` and task cancellation call `siskin_cancel_handle_cancel`, which can be reset";

pub(super) const NOT_WRAPPED: &[NotWrapped] = &[
    NotWrapped { function: "siskin_encoder_cancel", kotlin: KOTLIN_CANCELS, swift: SWIFT_CANCELS },
    NotWrapped {
        function: "siskin_generation_cancel",
        kotlin: "`cancel()` and `close()` use `siskin_cancel_handle_cancel`",
        swift: "`cancel()` calls `siskin_cancel_handle_cancel`",
    },
    NotWrapped { function: "siskin_seq2seq_cancel", kotlin: KOTLIN_CANCELS, swift: SWIFT_CANCELS },
    NotWrapped { function: "siskin_session_cancel", kotlin: KOTLIN_CANCELS, swift: SWIFT_CANCELS },
    NotWrapped {
        function: "siskin_strings_clear",
        kotlin: "batches are Kotlin lists; a native one is created for each call",
        swift: "a list of strings is created for each call",
    },
    NotWrapped {
        function: "siskin_strings_count",
        kotlin: "batches are Kotlin lists, which have a size",
        swift: "the Swift array that a list is created from has the count",
    },
    NotWrapped { function: "siskin_transcriber_cancel", kotlin: KOTLIN_CANCELS, swift: SWIFT_CANCELS },
    NotWrapped {
        function: "siskin_transcriber_reset_options",
        kotlin: "options are set once, when a transcriber is created",
        swift: "",
    },
];
