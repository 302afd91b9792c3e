//! Tests of job slots: threads, memory, other processes, links that run alone.

use super::*;

fn slots(limit: usize, memory: MemoryLimit) -> JobSlots {
    JobSlots::of_a_test(limit, memory)
}

impl JobSlots {
    /// A slot for one link that was not announced.
    fn one_more(&self, demand: &Demand) -> std::result::Result<JobSlot<'_>, Refusal> {
        self.state().refused = None;
        self.expect(1);
        self.try_take(demand)
            .inspect_err(|_| self.expect_one_less())
    }
}

fn demand(threads: usize, memory: u64) -> Demand {
    Demand {
        threads,
        ..Demand::one_thread(memory)
    }
}

#[test]
fn more_threads_never_keep_another_link_waiting() {
    let slots = slots(4, MemoryLimit::Off);
    slots.expect(3);
    let first = slots.try_take(&demand(8, 0)).unwrap();
    assert_eq!(
        first.granted(),
        2,
        "two of the four are for the links that may come"
    );
    slots.expect_one_less();
    let last = slots.try_take(&demand(1, 0)).unwrap();
    assert_eq!(last.granted(), 1);
    let third = slots.one_more(&demand(8, 0)).unwrap();
    assert!(third.granted() >= 1);
    drop((first, last, third));
    assert_eq!(slots.one_more(&demand(4, 0)).unwrap().granted(), 4);
}

#[test]
fn one_slot_means_one_thread_on_any_machine() {
    assert_eq!(
        slots(1, MemoryLimit::Off)
            .one_more(&demand(8, 0))
            .unwrap()
            .granted(),
        1
    );
}

#[test]
fn waits_for_a_locked_table_but_not_forever() {
    let mut state = State::default();
    assert!(state.waits_for_table());
    state.table_busy_since = Instant::now().checked_sub(Duration::from_secs(6));
    assert!(!state.waits_for_table());
}

#[test]
fn memory_is_reserved_and_a_link_that_is_alone_always_runs() {
    let slots = slots(8, MemoryLimit::Bytes(100));
    let large = slots.one_more(&demand(1, 500)).unwrap();
    assert_eq!(
        slots.one_more(&demand(1, 1)).unwrap_err(),
        Refusal::Memory(0)
    );
    drop(large);
    let held: Vec<JobSlot<'_>> = (0..3)
        .map(|_| slots.one_more(&demand(1, 30)).unwrap())
        .collect();
    assert_eq!(
        slots.one_more(&demand(1, 30)).unwrap_err(),
        Refusal::Memory(10)
    );
    let small = slots.one_more(&demand(1, 10)).unwrap();
    drop((held, small));
    assert_eq!(slots.state().own, Share::default());
}

#[test]
fn memory_of_earlier_links_stays_reserved() {
    let slots = slots(8, MemoryLimit::Bytes(100));
    let after = |reserved| Demand {
        reserved,
        ..demand(1, 30)
    };
    assert_eq!(
        slots.one_more(&after(80)).unwrap_err(),
        Refusal::Memory(100),
        "although nothing runs"
    );
    let fits = slots.one_more(&after(70)).unwrap();
    drop(fits);
    assert!(slots.one_more(&after(0)).is_ok());
}

#[test]
fn a_link_that_must_be_alone_waits_and_keeps_others_out() {
    let slots = slots(8, MemoryLimit::Off);
    let alone = Demand {
        alone: true,
        ..Demand::one_thread(0)
    };
    let other = slots.one_more(&demand(1, 0)).unwrap();
    assert_eq!(slots.one_more(&alone).unwrap_err(), Refusal::Alone);
    slots.state().wait_alone = 1;
    assert_eq!(
        slots.one_more(&demand(1, 0)).unwrap_err(),
        Refusal::Alone,
        "it would wait for ever"
    );
    drop(other);
    let runs = slots.one_more(&alone).unwrap();
    slots.state().wait_alone = 0;
    assert_eq!(slots.one_more(&demand(1, 0)).unwrap_err(), Refusal::Alone);
    drop(runs);
    assert!(slots.one_more(&demand(1, 0)).is_ok());
}

#[test]
fn no_more_threads_than_there_is_memory_for() {
    let with = |limit| {
        let slots = slots(8, MemoryLimit::Bytes(limit));
        let first = slots.one_more(&demand(1, 10)).unwrap();
        let threads = Demand {
            threads: 8,
            enough_for: 2,
            per_thread: 25,
            ..Demand::one_thread(50)
        };
        let slot = slots.one_more(&threads).unwrap();
        drop(first);
        (slot.granted(), slots.state().own.memory)
    };
    assert_eq!(with(60), (2, 50));
    assert_eq!(with(60 + 24), (2, 50));
    assert_eq!(with(60 + 50), (4, 100));
    assert_eq!(with(10_000).0, 7, "the eighth has the other link");
}

#[test]
fn other_processes_are_checked_less_often_during_a_long_wait() {
    let mut state = State::default();
    assert_eq!(state.pause(), PAUSE);
    state.waits_since = Instant::now().checked_sub(Duration::from_millis(800));
    assert!(
        state.pause() >= Duration::from_millis(50) && state.pause() < LONGEST_PAUSE,
        "{:?}",
        state.pause()
    );
    state.waits_since = Instant::now().checked_sub(Duration::from_secs(60));
    assert_eq!(state.pause(), LONGEST_PAUSE);
}

#[test]
fn a_refusal_holds_until_something_ends() {
    let slots = slots(8, MemoryLimit::Bytes(100));
    slots.expect(3);
    let first = slots.try_take(&demand(1, 90)).unwrap();
    assert_eq!(
        slots.try_take(&demand(1, 20)).unwrap_err(),
        Refusal::Memory(10)
    );
    let smaller = slots.try_take(&demand(1, 10)).unwrap();
    drop(first);
    assert!(slots.try_take(&demand(1, 20)).is_ok());
    drop(smaller);
}

#[test]
fn a_signal_ends_the_wait() {
    let signals = Signals::default();
    let slots = slots(1, MemoryLimit::Off);
    let taken = slots.take(&demand(1, 0), &signals).unwrap();
    signals.stop();
    assert!(slots.take(&demand(1, 0), &signals).is_err());
    drop(taken);
    assert_eq!(slots.state().expected, 0);
}
