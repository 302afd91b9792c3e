//! The system's clocks, for code whose results depend on the time: the age of cache entries, whether a file was modified too
//! recently to trust its timestamps, how long to wait for a lock. Tests pass a clock that they set by hand, so that they never
//! sleep.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

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
