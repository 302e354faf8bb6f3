import CSiskin
import Foundation

/// Loading models. If the task is canceled while a non-`.siskin` model is being packed, packing stops.
extension Model {
    /// Loads the model at a file URL: a `.siskin` file; if the library was built with the `import` feature, also a GGUF
    /// file, a folder of safetensors or an ONNX model, which is packed once and then loaded from the packed cache.
    ///
    /// The file is memory-mapped: it must not be written to or truncated while the model or any object created from it
    /// exists. Replacing it by renaming another file over it is safe.
    public convenience init(contentsOf url: URL, options: ModelOptions = ModelOptions()) async throws(SiskinError) {
        let path = try filePath(url)
        let handle = try await Model.load(options) { options, out in
            withUTF8(path) { siskin_model_open($0, $1, options, &out) }
        }
        self.init(handle: handle)
    }

    /// Loads a `.siskin` model from a part of an open file, which is memory-mapped and may be closed afterwards.
    ///
    /// - Parameters:
    ///   - offset: The offset of the first byte. For best alignment, use a multiple of 16384.
    ///   - length: The number of bytes; `nil` means up to the end of the file.
    public convenience init(
        fileHandle: FileHandle,
        offset: UInt64 = 0,
        length: UInt64? = nil,
        options: ModelOptions = ModelOptions()
    ) async throws(SiskinError) {
        if length == 0 {
            let message = "must not be 0; pass nil to read up to the end of the file"
            throw SiskinError(.argument, location: "length", message: message)
        }
        let file = SendableFileHandle(fileHandle)
        let handle = try await Model.load(options) { options, out in
            siskin_model_open_descriptor(file.value.fileDescriptor, offset, length ?? 0, options, &out)
        }
        self.init(handle: handle)
    }

    /// Loads a `.siskin` model from memory. For a model in a file, prefer `init(contentsOf:options:)`.
    ///
    /// - Parameter copying: Whether to copy the bytes. Otherwise they are retained as `NSData`, which may itself
    ///   make a copy.
    public convenience init(
        data: Data,
        copying: Bool = false,
        options: ModelOptions = ModelOptions()
    ) async throws(SiskinError) {
        let handle = try await Model.load(options) { options, out in
            if copying { return withBytes(data) { siskin_model_open_copy($0, $1, options, &out) } }
            // The bytes of `NSData` do not move during its lifetime; those of `Data` may.
            let kept = data as NSData
            let user = Unmanaged.passRetained(kept).toOpaque()
            let bytes = kept.bytes.assumingMemoryBound(to: UInt8.self)
            let release: siskin_release_function = { user in
                if let user { Unmanaged<NSData>.fromOpaque(user).release() }
            }
            return siskin_model_open_memory(bytes, kept.length, user, release, options, &out)
        }
        self.init(handle: handle)
    }

    /// Loads a `.siskin` model bundled as a resource in an app or package.
    public convenience init(
        resource name: String,
        withExtension fileExtension: String = "siskin",
        in bundle: Bundle = .main,
        options: ModelOptions = ModelOptions()
    ) async throws(SiskinError) {
        guard let url = bundle.url(forResource: name, withExtension: fileExtension) else {
            let message = "not a resource of \(bundle.bundlePath)"
            throw SiskinError(.io, location: "\(name).\(fileExtension)", message: message)
        }
        try await self.init(contentsOf: url, options: options)
    }

    private static func load(
        _ options: ModelOptions,
        _ open: @escaping @Sendable (OpaquePointer, inout OpaquePointer?) -> OpaquePointer?
    ) async throws(SiskinError) -> NativeHandle {
        try Library.checkVersion()
        return try await runInBackground { isCancelled throws(SiskinError) in
            let options = try options.makeNative(isCancelled: isCancelled)
            return try options.use { options throws(SiskinError) in
                NativeHandle(try makeHandle { open(options, &$0) }, "model", free: { siskin_model_free($0) })
            }
        }
    }
}

/// A file handle that its owner does not use while it is used on another thread.
private struct SendableFileHandle: @unchecked Sendable {
    let value: FileHandle
    init(_ value: FileHandle) { self.value = value }
}
