//! TLS 1.3 records (RFC 8446, chapter 5): seals what is sent and opens what arrives, with keys that rustls has agreed on.
//!
//! rustls shakes hands, checks certificates and computes all keys; the ciphers are aws-lc's. What is here puts the two
//! together, as a kernel does that speaks TLS: large bodies are sealed from where they lie, many records go in one system
//! call, and what arrives is opened in place. rustls' own record layer copies each byte once more on the way out and once or
//! twice more on the way in, into memory that it asks for record by record.
//!
//! What a reviewer should look for, and where it is:
//!
//! - no nonce is used twice: [`key`] counts, hands no nonce out, and refuses to count too far;
//! - no key is used too often: [`writer`] changes its key long before AES-GCM's limit;
//! - nothing is handed on before its tag has been checked, and after the first record that cannot be opened nothing is:
//!   [`reader`];
//! - an end without a goodbye is an error: [`reader`];
//! - what follows the handshake in the same packet is not lost: [`secure`](crate::secure).

mod key;
mod reader;
mod rekeying;
mod writer;

pub(crate) use key::Key;
pub(crate) use reader::RecordReader;
pub(crate) use rekeying::Rekeying;
pub(crate) use writer::{RECORDS_PER_KEY, RecordWriter};

pub(crate) const HEADER_LEN: usize = 5;
const TAG_LEN: usize = 16;
const MAX_PLAIN_LEN: usize = 1 << 14;
// Behind the plain bytes come their type and the tag.
const OVERHEAD: usize = HEADER_LEN + 1 + TAG_LEN;
// What the standard allows between header and end, since others may pad.
const MAX_SEALED_LEN: usize = MAX_PLAIN_LEN + 256;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
// A warning, as all goodbyes are; nobody looks at the first byte.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
// A key update that asks for none in return, and one that does.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const KEY_UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];

fn to_io(error: rustls::Error) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::{
        ALERT, APPLICATION_DATA, CLOSE_NOTIFY, HANDSHAKE, KEY_UPDATE, KEY_UPDATE_REQUESTED, Key, OVERHEAD,
        RecordReader, RecordWriter, Rekeying,
    };
    use crate::records::key::Plain;
    use crate::records::rekeying::NextKeys;
    use rustls::ConnectionTrafficSecrets;
    use rustls::crypto::cipher::{AeadKey, Iv};
    use std::io::{self, IoSlice};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

    /// Keys that both sides know without asking each other.
    struct Counted {
        sending: u8,
        receiving: u8,
    }

    fn secrets(number: u8) -> (u64, ConnectionTrafficSecrets) {
        let (key, iv) = (AeadKey::from([number; 32]), Iv::from([number; 12]));
        match number % 2 {
            0 => (0, ConnectionTrafficSecrets::Aes256Gcm { key, iv }),
            _ => (0, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }),
        }
    }

    impl NextKeys for Counted {
        fn for_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
            self.sending += 1;
            Ok(secrets(self.sending))
        }

        fn for_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
            self.receiving += 1;
            Ok(secrets(self.receiving))
        }
    }

    fn rekeying() -> Arc<Rekeying> {
        Arc::new(Rekeying::new(Counted { sending: 0, receiving: 0 }))
    }

    fn writer(records_per_key: u64) -> RecordWriter<Vec<u8>> {
        RecordWriter::new(Vec::new(), Key::new(secrets(0)).unwrap(), rekeying(), records_per_key)
    }

    fn reader<R: AsyncRead + Unpin>(source: R) -> RecordReader<R> {
        RecordReader::new(source, Key::new(secrets(0)).unwrap(), rekeying(), Vec::new())
    }

    /// What these parts are on the wire, each written by itself.
    async fn sealed(parts: &[&[u8]], records_per_key: u64) -> Vec<u8> {
        let mut writer = writer(records_per_key);
        for part in parts {
            writer.write_all(part).await.unwrap();
        }
        writer.shutdown().await.unwrap();
        std::mem::take(writer.sink())
    }

    async fn opened(wire: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reader(wire).read_to_end(&mut bytes).await.map(|_| bytes)
    }

    /// Records of any type; a new key after each key update.
    fn records(parts: &[(u8, &[u8])]) -> Vec<u8> {
        let mut wire = Vec::new();
        let (mut number, mut key) = (0, Key::new(secrets(0)).unwrap());
        for (kind, plain) in parts {
            let mut room = vec![0; plain.len() + OVERHEAD];
            key.seal(&Plain::At(plain), *kind, &mut room).unwrap();
            wire.extend(room);
            if *kind == HANDSHAKE {
                number += 1;
                key = Key::new(secrets(number)).unwrap();
            }
        }
        wire
    }

    fn bytes(n_bytes: usize) -> Vec<u8> {
        (0..n_bytes).map(|at| ((at * at) >> 4) as u8).collect()
    }

    /// Gives one byte at a time.
    struct Dripping<'a>(&'a [u8]);

    impl AsyncRead for Dripping<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let n_bytes = self.0.len().min(1);
            buffer.put_slice(&self.0[..n_bytes]);
            self.0 = &self.0[n_bytes..];
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_is_sealed_is_opened_under_however_many_keys() {
        let parts = [0, 1, 4095, 4096, 16 << 10, (16 << 10) + 1, 1 << 20].map(bytes);
        let parts = parts.each_ref().map(Vec::as_slice);
        for records_per_key in [1, 2, 7, u64::MAX] {
            assert!(opened(&sealed(&parts, records_per_key).await).await.unwrap() == parts.concat());
        }
    }

    #[tokio::test]
    async fn records_may_come_byte_by_byte() {
        let parts = [1, 5000, 20_000].map(bytes);
        let wire = sealed(&parts.each_ref().map(Vec::as_slice), 2).await;
        let mut heard = Vec::new();
        reader(Dripping(&wire)).read_to_end(&mut heard).await.unwrap();
        assert!(heard == parts.concat());
    }

    #[tokio::test]
    async fn what_came_before_the_reader_is_heard_first() {
        let wire = records(&[(APPLICATION_DATA, b"one "), (APPLICATION_DATA, b"two"), (ALERT, &CLOSE_NOTIFY)]);
        for at in 0..wire.len() {
            let (early, late) = wire.split_at(at);
            let key = Key::new(secrets(0)).unwrap();
            let mut reader = RecordReader::new(late, key, rekeying(), early.to_vec());
            let mut heard = Vec::new();
            reader.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"one two", "{at}");
        }
    }

    #[tokio::test]
    async fn small_slices_share_a_record_and_large_ones_are_not_copied() {
        let (head, body) = (bytes(24), bytes(256 << 10));
        let mut writer = writer(u64::MAX);
        let small = [IoSlice::new(&head); 50];
        assert_eq!(writer.write_vectored(&small).await.unwrap(), 50 * 24);
        assert_eq!(writer.sink().len(), 50 * 24 + 22);
        writer.sink().clear();
        let mut slices = [IoSlice::new(&head), IoSlice::new(&body)];
        let mut slices = &mut slices[..];
        while !slices.is_empty() {
            let n_taken = writer.write_vectored(slices).await.unwrap();
            IoSlice::advance_slices(&mut slices, n_taken);
        }
        // One record for the head and sixteen for the body.
        assert_eq!(writer.sink().len(), head.len() + body.len() + 17 * 22);
    }

    #[tokio::test]
    async fn every_changed_byte_is_noticed() {
        let wire = sealed(&[b"some words", b"and more"], 1).await;
        for at in 0..wire.len() {
            let mut changed = wire.clone();
            changed[at] ^= 1;
            assert!(opened(&changed).await.is_err(), "byte {at}");
        }
    }

    #[tokio::test]
    async fn every_cut_is_noticed() {
        let wire = sealed(&[b"some words", b"and more"], u64::MAX).await;
        for end in 0..wire.len() {
            let error = opened(&wire[..end]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {end}");
        }
        assert_eq!(opened(&wire).await.unwrap(), b"some wordsand more");
        // What follows the goodbye does not count.
        assert_eq!(opened(&[&wire[..], b"rubbish"].concat()).await.unwrap(), b"some wordsand more");
    }

    #[tokio::test]
    async fn records_cannot_be_left_out_repeated_or_exchanged() {
        let wire = sealed(&[b"first", b"other"], u64::MAX).await;
        let (first, rest) = wire.split_at(5 + 22);
        let (second, end) = rest.split_at(5 + 22);
        for tampered in [[second, end, &[]], [first, end, &[]], [first, first, rest], [second, first, end]] {
            assert!(opened(&tampered.concat()).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_stream_that_has_failed_stays_so() {
        let good = records(&[(APPLICATION_DATA, b"good"), (APPLICATION_DATA, b"bad"), (APPLICATION_DATA, b"good")]);
        let mut wire = good.clone();
        wire[4 + 22 + 5] ^= 1;
        let mut reader = reader(&wire[..]);
        let mut buffer = [0; 100];
        // What came before the bad record is heard, and nothing after it, however often one asks.
        assert_eq!(reader.read(&mut buffer).await.unwrap(), 4);
        for _ in 0..3 {
            assert_eq!(reader.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(buffer[..5], *b"good\0");
    }

    #[tokio::test]
    async fn only_data_goodbyes_and_key_updates_are_understood() {
        let ticket: &[u8] = &[4, 0, 0, 2, 9, 9];
        let two_updates = [KEY_UPDATE, KEY_UPDATE].concat();
        let bad: [(u8, &[u8]); 9] = [
            (HANDSHAKE, ticket),
            (HANDSHAKE, &two_updates),
            (HANDSHAKE, &KEY_UPDATE[..4]),
            (HANDSHAKE, &[24, 0, 0, 1, 2]),
            (HANDSHAKE, &[]),
            (ALERT, &[2, 20]),
            (ALERT, &[1]),
            (ALERT, &[1, 0, 1, 0]),
            (20, &[1]),
        ];
        for part in bad {
            let wire = records(&[part, (ALERT, &CLOSE_NOTIFY)]);
            assert_eq!(opened(&wire).await.unwrap_err().kind(), io::ErrorKind::InvalidData, "{part:?}");
        }
        // Nor is anything that is not sealed.
        for kind in [20, ALERT, HANDSHAKE] {
            let wire = [&[kind, 3, 3, 0, 2], &CLOSE_NOTIFY[..]].concat();
            assert_eq!(opened(&wire).await.unwrap_err().kind(), io::ErrorKind::InvalidData, "{kind}");
        }
    }

    #[tokio::test]
    async fn too_long_a_record_is_not_waited_for() {
        let error = opened(&[APPLICATION_DATA, 3, 3, 0x41, 0x01]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn nobody_keeps_us_busy_with_records_that_say_nothing() {
        for part in [(APPLICATION_DATA, &[][..]), (HANDSHAKE, &KEY_UPDATE), (HANDSHAKE, &KEY_UPDATE_REQUESTED)] {
            let some = [vec![part; 32], vec![(APPLICATION_DATA, &b"data"[..])]].concat();
            let twice = [&some[..], &some, &[(ALERT, &CLOSE_NOTIFY)]].concat();
            assert_eq!(opened(&records(&twice)).await.unwrap(), b"datadata");
            let error = opened(&records(&vec![part; 33])).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[tokio::test]
    async fn a_wish_for_a_new_key_is_granted_before_anything_else_is_said() {
        let common = rekeying();
        let wish = records(&[(HANDSHAKE, &KEY_UPDATE_REQUESTED), (ALERT, &CLOSE_NOTIFY)]);
        let key = || Key::new(secrets(0)).unwrap();
        RecordReader::new(&wish[..], key(), common.clone(), Vec::new()).read_to_end(&mut Vec::new()).await.unwrap();
        let mut writer = RecordWriter::new(Vec::new(), key(), common, u64::MAX);
        writer.write_all(b"answer").await.unwrap();
        writer.shutdown().await.unwrap();
        let expected = records(&[(HANDSHAKE, &KEY_UPDATE), (APPLICATION_DATA, b"answer"), (ALERT, &CLOSE_NOTIFY)]);
        assert_eq!(*writer.sink(), expected);
    }

    #[tokio::test]
    async fn nothing_is_said_after_the_goodbye() {
        let mut writer = writer(u64::MAX);
        writer.shutdown().await.unwrap();
        writer.shutdown().await.unwrap();
        assert_eq!(writer.write(b"more").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(*writer.sink(), records(&[(ALERT, &CLOSE_NOTIFY)]));
    }
}
