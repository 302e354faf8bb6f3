// Conversion of values at the C interface.
import CSiskin
import Foundation

/// Throws the error that a function of the library returned, and frees it.
func check(_ error: OpaquePointer?) throws(SiskinError) {
    guard let error else { return }
    defer { siskin_error_free(error) }
    throw SiskinError(
        SiskinError.Code(number: siskin_error_code(error)),
        place: String(cString: siskin_error_place(error)),
        message: String(cString: siskin_error_message(error))
    )
}

/// Returns the output of a function of the library, or throws its error.
func made(_ call: (inout OpaquePointer?) -> OpaquePointer?) throws(SiskinError) -> OpaquePointer {
    var out: OpaquePointer?
    try check(call(&out))
    guard let out else {
        throw SiskinError(.null, place: "library", message: "gave nothing; please tell its makers")
    }
    return out
}

/// Passes the UTF-8 bytes of a text to `body`.
func withText<T>(_ text: String, _ body: (UnsafePointer<CChar>?, Int) -> T) -> T {
    var text = text
    return text.withUTF8 { bytes in
        bytes.withMemoryRebound(to: CChar.self) { body($0.baseAddress, $0.count) }
    }
}

/// Passes the bytes of data to `body`.
func withBytes<T>(_ data: Data, _ body: (UnsafePointer<UInt8>?, Int) -> T) -> T {
    data.withUnsafeBytes { bytes in
        bytes.withMemoryRebound(to: UInt8.self) { body($0.baseAddress, $0.count) }
    }
}

/// Copies a text that the library owns.
func text(_ start: UnsafePointer<CChar>?, _ length: Int) -> String {
    String(decoding: UnsafeRawBufferPointer(start: start, count: length), as: UTF8.self)
}

/// Copies values that the library owns.
func values<T>(_ start: UnsafePointer<T>?, _ count: Int) -> [T] {
    Array(UnsafeBufferPointer(start: start, count: start == nil ? 0 : count))
}

/// Returns a struct that the library fills, with `struct_size` set.
func filled<T>(
    _ empty: T,
    _ size: WritableKeyPath<T, Int>,
    _ call: (inout T) -> OpaquePointer?
) throws(SiskinError) -> T {
    var filled = empty
    filled[keyPath: size] = MemoryLayout<T>.stride
    try check(call(&filled))
    return filled
}

/// Converts a number, which must not be negative and must fit the type of the header.
func number<T: FixedWidthInteger>(_ value: Int, _ place: String, as type: T.Type = T.self) throws(SiskinError) -> T {
    guard value >= 0, let number = T(exactly: value) else {
        throw SiskinError(.argument, place: place, message: "\(value) is out of range; give 0 to \(T.max)")
    }
    return number
}

/// Returns the path of a file URL.
func path(_ url: URL) throws(SiskinError) -> String {
    guard url.isFileURL else {
        throw SiskinError(.argument, place: url.absoluteString, message: "is not a file; models are never downloaded")
    }
    return url.path(percentEncoded: false)
}
