// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content;

/** Who hears of changes. */
public abstract class BroadcastReceiver {
    public abstract void onReceive(Context context, Intent intent);
}
