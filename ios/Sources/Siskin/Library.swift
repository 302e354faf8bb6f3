import CSiskin
import Foundation

/// The native library.
public enum Library {
    /// The version of the library, such as `0.1.0`.
    public static var version: String { String(cString: siskin_version()) }

    /// The version of the C interface that the library implements.
    public static var abiVersion: UInt32 { siskin_abi_version() }

    /// The severity of a log message.
    public enum LogLevel: Sendable, Hashable {
        /// Progress.
        case info
        /// A condition that makes the library slower or less accurate than it could be.
        case warning
    }

    /// Sets the handler for the library's log messages, replacing the previous one; `nil` disables logging, which is
    /// the default. The library never prints. The handler is called from any thread, possibly from several at once, and
    /// must not use this package.
    public static func setLogHandler(_ handler: (@Sendable (LogLevel, String) -> Void)?) throws(SiskinError) {
        guard let handler else { return try check(siskin_log_set(nil, nil, nil)) }
        let user = Unmanaged.passRetained(LogHandler(handler)).toOpaque()
        let callback: siskin_log_function = { user, level, bytes, length in
            guard let user else { return }
            let level: LogLevel =
                switch level {
                case SISKIN_LOG_INFO: .info
                case SISKIN_LOG_WARNING: .warning
                default: .warning
                }
            Unmanaged<LogHandler>.fromOpaque(user).takeUnretainedValue().call(level, string(bytes, length))
        }
        try check(siskin_log_set(callback, user) { user in
            if let user { Unmanaged<LogHandler>.fromOpaque(user).release() }
        })
    }

    /// Throws if the library is older than this package.
    static func checkVersion() throws(SiskinError) {
        guard abiVersion >= UInt32(SISKIN_ABI_VERSION) else {
            let message = "has ABI version \(abiVersion); version \(SISKIN_ABI_VERSION) or later is required"
            throw SiskinError(.version, location: "library", message: message)
        }
    }

    private final class LogHandler: Sendable {
        let call: @Sendable (LogLevel, String) -> Void
        init(_ call: @escaping @Sendable (LogLevel, String) -> Void) { self.call = call }
    }
}
