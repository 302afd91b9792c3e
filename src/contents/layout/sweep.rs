//! Assignment of every byte to the deepest claim that covers it. Bytes without a claim go to a
//! default receiver.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::hash::Hash;

/// A claim to the bytes from `start` to `end`. If two claims cover a byte, the deeper one gets it.
/// At equal depth, the claim that starts first gets it, and then the earlier one in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim<T> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) depth: u32,
    /// The receiver of the bytes.
    pub(super) to: T,
}

/// A claim in the heap. The greatest one gets the bytes.
#[derive(PartialEq, Eq)]
struct Active {
    depth: u32,
    start: Reverse<u64>,
    order: Reverse<usize>,
}

impl Ord for Active {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.depth, self.start, self.order).cmp(&(other.depth, other.start, other.order))
    }
}

impl PartialOrd for Active {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns how many of `size` bytes each receiver gets. `rest` gets the bytes without a claim.
/// Bytes of claims past the end do not count. The numbers add up to `size`, and receivers without
/// bytes are omitted. The result is in the order of the first bytes.
pub(super) fn assign<T: Copy + Eq + Hash>(
    size: u64,
    mut claims: Vec<Claim<T>>,
    rest: T,
) -> Vec<(T, u64)> {
    claims.retain(|claim| claim.start < claim.end && claim.start < size);
    claims.sort_by_key(|claim| claim.start);
    let mut shares = Shares {
        places: HashMap::new(),
        list: Vec::new(),
    };
    let mut active: BinaryHeap<Active> = BinaryHeap::new();
    let (mut at, mut next) = (0, 0);
    while at < size {
        while let Some(claim) = claims.get(next).filter(|claim| claim.start <= at) {
            active.push(Active {
                depth: claim.depth,
                start: Reverse(claim.start),
                order: Reverse(next),
            });
            next += 1;
        }
        let starts = claims.get(next).map_or(size, |claim| claim.start);
        while active
            .peek()
            .is_some_and(|top| claims[top.order.0].end <= at)
        {
            active.pop();
        }
        let (to, end) = match active.peek() {
            Some(top) => (
                claims[top.order.0].to,
                claims[top.order.0].end.min(starts).min(size),
            ),
            None => (rest, starts),
        };
        shares.add(to, end - at);
        at = end;
    }
    shares.list
}

struct Shares<T> {
    places: HashMap<T, usize>,
    list: Vec<(T, u64)>,
}

impl<T: Copy + Eq + Hash> Shares<T> {
    fn add(&mut self, to: T, bytes: u64) {
        // Neighbouring bytes mostly go to the same receiver.
        if let Some(last) = self.list.last_mut().filter(|last| last.0 == to) {
            last.1 += bytes;
            return;
        }
        match self.places.get(&to) {
            Some(&place) => self.list[place].1 += bytes,
            None => {
                self.places.insert(to, self.list.len());
                self.list.push((to, bytes));
            }
        }
    }
}

/// Divides `total` in proportion to `weights`, so that the parts add up to `total`. Each part is
/// rounded down, and those with the largest remainders get one more. If all weights are zero,
/// everything goes to the first.
pub(super) fn apportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut parts = vec![0; weights.len()];
    if sum == 0 {
        if let Some(first) = parts.first_mut() {
            *first = total;
        }
        return parts;
    }
    let mut rests: Vec<(Reverse<u128>, usize)> = Vec::with_capacity(weights.len());
    let mut left = total;
    for (index, weight) in weights.iter().enumerate() {
        let share = u128::from(total) * u128::from(*weight);
        // A share is not above the total.
        parts[index] = u64::try_from(share / sum).unwrap_or(total);
        left -= parts[index];
        rests.push((Reverse(share % sum), index));
    }
    let more = usize::try_from(left).unwrap_or_default();
    if more > 0 && more < rests.len() {
        rests.select_nth_unstable(more);
    }
    rests
        .iter()
        .take(more)
        .for_each(|(_, index)| parts[*index] += 1);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn claim(start: u64, end: u64, depth: u32, to: char) -> Claim<char> {
        Claim {
            start,
            end,
            depth,
            to,
        }
    }

    #[test]
    fn the_deepest_gets_a_byte_and_of_equals_the_first() {
        let claims = vec![
            claim(0, 10, 1, 'a'),
            claim(2, 6, 2, 'b'),
            claim(4, 8, 2, 'c'),
            claim(9, 40, 1, 'd'),
            claim(5, 5, 9, 'e'),
        ];
        assert_eq!(
            assign(20, claims, '-'),
            [('a', 4), ('b', 4), ('c', 2), ('d', 10)]
        );
        assert_eq!(
            assign(3, vec![claim(1, 2, 0, 'a'), claim(7, 9, 0, 'b')], '-'),
            [('-', 2), ('a', 1)]
        );
        assert_eq!(assign(0, vec![claim(0, 2, 0, 'a')], '-'), []);
    }

    #[test]
    fn what_is_divided_adds_up_and_the_largest_remainders_get_more() {
        assert_eq!(apportion(10, &[1, 1, 1]).iter().sum::<u64>(), 10);
        assert_eq!(apportion(10, &[5, 4, 1]), [5, 4, 1]);
        assert_eq!(apportion(3, &[10, 19, 1]), [1, 2, 0]);
        assert_eq!(apportion(7, &[0, 0]), [7, 0]);
        assert_eq!(
            apportion(u64::MAX, &[u64::MAX, u64::MAX])
                .iter()
                .map(|part| u128::from(*part))
                .sum::<u128>(),
            u128::from(u64::MAX)
        );
    }

    proptest! {
        #[test]
        fn each_byte_goes_where_a_painter_would_put_it(
            size in 0u64..80,
            claims in vec((0u64..100, 0u64..100, 0u32..4, 0u8..5), 0..12),
        ) {
            let claims: Vec<Claim<u8>> = claims.into_iter().map(|(start, end, depth, to)| Claim { start, end, depth, to }).collect();
            let mut wanted = [0u64; 6];
            for byte in 0..size {
                let over = |claim: &&Claim<u8>| claim.start <= byte && byte < claim.end;
                let mut ordered: Vec<&Claim<u8>> = claims.iter().filter(over).collect();
                ordered.sort_by_key(|claim| (Reverse(claim.depth), claim.start));
                wanted[ordered.first().map_or(5, |claim| usize::from(claim.to))] += 1;
            }
            let mut got = [0u64; 6];
            for (to, bytes) in assign(size, claims, 5) {
                got[usize::from(to)] += bytes;
            }
            prop_assert_eq!(got, wanted);
        }

        #[test]
        fn parts_add_up(total in any::<u64>(), weights in vec(any::<u64>(), 1..40)) {
            let parts = apportion(total, &weights);
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
        }
    }
}
