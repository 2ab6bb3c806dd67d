//! In which part of a cluster a lock lives.
//!
//! The locks of a prefix are spread over 256 shards. All keys of a shard carry one hash tag, so they share a
//! slot and a script can use them together; each shard has a fence counter, an index and an epoch gate of
//! its own. Source: Redis cluster specification, "Key distribution model" and "Hash tags".

use std::sync::LazyLock;

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// How many shards the locks of a prefix are spread over.
pub(super) const SHARDS: usize = 256;

/// The tag of each shard: the smallest number whose slot lies in its 256th of the slots, so that shards are
/// spread over the masters as evenly as the slots are.
static TAGS: LazyLock<Vec<(String, u16)>> = LazyLock::new(|| {
    let mut tags: Vec<Option<(String, u16)>> = vec![None; SHARDS];
    let mut missing = SHARDS;
    for number in 0.. {
        let tag = number.to_string();
        let slot = crc16(tag.as_bytes()) % SLOTS;
        let place = &mut tags[shard_at(slot)];
        if place.is_none() {
            *place = Some((tag, slot));
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
});

/// The shard of a lock, by its escaped name.
pub(super) fn shard_of(escaped: &str) -> usize {
    shard_at(crc16(escaped.as_bytes()) % SLOTS)
}

/// The hash tag of a shard.
pub(super) fn tag(shard: usize) -> &'static str {
    &TAGS[shard].0
}

/// The slot in which the keys of a shard live.
pub(super) fn slot(shard: usize) -> u16 {
    TAGS[shard].1
}

fn shard_at(slot: u16) -> usize {
    usize::from(slot) * SHARDS / usize::from(SLOTS)
}

/// CRC-16/XMODEM, as the specification wants it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b"foo") % SLOTS, 12_182);
    }

    #[test]
    fn every_shard_has_a_slot_in_its_own_part() {
        for shard in 0..SHARDS {
            assert_eq!(shard_at(slot(shard)), shard);
            assert_eq!(crc16(tag(shard).as_bytes()) % SLOTS, slot(shard));
        }
        // Stored on servers: these never change.
        assert_eq!([tag(0), tag(1), tag(128), tag(255)], ["460", "14", "16", "430"]);
        assert_eq!(shard_of("a"), 242);
    }
}
