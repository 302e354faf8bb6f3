//! Governors on simulated devices with a simulated clock.

use super::policy::Policy;
use super::*;

/// A device whose passes take `work` seconds on one thread, and which heats up while computing.
struct Device {
    policy: Policy,
    now: Duration,
    work: f32,
    /// Degrees above ambient.
    heat: f32,
    /// Heating in degrees per second and busy thread, and the rate of cooling per second.
    warms: f32,
    cools: f32,
}

impl Device {
    fn new(threads: usize, work: f32, target: ThrottleTarget) -> Self {
        let mut policy = Policy::new(threads);
        policy.hold(target);
        Self { policy, now: Duration::from_secs(1), work, heat: 0.0, warms: 0.0, cools: 0.0 }
    }

    fn goes_by(&mut self, time: Duration, threads: usize) {
        let seconds = time.as_secs_f32();
        let still = (-self.cools * seconds).exp();
        let balance = if self.cools > 0.0 { threads as f32 * self.warms / self.cools } else { 0.0 };
        self.heat = balance + (self.heat - balance) * still;
        self.now += time;
    }

    /// Runs a pass and returns its thread count.
    fn pass(&mut self, wrote: bool) -> usize {
        let rest = self.policy.rest(self.now);
        self.goes_by(rest, 0);
        self.policy.waited(rest);
        let threads = self.policy.begin(self.now);
        let begun = self.now;
        self.goes_by(Duration::from_secs_f32(self.work / threads as f32), threads);
        self.policy.end(begun, self.now, wrote);
        threads
    }

    /// Runs passes for `seconds` seconds and returns the passes per second.
    fn run(&mut self, seconds: f32, mut between: impl FnMut(&mut Self)) -> f32 {
        let (start, mut passes) = (self.now, 0);
        while (self.now - start).as_secs_f32() < seconds {
            self.pass(true);
            between(self);
            passes += 1;
        }
        passes as f32 / (self.now - start).as_secs_f32()
    }
}

fn near(found: f32, wanted: f32) -> bool {
    (found - wanted).abs() < 0.05 * wanted
}

#[test]
fn a_rate_is_held_with_few_threads() {
    // A token costs 40 ms of one thread: 10 per second need one thread, 40 per second two, 80 per second four.
    for (rate, threads) in [(10.0, 1), (40.0, 2), (80.0, 4)] {
        let mut device = Device::new(4, 0.04, ThrottleTarget::TokensPerSecond(rate));
        device.run(5.0, |_| {});
        let found = device.run(20.0, |_| {});
        assert!(near(found, rate), "{found} of {rate}");
        assert_eq!(device.pass(true), threads, "{rate}");
    }
    // An unreachable target gets all threads.
    let mut device = Device::new(2, 0.04, ThrottleTarget::TokensPerSecond(200.0));
    device.run(3.0, |_| {});
    assert!(near(device.run(5.0, |_| {}), 50.0));
    assert_eq!(device.pass(true), 2);
}

#[test]
fn a_rate_is_held_while_the_device_changes() {
    let mut device = Device::new(4, 0.04, ThrottleTarget::TokensPerSecond(20.0));
    device.run(5.0, |_| {});
    assert_eq!(device.pass(true), 1);
    // Twice as slow, as if the clock frequency dropped.
    device.work = 0.08;
    device.run(5.0, |_| {});
    assert!(near(device.run(20.0, |_| {}), 20.0));
    assert_eq!(device.pass(true), 2);
    device.work = 0.03;
    device.run(30.0, |_| {});
    assert_eq!(device.pass(true), 1);
}

#[test]
fn what_came_late_does_not_come_in_a_rush() {
    let mut device = Device::new(1, 0.01, ThrottleTarget::TokensPerSecond(10.0));
    device.run(2.0, |_| {});
    device.goes_by(Duration::from_secs(60), 0);
    let start = device.now;
    for _ in 0..10 {
        device.pass(true);
    }
    assert!((device.now - start).as_secs_f32() > 0.75);
}

#[test]
fn a_duty_cycle_is_kept_and_time_elsewhere_counts() {
    for duty in [0.1, 0.5, 1.0] {
        let mut device = Device::new(2, 0.2, ThrottleTarget::DutyCycle(duty));
        let found = device.run(100.0, |_| {});
        assert!(near(found * 0.1, duty), "{found} passes of {duty}");
    }
    let mut device = Device::new(2, 0.2, ThrottleTarget::DutyCycle(0.5));
    device.run(20.0, |device| device.goes_by(Duration::from_millis(100), 0));
    assert!(device.policy.stats(device.now).waited.as_secs_f32() < 0.1);
}

#[test]
fn the_background_is_slow() {
    let mut device = Device::new(8, 0.1, ThrottleTarget::Background);
    assert!(near(device.run(50.0, |_| {}) * 0.1, 0.25));
    assert_eq!(device.pass(false), 1);
}

#[test]
fn heat_slows_down_at_once_and_passes_slowly() {
    let mut device = Device::new(4, 0.04, ThrottleTarget::Adaptive);
    assert_eq!(device.pass(true), 4);
    device.policy.set_thermal_state(ThermalState::Critical, device.now);
    assert_eq!((device.pass(true), device.policy.stats(device.now).duty), (1, 0.15));
    device.policy.set_thermal_state(ThermalState::None, device.now);
    assert_eq!(device.pass(true), 1, "still believed");
    device.goes_by(Duration::from_secs(11), 0);
    assert_eq!((device.pass(true), device.policy.stats(device.now).duty), (2, 0.4));
    device.goes_by(Duration::from_secs(30), 0);
    assert_eq!((device.pass(true), device.policy.stats(device.now).duty), (4, 1.0));
}

#[test]
fn heat_that_lasted_is_remembered_from_its_end() {
    let mut policy = Policy::new(4);
    policy.hold(ThrottleTarget::Adaptive);
    let at = Duration::from_secs;
    policy.set_thermal_state(ThermalState::Critical, at(1));
    policy.set_thermal_state(ThermalState::None, at(120));
    assert_eq!(policy.stats(at(121)).duty, 0.15);
    assert_eq!(policy.stats(at(131)).duty, 0.4);
    // The status does not fall below a lower one that was reported in the meantime.
    policy.set_thermal_state(ThermalState::Moderate, at(132));
    assert_eq!((policy.stats(at(145)).duty, policy.stats(at(500)).duty), (0.7, 0.7));
}

#[test]
fn passes_at_once_rest_for_the_longest() {
    let mut policy = Policy::new(4);
    policy.hold(ThrottleTarget::DutyCycle(0.25));
    let at = Duration::from_millis;
    policy.end(at(0), at(1000), true);
    policy.end(at(1000), at(1020), true);
    assert_eq!(policy.rest(at(1020)), at(2980));
}

#[test]
fn a_device_stays_below_what_it_bears() {
    // Unthrottled it would reach 4 · 1 / 0.05 = 80 degrees; it throttles itself from 40 on.
    let mut device = Device::new(4, 0.04, ThrottleTarget::Adaptive);
    (device.warms, device.cools) = (1.0, 0.05);
    let mut hottest: f32 = 0.0;
    device.run(600.0, |device| {
        let level = match device.heat {
            heat if heat < 25.0 => ThermalState::None,
            heat if heat < 35.0 => ThermalState::Light,
            heat if heat < 42.0 => ThermalState::Moderate,
            heat if heat < 50.0 => ThermalState::Severe,
            _ => ThermalState::Critical,
        };
        device.policy.set_thermal_state(level, device.now);
        hottest = hottest.max(device.heat);
    });
    assert!(hottest > 35.0 && hottest < 52.0, "{hottest}");
    // It is not throttled to a crawl either.
    assert!(device.policy.stats(device.now).worked.as_secs_f32() > 100.0);
}

#[test]
fn power_matters_where_something_is_held() {
    let mut policy = Policy::new(4);
    policy.set_power_state(PowerState { saving: true, ..PowerState::default() });
    assert_eq!(policy.begin(Duration::ZERO), 4, "off");
    policy.hold(ThrottleTarget::Adaptive);
    assert_eq!(policy.begin(Duration::ZERO), 2);
    policy.set_power_state(PowerState { saving: false, on_battery: true, battery: Some(0.1) });
    assert_eq!(policy.stats(Duration::ZERO).duty, 0.5);
    policy.set_power_state(PowerState { saving: false, on_battery: false, battery: Some(0.1) });
    assert_eq!(policy.stats(Duration::ZERO).duty, 1.0);
}

#[test]
fn targets_that_make_no_sense_are_rejected() {
    let governor = Governor::new(2);
    for target in [
        ThrottleTarget::TokensPerSecond(0.0),
        ThrottleTarget::TokensPerSecond(f32::NAN),
        ThrottleTarget::TokensPerSecond(f32::INFINITY),
        ThrottleTarget::DutyCycle(0.0),
        ThrottleTarget::DutyCycle(1.5),
    ] {
        assert!(governor.set_target(target).is_err(), "{target:?}");
    }
    assert_eq!(governor.target(), ThrottleTarget::Off);
    // Tiny rates are long waits, not overflows.
    for target in [1e-19, 1e-38, f32::MIN_POSITIVE, f32::from_bits(1)]
        .into_iter()
        .flat_map(|least| [ThrottleTarget::TokensPerSecond(least), ThrottleTarget::DutyCycle(least)])
    {
        governor.set_target(target).unwrap();
        let cancel = AtomicBool::new(false);
        for _ in 0..3 {
            governor.wait(&cancel);
            let pass = governor.begin(2);
            assert!((1..=2).contains(&pass.threads), "a stop ends the wait");
            thread::sleep(Duration::from_millis(1));
            governor.end(pass, true);
            cancel.store(true, Ordering::Relaxed);
        }
        assert!(governor.policy().rest(Duration::ZERO) > Duration::from_secs(1 << 20), "{target:?}");
    }
}
