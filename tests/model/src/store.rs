//! Small containers: a bounded list, a bit packer, and the set of visited states.

use std::ops::{Deref, DerefMut};

/// A packed canonical state.
pub type Packed = [u64; 3];

/// A list with room for `N` items and no allocation; successors are copied by the million.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    pub(crate) const fn new(filler: T) -> Self {
        Self { items: [filler; N], len: 0 }
    }

    pub(crate) fn push(&mut self, item: T) {
        self.items[self.len] = item;
        self.len += 1;
    }

    /// Removes one item; the order of the others changes.
    pub(crate) fn swap_remove(&mut self, index: usize) -> T {
        let item = self[index];
        self.len -= 1;
        self.items[index] = self.items[self.len];
        item
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let mut kept = 0;
        for i in 0..self.len {
            if keep(&self.items[i]) {
                self.items[kept] = self.items[i];
                kept += 1;
            }
        }
        self.len = kept;
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<T, const N: usize> DerefMut for List<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }
}

impl<T: PartialEq, const N: usize> PartialEq for List<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for List<T, N> {}

/// Writes and reads fields of a few bits one after another.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    pub(crate) words: Packed,
    pub(crate) at: usize,
}

impl Bits {
    pub(crate) fn put(&mut self, value: u64, width: usize) {
        assert!(value >> width == 0, "the bounds outgrew the packed state");
        let (word, shift) = (self.at / 64, self.at % 64);
        self.words[word] |= value << shift;
        if shift + width > 64 {
            self.words[word + 1] |= value >> (64 - shift);
        }
        self.at += width;
    }

    pub(crate) fn take(&mut self, width: usize) -> u64 {
        let (word, shift) = (self.at / 64, self.at % 64);
        let mut value = self.words[word] >> shift;
        if shift + width > 64 {
            value |= self.words[word + 1] << (64 - shift);
        }
        self.at += width;
        value & ((1 << width) - 1)
    }
}

/// The visited states in the order of their discovery, each with the state it was reached from.
#[derive(Debug)]
pub(crate) struct Visited {
    states: Vec<Packed>,
    parents: Vec<u32>,
    /// Open addressing over indices into `states`; `EMPTY` marks a free place.
    table: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl Visited {
    pub(crate) fn new() -> Self {
        Self { states: Vec::new(), parents: Vec::new(), table: vec![EMPTY; 1 << 12] }
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn get(&self, index: usize) -> Packed {
        self.states[index]
    }

    /// Adds a state unless it is known. Roots are their own parents.
    pub(crate) fn insert(&mut self, state: Packed, parent: usize) -> bool {
        if (self.states.len() + 1) * 2 > self.table.len() {
            self.grow();
        }
        let place = self.place_of(&state);
        if self.table[place] != EMPTY {
            return false;
        }
        self.table[place] = index(self.states.len());
        self.states.push(state);
        self.parents.push(index(parent));
        true
    }

    /// The states from the root to the given one.
    pub(crate) fn path_to(&self, mut at: usize) -> Vec<Packed> {
        let mut path = vec![self.states[at]];
        while self.parents[at] as usize != at {
            at = self.parents[at] as usize;
            path.push(self.states[at]);
        }
        path.reverse();
        path
    }

    fn place_of(&self, state: &Packed) -> usize {
        let mask = self.table.len() - 1;
        let mut place = hash(state) as usize & mask;
        while self.table[place] != EMPTY && self.states[self.table[place] as usize] != *state {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        self.table = vec![EMPTY; self.table.len() * 2];
        for i in 0..self.states.len() {
            let place = self.place_of(&self.states[i]);
            self.table[place] = index(i);
        }
    }
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("memory ends long before four thousand million states")
}

fn hash(state: &Packed) -> u64 {
    let mut hash = 0u64;
    for word in state {
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    // The table uses the low bits, multiplication mixes the high ones.
    hash ^ hash >> 32
}

/// A small generator of random numbers (xorshift64*), so that a seed is enough to repeat a walk.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        // Zero is the one state it never leaves.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        (high as usize * limit) >> 32
    }
}
