import Foundation

/// Whether a session is paused, and the tasks that wait until it is resumed.
final class PauseGate: @unchecked Sendable {
    private let lock = NSLock()
    // Guarded by the lock.
    private var isPaused = false
    private var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
    private var lastID: UInt64 = 0

    /// Pauses the session; `pauseSession` calls the library.
    func pause(_ pauseSession: () throws(SiskinError) -> Void) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        try pauseSession()
        isPaused = true
    }

    /// Resumes the session and all waiting tasks; `resumeSession` calls the library.
    func resume(_ resumeSession: () throws(SiskinError) -> Void) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        try resumeSession()
        open()
    }

    /// Resumes all waiting tasks: the session is closed, and cannot be paused any more.
    func close() {
        lock.lock()
        defer { lock.unlock() }
        open()
    }

    /// Makes all waiting tasks check their condition again.
    func wake() {
        lock.lock()
        defer { lock.unlock() }
        resumeAll()
    }

    private func open() {
        isPaused = false
        resumeAll()
    }

    private func resumeAll() {
        waiting.values.forEach { $0.resume() }
        waiting = [:]
    }

    /// Waits until the session is resumed, the task is canceled, or `isOver` is true on a wake-up.
    func wait(isolation: isolated (any Actor)? = #isolation, unless isOver: () -> Bool) async {
        let id = lock.withLock {
            lastID += 1
            return lastID
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation(isolation: isolation) { continuation in
                lock.lock()
                let waits = isPaused && !Task.isCancelled && !isOver()
                if waits { waiting[id] = continuation }
                lock.unlock()
                if !waits { continuation.resume() }
            }
        } onCancel: {
            lock.withLock { waiting.removeValue(forKey: id) }?.resume()
        }
    }
}
