import CSiskin

/// What a session holds in memory, or would hold, in bytes.
public struct Memory: Sendable, Hashable {
    /// Activations and small weights: taken at once.
    public let activations: UInt64
    /// Keys and values: reserved, and taken as they fill.
    public let cache: UInt64
    /// The model's file: pages of it that the system may drop and read again.
    public let mapped: UInt64

    init(_ memory: siskin_memory) {
        (activations, cache, mapped) = (memory.activations, memory.cache, memory.mapped)
    }
}
