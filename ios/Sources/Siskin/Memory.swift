import CSiskin

/// The memory that a session uses or would use, in bytes.
public struct Memory: Sendable, Hashable {
    /// Activations and small weights: allocated up front.
    public let activations: UInt64
    /// The KV cache: reserved up front, committed as it fills.
    public let cache: UInt64
    /// The mapped model file: clean pages, which the system may evict and read again.
    public let mapped: UInt64

    init(_ memory: siskin_memory) {
        (activations, cache, mapped) = (memory.activations, memory.cache, memory.mapped)
    }
}
