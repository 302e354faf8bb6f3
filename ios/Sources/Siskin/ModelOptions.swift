import CSiskin
import Foundation

/// How a model is opened.
public struct ModelOptions: Sendable {
    /// How many threads compute; 0: one for each core that keeps up with the fastest.
    public var threads = 0
    /// Features of the processor that are not used, such as `dotprod`. The same bits come out.
    public var without: [String] = []
    /// Computes in plain words on one thread, slowly: to compare with.
    public var reference = false
    /// Layers that are left out, by their numbers from 0 on.
    public var skip: [Int] = []
    /// An adapter that `siskin train` wrote, which is put beside the model's matrices.
    public var adapter: URL?
    /// Whether the adapter is taken beside other weights than those that it was trained beside.
    public var anyBase = false
    /// Where the packed form of a model of another format is kept.
    public var cache = Cache.auto
    /// Which types the matrices of a model of another format get when it is packed, such as `w4i`; empty: those of its
    /// source, exactly.
    public var recipe = ""
    /// Is told how much of the packed form is written, in bytes; the second number is `nil` while it is not known. Says
    /// whether to go on. Calls come from threads of the library and may not call it.
    public var progress: (@Sendable (UInt64, UInt64?) -> Bool)?

    /// Where packed forms are kept.
    public enum Cache: Sendable, Hashable {
        /// In the user's cache folder.
        case auto
        /// Nowhere: the model is packed each time.
        case off
        /// In this folder, which is made where it is absent.
        case folder(URL)
    }

    /// The usual way.
    public init() {}

    /// The library's form of these options. `isStopped` is asked while a model is packed.
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
