// Conversions between Swift and the C interface.
import CSiskin
import Foundation

/// Throws the error that a library function returned, and frees it.
func check(_ error: OpaquePointer?) throws(SiskinError) {
    guard let error else { return }
    defer { siskin_error_free(error) }
    throw SiskinError(
        SiskinError.Code(number: Int32(siskin_error_code(error).rawValue)),
        location: String(cString: siskin_error_location(error)),
        message: String(cString: siskin_error_message(error))
    )
}

/// Returns the handle that a library function created, or throws its error.
func makeHandle(_ call: (inout OpaquePointer?) -> OpaquePointer?) throws(SiskinError) -> OpaquePointer {
    var out: OpaquePointer?
    try check(call(&out))
    guard let out else {
        let message = "returned neither a handle nor an error; please report this"
        throw SiskinError(.null, location: "library", message: message)
    }
    return out
}

/// Returns a struct that the library fills, with `struct_size` set.
func readStruct<T>(
    _ empty: T,
    _ size: WritableKeyPath<T, Int>,
    _ call: (inout T) -> OpaquePointer?
) throws(SiskinError) -> T {
    var value = empty
    value[keyPath: size] = MemoryLayout<T>.stride
    try check(call(&value))
    return value
}

/// Passes the UTF-8 bytes of a string to `body`.
func withUTF8<T>(_ string: String, _ body: (UnsafePointer<CChar>?, Int) -> T) -> T {
    var string = string
    return string.withUTF8 { bytes in
        bytes.withMemoryRebound(to: CChar.self) { body($0.baseAddress, $0.count) }
    }
}

/// Passes the bytes of data to `body`.
func withBytes<T>(_ data: Data, _ body: (UnsafePointer<UInt8>?, Int) -> T) -> T {
    data.withUnsafeBytes { bytes in
        bytes.withMemoryRebound(to: UInt8.self) { body($0.baseAddress, $0.count) }
    }
}

/// Copies a string that the library owns.
func string(_ start: UnsafePointer<CChar>?, _ length: Int) -> String {
    String(decoding: UnsafeRawBufferPointer(start: start, count: length), as: UTF8.self)
}

/// Copies an array that the library owns.
func array<T>(_ start: UnsafePointer<T>?, _ count: Int) -> [T] {
    Array(UnsafeBufferPointer(start: start, count: start == nil ? 0 : count))
}

/// Converts an argument to a type in the C header; throws if it is negative or too large.
func native<T: FixedWidthInteger>(_ value: Int, _ name: String, as type: T.Type = T.self) throws(SiskinError) -> T {
    guard value >= 0, let converted = T(exactly: value) else {
        throw SiskinError(.argument, location: name, message: "\(value) is out of range; pass a value from 0 to \(T.max)")
    }
    return converted
}

/// Returns the path of a file URL.
func filePath(_ url: URL) throws(SiskinError) -> String {
    guard url.isFileURL else {
        throw SiskinError(.argument, location: url.absoluteString, message: "not a file URL; download the file first")
    }
    return url.path(percentEncoded: false)
}
