//! The rules by their codes, as they are typed and exported.

use model::Rule;

/// Every rule. A new one does not compile before [`place`] knows it.
pub(super) const ALL: [Rule; 32] = [
    Rule::Deadlock,
    Rule::MayDeadlock,
    Rule::Stopped,
    Rule::NoExpiryDead,
    Rule::NoExpiry,
    Rule::HolderGone,
    Rule::RenewalsStopped,
    Rule::LateRenewal,
    Rule::DeadHead,
    Rule::LostWake,
    Rule::TokenFellBack,
    Rule::Backend,
    Rule::WritesRefused,
    Rule::NoQuorum,
    Rule::NodeDown,
    Rule::Undecided,
    Rule::LongWait,
    Rule::ManyWaiters,
    Rule::ZombieRenew,
    Rule::Starved,
    Rule::ShortLease,
    Rule::Clock,
    Rule::SplitVote,
    Rule::Quorum,
    Rule::LockDelay,
    Rule::Foreign,
    Rule::Legit,
    Rule::Free,
    Rule::ClaimAbandoned,
    Rule::ClaimLong,
    Rule::ResultTooLarge,
    Rule::WorkRepeated,
];

/// The place of a rule in [`ALL`].
pub(super) fn place(rule: Rule) -> usize {
    match rule {
        Rule::Deadlock => 0,
        Rule::MayDeadlock => 1,
        Rule::Stopped => 2,
        Rule::NoExpiryDead => 3,
        Rule::NoExpiry => 4,
        Rule::HolderGone => 5,
        Rule::RenewalsStopped => 6,
        Rule::LateRenewal => 7,
        Rule::DeadHead => 8,
        Rule::LostWake => 9,
        Rule::TokenFellBack => 10,
        Rule::Backend => 11,
        Rule::WritesRefused => 12,
        Rule::NoQuorum => 13,
        Rule::NodeDown => 14,
        Rule::Undecided => 15,
        Rule::LongWait => 16,
        Rule::ManyWaiters => 17,
        Rule::ZombieRenew => 18,
        Rule::Starved => 19,
        Rule::ShortLease => 20,
        Rule::Clock => 21,
        Rule::SplitVote => 22,
        Rule::Quorum => 23,
        Rule::LockDelay => 24,
        Rule::Foreign => 25,
        Rule::Legit => 26,
        Rule::Free => 27,
        Rule::ClaimAbandoned => 28,
        Rule::ClaimLong => 29,
        Rule::ResultTooLarge => 30,
        Rule::WorkRepeated => 31,
    }
}

/// Says whether a rule finds something at all: a lock that is free or held as it should be is no finding.
pub(super) fn is_finding(rule: Rule) -> bool {
    !matches!(rule, Rule::Legit | Rule::Free)
}

/// Reads a code, in any case.
pub(super) fn parse_rule(text: &str) -> Result<Rule, String> {
    let rules = ALL.into_iter().filter(|rule| is_finding(*rule));
    rules.clone().find(|rule| rule.code().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let known: Vec<_> = rules.map(Rule::code).collect();
        format!("{text:?} is no code of a finding; the codes are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_stands_at_its_place_and_is_read_by_its_code() {
        for (at, rule) in ALL.into_iter().enumerate() {
            assert_eq!(place(rule), at);
            assert_eq!(parse_rule(&rule.code().to_lowercase()).is_ok(), is_finding(rule), "{rule:?}");
        }
        let error = parse_rule("DEAD-LOCK").unwrap_err();
        assert!(error.contains("\"DEAD-LOCK\"") && error.contains("DEADLOCK, MAY-DEADLOCK"), "{error}");
    }
}
