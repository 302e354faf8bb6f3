// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.android

import ai.siskin.Model
import ai.siskin.SiskinException
import ai.siskin.setHeat
import ai.siskin.setPower
import android.content.BroadcastReceiver
import android.content.Context
import android.content.Intent
import android.content.IntentFilter
import android.os.BatteryManager
import android.os.Build
import android.os.PowerManager

/**
 * Reports the thermal and power state of the device to models until it is closed. Models with a pace slow down
 * accordingly: `model.setPace(Pace.Full)`. Android reports the thermal status from version 10 (API level 29) on.
 */
public class DeviceWatch(context: Context, private vararg val models: Model) : AutoCloseable {
    private val app = context.applicationContext ?: context
    private val manager = app.getSystemService(Context.POWER_SERVICE) as PowerManager
    private val heat = if (Build.VERSION.SDK_INT >= 29) HeatWatch(manager, ::onHeat) else null
    private var battery: Float? = null
    private var isPlugged = true

    private val receiver = object : BroadcastReceiver() {
        override fun onReceive(context: Context, intent: Intent) = onPower(intent)
    }

    init {
        val changes = IntentFilter(Intent.ACTION_BATTERY_CHANGED)
        changes.addAction(PowerManager.ACTION_POWER_SAVE_MODE_CHANGED)
        // The sticky intent with the last battery state is returned immediately.
        app.registerReceiver(receiver, changes)?.let(::onPower)
    }

    override fun close() {
        heat?.close()
        app.unregisterReceiver(receiver)
    }

    private fun onHeat(status: Int) = tell { setHeat(status.coerceIn(0, 6)) }

    private fun onPower(intent: Intent) {
        if (intent.action == Intent.ACTION_BATTERY_CHANGED) {
            val scale = intent.getIntExtra(BatteryManager.EXTRA_SCALE, -1)
            val level = intent.getIntExtra(BatteryManager.EXTRA_LEVEL, -1)
            battery = if (scale > 0 && level >= 0) (level.toFloat() / scale).coerceAtMost(1f) else null
            isPlugged = intent.getIntExtra(BatteryManager.EXTRA_PLUGGED, 1) != 0
        }
        tell { setPower(manager.isPowerSaveMode, !isPlugged, battery) }
    }

    private inline fun tell(news: Model.() -> Unit) {
        for (model in models) {
            try {
                model.news()
            } catch (_: SiskinException.Closed) {
                // Sessions of a closed model keep its last pace.
            }
        }
    }
}

/** In a separate class, because older versions of Android lack this listener interface. */
private class HeatWatch(private val manager: PowerManager, told: (Int) -> Unit) : AutoCloseable {
    private val listener = PowerManager.OnThermalStatusChangedListener { told(it) }

    init {
        manager.addThermalStatusListener(listener)
    }

    override fun close() = manager.removeThermalStatusListener(listener)
}
