import CSiskin
import Foundation

/// The native library.
public enum Library {
    /// Its version, such as `0.1.0`.
    public static var version: String { String(cString: siskin_version()) }

    /// The version of its C interface.
    public static var abiVersion: UInt32 { siskin_abi_version() }

    /// The severity of a message.
    public enum LogLevel: Sendable, Hashable {
        /// Progress.
        case info
        /// Something that could be better.
        case warning
    }

    /// Sends the messages of the whole library to `function`, replacing the previous one; `nil` disables logging. The
    /// library prints nothing by itself. Calls come from any thread, possibly several at once, and must not call the
    /// library.
    public static func log(_ function: (@Sendable (LogLevel, String) -> Void)?) throws(SiskinError) {
        guard let function else { return try check(siskin_log_set(nil, nil, nil)) }
        let user = Unmanaged.passRetained(Log(function)).toOpaque()
        let forward: siskin_log_function = { user, level, bytes, length in
            guard let user else { return }
            let level: LogLevel =
                switch level {
                case SISKIN_LOG_INFO: .info
                case SISKIN_LOG_WARNING: .warning
                default: .warning
                }
            Unmanaged<Log>.fromOpaque(user).takeUnretainedValue().function(level, text(bytes, length))
        }
        try check(siskin_log_set(forward, user) { user in
            if let user { Unmanaged<Log>.fromOpaque(user).release() }
        })
    }

    /// Rejects a library that is older than this package.
    static func checkVersion() throws(SiskinError) {
        guard abiVersion >= UInt32(SISKIN_ABI_VERSION) else {
            let message = "has interface \(abiVersion), and this package needs \(SISKIN_ABI_VERSION); link a newer one"
            throw SiskinError(.version, place: "library", message: message)
        }
    }

    private final class Log: Sendable {
        let function: @Sendable (LogLevel, String) -> Void
        init(_ function: @escaping @Sendable (LogLevel, String) -> Void) { self.function = function }
    }
}
