//! Frames and their fields (ZooKeeper's `jute` encoding): big-endian numbers, and lengths before texts.

/// The longest frame that is read (a server's default for what it accepts, `jute.maxbuffer`, is a quarter of it).
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// One frame to send.
#[derive(Debug)]
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// Begins with room for the length.
    pub(crate) fn new() -> Self {
        Self(vec![0; 4])
    }

    pub(crate) fn int(mut self, value: i32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: i64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn flag(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    pub(crate) fn bytes(self, value: &[u8]) -> Self {
        // No caller has as much as 2 GiB.
        let mut frame = self.int(value.len() as i32);
        frame.0.extend_from_slice(value);
        frame
    }

    pub(crate) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    /// Fields that were encoded before.
    pub(crate) fn raw(mut self, fields: &[u8]) -> Self {
        self.0.extend_from_slice(fields);
        self
    }

    /// The fields without the length.
    pub(crate) fn fields(mut self) -> Vec<u8> {
        self.0.split_off(4)
    }

    /// The whole frame.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// The fields of a frame that was read. Every method answers `None` where the frame ends too early.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'f>(pub &'f [u8]);

impl<'f> Fields<'f> {
    fn take(&mut self, count: usize) -> Option<&'f [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.take(bytes).map(|_| ())
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)?[0] != 0)
    }

    /// A length of -1 says that there is nothing.
    pub(crate) fn bytes(&mut self) -> Option<&'f [u8]> {
        match self.int()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_a_short_frame_is_no_panic() {
        let frame = Frame::new().int(-2).long(1 << 40).flag(true).text("a/b").bytes(&[]).finish();
        assert_eq!(frame[..4], 24u32.to_be_bytes());
        let mut fields = Fields(&frame[4..]);
        assert_eq!((fields.int(), fields.long(), fields.flag()), (Some(-2), Some(1 << 40), Some(true)));
        assert_eq!((fields.text().as_deref(), fields.bytes()), (Some("a/b"), Some(&[][..])));
        assert_eq!((fields.int(), fields.bytes(), fields.flag()), (None, None, None));
        // A length that is larger than the frame, and a negative one.
        assert_eq!(Fields(&[0, 0, 0, 9, 1]).bytes(), None);
        assert_eq!(Fields(&[0xff, 0xff, 0xff, 0xfe]).bytes(), None);
        assert_eq!(Fields(&[0xff; 4]).bytes(), Some(&[][..]));
    }
}
