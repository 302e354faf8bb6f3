import CSiskin
import Foundation

/// An error: what went wrong, where, and what to do.
public struct SiskinError: Error, Sendable, Hashable {
    /// The kind of error.
    public let code: Code
    /// The location of the error: a file, section and field, or the name of an argument.
    public let place: String
    /// What went wrong and what to do.
    public let message: String

    /// Creates an error, for the package itself and for tests.
    public init(_ code: Code, place: String, message: String) {
        self.code = code
        self.place = place
        self.message = message
    }

    /// Whether the work was cancelled rather than failed: by its task, by `stop()`, or because its handle was suspended
    /// or closed.
    public var isCancellation: Bool { code == .cancelled }
}

extension SiskinError {
    /// The kinds of errors. Their numbers never change their meaning.
    public enum Code: Sendable, Hashable {
        /// A file or folder could not be read or written.
        case io
        /// The data is not in the format that it claims to be in.
        case corrupt
        /// The format or the request is valid, but unsupported by this version or this model.
        case unsupported
        /// The file's major version is unknown.
        case version
        /// The file lacks something that the model needs.
        case missing
        /// A tensor has a shape or type that the architecture does not allow.
        case shape
        /// A hash mismatch: the file was modified or damaged.
        case integrity
        /// A value is out of range or contradicts another.
        case argument
        /// The text or tokens are longer than the context.
        case tooLong
        /// The chat template failed or rejected the messages.
        case template
        /// A pointer is null: never caused by this package.
        case null
        /// A handle is of another type: never caused by this package.
        case handle
        /// A text is not UTF-8: Swift strings always are.
        case utf8
        /// A struct does not have the size that the library expects: never caused by this package.
        case structSize
        /// The handle is in a state that does not allow the call; for example, it was closed.
        case state
        /// The work was cancelled. The call can be made again.
        case cancelled
        /// The model produced NaN or infinity.
        case numeric
        /// Another call is using the handle, or the call came from a callback.
        case busy
        /// An earlier call panicked inside the handle: close it.
        case poisoned
        /// The session is suspended: resume it first.
        case suspended
        /// A memory limit does not allow the request.
        case memory
        /// There was not enough memory to allocate an error.
        case outOfMemory
        /// An internal error of the library: please report it.
        case panic
        /// A number of a newer library that this package does not know.
        case unknown(Int32)
    }
}

extension SiskinError.Code {
    /// Every kind with its number in the header.
    static let numbers: [(SiskinError.Code, Int32)] = [
        (.io, SISKIN_ERROR_IO),  // 100
        (.corrupt, SISKIN_ERROR_CORRUPT),  // 101
        (.unsupported, SISKIN_ERROR_UNSUPPORTED),  // 102
        (.version, SISKIN_ERROR_VERSION),  // 103
        (.missing, SISKIN_ERROR_MISSING),  // 104
        (.shape, SISKIN_ERROR_SHAPE),  // 105
        (.integrity, SISKIN_ERROR_INTEGRITY),  // 106
        (.argument, SISKIN_ERROR_ARGUMENT),  // 200
        (.tooLong, SISKIN_ERROR_TOO_LONG),  // 201
        (.template, SISKIN_ERROR_TEMPLATE),  // 202
        (.null, SISKIN_ERROR_NULL),  // 210
        (.handle, SISKIN_ERROR_HANDLE),  // 211
        (.utf8, SISKIN_ERROR_UTF8),  // 212
        (.structSize, SISKIN_ERROR_STRUCT_SIZE),  // 213
        (.state, SISKIN_ERROR_STATE),  // 300
        (.cancelled, SISKIN_ERROR_CANCELLED),  // 301
        (.numeric, SISKIN_ERROR_NUMERIC),  // 302
        (.busy, SISKIN_ERROR_BUSY),  // 310
        (.poisoned, SISKIN_ERROR_POISONED),  // 311
        (.suspended, SISKIN_ERROR_SUSPENDED),  // 312
        (.memory, SISKIN_ERROR_MEMORY),  // 400
        (.outOfMemory, SISKIN_ERROR_OUT_OF_MEMORY),  // 401
        (.panic, SISKIN_ERROR_PANIC),  // 999
    ]

    /// Creates the kind with a number.
    public init(number: Int32) {
        self = Self.numbers.first { $0.1 == number }?.0 ?? .unknown(number)
    }

    /// Its number, as in the header.
    public var number: Int32 {
        if case .unknown(let number) = self { return number }
        return Self.numbers.first { $0.0 == self }?.1 ?? 0
    }
}

extension SiskinError: CustomStringConvertible, LocalizedError {
    /// Place and message.
    public var description: String { place.isEmpty ? message : "\(place): \(message)" }

    /// The same, for alerts.
    public var errorDescription: String? { description }
}
