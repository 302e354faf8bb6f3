import CSiskin
import Foundation

/// Options of opening a model.
public struct ModelOptions: Sendable {
    /// The number of worker threads; 0: one for each core that is about as fast as the fastest.
    public var threads = 0
    /// CPU features that are not used, such as `dotprod`. Results are bit-identical.
    public var without: [String] = []
    /// Computes with the scalar reference kernels on one thread, slowly: for comparison.
    public var reference = false
    /// Layers to skip, by index from 0.
    public var skip: [Int] = []
    /// A LoRA or DoRA adapter that `siskin train` wrote.
    public var adapter: URL?
    /// Whether to accept the adapter for other base weights than those that it was trained on.
    public var anyBase = false
    /// Where the packed form of a model in another format is kept.
    public var cache = Cache.auto
    /// The weight types that the matrices of a model in another format are converted to, such as `w4i`; empty: those of
    /// the source, exactly.
    public var recipe = ""
    /// Receives the number of bytes of the packed form written so far, and the total, `nil` while it is unknown.
    /// Returns whether to continue. Calls come from threads of the library and must not call it.
    public var progress: (@Sendable (UInt64, UInt64?) -> Bool)?

    /// Where packed forms are kept.
    public enum Cache: Sendable, Hashable {
        /// In the user's cache folder.
        case auto
        /// No cache: the model is packed each time.
        case off
        /// In this folder, which is created if it does not exist.
        case folder(URL)
    }

    /// The defaults.
    public init() {}

    /// Creates the native form of these options. `isStopped` is polled while a model is packed.
    func native(isStopped: @escaping @Sendable () -> Bool) throws(SiskinError) -> Owner {
        let owner = Owner(try made { siskin_model_options_new(&$0) }, "model options", free: { siskin_model_options_free($0) })
        try owner.lend { native throws(SiskinError) in
            try check(siskin_model_options_set_threads(native, try number(threads, "threads")))
            try check(withText(without.joined(separator: ",")) { siskin_model_options_set_without(native, $0, $1) })
            try check(siskin_model_options_set_reference(native, reference))
            var layers: [UInt32] = []
            for layer in skip { layers.append(try number(layer, "skip")) }
            try check(siskin_model_options_set_skip(native, layers, layers.count))
            if let adapter {
                let file = try path(adapter)
                try check(withText(file) { siskin_model_options_set_adapter(native, $0, $1, anyBase) })
            }
            try setCache(native)
            try check(withText(recipe) { siskin_model_options_set_recipe(native, $0, $1) })
            try setProgress(native, isStopped)
        }
        return owner
    }

    private func setCache(_ native: OpaquePointer) throws(SiskinError) {
        switch cache {
        case .auto: try check(siskin_model_options_set_cache(native, UInt32(SISKIN_CACHE_AUTO)))
        case .off: try check(siskin_model_options_set_cache(native, UInt32(SISKIN_CACHE_OFF)))
        case .folder(let folder):
            try check(withText(try path(folder)) { siskin_model_options_set_cache_folder(native, $0, $1) })
        }
    }

    private func setProgress(_ native: OpaquePointer, _ isStopped: @escaping @Sendable () -> Bool) throws(SiskinError) {
        let told = Told { [progress] done, total in !isStopped() && progress?(done, total) ?? true }
        let forward: siskin_progress_function = { user, done, total in
            guard let user else { return true }
            return Unmanaged<Told>.fromOpaque(user).takeUnretainedValue().function(done, total == 0 ? nil : total)
        }
        let user = Unmanaged.passRetained(told).toOpaque()
        try check(siskin_model_options_set_progress(native, forward, user) { user in
            if let user { Unmanaged<Told>.fromOpaque(user).release() }
        })
    }

    private final class Told: Sendable {
        let function: @Sendable (UInt64, UInt64?) -> Bool
        init(_ function: @escaping @Sendable (UInt64, UInt64?) -> Bool) { self.function = function }
    }
}
