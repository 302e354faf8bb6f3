// SPDX-License-Identifier: MIT OR Apache-2.0
package android.os;

/** The Android version that the tests simulate. */
public class Build {
    public static class VERSION {
        public static int SDK_INT = 34;
    }
}
