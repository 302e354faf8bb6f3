import CSiskin
import Foundation

/// A handle of the library. Calls borrow it; it is freed once it is closed or unreachable, and the last call has
/// returned it.
final class Owner: @unchecked Sendable {
    // The fields below are guarded by the lock.
    private let lock = NSLock()
    private var pointer: OpaquePointer?
    private var users = 0
    private var isClosed = false
    private let kind: String
    private let free: @Sendable (OpaquePointer?) -> Void

    /// Takes ownership of a handle; `kind` is its name in errors.
    init(_ pointer: OpaquePointer, _ kind: String, free: @escaping @Sendable (OpaquePointer?) -> Void) {
        self.pointer = pointer
        self.kind = kind
        self.free = free
    }

    deinit { free(pointer) }

    /// Lends the handle while `body` runs.
    func lend<T>(_ body: (OpaquePointer) throws(SiskinError) -> T) throws(SiskinError) -> T {
        let pointer = try enter()
        defer { leave() }
        return try body(pointer)
    }

    /// Rejects further calls, and frees the handle as soon as no call uses it.
    func close() {
        lock.lock()
        isClosed = true
        let unused = takeUnused()
        lock.unlock()
        free(unused)
    }

    private func enter() throws(SiskinError) -> OpaquePointer {
        lock.lock()
        defer { lock.unlock() }
        guard !isClosed, let pointer else {
            throw SiskinError(.state, place: kind, message: "is closed; open another")
        }
        users += 1
        return pointer
    }

    private func leave() {
        lock.lock()
        users -= 1
        let unused = takeUnused()
        lock.unlock()
        free(unused)
    }

    /// Takes the handle if it is closed and unused.
    private func takeUnused() -> OpaquePointer? {
        guard isClosed, users == 0 else { return nil }
        defer { pointer = nil }
        return pointer
    }
}
