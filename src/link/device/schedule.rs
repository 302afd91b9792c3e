//! Schedules device links: looks up and runs the longest first, through the launcher if it works,
//! else on this machine.
//!
//! A link that lacks memory does not block later links that fit. A launched link uses no slot,
//! jobserver token or memory of this machine.

use std::sync::Mutex;

use anyhow::Result;

use crate::args::settings::Jobs;
use offld_system::jobs::{Demand, JobSlot, JobSlots, Refusal};
use offld_system::launcher::Launcher;
use offld_system::session::Session;
use offld_system::threads::{self, lock};

/// The result of a lookup.
pub(super) enum LookedUp<T> {
    /// Nothing has to run.
    Done,
    /// The link has to run with these resources.
    Ready(T, Demand),
}

/// The links of one run, addressed by index.
pub(super) trait Work: Sync {
    /// State that a lookup hands to the run.
    type Ready: Send;

    /// Returns the predicted memory use in bytes.
    fn memory(&self, at: usize) -> u64;

    /// Checks whether the link has to run.
    fn look_up(&self, at: usize) -> Result<LookedUp<Self::Ready>>;

    /// Called for a link that has to wait. After a reason other than busy slots, it is not called
    /// again.
    fn waits(&self, at: usize, demand: &Demand, why: Refusal);

    fn run(&self, at: usize, ready: Self::Ready, place: RunnerSlot<'_>) -> Result<()>;
}

/// Links that have not started.
struct Queue<T> {
    /// Number of links, in start order, whose lookup has begun.
    looked_up: usize,
    /// Lookups in progress, by position in the start order.
    in_lookup: Vec<usize>,
    /// Links that can start, sorted by position in the start order.
    ready: Vec<Waiting<T>>,
}

struct Waiting<T> {
    place: usize,
    item: T,
    demand: Demand,
    reported: bool,
}

/// Returns the start order for links with these expected `times`: longest first, ties in the given
/// order.
pub(super) fn longest_first(times: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|a, b| times[*b].total_cmp(&times[*a]));
    order
}

/// Processes the links in `order`. The results are sorted by link index.
pub(super) fn run<W: Work>(
    work: &W,
    order: &[usize],
    places: &RunnerSlots<'_>,
    session: &Session,
) -> Vec<Result<()>> {
    let queue = Mutex::new(Queue {
        looked_up: 0,
        in_lookup: Vec::new(),
        ready: Vec::new(),
    });
    places.here().expect(order.len());
    let threads = places.limit().min(order.len());
    let done = threads::run_indexed(threads, threads, |_| {
        worker(work, order, places, session, &queue)
    });
    let mut done: Vec<(usize, Result<()>)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn worker<W: Work>(
    work: &W,
    order: &[usize],
    places: &RunnerSlots<'_>,
    session: &Session,
    queue: &Mutex<Queue<W::Ready>>,
) -> Vec<(usize, Result<()>)> {
    let mut done = Vec::new();
    loop {
        let mut open = lock(queue);
        if let Err(stopped) = session.signals.check() {
            // A link that is still waiting fails here. A link that was not looked up fails in its
            // lookup.
            if let Some(waiting) = open.ready.pop() {
                places.here().expect_one_less();
                done.push((order[waiting.place], Err(stopped)));
                continue;
            }
        } else if let Some((waiting, place)) = startable(work, order, places, &mut open) {
            drop(open);
            let at = order[waiting.place];
            done.push((at, work.run(at, waiting.item, place)));
            continue;
        }
        let place = open.looked_up;
        if place < order.len() {
            open.looked_up += 1;
            open.in_lookup.push(place);
            drop(open);
            let found = work.look_up(order[place]);
            let mut open = lock(queue);
            open.in_lookup.retain(|other| *other != place);
            match found {
                Ok(LookedUp::Ready(item, demand)) => {
                    let before = open.ready.partition_point(|other| other.place < place);
                    open.ready.insert(
                        before,
                        Waiting {
                            place,
                            item,
                            demand,
                            reported: false,
                        },
                    );
                    continue;
                }
                Ok(LookedUp::Done) => done.push((order[place], Ok(()))),
                Err(error) => done.push((order[place], Err(error))),
            }
            places.here().expect_one_less();
        } else if open.ready.is_empty() {
            // A thread that is in a lookup also runs that link.
            return done;
        } else {
            drop(open);
            places.pause();
        }
    }
}

/// Takes the first link in start order that may run now.
fn startable<'s, W: Work>(
    work: &W,
    order: &[usize],
    places: &'s RunnerSlots<'_>,
    open: &mut Queue<W::Ready>,
) -> Option<(Waiting<W::Ready>, RunnerSlot<'s>)> {
    for at in 0..open.ready.len() {
        let waiting = &mut open.ready[at];
        // Reserve memory for earlier links that are still in lookup. Otherwise small links would
        // delay a large one, which takes longer.
        let before = open
            .in_lookup
            .iter()
            .filter(|place| **place < waiting.place);
        waiting.demand.reserved = before.map(|place| work.memory(order[*place])).sum();
        match places.try_take(&waiting.demand) {
            Ok(place) => return Some((open.ready.remove(at), place)),
            Err(_) if waiting.reported || waiting.demand.reserved > 0 => {}
            Err(why) => {
                // Busy slots are not reported. If a slot is free later and the link still lacks
                // memory, that is reported.
                waiting.reported = why != Refusal::Slots;
                work.waits(order[waiting.place], &waiting.demand, why);
            }
        }
    }
    None
}

/// Slots for the device links of one run.
pub(super) struct RunnerSlots<'p> {
    here: JobSlots,
    launched: Option<(&'p Launcher, JobSlots)>,
}

/// Permission to run one device link.
pub(super) enum RunnerSlot<'p> {
    /// Run on this machine.
    Here(JobSlot<'p>),
    /// Run through the launcher.
    Launched {
        launcher: &'p Launcher,
        _slot: JobSlot<'p>,
    },
}

impl<'p> RunnerSlots<'p> {
    /// Creates the slots of the launcher, if the session has one. `here`: the slots of this
    /// machine.
    pub(super) fn new(here: JobSlots, session: &'p Session) -> RunnerSlots<'p> {
        let launched = session
            .launcher
            .as_ref()
            .map(|launcher| (launcher, JobSlots::counting(launcher.jobs())));
        RunnerSlots { here, launched }
    }

    #[cfg(test)]
    pub(super) fn of_a_test(here: JobSlots) -> RunnerSlots<'static> {
        RunnerSlots {
            here,
            launched: None,
        }
    }

    /// The slots of this machine.
    pub(super) fn here(&self) -> &JobSlots {
        &self.here
    }

    /// Maximum number of device links that run at once.
    pub(super) fn limit(&self) -> usize {
        self.launched
            .iter()
            .map(|(_, slots)| slots.limit())
            .fold(self.here.limit(), usize::max)
    }

    /// Takes a slot for one of the expected device links, or returns the reason why none can run
    /// now.
    pub(super) fn try_take(&self, demand: &Demand) -> Result<RunnerSlot<'_>, Refusal> {
        let Some((launcher, slots)) = self.working().filter(|_| !demand.here) else {
            return self.here.try_take(demand).map(RunnerSlot::Here);
        };
        let slot = slots.try_take(demand)?;
        self.here.expect_one_less();
        Ok(RunnerSlot::Launched {
            launcher,
            _slot: slot,
        })
    }

    /// Waits until a device link may have finished.
    pub(super) fn pause(&self) {
        self.working()
            .map_or(&self.here, |(_, slots)| slots)
            .pause();
    }

    fn working(&self) -> Option<(&Launcher, &JobSlots)> {
        self.launched
            .as_ref()
            .filter(|(launcher, _)| launcher.is_available())
            .map(|(launcher, slots)| (*launcher, slots))
    }
}

impl RunnerSlot<'_> {
    /// Number of threads for a link that can use `wanted`.
    pub(super) fn granted(&self, wanted: usize, jobs: Jobs) -> usize {
        match self {
            RunnerSlot::Here(slot) => slot.granted(),
            RunnerSlot::Launched { launcher, .. } => launcher.threads(wanted, jobs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::settings::MemoryLimit;

    /// Returns the end time of the last of `times` if they start in `order` on `slots` slots.
    fn end(times: &[f64], order: &[usize], slots: usize) -> f64 {
        let mut free = vec![0.0_f64; slots];
        for at in order {
            free.sort_by(f64::total_cmp);
            free[0] += times[*at];
        }
        free.into_iter().fold(0.0, f64::max)
    }

    /// Returns the earliest end time over all orders.
    fn best(times: &[f64], slots: usize) -> f64 {
        fn place(times: &[f64], slots: &mut Vec<f64>, best: &mut f64) {
            let now = slots.iter().copied().fold(0.0, f64::max);
            match times.split_first() {
                _ if now >= *best => {}
                None => *best = now,
                Some((first, rest)) => {
                    for at in 0..slots.len() {
                        slots[at] += first;
                        place(rest, slots, best);
                        slots[at] -= first;
                    }
                }
            }
        }
        let mut best = f64::INFINITY;
        place(times, &mut vec![0.0; slots], &mut best);
        best
    }

    /// Records each link that waits, with the reason.
    struct Recorder(Mutex<Vec<(usize, Refusal)>>);

    impl Work for Recorder {
        type Ready = ();

        fn memory(&self, _at: usize) -> u64 {
            0
        }

        fn look_up(&self, _at: usize) -> Result<LookedUp<()>> {
            Ok(LookedUp::Done)
        }

        fn waits(&self, at: usize, _demand: &Demand, why: Refusal) {
            self.0.lock().unwrap().push((at, why));
        }

        fn run(&self, _at: usize, (): (), _place: RunnerSlot<'_>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn waiting_for_memory_is_reported_after_waiting_for_a_slot() {
        let slots = JobSlots::of_a_test(2, MemoryLimit::Bytes(100));
        slots.expect(3);
        let demand = |memory| Demand::one_thread(memory);
        let places = RunnerSlots::of_a_test(slots);
        let held = [50, 20].map(|memory| places.try_take(&demand(memory)).unwrap());
        let recorder = Recorder(Mutex::default());
        let mut queue = Queue {
            looked_up: 1,
            in_lookup: Vec::new(),
            ready: vec![Waiting {
                place: 0,
                item: (),
                demand: demand(60),
                reported: false,
            }],
        };
        assert!(startable(&recorder, &[0], &places, &mut queue).is_none());
        let [first, second] = held;
        drop(second);
        for _ in 0..3 {
            assert!(startable(&recorder, &[0], &places, &mut queue).is_none());
        }
        assert_eq!(
            recorder.0.lock().unwrap().as_slice(),
            [(0, Refusal::Slots), (0, Refusal::Memory(50))]
        );
        drop(first);
        assert!(startable(&recorder, &[0], &places, &mut queue).is_some());
    }

    #[test]
    fn the_order_is_within_five_percent_of_the_best() {
        // A pseudo-random sequence, the same in every run.
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1 << 24) as f64
        };
        let (mut ours, mut bests) = (0.0, 0.0);
        for case in 0..200 {
            let slots = 2 + case % 3;
            // The links of one program take similar times for all architectures. The programs of
            // one build differ widely.
            let spread = if case % 2 == 0 { 0.5 } else { 20.0 };
            let times: Vec<f64> = (0..6 + case % 5).map(|_| 1.0 + spread * random()).collect();
            let (own, best) = (
                end(&times, &longest_first(&times), slots),
                best(&times, slots),
            );
            assert!(
                own <= best * (4.0 / 3.0),
                "{times:?} on {slots}: {own} and not {best}"
            );
            ours += own / best;
            bests += 1.0;
        }
        assert!(ours <= 1.05 * bests, "{} of the best", ours / bests);
        assert_eq!(longest_first(&[1.0, 3.0, 2.0, 3.0]), [1, 3, 2, 0]);
    }
}
