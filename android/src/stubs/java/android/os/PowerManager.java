// SPDX-License-Identifier: MIT OR Apache-2.0
package android.os;

import java.util.ArrayList;
import java.util.List;

/** Declares APIs that are newer than the stub classes on Maven Central, and simulates a device in tests. */
public final class PowerManager {
    public static final String ACTION_POWER_SAVE_MODE_CHANGED = "android.os.action.POWER_SAVE_MODE_CHANGED";

    public interface OnThermalStatusChangedListener {
        void onThermalStatusChanged(int status);
    }

    final List<OnThermalStatusChangedListener> listeners = new ArrayList<>();
    int status;
    boolean isPowerSaveMode;

    public boolean isPowerSaveMode() {
        return isPowerSaveMode;
    }

    public void addThermalStatusListener(OnThermalStatusChangedListener listener) {
        listeners.add(listener);
        listener.onThermalStatusChanged(status);
    }

    public void removeThermalStatusListener(OnThermalStatusChangedListener listener) {
        listeners.remove(listener);
    }
}
