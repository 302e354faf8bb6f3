// SPDX-License-Identifier: MIT OR Apache-2.0
package android.os;

/** Changes the state of the fake device in tests. */
public final class FakeDevice {
    private FakeDevice() {}

    public static void setThermalStatus(PowerManager manager, int status) {
        manager.status = status;
        for (PowerManager.OnThermalStatusChangedListener listener : manager.listeners) {
            listener.onThermalStatusChanged(status);
        }
    }

    public static void setPowerSaveMode(PowerManager manager, boolean isPowerSaveMode) {
        manager.isPowerSaveMode = isPowerSaveMode;
    }

    public static int listenerCount(PowerManager manager) {
        return manager.listeners.size();
    }
}
