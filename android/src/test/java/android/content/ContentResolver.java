// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content;

import android.net.Uri;
import android.os.ParcelFileDescriptor;
import java.io.FileNotFoundException;
import java.io.IOException;

/** A fake content resolver, whose documents are files. */
public class ContentResolver {
    public final ParcelFileDescriptor openFileDescriptor(Uri uri, String mode) throws FileNotFoundException {
        try {
            return new ParcelFileDescriptor(uri.toString());
        } catch (IOException error) {
            throw new FileNotFoundException(uri.toString());
        }
    }
}
