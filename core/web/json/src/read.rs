//! Reading JSON (RFC 8259).

use crate::{Error, Value};

/// Deepest nesting, as in serde_json: the stack is the limit.
const DEEPEST: u32 = 128;

pub(crate) fn read(json: &str) -> Result<Value, Error> {
    let mut reader = Reader { json, at: 0 };
    let value = reader.value(DEEPEST)?;
    reader.skip_white();
    if reader.at == json.len() { Ok(value) } else { Err(Error(())) }
}

struct Reader<'a> {
    json: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        // No JSON has it outside of a string, where it is refused.
        self.json.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn skip_white(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    /// Takes this byte if it is the next one after white space.
    fn takes(&mut self, byte: u8) -> bool {
        self.skip_white();
        let is = self.peek() == byte;
        self.at += usize::from(is);
        is
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Error> {
        if !self.json[self.at..].starts_with(word) {
            return Err(Error(()));
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, deepest: u32) -> Result<Value, Error> {
        let deeper = deepest.checked_sub(1).ok_or(Error(()))?;
        self.skip_white();
        match self.peek() {
            b'n' => self.word("null", Value::Null),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'"' => self.string().map(Value::String),
            b'[' => {
                let mut items = Vec::new();
                self.items(b']', |reader| {
                    items.push(reader.value(deeper)?);
                    Ok(())
                })?;
                Ok(Value::Array(items))
            }
            b'{' => {
                let mut pairs = Vec::new();
                self.items(b'}', |reader| {
                    reader.skip_white();
                    let key = reader.string()?;
                    if !reader.takes(b':') {
                        return Err(Error(()));
                    }
                    pairs.push((key, reader.value(deeper)?));
                    Ok(())
                })?;
                Ok(Value::Object(pairs))
            }
            _ => self.number(),
        }
    }

    /// What stands between brackets, of which the first one is here.
    fn items(&mut self, end: u8, mut item: impl FnMut(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        self.at += 1;
        if self.takes(end) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.takes(end) {
                return Ok(());
            }
            if !self.takes(b',') {
                return Err(Error(()));
            }
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        if self.peek() != b'"' {
            return Err(Error(()));
        }
        self.at += 1;
        let mut text = String::new();
        loop {
            let from = self.at;
            while !matches!(self.peek(), b'"' | b'\\' | 0..=0x1f) {
                self.at += 1;
            }
            text.push_str(&self.json[from..self.at]);
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(text);
                }
                b'\\' => text.push(self.escaped()?),
                // A control character, or the end.
                _ => return Err(Error(())),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Error> {
        self.at += 1;
        let which = self.peek();
        self.at += 1;
        Ok(match which {
            b'"' | b'\\' | b'/' => char::from(which),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.four_digits()?;
                let code = match first {
                    0xd800..=0xdbff if self.json[self.at..].starts_with("\\u") => {
                        self.at += 2;
                        let second = self.four_digits()?.checked_sub(0xdc00).filter(|low| *low < 0x400);
                        0x1_0000 + (first - 0xd800) * 0x400 + second.ok_or(Error(()))?
                    }
                    _ => first,
                };
                // Half of a pair is no character.
                char::from_u32(code).ok_or(Error(()))?
            }
            _ => return Err(Error(())),
        })
    }

    fn four_digits(&mut self) -> Result<u32, Error> {
        let digits = self.json.as_bytes().get(self.at..self.at + 4).ok_or(Error(()))?;
        self.at += 4;
        digits
            .iter()
            .try_fold(0, |code, digit| Ok(code * 16 + char::from(*digit).to_digit(16).ok_or(Error(()))?))
    }

    fn number(&mut self) -> Result<Value, Error> {
        let from = self.at;
        let minus = self.peek() == b'-';
        self.at += usize::from(minus);
        let digits = self.digits();
        let leading_zero = self.json.as_bytes().get(digits) == Some(&b'0') && self.at > digits + 1;
        let mut whole = self.at > digits;
        if !whole || leading_zero {
            return Err(Error(()));
        }
        if self.peek() == b'.' {
            self.at += 1;
            whole = false;
            if self.digits() == self.at {
                return Err(Error(()));
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            whole = false;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            if self.digits() == self.at {
                return Err(Error(()));
            }
        }
        let text = &self.json[from..self.at];
        if whole {
            if let Ok(number) = text.parse() {
                return Ok(Value::Whole(number));
            }
            if let Ok(number) = text.parse() {
                return Ok(Value::Negative(number));
            }
        }
        float(text).filter(|number| number.is_finite()).map(Value::Float).ok_or(Error(()))
    }

    /// Goes on behind digits. Returns where the first of them is, if there is any.
    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        from
    }
}

/// Reads a number as the standard library does, which needs a table of ten kilobytes for the last bit: here,
/// numbers of more than 15 digits may be off by some of the last bits of a double.
pub fn float(text: &str) -> Option<f64> {
    let (minus, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let sign = if minus { -1.0 } else { 1.0 };
    if ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word)) {
        return Some(sign * f64::INFINITY);
    }
    if unsigned.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    let (number, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (mut value, mut power, mut any, mut in_fraction) = (0.0, exponent, false, false);
    for byte in number.bytes() {
        match byte {
            b'0'..=b'9' => {
                any = true;
                value = value * 10.0 + f64::from(byte - b'0');
                power = power.saturating_sub(i32::from(in_fraction));
            }
            b'.' if !in_fraction => in_fraction = true,
            _ => return None,
        }
    }
    // Divided rather than multiplied by a fraction: powers of ten are exact up to 10^22, their inverses never.
    let scaled = match power {
        _ if value == 0.0 => 0.0,
        0.. => value * power_of_ten(power),
        // In two steps, where one power would be infinite.
        _ if power < -300 => value / power_of_ten(300) / power_of_ten(-300 - power),
        _ => value / power_of_ten(-power),
    };
    any.then_some(sign * scaled)
}

/// By squaring: `powi` may be a call of the C library.
fn power_of_ten(power: i32) -> f64 {
    let (mut left, mut base, mut result) = (power.clamp(0, 400), 10.0, 1.0);
    while left > 0 {
        if left % 2 == 1 {
            result *= base;
        }
        base *= base;
        left /= 2;
    }
    result
}
