// SPDX-License-Identifier: MIT OR Apache-2.0
package android.os;

/** The version of Android that the tests pretend. */
public class Build {
    public static class VERSION {
        public static int SDK_INT = 34;
    }
}
