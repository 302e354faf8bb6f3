// SPDX-License-Identifier: MIT OR Apache-2.0
package android.os;

/** Changes the state of the fake device in tests. */
public final class Devices {
    private Devices() {}

    public static void heat(PowerManager manager, int status) {
        manager.status = status;
        for (PowerManager.OnThermalStatusChangedListener listener : manager.listeners) {
            listener.onThermalStatusChanged(status);
        }
    }

    public static void save(PowerManager manager, boolean saving) {
        manager.saving = saving;
    }

    public static int listeners(PowerManager manager) {
        return manager.listeners.size();
    }
}
