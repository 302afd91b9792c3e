//! The system's clocks, for code whose results depend on the time. Examples are the age of cache
//! entries, the trust in recent timestamps, and waits for locks. Tests pass a clock that they set
//! themselves, so that they never sleep.

use std::fmt::Debug;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use crate::threads::lock;

/// Tolerated difference between the time of day and the monotonic time. A larger one means that the
/// clock was set, so that timestamps of files cannot be trusted.
const TOLERANCE: Duration = Duration::from_millis(20);

/// A moment by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The time of day.
    pub time_of_day: SystemTime,
    pub(crate) monotonic: Instant,
}

/// The two clocks of a system.
pub trait Clock: Debug + Send + Sync {
    /// The time of day, which file timestamps use. It may be set at any moment, even backwards.
    fn now(&self) -> SystemTime;
    /// The monotonic time, for measuring durations.
    fn running(&self) -> Instant;
    /// Waits.
    fn sleep(&self, time: Duration);

    /// Returns this moment by both clocks.
    fn moment(&self) -> Moment {
        Moment {
            time_of_day: self.now(),
            monotonic: self.running(),
        }
    }
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

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

/// Checks whether the time of day has been set since `begun`.
///
/// # Errors
/// The clock has been set.
pub fn check_not_set(clock: &dyn Clock, begun: Moment) -> Result<(), String> {
    let passed = clock.running() - begun.monotonic;
    // If the clock was set back to before `begun`, the difference is the time passed plus the
    // distance to `begun`.
    let by_day = clock.now().duration_since(begun.time_of_day);
    let difference = by_day.map_or_else(
        |before| before.duration() + passed,
        |by_day| by_day.abs_diff(passed),
    );
    // A clock that is adjusted gradually runs up to 1/2000 faster or slower.
    if difference > TOLERANCE + passed / 1000 {
        Err("the system's clock has been set".to_owned())
    } else {
        Ok(())
    }
}

/// A clock for tests, which stands still until it is set. Sleeping on it sets it forward.
#[derive(Debug)]
pub struct TestClock(Mutex<(SystemTime, Instant)>);

impl TestClock {
    /// Returns a clock that shows the system's current time.
    pub fn stopped() -> TestClock {
        TestClock(Mutex::new((SystemTime::now(), Instant::now())))
    }

    /// Sets both times forward by `time`.
    pub fn pass(&self, time: Duration) {
        let mut times = lock(&self.0);
        *times = (times.0 + time, times.1 + time);
    }

    /// Sets the time of day but not the monotonic time, as when a wrong system clock is corrected.
    pub fn set(&self, now: SystemTime) {
        lock(&self.0).0 = now;
    }
}

impl Clock for TestClock {
    fn now(&self) -> SystemTime {
        lock(&self.0).0
    }

    fn running(&self) -> Instant {
        lock(&self.0).1
    }

    fn sleep(&self, time: Duration) {
        self.pass(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_a_clock_that_is_set_but_not_one_that_is_adjusted() {
        let hour = Duration::from_secs(3600);
        let clock = TestClock::stopped();
        let begun = clock.moment();
        assert_eq!(check_not_set(&clock, begun), Ok(()));
        clock.pass(hour);
        assert_eq!(check_not_set(&clock, begun), Ok(()));
        for (set, well) in [
            (hour + hour / 2000, true),
            (hour - hour / 2000, true),
            (hour + hour / 100, false),
            (hour / 2, false),
        ] {
            clock.set(begun.time_of_day + set);
            assert_eq!(check_not_set(&clock, begun).is_ok(), well, "{set:?}");
        }
        let clock = TestClock::stopped();
        let begun = clock.moment();
        clock.set(begun.time_of_day - Duration::from_millis(50));
        assert!(
            check_not_set(&clock, begun).is_err(),
            "set back within the first moment"
        );
    }
}
