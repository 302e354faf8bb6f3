import CSiskin
import Foundation

/// A device that runs models.
public enum Device: Sendable, Hashable {
    /// The fastest device that this build supports.
    case auto
    /// The CPU.
    case cpu
    /// Scalar code on one thread of the CPU, slow, for comparison.
    case reference

    /// The constant of the header.
    var native: siskin_device {
        switch self {
        case .auto: SISKIN_DEVICE_AUTO
        case .cpu: SISKIN_DEVICE_CPU
        case .reference: SISKIN_DEVICE_REFERENCE
        }
    }
}

/// Options of loading a model. `nil` means the default.
public struct ModelOptions: Sendable {
    /// The number of worker threads. Default: one per performance core.
    public var threads: Int?
    /// CPU features that are not used, such as `dotprod`. Results are bit-identical.
    public var disabledCPUFeatures: [String]
    /// The device that the model runs on.
    public var device: Device
    /// Layers to skip, by index from 0.
    public var skipLayers: [Int]
    /// A LoRA or DoRA adapter written by `siskin train`.
    public var adapter: URL?
    /// Whether to accept an adapter that was trained on other base weights.
    public var allowAnyBase: Bool
    /// Where the packed copy of a non-`.siskin` model is kept.
    public var packedCache: PackedCache
    /// The weight types that the matrices of a non-`.siskin` model are converted to, such as `w4i`. Default: those of
    /// the source, exactly.
    public var recipe: String?
    /// Reports packing progress: the number of bytes written so far, and the total number of bytes, `nil` while it is
    /// unknown. Returns whether to continue. It is called from threads of the library, and must not use this package.
    public var onProgress: (@Sendable (_ written: Int, _ total: Int?) -> Bool)?

    /// Where packed copies are kept.
    public enum PackedCache: Sendable, Hashable {
        /// In the user's cache folder.
        case userCache
        /// Nowhere: the model is packed each time.
        case disabled
        /// In this folder, which is created if it does not exist.
        case folder(URL)
    }

    /// Creates options.
    public init(
        threads: Int? = nil,
        disabledCPUFeatures: [String] = [],
        device: Device = .auto,
        skipLayers: [Int] = [],
        adapter: URL? = nil,
        allowAnyBase: Bool = false,
        packedCache: PackedCache = .userCache,
        recipe: String? = nil,
        onProgress: (@Sendable (_ written: Int, _ total: Int?) -> Bool)? = nil
    ) {
        self.threads = threads
        self.disabledCPUFeatures = disabledCPUFeatures
        self.device = device
        self.skipLayers = skipLayers
        self.adapter = adapter
        self.allowAnyBase = allowAnyBase
        self.packedCache = packedCache
        self.recipe = recipe
        self.onProgress = onProgress
    }

    /// Creates the native form of these options. `isCancelled` is polled while a model is packed.
    func makeNative(isCancelled: @escaping @Sendable () -> Bool) throws(SiskinError) -> NativeHandle {
        let handle = NativeHandle(
            try makeHandle { siskin_model_options_new(&$0) },
            "model options",
            free: { siskin_model_options_free($0) }
        )
        try handle.use { options throws(SiskinError) in
            if let threads { try check(siskin_model_options_set_threads(options, try native(threads, "threads"))) }
            let features = disabledCPUFeatures.joined(separator: ",")
            try check(withUTF8(features) { siskin_model_options_set_disabled_cpu_features(options, $0, $1) })
            try check(siskin_model_options_set_device(options, device.native))
            var layers: [UInt32] = []
            for layer in skipLayers { layers.append(try native(layer, "skipLayers")) }
            try check(siskin_model_options_set_skip_layers(options, layers, layers.count))
            if let adapter {
                let path = try filePath(adapter)
                try check(withUTF8(path) { siskin_model_options_set_adapter(options, $0, $1, allowAnyBase) })
            }
            try setPackedCache(options)
            if let recipe { try check(withUTF8(recipe) { siskin_model_options_set_recipe(options, $0, $1) }) }
            try setProgress(options, isCancelled)
        }
        return handle
    }

    private func setPackedCache(_ options: OpaquePointer) throws(SiskinError) {
        switch packedCache {
        case .userCache: try check(siskin_model_options_set_cache_mode(options, SISKIN_CACHE_AUTO))
        case .disabled: try check(siskin_model_options_set_cache_mode(options, SISKIN_CACHE_OFF))
        case .folder(let folder):
            try check(withUTF8(try filePath(folder)) { siskin_model_options_set_cache_folder(options, $0, $1) })
        }
    }

    private func setProgress(
        _ options: OpaquePointer,
        _ isCancelled: @escaping @Sendable () -> Bool
    ) throws(SiskinError) {
        let handler = ProgressHandler { [onProgress] written, total in
            !isCancelled() && onProgress?(written, total) ?? true
        }
        let callback: siskin_progress_function = { user, written, total in
            guard let user else { return true }
            let handler = Unmanaged<ProgressHandler>.fromOpaque(user).takeUnretainedValue()
            return handler.call(Int(clamping: written), total == 0 ? nil : Int(clamping: total))
        }
        let user = Unmanaged.passRetained(handler).toOpaque()
        try check(siskin_model_options_set_progress(options, callback, user) { user in
            if let user { Unmanaged<ProgressHandler>.fromOpaque(user).release() }
        })
    }

    private final class ProgressHandler: Sendable {
        let call: @Sendable (Int, Int?) -> Bool
        init(_ call: @escaping @Sendable (Int, Int?) -> Bool) { self.call = call }
    }
}
