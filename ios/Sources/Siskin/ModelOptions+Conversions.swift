import CSiskin
import Foundation

extension ModelOptions {
    /// Where packed copies are kept.
    public enum PackedCache: Sendable, Hashable {
        /// In the user's cache folder.
        case userCache
        /// Nowhere: the model is packed each time.
        case disabled
        /// In this folder, which is created if it does not exist.
        case folder(URL)
    }

    /// Creates the native form of these options. `isCancelled` is polled while a model is packed.
    func makeNative(isCancelled: @escaping @Sendable () -> Bool) throws(SiskinError) -> NativeHandle {
        let handle = NativeHandle(
            try makeHandle { siskin_model_options_new(&$0) },
            "model options",
            free: { siskin_model_options_free($0) }
        )
        try handle.use { options throws(SiskinError) in
            try copy(to: options)
            try setProgress(options, isCancelled)
        }
        return handle
    }

    func copyDisabledCpuFeatures(to options: OpaquePointer) throws(SiskinError) {
        let features = disabledCPUFeatures.joined(separator: ",")
        try check(withUTF8(features) { siskin_model_options_set_disabled_cpu_features(options, $0, $1) })
    }

    func copyAdapter(to options: OpaquePointer) throws(SiskinError) {
        if let adapter {
            let path = try filePath(adapter)
            try check(withUTF8(path) { siskin_model_options_set_adapter(options, $0, $1, allowAnyBase) })
        }
        for (name, adapter) in adapters {
            let path = try filePath(adapter)
            try check(withUTF8(name) { name, nameLength in
                withUTF8(path) {
                    siskin_model_options_add_adapter(options, name, nameLength, $0, $1, allowAnyBase)
                }
            })
        }
    }

    func copyCacheMode(to options: OpaquePointer) throws(SiskinError) {
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
