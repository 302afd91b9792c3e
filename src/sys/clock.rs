//! The system's clocks, for code whose results depend on the time: the age of cache entries, whether a file was modified too
//! recently to trust its timestamps, how long to wait for a lock. Tests pass a clock that they set by hand, so that they never
//! sleep.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

/// How far the time of day may deviate from the monotonic time. If it was set, timestamps of files cannot be trusted.
const TOLERANCE: Duration = Duration::from_millis(20);

/// A source of the time.
pub(crate) trait Clock: Debug + Send + Sync {
    /// The time of day, which file timestamps use. It may be set at any moment, even backwards.
    fn now(&self) -> SystemTime;
    /// The monotonic time, for measuring durations.
    fn running(&self) -> Instant;
    /// Waits for this long.
    fn sleep(&self, time: Duration);
}

/// The system's own clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn running(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// An error if the time of day has been set since a moment that was `begun` by the time of day and `running` by the monotonic
/// clock.
pub(crate) fn check_not_set(clock: &dyn Clock, begun: SystemTime, running: Instant) -> Result<(), String> {
    let passed = clock.running() - running;
    // If it was set back to before `begun`, the difference is the time that has passed, plus how far it is before `begun`.
    let by_day = clock.now().duration_since(begun);
    let difference = by_day.map_or_else(|before| before.duration() + passed, |by_day| by_day.abs_diff(passed));
    // A clock that is being adjusted gradually runs up to 1/2000 faster or slower.
    if difference > TOLERANCE + passed / 1000 { Err("the system's clock has been set".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) use set_by_hand::TestClock;

#[cfg(test)]
mod set_by_hand {
    use std::sync::Mutex;

    use super::*;

    /// A clock that stands still at the moment it was made until it is set. Sleeping on it sets it forward.
    #[derive(Debug)]
    pub(crate) struct TestClock(Mutex<(SystemTime, Instant)>);

    impl TestClock {
        /// A clock that is set to the system's current time.
        pub(crate) fn stopped() -> TestClock {
            TestClock(Mutex::new((SystemTime::now(), Instant::now())))
        }

        /// Lets `time` pass.
        pub(crate) fn pass(&self, time: Duration) {
            let mut shown = self.0.lock().unwrap();
            *shown = (shown.0 + time, shown.1 + time);
        }

        /// Sets the time of day but not the monotonic time, as when a wrong system clock is corrected.
        pub(crate) fn set(&self, now: SystemTime) {
            self.0.lock().unwrap().0 = now;
        }
    }

    impl Clock for TestClock {
        fn now(&self) -> SystemTime {
            self.0.lock().unwrap().0
        }

        fn running(&self) -> Instant {
            self.0.lock().unwrap().1
        }

        fn sleep(&self, time: Duration) {
            self.pass(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_noticed_and_one_that_is_corrected_is_not() {
        let hour = Duration::from_secs(3600);
        let clock = TestClock::stopped();
        let (begun, running) = (clock.now(), clock.running());
        assert_eq!(check_not_set(&clock, begun, running), Ok(()));
        clock.pass(hour);
        assert_eq!(check_not_set(&clock, begun, running), Ok(()));
        for (set, well) in [(hour + hour / 2000, true), (hour - hour / 2000, true), (hour + hour / 100, false), (hour / 2, false)]
        {
            clock.set(begun + set);
            assert_eq!(check_not_set(&clock, begun, running).is_ok(), well, "{set:?}");
        }
        let clock = TestClock::stopped();
        let (begun, running) = (clock.now(), clock.running());
        clock.set(begun - Duration::from_millis(50));
        assert!(check_not_set(&clock, begun, running).is_err(), "set back within the first moment");
    }
}
