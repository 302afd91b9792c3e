//! Totals of many device links.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::{Outcome, Record};

/// Totals of the lines of a log.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// Number of device links.
    pub links: u64,
    /// Links whose image was in the cache.
    pub hits: u64,
    /// Hits whose image came from the remote cache.
    pub shared_hits: u64,
    /// Links that were run, and could have been in the cache.
    pub misses: u64,
    /// Misses whose image could not be stored in the cache.
    pub not_kept: u64,
    /// Links that the cache cannot help.
    pub uncached: u64,
    /// Links that failed.
    pub failed: u64,
    /// Total duration of the links that were run, one after another, in microseconds.
    pub wall_us: u64,
    /// Time that those links waited for their slots, in microseconds.
    pub waited_us: u64,
    /// CPU time of those links, in microseconds.
    pub cpu_us: u64,
    /// Peak memory of any of them, in bytes.
    pub peak_memory: u64,
    /// Additional time that hits would have taken if they had been run, in microseconds.
    pub saved_wall_us: u64,
    /// CPU time that hits would have taken, in microseconds.
    pub saved_cpu_us: u64,
    /// Number of hits whose images have an unknown cost.
    pub saved_unknown: u64,
    /// Start time of the first link, in microseconds since 1970.
    pub first_us: Option<u64>,
    /// Start time of the last link, in microseconds since 1970.
    pub last_us: Option<u64>,
    /// Why links were misses, not cached, or failed. The most frequent reason comes first.
    pub reasons: Vec<Reason>,
}

/// A reason, and the number of links that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    pub outcome: Outcome,
    pub why: String,
    pub links: u64,
}

impl Summary {
    pub(crate) fn of<'r>(records: impl IntoIterator<Item = &'r Record>) -> Summary {
        let mut sum = Summary::default();
        let mut reasons: BTreeMap<(Outcome, &str), u64> = BTreeMap::new();
        for record in records {
            sum.add(record);
            if record.outcome != Outcome::Hit {
                *reasons.entry((record.outcome, &record.why)).or_default() += 1;
            }
            if let Some(why) = &record.not_kept {
                *reasons.entry((Outcome::Uncached, why)).or_default() += 1;
            }
        }
        let reason = |((outcome, why), links): ((Outcome, &str), u64)| Reason {
            outcome,
            why: why.to_owned(),
            links,
        };
        sum.reasons = reasons.into_iter().map(reason).collect();
        sum.reasons.sort_by_key(|reason| Reverse(reason.links));
        sum
    }

    fn add(&mut self, record: &Record) {
        self.links += 1;
        match record.outcome {
            Outcome::Hit => self.hits += 1,
            Outcome::Miss => self.misses += 1,
            Outcome::Uncached => self.uncached += 1,
            Outcome::Failed => self.failed += 1,
        }
        self.shared_hits += u64::from(record.shared);
        self.not_kept += u64::from(record.not_kept.is_some());
        self.first_us = Some(
            self.first_us
                .map_or(record.time_us, |first| first.min(record.time_us)),
        );
        self.last_us = self.last_us.max(Some(record.time_us));
        if record.outcome != Outcome::Hit {
            self.wall_us = self
                .wall_us
                .saturating_add(record.wall_us.saturating_sub(record.waited_us));
            self.waited_us = self.waited_us.saturating_add(record.waited_us);
            self.cpu_us = self.cpu_us.saturating_add(record.cpu_us);
            self.peak_memory = self.peak_memory.max(record.peak_memory);
        } else if let Some(cost) = record.saved {
            self.saved_wall_us = self
                .saved_wall_us
                .saturating_add(cost.wall_us.saturating_sub(record.wall_us));
            self.saved_cpu_us = self.saved_cpu_us.saturating_add(cost.cpu_us);
        } else {
            self.saved_unknown += 1;
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Hit => self.hits,
            Outcome::Miss => self.misses,
            Outcome::Uncached => self.uncached,
            Outcome::Failed => self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cost, example};
    use super::*;

    #[test]
    fn hits_count_as_savings_and_all_others_as_cost() {
        let hit = |saved| Record {
            saved,
            wall_us: 10,
            shared: true,
            ..example(Outcome::Hit)
        };
        let miss = |why: &str| Record {
            why: why.to_owned(),
            waited_us: 400,
            time_us: 5,
            ..example(Outcome::Miss)
        };
        let cost = Cost {
            wall_us: 5_010,
            cpu_us: 7_000,
            peak_memory: 1,
        };
        let failed = Record {
            why: "x".to_owned(),
            peak_memory: 9 << 20,
            time_us: 9,
            ..example(Outcome::Failed)
        };
        let not_kept = Record {
            not_kept: Some("y".to_owned()),
            ..miss("b")
        };
        let records = [
            hit(Some(cost)),
            hit(None),
            miss("a"),
            miss("b"),
            not_kept,
            failed,
        ];
        let sum = Summary::of(&records);
        assert_eq!(
            (
                sum.links,
                sum.hits,
                sum.shared_hits,
                sum.misses,
                sum.failed,
                sum.not_kept
            ),
            (6, 2, 2, 3, 1, 1)
        );
        assert_eq!(
            (sum.wall_us, sum.waited_us, sum.cpu_us, sum.peak_memory),
            (3 * 600 + 1000, 1200, 3600, 9 << 20)
        );
        assert_eq!(
            (sum.saved_wall_us, sum.saved_cpu_us, sum.saved_unknown),
            (5_000, 7_000, 1)
        );
        assert_eq!(
            (sum.first_us, sum.last_us),
            (Some(5), Some(records[0].time_us))
        );
        let reasons: Vec<_> = sum
            .reasons
            .iter()
            .map(|reason| (reason.links, reason.outcome, reason.why.as_str()))
            .collect();
        assert_eq!(
            reasons,
            [
                (2, Outcome::Miss, "b"),
                (1, Outcome::Miss, "a"),
                (1, Outcome::Uncached, "y"),
                (1, Outcome::Failed, "x")
            ]
        );
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
