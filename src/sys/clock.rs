//! The clocks of the system, for those whose answers depend on the time: the age of what is in the cache, whether a file was at rest
//! when it was looked at, how long a lock is waited for. Tests hand in a clock that they set themselves, and wait for nothing.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

/// What tells the time.
pub(crate) trait Clock: Debug + Send + Sync {
    /// The date and time of day, by which files are dated. Somebody may set it, backwards as well.
    fn now(&self) -> SystemTime;
    /// The time that only runs forward, for measuring how long something takes.
    fn running(&self) -> Instant;
    /// Waits for that long.
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

    /// A clock that stands still, at the moment when it was made, until it is set. Whoever sleeps by it sets it forward.
    #[derive(Debug)]
    pub(crate) struct TestClock(Mutex<(SystemTime, Instant)>);

    impl TestClock {
        /// One that shows the system's time of now.
        pub(crate) fn stopped() -> TestClock {
            TestClock(Mutex::new((SystemTime::now(), Instant::now())))
        }

        /// Lets `time` pass.
        pub(crate) fn pass(&self, time: Duration) {
            let mut shown = self.0.lock().unwrap();
            *shown = (shown.0 + time, shown.1 + time);
        }

        /// Sets the time of day, as somebody does whose clock is wrong.
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
