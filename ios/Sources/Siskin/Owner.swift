import CSiskin
import Foundation

/// A handle of the library. Calls borrow it; it is freed once it is closed, or nobody knows it any more, and the last
/// call has given it back.
final class Owner: @unchecked Sendable {
    // What follows the lock is only touched by who holds it.
    private let lock = NSLock()
    private var pointer: OpaquePointer?
    private var users = 0
    private var isClosed = false
    private let kind: String
    private let free: @Sendable (OpaquePointer?) -> Void

    /// Takes over a handle of the `kind` that errors name.
    init(_ pointer: OpaquePointer, _ kind: String, free: @escaping @Sendable (OpaquePointer?) -> Void) {
        self.pointer = pointer
        self.kind = kind
        self.free = free
    }

    deinit { free(pointer) }

    /// Lends the handle for as long as `body` runs.
    func lend<T>(_ body: (OpaquePointer) throws(SiskinError) -> T) throws(SiskinError) -> T {
        let pointer = try enter()
        defer { leave() }
        return try body(pointer)
    }

    /// Lends it no more, and frees it as soon as nobody has it.
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

    /// The handle, where nobody may have it any more; from then on there is none.
    private func takeUnused() -> OpaquePointer? {
        guard isClosed, users == 0 else { return nil }
        defer { pointer = nil }
        return pointer
    }
}
