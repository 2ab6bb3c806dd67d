//! What is stored of a command: its outputs and its exit code, as one value.

/// How much of each output is stored. Both fit into a result with room to spare.
pub(super) const KEPT: usize = 384 * 1024;

/// What a command answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub code: u8,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    /// An output was longer than what is stored.
    pub is_cut: bool,
}

impl Frame {
    /// A line of text with code, lengths and whether it was cut, then both outputs as they were.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { code, out, err, is_cut } = self;
        let head = format!("polylatch-command 1 {code} {} {} {}\n", out.len(), err.len(), u8::from(*is_cut));
        [head.as_bytes(), out, err].concat()
    }

    /// Undoes [`Frame::to_bytes`]; `None` for the answer of another program.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (head, rest) = (std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]);
        let words: Vec<_> = head.split(' ').collect();
        let ["polylatch-command", "1", code, out, err, is_cut] = words[..] else { return None };
        let (out, err): (usize, usize) = (out.parse().ok()?, err.parse().ok()?);
        if rest.len() != out.checked_add(err)? {
            return None;
        }
        let (out, err) = rest.split_at(out);
        Some(Self { code: code.parse().ok()?, out: out.to_vec(), err: err.to_vec(), is_cut: is_cut == "1" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_output_survives_and_other_answers_are_none() {
        for (out, err) in
            [(&b""[..], &b""[..]), (b"a\nb\n", b"\xff\x00"), (b"polylatch-command 1 0 0 0 0\n", b"")]
        {
            let frame = Frame { code: 3, out: out.to_vec(), err: err.to_vec(), is_cut: out.is_empty() };
            assert_eq!(Frame::parse(&frame.to_bytes()), Some(frame));
        }
        for bytes in
            [&b""[..], b"order 42", b"polylatch-command 1 0 5 0 0\nab", b"polylatch-command 2 0 0 0 0\n"]
        {
            assert_eq!(Frame::parse(bytes), None);
        }
    }
}
