//! Requests as values. Numbers are those of `ZooDefs.OpCode` and `zookeeper.jute`.

use super::wire::Frame;

/// The number that an answer to a ping has, and one that tells of a watch; and one to a login.
pub(crate) const PING: i32 = -2;
pub(crate) const NOTIFICATION: i32 = -1;
pub(crate) const LOGIN: i32 = -4;

/// What a created node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lives {
    /// Until it is deleted.
    On = 0,
    /// As long as its session.
    WithSession = 1,
    /// The same, with a number that the server appends to the name.
    WithSessionInOrder = 3,
    /// Until some time after its last child is gone.
    WithChildren = 4,
}

/// One request, without its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub op: i32,
    pub fields: Vec<u8>,
    /// Goes into the log of a majority before it is answered, whatever the answer.
    pub is_logged: bool,
    /// The node that is watched if the answer is a success.
    pub watches: Option<String>,
}

impl Request {
    fn new(op: i32, fields: Frame) -> Self {
        Self { op, fields: fields.fields(), is_logged: false, watches: None }
    }

    fn logged(op: i32, fields: Frame) -> Self {
        Self { is_logged: true, ..Self::new(op, fields) }
    }

    /// The whole frame with this number.
    pub(crate) fn frame(&self, number: i32) -> Vec<u8> {
        Frame::new().int(number).int(self.op).raw(&self.fields).finish()
    }
}

/// The first frame of a connection. A session of 0 asks for a new one.
pub(crate) fn connect(seen: i64, timeout_ms: i32, session: i64, password: &[u8]) -> Vec<u8> {
    // The last field: a member without a majority is of no use.
    Frame::new().int(0).long(seen).int(timeout_ms).long(session).bytes(password).flag(false).finish()
}

/// `addauth digest`. The server digests it: it goes over the wire as it is.
pub(crate) fn log_in(user: &str, password: &str) -> Vec<u8> {
    let secret = format!("{user}:{password}");
    Frame::new().int(LOGIN).int(100).int(0).text("digest").text(&secret).finish()
}

pub(crate) fn ping() -> Vec<u8> {
    Frame::new().int(PING).int(11).finish()
}

pub(crate) fn end_session() -> Request {
    Request::new(-11, Frame::new())
}

/// Creates a node. Answers its path and what is known of it.
pub(crate) fn create(path: &str, data: &[u8], lives: Lives, own_rights: bool) -> Request {
    let op = if lives == Lives::WithChildren { 19 } else { 15 };
    Request::logged(op, creation(path, data, lives, own_rights))
}

fn creation(path: &str, data: &[u8], lives: Lives, own_rights: bool) -> Frame {
    // All rights, for those who are logged in as this user, or for everyone.
    let (scheme, id) = if own_rights { ("auth", "") } else { ("world", "anyone") };
    let frame = Frame::new().text(path).bytes(data).int(1).int(31).text(scheme).text(id);
    frame.int(lives as i32)
}

/// Deletes a node, whatever its data have become.
pub(crate) fn delete(path: &str) -> Request {
    Request::logged(2, Frame::new().text(path).int(-1))
}

/// Deletes these nodes and creates one with each of these data, or changes nothing. Answers the paths of those that were
/// created.
pub(crate) fn replace<'r>(
    deleted: impl IntoIterator<Item = &'r String>,
    created: &str,
    lives: Lives,
    data: impl IntoIterator<Item = &'r [u8]>,
    own_rights: bool,
) -> Request {
    let part = |frame: Frame, op| frame.int(op).flag(false).int(-1);
    let deletions = deleted.into_iter().fold(Frame::new(), |frame, path| part(frame, 2).text(path).int(-1));
    let all = data.into_iter().fold(deletions, |frame, data| {
        part(frame, 1).raw(&creation(created, data, lives, own_rights).fields())
    });
    Request::logged(14, all.int(-1).flag(true).int(-1))
}

pub(crate) fn exists(path: &str) -> Request {
    Request::new(3, Frame::new().text(path).flag(false))
}

pub(crate) fn data(path: &str) -> Request {
    Request::new(4, Frame::new().text(path).flag(false))
}

/// Reads a node and asks for a message when it changes or is deleted. Leaves no watch where there is no node.
pub(crate) fn watched(path: &str) -> Request {
    Request { watches: Some(path.to_owned()), ..Request::new(4, Frame::new().text(path).flag(true)) }
}

pub(crate) fn write(path: &str, data: &[u8]) -> Request {
    Request::logged(5, Frame::new().text(path).bytes(data).int(-1))
}

pub(crate) fn children(path: &str) -> Request {
    Request::new(8, Frame::new().text(path).flag(false))
}

/// Lists a folder and asks for a message when a node comes to it or goes.
pub(crate) fn watched_children(path: &str) -> Request {
    Request { watches: Some(path.to_owned()), ..Request::new(8, Frame::new().text(path).flag(true)) }
}

/// Makes the member catch up with the leader before it carries out what follows.
pub(crate) fn sync(path: &str) -> Request {
    Request::new(9, Frame::new().text(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    // As the Java client of 3.8.0 sends them.
    #[test]
    fn frames_are_those_of_the_java_client() {
        assert_eq!(ping(), [0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11]);
        let expected = [&[0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2][..], b"/a", &[1]].concat();
        assert_eq!(watched("/a").frame(7), expected);
        let connect = connect(0, 400, 0, &[0; 16]);
        assert_eq!((connect.len(), connect[3]), (49, 45));
    }

    #[test]
    fn what_changes_something_is_logged_by_a_majority() {
        for request in [
            create("/a", b"", Lives::WithSession, false),
            delete("/a"),
            write("/a", b""),
            replace(&["/a".to_owned()], "/b", Lives::On, [&b""[..]], true),
        ] {
            assert!(request.is_logged, "{request:?}");
        }
        for request in [exists("/a"), data("/a"), watched("/a"), children("/a"), sync("/a")] {
            assert!(!request.is_logged, "{request:?}");
        }
    }
}
