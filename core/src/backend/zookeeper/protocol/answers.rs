//! What servers answer.

use super::wire::Fields;

/// Numbers of `KeeperException.Code`.
pub(crate) mod code {
    pub(crate) const OK: i32 = 0;
    pub(crate) const BAD_ARGUMENTS: i32 = -8;
    pub(crate) const UNIMPLEMENTED: i32 = -6;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;
    pub(crate) const NOT_READ_ONLY: i32 = -119;
    pub(crate) const NEEDS_SASL: i32 = -124;
    pub(crate) const QUOTA: i32 = -125;
    pub(crate) const THROTTLED: i32 = -127;
}

/// The answer to the first frame of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connected {
    /// 0 if the session that was named has expired.
    pub session: i64,
    pub timeout_ms: i32,
    pub password: Vec<u8>,
}

impl Connected {
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let mut fields = Fields(frame);
        fields.int()?;
        let (timeout_ms, session) = (fields.int()?, fields.long()?);
        Some(Self { session, timeout_ms, password: fields.bytes()?.to_vec() })
    }
}

/// One answer: its number, and what came of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub number: i32,
    /// The last transaction that the server has carried out.
    pub zxid: i64,
    pub code: i32,
    pub fields: Vec<u8>,
}

impl Answer {
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let mut fields = Fields(frame);
        let (number, zxid, code) = (fields.int()?, fields.long()?, fields.int()?);
        Some(Self { number, zxid, code, fields: fields.0.to_vec() })
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.code == code::OK
    }

    /// The node that a notification is about.
    pub(crate) fn watched(&self) -> Option<String> {
        let mut fields = Fields(&self.fields);
        fields.int()?;
        fields.int()?;
        fields.text()
    }

    /// The answer to `create`.
    pub(crate) fn created(&self) -> Option<(String, Stat)> {
        let mut fields = Fields(&self.fields);
        Some((fields.text()?, Stat::read(&mut fields)?))
    }

    /// The answer to `exists`.
    pub(crate) fn stat(&self) -> Option<Stat> {
        Stat::read(&mut Fields(&self.fields))
    }

    /// The answer to `data` and `watched`.
    pub(crate) fn data(&self) -> Option<(Vec<u8>, Stat)> {
        let mut fields = Fields(&self.fields);
        Some((fields.bytes()?.to_vec(), Stat::read(&mut fields)?))
    }

    /// The answer to `children`.
    pub(crate) fn children(&self) -> Option<Vec<String>> {
        let mut fields = Fields(&self.fields);
        let count = fields.int()?.max(0);
        (0..count).map(|_| fields.text()).collect()
    }

    /// The nodes that a transaction created, or the code of its first part that failed.
    pub(crate) fn together(&self) -> Option<Result<Vec<String>, i32>> {
        let mut fields = Fields(&self.fields);
        let mut created = Vec::new();
        loop {
            let (kind, done, code) = (fields.int()?, fields.flag()?, fields.int()?);
            match kind {
                _ if done => return Some(Ok(created)),
                // All parts are errors then; those before the one that failed say that they were undone, with 0.
                -1 => {
                    fields.int()?;
                    if code != code::OK {
                        return Some(Err(code));
                    }
                }
                // Creation. A deletion has no answer.
                1 => created.push(fields.text()?),
                _ => {}
            }
        }
    }
}

/// What a server knows of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that created it.
    pub created: i64,
    /// When, by the clock of the leader, in milliseconds since 1970.
    pub created_ms: i64,
    /// The session that it ends with; 0 if it does not.
    pub session: i64,
}

impl Stat {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (created, _, created_ms, _) = (fields.long()?, fields.long()?, fields.long()?, fields.long()?);
        fields.skip(12)?;
        let session = fields.long()?;
        fields.skip(16)?;
        Some(Self { created, created_ms, session })
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Frame;
    use super::*;

    fn answer(fields: Frame) -> Answer {
        Answer { number: 1, zxid: 9, code: 0, fields: fields.fields() }
    }

    fn stat(frame: Frame) -> Frame {
        frame.long(7).long(7).long(1_000).long(1_000).int(0).int(0).int(0).long(0x1f).int(2).int(0).long(7)
    }

    #[test]
    fn answers_are_read_field_by_field() {
        let expected = Stat { created: 7, created_ms: 1_000, session: 0x1f };
        let created = answer(stat(Frame::new().text("/l/_c_x-lock-0000000003"))).created();
        assert_eq!(created, Some(("/l/_c_x-lock-0000000003".into(), expected)));
        assert_eq!(answer(stat(Frame::new().bytes(b"xx"))).data(), Some((b"xx".to_vec(), expected)));
        let children = answer(Frame::new().int(2).text("a").text("b")).children();
        assert_eq!(children, Some(vec!["a".into(), "b".into()]));
        assert_eq!(answer(Frame::new().int(2).text("a")).children(), None);
        let event = answer(Frame::new().int(2).int(3).text("/l/a"));
        assert_eq!(event.watched().as_deref(), Some("/l/a"));
    }

    #[test]
    fn a_transaction_says_which_part_failed() {
        let end = |frame: Frame| answer(frame.int(-1).flag(true).int(-1)).together();
        let created = Frame::new().int(2).flag(false).int(0).int(1).flag(false).int(0).text("/b");
        assert_eq!(end(created), Some(Ok(vec!["/b".into()])));
        let failed = Frame::new().int(-1).flag(false).int(0).int(0).int(-1).flag(false).int(-101).int(-101);
        assert_eq!(end(failed), Some(Err(-101)));
        assert_eq!(answer(Frame::new().int(1).flag(false).int(0).text("/b")).together(), None);
    }
}
