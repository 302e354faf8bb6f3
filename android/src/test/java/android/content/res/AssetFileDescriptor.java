// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content.res;

import android.os.ParcelFileDescriptor;
import java.io.IOException;

/** A fake asset: a part of a file. */
public class AssetFileDescriptor {
    public static final long UNKNOWN_LENGTH = -1;

    private final ParcelFileDescriptor file;
    private final long offset;
    private final long length;

    public AssetFileDescriptor(ParcelFileDescriptor file, long offset, long length) {
        this.file = file;
        this.offset = offset;
        this.length = length;
    }

    public ParcelFileDescriptor getParcelFileDescriptor() {
        return file;
    }

    public long getStartOffset() {
        return offset;
    }

    public long getLength() {
        return length;
    }

    public void close() throws IOException {
        file.close();
    }
}
