// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content;

/** A fake receiver of broadcasts. */
public abstract class BroadcastReceiver {
    public abstract void onReceive(Context context, Intent intent);
}
