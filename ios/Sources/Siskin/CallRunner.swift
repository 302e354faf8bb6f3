import CSiskin
import Dispatch
import Foundation

/// Runs the jobs of one actor, one after the other, on its own threads: native calls take seconds, and must not block
/// the cooperative thread pool.
final class SerialQueueExecutor: SerialExecutor {
    private let queue: DispatchQueue

    init(_ name: String) {
        queue = DispatchQueue(label: "siskin.\(name)", qos: .userInitiated)
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}

/// Runs work that belongs to no actor, such as loading a model, outside the cooperative thread pool. `isCancelled`
/// returns whether the task was canceled meanwhile.
func runInBackground<T: Sendable>(
    _ work: @escaping @Sendable (_ isCancelled: @escaping @Sendable () -> Bool) throws(SiskinError) -> T
) async throws(SiskinError) -> T {
    let flag = CancelFlag()
    let result: Result<T, SiskinError> = await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
            DispatchQueue.global(qos: .userInitiated).async {
                continuation.resume(returning: Result { () throws(SiskinError) in
                    if flag.isSet { throw SiskinError(.canceled, location: "task", message: "was canceled") }
                    return try work { flag.isSet }
                })
            }
        }
    } onCancel: {
        flag.set()
    }
    return try result.get()
}

/// A flag that any thread may set.
private final class CancelFlag: @unchecked Sendable {
    private let lock = NSLock()
    private var value = false
    var isSet: Bool { lock.withLock { value } }
    func set() { lock.withLock { value = true } }
}

/// Runs the calls of a handle for an actor, and cancels them.
///
/// Each call has a number. A cancellation affects the calls that were registered before it, and no others: one that a
/// call did not notice is reset when the call ends.
final class CallRunner: @unchecked Sendable {
    /// The handle that calls use.
    let handle: NativeHandle
    private let cancelHandle: NativeHandle
    // The variables below are guarded by the lock.
    private let lock = NSLock()
    /// The number of the last registered call.
    private var lastRegistered: UInt64 = 0
    /// The number of the current call, or of the last one.
    private var current: UInt64 = 0
    private var isRunning = false
    /// Whether the library was asked to cancel the running call.
    private var isCancelRequested = false
    /// All calls up to this number are canceled.
    private var lastCanceled: UInt64 = 0
    /// Whether `cancel()` was called between two calls that generate the same response.
    private var cancelsAnswer = false
    /// The last call that failed because of `cancelsAnswer`.
    private var endedAnswer: UInt64 = 0
    /// A call whose task was canceled before it began.
    private var canceledBeforeStart: UInt64 = 0

    /// Takes over a handle; `makeCancelHandle` creates its cancel handle.
    init(
        _ handle: NativeHandle,
        makeCancelHandle: (OpaquePointer, inout OpaquePointer?) -> OpaquePointer?
    ) throws(SiskinError) {
        self.handle = handle
        let pointer = try handle.use { handle throws(SiskinError) in try makeHandle { makeCancelHandle(handle, &$0) } }
        cancelHandle = NativeHandle(pointer, "cancel handle", free: { siskin_cancel_handle_free($0) })
    }

    /// Registers a call, and returns its number. `cancel()` affects it from now on, including while it waits for its
    /// turn. It may consist of several parts, and may be repeated.
    func register() -> UInt64 {
        lock.lock()
        defer { lock.unlock() }
        lastRegistered += 1
        return lastRegistered
    }

    /// Runs a call, which is canceled with its task. It is registered now if `call` is `nil`. A call that continues a
    /// response is also canceled by a `cancel()` that preceded it.
    func run<T: Sendable>(
        _ call: UInt64? = nil,
        continuesAnswer: Bool = false,
        isolation: isolated (any Actor)? = #isolation,
        _ body: @Sendable (OpaquePointer) throws(SiskinError) -> T
    ) async throws(SiskinError) -> T {
        let call = call ?? register()
        setCurrent(call)
        let result = await withTaskCancellationHandler {
            // A closure without isolation to its actor would run on the cooperative thread pool.
            isolation?.assertIsolated()
            return Result { () throws(SiskinError) in
                try begin(call, continuesAnswer)
                defer { end() }
                return try handle.use(body)
            }
        } onCancel: {
            cancel(call)
        }
        return try result.get()
    }

    /// Cancels the running call and all queued calls; if there are none, the current response.
    func cancel() {
        lock.lock()
        defer { lock.unlock() }
        lastCanceled = lastRegistered
        if isRunning { requestCancel() } else { cancelsAnswer = true }
    }

    /// Whether `cancel()` or `close()` affects a registered call.
    func isCancelled(_ call: UInt64) -> Bool {
        lock.lock()
        defer { lock.unlock() }
        return call <= lastCanceled || call == endedAnswer
    }

    /// Cancels the running call again if it was canceled before: resuming a session clears pending cancellations.
    func repeatCancel() {
        lock.lock()
        defer { lock.unlock() }
        if isRunning && isCancelRequested { requestCancel() }
    }

    /// Cancels the running call, and rejects further ones.
    func close() {
        handle.close()
        lock.lock()
        defer { lock.unlock() }
        guard isRunning else { return }
        lastCanceled = max(lastCanceled, current)
        requestCancel()
    }

    private func setCurrent(_ call: UInt64) {
        lock.lock()
        defer { lock.unlock() }
        current = call
    }

    private func begin(_ call: UInt64, _ continuesAnswer: Bool) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        let endsAnswer = continuesAnswer && cancelsAnswer
        cancelsAnswer = false
        if endsAnswer {
            endedAnswer = call
            throw SiskinError(.canceled, location: "session", message: "the response was canceled; next() continues it")
        }
        if call <= lastCanceled {
            throw SiskinError(.canceled, location: "call", message: "was canceled before it began")
        }
        if canceledBeforeStart == call {
            throw SiskinError(.canceled, location: "task", message: "was canceled before the call began")
        }
        isRunning = true
    }

    private func end() {
        lock.lock()
        defer { lock.unlock() }
        isRunning = false
        if isCancelRequested { resetCancel() }
        isCancelRequested = false
    }

    private func cancel(_ call: UInt64) {
        lock.lock()
        defer { lock.unlock() }
        guard current == call else { return }
        if isRunning { requestCancel() } else { canceledBeforeStart = call }
    }

    private func requestCancel() {
        isCancelRequested = true
        try? cancelHandle.use { cancel throws(SiskinError) in try check(siskin_cancel_handle_cancel(cancel)) }
    }

    private func resetCancel() {
        try? cancelHandle.use { cancel throws(SiskinError) in try check(siskin_cancel_handle_reset(cancel)) }
    }
}
