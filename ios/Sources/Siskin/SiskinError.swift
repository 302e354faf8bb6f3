import CSiskin
import Foundation

/// What went wrong, where, and what to do.
public struct SiskinError: Error, Sendable, Hashable {
    /// What kind of error it is.
    public let code: Code
    /// Where it went wrong: a file, section and field, or the name of an argument.
    public let place: String
    /// What went wrong and what to do.
    public let message: String

    /// An error of the library's own making, or a test's.
    public init(_ code: Code, place: String, message: String) {
        self.code = code
        self.place = place
        self.message = message
    }

    /// Whether the work was stopped and not failed: by its task, by `stop()`, or because its handle was held or closed.
    public var isCancellation: Bool { code == .cancelled }
}

extension SiskinError {
    /// The kinds of errors. Their numbers never change their meaning.
    public enum Code: Sendable, Hashable {
        /// A file or folder could not be read or written.
        case io
        /// The bytes are not in the format they claim.
        case corrupt
        /// The format or the request is right, but this version or this model cannot do it.
        case unsupported
        /// The file's major version is unknown.
        case version
        /// Something the model needs is not in the file.
        case missing
        /// A tensor has a shape or type that the architecture does not allow.
        case shape
        /// A hash differs: the file was changed or damaged.
        case integrity
        /// A value is out of range or contradicts another.
        case argument
        /// The text or tokens are longer than the context.
        case tooLong
        /// The chat template failed or refused the messages.
        case template
        /// A pointer is null: this package does not give such.
        case null
        /// A handle is of another kind: this package does not give such.
        case handle
        /// A text is not UTF-8: texts of Swift always are.
        case utf8
        /// A struct has not the size that the library expects: this package does not give such.
        case structSize
        /// The handle is in a state that does not allow the call; it was closed, for example.
        case state
        /// The work was stopped. The call can be made again.
        case cancelled
        /// The model produced numbers that are not finite.
        case numeric
        /// Another call is at work on the handle, or the call came from a callback.
        case busy
        /// An earlier call failed inside the handle: close it.
        case poisoned
        /// The session is suspended: resume it first.
        case suspended
        /// A memory limit does not allow the request.
        case memory
        /// There was not even memory for an error.
        case outOfMemory
        /// The library failed inside: please tell its makers.
        case panic
        /// A number that this package does not know, from a later library.
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

    /// The kind with a number.
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
