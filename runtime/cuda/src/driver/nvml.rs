//! The state of NVIDIA GPUs, as the management library of the driver (NVML) reports it.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

/// The state of a GPU. What it does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuStatus {
    /// The number that NVML gives the GPU.
    pub index: u32,
    /// The product.
    pub name: String,
    /// Bytes in use by all processes.
    pub memory_used: Option<u64>,
    /// All bytes.
    pub memory_total: Option<u64>,
    /// The part of the last moments in which a kernel ran, from 0 to 1.
    pub utilization: Option<f64>,
    /// In degrees Celsius.
    pub temperature: Option<u32>,
    /// In watts.
    pub power: Option<f64>,
}

/// Reads the state of all GPUs.
pub struct GpuMonitor {
    functions: Functions,
    /// With their indices, which NVML gives to devices that cannot be opened too.
    devices: Vec<(u32, DeviceHandle)>,
    // Functions are used as long as it is open.
    _library: Library,
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct DeviceHandle(*mut c_void);

// SAFETY: NVML's functions can be called from any thread, and device handles are valid until the shutdown.
unsafe impl Send for GpuMonitor {}
// SAFETY: as above.
unsafe impl Sync for GpuMonitor {}

#[derive(Default)]
#[repr(C)]
struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[derive(Default)]
#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// The kind of sensor on the GPU itself.
const GPU_SENSOR: c_int = 0;
/// The size of a buffer for names, as NVML documents it.
const NAME_BYTES: usize = 96;

/// NVML's functions, which return 0 if they succeed.
struct Functions {
    shutdown: unsafe extern "C" fn() -> c_int,
    name: unsafe extern "C" fn(DeviceHandle, *mut c_char, c_uint) -> c_int,
    memory: unsafe extern "C" fn(DeviceHandle, *mut MemoryInfo) -> c_int,
    utilization: unsafe extern "C" fn(DeviceHandle, *mut Utilization) -> c_int,
    temperature: unsafe extern "C" fn(DeviceHandle, c_int, *mut c_uint) -> c_int,
    power: unsafe extern "C" fn(DeviceHandle, *mut c_uint) -> c_int,
}

impl GpuMonitor {
    /// Opens the management library; `None` on machines without it, or without a GPU.
    pub fn open() -> Option<Self> {
        Self::open_library("libnvidia-ml.so.1".as_ref())
    }

    fn open_library(path: &OsStr) -> Option<Self> {
        // SAFETY: NVML's initializers have no other side effects, and the functions have the types of its header.
        unsafe {
            let library = Library::new(path).ok()?;
            let init: unsafe extern "C" fn() -> c_int = *library.get(c"nvmlInit_v2").ok()?;
            let count: unsafe extern "C" fn(*mut c_uint) -> c_int =
                *library.get(c"nvmlDeviceGetCount_v2").ok()?;
            let by_index: unsafe extern "C" fn(c_uint, *mut DeviceHandle) -> c_int =
                *library.get(c"nvmlDeviceGetHandleByIndex_v2").ok()?;
            let functions = Functions {
                shutdown: *library.get(c"nvmlShutdown").ok()?,
                name: *library.get(c"nvmlDeviceGetName").ok()?,
                memory: *library.get(c"nvmlDeviceGetMemoryInfo").ok()?,
                utilization: *library.get(c"nvmlDeviceGetUtilizationRates").ok()?,
                temperature: *library.get(c"nvmlDeviceGetTemperature").ok()?,
                power: *library.get(c"nvmlDeviceGetPowerUsage").ok()?,
            };
            if init() != 0 {
                return None;
            }
            let mut monitor = Self { functions, devices: Vec::new(), _library: library };
            let mut devices = 0;
            if count(&raw mut devices) == 0 {
                for index in 0..devices {
                    let mut device = DeviceHandle(std::ptr::null_mut());
                    if by_index(index, &raw mut device) == 0 {
                        monitor.devices.push((index, device));
                    }
                }
            }
            Some(monitor).filter(|monitor| !monitor.devices.is_empty())
        }
    }

    /// Returns the state of all GPUs.
    pub fn read(&self) -> Vec<GpuStatus> {
        self.devices.iter().map(|(index, device)| self.status(*index, *device)).collect()
    }

    fn status(&self, index: u32, device: DeviceHandle) -> GpuStatus {
        let functions = &self.functions;
        let (mut memory, mut utilization) = (MemoryInfo::default(), Utilization::default());
        let (mut temperature, mut milliwatts) = (0, 0);
        let mut name = [0; NAME_BYTES];
        // SAFETY: the device is one that NVML returned, and the places have the types that it writes.
        unsafe {
            let has_name = (functions.name)(device, name.as_mut_ptr(), NAME_BYTES as c_uint) == 0;
            let has_memory = (functions.memory)(device, &raw mut memory) == 0;
            let has_utilization = (functions.utilization)(device, &raw mut utilization) == 0;
            let has_temperature = (functions.temperature)(device, GPU_SENSOR, &raw mut temperature) == 0;
            let has_power = (functions.power)(device, &raw mut milliwatts) == 0;
            // Whatever NVML wrote, it ends.
            name[NAME_BYTES - 1] = 0;
            let text = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
            GpuStatus {
                index,
                name: if has_name { text } else { String::new() },
                memory_used: has_memory.then_some(memory.used),
                memory_total: has_memory.then_some(memory.total),
                utilization: has_utilization.then_some(f64::from(utilization.gpu) / 100.0),
                temperature: has_temperature.then_some(temperature),
                power: has_power.then_some(f64::from(milliwatts) / 1000.0),
            }
        }
    }
}

impl Drop for GpuMonitor {
    fn drop(&mut self) {
        // SAFETY: it was initialized, and no device is used any more.
        unsafe { (self.functions.shutdown)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A library with three GPUs: the first cannot be opened, and the last reports only its name.
    const LIBRARY: &str = r#"
        #include <string.h>
        typedef struct { unsigned long long total, free, used; } Memory;
        typedef struct { unsigned gpu, memory; } Rates;
        int nvmlInit_v2(void) { return 0; }
        int nvmlShutdown(void) { return 0; }
        int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)index; return index ? 0 : 15; }
        int nvmlDeviceGetName(void *device, char *name, unsigned length) {
            strncpy(name, device == (void *)1 ? "One" : "Two", length);
            return 0;
        }
        int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
            memory->total = 3000; memory->free = 2000; memory->used = 1000;
            return device == (void *)1 ? 0 : 3;
        }
        int nvmlDeviceGetUtilizationRates(void *device, Rates *rates) {
            rates->gpu = 50; rates->memory = 7;
            return device == (void *)1 ? 0 : 3;
        }
        int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) {
            *degrees = sensor == 0 ? 61 : 0;
            return device == (void *)1 ? 0 : 3;
        }
        int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
            *milliwatts = 250500;
            return device == (void *)1 ? 0 : 3;
        }
    "#;

    #[test]
    fn what_a_gpu_reports_is_read() {
        let folder = std::env::temp_dir().join(format!("siskin-nvml-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("nvml.c"), folder.join("libnvml.so"));
        std::fs::write(&source, LIBRARY).unwrap();
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(compiled.unwrap().success());
        let monitor = GpuMonitor::open_library(library.as_os_str()).unwrap();
        let one = GpuStatus {
            index: 1,
            name: "One".to_owned(),
            memory_used: Some(1000),
            memory_total: Some(3000),
            utilization: Some(0.5),
            temperature: Some(61),
            power: Some(250.5),
        };
        assert_eq!(
            monitor.read(),
            [one, GpuStatus { index: 2, name: "Two".to_owned(), ..GpuStatus::default() }]
        );
        assert!(GpuMonitor::open_library(folder.join("none.so").as_os_str()).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
