// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content;

/** A fake intent filter. */
public class IntentFilter {
    public IntentFilter(String action) {}

    public final void addAction(String action) {}
}
