import CSiskin

/// A generated text.
public struct Written: Sendable, Hashable {
    /// The text.
    public let text: String
    /// Its token ids.
    public let tokens: [UInt32]
    /// Its length-penalized score: higher is better.
    public let score: Double
    /// Whether the model ended it; otherwise the length limit did.
    public let ended: Bool

    init(_ written: siskin_written) {
        text = Siskin.text(written.text, written.length)
        tokens = values(written.tokens, written.token_count)
        score = written.score
        ended = written.ended
    }
}

/// Generates a text for each text of a batch: translations, summaries, continuations. Calls run one after the other, on
/// a thread of the writer; canceling the task of a call stops it.
public actor Writer {
    private let model: Model
    private let worker: Worker
    private let queue = Queue("writer")

    /// Calls run here.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    /// Creates a writer. `rows` is the number of sequences or beams that are generated at the same time, 0: 32;
    /// `context` the maximum number of tokens of a text with its prefix, 0: the model's own, but no more than 1024. The
    /// model must stay open.
    public init(_ model: Model, rows: Int = 0, context: Int = 0) async throws(SiskinError) {
        self.model = model
        worker = try await aside { _ throws(SiskinError) in
            let (rows, context): (Int, Int) = (try number(rows, "rows"), try number(context, "context"))
            let writer = try model.owner.lend { model throws(SiskinError) in
                try made { siskin_writer_new(model, rows, context, &$0) }
            }
            let owner = Owner(writer, "writer", free: { siskin_writer_free($0) })
            return try Worker(owner, stopper: { siskin_writer_stopper($0, &$1) })
        }
    }

    /// Stops the running call within milliseconds.
    public nonisolated func stop() { worker.stop() }

    /// Stops the running call, waits for it, and releases the writer; later calls throw. May be called again.
    public nonisolated func close() async {
        worker.close()
        await settle()
    }

    private func settle() {}

    /// Generates texts for each text, best first; `nil`: the defaults of the model's configuration.
    public func write(_ texts: [String], _ writing: Writing? = nil) async throws(SiskinError) -> [[Written]] {
        let native = try Texts(texts)
        let writing = try writing?.native(model)
        return try await worker.run { writer throws(SiskinError) in
            try native.owner.lend { texts throws(SiskinError) in
                guard let writing else { return try check(siskin_writer_write(writer, texts, nil)) }
                try writing.lend { writing throws(SiskinError) in
                    try check(siskin_writer_write(writer, texts, writing))
                }
            }
            var all: [[Written]] = []
            for index in texts.indices { all.append(try Writer.written(writer, index)) }
            return all
        }
    }

    private static func written(_ writer: OpaquePointer, _ index: Int) throws(SiskinError) -> [Written] {
        var count = 0
        try check(siskin_writer_count(writer, index, &count))
        var all: [Written] = []
        for rank in 0..<count {
            let written = try filled(siskin_written(), \.struct_size) { siskin_writer_written(writer, index, rank, &$0) }
            all.append(Written(written))
        }
        return all
    }
}
