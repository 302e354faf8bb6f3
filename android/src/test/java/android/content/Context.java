// SPDX-License-Identifier: MIT OR Apache-2.0
package android.content;

import android.os.PowerManager;

/** A fake device with a battery. */
public class Context {
    public static final String POWER_SERVICE = "power";

    public final PowerManager power = new PowerManager();
    public BroadcastReceiver receiver;
    public Intent battery;

    public Context getApplicationContext() {
        return this;
    }

    public Object getSystemService(String name) {
        return name.equals(POWER_SERVICE) ? power : null;
    }

    public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter) {
        this.receiver = receiver;
        return battery;
    }

    public void unregisterReceiver(BroadcastReceiver receiver) {
        this.receiver = null;
    }
}
