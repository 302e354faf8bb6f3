// SPDX-License-Identifier: MIT OR Apache-2.0
package android.net;

/** A fake document: the path of a file. */
public class Uri {
    private final String path;

    public Uri(String path) {
        this.path = path;
    }

    @Override
    public String toString() {
        return path;
    }
}
