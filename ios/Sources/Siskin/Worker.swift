import CSiskin
import Dispatch
import Foundation

/// Runs the jobs of one actor, one after the other, on its own threads: native calls take seconds, and must not block
/// the cooperative thread pool.
final class Queue: SerialExecutor {
    private let queue: DispatchQueue

    init(_ name: String) {
        queue = DispatchQueue(label: "siskin.\(name)", qos: .userInitiated)
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}

/// Runs work that belongs to no actor, such as opening a model, on its own thread. `isStopped` returns whether the task
/// was cancelled meanwhile.
func aside<T: Sendable>(
    _ work: @escaping @Sendable (_ isStopped: @escaping @Sendable () -> Bool) throws(SiskinError) -> T
) async throws(SiskinError) -> T {
    let flag = Flag()
    let result: Result<T, SiskinError> = await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
            DispatchQueue.global(qos: .userInitiated).async {
                continuation.resume(returning: caught { () throws(SiskinError) in
                    if flag.isSet { throw SiskinError(.cancelled, place: "task", message: "was cancelled") }
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
private final class Flag: @unchecked Sendable {
    private let lock = NSLock()
    private var value = false
    var isSet: Bool { lock.withLock { value } }
    func set() { lock.withLock { value = true } }
}

/// Returns what a call returns or throws.
func caught<T>(_ call: () throws(SiskinError) -> T) -> Result<T, SiskinError> {
    do { return .success(try call()) } catch { return .failure(error) }
}

/// A handle that does long-running work for an actor, and its stop handle.
///
/// A stop affects the calls that were announced before it, and no others: one that comes too late is cleared.
final class Worker: @unchecked Sendable {
    /// The handle.
    let owner: Owner
    private let stopper: Owner
    // The fields below are guarded by the lock.
    private let lock = NSLock()
    /// The number of the last announced call.
    private var announced: UInt64 = 0
    /// The number of the current call, or of the last one.
    private var turn: UInt64 = 0
    private var isRunning = false
    private var isStopped = false
    /// Calls up to this number were stopped.
    private var stopped: UInt64 = 0
    /// Whether a stop came between the calls that generate an answer.
    private var stopsAnswer = false
    /// The call that was last ended by such a stop.
    private var ended: UInt64 = 0
    /// A call that was cancelled before it began.
    private var cancelled: UInt64 = 0

    init(_ owner: Owner, stopper: (OpaquePointer, inout OpaquePointer?) -> OpaquePointer?) throws(SiskinError) {
        self.owner = owner
        let pointer = try owner.lend { handle throws(SiskinError) in try made { stopper(handle, &$0) } }
        self.stopper = Owner(pointer, "stop", free: { siskin_stop_free($0) })
    }

    /// Announces a call: stops affect it from now on, including while it waits for its turn. It may consist of several
    /// parts, and may be repeated.
    func announce() -> UInt64 {
        lock.lock()
        defer { lock.unlock() }
        announced += 1
        return announced
    }

    /// Makes a call, which is stopped by the task's cancellation and is announced now if it was not before. A call that
    /// continues an answer is also ended by a stop that came before it.
    func run<T: Sendable>(
        _ call: UInt64? = nil,
        goesOn: Bool = false,
        isolation: isolated (any Actor)? = #isolation,
        _ body: @Sendable (OpaquePointer) throws(SiskinError) -> T
    ) async throws(SiskinError) -> T {
        let call = call ?? announce()
        give(call)
        let result = await withTaskCancellationHandler {
            // A closure without isolation to its actor would run on the cooperative thread pool.
            isolation?.assertIsolated()
            return caught { () throws(SiskinError) in
                try begin(call, goesOn)
                defer { end() }
                return try owner.lend(body)
            }
        } onCancel: {
            cancel(call)
        }
        return try result.get()
    }

    /// Stops the running call and those that wait for their turn, or the current answer.
    func stop() {
        lock.lock()
        defer { lock.unlock() }
        stopped = announced
        if isRunning { stopNow() } else { stopsAnswer = true }
    }

    /// Whether a stop affects an announced call.
    func isStopped(_ call: UInt64) -> Bool {
        lock.lock()
        defer { lock.unlock() }
        return call <= stopped || call == ended
    }

    /// Stops the running call again if it was stopped before: the library may have cleared the stop on a suspension.
    func stopAgain() {
        lock.lock()
        defer { lock.unlock() }
        if isRunning && isStopped { stopNow() }
    }

    /// Stops the running call, and rejects further ones.
    func close() {
        owner.close()
        lock.lock()
        defer { lock.unlock() }
        guard isRunning else { return }
        stopped = max(stopped, turn)
        stopNow()
    }

    private func give(_ call: UInt64) {
        lock.lock()
        defer { lock.unlock() }
        turn = call
    }

    private func begin(_ call: UInt64, _ goesOn: Bool) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        let endsAnswer = goesOn && stopsAnswer
        stopsAnswer = false
        if endsAnswer {
            ended = call
            throw SiskinError(.cancelled, place: "session", message: "was stopped; ask for the next piece to go on")
        }
        if call <= stopped { throw SiskinError(.cancelled, place: "call", message: "was stopped before it began") }
        if cancelled == call {
            throw SiskinError(.cancelled, place: "task", message: "was cancelled before the call began")
        }
        isRunning = true
    }

    private func end() {
        lock.lock()
        defer { lock.unlock() }
        isRunning = false
        if isStopped { try? withdraw() }
        isStopped = false
    }

    private func cancel(_ call: UInt64) {
        lock.lock()
        defer { lock.unlock() }
        guard turn == call else { return }
        if isRunning { stopNow() } else { cancelled = call }
    }

    private func stopNow() {
        isStopped = true
        try? stopper.lend { stop throws(SiskinError) in try check(siskin_stop_now(stop)) }
    }

    private func withdraw() throws(SiskinError) {
        try stopper.lend { stop throws(SiskinError) in try check(siskin_stop_withdraw(stop)) }
    }
}
