import CSiskin

/// Encodes texts: embeddings, classes, labels and scores. Calls run serially on the encoder's own
/// thread; canceling the task of a call cancels the call.
public actor TextEncoder {
    private let runner: CallRunner
    private let executor = SerialQueueExecutor("encoder")

    /// The executor of the encoder, which has a thread of its own.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Creates an encoder.
    public init(model: Model, options: EncoderOptions = EncoderOptions()) async throws(SiskinError) {
        try await self.init(options) { useHead, maxBatchTokens, cacheType throws(SiskinError) in
            try model.handle.use { model throws(SiskinError) in
                try makeHandle { siskin_encoder_new(model, useHead, maxBatchTokens, cacheType, &$0) }
            }
        }
    }

    /// Creates an encoder that runs on an engine. The texts that it embeds share batches with those of other encoders of the
    /// same model and options; predictions take turns with the engine's forward passes. The encoder keeps the engine alive.
    /// `embed` throws `SiskinError.Code.overloaded` if too many texts wait, and after `Engine.drain(milliseconds:)`.
    public init(
        engine: Engine,
        model: Model,
        options: EncoderOptions = EncoderOptions()
    ) async throws(SiskinError) {
        try await self.init(options) { useHead, maxBatchTokens, cacheType throws(SiskinError) in
            try engine.handle.use { engine throws(SiskinError) in
                try model.handle.use { model throws(SiskinError) in
                    try makeHandle {
                        siskin_engine_encoder_new(engine, model, useHead, maxBatchTokens, cacheType, &$0)
                    }
                }
            }
        }
    }

    private init(
        _ options: EncoderOptions,
        create: @escaping @Sendable (Bool, Int, siskin_kv_cache_type) throws(SiskinError) -> OpaquePointer
    ) async throws(SiskinError) {
        runner = try await runInBackground { _ throws(SiskinError) in
            let maxBatchTokens: Int = try native(options.maxBatchTokens ?? 0, "maxBatchTokens")
            let encoder = try create(options.useHead, maxBatchTokens, options.kvCacheType.native)
            let handle = NativeHandle(encoder, "encoder", free: { siskin_encoder_free($0) })
            try handle.use { encoder throws(SiskinError) in
                let (mode, overlap) = try options.onOverflow.makeNative()
                try check(siskin_encoder_set_overflow(encoder, mode, overlap))
                try options.pooling?.apply(to: encoder)
                try EarlyExit.apply(options.earlyExit, to: encoder)
            }
            return try CallRunner(handle, makeCancelHandle: { siskin_encoder_cancel_handle($0, &$1) })
        }
    }

    /// Cancels the running call and all queued calls within milliseconds.
    public nonisolated func cancel() { runner.cancel() }

    /// Cancels the running call, waits for it, and closes the encoder; later calls throw. May be called repeatedly.
    public nonisolated func close() async {
        runner.close()
        await waitForRunningCall()
    }

    private func waitForRunningCall() {}

    /// Returns the embedding of each text.
    public func embed(_ texts: [String]) async throws(SiskinError) -> [[Float]] {
        try await encode(texts) { siskin_encoder_embed($0, $1) } result: { encoder, index throws(SiskinError) in
            var start: UnsafePointer<Float>?
            var count = 0
            try check(siskin_encoder_embedding(encoder, index, &start, &count))
            return array(start, count)
        }
    }

    /// Returns the embedding of a text.
    public func embed(_ text: String) async throws(SiskinError) -> [Float] { try await embed([text])[0] }

    /// Classifies each text; returns the classes of each, the most probable one first.
    public func classify(_ texts: [String]) async throws(SiskinError) -> [[Prediction]] {
        try await encode(texts) { siskin_encoder_classify($0, $1) } result: { encoder, index throws(SiskinError) in
            try TextEncoder.predictions(encoder, index)
        }
    }

    /// Scores the relevance of each document to a query with a cross-encoder. Only the order of the scores is
    /// meaningful.
    public func rerank(_ documents: [String], for query: String) async throws(SiskinError) -> [Float] {
        try await encode(documents) { encoder, documents in
            withUTF8(query) { siskin_encoder_rerank(encoder, $0, $1, documents) }
        } result: { encoder, index throws(SiskinError) in
            let prediction = try readStruct(siskin_prediction(), \.struct_size) {
                siskin_encoder_prediction(encoder, index, 0, &$0)
            }
            return prediction.score
        }
    }

    /// Returns how many layers each text of the last call of `classify` or `rerank` passed, with
    /// `EncoderOptions.earlyExit`.
    public func layers() async throws(SiskinError) -> [Int] {
        try await runner.run { encoder throws(SiskinError) in
            var count = 0
            try check(siskin_encoder_result_count(encoder, &count))
            var all: [Int] = []
            for index in 0..<count {
                var layers = 0
                try check(siskin_encoder_layers(encoder, index, &layers))
                all.append(layers)
            }
            return all
        }
    }

    /// Returns the labeled spans of each text, such as named entities.
    public func tag(_ texts: [String]) async throws(SiskinError) -> [[Prediction]] {
        try await encode(texts) { siskin_encoder_tag($0, $1) } result: { encoder, index throws(SiskinError) in
            try TextEncoder.predictions(encoder, index)
        }
    }

    /// Returns the most probable span of each text that answers a question (extractive question answering); `nil` if
    /// there is none.
    public func answer(_ question: String, in texts: [String]) async throws(SiskinError) -> [Prediction?] {
        try await encode(texts) { encoder, texts in
            withUTF8(question) { siskin_encoder_answer(encoder, $0, $1, texts) }
        } result: { encoder, index throws(SiskinError) in
            try TextEncoder.predictions(encoder, index).first
        }
    }

    /// Returns the `count` most probable tokens for each mask token of a text.
    public func fillMasks(in text: String, count: Int = 5) async throws(SiskinError) -> [[Prediction]] {
        let count: Int = try native(count, "count")
        return try await runner.run { encoder throws(SiskinError) in
            try check(withUTF8(text) { siskin_encoder_fill_mask(encoder, $0, $1, count) })
            var maskCount = 0
            try check(siskin_encoder_result_count(encoder, &maskCount))
            var masks: [[Prediction]] = []
            for index in 0..<maskCount { masks.append(try TextEncoder.predictions(encoder, index)) }
            return masks
        }
    }

    /// Encodes texts, and returns the result of each.
    private func encode<T: Sendable>(
        _ texts: [String],
        _ call: @Sendable (OpaquePointer, OpaquePointer) -> OpaquePointer?,
        result: @Sendable (OpaquePointer, Int) throws(SiskinError) -> T
    ) async throws(SiskinError) -> [T] {
        let strings = try NativeStrings(texts)
        return try await runner.run { encoder throws(SiskinError) in
            try strings.handle.use { texts throws(SiskinError) in try check(call(encoder, texts)) }
            var results: [T] = []
            for index in texts.indices { results.append(try result(encoder, index)) }
            return results
        }
    }

    /// Returns all predictions for a text.
    private static func predictions(_ encoder: OpaquePointer, _ index: Int) throws(SiskinError) -> [Prediction] {
        var count = 0
        try check(siskin_encoder_prediction_count(encoder, index, &count))
        var predictions: [Prediction] = []
        for rank in 0..<count {
            let prediction = try readStruct(siskin_prediction(), \.struct_size) {
                siskin_encoder_prediction(encoder, index, rank, &$0)
            }
            predictions.append(Prediction(prediction))
        }
        return predictions
    }
}
