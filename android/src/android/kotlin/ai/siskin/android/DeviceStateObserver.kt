// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.android

import ai.siskin.Model
import ai.siskin.PowerState
import ai.siskin.SiskinException
import ai.siskin.ThermalState
import android.content.BroadcastReceiver
import android.content.Context
import android.content.Intent
import android.content.IntentFilter
import android.os.BatteryManager
import android.os.Build
import android.os.PowerManager

/**
 * Passes the thermal and power state of the device to models until it is closed. Models slow down accordingly if they
 * are throttled: `model.throttle = Throttle.Adaptive`. Android reports the thermal state from version 10 (API level 29)
 * on.
 */
public class DeviceStateObserver(context: Context, private vararg val models: Model) : AutoCloseable {
    private val app = context.applicationContext ?: context
    private val manager = app.getSystemService(Context.POWER_SERVICE) as PowerManager
    private val thermalObserver =
        if (Build.VERSION.SDK_INT >= 29) ThermalStatusObserver(manager, ::onThermalStatus) else null
    private var batteryLevel: Float? = null
    private var isPluggedIn = true

    private val receiver = object : BroadcastReceiver() {
        override fun onReceive(context: Context, intent: Intent) = onPowerIntent(intent)
    }

    init {
        val filter = IntentFilter(Intent.ACTION_BATTERY_CHANGED)
        filter.addAction(PowerManager.ACTION_POWER_SAVE_MODE_CHANGED)
        // Returns the sticky intent with the current battery state.
        app.registerReceiver(receiver, filter)?.let(::onPowerIntent)
    }

    override fun close() {
        thermalObserver?.close()
        app.unregisterReceiver(receiver)
    }

    private fun onThermalStatus(status: Int) {
        val state = ThermalState.entries[status.coerceIn(ThermalState.entries.indices)]
        updateModels { updateThermalState(state) }
    }

    private fun onPowerIntent(intent: Intent) {
        if (intent.action == Intent.ACTION_BATTERY_CHANGED) {
            val scale = intent.getIntExtra(BatteryManager.EXTRA_SCALE, -1)
            val level = intent.getIntExtra(BatteryManager.EXTRA_LEVEL, -1)
            batteryLevel = if (scale > 0 && level >= 0) (level.toFloat() / scale).coerceAtMost(1f) else null
            isPluggedIn = intent.getIntExtra(BatteryManager.EXTRA_PLUGGED, 1) != 0
        }
        val state = PowerState(manager.isPowerSaveMode, isOnBattery = !isPluggedIn, batteryLevel)
        updateModels { updatePowerState(state) }
    }

    private inline fun updateModels(update: Model.() -> Unit) {
        for (model in models) {
            try {
                model.update()
            } catch (_: SiskinException.Closed) {
                // Sessions of a closed model keep its last state.
            }
        }
    }
}

/** A separate class, because the listener interface does not exist before API level 29. */
private class ThermalStatusObserver(private val manager: PowerManager, onStatus: (Int) -> Unit) : AutoCloseable {
    private val listener = PowerManager.OnThermalStatusChangedListener { onStatus(it) }

    init {
        manager.addThermalStatusListener(listener)
    }

    override fun close() = manager.removeThermalStatusListener(listener)
}
