import CSiskin
import Foundation

/// An error: what is wrong, where, and if possible what to do.
public struct SiskinError: Error, Sendable, Hashable {
    /// The code of the error.
    public let code: Code
    /// The location of the error: a file, section and field, or the name of an argument.
    public let location: String
    /// What is wrong and, where possible, what to do.
    public let message: String

    /// Creates an error, for example in tests.
    public init(_ code: Code, location: String, message: String) {
        self.code = code
        self.location = location
        self.message = message
    }

    /// Whether the call was canceled: by its task, by `cancel()`, or because its object was paused or closed.
    public var isCancellation: Bool { code == .canceled }
}

extension SiskinError {
    /// Error codes. Codes are stable.
    public enum Code: Sendable, Hashable {
        /// A file or folder could not be read or written.
        case io
        /// The data is malformed.
        case corrupt
        /// The format or the request is valid, but unsupported by this version or this model.
        case unsupported
        /// The file's major version is unknown.
        case version
        /// A file does not exist, or lacks something that the model needs.
        case missing
        /// A tensor has a shape or type that the architecture does not allow.
        case shape
        /// A hash mismatch: the file was modified or damaged.
        case integrity
        /// An argument is out of range or contradicts another one.
        case argument
        /// The text or tokens are longer than the context.
        case tooLong
        /// The chat template failed or rejected the messages.
        case template
        /// A pointer is null: never caused by this package.
        case null
        /// A handle has the wrong type: never caused by this package.
        case handle
        /// A string is not UTF-8: Swift strings always are.
        case utf8
        /// A struct does not have the size that the library expects: never caused by this package.
        case structSize
        /// The object is in a state that does not allow the call; for example, it was closed.
        case state
        /// The call was canceled. It can be retried.
        case canceled
        /// The model produced NaN or infinity.
        case numeric
        /// Another call is using the object, or the call came from a callback.
        case busy
        /// An earlier call failed with `panic`: close the object.
        case poisoned
        /// The session is paused: resume it first.
        case paused
        /// The request exceeds a memory limit.
        case memory
        /// There was not enough memory to allocate an error.
        case outOfMemory
        /// Too many requests are waiting; the call can be retried later.
        case overloaded
        /// An internal error: please report it.
        case panic
        /// A code that this version of the package does not know.
        case unknown(Int32)
    }
}

extension SiskinError.Code {
    /// Maps each code to its constant and value in the C header.
    private static let kinds: [(SiskinError.Code, siskin_error_kind)] = [
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
        (.canceled, SISKIN_ERROR_CANCELED),  // 301
        (.numeric, SISKIN_ERROR_NUMERIC),  // 302
        (.busy, SISKIN_ERROR_BUSY),  // 310
        (.poisoned, SISKIN_ERROR_POISONED),  // 311
        (.paused, SISKIN_ERROR_PAUSED),  // 312
        (.memory, SISKIN_ERROR_MEMORY),  // 400
        (.outOfMemory, SISKIN_ERROR_OUT_OF_MEMORY),  // 401
        (.overloaded, SISKIN_ERROR_OVERLOADED),  // 402
        (.panic, SISKIN_ERROR_PANIC),  // 999
    ]

    /// Maps each code to its number.
    static let numbers: [(SiskinError.Code, Int32)] = kinds.map { ($0.0, Int32($0.1.rawValue)) }

    /// Creates the code from its C error number.
    public init(number: Int32) {
        self = Self.numbers.first { $0.1 == number }?.0 ?? .unknown(number)
    }

    /// The C error number of the code.
    public var number: Int32 {
        if case .unknown(let number) = self { return number }
        return Self.numbers.first { $0.0 == self }?.1 ?? 0
    }
}

extension SiskinError: CustomStringConvertible, LocalizedError {
    /// The location and the message.
    public var description: String { location.isEmpty ? message : "\(location): \(message)" }

    /// The location and the message, which `localizedDescription` returns.
    public var errorDescription: String? { description }
}
