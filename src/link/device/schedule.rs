//! The order in which device links are looked up and run: the longest first. One that cannot run yet, because memory is lacking, lets
//! those pass that can.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use super::places::{Place, Places};
use crate::sys::jobs::{Demand, Refusal};
use crate::sys::session::Session;
use crate::sys::threads;

/// What a link is after it was looked up.
pub(super) enum LookedUp<T> {
    /// Nothing has to be run.
    Done,
    /// This has to be run, and needs so much for it.
    Ready(T, Demand),
}

/// The work on the links of one run, by their numbers.
pub(super) trait Work: Sync {
    /// What is known of a link that has to be run.
    type Ready: Send;

    /// How much memory it will probably take, in bytes.
    fn memory(&self, at: usize) -> u64;

    /// Looks up whether it has to be run.
    fn look_up(&self, at: usize) -> Result<LookedUp<Self::Ready>>;

    /// Called once for a link that cannot run yet.
    fn waits(&self, at: usize, demand: &Demand, why: Refusal);

    /// Runs it.
    fn run(&self, at: usize, ready: Self::Ready, place: Place<'_>) -> Result<()>;
}

/// The links that have not begun.
struct Queue<T> {
    /// How many of the order have been looked up.
    looked_up: usize,
    /// Those that are looked up at this moment, by their places in the order.
    now: Vec<usize>,
    /// What can run, by its place in the order.
    ready: Vec<Waiting<T>>,
}

struct Waiting<T> {
    place: usize,
    item: T,
    demand: Demand,
    told: bool,
}

/// The places in which links begin of which those `times` are expected: the longest first, and equal ones as they come.
pub(super) fn longest_first(times: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|a, b| times[*b].total_cmp(&times[*a]));
    order
}

/// Does `work` for each number in `order`. The results are in the order of the numbers.
pub(super) fn run<W: Work>(work: &W, order: &[usize], places: &Places<'_>, session: &Session) -> Vec<Result<()>> {
    let queue = Mutex::new(Queue { looked_up: 0, now: Vec::new(), ready: Vec::new() });
    places.here().expect(order.len());
    let threads = places.limit().min(order.len());
    let done = threads::turns(threads, threads, |_| worker(work, order, places, session, &queue));
    let mut done: Vec<(usize, Result<()>)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn worker<W: Work>(
    work: &W,
    order: &[usize],
    places: &Places<'_>,
    session: &Session,
    queue: &Mutex<Queue<W::Ready>>,
) -> Vec<(usize, Result<()>)> {
    let mut done = Vec::new();
    loop {
        let mut open = lock(queue);
        if let Err(stopped) = session.signals.check() {
            // What was looked up ends here; what was not, when it is.
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
            open.now.push(place);
            drop(open);
            let found = work.look_up(order[place]);
            let mut open = lock(queue);
            open.now.retain(|other| *other != place);
            match found {
                Ok(LookedUp::Ready(item, demand)) => {
                    let before = open.ready.partition_point(|other| other.place < place);
                    open.ready.insert(before, Waiting { place, item, demand, told: false });
                    continue;
                }
                Ok(LookedUp::Done) => done.push((order[place], Ok(()))),
                Err(error) => done.push((order[place], Err(error))),
            }
            places.here().expect_one_less();
        } else if open.ready.is_empty() {
            // What another thread looks up now, that thread runs.
            return done;
        } else {
            drop(open);
            places.pause();
        }
    }
}

/// The first in order of what is ready that may run now.
fn startable<'s, W: Work>(
    work: &W,
    order: &[usize],
    places: &'s Places<'_>,
    open: &mut Queue<W::Ready>,
) -> Option<(Waiting<W::Ready>, Place<'s>)> {
    for at in 0..open.ready.len() {
        let waiting = &mut open.ready[at];
        // What is before it in the order and still looked up is not to find its memory taken: a large link takes longer for that.
        let before = open.now.iter().filter(|place| **place < waiting.place);
        waiting.demand.reserved = before.map(|place| work.memory(order[*place])).sum();
        match places.try_take(&waiting.demand) {
            Ok(place) => return Some((open.ready.remove(at), place)),
            Err(_) if waiting.told || waiting.demand.reserved > 0 => {}
            Err(why) => {
                // That others have all slots is not told, and memory may be lacking when one is free.
                waiting.told = why != Refusal::Slots;
                work.waits(order[waiting.place], &waiting.demand, why);
            }
        }
    }
    None
}

fn lock<T>(queue: &Mutex<Queue<T>>) -> MutexGuard<'_, Queue<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::request::MemoryLimit;
    use crate::sys::jobs::JobSlots;

    /// When the last of `times` ends, begun in `order` on `slots` slots.
    fn end(times: &[f64], order: &[usize], slots: usize) -> f64 {
        let mut free = vec![0.0_f64; slots];
        for at in order {
            free.sort_by(f64::total_cmp);
            free[0] += times[*at];
        }
        free.into_iter().fold(0.0, f64::max)
    }

    /// The earliest end of any order.
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

    /// Notes what waits, and for what.
    struct Told(Mutex<Vec<(usize, Refusal)>>);

    impl Work for Told {
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

        fn run(&self, _at: usize, (): (), _place: Place<'_>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_waits_for_memory_after_it_has_waited_for_a_slot_says_so() {
        let slots = JobSlots::of_a_test(2, MemoryLimit::Bytes(100));
        slots.expect(3);
        let demand = |memory| Demand::one_thread(memory);
        let places = Places::of_a_test(slots);
        let held = [50, 20].map(|memory| places.try_take(&demand(memory)).unwrap());
        let told = Told(Mutex::default());
        let mut queue =
            Queue { looked_up: 1, now: Vec::new(), ready: vec![Waiting { place: 0, item: (), demand: demand(60), told: false }] };
        assert!(startable(&told, &[0], &places, &mut queue).is_none());
        let [first, second] = held;
        drop(second);
        for _ in 0..3 {
            assert!(startable(&told, &[0], &places, &mut queue).is_none());
        }
        assert_eq!(told.0.lock().unwrap().as_slice(), [(0, Refusal::Slots), (0, Refusal::Memory(50))]);
        drop(first);
        assert!(startable(&told, &[0], &places, &mut queue).is_some());
    }

    #[test]
    fn the_order_is_within_five_percent_of_the_best() {
        // Numbers that look random, and are the same each time.
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1 << 24) as f64
        };
        let (mut ours, mut bests) = (0.0, 0.0);
        for case in 0..200 {
            let slots = 2 + case % 3;
            // Architectures of one program take about as long as each other, or the programs of a build very different times.
            let spread = if case % 2 == 0 { 0.5 } else { 20.0 };
            let times: Vec<f64> = (0..6 + case % 5).map(|_| 1.0 + spread * random()).collect();
            let (own, best) = (end(&times, &longest_first(&times), slots), best(&times, slots));
            assert!(own <= best * (4.0 / 3.0), "{times:?} on {slots}: {own} and not {best}");
            ours += own / best;
            bests += 1.0;
        }
        assert!(ours <= 1.05 * bests, "{} of the best", ours / bests);
        assert_eq!(longest_first(&[1.0, 3.0, 2.0, 3.0]), [1, 3, 2, 0]);
    }
}
