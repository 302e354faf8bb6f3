// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content.res;

import android.os.ParcelFileDescriptor;
import java.io.FileNotFoundException;
import java.io.IOException;

/** Assets stored in one file. */
public final class AssetManager {
    private final String path;
    private final long offset;
    private final long length;

    public AssetManager(String path, long offset, long length) {
        this.path = path;
        this.offset = offset;
        this.length = length;
    }

    public AssetFileDescriptor openFd(String name) throws IOException {
        if (!name.equals("chat.siskin")) throw new FileNotFoundException(name);
        return new AssetFileDescriptor(new ParcelFileDescriptor(path), offset, length);
    }
}
