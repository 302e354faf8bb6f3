import CSiskin

/// The memory that a session uses or would use, in bytes.
public struct MemoryUsage: Sendable, Hashable {
    /// Activations and small weights: allocated up front.
    public let activations: Int
    /// The KV cache: reserved up front, committed as it fills.
    public let kvCache: Int
    /// The memory-mapped model file: clean pages, which the system may evict and read again.
    public let mappedFile: Int

    init(_ memory: siskin_memory_usage) {
        activations = Int(clamping: memory.activations)
        kvCache = Int(clamping: memory.kv_cache)
        mappedFile = Int(clamping: memory.mapped_file)
    }
}
