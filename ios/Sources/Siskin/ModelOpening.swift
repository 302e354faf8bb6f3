import CSiskin
import Foundation

/// All ways to open a model. If the task is cancelled while a model in another format is packed, packing ends.
extension Model {
    /// Opens the model at a file URL: a `.siskin` file; if the library was built with `import`, also a GGUF file, a
    /// folder of safetensors or an ONNX model, which is packed once and then opened from the packed cache.
    ///
    /// The file is memory-mapped: it must not be written to or truncated while the model or anything created from it
    /// exists. Replacing it by renaming another file over it is safe.
    public static func open(_ url: URL, options: ModelOptions = ModelOptions()) async throws(SiskinError) -> Model {
        let path = try path(url)
        return try await opened(options) { options, out in
            withText(path) { siskin_model_open($0, $1, options, &out) }
        }
    }

    /// Opens the `.siskin` model in `length` bytes of an open file starting at `offset`; `nil`: up to the end of the
    /// file. The file may be closed afterwards. Offsets that are multiples of 16384 are best.
    public static func open(
        _ file: FileHandle,
        offset: UInt64 = 0,
        length: UInt64? = nil,
        options: ModelOptions = ModelOptions()
    ) async throws(SiskinError) -> Model {
        if length == 0 { throw SiskinError(.argument, place: "length", message: "is 0; give nil for all that follow") }
        let lent = Lent(file)
        return try await opened(options) { options, out in
            siskin_model_open_descriptor(lent.value.fileDescriptor, offset, length ?? 0, options, &out)
        }
    }

    /// Opens a `.siskin` model in memory. The bytes are kept as `NSData` as long as they are needed, which is not a
    /// copy if the system's Foundation avoids one; `copying` forces a copy. A model in a file is best opened as a file.
    public static func open(
        _ data: Data,
        copying: Bool = false,
        options: ModelOptions = ModelOptions()
    ) async throws(SiskinError) -> Model {
        if copying {
            return try await opened(options) { options, out in
                withBytes(data) { siskin_model_open_copy($0, $1, options, &out) }
            }
        }
        return try await opened(options) { options, out in
            // The bytes of `NSData` do not move during its lifetime; those of `Data` may.
            let kept = data as NSData
            let user = Unmanaged.passRetained(kept).toOpaque()
            let bytes = kept.bytes.assumingMemoryBound(to: UInt8.self)
            let release: siskin_release = { user in
                if let user { Unmanaged<NSData>.fromOpaque(user).release() }
            }
            return siskin_model_open_memory(bytes, kept.length, user, release, options, &out)
        }
    }

    /// Opens the `.siskin` model that is a resource of an app or a package.
    public static func open(
        resource: String,
        withExtension type: String = "siskin",
        in bundle: Bundle = .main,
        options: ModelOptions = ModelOptions()
    ) async throws(SiskinError) -> Model {
        guard let url = bundle.url(forResource: resource, withExtension: type) else {
            throw SiskinError(.io, place: "\(resource).\(type)", message: "is no resource of \(bundle.bundlePath)")
        }
        return try await open(url, options: options)
    }

    private static func opened(
        _ options: ModelOptions,
        _ open: @escaping @Sendable (OpaquePointer, inout OpaquePointer?) -> OpaquePointer?
    ) async throws(SiskinError) -> Model {
        try Library.checkVersion()
        return try await aside { isStopped throws(SiskinError) in
            let options = try options.native(isStopped: isStopped)
            return try options.lend { options throws(SiskinError) in
                Model(Owner(try made { open(options, &$0) }, "model", free: { siskin_model_free($0) }))
            }
        }
    }
}

/// A value that its owner does not access while it is used elsewhere.
private struct Lent<T>: @unchecked Sendable {
    let value: T
    init(_ value: T) { self.value = value }
}
