import CSiskin

/// Tasks of sequence-to-sequence models.
public enum Seq2SeqTask: Sendable, Hashable {
    /// The task of the model's configuration.
    case `default`
    /// Summarization.
    case summarize
    /// Translation. Languages are given by the model's names for them, or by the language code that such a name begins
    /// with; `nil` if the model supports a single language pair.
    case translate(from: String? = nil, to: String? = nil)
}

extension Seq2SeqOptions {
    /// Creates the native form of these options, for a model.
    func makeNative(for model: Model) throws(SiskinError) -> NativeHandle {
        let pointer = try model.handle.use { model throws(SiskinError) in try makeTaskOptions(model) }
        let handle = NativeHandle(pointer, "seq2seq options", free: { siskin_seq2seq_options_free($0) })
        try handle.use { options throws(SiskinError) in try copy(to: options) }
        return handle
    }

    func copyOverflow(to options: OpaquePointer) throws(SiskinError) {
        guard let (mode, overlap) = try onOverflow?.makeNative() else { return }
        try check(siskin_seq2seq_options_set_overflow(options, mode, overlap))
    }

    private func makeTaskOptions(_ model: OpaquePointer) throws(SiskinError) -> OpaquePointer {
        switch task {
        case .default: try makeHandle { siskin_seq2seq_options_new(model, &$0) }
        case .summarize: try makeHandle { siskin_seq2seq_options_new_summary(model, &$0) }
        case .translate(let source, let target):
            try makeHandle { out in
                withUTF8(source ?? "") { source, sourceLength in
                    withUTF8(target ?? "") {
                        siskin_seq2seq_options_new_translation(model, source, sourceLength, $0, $1, &out)
                    }
                }
            }
        }
    }
}
