//! A script that puts one write to a Redis key behind a fencing token.

use super::{Refused, parse_token};
use crate::error::{Error, ErrorKind, Result};

/// Runs one write command on a key, unless a newer holder was there before.
///
/// `KEYS[1]` is the data's key, `KEYS[2]` keeps the largest token seen (see [`fence_key`]).
/// `ARGV[1]` is the token, `ARGV[2]` the command, the rest are its arguments behind the key:
///
/// ```text
/// EVAL <script> 2 {stock:9} {stock:9}:fence 34 SET 150
/// EVAL <script> 2 {stock:9} {stock:9}:fence 34 HSET price 150 currency EUR
/// ```
///
/// Answers what the command answers. A write that comes too late gets an error reply that begins with
/// `STALE_TOKEN` and is read by [`refused`]; nothing was written. The command's only key must be
/// its first argument.
///
/// Guarantees: check and write are one step of the server. The token is kept without an expiry, so
/// the key that keeps it must not be deleted, evicted (`maxmemory-policy noeviction`) or lost with the
/// server's data: without it every late writer passes.
///
/// Source: redis.io, "Scripting with Lua" (atomic execution, `redis.error_reply`); Redis 3.2 or later.
pub const GUARD_SCRIPT: &str = "\
-- Invariant: KEYS[2] never decreases, and KEYS[1] is written only with a token at or above it.
local token, largest = ARGV[1], redis.call('GET', KEYS[2]) or '0'
if not string.match(token, '^%d+$') or #token > 16 then
  return redis.error_reply('BAD_TOKEN the fencing token is not a decimal number below 2^53')
end
if not string.match(largest, '^%d+$') then
  return redis.error_reply('BAD_FENCE the fence key holds something else than a fencing token')
end
if tonumber(token) < tonumber(largest) then
  return redis.error_reply('STALE_TOKEN ' .. token .. ' is older than ' .. largest
    .. ', which was seen before: the lock has a newer holder, so this write is refused')
end
redis.call('SET', KEYS[2], token)
return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
";

/// Returns the key that keeps the largest token for the data under `data_key`.
///
/// Both keys lie in the same slot of a cluster, so the script may use them together: a hash tag of
/// the data's key is kept, and a key without one becomes the tag, as `stock:9` in
/// `{stock:9}:fence`.
///
/// Errors: `invalid_argument` for an empty key, and for one with `}` but without a hash tag, which
/// cannot become one.
/// Source: redis.io, "Redis cluster specification", hash tags.
pub fn fence_key(data_key: &str) -> Result<String> {
    let tag = data_key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    if tag.is_some_and(|tag| !tag.is_empty()) {
        return Ok(format!("{data_key}:fence"));
    }
    if data_key.is_empty() || data_key.contains('}') {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the key {data_key:?} has no hash tag and cannot be one; put a part of it in braces"),
        ));
    }
    Ok(format!("{{{data_key}}}:fence"))
}

/// Reads an error reply of the script: `Some` if it refused a late write.
pub fn refused(reply: &str) -> Option<Refused> {
    let at = reply.find("STALE_TOKEN ")?;
    let mut words = reply[at..].split([' ', ',']);
    let token = parse_token(words.nth(1)?).ok()?;
    let largest = parse_token(words.nth(3)?).ok()?;
    Some(Refused { token, largest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fencing::FencingToken;

    #[test]
    fn the_fence_key_lies_in_the_same_slot() {
        for (data, fence) in [
            ("stock:9", "{stock:9}:fence"),
            ("{stock}:9", "{stock}:9:fence"),
            ("a{b}{c}", "a{b}{c}:fence"),
            ("a}b{c}", "a}b{c}:fence"),
            ("a{b", "{a{b}:fence"),
        ] {
            assert_eq!(fence_key(data).unwrap(), fence);
        }
        for impossible in ["", "a}b", "a{}b", "{}", "}{"] {
            assert_eq!(fence_key(impossible).unwrap_err().code(), "invalid_argument", "{impossible}");
        }
    }

    #[test]
    fn only_a_refusal_is_read_as_one() {
        let reply = "STALE_TOKEN 33 is older than 34, which was seen before: the lock";
        let expected = Refused { token: FencingToken::new(33), largest: FencingToken::new(34) };
        assert_eq!(refused(reply), Some(expected));
        assert_eq!(refused(&format!("An error was signalled by the server - {reply}")), Some(expected));
        for other in ["", "STALE_TOKEN", "STALE_TOKEN x is older than 34", "OOM command not allowed"] {
            assert_eq!(refused(other), None);
        }
    }
}
