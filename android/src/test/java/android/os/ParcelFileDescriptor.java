// SPDX-License-Identifier: MIT OR Apache-2.0
package android.os;

import java.io.FileDescriptor;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;

/** A fake file descriptor, for a desktop JVM. */
public class ParcelFileDescriptor {
    public static int openCount;

    private final RandomAccessFile file;

    public ParcelFileDescriptor(String path) throws IOException {
        file = new RandomAccessFile(path, "r");
        openCount++;
    }

    public int getFd() {
        try {
            Field number = FileDescriptor.class.getDeclaredField("fd");
            number.setAccessible(true);
            return number.getInt(file.getFD());
        } catch (ReflectiveOperationException | IOException error) {
            throw new IllegalStateException(error);
        }
    }

    public void close() throws IOException {
        file.close();
        openCount--;
    }
}
