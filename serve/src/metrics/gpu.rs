//! Metrics of NVIDIA GPUs, on machines that have them, in programs with the CUDA backend.

use super::Page;

/// Reads the state of GPUs.
#[derive(Clone, Default)]
pub(crate) struct GpuMetrics {
    #[cfg(feature = "cuda")]
    monitor: Option<std::sync::Arc<siskin_cuda::GpuMonitor>>,
}

impl GpuMetrics {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "cuda")]
            monitor: siskin_cuda::GpuMonitor::open().map(std::sync::Arc::new),
        }
    }

    /// Adds the metrics of all GPUs; none if there are none.
    #[cfg(feature = "cuda")]
    pub(super) fn add_to(&self, page: &mut Page<'_>) {
        let Some(monitor) = &self.monitor else { return };
        add(&monitor.read(), page);
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unused_self, reason = "programs with the CUDA backend read GPUs")]
    pub(super) fn add_to(&self, _: &mut Page<'_>) {}
}

#[cfg(feature = "cuda")]
fn add(gpus: &[siskin_cuda::GpuStatus], page: &mut Page<'_>) {
    use crate::prometheus::label;
    use siskin_cuda::GpuStatus;
    type Of = fn(&GpuStatus) -> Option<f64>;
    let all: [(&str, &str, Of); 5] = [
        ("memory_used_bytes", "Memory in use, by all processes.", |gpu| {
            gpu.memory_used.map(|bytes| bytes as f64)
        }),
        ("memory_total_bytes", "Memory.", |gpu| gpu.memory_total.map(|bytes| bytes as f64)),
        ("utilization_ratio", "The part of the time in which a kernel runs.", |gpu| gpu.utilization),
        ("temperature_celsius", "Temperature.", |gpu| gpu.temperature.map(f64::from)),
        ("power_watts", "Power.", |gpu| gpu.power),
    ];
    for (name, help, of) in all {
        let name = format!("siskin_gpu_{name}");
        page.head(&name, "gauge", help);
        for gpu in gpus {
            if let Some(value) = of(gpu) {
                let (index, device) = (gpu.index, label(&gpu.name));
                page.line(format_args!("{name}{{gpu=\"{index}\",name={device}}} {value}"));
            }
        }
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;
    use siskin_cuda::GpuStatus;

    #[test]
    fn gpus_have_series_of_what_they_report() {
        let mut page = Page { text: String::new(), models: &[] };
        let one = GpuStatus { index: 1, name: "H200".to_owned(), power: Some(250.5), ..GpuStatus::default() };
        add(&[GpuStatus::default(), one], &mut page);
        let series: Vec<&str> = page.text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series, ["siskin_gpu_power_watts{gpu=\"1\",name=\"H200\"} 250.5"]);
    }
}
