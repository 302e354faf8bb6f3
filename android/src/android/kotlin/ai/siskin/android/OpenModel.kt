// SPDX-License-Identifier: MIT OR Apache-2.0
@file:JvmName("OpenModel")

package ai.siskin.android

import ai.siskin.Model
import ai.siskin.ModelOptions
import ai.siskin.SiskinException
import ai.siskin.runInBackground
import android.content.ContentResolver
import android.content.res.AssetFileDescriptor
import android.content.res.AssetManager
import android.net.Uri
import android.os.ParcelFileDescriptor
import java.io.FileNotFoundException
import kotlinx.coroutines.runBlocking

/**
 * Opens a `.siskin` model that is an asset of the app, mapped directly from the APK. The asset must be stored
 * uncompressed: `android { androidResources { noCompress += "siskin" } }`.
 */
public suspend fun Model.Companion.open(
    assets: AssetManager,
    name: String,
    options: ModelOptions = ModelOptions(),
): Model {
    val advice = "no such uncompressed asset; add noCompress += \"siskin\" to androidResources"
    val asset = openDescriptor(name, advice) { assets.openFd(name) }
    return asset.closing {
        val length = asset.length.takeUnless { it == AssetFileDescriptor.UNKNOWN_LENGTH }
        openFileDescriptor(asset.parcelFileDescriptor.fd, asset.startOffset, length, options)
    }
}

/** Opens a `.siskin` model from an open file. The descriptor remains the caller's and may be closed afterwards. */
public suspend fun Model.Companion.open(
    descriptor: ParcelFileDescriptor,
    options: ModelOptions = ModelOptions(),
): Model {
    try {
        return openFileDescriptor(descriptor.fd, options = options)
    } finally {
        // Keeps the descriptor reachable: its finalizer closes the file.
        synchronized(descriptor) {}
    }
}

/** Opens a `.siskin` model from a document of the Storage Access Framework, without a copy. */
public suspend fun Model.Companion.open(
    resolver: ContentResolver,
    document: Uri,
    options: ModelOptions = ModelOptions(),
): Model {
    val file = openDescriptor("$document", "the document does not exist; ask the user to choose it again") {
        resolver.openFileDescriptor(document, "r") ?: throw FileNotFoundException()
    }
    return file.closing { open(file, options) }
}

/** Opens an asset like [open], and blocks; for Java. Interrupting the thread cancels the call. */
@JvmOverloads
@Throws(InterruptedException::class)
public fun openAssetBlocking(assets: AssetManager, name: String, options: ModelOptions = ModelOptions()): Model =
    runBlocking { Model.open(assets, name, options) }

/** Opens a document like [open], and blocks; for Java. Interrupting the thread cancels the call. */
@JvmOverloads
@Throws(InterruptedException::class)
public fun openDocumentBlocking(
    resolver: ContentResolver,
    document: Uri,
    options: ModelOptions = ModelOptions(),
): Model = runBlocking { Model.open(resolver, document, options) }

/** Opens a descriptor on a background thread. */
private suspend fun <T : Any> openDescriptor(name: String, advice: String, open: () -> T): T =
    runInBackground({}, ::close) {
        try {
            open()
        } catch (error: FileNotFoundException) {
            throw SiskinException.Io(name, advice).apply { initCause(error) }
        }
    }

/** Android 4.1, whose stub classes this is compiled against, has no `Closeable` `AssetFileDescriptor`. */
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
