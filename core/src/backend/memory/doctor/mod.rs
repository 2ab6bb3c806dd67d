//! What a store inside one process can promise: everything, to this process.

use crate::snapshot::examination::{
    AFTER_FAILOVER, AFTER_RESTART, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH,
};
use crate::snapshot::{Check, Examination, Promise};

pub(crate) fn examination() -> Examination {
    let findings = vec![
        Check::notice(
            "scope",
            "Only this process sees these locks",
            "a memory: store lives inside one process",
        )
        .means("Another process, even of the same program, takes the same lock at the same time.")
        .fix("Between processes of one host use sqlite:PATH; between hosts redis://HOST."),
    ];
    let gone = "it ends with the process, and so do the holders of its locks";
    let promises = vec![
        Promise::yes(EXCLUSION, "among the threads and tasks of this process, and no others"),
        Promise::yes(AFTER_RESTART, gone),
        Promise::no(AFTER_FAILOVER, "there is no second copy that could take over"),
        Promise::yes(AFTER_WIPE, gone),
        Promise::yes(FENCING_ORDER, "one counter for all names, never behind the wall clock"),
        Promise::yes(PUSH, "a release wakes the next waiter directly"),
        Promise::yes(FIFO, "one line per lock, kept with the lock"),
    ];
    Examination::new("memory", None, findings, promises)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::CheckSeverity;

    #[test]
    fn a_private_store_is_told_as_such_and_needs_no_action() {
        let examination = examination();
        assert_eq!(examination.worst(), CheckSeverity::Notice);
        assert_eq!(examination.promises.len(), 7);
        assert!(examination.promises.iter().all(|promise| promise.what != promise.id));
    }
}
