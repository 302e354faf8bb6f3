// Shared by the tests: models, reference data, and timers.
import Foundation
import XCTest

@testable import Siskin

/// A folder that `cargo xtask ios` passes. A test that needs it is skipped without it.
private func folder(_ variable: String) throws -> URL {
    guard let path = ProcessInfo.processInfo.environment[variable], !path.isEmpty else {
        throw XCTSkip("\(variable) is not set; run `cargo xtask ios`")
    }
    return URL(fileURLWithPath: path, isDirectory: true)
}

/// The path of one of the small models that `cargo xtask ios` packs.
func small(_ name: String) throws -> URL { try folder("SISKIN_TEST_MODELS").appending(path: "\(name).siskin") }

/// A model downloaded by `cargo xtask model`.
func real(_ name: String) throws -> URL {
    let url = try folder("SISKIN_REAL_MODELS").appending(path: name)
    guard FileManager.default.fileExists(atPath: url.path) else {
        throw XCTSkip("\(name) is not there; `cargo xtask model` brings it")
    }
    return url
}

/// A file of `tests/data`.
func data(_ path: String) throws -> Data { try Data(contentsOf: try folder("SISKIN_TEST_DATA").appending(path: path)) }

/// An empty folder for one test.
func scratch(_ name: String) throws -> URL {
    let url = FileManager.default.temporaryDirectory.appending(path: "siskin-\(name)-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    return url
}

/// The small chat model, with one token per byte.
func chatModel() async throws -> Model {
    var options = ModelOptions()
    options.threads = 2
    return try await Model.open(try small("chat"), options: options)
}

/// A model of another format, packed next to its source if it is not yet packed.
func realModel(_ name: String) async throws -> Model { try await Model.open(try real(name)) }

/// Greedy sampling, with a maximum number of tokens.
func greedy(_ most: Int = 24, context: Int = 0) -> SessionOptions {
    var options = SessionOptions()
    options.sampler = .greedy
    options.maxTokens = most
    options.context = context
    return options
}

/// Returns the whole answer.
struct Whole: Equatable {
    var text = ""
    var tokens: [UInt32] = []
    var bytes: [UInt8] = []
    var ended: Ended?

    mutating func add(_ piece: Piece) {
        text += piece.text
        bytes += piece.bytes
        if let token = piece.token { tokens.append(token) }
        if let ended = piece.ended { self.ended = ended }
    }
}

/// Consumes a stream to its end.
func whole(_ stream: AsyncThrowingStream<Piece, any Error>) async throws -> Whole {
    var whole = Whole()
    for try await piece in stream { whole.add(piece) }
    return whole
}

/// Asserts that a call throws this error.
func assertFails<T>(
    _ code: SiskinError.Code,
    line: UInt = #line,
    file: StaticString = #filePath,
    _ call: () async throws -> T
) async {
    do {
        _ = try await call()
        XCTFail("did not fail", file: file, line: line)
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

/// Returns and prints the median and the maximum of some times, in milliseconds.
func report(_ what: String, _ times: [Duration]) -> (middle: Double, worst: Double) {
    let sorted = times.map { Double($0.components.attoseconds) / 1e15 + Double($0.components.seconds) * 1e3 }.sorted()
    let (middle, worst) = (sorted[sorted.count / 2], sorted[sorted.count - 1])
    print(String(format: "%@: of %d the middle one took %.2f ms, the slowest %.2f", what, sorted.count, middle, worst))
    return (middle, worst)
}

/// Maximum median latency of a cancelled call, in milliseconds. The target is below 20, but a busy machine must not
/// fail the test, and a prompt that is not cancelled takes seconds.
let patience = 100.0

/// Resident memory of this process in bytes; 0 where the system has no such file.
func resident() -> Int {
    guard let text = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8) else { return 0 }
    let pages = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
    return pages * 4096
}

/// A collection that several tasks may append to.
final class Shared<T: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var inner: T
    init(_ value: T) { inner = value }
    var value: T { lock.withLock { inner } }
    func change<R>(_ change: (inout T) -> R) -> R { lock.withLock { change(&inner) } }
}

/// Functions that only test builds of the library export.
enum Testing {
    private static func symbol(_ name: String) throws -> UnsafeMutableRawPointer {
        // `RTLD_DEFAULT`, which Swift does not import from C.
        #if canImport(Darwin)
        let everywhere = UnsafeMutableRawPointer(bitPattern: -2)
        #else
        let everywhere = UnsafeMutableRawPointer(bitPattern: 0)
        #endif
        guard let symbol = dlsym(everywhere, name) else {
            throw XCTSkip("the library has no \(name); build it with the feature `ffi-testing`")
        }
        return symbol
    }

    /// Fails with a code.
    static func error(_ code: Int32) throws -> OpaquePointer? {
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
    /// Keeps the session's thread busy for this many milliseconds.
    func hold(_ milliseconds: UInt32) throws {
        try worker.owner.lend { session throws(SiskinError) in
            try check((try? Testing.hold(session, milliseconds)) ?? nil)
        }
    }

    /// The same with work that ignores cancellation.
    func work(_ milliseconds: UInt32) async throws {
        try await worker.run { session throws(SiskinError) in
            try check((try? Testing.hold(session, milliseconds)) ?? nil)
        }
    }

    /// Makes the library fail internally.
    func panic() throws {
        try worker.owner.lend { session throws(SiskinError) in try check((try? Testing.panic(session)) ?? nil) }
    }
}
