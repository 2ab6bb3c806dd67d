//! Sorting, without a copy of the standard library's algorithm for every type where every kilobyte is loaded.

use std::cmp::Ordering;

/// Sorts; equal items stay in their order.
#[cfg(not(target_family = "wasm"))]
#[allow(clippy::ptr_arg, reason = "the other form takes the items out")]
pub(crate) fn sort_by<T>(items: &mut Vec<T>, order: impl FnMut(&T, &T) -> Ordering) {
    items.sort_by(order);
}

/// Sorts; equal items stay in their order.
#[cfg(target_family = "wasm")]
pub(crate) fn sort_by<T>(items: &mut Vec<T>, order: impl FnMut(&T, &T) -> Ordering) {
    in_places(items, order);
}

/// Sorts the places of the items, which are of one type whatever the items are, and then puts these there.
#[cfg(any(test, target_family = "wasm"))]
fn in_places<T>(items: &mut Vec<T>, mut order: impl FnMut(&T, &T) -> Ordering) {
    let places = sorted(items.len(), &mut |one, other| order(&items[one], &items[other]));
    let mut given: Vec<_> = items.drain(..).map(Some).collect();
    items.extend(places.into_iter().filter_map(|place| given[place].take()));
}

#[cfg(any(test, target_family = "wasm"))]
fn sorted(count: usize, order: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<_> = (0..count).collect();
    places.sort_by(|one, other| order(*one, *other));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_sort_alike_and_keep_equal_items_in_their_order() {
        let items: Vec<(u8, String)> =
            (0..100_u8).map(|at| (at.wrapping_mul(37) % 7, format!("item {at}"))).collect();
        let (mut one, mut other) = (items.clone(), items);
        sort_by(&mut one, |a, b| a.0.cmp(&b.0));
        in_places(&mut other, |a, b| a.0.cmp(&b.0));
        assert_eq!(one, other);
        assert!(other.is_sorted_by_key(|item| item.0));
        in_places(&mut Vec::<u8>::new(), u8::cmp);
    }
}
