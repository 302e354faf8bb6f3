// What the tests share: models to work with, outside truths, and clocks.
import Foundation
import XCTest

@testable import Siskin

/// A folder that `cargo xtask ios` names. A test that needs one is skipped without it.
private func folder(_ variable: String) throws -> URL {
    guard let path = ProcessInfo.processInfo.environment[variable], !path.isEmpty else {
        throw XCTSkip("\(variable) is not set; run `cargo xtask ios`")
    }
    return URL(fileURLWithPath: path, isDirectory: true)
}

/// The path of one of the small models that `cargo xtask ios` packs.
func small(_ name: String) throws -> URL { try folder("SISKIN_TEST_MODELS").appending(path: "\(name).siskin") }

/// A model that `cargo xtask model` brought.
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

/// The small model that chats, with a token for each byte.
func chatModel() async throws -> Model {
    var options = ModelOptions()
    options.threads = 2
    return try await Model.open(try small("chat"), options: options)
}

/// A model of another format that was packed before, or is packed now beside its source.
func realModel(_ name: String) async throws -> Model { try await Model.open(try real(name)) }

/// Always the likeliest token, and so many at most.
func greedy(_ most: Int = 24, context: Int = 0) -> SessionOptions {
    var options = SessionOptions()
    options.sampler = .greedy
    options.maxTokens = most
    options.context = context
    return options
}

/// An answer as a whole.
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

/// Takes a stream to its end.
func whole(_ stream: AsyncThrowingStream<Piece, any Error>) async throws -> Whole {
    var whole = Whole()
    for try await piece in stream { whole.add(piece) }
    return whole
}

/// What a call throws must be this.
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

/// Tensors of a file of safetensors.
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

/// The middle and the largest of some times, in milliseconds, and printed.
func report(_ what: String, _ times: [Duration]) -> (middle: Double, worst: Double) {
    let sorted = times.map { Double($0.components.attoseconds) / 1e15 + Double($0.components.seconds) * 1e3 }.sorted()
    let (middle, worst) = (sorted[sorted.count / 2], sorted[sorted.count - 1])
    print(String(format: "%@: of %d the middle one took %.2f ms, the slowest %.2f", what, sorted.count, middle, worst))
    return (middle, worst)
}

/// The most milliseconds in which a call ends that is stopped, more often than not. Less than 20 are asked for; others
/// that keep the cores busy must not fail the test, and a prompt that does not stop takes seconds.
let patience = 100.0

/// Bytes of this process that are in memory; 0 where the system has no such file.
func resident() -> Int {
    guard let text = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8) else { return 0 }
    let pages = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
    return pages * 4096
}

/// What several tasks may add to.
final class Shared<T: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var inner: T
    init(_ value: T) { inner = value }
    var value: T { lock.withLock { inner } }
    func change<R>(_ change: (inout T) -> R) -> R { lock.withLock { change(&inner) } }
}

/// Functions that only libraries for tests have.
enum Testing {
    private static func symbol(_ name: String) throws -> UnsafeMutableRawPointer {
        // `RTLD_DEFAULT`, which Swift does not take from C.
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

    /// Keeps a session busy for so many milliseconds.
    static func hold(_ session: OpaquePointer, _ milliseconds: UInt32) throws -> OpaquePointer? {
        typealias Function = @convention(c) (OpaquePointer, UInt32) -> OpaquePointer?
        return unsafeBitCast(try symbol("siskin_testing_hold"), to: Function.self)(session, milliseconds)
    }
}

extension Session {
    /// Keeps the session's thread busy for so many milliseconds.
    func hold(_ milliseconds: UInt32) throws {
        try worker.owner.lend { session throws(SiskinError) in
            try check((try? Testing.hold(session, milliseconds)) ?? nil)
        }
    }

    /// The same as work that heeds no stop.
    func work(_ milliseconds: UInt32) async throws {
        try await worker.run { session throws(SiskinError) in
            try check((try? Testing.hold(session, milliseconds)) ?? nil)
        }
    }

    /// Makes the library fail inside.
    func panic() throws {
        try worker.owner.lend { session throws(SiskinError) in try check((try? Testing.panic(session)) ?? nil) }
    }
}
