import CSiskin
import Foundation

/// A library handle. It is freed after the last call that uses it has returned, once it is closed or deinitialized.
final class NativeHandle: @unchecked Sendable {
    // The variables below are guarded by the lock.
    private let lock = NSLock()
    private var pointer: OpaquePointer?
    private var activeCalls = 0
    private var isClosed = false
    private let name: String
    private let free: @Sendable (OpaquePointer?) -> Void

    /// Takes ownership of a handle; `name` is its name in errors.
    init(_ pointer: OpaquePointer, _ name: String, free: @escaping @Sendable (OpaquePointer?) -> Void) {
        self.pointer = pointer
        self.name = name
        self.free = free
    }

    deinit { free(pointer) }

    /// Passes the handle to `body`, during which it is not freed.
    func use<T>(_ body: (OpaquePointer) throws(SiskinError) -> T) throws(SiskinError) -> T {
        let pointer = try acquire()
        defer { release() }
        return try body(pointer)
    }

    /// Rejects further calls, and frees the handle as soon as no call uses it.
    func close() {
        lock.lock()
        isClosed = true
        let unused = takeIfUnused()
        lock.unlock()
        free(unused)
    }

    private func acquire() throws(SiskinError) -> OpaquePointer {
        lock.lock()
        defer { lock.unlock() }
        guard !isClosed, let pointer else {
            throw SiskinError(.state, location: name, message: "closed; create a new one")
        }
        activeCalls += 1
        return pointer
    }

    private func release() {
        lock.lock()
        activeCalls -= 1
        let unused = takeIfUnused()
        lock.unlock()
        free(unused)
    }

    /// Takes the pointer if the handle is closed and no call uses it.
    private func takeIfUnused() -> OpaquePointer? {
        guard isClosed, activeCalls == 0 else { return nil }
        defer { pointer = nil }
        return pointer
    }
}
