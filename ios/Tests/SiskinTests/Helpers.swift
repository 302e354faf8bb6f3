// Shared by the tests: models, reference data, and timers.
import Foundation
import XCTest

@testable import Siskin

/// Returns a folder that `cargo xtask ios` passes; skips the test without it.
private func folder(_ variable: String) throws -> URL {
    guard let path = ProcessInfo.processInfo.environment[variable], !path.isEmpty else {
        throw XCTSkip("\(variable) is not set; run `cargo xtask ios`")
    }
    return URL(fileURLWithPath: path, isDirectory: true)
}

/// Returns the path of one of the small models that `cargo xtask ios` packs.
func smallModelURL(_ name: String) throws -> URL {
    try folder("SISKIN_TEST_MODELS").appending(path: "\(name).siskin")
}

/// Returns the path of a model that `cargo xtask model` downloads; skips the test without it.
func realModelURL(_ name: String) throws -> URL {
    let url = try folder("SISKIN_REAL_MODELS").appending(path: name)
    guard FileManager.default.fileExists(atPath: url.path) else {
        throw XCTSkip("\(name) is missing; run `cargo xtask model`")
    }
    return url
}

/// Returns the contents of a file in `tests/data`.
func testData(_ path: String) throws -> Data {
    try Data(contentsOf: try folder("SISKIN_TEST_DATA").appending(path: path))
}

/// Creates an empty folder for one test.
func makeTemporaryFolder(_ name: String) throws -> URL {
    let url = FileManager.default.temporaryDirectory.appending(path: "siskin-\(name)-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    return url
}

/// Loads the small chat model, which has one token per byte.
func chatModel() async throws -> Model {
    try await Model(contentsOf: try smallModelURL("chat"), options: ModelOptions(threads: 2))
}

/// Loads a model of another format, which is packed into the user's cache folder if it is not packed yet.
func realModel(_ name: String) async throws -> Model { try await Model(contentsOf: try realModelURL(name)) }

/// Greedy decoding, with a maximum number of tokens.
func greedy(_ maxTokens: Int? = 24, context: Int? = nil) -> SessionOptions {
    SessionOptions(context: context, maxTokens: maxTokens, sampler: .greedy)
}

/// A prompt of 4,096 tokens of SmolLM2, whose prefill takes seconds.
let longPrompt = (0..<4096).map { 1000 + UInt32($0 * 7919 % 20000) }

/// Options for a session that has space for `longPrompt`.
let longPromptOptions = greedy(4, context: 4096 + 64)

/// The chunks of an answer, joined.
struct Answer: Equatable {
    var text = ""
    var tokens: [UInt32] = []
    var bytes: [UInt8] = []
    var finishReason: FinishReason?

    mutating func append(_ chunk: TextChunk) {
        text += chunk.text
        bytes += chunk.bytes
        if let token = chunk.token { tokens.append(token) }
        if let finishReason = chunk.finishReason { self.finishReason = finishReason }
    }
}

/// Consumes a stream to its end.
func collect(_ stream: AsyncThrowingStream<TextChunk, any Error>) async throws -> Answer {
    var answer = Answer()
    for try await chunk in stream { answer.append(chunk) }
    return answer
}

/// Asserts that a call throws a `SiskinError` with this code.
func assertThrows<T>(
    _ code: SiskinError.Code,
    line: UInt = #line,
    file: StaticString = #filePath,
    _ call: () async throws -> T
) async {
    do {
        _ = try await call()
        XCTFail("did not throw", file: file, line: line)
    } catch let error as SiskinError {
        XCTAssertEqual(error.code, code, "\(error)", file: file, line: line)
        XCTAssertFalse(error.message.isEmpty, file: file, line: line)
    } catch {
        XCTFail("\(error)", file: file, line: line)
    }
}

/// The tensors of a safetensors file.
struct Tensors {
    private let header: [String: [String: Any]]
    private let body: Data

    init(_ file: Data) throws {
        let length = file.prefix(8).reversed().reduce(0) { $0 << 8 | Int($1) }
        let json = try JSONSerialization.jsonObject(with: file.dropFirst(8).prefix(length))
        header = (json as? [String: Any] ?? [:]).compactMapValues { $0 as? [String: Any] }
        body = file.dropFirst(8 + length)
    }

    func shape(_ name: String) -> [Int] { header[name]?["shape"] as? [Int] ?? [] }

    func values<T>(_ name: String, as type: T.Type) -> [T] {
        guard let range = header[name]?["data_offsets"] as? [Int] else { return [] }
        let bytes = Data(body.dropFirst(range[0]).prefix(range[1] - range[0]))
        return bytes.withUnsafeBytes { bytes in
            (0..<bytes.count / MemoryLayout<T>.size).map {
                bytes.loadUnaligned(fromByteOffset: $0 * MemoryLayout<T>.size, as: T.self)
            }
        }
    }
}

/// Prints and returns the median and the maximum of some latencies, in milliseconds.
func report(_ name: String, _ latencies: [Duration]) -> (median: Double, maximum: Double) {
    let milliseconds = latencies.map { $0 / .milliseconds(1) }
    let sorted = milliseconds.sorted()
    let (median, maximum) = (sorted[sorted.count / 2], sorted[sorted.count - 1])
    print(String(format: "%@: median %.2f ms, maximum %.2f ms of %d", name, median, maximum, sorted.count))
    return (median, maximum)
}

/// The maximum median latency of a cancellation, in milliseconds. The target is below 20, but a busy machine must not
/// fail the test, and a prompt that is not canceled takes seconds.
let maxCancellationLatency = 100.0

/// Returns the resident memory of this process in bytes; 0 where `/proc` does not exist.
func residentMemory() -> Int {
    guard let text = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8) else { return 0 }
    let pages = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
    return pages * 4096
}

/// A value that several tasks may change.
final class Locked<T: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var inner: T
    init(_ value: T) { inner = value }
    var value: T { lock.withLock { inner } }
    func withLock<R>(_ body: (inout T) -> R) -> R { lock.withLock { body(&inner) } }
}

/// Functions that only test builds of the library export.
enum TestingLibrary {
    private static func symbol(_ name: String) throws -> UnsafeMutableRawPointer {
        // `RTLD_DEFAULT`, which Swift does not import from C.
        #if canImport(Darwin)
        let allLibraries = UnsafeMutableRawPointer(bitPattern: -2)
        #else
        let allLibraries = UnsafeMutableRawPointer(bitPattern: 0)
        #endif
        guard let symbol = dlsym(allLibraries, name) else {
            throw XCTSkip("the library has no \(name); build it with the feature `ffi-testing`")
        }
        return symbol
    }

    /// Skips the test if the library is not a test build.
    static func require() throws { _ = try symbol("siskin_testing_error") }

    /// Returns an error with a code; null for 0.
    static func makeError(_ code: Int32) throws -> OpaquePointer? {
        typealias Function = @convention(c) (Int32) -> OpaquePointer?
        return unsafeBitCast(try symbol("siskin_testing_error"), to: Function.self)(code)
    }

    /// Panics inside a session.
    static func panic(_ session: OpaquePointer) throws -> OpaquePointer? {
        typealias Function = @convention(c) (OpaquePointer) -> OpaquePointer?
        return unsafeBitCast(try symbol("siskin_testing_panic"), to: Function.self)(session)
    }

    /// Keeps a session busy for this many milliseconds.
    static func hold(_ session: OpaquePointer, _ milliseconds: UInt32) throws -> OpaquePointer? {
        typealias Function = @convention(c) (OpaquePointer, UInt32) -> OpaquePointer?
        return unsafeBitCast(try symbol("siskin_testing_hold"), to: Function.self)(session, milliseconds)
    }
}

extension Session {
    /// Keeps the session's thread busy for this many milliseconds, with work that is not a call.
    func blockThread(milliseconds: UInt32) throws {
        try runner.handle.use { session throws(SiskinError) in
            try check((try? TestingLibrary.hold(session, milliseconds)) ?? nil)
        }
    }

    /// Makes a call of this many milliseconds that ignores cancellation.
    func runUncancellableCall(milliseconds: UInt32) async throws {
        try await runner.run { session throws(SiskinError) in
            try check((try? TestingLibrary.hold(session, milliseconds)) ?? nil)
        }
    }

    /// Panics inside the library.
    func panic() throws {
        try runner.handle.use { session throws(SiskinError) in
            try check((try? TestingLibrary.panic(session)) ?? nil)
        }
    }
}
