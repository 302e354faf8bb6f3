import CSiskin

/// Sliding-window attention with attention sinks.
public struct SlidingWindow: Sendable, Hashable {
    /// The number of newest tokens that are attended to.
    public var recent: Int
    /// The number of oldest tokens that are attended to as well (attention sinks).
    public var sinks: Int

    /// Creates a sliding window, by default without attention sinks, unlike `siskin --attention-sinks`, whose default
    /// is 4.
    public init(recent: Int, sinks: Int = 0) { (self.recent, self.sinks) = (recent, sinks) }
}

extension SessionOptions {
    func copyWindow(to options: OpaquePointer) throws(SiskinError) {
        guard let window else { return }
        let recent: Int = try native(window.recent, "recent")
        try check(siskin_session_options_set_window(options, recent, try native(window.sinks, "sinks")))
    }
}
