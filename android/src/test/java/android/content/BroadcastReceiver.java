// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content;

/** A fake broadcast receiver. */
public abstract class BroadcastReceiver {
    public abstract void onReceive(Context context, Intent intent);
}
