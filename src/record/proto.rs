// SPDX-License-Identifier: GPL-2.0-only
//! Encode protobuf messages: the few kinds of fields that a trace needs. The crates that do it are
//! under Apache-2.0 alone, which a program under GPL-2.0-only may not link.

/// A message under construction: a field number and a value at a time.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

/// Most messages are shorter: they grow once.
const CAPACITY: usize = 64;

/// Wire types.
const VARINT: u32 = 0;
const LENGTH: u32 = 2;

impl Message {
    pub fn new() -> Self {
        Self(Vec::with_capacity(CAPACITY))
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    /// An unsigned integer, a boolean, or an enumeration.
    pub fn uint(mut self, field: u32, value: impl Into<u64>) -> Self {
        self.tag(field, VARINT);
        self.varint(value.into());
        self
    }

    /// An int32 or int64: two's complement in 64 bits.
    pub fn int(self, field: u32, value: impl Into<i64>) -> Self {
        self.uint(field, value.into() as u64)
    }

    pub fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub fn message(self, field: u32, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    /// A repeated integer. An int32 or int64 comes as two's complement in 64 bits.
    pub fn packed(self, field: u32, values: impl IntoIterator<Item = u64>) -> Self {
        let mut packed = Self::new();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the protobuf specification.
    #[test]
    fn fields_are_encoded_as_specified() {
        let bytes = |message: Message| message.as_bytes().to_vec();
        assert_eq!(bytes(Message::new().uint(1, 150u32)), [0x08, 0x96, 0x01]);
        assert_eq!(bytes(Message::new().text(2, "testing")), b"\x12\x07testing");
        assert_eq!(bytes(Message::new().message(3, &Message::new().uint(1, 150u32))), [0x1a, 3, 0x08, 0x96, 0x01]);
        assert_eq!(bytes(Message::new().packed(6, [3, 270, 86942])), [0x32, 6, 3, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        let minus_two = [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(bytes(Message::new().int(1, -2)), minus_two);
    }
}
