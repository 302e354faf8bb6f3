// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

internal fun SessionOptions.copyWindow(options: Long) {
    val window = slidingWindow?.let { positive("slidingWindow", it) } ?: 0
    val sinks = attentionSinks?.let { nonNegative("attentionSinks", it) } ?: 0
    NativeSessionOptions.setWindow(options, window, sinks)
}

internal fun ServedModelOptions.copyDraftModel(options: Long) {
    draftModel?.native?.withPointer { NativeServedModelOptions.setDraftModel(options, it) }
}

internal fun RequestOptions.copyStructuredOutput(options: Long) {
    structuredOutput?.copyTo(options)
}

internal fun StructuredOutput.copyTo(requestOptions: Long): Unit =
    NativeRequestOptions.setStructuredOutput(requestOptions, kind, definition.encodeToByteArray())

internal fun Sampler.copyBias(options: Long) {
    logitBias.forEach { (token, bias) -> NativeSampler.addBias(options, token, bias) }
}

internal fun Seq2SeqOptions.copyOverflow(options: Long) {
    onOverflow?.let { NativeSeq2SeqOptions.setOverflow(options, it.code, it.overlapTokens()) }
}
