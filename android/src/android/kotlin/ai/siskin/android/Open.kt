// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.android

import ai.siskin.Model
import ai.siskin.ModelOptions
import ai.siskin.SiskinException
import ai.siskin.aside
import android.content.ContentResolver
import android.content.res.AssetFileDescriptor
import android.content.res.AssetManager
import android.net.Uri
import android.os.ParcelFileDescriptor
import java.io.FileNotFoundException

/**
 * Opens a `.siskin` model that is an asset of the app, directly from the package. It must be stored uncompressed:
 * `android { androidResources { noCompress += "siskin" } }`.
 */
public suspend fun Model.Companion.open(
    assets: AssetManager,
    name: String,
    options: ModelOptions = ModelOptions(),
): Model {
    val asset = found(name, "is not there, or compressed: give noCompress += \"siskin\" to androidResources") {
        assets.openFd(name)
    }
    return asset.closing {
        val length = if (asset.length == AssetFileDescriptor.UNKNOWN_LENGTH) 0 else asset.length
        openDescriptor(asset.parcelFileDescriptor.fd, asset.startOffset, length, options)
    }
}

/** Opens a `.siskin` model in an open file, which remains the caller's and may be closed afterwards. */
public suspend fun Model.Companion.open(
    descriptor: ParcelFileDescriptor,
    options: ModelOptions = ModelOptions(),
): Model {
    try {
        return openDescriptor(descriptor.fd, options = options)
    } finally {
        // Keeps the descriptor reachable: an unreachable one closes its file.
        synchronized(descriptor) {}
    }
}

/** Opens a `.siskin` model in a document that the user chose, without a copy. */
public suspend fun Model.Companion.open(
    resolver: ContentResolver,
    document: Uri,
    options: ModelOptions = ModelOptions(),
): Model {
    val file = found("$document", "is not there; let the user choose it again") {
        resolver.openFileDescriptor(document, "r") ?: throw FileNotFoundException()
    }
    return file.closing { open(file, options) }
}

/** Runs [find] on a thread of the library. */
private suspend fun <T : Any> found(name: String, advice: String, find: () -> T): T = aside({}, ::close) {
    try {
        find()
    } catch (error: FileNotFoundException) {
        throw SiskinException.Io(name, advice).apply { initCause(error) }
    }
}

/** Both descriptor types can be closed, but one of them implements `Closeable` only in newer versions of Android. */
private fun close(descriptor: Any) {
    when (descriptor) {
        is AssetFileDescriptor -> descriptor.close()
        is ParcelFileDescriptor -> descriptor.close()
    }
}

private inline fun <T : Any> T.closing(use: () -> Model): Model {
    try {
        return use()
    } finally {
        close(this)
    }
}
